#!/usr/bin/env python3
"""Files by the network: ranges, faults, secrets and the Hub, against servers on loopback."""

import hashlib
import json
import os
import re
import struct
import sys
import urllib.parse

import files
from files import Tensor, f32
from harness import (
    INVALID,
    IO,
    MIB,
    OK,
    SANITIZED,
    UNSAFE,
    USAGE,
    Failed,
    Skip,
    Suite,
    check_equal,
    expect,
    run,
    tconv,
)
from hub_server import Hub
from remote_server import Server, Sparse, make_certificate

MODEL = {"a.weight": f32(*range(12), shape=[3, 4]), "a.bias": f32(1, 2, 3), "b": f32(0.5)}
# Nothing of the machine's own settings counts, and waits are short.
PLAIN = {
    "TCONV_TEST_BACKOFF": "2",
    "HF_HUB_DOWNLOAD_TIMEOUT": "5",
    "HF_HOME": "/nonexistent",
    "HF_TOKEN": "",
    "HF_ENDPOINT": "http://127.0.0.1:9",  # nobody listens there
    "HTTPS_PROXY": "",
    "https_proxy": "",
    "ALL_PROXY": "",
}
SECRET = "s3cr3t"


def run_remote(folder, code, *args, mention=None, env=None, quiet=True):
    return expect(
        folder, code, *args, env={**PLAIN, **(env or {})}, mention=mention, quiet=quiet
    )


def model(tensors=None):
    return files.safetensors(tensors or MODEL, {"k": "v"})


