#!/usr/bin/env python3
"""Files by the network: ranges, faults, secrets and the Hub, against servers on loopback."""

import json
import os
import random
import re
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import files
import scaled_weights
from files import Tensor, f32
from harness import (
    DATA,
    DIFFERENT,
    FEWER,
    HERE,
    INVALID,
    IO,
    MIB,
    OK,
    REMOTE,
    SANITIZED,
    TCONV,
    UNSAFE,
    UNSUPPORTED,
    USAGE,
    Failed,
    Process,
    Skip,
    Suite,
    check_equal,
    expect,
    run,
    tconv,
)
from hub_server import Hub
from remote_server import Proxy, Server, Sparse, make_certificate
from remotes import PLAIN, SECRET, big_deathtensors, big_gguf, big_model, big_npz, error_code, expect_code, hub_env, model, run_remote

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
    """info reads the table of a model of 100 GiB, get the table and one tensor, wherever the table lies."""
    models = {"big.safetensors": big_model(), "big.gguf": big_gguf(), "big.npz": big_npz(), "big.deathtensors": big_deathtensors()}
    for name, (data, head) in models.items():
        with Server() as server:
            url = server.add(f"/{name}", data, etag='"1"')
            result = run_remote(folder, OK, "info", url)
            if b"t1" not in result.out or len(data) < 100 << 30:
                raise result.failed("no table")
            if server.sent > head + 512 * 1024:
                raise Failed(f"info of a table of {head} bytes fetched {server.sent}: {name}")
            server.sent = 0
            result = run_remote(folder, OK, "get", url, "small", "-o", "small.npy")
            check_equal(b"checksum" in result.err, "deathtensors" in name, "a warning that the checksum is left out", result)
            if server.sent > head + 3 * MIB + 768 * 1024:
                raise Failed(f"get of 3 MiB fetched {server.sent}: {name}")
            check_equal((folder / "small.npy").stat().st_size, 3 * MIB + 128, "the tensor's file")
            (folder / "small.npy").unlink()
    # A header that is wrong is told from the header.
    data, head = big_deathtensors()
    for wrong in (data.head.replace(b'"U8"', b'"??"'), data.head.replace(b'"tensors"', b'"tensers"')):
        with Server() as server:
            url = server.add("/wrong.deathtensors", Sparse(wrong, data.size), etag='"1"')
            run_remote(folder, {INVALID, UNSUPPORTED}, "info", url)
            if server.sent > head + 512 * 1024:
                raise Failed(f"{server.sent} bytes of a file with a wrong header")


