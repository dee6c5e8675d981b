#!/usr/bin/env python3
"""The Hub: files of repositories, the cache that Python's client has, pushing and converting."""

import base64
import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
import time

import files
from files import Tensor, f32
from harness import (
    DATA,
    INVALID,
    IO,
    MIB,
    OK,
    TCONV,
    UNSAFE,
    UNSUPPORTED,
    USAGE,
    Failed,
    Process,
    Suite,
    check_equal,
    expect,
    tconv,
)
from hub_server import Hub
from remote_server import Server
from remotes import (
    MODEL,
    PLAIN,
    error_code,
    expect_code,
    hub_env,
    model,
    run_hub,
    run_remote,
    tconv_hub,
    tree_of,
)

CASES = []


def case(function):
    CASES.append((function.__name__, function))
    return function


# The Hub


@case
def hub_files(folder):
    """Files of the Hub by hf:// and by the addresses that a browser shows."""
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"m.safetensors": data, "sub/a b.npy": files.npy_of(f32(1, 2))})
        old = repo.refs["main"]
        hub.add_repo("org/set", {"x.npz": b"no"}, "datasets")
        for address in (
            "hf://org/name/m.safetensors", "hf://org/name@main/m.safetensors", f"hf://org/name@{old}/m.safetensors",
            f"hf://models/org/name@{old}/m.safetensors",
            f"{hub.url}/org/name/blob/main/m.safetensors", f"{hub.url}/org/name/resolve/main/m.safetensors?download=true",
        ):  # fmt: skip
            result = run_remote(folder, OK, "hash", address, env=hub_env(hub))
            check_equal(result.out, here.out, address, result)
        result = run_remote(folder, OK, "list", "hf://org/name/sub/a b.npy", env=hub_env(hub))
        check_equal(result.out, b"a b\n", "a name with a space")
        expect_code(folder, IO, "not-found", "info", "hf://org/name/none.npy", env=hub_env(hub))
        expect_code(folder, IO, "not-found", "info", "hf://org/name@none/m.safetensors", env=hub_env(hub))
        expect_code(folder, IO, "denied", "info", "hf://org/none/m.safetensors", env=hub_env(hub))


@case
def hub_folders(folder):
    """A repository, or a folder of it, is a model; scan looks at all of its files."""
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    with Hub() as hub:
        content = {"config.json": b"{}", "README.md": b"x", "unet/a.npy": files.npy_of(f32(1)), "model.safetensors": data}
        hub.add_repo("org/name", content)
        hub.add_repo("org/set", {"sub/deep/model.safetensors": data, "x.txt": b""}, "datasets")
        for address in (
            "hf://org/name", "hf://org/name@main", f"{hub.url}/org/name", f"{hub.url}/org/name/tree/main",
            "hf://datasets/org/set/sub/deep", f"{hub.url}/datasets/org/set/tree/main/sub/deep",
            f"{hub.url}/org/name/", f"{hub.url.replace('http', 'HTTP')}/org/name?library=x#files",
        ):  # fmt: skip
            result = run_remote(folder, OK, "hash", address, env=hub_env(hub))
            check_equal(result.out, here.out, address, result)
        result = run_remote(folder, OK, "scan", "--json", "hf://org/name", env=hub_env(hub))
        check_equal(result.out.count(b'"file"'), 4, "files that were scanned", result)
        run_remote(folder, IO, "info", "hf://datasets/org/set", env=hub_env(hub))
        run_remote(folder, OK, "-q", "hf://org/name", "out.npz", env=hub_env(hub))
        expect(folder, OK, "diff", "--ignore-metadata", "out.npz", "m.safetensors")


@case
def hub_checkpoint_folders(folder):
    """Checkpoints that are folders, by each kind of address of the Hub; other servers do not tell what a folder has."""
    content = {}
    for name in ("zero/stage2", "dcp/ranks"):
        root = DATA / name
        content |= {str(path.relative_to(DATA)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with Hub() as hub, Server() as server:
        hub.add_repo("org/name", content)
        for path, data in content.items():
            server.add(f"/{path}", data)
        for name, file in (("zero/stage2", "latest"), ("dcp/ranks", ".metadata")):
            here = expect(folder, OK, "hash", DATA / name)
            for address in (f"hf://org/name/{name}", f"hf://org/name/{name}/{file}", f"{hub.url}/org/name/resolve/main/{name}/{file}"):
                result = run_remote(folder, OK, "hash", address, env=hub_env(hub))
                check_equal(result.out, here.out, address, result)
        run_remote(folder, OK, "hash", f"{server.url}/dcp/ranks/.metadata")
        expect_code(folder, UNSUPPORTED, "remote-folder", "hash", f"{server.url}/zero/stage2/latest")


@case
def hub_folder_to_folder(folder):
    """A repository becomes a folder: its weights converted, its other files as they are."""
    content = {
        "config.json": b'{"a": 1}', "d/e/notes.txt": b"text", "tokenizer.json": os.urandom(200_000),
        "model.safetensors": model(), "model.bin": b"the same in another form", "run.py": b"1", ".gitattributes": b"x",
    }  # fmt: skip
    with Hub() as hub:
        hub.add_repo("org/name", content)
        result = run_remote(folder, OK, "hf://org/name", "out/", "-t", "npz", "--receipt", "r.json", env=hub_env(hub))
        have = tree_of(folder / "out")
        (folder / "m.safetensors").write_bytes(model())
        expect(folder, OK, "diff", "--ignore-metadata", "out/model.npz", "m.safetensors")
        wanted = {name: data for name, data in content.items() if not name.startswith("model.")}
        check_equal({name: data for name, data in have.items() if name != "model.npz"}, wanted, "files", result)
        for words in (b"another form", b"programs are copied"):
            if words not in result.err:
                raise result.failed(f"expected: a warning: {words}")
        check_equal("config.json" in (folder / "r.json").read_text(), True, "the receipt names what was copied")
        # With --verify each copy is read back from the disk, and not fetched a second time.
        requests = {}
        for out, options in (("plain", ()), ("checked", ("--verify",))):
            hub.requests.clear()
            run_remote(folder, OK, "-q", "hf://org/name/", f"{out}/", "-t", "npz", *options, env=hub_env(hub))
            check_equal(tree_of(folder / out), have, f"files, {out}")
            requests[out] = [path for command, path, _ in hub.requests if "tokenizer" in path]
        check_equal(requests["checked"], requests["plain"], "requests")
        flipped = {**hub_env(hub), "TCONV_TEST_FLIP_COPY": "0"}
        expect_code(folder, IO, "verification", "-q", "hf://org/name", "flipped/", "-t", "npz", "--verify", env=flipped)
        check_equal((folder / "flipped").exists(), False, "no output")
        run_remote(folder, OK, "-q", "hf://org/name", "bare/", "-t", "npz", "--only-weights", env=hub_env(hub))
        check_equal(sorted(tree_of(folder / "bare")), ["model.npz"], "only weights")
        hub.hook = lambda handler, path: "tokenizer" in path and (handler.answer(404, b"") or True)
        run_remote(folder, IO, "-q", "hf://org/name", "lost/", "-t", "npz", env=hub_env(hub))


@case
def hub_types(folder):
    """Sets of data and spaces, by their addresses, by --repo-type, and by the names that deathtensors has for the commands."""
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    with Hub() as hub:
        for kind in ("datasets", "spaces"):
            hub.add_repo("org/name", {"m.safetensors": data}, kind)
            for address in (f"hf://{kind}/org/name/m.safetensors", f"{hub.url}/{kind}/org/name/blob/main/m.safetensors", f"hf://{kind}/org/name"):
                result = run_remote(folder, OK, "hash", address, env=hub_env(hub))
                check_equal(result.out, here.out, address, result)
            for words in (["list", f"{kind}/org/name"], ["list", "org/name", f"--repo-type={kind[:-1]}"], ["info", "org/name", "--repo-type", kind[:-1]]):
                run_hub(folder, OK, hub, *words)
            for name, other in ((f"{kind}/org/name", "model"), (f"hf://{kind}/org/name", "model"), ("models/org/name", kind[:-1])):
                run_hub(folder, USAGE, hub, "list", name, "--repo-type", other)
            run_hub(folder, OK, hub, "list", f"{kind}/org/name", "--repo-type", kind[:-1])
            run_hub(folder, OK, hub, "pull", "org/name", "--repo-type", kind[:-1])
            check_equal((folder / "cache" / f"{kind}--org--name" / "refs" / "main").exists(), True, kind)
            run_hub(folder, OK, hub, "push", "org/new", "m.safetensors", "--repo-type", kind[:-1])
            check_equal(f"{kind}/org/new" in hub.repos, True, f"a new one of {kind}")
        hub.add_repo("org/name", {"m.safetensors": data})
        env = hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))
        for words in ("hub-list org/name", "hub-info org/name", "hub-pull org/name", "hub-push org/name m.safetensors n.npz", "hub-convert org/name m.safetensors -o o.npz"):
            run_remote(folder, OK, *words.split(), env=env)


