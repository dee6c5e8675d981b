"""The Hub, by its own client and by tconv: the same operations against one server, and one cache for both.

The server is the one that cmd/test/test_hub.py uses (cmd/test/hub_server.py): that huggingface_hub works with it
shows that it speaks as the Hub does. Nothing leaves the machine.
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cmd" / "test"))
from hub_server import Hub  # noqa: E402

TOKEN = "hf_test"
KEPT = re.compile(r"(models|datasets)--[^/]+/(blobs|refs|snapshots)/")


def tree(root):
    """What a cache holds, without the locks and what each client notes for itself."""
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if (path.is_symlink() or path.is_file()) and KEPT.match(str(path.relative_to(root)))
    }


def run(checks, tconv):
    with Hub(token=TOKEN) as hub, tconv.folder() as folder:
        # Read when the client is imported.
        os.environ.update(
            HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN, HF_HOME=str(folder / "home"), HF_HUB_CACHE=str(folder / "cache"),
            HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1",
        )  # fmt: skip
        import huggingface_hub

        api = huggingface_hub.HfApi(endpoint=hub.url, token=TOKEN)
        tensors = {"w": np.arange(6000, dtype=np.float32), "b": np.ones(3, dtype=np.float32)}
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text('{"a": 1}')
        for case in (both_send, both_list, both_fetch, one_cache, locks, shared, without_network, reads, in_parts):
            with checks.case(case.__name__):
                case(checks, tconv, hub, api, huggingface_hub, folder)


def both_send(checks, tconv, hub, api, client, folder):
    """What either sends is the same to the server."""
    api.create_repo("org/theirs", exist_ok=True)
    for name in ("model.safetensors", "config.json"):
        api.upload_file(path_or_fileobj=folder / name, path_in_repo=f"d/{name}", repo_id="org/theirs")
        tconv.run("hub", "push", "org/ours", folder / name, f"d/{name}")
    states = [hub.repos[f"models/org/{name}"] for name in ("ours", "theirs")]
    checks.equal("files", *(repo.commits[repo.refs["main"]] for repo in states))
    api.delete_file("d/config.json", "org/theirs")
    checks.equal("after deleting", "d/config.json" in states[1].commits[states[1].refs["main"]], False)
    info = api.upload_file(path_or_fileobj=b"pr", path_in_repo="pr.txt", repo_id="org/ours", create_pr=True)
    checks.equal("a pull request", bool(info), True)
    (folder / "pr.txt").write_text("by tconv")
    tconv.run("hub", "push", "org/ours", folder / "pr.txt", "--create-pr")
    checks.equal("pull requests", sum(name.startswith("refs/pr/") for name in states[0].refs), 2)


def both_list(checks, tconv, hub, api, client, folder):
    """Lists in pages, and what is known of a repository."""
    hub.add_repo("org/many", {f"f/{i:03}.txt": b"%d" % i for i in range(25)} | {"x.safetensors": b"0" * 2000})
    hub.page = 4
    theirs = {e.path: e for e in api.list_repo_tree("org/many", recursive=True) if hasattr(e, "size")}
    ours = json.loads(tconv.run("hub", "list", "org/many", "--json"))["files"]
    hub.page = 1000
    checks.equal("paths", [each["path"] for each in ours], sorted(theirs))
    checks.equal("sizes", [each["size"] for each in ours], [theirs[each["path"]].size for each in ours])
    checks.equal("a hash", ours[-1]["sha256"], theirs["x.safetensors"].lfs.sha256)
    known = json.loads(tconv.run("hub", "info", "org/many", "--json"))
    checks.equal("commit", known["commit"], api.model_info("org/many").sha)


def both_fetch(checks, tconv, hub, api, client, folder):
    """Both leave the same cache."""
    for name in ("a", "b"):
        (folder / name).mkdir()
    client.snapshot_download("org/ours", cache_dir=folder / "a")
    old, os.environ["HF_HUB_CACHE"] = os.environ["HF_HUB_CACHE"], str(folder / "b")
    printed = tconv.run("hub", "pull", "org/ours")
    os.environ["HF_HUB_CACHE"] = old
    checks.equal("cache", tree(folder / "b"), tree(folder / "a"))
    checks.equal("path", printed and Path(printed.decode().strip()).parent.name, "snapshots")


def one_cache(checks, tconv, hub, api, client, folder):
    """What one has fetched, the other finds, and fetches nothing."""
    theirs = Path(client.hf_hub_download("org/ours", "d/model.safetensors"))
    sent = hub.sent
    ours = tconv.run("hub", "pull", "org/ours", "d/model.safetensors")
    checks.equal("found by tconv", ours and ours.decode().strip(), str(theirs))
    checks.true(hub.sent - sent < 5000, lambda: f"tconv fetched {hub.sent - sent} bytes")
    tconv.run("hub", "pull", "org/ours", "d/config.json")
    found = client.hf_hub_download("org/ours", "d/config.json", local_files_only=True)
    checks.equal("found by the client", Path(found).read_text(), '{"a": 1}')
    whole = client.try_to_load_from_cache("org/ours", "d/model.safetensors")
    checks.equal("and the first", whole, str(theirs))
    scanned = client.scan_cache_dir(folder / "cache")
    checks.equal("warnings about the cache", [str(each) for each in scanned.warnings], [])
    blob = theirs.resolve()
    data = blob.read_bytes()
    blob.rename(f"{blob}.incomplete")
    Path(f"{blob}.incomplete").write_bytes(data[:1000])
    theirs.unlink()
    tconv.run("hub", "pull", "org/ours", "d/model.safetensors")
    checks.equal("what the client had begun", blob.read_bytes(), data)


def locks(checks, tconv, hub, api, client, folder):
    """Each waits while the other holds the lock of a content; both at once leave it whole."""
    from huggingface_hub.utils import WeakFileLock

    blob = Path(client.hf_hub_download("org/ours", "d/model.safetensors")).resolve()
    lock = folder / "cache" / ".locks" / blob.parent.parent.name / f"{blob.name}.lock"
    data = blob.read_bytes()
    blob.unlink()
    pull = [tconv.program, "hub", "pull", "org/ours", "d/model.safetensors"]
    with WeakFileLock(lock):
        waiting = subprocess.Popen(pull, stdout=subprocess.DEVNULL)
        time.sleep(1)
        checks.equal("tconv waits for the client", (waiting.poll(), blob.exists()), (None, False))
    checks.equal("and then fetches", (waiting.wait(60), blob.read_bytes()), (0, data))
    blob.unlink()
    hub.faults[blob.name] = ["silent"]
    fetching = subprocess.Popen(pull, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_DOWNLOAD_TIMEOUT": "3"})
    while not hub.faults[blob.name] == [] and fetching.poll() is None:
        time.sleep(0.01)
    theirs = Path(client.hf_hub_download("org/ours", "d/model.safetensors"))
    checks.equal("the client waits for tconv", theirs.read_bytes(), data)
    checks.equal("which ends well", fetching.wait(60), 0)
    del hub.faults[blob.name]


def shared(checks, tconv, hub, api, client, folder):
    """A content that the client keeps once for all repositories: tconv finds it, and leaves it there."""
    try:
        from huggingface_hub.utils import _shared_blobs
    except ImportError:
        checks.notes.append("this client shares no contents between repositories")
        return
    cache = folder / "cache"
    theirs = Path(client.hf_hub_download("org/ours", "d/model.safetensors"))
    blob = theirs.resolve()
    here = tconv.run("hash", folder / "model.safetensors")
    done = _shared_blobs.publish_blob_to_shared_store(
        blob_path=str(blob), xet_hash="ab" * 32, cache_dir=cache, expected_size=blob.stat().st_size
    )
    checks.equal("it is shared", (done, blob.is_symlink()), (True, True))
    sent = hub.sent
    tconv.run("hub", "pull", "org/ours", "d/model.safetensors")
    checks.equal("it stays", (blob.is_symlink(), hub.sent - sent < 5000), (True, True))
    checks.equal("a file of the snapshot", tconv.run("hash", theirs), here)
    checks.equal("its folder", tconv.run("hash", theirs.parent), here)
    tconv.run("-q", f"{theirs.parent}", f"{folder / 'shared'}/", "-t", "npz")
    checks.equal("warnings about the cache", [str(each) for each in client.scan_cache_dir(cache).warnings], [])


def without_network(checks, tconv, hub, api, client, folder):
    """What the client has fetched is read by its address where the network is not to be used."""
    client.snapshot_download("org/theirs", revision="main")
    here = tconv.run("hash", folder / "model.safetensors")
    asked = len(hub.requests)
    os.environ["HF_HUB_OFFLINE"] = "1"
    for address in ("hf://org/theirs/d/model.safetensors", "hf://org/theirs/d"):
        checks.equal(address, tconv.run("hash", address), here)
    del os.environ["HF_HUB_OFFLINE"]
    checks.equal("requests", len(hub.requests), asked)


def reads(checks, tconv, hub, api, client, folder):
    """Addresses, as the client's own file has them."""
    here = tconv.run("hash", folder / "model.safetensors")
    web = client.hf_hub_url("org/ours", "d/model.safetensors")
    for address in ("hf://org/ours/d/model.safetensors", "hf://org/ours@main/d/model.safetensors", web):
        checks.equal(address, tconv.run("hash", address), here)
    tconv.run("hub", "convert", "org/ours", "d/model.safetensors", "-o", "model.npz")
    got = np.load(client.hf_hub_download("org/ours", "model.npz"))
    for name, array in load_file(folder / "model.safetensors").items():
        checks.equal(f"converted: {name}", got[name].tobytes(), array.tobytes())


def in_parts(checks, tconv, hub, api, client, folder):
    """Large files in several parts."""
    hub.part = 7000
    for name in ("theirs", "ours"):
        data = np.random.default_rng(len(name)).bytes(30_000)
        (folder / f"{name}.bin").write_bytes(data)
        if name == "theirs":
            api.upload_file(path_or_fileobj=folder / "theirs.bin", path_in_repo="theirs.bin", repo_id="org/ours")
        else:
            tconv.run("hub", "push", "org/ours", folder / "ours.bin")
        checks.equal(name, hub.store.get(hashlib.sha256(data).hexdigest()), data)
    hub.part = None