@case
def get_of_deathtensors(folder):
    """One tensor of several is got without the checksum of all; of a file of this machine, of one tensor, and packed, it is checked."""
    data = model({"a": f32(1, 2), "b": Tensor("U8", [5000], os.urandom(5000))})
    (folder / "m.safetensors").write_bytes(data)
    (folder / "one.safetensors").write_bytes(model({"a": f32(1, 2)}))
    expect(folder, OK, "-q", "m.safetensors", "raw.deathtensors")
    expect(folder, OK, "-q", "m.safetensors", "packed.deathtensors", "--compress")
    expect(folder, OK, "-q", "one.safetensors", "one.deathtensors")
    expect(folder, OK, "-q", "m.safetensors", "s.deathtensors", "--shard-size", "4K")
    with Server() as server:
        for path in folder.glob("*.deathtensors"):
            good = path.read_bytes()
            bad = good if path.name == "s.deathtensors" else good[:-1] + bytes([good[-1] ^ 1])
            server.add(f"/{path.name}", bad)
            path.write_bytes(bad)
            server.add(f"/good/{path.name}", good)
        for name, here, there in (("raw", INVALID, OK), ("packed", INVALID, INVALID), ("one", INVALID, INVALID), ("s", INVALID, INVALID)):
            expect(folder, here, "get", f"{name}.deathtensors", "a", "-o", "a.npy", quiet=False)
            result = run_remote(folder, there, "get", f"{server.url}/{name}.deathtensors", "a", "-o", "b.npy", quiet=False)
            run_remote(folder, OK, "get", f"{server.url}/good/{name}.deathtensors", "a", "-o", "c.npy")
        run_remote(folder, DIFFERENT, "verify", f"{server.url}/raw.deathtensors", quiet=False)
        run_remote(folder, INVALID, "hash", f"{server.url}/raw.deathtensors", quiet=False)
        check_equal((folder / "b.npy").read_bytes(), (folder / "c.npy").read_bytes(), "the tensor")


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
def fetched_once(folder):
    """Data whose checksums another thread checks is fetched once, with any number of threads. Where the
    machine lets one of them stand still for long the other goes on alone: so there are three tries."""
    size = 10 * MIB  # all of them are more than what is kept in memory
    (folder / "m.safetensors").write_bytes(model({f"t{i}": Tensor("U8", [size], os.urandom(size)) for i in range(4)}))
    for name in ("m.deathtensors", "m.tfrecord") if FEWER else ("m.deathtensors", "m.pt", "m.npz", "m.ot", "m.tfrecord"):
        expect(folder, OK, "-q", "m.safetensors", name, "--no-sync")
        data = (folder / name).read_bytes()
        with Server() as server:
            url, other = server.add(f"/{name}", data), server.add(f"/other/{name}", data)
            lines = (["hash", url], ["stats", url], ["verify", url], ["diff", name, url], ["diff", url, other], ["-q", url, "o.safetensors", "--no-sync"])
            for words in lines:
                for jobs in "14":
                    shares = []
                    while len(shares) < 3 and (not shares or shares[-1] > 1.1):
                        server.sent = 0
                        run_remote(folder, OK, *words, "-j", jobs)
                        (folder / "o.safetensors").unlink(missing_ok=True)
                        shares.append(server.sent / len(data) / (1 + (other in words)))
                    if shares[-1] > 1.1:
                        raise Failed(f"{words[0]} -j{jobs} of {name}: {shares} of its bytes fetched")
        (folder / name).unlink()


@case
def formats(folder):
    """Every format that is written can be read in ranges, also where its table lies at its end."""
    (folder / "m.safetensors").write_bytes(model())
    known = [json.loads(line) for line in expect(folder, OK, "formats", "--json").out.splitlines()]
    for each in known:
        name = f"{each['format']}/m{(each['extensions'] or [''])[0]}"
        if not each["write"] or not each["lazy"]:
            continue
        with Server() as server:
            (folder / each["format"]).mkdir()
            if each["many"]:
                expect(folder, OK, "-q", "m.safetensors", name, "-t", each["format"])
            else:
                expect(folder, OK, "get", "m.safetensors", "b", "-o", name)
            for path in (folder / each["format"]).rglob("*"):
                if path.is_file():
                    server.add(f"/{path.relative_to(folder)}", path.read_bytes())
            here = expect(folder, OK, "hash", name)
            there = run_remote(folder, OK, "hash", f"{server.url}/{name}")
            check_equal(there.out, here.out, name, there)
            ranges = [lines for _, _, lines in server.asked(f"/{name}") if "Range" not in lines]
            check_equal(ranges, [], f"requests without a range: {name}", there)
            run_remote(folder, OK, "verify", f"{server.url}/{name}")


@case
def several_at_once(folder):
    """-j says how many requests are under way, and what is kept in memory is bounded."""
    size = (16 if SANITIZED else 48) * MIB
    data = model({"a": Tensor("U8", [size], bytes(size))})
    for option, wanted in (("-j1", 1), ("-j4", 4), ("--requests=5", 5)):
        with Server() as server:
            url = server.add("/m.safetensors", data, etag='"1"', gather=wanted)
            counted = folder / "count"
            run_remote(folder, OK, "hash", url, option, env={"TCONV_TEST_MEMORY": str(counted)})
            check_equal(server.most, wanted, f"requests at once with {option}")
            if int(counted.read_text().split()[0]) > 40 * MIB:
                raise Failed(f"{option}: {counted.read_text()} bytes of memory")
            run_remote(folder, OK, "hash", url, option, "--max-memory", "16M")