@case
def hub_odd_names(folder):
    """A shard's name is that of the file, whatever is in it; a query in an address of the Hub means nothing."""
    data = model({"b": f32(0.5)})
    with Hub() as hub:
        for name in ("a b?c#d%2e@f.safetensors", "x..y.safetensors"):
            index = {"metadata": {"total_size": 4}, "weight_map": {"b": name}}
            other = {"a b": b"another file", "x": b"another"}
            hub.add_repo("org/odd", {**other, f"v1..2/{name}": data, "v1..2/m.safetensors.index.json": json.dumps(index).encode()})
            for address in ("hf://org/odd/v1..2/m.safetensors.index.json", "hf://org/odd/v1..2"):
                result = run_remote(folder, OK, "list", address, env=hub_env(hub))
                check_equal(result.out.splitlines()[-1], b"b", f"{name} by {address}", result)
            run_hub(folder, OK, hub, "list", "org/odd", "v1..2")
            run_hub(folder, OK, hub, "pull", "org/odd", "v1..2")
        hub.add_repo("org/name", {"m.safetensors": data})
        run_remote(folder, OK, "diff", f"hf://org/name/m.safetensors?x={'1' * 9}", "hf://org/name/m.safetensors?x=2", env=hub_env(hub))


@case
def hub_pins(folder):
    """A revision is one commit for the whole run: shards come from where the index came from."""
    (folder / "m.safetensors").write_bytes(model({f"t{i}": f32(*([i] * 5000)) for i in range(8)}))
    expect(folder, OK, "-q", "m.safetensors", "s.safetensors", "--shard-size", "64K")
    with Hub() as hub:
        content = {path.name: path.read_bytes() for path in folder.glob("s*")}
        repo = hub.add_repo("org/name", content)
        first = repo.refs["main"]

        def move(handler, path):
            if handler.command == "GET" and "index.json" in path:
                repo.commit({}, message=f"moved {len(repo.commits)}")
            return False

        hub.hook = move
        run_remote(folder, OK, "hash", "hf://org/name/s.safetensors.index.json", env=hub_env(hub))
        revisions = {path.split("/")[4] for _, path, _ in hub.requests if "-of-" in path}
        check_equal(revisions, {first}, "revisions of the shards")


@case
def hub_token(folder):
    """The token goes to the endpoint, and to no other host."""
    with Hub() as hub, Server() as store:
        data = model()
        hub.add_repo("org/name", {"m.safetensors": data}, private=True)
        oid = hashlib.sha256(data).hexdigest()
        store.add(f"/store/{oid}", data)
        hub.store_url = store.url
        expect_code(folder, IO, "denied", "info", "hf://org/name/m.safetensors", env=hub_env(hub))
        expect_code(folder, IO, "token", "info", "hf://org/name/m.safetensors", env=hub_env(hub, "expired"))
        (folder / "token").write_text("hf_test\n")
        for env in (
            {"HF_TOKEN": "hf_test"}, {"HUGGING_FACE_HUB_TOKEN": "hf_test"},
            {"HF_TOKEN_PATH": str(folder / "token")}, {"HF_HOME": str(folder)}, {"HF_TOKEN": " ", "HF_HOME": str(folder)},
            {"HOME": str(folder), "HF_TOKEN_PATH": "~/token"},
        ):  # fmt: skip
            run_remote(folder, OK, "hash", "hf://org/name/m.safetensors", env={"HF_ENDPOINT": hub.url, **env})
        got = [lines for _, _, lines in store.requests if "Authorization" in lines]
        check_equal(got, [], "requests to the store with the token")
        result = run_remote(folder, USAGE, "info", "hf://org/name/m.safetensors", env=hub_env(hub, "a\tb"))
        if b"a\tb" in result.err:
            raise result.failed("the token is shown")


@case
def hub_token_elsewhere(folder):
    """An address of another server gets no token, even where it leads to the Hub."""
    with Hub() as hub, Server() as server:
        hub.add_repo("org/name", {"m.safetensors": model()}, private=True)
        url = server.add("/m", b"", faults=[f"go:{hub.url}/org/name/resolve/main/m.safetensors"] * 9)
        run_remote(folder, IO, "info", url, env=hub_env(hub, "hf_test"))
        for each in server.asked() + hub.asked():
            if "Authorization" in each[2]:
                raise Failed(f"the token went to {each}")