def big_model(count=2, size=50 << 30):
    """A safetensors file of zeros, far larger than anything that may be fetched."""
    header = {}
    for i in range(count):
        header[f"t{i}"] = {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
    header["small"] = {"dtype": "U8", "shape": [3 * MIB], "data_offsets": [count * size, count * size + 3 * MIB]}
    text = json.dumps(header).encode()
    head = struct.pack("<Q", len(text)) + text
    return Sparse(head, len(head) + count * size + 3 * MIB), len(head)


def error_code(result):
    """The code of the error, from --json."""
    return json.loads(result.out.splitlines()[-1])["error"]["code"]


def expect_code(folder, code, slug, *args, env=None):
    result = run_remote(folder, code, *args, "--json", env=env, quiet=False)
    check_equal(error_code(result), slug, "the error's code", result)
    return result


CASES = []


def case(function):
    CASES.append((function.__name__, function))
    return function


# Reading


@case
def every_command(folder):
    """What each command says of an address is what it says of the file."""
    data = model()
    (folder / "m.safetensors").write_bytes(data)
    (folder / "schema.json").write_text('{"tensors":{"b":{"dtype":"F32"}},"allow_extra":true}')
    with Server() as server:
        url = server.add("/x/m.safetensors", data)
        for words in (
            "info {}", "info --json {}", "list {}", "hash {}", "hash --digest {}", "stats {}",
            "show {} b", "get {} a.bias", "verify {}", "scan {}", "check --schema schema.json {}",
            "diff {} m.safetensors",
        ):  # fmt: skip
            here = expect(folder, OK, *words.format("m.safetensors").split())
            there = run_remote(folder, OK, *words.format(url).split())
            check_equal(
                there.out.replace(url.encode(), b"m.safetensors"), here.out, words, there
            )
        run_remote(folder, OK, "-q", url, "out.npz", "--verify")
        expect(folder, OK, "diff", "--ignore-metadata", "out.npz", "m.safetensors")


@case
def header_only(folder):
    """info reads the header of a model of 100 GiB, get the header and one tensor."""
    data, head = big_model()
    with Server() as server:
        url = server.add("/big.safetensors", data, etag='"1"')
        result = run_remote(folder, OK, "info", url)
        if b"t1" not in result.out:
            raise result.failed("no table")
        if server.sent > head + 256 * 1024:
            raise Failed(f"info of a header of {head} bytes fetched {server.sent}")
        server.sent = 0
        run_remote(folder, OK, "get", url, "small", "-o", "small.npy")
        if server.sent > head + 3 * MIB + 512 * 1024:
            raise Failed(f"get of 3 MiB fetched {server.sent}")
        check_equal((folder / "small.npy").stat().st_size, 3 * MIB + 128, "the tensor's file")


@case
def ranges_are_joined(folder):
    """Many small tensors take few requests; what was read is not fetched again."""
    tensors = {f"t{i:04}": f32(*([i] * 256)) for i in range(1000)}
    data = model(tensors)
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    with Server() as server:
        url = server.add("/m.safetensors", data)
        there = run_remote(folder, OK, "hash", url)
        check_equal(there.out, here.out, "hashes")
        if len(server.requests) > 30 or server.sent > 1.5 * len(data):
            raise Failed(f"{len(server.requests)} requests, {server.sent} bytes of {len(data)}")


@case
def large_file(folder):
    """A file larger than what is kept of it comes through whole, by several connections."""
    size = (8 if SANITIZED else 64) * MIB
    data = model({"a": Tensor("U8", [size], os.urandom(size))})
    with Server() as server:
        url = server.add("/m.safetensors", data)
        run_remote(folder, OK, "-q", url, "out.safetensors", "-j", "6", "--no-sync")
        (folder / "m.safetensors").write_bytes(data)
        expect(folder, OK, "diff", "m.safetensors", "out.safetensors")
        if server.sent > 1.1 * len(data):
            raise Failed(f"{server.sent} bytes fetched of {len(data)}")


@case
def formats(folder):
    """Formats whose tables lie at the end, or in a pickle, are read in ranges too."""
    (folder / "m.safetensors").write_bytes(model())
    with Server() as server:
        for name in ("m.npz", "m.pt", "m.deathtensors", "m.onnx", "m.npy", "m.tfrecord"):
            source = "m.safetensors"
            if name == "m.npy":
                expect(folder, OK, "get", source, "b", "-o", name)
            else:
                expect(folder, OK, "-q", source, name)
            url = server.add(f"/{name}", (folder / name).read_bytes())
            here = expect(folder, OK, "hash", name)
            check_equal(run_remote(folder, OK, "hash", url).out, here.out, name)
            run_remote(folder, OK, "verify", url)


@case
def shards(folder):
    """Shards lie beside their index."""
    tensors = {f"t{i}": f32(*([i] * 5000)) for i in range(8)}
    (folder / "m.safetensors").write_bytes(model(tensors))
    expect(folder, OK, "-q", "m.safetensors", "s.safetensors", "--shard-size", "64K")
    with Server() as server:
        for path in folder.glob("s*"):
            server.add(f"/d/{path.name}", path.read_bytes())
        url = f"{server.url}/d/s.safetensors.index.json"
        here = expect(folder, OK, "hash", "m.safetensors")
        check_equal(run_remote(folder, OK, "hash", url).out, here.out, "hashes")
        del server.files[sorted(name for name in server.files if "-of-" in name)[1]]
        expect_code(folder, IO, "not-found", "hash", url)


@case
def shard_names(folder):
    """A shard's name is one name below the index, whatever is in it."""
    with Server() as server:
        for name in ("a b?c#d%2e.safetensors",):
            index = {"metadata": {"total_size": 4}, "weight_map": {"b": name}}
            data = model({"b": f32(0.5)})
            server.add(f"/d/{urllib.parse.quote(name)}", data)
            server.add("/d/m.safetensors.index.json", json.dumps(index).encode())
            run_remote(folder, OK, "list", f"{server.url}/d/m.safetensors.index.json?x={SECRET}")
        for name in ("..%2f..%2fsecret", "%2e%2e", "https://127.0.0.1:1/x"):
            index = {"metadata": {}, "weight_map": {"b": name}}
            server.add("/d/m.safetensors.index.json", json.dumps(index).encode())
            run_remote(folder, {INVALID, UNSAFE, IO}, "list", f"{server.url}/d/m.safetensors.index.json")
        outside = [path for _, path, _ in server.requests if not path.startswith("/d/")]
        check_equal(outside, [], "requests outside of the folder")


@case
def empty_file(folder):
    with Server() as server:
        expect_code(folder, INVALID, "empty", "info", server.add("/e.npy", b""))


@case
def without_ranges(folder):
    """A server that has no ranges: said, and the file is copied first."""
    data = model()
    with Server() as server:
        for name, how in {"a": {}, "b": {"length": False}}.items():
            url = server.add(f"/{name}.safetensors", data, ranges=False, **how)
            result = run_remote(folder, OK, "hash", url)
            if b"gives no ranges" not in result.err:
                raise result.failed("expected: a warning that there are no ranges")


@case
def disabled(folder):
    """Without an address no fetcher starts, and libcurl is not even loaded."""
    (folder / "m.safetensors").write_bytes(model())
    trace = folder / "trace"
    result = run("strace", "-f", "-o", str(trace), os.environ["TCONV"], "info", "m.safetensors", cwd=folder)
    if result.code == 127 or not trace.exists():
        raise Skip("no strace")
    text = trace.read_text()
    if "libcurl" in text or re.search(r"\b(fork|vfork|socketpair)\(", text):
        raise Failed("a local run starts a fetcher")


# Faults


def healed(folder, *faults, size=300_000, **how):
    """A fault that passes: the file is read all the same."""
    data = model({"a": Tensor("U8", [size], os.urandom(size))})
    (folder / "m.safetensors").write_bytes(data)
    here = expect(folder, OK, "hash", "m.safetensors")
    with Server() as server:
        url = server.add("/m.safetensors", data, faults=list(faults))
        there = run_remote(folder, OK, "hash", url, **how)
        check_equal(there.out, here.out, "hashes")
        return server.asked()


def broken(folder, code, slug, *faults, env=None):
    """A fault that stays: an error, and nothing is written."""
    with Server() as server:
        url = server.add("/m.safetensors", model(), faults=list(faults))
        expect_code(folder, code, slug, "info", url, env=env)
        server.files["/m.safetensors"].faults[:] = faults
        expect_code(folder, code, slug, url, "out.npz", env=env)
        return server.asked()


@case
def cut_connections(folder):
    healed(folder, "cut:1000", "cut:70000", None, "cut:100000", "cut:0")
    broken(folder, IO, "network", *["cut:0"] * 12)


@case
def resumes(folder):
    """After a cut, only what is missing is asked for."""
    asked = healed(folder, None, "cut:65536")
    starts = [int(re.search(r"=(\d+)-", lines["Range"])[1]) for _, _, lines in asked]
    if len(starts) < 3 or len(set(starts)) != len(starts):
        raise Failed(f"ranges began at {starts}")


@case
def slow_server(folder):
    healed(folder, "silent", env={"HF_HUB_DOWNLOAD_TIMEOUT": "0.3"})
    broken(folder, IO, "timeout", *["silent"] * 14, env={"HF_HUB_DOWNLOAD_TIMEOUT": "0.05"})


@case
def server_errors(folder):
    healed(folder, "status:500", "status:503", None, "status:502", "status:504")
    broken(folder, IO, "http", *["status:503"] * 14)
    broken(folder, IO, "http", *["status:418"] * 4)
    broken(folder, IO, "denied", "status:403", "status:403")
    broken(folder, IO, "not-found", "status:404", "status:404")


@case
def rate_limits(folder):
    healed(folder, "wait:429:0", "wait:503:0")
    broken(folder, IO, "rate-limit", "wait:429:86400", "wait:429:86400")
    broken(folder, IO, "rate-limit", *["wait:429:0"] * 14)


@case
def waits_until_a_date(folder):
    """Retry-After may be a date, which counts from what the server's own clock says."""
    healed(folder, "until:429:1", "until:503:-100")
    broken(folder, IO, "rate-limit", "until:429:86400", "until:429:86400")


@case
def wrong_ranges(folder):
    broken(folder, IO, "wrong-range", *["other-range"] * 2)
    healed(folder, "short", None, "short")
    data = model({"a": Tensor("U8", [200_000], bytes(200_000))})
    with Server() as server:
        url = server.add("/m.safetensors", data, faults=[None, "whole"])
        expect_code(folder, IO, "no-ranges", "hash", url)
        url = server.add("/n.safetensors", data, faults=[None, "packed"])
        expect_code(folder, IO, "answer", "hash", url)


@case
def changed_file(folder):
    """Another version between two requests is an error, not a mixture."""
    data = model({"a": Tensor("U8", [200_000], bytes(200_000))})
    with Server() as server:
        url = server.add("/m.safetensors", data, faults=[None, "etag"])
        expect_code(folder, IO, "changed", "hash", url)


@case
def batches(folder):
    """A batch takes no addresses, and says what does; no secret is in what it says."""
    with Server() as server:
        url = server.add("/m.safetensors", model())
        secret = f"{url}?key={SECRET}"
        (folder / "list").write_text(secret + "\n")
        for words in (["batch", secret, "out/", "-t", "npz"], ["batch", "--files-from", "list", "out/", "-t", "npz"],
                      ["batch", "hf://org/name", "out/", "-t", "npz"]):  # fmt: skip
            result = expect_code(folder, USAGE, "address", *words)
            if SECRET.encode() in result.out + result.err or b"hub pull" not in result.err:
                raise result.failed("expected: a hint, and no secret")
        check_equal(server.requests, [], "requests")


@case
def nobody_there(folder):
    result = expect_code(folder, IO, "network", "info", "http://127.0.0.1:9/m.safetensors")
    if b"online" not in result.err:
        raise result.failed("expected: a hint about the network")


# Rules of the way there


@case
def redirects(folder):
    with Server() as server, Server() as other:
        there = other.add("/m.safetensors", model())
        for way in ("/a", there):
            url = server.add("/go.safetensors", b"", faults=[f"go:{way}"] * 9)
            server.add("/a", model())
            run_remote(folder, OK, "hash", url)
        url = server.add("/round", b"", faults=["go:/round"] * 20)
        expect_code(folder, IO, "redirect", "info", url)
        for way in ("ftp://127.0.0.1/x", "file:///etc/passwd", "http://example.invalid/x", "//u:p@127.0.0.1/x"):
            url = server.add("/bad", b"", faults=[f"go:{way}"])
            expect_code(folder, UNSAFE, "redirect", "info", url)


def with_tls(folder, host="127.0.0.1", name="server"):
    certificate = make_certificate(folder / "certificates", host, name)
    if not certificate:
        raise Skip("no openssl")
    return certificate


@case
def certificates(folder):
    good = with_tls(folder)
    wrong = with_tls(folder, "other.invalid", "wrong")
    trusted = {"SSL_CERT_FILE": good.authority}
    with Server(good) as server, Server(wrong) as stranger:
        url = server.add("/m.safetensors", model())
        run_remote(folder, OK, "hash", url, env=trusted)
        expect_code(folder, UNSAFE, "certificate", "hash", url)  # an authority that nobody trusts
        bad = stranger.add("/m.safetensors", model())
        expect_code(folder, UNSAFE, "certificate", "hash", bad, env={"SSL_CERT_FILE": wrong.authority})
        server.add("/down", b"", faults=["go:http://127.0.0.1:9/x"])
        expect_code(folder, UNSAFE, "redirect", "info", server.url + "/down", env=trusted)


@case
def plain_http(folder):
    for address in ("http://example.invalid/m.npy", "http://10.0.0.1/m.npy", "http://127.0.0.1.example.invalid/m"):
        expect_code(folder, UNSAFE, "plain-http", "info", address)


@case
def bad_addresses(folder):
    for address in ("https://", "https:///x", "https://h o/x", "hf://", "hf://a/../b", "hf://a/b@../c", "https://[::1/x"):
        run_remote(folder, {USAGE, UNSAFE}, "info", address)
    run_remote(folder, USAGE, "hf://a/b/c.npy", "https://example.invalid/out.npz")


# The sandbox


@case
def sandbox(folder):
    """What parses has no network, no token and no other files, also while a fetcher runs beside it."""
    (folder / "in").mkdir()
    (folder / "in" / "m.safetensors").write_bytes(model())
    (folder / "secret").mkdir()
    (folder / "secret" / "token").write_text("hf_test")
    tries = {"socket": "EPERM", "connect": "EPERM", "bind": "EPERM", "execve=/bin/true": "EPERM"}
    tries |= {"fork": "EPERM", "socketpair": "EPERM", "ptrace": "EPERM", "kill": "EPERM"}
    tries |= {f"read={folder / 'secret' / 'token'}": "EACCES", f"make={folder / 'secret' / 'new'}": "EACCES"}
    tries |= {"read=/etc/passwd": "EACCES", "list=/": "EACCES"}
    relaxed = {"socketpair", "fork", "ptrace", "kill"} if SANITIZED else set()  # sanitizers do these themselves
    with Hub() as hub, Server() as server:
        url = server.add("/m.safetensors", model())
        hub.add_repo("org/name", {"m.safetensors": model()})
        for words in (
            f"info {url}", f"scan {url}", f"-q {url} out/m.npz", f"diff {url} hf://org/name/m.safetensors",
            "hub list org/name", "hub info org/name", "hub pull org/name", "hub pull org/name -o out/d/",
            "hub push org/name in/m.safetensors", "hub push org/name in/m.safetensors x.npz",
            "hub convert org/name m.safetensors -o y.npz",
        ):  # fmt: skip
            for name in ("out", "tmp"):
                (folder / name).mkdir(exist_ok=True)
            token = {"HF_TOKEN_PATH": str(folder / "secret" / "token"), "HF_HUB_CACHE": str(folder / "cache")}
            env = {**PLAIN, "HF_ENDPOINT": hub.url, **token, "TCONV_TEST_SANDBOX": "\n".join(tries)}
            env["TMPDIR"] = str(folder / "tmp")  # files there may be read
            result = tconv(*words.split(), "--sandbox=require", cwd=folder, env=env)
            check_equal(result.code, OK, words, result)
            got = re.findall(r"^sandbox: (\S+): (\w+)$", result.err.decode(), re.MULTILINE)
            wanted = [(what.partition("=")[0], answer) for what, answer in tries.items()]
            got = [(what, dict(wanted)[what] if what in relaxed else answer) for what, answer in got]
            check_equal(got, wanted, f"how the attempts ended: {words}", result)


@case
def token_is_forgotten(folder):
    """The token is in the fetcher's memory and not in that of the process that parses."""
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        seen = []

        def look(handler, path):
            for status in os.listdir("/proc"):
                try:
                    words = open(f"/proc/{status}/cmdline", "rb").read()
                    if hub.url.encode() in words and b"tconv" in words.split(b"\0")[0]:
                        seen.append((words, open(f"/proc/{status}/environ", "rb").read()))
                except OSError:
                    continue
            return False

        hub.hook = look
        address = f"{hub.url}/org/name/resolve/main/m.safetensors?secret={SECRET}"
        run_remote(folder, OK, "info", address, env=hub_env(hub, "hf_test"))
        for words, environment in seen:
            if SECRET.encode() in words or b"hf_test" in environment:
                raise Failed("another process can see a secret")


# Secrets


@case
def secrets(folder):
    """Queries and user names reach no output, receipt, depfile or message."""
    data = model()
    seen = b""
    with Server() as server:
        url = server.add("/m.safetensors", data)
        secret = url.replace("://", f"://user:{SECRET}@") + f"?X-Amz-Signature={SECRET}"
        for words in (
            "info {}", "info --json {}", "list {} {}", "hash --digest {}", "verify --json {}", "scan --json {}",
            "scan --sarif s.json {}", "stats --html page.html {}", "diff --json {} {}",
            "-q {} out.npz --receipt r.json --depfile d.d", "{} o2.npz --dry-run --json",
            "show {} nothing", "get {} b -o b.npy --json",
        ):  # fmt: skip
            code = {OK, USAGE}
            result = run_remote(folder, code, *words.format(secret, secret).split(), quiet=False)
            seen += result.out + result.err
        seen += b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
        if SECRET.encode() in seen or b"user:" in seen:
            raise Failed("a secret got out")
        asked = server.asked()[0]
        if SECRET not in asked[1] or "Authorization" not in asked[2]:
            raise Failed("the server did not get what the address has")
        server.files.clear()
        result = run_remote(folder, IO, "info", secret)
        if SECRET.encode() in result.err or b"/m.safetensors" not in result.err:
            raise result.failed("expected: the address without its secrets")


@case
def same_but_for_the_query(folder):
    """Two addresses that differ in their query alone are two files."""
    with Server() as server:
        server.add("/m.npy", files.npy_of(f32(1, 2)))
        result = run_remote(folder, OK, "list", f"{server.url}/m.npy?v=1", f"{server.url}/m.npy?v=2")
        asked = {path for _, path, _ in server.requests if "?" in path}
        check_equal(asked, {"/m.npy?v=1", "/m.npy?v=2"}, "what was asked", result)


# The Hub


def hub_env(hub, token=None, **more):
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": token or "", **more}


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
        ):  # fmt: skip
            result = run_remote(folder, OK, "hash", address, env=hub_env(hub))
            check_equal(result.out, here.out, address, result)
        result = run_remote(folder, OK, "scan", "--json", "hf://org/name", env=hub_env(hub))
        check_equal(result.out.count(b'"file"'), 4, "files that were scanned", result)
        run_remote(folder, IO, "info", "hf://datasets/org/set", env=hub_env(hub))
        run_remote(folder, OK, "-q", "hf://org/name", "out.npz", env=hub_env(hub))
        expect(folder, OK, "diff", "--ignore-metadata", "out.npz", "m.safetensors")


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
        run_remote(folder, OK, "-q", "hf://org/name", "bare/", "-t", "npz", "--only-weights", env=hub_env(hub))
        check_equal(sorted(tree_of(folder / "bare")), ["model.npz"], "only weights")
        hub.hook = lambda handler, path: "tokenizer" in path and (handler.answer(404, b"") or True)
        run_remote(folder, IO, "-q", "hf://org/name", "lost/", "-t", "npz", env=hub_env(hub))


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
            {"HF_TOKEN_PATH": str(folder / "token")}, {"HF_HOME": str(folder)},
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


def run_hub(folder, code, hub, *args, token="hf_test", env=None, quiet=True):
    more = {"HF_HUB_CACHE": str(folder / "cache"), **(env or {})}
    return run_remote(folder, code, "hub", *args, env=hub_env(hub, token, **more), quiet=quiet)


def tree_of(root):
    """Files and links below a folder, with what is in them."""
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


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
        for words in (["lsit", "a/b"], ["list"], ["list", "../x"], ["pull", "a/b", "../c"], ["list", "a/b", "--private"]):
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


def tconv_hub(folder, hub, *args):
    """A run that may leave something behind."""
    env = {**PLAIN, **hub_env(hub, "hf_test", HF_HUB_CACHE=str(folder / "cache"))}
    return tconv("hub", *args, cwd=folder, env=env)


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


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(CASES))