@case
def where_none_is_read(folder):
    """An address in the place of what is written, or of a file beside: refused, and no secret is shown."""
    (folder / "m.safetensors").write_bytes(model())
    with Server() as server:
        url = server.add("/m.safetensors", model()).replace("://", f"://u:{SECRET}@") + f"?k={SECRET}"
        for words in (
            "append {} m.safetensors", "edit {} --set a=b", "index {}", "manifest {}",
            "receipt {}", "receipt verify {}", "keygen {}", "check --schema={} m.safetensors", "verify --receipt={} m.safetensors",
            "m.safetensors -o{}", "m.safetensors --output={}", "m.safetensors out.npz --receipt={}", "m.safetensors out.npz --map={}",
            "m.safetensors out.npz --nonsense={}", "m.safetensors out.npz --depfile {}", "stats m.safetensors --html={}",
        ):  # fmt: skip
            result = tconv(*words.format(url).split(), cwd=folder, env=PLAIN)
            check_equal(result.code in (USAGE, IO, INVALID, UNSAFE), True, words, result)
            if SECRET.encode() in result.out + result.err:
                raise result.failed("a secret is shown")


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
        here = expect(folder, OK, "scan", "s.safetensors.index.json")
        there = run_remote(folder, OK, "scan", url)
        check_equal(there.out.replace(f"{server.url}/d/".encode(), b""), here.out, "what scan says", there)
        name = sorted(name for name in server.files if "-of-" in name)[1]
        server.files[name].faults[:] = ["status:503"] * 14
        run_remote(folder, IO, "scan", url)
        del server.files[name]
        expect_code(folder, IO, "not-found", "hash", url)
        result = tconv("scan", url, cwd=folder, env=PLAIN)
        check_equal((result.code, b"broken: " in result.out), (INVALID, True), "a shard that is not there", result)


@case
def scans_of_beside(folder):
    """What lies beside a scanned file is scanned too: a pickle in a shard, and in an ONNX model's data."""
    (folder / "bad").mkdir()
    (folder / "bad/shard.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (folder / "bad/m.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"b": "shard.bin"}}))
    for path in (DATA / "onnx").rglob("*"):
        if path.is_file():
            (folder / "onnx" / path.relative_to(DATA / "onnx")).parent.mkdir(parents=True, exist_ok=True)
            (folder / "onnx" / path.relative_to(DATA / "onnx")).write_bytes(path.read_bytes())
    with Server() as server:
        for path in folder.rglob("*"):
            if path.is_file():
                server.add(f"/{path.relative_to(folder)}", path.read_bytes())
        for path in (folder / "bad/m.bin.index.json", *sorted((folder / "onnx").rglob("*.onnx"))):
            name = str(path.relative_to(folder))
            here = tconv("scan", name, cwd=folder)
            there = run_remote(folder, here.code, "scan", f"{server.url}/{name}")
            check_equal(there.out.replace(f"{server.url}/".encode(), b""), here.out, f"what scan says of {name}", there)


@case
def quantised(folder):
    """What config.json says of scales counts, and the files of a GGUF model are all read."""
    made = scaled_weights.make("FP8 blocks", random.Random(4))
    (folder / "m").mkdir()
    (folder / "m/config.json").write_text(json.dumps(made.config))
    (folder / "m/model.safetensors").write_bytes(files.safetensors(made.tensors))
    expect(folder, OK, "-q", "--dequantize", "m/model.safetensors", "here.safetensors")
    expect(folder, OK, "-q", DATA / "gguf/blocks.gguf", "s.gguf", "--shard-size", "4K")
    with Server() as server:
        for path in (*folder.glob("m/*"), *folder.glob("s-*")):
            server.add(f"/d/{path.name}", path.read_bytes())
        run_remote(folder, OK, "-q", "--dequantize", f"{server.url}/d/model.safetensors", "there.safetensors")
        here = expect(folder, OK, "hash", DATA / "gguf/blocks.gguf")
        there = run_remote(folder, OK, "hash", f"{server.url}/d/s-00001-of-00004.gguf")
    check_equal((folder / "there.safetensors").read_bytes(), (folder / "here.safetensors").read_bytes(), "values")
    check_equal(there.out, here.out, "hashes of a GGUF model in four files")


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