@case
def hub_expired_links(folder):
    """An address that the Hub gave and that has expired is asked for again."""
    size = 300_000
    data = model({"a": Tensor("U8", [size], os.urandom(size))})
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data})
        hub.faults[hashlib.sha256(data).hexdigest()] = [None, "status:403", None, "status:403"]
        run_remote(folder, OK, "hash", "hf://org/name/m.safetensors", env=hub_env(hub))


@case
def hub_offline(folder):
    result = expect_code(folder, IO, "offline", "info", "hf://org/name/m.npy", env={"HF_HUB_OFFLINE": "1"})
    if b"HF_HUB_OFFLINE" not in result.err:
        raise result.failed("expected: a hint on what to do")
    expect_code(folder, IO, "offline", "info", "hf://org/name/m.npy", env={"TRANSFORMERS_OFFLINE": "YES"})


@case
def hub_offline_cache(folder):
    """Without the network, what the Hub's cache has is read there."""
    (folder / "m.safetensors").write_bytes(model())
    here = expect(folder, OK, "hash", "m.safetensors")
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"model.safetensors": model(), "config.json": b"{}", "d/x.npy": files.npy_of(f32(1))})
        run_hub(folder, OK, hub, "pull", "org/name")
        asked = len(hub.requests)
        offline = hub_env(hub, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(folder / "cache"))
        for address in (
            "hf://org/name/model.safetensors", "hf://org/name", f"hf://org/name@{repo.refs['main']}/model.safetensors",
            f"{hub.url}/org/name/resolve/main/model.safetensors", f"{hub.url}/org/name",
        ):  # fmt: skip
            result = run_remote(folder, OK, "hash", address, env=offline)
            check_equal(result.out, here.out, address, result)
        run_remote(folder, OK, "-q", "hf://org/name", "out/", "-t", "npz", env=offline)
        check_equal(sorted(tree_of(folder / "out")), ["config.json", "d/x.npy", "model.npz"], "the folder")
        run_remote(folder, OK, "scan", "hf://org/name", env=offline)
        for address in ("hf://org/name/none.npy", "hf://org/name@v2/model.safetensors", "hf://org/other"):
            expect_code(folder, IO, "offline", "hash", address, env=offline)
        expect_code(folder, IO, "offline", "diff", "hf://org/name/model.safetensors", "hf://org/name/x.npz", env=offline)
        (folder / "cache" / "models--org--name" / "refs" / "main").write_text("../../../secret")
        expect_code(folder, IO, "offline", "hash", "hf://org/name", env=offline)
        check_equal(len(hub.requests), asked, "requests")


@case
def hub_gated(folder):
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()}, gated=True)
        result = expect_code(folder, IO, "denied", "info", "hf://org/name/m.safetensors", env=hub_env(hub))
        if b"gated" not in result.err:
            raise result.failed("expected: that the repository is gated")

# tconv hub


@case
def hub_list(folder):
    with Hub() as hub:
        content = {f"d/{i:03}.npy": files.npy_of(f32(i)) for i in range(25)}
        repo = hub.add_repo("org/name", {"m.safetensors": model(), **content})
        hub.page = 7
        result = run_hub(folder, OK, hub, "list", "org/name", "--json")
        listed = json.loads(result.out)["files"]
        check_equal([each["path"] for each in listed], sorted({"m.safetensors", *content}), "paths")
        check_equal(listed[-1]["sha256"], hashlib.sha256(model()).hexdigest(), "a hash")
        result = run_hub(folder, OK, hub, "list", "hf://org/name", "d")
        check_equal(result.out.count(b"\n"), 25, "lines", result)
        result = run_hub(folder, OK, hub, "info", "org/name", "--json")
        got = json.loads(result.out)
        check_equal((got["commit"], got["files"]), (repo.refs["main"], 26), "what is known")
        run_hub(folder, OK, hub, "info", f"{hub.url}/org/name")
        result = run_remote(folder, OK, "hub-list", "org/name", env=hub_env(hub))
        for words in (["list", "org/none"], ["list", "org/name", "none"], ["info", "org/name", "--revision", "none"]):
            run_hub(folder, IO, hub, *words)
        run_hub(folder, OK, hub, "list", "org/name@main", "--revision", "main")
        for words in (["list", "org/name@main", "--revision", "v2"], ["lsit", "a/b"], ["list"], ["list", "../x"], ["pull", "a/b", "../c"], ["list", "a/b", "--private"]):
            run_hub(folder, USAGE, hub, *words)


@case
def hub_pull(folder):
    """The cache is laid out as Python's client has it."""
    data, small = model(), b"{}"
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"m.safetensors": data, "config.json": small, "d/e/x.json": b"1"})
        commit, large = repo.refs["main"], hashlib.sha256(data).hexdigest()
        result = run_hub(folder, OK, hub, "pull", "org/name")
        root = folder / "cache" / "models--org--name"
        check_equal(result.out.decode().strip(), str(root / "snapshots" / commit), "the printed path")
        blobs = {hashlib.sha1(b"blob %d\0" % len(each) + each).hexdigest(): each for each in (small, b"1")}
        tree = {f"blobs/{large}": data, **{f"blobs/{name}": each for name, each in blobs.items()}}
        tree["refs/main"] = commit.encode()
        tree[f"snapshots/{commit}/m.safetensors"] = f"../../blobs/{large}"
        names = {each: name for name, each in blobs.items()}
        tree[f"snapshots/{commit}/config.json"] = f"../../blobs/{names[small]}"
        tree[f"snapshots/{commit}/d/e/x.json"] = f"../../../../blobs/{names[b'1']}"
        check_equal(tree_of(root), tree, "the cache")
        check_equal((root / "snapshots" / commit / "d/e/x.json").read_bytes(), b"1", "by its link")
        before = hub.sent
        result = run_hub(folder, OK, hub, "pull", "org/name", "--json")
        check_equal(json.loads(result.out)["fetched"], 0, "bytes of the second run")
        if hub.sent - before > 4000:
            raise Failed("the second run fetched the files again")
        run_hub(folder, OK, hub, "pull", "org/name", "m.safetensors", "-o", "copy.safetensors")
        check_equal((folder / "copy.safetensors").read_bytes(), data, "the copy")
        run_hub(folder, OK, hub, "pull", "org/name", "d/e", "-o", "out/")
        check_equal((folder / "out" / "x.json").read_bytes(), b"1", "a folder")
        for words in (["pull", "org/name", "-o", "all"], ["pull", "org/name", "d/", "-o", "part/"]):
            run_hub(folder, OK, hub, *words)
        check_equal(tree_of(folder / "all"), {"m.safetensors": data, "config.json": small, "d/e/x.json": b"1"}, "folders in it")
        check_equal(tree_of(folder / "part"), {"e/x.json": b"1"}, "a folder's own")
        (folder / "all" / "mine").write_bytes(b"1")
        run_hub(folder, USAGE, hub, "pull", "org/name", "-o", "all")
        run_hub(folder, IO, hub, "pull", "org/name", "none")


@case
def hub_pull_resumes(folder):
    """What is there of a content is not fetched again; a wrong one is not kept."""
    data = model({"a": Tensor("U8", [500_000], os.urandom(500_000))})
    oid = hashlib.sha256(data).hexdigest()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data})
        blobs = folder / "cache" / "models--org--name" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / f"{oid}.incomplete").write_bytes(data[:400_000])
        run_hub(folder, OK, hub, "pull", "org/name")
        check_equal((blobs / oid).read_bytes(), data, "the content")
        if hub.sent > 200_000:
            raise Failed(f"{hub.sent} bytes for the rest of 100,000")
        (blobs / oid).unlink()
        (blobs / f"{oid}.incomplete").write_bytes(b"x" * 1000)
        result = tconv_hub(folder, hub, "pull", "org/name", "--json")
        check_equal((result.code, error_code(result)), (INVALID, "hash"), "a wrong beginning", result)
        check_equal(sorted(blobs.iterdir()), [], "what is kept")
        hub.faults[oid] = ["cut:100000"] * 50
        result = tconv_hub(folder, hub, "pull", "org/name", "--json")
        check_equal(result.code in (OK, IO), True, "a connection that is cut again and again", result)


@case
def hub_pull_hostile(folder):
    """Paths, hashes and commits of answers name nothing outside of the cache."""
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        commit = hub.repos["models/org/name"].refs["main"]
        good = {"type": "file", "oid": "0" * 40, "size": 2, "path": "a"}
        for answer in (
            [{**good, "path": "../../evil"}], [{**good, "path": "/etc/evil"}], [{**good, "path": "a/../../b"}],
            [{**good, "oid": "../x"}], [{**good, "path": "a\u0000b"}], [good, good], {"a": 1}, "x", [1],
            [{**good, "lfs": {"oid": "zz", "size": 2}}],
        ):  # fmt: skip

            def lie(handler, path, answer=answer):
                if "/tree/" in path:
                    hub.reply(handler, answer)
                return "/tree/" in path

            hub.hook = lie
            result = tconv_hub(folder, hub, "pull", "org/name", "--json")
            check_equal(result.code in (IO, UNSAFE), True, f"{answer}", result)
        hub.hook = None
        for lines in ({"X-Repo-Commit": "../../x"}, {"X-Linked-Etag": '"../../evil"', "X-Repo-Commit": commit}):

            def lie_more(handler, path, lines=lines):
                if handler.command == "HEAD":
                    handler.answer(302, b"", {"X-Linked-Size": str(len(model())), "Location": "/x", **lines})
                return handler.command == "HEAD"

            hub.hook = lie_more
            result = tconv_hub(folder, hub, "pull", "org/name", "--json")
            check_equal((result.code, error_code(result)), (IO, "answer"), str(lines), result)
        check_equal([path.name for path in folder.parent.glob("evil*")] + list(folder.glob("evil*")), [], "escapes")
        (folder / "elsewhere").mkdir()
        (folder / "cache" / "models--org--name" / "blobs").symlink_to(folder / "elsewhere")
        hub.hook = None
        check_equal(tconv_hub(folder, hub, "pull", "org/name").code, IO, "a link on the way")
        check_equal(list((folder / "elsewhere").iterdir()), [], "behind the link")


@case
def hub_push(folder):
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    (folder / "config.json").write_bytes(b'{"a": 1}')
    with Hub() as hub:
        result = run_hub(folder, OK, hub, "push", "org/new", "m.safetensors", "--private", "--message", "first")
        repo = hub.repos["models/org/new"]
        check_equal(repo.commits[repo.refs["main"]]["m.safetensors"], data, "what the Hub has", result)
        check_equal((repo.private, repo.messages[-1]), (True, "first"), "how it was made")
        if b"/commit/" not in result.out:
            raise result.failed("expected: the commit's address")
        (folder / "d" / "sub").mkdir(parents=True)
        (folder / "d" / "a.txt").write_bytes(b"text")
        (folder / "d" / "sub" / "m.safetensors").write_bytes(data)
        (folder / "d" / "empty").write_bytes(b"")
        run_hub(folder, OK, hub, "push", "org/new", "d", "models")
        have = repo.commits[repo.refs["main"]]
        check_equal(have["models/a.txt"], b"text", "a small file")
        check_equal(have["models/sub/m.safetensors"], data, "a large file")
        check_equal(have["models/empty"], b"", "an empty file")
        run_hub(folder, OK, hub, "push", "org/new", "m.safetensors", "x/m.npz", "--create-pr")
        (folder / "m.npz").write_bytes(repo.commits[repo.refs["refs/pr/1"]]["x/m.npz"])
        expect(folder, OK, "diff", "--ignore-metadata", "m.npz", "m.safetensors")
        check_equal("x/m.npz" in repo.commits[repo.refs["main"]], False, "main is as it was")
        hub.part = 300
        big = model({"a": Tensor("U8", [1000], os.urandom(1000))})
        (folder / "big.safetensors").write_bytes(big)
        result = run_hub(folder, OK, hub, "push", "org/new", "big.safetensors", "--json")
        check_equal(repo.commits[repo.refs["main"]]["big.safetensors"], big, "in several parts")
        check_equal(json.loads(result.out)["commit"], repo.refs["main"], "the commit")
        run_hub(folder, IO, hub, "push", "org/new", "m.safetensors", token="wrong")
        run_hub(folder, IO, hub, "push", "org/new", "m.safetensors", token="")
        run_hub(folder, IO, hub, "push", "org/new", "none.safetensors")
        run_hub(folder, OK, hub, "push", "datasets/org/set", "config.json", "data/config.json")
        check_equal("datasets/org/set" in hub.repos, True, "a set of data")
        hub.api_faults = [None, "status:503", "wait:429:0", "status:500"]
        (folder / "n.safetensors").write_bytes(model({"z": f32(9)}))
        run_hub(folder, OK, hub, "push", "org/new", "n.safetensors")
        leaks = [each for each in hub.asked() if each[1].startswith(("/store", "/part")) and "Authorization" in each[2]]
        check_equal(leaks, [], "uploads with the token")