def started(folder, *words):
    """Whether a run loads libcurl, and whether it starts a process with a socket to it; Skip without strace."""
    trace = folder / "trace"
    if SANITIZED:
        raise Skip("a sanitizer starts processes of its own")
    result = run("strace", "-f", "-o", str(trace), TCONV, *words, cwd=folder, env=PLAIN)
    if result.code == 127 or not trace.exists():
        raise Skip("no strace")
    text = trace.read_text()
    return "libcurl" in text, bool(re.search(r"\b(v?fork\(|socketpair\(|clone3?\(.*SIGCHLD)", text))


@case
def no_fetcher(folder):
    """Without an address no fetcher starts, and libcurl is not even loaded."""
    (folder / "m.safetensors").write_bytes(model())
    for words in (["info", "m.safetensors"], ["-q", "m.safetensors", "out.npz"], ["scan", "m.safetensors"], ["help"]):
        check_equal(started(folder, *words), (False, False), " ".join(words))
    with Server() as server:
        url = server.add("/m.safetensors", model())
        check_equal(started(folder, "info", url), (True, True), "with one it does")


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
    healed(folder, "wait:429:0", "wait:503:0", "rate:429:0", "rate:429:1")
    broken(folder, IO, "rate-limit", "rate:429:3600", "rate:429:3600")
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
def proxies(folder):
    """By a proxy, which sees neither the token nor what is asked for; NO_PROXY names what goes without it."""
    certificate = with_tls(folder, "hub.test", "hub")
    with Hub(certificate=certificate) as hub, Proxy(hub.port, f"me:{SECRET}") as proxy:
        hub.add_repo("org/name", {"m.npy": files.npy_of(f32(1))}, private=True)
        env = {"HF_ENDPOINT": "https://hub.test", "HF_TOKEN": "hf_test", "SSL_CERT_FILE": certificate.authority}
        by = {**env, "HTTPS_PROXY": proxy.url.replace("://", f"://me:{SECRET}@")}
        run_remote(folder, OK, "hash", "hf://org/name/m.npy", env=by)
        check_equal({line.split()[1] for line in proxy.lines}, {"hub.test:443"}, "what the proxy was asked for")
        check_equal([line for line in proxy.lines if "hf_test" in line or "org/name" in line], [], "what it saw")
        run_remote(folder, OK, "hash", "hf://org/name/m.npy", env={**env, "https_proxy": by["HTTPS_PROXY"]})
        asked = len(proxy.lines)
        for exempt in ("hub.test", ".test", "other, hub.test", "*"):
            expect_code(folder, IO, "network", "hash", "hf://org/name/m.npy", env={**by, "NO_PROXY": exempt})
        check_equal(len(proxy.lines), asked, "what NO_PROXY names goes without it")
        wrong = run_remote(folder, IO, "hash", "hf://org/name/m.npy", env={**env, "HTTPS_PROXY": proxy.url.replace("://", f"://{SECRET}:x@")})
        if SECRET.encode() in wrong.err + wrong.out:
            raise wrong.failed("the proxy's password is shown")
        for way in ("https://10.0.0.1/x", "https://localhost/x", "https://[::ffff:192.168.0.1]/x", "https://0x7f.1/x"):
            hub.hook = lambda handler, path, way=way: handler.answer(302, b"", {"Location": way}) or True
            expect_code(folder, UNSAFE, "redirect", "hash", "hf://org/name/m.npy", env=by)


@case
def private_networks(folder):
    """From a public server no redirect, and no address for an upload, leads into a private network, by whatever name."""
    certificate = with_tls(folder, "9.9.9.9", "public")
    inside = [sys.executable, str(HERE / "remote_public.py"), str(folder), certificate.chain, certificate.key]
    if run("unshare", "-rnm", "true").code != 0:
        raise Skip("no namespaces")
    env = {**PLAIN, "SSL_CERT_FILE": certificate.authority, "PYTHONPATH": str(HERE)}
    result = run("unshare", "-rnm", *inside, cwd=folder, env=env)
    if result.code == 77:
        raise Skip("no network in a namespace")
    check_equal(result.code, 0, result.out.decode(), result)