@case
def hub_push_renamed(folder):
    """A repository that has another name now: the Hub leads there, and to no other host with what is sent."""
    (folder / "m.safetensors").write_bytes(model())
    (folder / "small.txt").write_bytes(b"x")
    with Hub() as hub, Server() as other:
        repo = hub.add_repo("org/name", {"a": b"1"})

        def lead(handler, path):
            if "old/name" not in path or (place and handler.command == "GET"):
                return False
            handler.answer(status, b"", {"Location": place + handler.path.replace("old/name", "org/name")})
            return True

        hub.hook, place = lead, ""
        for status in (307, 308):
            for name in ("m.safetensors", "small.txt"):
                run_hub(folder, OK, hub, "push", "old/name", name, f"{status}-{name}")
                check_equal(f"{status}-{name}" in repo.commits[repo.refs["main"]], True, "the file")
        status = 302
        check_equal(tconv_hub(folder, hub, "push", "old/name", "m.safetensors").code, IO, "another kind of redirect")
        hub.add_repo("old/name", {"a": b"1"})
        status, place = 307, other.url
        check_equal(tconv_hub(folder, hub, "push", "old/name", "m.safetensors").code, IO, "to another host")
        check_equal(other.requests, [], "what the other host got")


@case
def hub_push_expired(folder):
    """Where a store no longer takes what is sent to the address that the Hub gave, a new one is asked for, once."""
    for part, refusals, code in ((None, 1, OK), (None, 99, IO), (300, 1, OK), (300, 99, IO)):
        with Hub() as hub:
            hub.part = part
            (folder / "d").mkdir(exist_ok=True)
            for name in "abc":
                (folder / "d" / f"{name}.bin").write_bytes(os.urandom(1000))
            left = [refusals]

            def refuse(handler, path, left=left):
                denied = handler.command == "PUT" and left[0] > 0 and len(left) > 1
                left[0] -= denied
                left.append(path)
                if denied:
                    handler.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
                return denied

            hub.hook = refuse
            result = tconv_hub(folder, hub, "push", "org/name", "d", "--json")
            check_equal(result.code, code, f"{refusals} refusals, parts of {part}", result)
            asked = [path for _, path, _ in hub.requests if path.endswith("/batch")]
            commits = hub.repos["models/org/name"].commits
            if code == OK:
                have = commits[hub.repos["models/org/name"].refs["main"]]
                check_equal([have[f"{name}.bin"] == (folder / "d" / f"{name}.bin").read_bytes() for name in "abc"], [True] * 3, "files")
            else:
                check_equal((error_code(result), len(asked), len(commits)), ("denied", 2, 1), "how it ended", result)
                if b"HF_TOKEN" in result.err:
                    raise result.failed("the token has nothing to do with it")


@case
def hub_convert(folder):
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    expect(folder, OK, "-q", "m.safetensors", "m.npz")
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"w/m.npz": (folder / "m.npz").read_bytes()})
        run_hub(folder, OK, hub, "convert", "org/name", "w/m.npz")
        have = repo.commits[repo.refs["main"]]
        (folder / "got.safetensors").write_bytes(have["w/m.safetensors"])
        expect(folder, OK, "diff", "--ignore-metadata", "got.safetensors", "m.safetensors")
        check_equal("w/m.npz" in have, True, "the original stays")
        run_hub(folder, OK, hub, "convert", "org/name", "w/m.npz", "-o", "x.deathtensors", "--delete-original")
        have = repo.commits[repo.refs["main"]]
        check_equal(("w/m.npz" in have, "x.deathtensors" in have), (False, True), "in place of the original")
        run_hub(folder, IO, hub, "convert", "org/name", "w/m.npz")
        for extra in ([], ["--delete-original"]):  # the second time the store has it already
            run_hub(folder, OK, hub, "convert", "org/name", "x.deathtensors", "-o", "y.safetensors", "--no-spool", *extra)
        have = repo.commits[repo.refs["main"]]
        (folder / "y.safetensors").write_bytes(have["y.safetensors"])
        expect(folder, OK, "diff", "--ignore-metadata", "y.safetensors", "m.safetensors")
        check_equal("x.deathtensors" in have, False, "the original is gone")
        hub.store.clear()
        hub.keep(have)
        hub.hook = lambda handler, path: handler.command == "PUT" and (handler.answer(500, b"") or True)
        run_hub(folder, IO, hub, "convert", "org/name", "y.safetensors", "-o", "z.deathtensors", "--no-spool")
        hub.hook = None
        run_hub(folder, USAGE, hub, "convert", "org/name", "y.safetensors", "-o", "y.safetensors")


@case
def hub_convert_confirms(folder):
    """The original goes only once the Hub is seen to have the result."""
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"m.safetensors": model()})
        before = repo.refs["main"]

        def fail_at(word, method="POST"):
            def fail(handler, path):
                if handler.command == method and word in path:
                    handler.answer(500, b"")
                    return True
                return False

            return fail

        def forget(handler, path):
            """The commit is said to be made, and is not."""
            if handler.command == "POST" and "/commit/" in path:
                hub.reply(handler, {"success": True, "commitOid": before, "commitUrl": hub.url})
                return True
            return False

        words = ["convert", "org/name", "m.safetensors", "-o", "m.deathtensors", "--delete-original"]
        for hook in (fail_at("/store", "PUT"), fail_at("/verify"), fail_at("/commit/"), fail_at("/tree/", "GET"), forget):
            for more in ([], ["--no-spool"]):
                hub.store.clear()  # what an earlier run had sent would not be sent again
                hub.keep({"m.safetensors": model()})
                hub.hook = hook
                result = tconv_hub(folder, hub, *words, *more)
                check_equal(result.code, IO, "the result is not known to be there", result)
                check_equal("m.safetensors" in repo.commits[repo.refs["main"]], True, "the original is there", result)
        hub.hook = None
        run_hub(folder, OK, hub, *words)
        check_equal(sorted(repo.commits[repo.refs["main"]]), ["m.deathtensors"], "in the end")

        def spoil(handler, path):
            """A small file that the commit holds itself is another there, of the same size."""
            if "/commit/" in path and b'"file"' in handler.body:
                lines = [json.loads(line) for line in handler.body.splitlines()]
                data = bytearray(base64.b64decode(lines[1]["value"]["content"]))
                data[-1] ^= 1
                lines[1]["value"]["content"] = base64.b64encode(data).decode()
                handler.body = b"\n".join(json.dumps(line).encode() for line in lines)
            return False

        repo = hub.add_repo("org/small", {"m.safetensors": model({"b": f32(0.5)})})
        words = ["convert", "org/small", "m.safetensors", "-o", "b.npy", "--delete-original"]
        hub.hook = spoil
        for more, code in ([], "hub-confirm"), (["--no-spool"], "verification"):
            result = tconv_hub(folder, hub, *words, *more, "--json")
            check_equal((result.code, error_code(result)), (IO, code), "a small result that is another", result)
            check_equal("m.safetensors" in repo.commits[repo.refs["main"]], True, "the original is there", result)
        hub.hook = None
        run_hub(folder, OK, hub, *words)
        check_equal(sorted(repo.commits[repo.refs["main"]]), ["b.npy"], "in the end")


@case
def hub_shards(folder):
    """A sharded model by its index."""
    tensors = {f"t{i}": f32(*([i] * 5000)) for i in range(8)}
    (folder / "m.safetensors").write_bytes(model(tensors))
    (folder / "s").mkdir()
    expect(folder, OK, "-q", "m.safetensors", "s/s.safetensors", "--shard-size", "64K")
    with Hub() as hub:
        run_hub(folder, OK, hub, "push", "org/name", "s/s.safetensors.index.json")
        repo = hub.repos["models/org/name"]
        content = {path.name: path.read_bytes() for path in (folder / "s").iterdir()}
        have = dict(repo.commits[repo.refs["main"]])
        have.pop(".gitattributes")
        check_equal(sorted(have), sorted(content), "index and shards")
        shard = next(name for name in content if "-of-" in name)
        for more in (["-o", shard], ["-o", "s.safetensors", "--shard-size", "64K"]):  # in the place of what it is made of
            words = ["convert", "org/name", "s.safetensors.index.json", "--delete-original", *more]
            run_hub(folder, USAGE, hub, *words)
        run_hub(folder, OK, hub, "convert", "org/name", "s.safetensors.index.json", "-o", "one.npz", "--delete-original")
        have = repo.commits[repo.refs["main"]]
        check_equal(sorted(have), [".gitattributes", "one.npz"], "one file in place of them")


@case
def hub_push_links(folder):
    """A link of the folder that leads out of it is not sent; a snapshot of the Hub's cache is."""
    (folder / "secret").write_text("private")
    (folder / "d" / "sub").mkdir(parents=True)
    (folder / "d" / "a.txt").write_text("text")
    (folder / "d" / "b.txt").symlink_to("a.txt")
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"m.safetensors": model(), "d/e.json": b"{}"})
        run_hub(folder, OK, hub, "push", "org/new", "d")
        have = hub.repos["models/org/new"].commits
        check_equal(have[hub.repos["models/org/new"].refs["main"]]["b.txt"], b"text", "a link inside of the folder")
        for place, target in (("d/c.txt", "../secret"), ("d/sub/c.txt", folder / "secret"), ("d/out", ".."), ("d/c", "/etc/passwd")):
            (folder / place).symlink_to(target)
            before = len(have)
            result = tconv_hub(folder, hub, "push", "org/new", "d", "--json")
            check_equal((result.code, error_code(result)), (UNSAFE, "link-outside"), place, result)
            check_equal(len(have), before, "commits", result)
            (folder / place).unlink()
        run_hub(folder, OK, hub, "pull", "org/name")
        snapshot = folder / "cache" / "models--org--name" / "snapshots" / repo.refs["main"]
        run_hub(folder, OK, hub, "push", "org/copy", snapshot)
        copy = hub.repos["models/org/copy"]
        sent = {name: data for name, data in copy.commits[copy.refs["main"]].items() if name != ".gitattributes"}
        check_equal(sent, repo.commits[repo.refs["main"]], "a snapshot, sent again")


@case
def hub_upload_speed(folder):
    """Many pieces of an upload follow each other at once: a second for each would be two minutes."""
    (folder / "big.bin").write_bytes(os.urandom(8 * MIB))
    with Hub() as hub:
        run_hub(folder, OK, hub, "push", "org/new", "big.bin")


@case
def hub_leaves_nothing(folder):
    """The folder of a result that is sent goes when the command ends, and when it is killed."""
    (folder / "tmp").mkdir()
    (folder / "in.safetensors").write_bytes(model())
    env = {"TMPDIR": str(folder / "tmp")}
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        for words in ("convert org/name m.safetensors -o m.npz", "push org/name in.safetensors x.npz"):
            run_hub(folder, OK, hub, *words.split(), env=env)
            check_equal(list((folder / "tmp").iterdir()), [], words)
            seen = threading.Event()
            go = threading.Event()
            hub.hook = lambda handler, path, seen=seen, go=go: "/preupload/" in path and (seen.set() or go.wait(30) or True)
            command = [TCONV, "hub", *words.replace("npz", "deathtensors").split()]
            whole = {**os.environ, **PLAIN, **hub_env(hub, "hf_test"), **env}
            for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
                seen.clear()
                child = Process(command, cwd=folder, env=whole, stdout=-3, stderr=-3)
                if not seen.wait(60):
                    raise Failed("it never asked")
                child.send_signal(number)
                check_equal(child.wait(), -number, "how it ended")
                deadline = time.monotonic() + 60
                while list((folder / "tmp").iterdir()) and time.monotonic() < deadline:
                    time.sleep(0.02)
                check_equal(list((folder / "tmp").iterdir()), [], f"{words}, killed by {number}")
            go.set()
            hub.hook = None


@case
def hub_convert_compares(folder):
    """Without a copy the result is read again from the Hub: one that is not right keeps the original."""
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"m.safetensors": model()})

        def spoil(handler, path):
            """What is stored is another model than was sent, which the Hub does not notice."""
            if handler.command == "PUT":
                hub.wrong = hub.store[path.rpartition("/")[2]] = model({**MODEL, "b": f32(0.25)})
                handler.answer(200, b"", {"ETag": '"x"'})
            elif path.endswith("/verify"):
                hub.reply(handler, {})
                hub.store[hashlib.sha256(hub.wrong).hexdigest()] = hub.wrong
            return handler.command == "PUT" or path.endswith("/verify")

        hub.hook = spoil
        words = ["convert", "org/name", "m.safetensors", "-o", "n.safetensors", "--no-spool", "--delete-original", "--json"]
        result = tconv_hub(folder, hub, *words)
        check_equal((result.code, error_code(result)), (IO, "verification"), "a result that is another", result)
        check_equal("m.safetensors" in repo.commits[repo.refs["main"]], True, "the original")
        hub.hook = None
        tensors = {"bf": Tensor("BF16", [4], bytes(range(8))), "e": Tensor("F8_E4M3", [2], b"\x08\x91"), "a": f32(-0.0, 1)}
        hub.add_repo("org/wide", {"m.safetensors": model(tensors)})
        for name in ("m.deathtensors", "m.onnx"):  # with other dtypes, where the format lacks them
            run_hub(folder, OK, hub, "convert", "org/wide", "m.safetensors", "-o", name, "--no-spool")