@case
def secrets_in_memory(folder):
    """While a file is read, only the fetcher's memory has the token and the secret of the address; neither process dumps core."""
    if SANITIZED:
        raise Skip("a sanitizer keeps variables of its own")
    token = "hf_" + "7Kq" * 12
    with Hub(token=token) as hub, Server() as server:
        hub.add_repo("org/name", {"m.safetensors": model()}, private=True)
        held = threading.Event()
        seen = threading.Event()

        def wait(handler, path):
            if "m.safetensors" in path and handler.command == "GET" and not seen.is_set():
                seen.set()
                held.wait(30)
            return False

        hub.hook = wait
        other = server.add("/n.safetensors", model()) + f"?X-Amz-Signature={SECRET}"
        command = [TCONV, "diff", other, "hf://org/name/m.safetensors"]
        child = Process(command, cwd=folder, env={**os.environ, **PLAIN, **hub_env(hub, token)}, stdout=-3, stderr=-3)
        try:
            if not seen.wait(60):
                raise Failed("nothing was asked for")
            fetchers = (Path(f"/proc/{child.pid}/task/{child.pid}/children")).read_text().split()
            check_equal(len(fetchers), 1, "fetchers")
            own, others = memory_of(child.pid), memory_of(int(fetchers[0]))
            for secret in (token.encode(), SECRET.encode()):
                check_equal(secret in own, False, "a secret in the memory of the process that parses")
                check_equal(secret in others, True, "it is in the fetcher's")
            limits = Path(f"/proc/{fetchers[0]}/limits").read_text()
            check_equal(re.search(r"Max core file size +(\d+)", limits)[1], "0", "the fetcher's core dumps")
        finally:
            held.set()
            child.wait()
        check_equal(child.returncode, OK, "how it ended")


def memory_of(pid):
    """What a process has in memory that it could have written; Skip where that can't be read."""
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            parts = []
            for line in maps:
                found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                start, end = (int(found[1], 16), int(found[2], 16)) if found else (0, 0)
                if found and end - start < 1 << 30:
                    memory.seek(start)
                    parts.append(memory.read(end - start))
            return b"\n".join(parts)
    except OSError as error:
        raise Skip(f"memory of other processes can't be read: {error}") from None