@case
def hub_mirror(folder):
    """A mirror passes on answers in which the Hub names itself: pages and uploads go by the mirror."""
    with Hub() as hub:
        hub.add_repo("org/name", {f"f{i}": b"1" for i in range(9)})
        hub.page = 4
        url, hub.url = hub.url, "https://huggingface.co"
        env = {"HF_ENDPOINT": url}
        listed = run_hub(folder, OK, hub, "list", "org/name", env=env)
        check_equal(listed.out.count(b"\n"), 9, "files of all pages", listed)
        hub.part = 300
        big = model({"a": Tensor("U8", [1000], os.urandom(1000))})
        (folder / "big.safetensors").write_bytes(big)
        run_hub(folder, OK, hub, "push", "org/name", "big.safetensors", env=env)
        verified = [lines for _, path, lines in hub.asked() if path.endswith("/verify")]
        check_equal([lines.get("Authorization") for lines in verified], ["Bearer hf_test"], "the check of an upload")
        hub.url = url


@case
def hub_without_ranges(folder):
    """A mirror that gives no ranges: said, and the file is fetched whole; so is what is pulled."""
    data = model({"a": Tensor("U8", [200_000], os.urandom(200_000))})
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    content = {"model.safetensors": data, "config.json": b'{"a": 1}', "empty.txt": b""}
    with Hub() as hub:
        repo = hub.add_repo("org/name", content)

        def whole(handler, path):
            name = path.rpartition("/")[2]
            data = content.get(name, hub.store.get(name))
            if handler.command != "GET" or path.startswith("/api/") or (name in content and "safetensors" in name):
                return False
            handler.answer(200, data)
            return True

        hub.hook = whole
        for words in ("hash hf://org/name/model.safetensors", "hash hf://org/name"):
            result = run_remote(folder, OK, *words.split(), env=hub_env(hub))
            check_equal(result.out, here.out, words, result)
            if b"gives no ranges" not in result.err:
                raise result.failed("expected: a warning that there are no ranges")
        run_remote(folder, OK, "-q", "hf://org/name", "out/", "-t", "npz", env=hub_env(hub))
        check_equal((folder / "out" / "config.json").read_bytes(), content["config.json"], "another file")
        result = run_hub(folder, OK, hub, "pull", "org/name", quiet=False)
        snapshot = folder / "cache" / "models--org--name" / "snapshots" / repo.refs["main"]
        check_equal({name: (snapshot / name).read_bytes() for name in content}, content, "what was pulled", result)
        if b"gives no ranges" not in result.err:
            raise result.failed("expected: a warning that there are no ranges")
        fewest = len(data)
        for _ in range(3):  # the server may still count what it sent to the command before
            sent = hub.sent
            result = run_hub(folder, OK, hub, "pull", "org/name", "--json")
            check_equal(json.loads(result.out)["fetched"], 0, "the second time")
            fewest = min(fewest, hub.sent - sent)
        check_equal(fewest < 5000, True, f"{fewest} bytes sent the second time")
        run_hub(folder, OK, hub, "convert", "org/name", "model.safetensors", "-o", "n.npz")


@case
def hub_as_deathtensors(folder):
    """deathtensors' command lines, as its users type them: the result's place behind the file, or none, and --compress."""
    zeros = model({"a": Tensor("U8", [300_000], bytes(300_000))})
    (folder / "m.safetensors").write_bytes(zeros)
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"w/m.safetensors": zeros})
        env = hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))
        for words, name, most in (
            ("hub-convert org/name w/m.safetensors", "w/m.deathtensors", 400_000),
            ("hub-convert org/name w/m.safetensors x/small.deathtensors --compress --repo-type model --revision main", "x/small.deathtensors", 5000),
            ("hub-push org/name m.safetensors y.deathtensors --compress --repo-type model", "y.deathtensors", 5000),
            ("hub-convert --compress org/name w/m.safetensors z.npz --delete-original", "z.npz", 5000),
        ):  # fmt: skip
            run_remote(folder, OK, *words.split(), env=env)
            have = repo.commits[repo.refs["main"]]
            check_equal((name in have, len(have.get(name, b"")) < most), (True, True), words)
            (folder / "got").mkdir(exist_ok=True)
            (folder / "got" / os.path.basename(name)).write_bytes(have[name])
            expect(folder, OK, "diff", "--ignore-metadata", f"got/{os.path.basename(name)}", "m.safetensors")
        check_equal("w/m.safetensors" in have, False, "the original is gone")
        for words in ("hub-convert org/name z.npz a.npy -o b.npy", "hub-pull org/name --compress", "hub-convert org/name z.npz a b"):
            run_remote(folder, USAGE, *words.split(), env=env)


@case
def hub_progress(folder):
    """Progress has bytes, the rate and the time left; a commit's message may be an address."""
    size = 2 * MIB
    data = model({"a": Tensor("U8", [size], os.urandom(size))})
    (folder / "big.safetensors").write_bytes(data)
    message = "https://example.invalid/issue?id=5#x"
    with Hub() as hub:
        pushed = run_hub(folder, OK, hub, "push", "org/name", "big.safetensors", "--progress=json", "--message", message)
        check_equal(hub.repos["models/org/name"].messages[-1], message, "the message")
        pulled = run_hub(folder, OK, hub, "pull", "org/name", "big.safetensors", "--progress=json")
        for result in (pushed, pulled):
            last = json.loads(result.err.splitlines()[-1])
            check_equal((last["done"], last["total"]), (len(data), len(data)), "bytes", result)
            if not {"rate", "seconds_left"} & set(last) and "rate" not in str(last):
                raise result.failed("no rate")
        quiet = run_hub(folder, OK, hub, "pull", "org/name", "-q")
        check_equal(quiet.err, b"", "with -q")