@case
def local_runs_forget(folder):
    """A command without an address does not keep the token either: it would be in its core dump."""
    if SANITIZED:
        raise Skip("a sanitizer keeps variables of its own")
    token = "hf_" + "9Zx" * 12
    os.mkfifo(folder / "out")
    (folder / "m.safetensors").write_bytes(model())
    env = {**os.environ, **PLAIN, "HF_TOKEN": token}
    child = Process([TCONV, "m.safetensors", "out", "-t", "safetensors"], cwd=folder, env=env, stdout=-3, stderr=-3)
    try:
        deadline = time.monotonic() + 60
        while child.poll() is None and "wait_for_partner" not in Path(f"/proc/{child.pid}/wchan").read_text():
            if time.monotonic() > deadline or not Path("/proc/self/wchan").read_text().strip("0"):
                raise Skip("where it waits can't be told")
            time.sleep(0.01)
        check_equal(token.encode() in memory_of(child.pid), False, "the token")
    finally:
        child.kill()
        child.wait()


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
def fetcher_is_confined(folder):
    """The process that fetches changes no file, starts no program, signals nobody, and has nothing open of the command's."""
    (folder / "kept").write_text("kept")
    tries = dict.fromkeys(("execve=/bin/true", "execveat=/bin/true", "fork", "ptrace", "kill", "signal", "limit"), "EPERM")
    tries |= dict.fromkeys(("truncate=kept", "chmod=kept", "touch=kept", "xattr=kept", "namespace", "type"), "EPERM")
    tries |= dict.fromkeys(("write=kept", "remove=kept", "make=new", "link=new"), "EACCES")
    tries |= dict.fromkeys(("bpf", "io_uring_setup", "process_vm_readv", "mount", "setns", "memfd_create", "privileges", "dump"), "EPERM")
    tries |= {"socket": "allowed"}
    own = {"fork", "ptrace", "kill", "signal", "dump"} if SANITIZED else set()  # sanitizers do these themselves
    held = threading.Event()
    seen = threading.Event()
    with Hub() as hub:
        hub.add_repo("org/name", {"m.safetensors": model()})
        for words in ("info hf://org/name/m.safetensors", "hub list org/name"):
            env = {"TCONV_TEST_FETCHER": "\n".join(tries), "HF_ENDPOINT": hub.url}
            result = run_remote(folder, OK, *words.split(), env=env, quiet=False)
            got = dict(re.findall(r"^fetcher: (\S+): (\w+)$", result.err.decode(), re.MULTILINE))
            wanted = {what.partition("=")[0]: answer for what, answer in tries.items()}
            check_equal({**got, **{what: wanted[what] for what in own}}, wanted, words, result)
        check_equal(sorted(path.name for path in folder.iterdir()), ["kept"], "files")

        def wait(handler, path):
            seen.set()
            held.wait(30)
            return False

        hub.hook = wait
        with open(folder / "kept") as inherited, open(folder / "out", "w") as out:
            env = {**os.environ, **PLAIN, **hub_env(hub)}
            command = [TCONV, "info", "hf://org/name/m.safetensors"]
            child = Process(command, cwd=folder, env=env, stdout=out, stderr=-3, pass_fds=[inherited.fileno()])
            try:
                if not seen.wait(60):
                    raise Failed("nothing was asked for")
                fetcher = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0]
                open_ = {path.name: os.readlink(path) for path in Path(f"/proc/{fetcher}/fd").iterdir()}
            finally:
                held.set()
                child.wait()
        check_equal([where for where in open_.values() if str(folder) in where], [], f"files that the fetcher has open: {open_}")
        check_equal(child.returncode, OK, "how it ended")


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
def other_schemes(folder):
    """What is meant for an address and is none: said, with what is read, and without its secrets; a file of such a name is one."""
    (folder / "m.safetensors").write_bytes(model())
    for start in ("s3://key:{}@bucket/m.npy", "ftp://me:{}@h/m.npy", "https:/me:{}@h/m.npy", "git+ssh://{}@h/m.npy", "hf:a/b?{}", "gs://b/m.npy?{}"):
        address = start.format(SECRET) + f"?X-Amz-Signature={SECRET}"
        for words in ("info {}", "-q info {}", "diff m.safetensors {}", "{} out.npz", "m.safetensors {}", "m.safetensors -o {}", "scan {}", "batch {} out/ -t npz"):
            result = tconv(*words.format(address).split(), "--json", cwd=folder, env=PLAIN)
            check_equal(result.code in (USAGE, IO), True, words, result)
            if SECRET.encode() in result.out + result.err:
                raise result.failed("a secret is shown")
        result = expect_code(folder, USAGE, "address", "info", address)
        if b"presign" not in result.err:
            raise result.failed("expected: a hint on what to do")
    (folder / "s3:" / "bucket").mkdir(parents=True)
    (folder / "s3:/bucket/m.safetensors").write_bytes(model())
    run_remote(folder, OK, "info", "s3://bucket/m.safetensors")


@case
def same_but_for_the_query(folder):
    """Two addresses that differ in their query alone are two files."""
    with Server() as server:
        server.add("/m.npy", files.npy_of(f32(1, 2)))
        result = run_remote(folder, OK, "list", f"{server.url}/m.npy?v=1", f"{server.url}/m.npy?v=2")
        asked = {path for _, path, _ in server.requests if "?" in path}
        check_equal(asked, {"/m.npy?v=1", "/m.npy?v=2"}, "what was asked", result)


def without_libcurl(folder):
    """A build without libcurl refuses addresses, and says what to do; files of this machine are read as ever."""
    (folder / "m.safetensors").write_bytes(model())
    for words in ("info https://example.invalid/m.npy", "hf://org/name/m.npy out.npz", "hub list org/name", "hub pull org/name"):
        result = tconv(*words.split(), "--json", cwd=folder, env={**PLAIN, "HF_HUB_CACHE": str(folder / "cache")})
        check_equal((result.code, error_code(result)), (UNSUPPORTED, "no-libcurl"), words, result)
        if b"-Dremote=enabled" not in result.err:
            raise result.failed("expected: a hint on what to do")
    expect(folder, OK, "-q", "m.safetensors", "out.npz")


if not REMOTE:
    CASES = [("without_libcurl", without_libcurl)]

if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(CASES))