@case
def hub_at_once(folder):
    """Several pulls into one cache: each file is fetched once; a lock that is held is waited for, and a signal ends that."""
    data = model({"a": Tensor("U8", [3 * MIB], os.urandom(3 * MIB))})
    oid = hashlib.sha256(data).hexdigest()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data, "n.json": b"{}"})
        env = {**os.environ, **PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))}
        many = [Process([TCONV, "hub", "pull", "org/name"], cwd=folder, env=env, stdout=-3, stderr=-1) for _ in range(4)]
        errors = [child.communicate()[1] for child in many]
        check_equal([child.returncode for child in many], [OK] * 4, str(errors))
        root = folder / "cache" / "models--org--name"
        check_equal((root / "blobs" / oid).read_bytes(), data, "the content")
        check_equal([path.name for path in (root / "blobs").iterdir() if "incomplete" in path.name], [], "what is left over")
        if hub.sent > 1.5 * len(data):
            raise Failed(f"{hub.sent} bytes were sent of {len(data)}")
        (root / "blobs" / oid).unlink()
        with open(folder / "cache" / ".locks" / "models--org--name" / f"{oid}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with Process([TCONV, "hub", "pull", "org/name"], cwd=folder, env=env, stdout=-3, stderr=-1) as child:
                check_equal(b"waiting" in child.stderr.readline(), True, "what is said")
                child.send_signal(signal.SIGINT)
            child = Process([TCONV, "hub", "pull", "org/name"], cwd=folder, env=env, stdout=-3, stderr=-3)
            time.sleep(0.5)
            check_equal((child.poll(), (root / "blobs" / oid).exists()), (None, False), "it waits")
            child.send_signal(signal.SIGINT)
            check_equal(child.wait(), -signal.SIGINT, "how it ended")
            child = Process([TCONV, "hub", "pull", "org/name"], cwd=folder, env=env, stdout=-3, stderr=-3)
            time.sleep(0.2)
        check_equal((child.wait(), (root / "blobs" / oid).read_bytes() == data), (OK, True), "after the lock")


@case
def hub_pull_killed(folder):
    """A pull that is killed leaves what it has, and the next goes on with that."""
    data = model({"a": Tensor("U8", [6 * MIB], os.urandom(6 * MIB))})
    oid = hashlib.sha256(data).hexdigest()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": data})
        env = {**os.environ, **PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))}
        env["HF_HUB_DOWNLOAD_TIMEOUT"] = "60"  # none ends it but the signal
        part = folder / "cache" / "models--org--name" / "blobs" / f"{oid}.incomplete"
        for number in (signal.SIGINT, signal.SIGKILL):
            hub.faults[oid] = [*[None] * (2 if number == signal.SIGINT else 0), *["silent"] * 50]
            child = Process([TCONV, "hub", "pull", "org/name", "-j1"], cwd=folder, env=env, stdout=-3, stderr=-3)
            deadline = time.monotonic() + 60
            while not (part.exists() and part.stat().st_size > MIB) and time.monotonic() < deadline:
                time.sleep(0.02)
            child.send_signal(number)
            check_equal(child.wait(), -number, "how it ended")
            check_equal(data.startswith(part.read_bytes()), True, "what is left")
        hub.faults.clear()
        left, sent = part.stat().st_size, hub.sent
        run_hub(folder, OK, hub, "pull", "org/name")
        check_equal(part.with_suffix("").read_bytes(), data, "the content")
        if left < MIB or hub.sent - sent > len(data) - left + MIB // 2:
            raise Failed(f"{hub.sent - sent} bytes for the rest of {len(data)}, of which {left} were there")


@case
def hub_shared_blobs(folder):
    """A content that newer clients share between repositories, by a link to the cache's own folder, is there."""
    data = model()
    oid, other = hashlib.sha256(data).hexdigest(), "ab" + "0" * 62
    with Hub() as hub:
        repo = hub.add_repo("org/name", {"model.safetensors": data, "d/x.npy": files.npy_of(f32(1)), "config.json": b"{}"})
        run_hub(folder, OK, hub, "pull", "org/name")
        cache = folder / "cache"
        blob = cache / "models--org--name" / "blobs" / oid
        (cache / "blobs" / "ab").mkdir(parents=True)
        (cache / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
        blob.rename(cache / "blobs" / "ab" / other)
        blob.symlink_to(f"../../blobs/ab/{other}")
        result = run_hub(folder, OK, hub, "pull", "org/name", "--json")
        check_equal((json.loads(result.out)["fetched"], blob.is_symlink()), (0, True), "nothing is fetched", result)
        snapshot = cache / "models--org--name" / "snapshots" / repo.refs["main"]
        run_remote(folder, OK, "-q", f"{snapshot}/", "out/", "-t", "npz")
        run_remote(folder, OK, "hash", snapshot / "model.safetensors")
        (snapshot / "e").mkdir()
        (snapshot / "e" / "deep.safetensors").symlink_to(f"../../../blobs/{oid}")
        run_remote(folder, OK, "scan", snapshot)
        for wrong in (f"../../blobs/ac/{other}", "../../../secret", f"../../blobs/ab/{'A' * 64}", "/etc/passwd"):
            blob.unlink()
            blob.symlink_to(wrong)
            result = run_hub(folder, OK, hub, "pull", "org/name", "--json")
            check_equal((json.loads(result.out)["fetched"], blob.is_symlink()), (len(data), False), wrong, result)


@case
def hub_homes(folder):
    """Where the cache is, by each variable that says so."""
    with Hub() as hub:
        hub.add_repo("org/name", {"a": b"1"})
        for env, place in (
            ({"HF_HUB_CACHE": "c1"}, "c1"), ({"HUGGINGFACE_HUB_CACHE": "c2"}, "c2"), ({"HF_HOME": "c3"}, "c3/hub"),
            ({"HF_HOME": "", "XDG_CACHE_HOME": "c4"}, "c4/huggingface/hub"),
            ({"HF_HOME": "", "XDG_CACHE_HOME": "", "HOME": "c5"}, "c5/.cache/huggingface/hub"),
            ({"HOME": "h6", "HF_HOME": "~/c6"}, "h6/c6/hub"), ({"BASE": "c7", "HF_HUB_CACHE": "$BASE/x"}, "c7/x"),
            ({"BASE": "c8", "HF_HOME": "${BASE}/$none$"}, "c8/$none$/hub"), ({"HOME": "h9", "HF_HUB_CACHE": "~"}, "h9"),
        ):  # fmt: skip
            there = {name: str(folder / value) if value and value[0] not in "~$" else value for name, value in env.items()}
            result = run_remote(folder, OK, "hub", "pull", "org/name", "a", env=hub_env(hub, "hf_test", **there))
            check_equal(result.out.decode().startswith(str(folder / place / "models--org--name")), True, str(env), result)
        for value, code in (("http://example.invalid", (UNSAFE, "plain-http")), ("ftp://x", (USAGE, "address")), ("nonsense", (USAGE, "address"))):
            result = tconv("hub", "list", "org/name", "--json", cwd=folder, env={**PLAIN, "HF_ENDPOINT": value})
            check_equal((result.code, error_code(result)), code, value, result)
        with Server() as server:
            url = server.add("/m.safetensors", model())
            run_remote(folder, OK, "info", url, env={"HF_ENDPOINT": "nonsense", "HF_TOKEN": "a\tb"})


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(CASES))
