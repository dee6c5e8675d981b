#!/usr/bin/env python3
"""Model folders: hostile ones, ones that change, and outputs that appear whole or not at all."""

import functools
import itertools
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import files
from files import f32
from harness import (
    IO,
    FULL,
    INVALID,
    OK,
    SANITIZED,
    TCONV,
    UNSAFE,
    USAGE,
    Failed,
    Suite,
    check_equal,
    expect,
    limited,
    snapshot,
    tconv,
)

MODEL = {"w": f32(1, 2, 3), "b": f32(4)}
TO_PT = ("-t", "pt")


def make(folder, name="in", tensors=MODEL, **more):
    """A model folder with a file of weights, and other files by their names."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "model.safetensors").write_bytes(files.safetensors(tensors))
    for path, content in {"config.json": "{}", **more}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content)
    return place


def content(place):
    return {
        str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()
    }


# Entries that are no plain files.


def refused(code, slug, plant, folder):
    """Something in the folder that is not copied, and nothing is written."""
    place = make(folder)
    plant(place)
    before = sorted(os.listdir(folder))
    result = expect(folder, code, "in", "out/", *TO_PT, "--json", quiet=False)
    check_equal(json.loads(result.out.splitlines()[-1])["error"]["code"], slug, "code", result)
    check_equal(sorted(os.listdir(folder)), before, "nothing is left")
    # The weights themselves are not concerned.
    expect(folder, OK, "list", "-q", "in")


def plant_socket(place):
    server = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(place)
    try:
        server.bind("socket")
    finally:
        os.chdir(here)
        server.close()


def link(target, name="link"):
    return lambda place: (place / name).symlink_to(target)


def deep(place):
    for depth in range(70):
        place = place / "d"
        place.mkdir()


def circle(place):
    (place / "sub").mkdir()
    (place / "sub" / "again").symlink_to(".")


REFUSED = {
    "pipe": (UNSAFE, "special-file", lambda place: os.mkfifo(place / "pipe")),
    "pipe below": (
        UNSAFE,
        "special-file",
        lambda place: ((place / "sub").mkdir(), os.mkfifo(place / "sub" / "pipe")),
    ),
    "socket": (UNSAFE, "special-file", plant_socket),
    "link to a device": (UNSAFE, "link-outside", link("/dev/zero")),
    "link to a file elsewhere": (UNSAFE, "link-outside", link("/etc/passwd")),
    "link to a folder elsewhere": (UNSAFE, "link-outside", link("/etc")),
    "link to the parent": (UNSAFE, "link-outside", link("..")),
    "link to itself": (UNSAFE, "link-broken", link("link")),
    "link to nothing": (UNSAFE, "link-broken", link("nothing")),
    "link through the folder": (UNSAFE, "link-outside", link("../in/" + "../" * 20 + "etc/passwd")),
    "a circle of folders": (UNSAFE, "link-broken", circle),
    "too deep": (UNSAFE, "folder-limit", deep),
}


def sibling(folder):
    """A folder whose name starts as the input's is not the input's."""
    make(folder)
    other = folder / "in2"
    other.mkdir()
    (other / "secret").write_text("secret")
    (folder / "in" / "link").symlink_to("../in2/secret")
    expect(folder, UNSAFE, "in", "out/", *TO_PT)


def weights_elsewhere(folder):
    """Weights behind a link that leads out are read, but become no new folder."""
    make(folder, "far")
    place = folder / "in"
    place.mkdir()
    (place / "model.safetensors").symlink_to("../far/model.safetensors")
    result = expect(folder, OK, "list", "--sandbox=require", "in")
    check_equal(result.out, b"w\nb\n", "names")
    expect(folder, UNSAFE, "in", "out/", *TO_PT)
    check_equal((folder / "out").exists(), False, "no output")


def linked_blobs(folder):
    """Blobs are those of a cache where they are its own folder: a link in their place could lead to any other, and the
    files below that are not the model's."""
    cache = folder / "models--a--b"
    place = make(cache / "snapshots", "r")
    (folder / "private").mkdir()
    (folder / "private" / "key").write_text("secret")
    (place / "notes.txt").symlink_to("../../blobs/key")
    (cache / "blobs").symlink_to("../private")
    expect(folder, UNSAFE, str(place.relative_to(folder)), "out/", *TO_PT)
    check_equal((folder / "out").exists(), False, "no output")
    (cache / "blobs").unlink()
    (folder / "private").rename(cache / "blobs")
    expect(folder, OK, str(place.relative_to(folder)), "out/", *TO_PT)
    check_equal((folder / "out/notes.txt").read_text(), "secret", "of the cache's own blobs")


def scanned_snapshot(folder):
    """scan looks at what a snapshot's links lead to in its cache, once, and at nothing that other links lead to."""
    cache = folder / "models--a--b"
    place = cache / "snapshots" / "r"
    (place / "sub").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for name in ("one", "two"):
        (cache / "blobs" / name).write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    (folder / "elsewhere").write_bytes(b"cos\nsystem\n(S'id'\ntR.")
    os.mkfifo(cache / "blobs/pipe")
    (place / "pytorch_model.bin").symlink_to("../../blobs/one")
    (place / "sub/optimizer.pt").symlink_to("../../../blobs/two")
    links = {"out": "../../../elsewhere", "none": "../../blobs/none", "pipe": "../../blobs/pipe", "own": "own"}
    for name, target in links.items():
        (place / name).symlink_to(target)
    for top, found in ((place, 2), (place / "sub", 1), (cache, 2)):
        result = tconv("scan", "--json", "--sandbox=require", str(top.relative_to(folder)), cwd=folder)
        check_equal(result.code, 1, f"{top}: exit code", result)
        summary = json.loads(result.out.splitlines()[-1])["summary"]
        check_equal((summary["unsafe"], summary["files"]), (found, found), f"{top}: unsafe files", result)


def slices(folder):
    """Numbered files hold each a slice of a model, and none is another form of the other: what is not read is copied."""
    place = make(folder, **{"params.json": "{}"})
    for number in (0, 1):
        expect(folder, OK, "-q", "in/model.safetensors", f"in/consolidated.0{number}.pth")
    (place / "model.safetensors").unlink()
    result = expect(folder, OK, "in", "out/", "-t", "safetensors", quiet=False)
    check_equal(b"consolidated.00.pth is read, not consolidated.01.pth" in result.err, True, "the choice", result)
    wanted = ["config.json", "consolidated.00.safetensors", "consolidated.01.pth", "params.json"]
    check_equal(sorted(content(folder / "out")), wanted, "files", result)


def pipe_as_weights(folder):
    """What has the name of weights and is no file is passed over, and never opened."""
    place = make(folder)
    (place / "model.safetensors").rename(place / "pytorch_model.bin")
    os.mkfifo(place / "model.safetensors")
    check_equal(expect(folder, OK, "list", "in").out, b"w\nb\n", "names")
    expect(folder, UNSAFE, "in", "out/", *TO_PT)


def hostile_index(name, code, folder):
    place = folder / "in"
    place.mkdir()
    (place / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    (folder / "x").write_bytes(files.safetensors(MODEL))
    expect(folder, code, "list", "in")
    expect(folder, code, "in", "out/", *TO_PT)
    check_equal((folder / "out").exists(), False, "no output")


NAMES = ["a\nb", "tab\t", "\x1b[31mred", "back\\slash", "-rf", " ", "ünï", "a" * 250, "\u202ertl"]


def odd_names(name, folder):
    make(folder, **{name: "text", f"sub {name[:200]}/{name}": "more"})
    result = expect(folder, OK, "in", "out/", *TO_PT)
    copied = content(folder / "out")
    del copied["pytorch_model.bin"]
    wanted = content(folder / "in")
    del wanted["model.safetensors"]
    check_equal(copied, wanted, "copied", result)


def odd_arrays(folder):
    """Arrays under names that a terminal would obey are printed escaped."""
    place = folder / "in"
    place.mkdir()
    for name in ("a\nb.npy", "\x1b[31m.npy", "b\\c.npy"):
        (place / name).write_bytes(files.npy("<f4", (1,), b"\0\0\x80?"))
    result = expect(folder, OK, "list", "in")
    check_equal(len(result.out.splitlines()), 3, "lines", result)


MANY = 5_000 if SANITIZED else 100_100


def many_entries(folder):
    """More entries than a model has shards at the most: they are listed and would be copied."""
    place = make(folder)
    for number in range(MANY):
        os.close(os.open(place / f"{number}.txt", os.O_CREAT))
    for arguments in (("list", "in"), ("in", "out/", *TO_PT, "--dry-run")):
        # Not by `expect`, which would look at every file before and after.
        result = tconv(*arguments, cwd=folder)
        check_equal(result.code, OK, "exit code", result)


def many_arrays(folder):
    """A file for each of more than 100,000 tensors, as models of many experts have: written, and read back as
    one model."""
    count = 100_100 if FULL else 3_000
    tensors = {f"layers.{number // 500}.experts.{number % 500}.w": f32(number) for number in range(count)}
    (folder / "in.safetensors").write_bytes(files.safetensors(tensors))
    result = tconv("-q", "--no-sync", "in.safetensors", "out/", "-t", "npy", cwd=folder)
    check_equal(result.code, OK, "writing", result)
    result = tconv("hash", "--digest", "out", "in.safetensors", cwd=folder)
    check_equal(result.code, OK, "reading", result)
    check_equal(len({line.split()[0] for line in result.out.splitlines()}), 1, "digests", result)


def verified_copies(folder):
    """With --verify a copied file is read back too: one that does not lie on the disk as it was read is an error,
    and nothing appears."""
    names = {"config.json": "{}", "sub/deep/notes.txt": "x" * 3_000_000, "z empty": ""}
    place = make(folder, **names)
    before = sorted(os.listdir(folder))
    for flip, options, code in (("0", ("--verify",), IO), ("-1", ("--receipt", "r.json"), IO), ("0", (), OK)):
        (place / "z empty").write_text("not empty")
        for env in ({}, {"TCONV_TEST_NAMED": "1"}):
            result = tconv("-q", *options, "in", "out/", *TO_PT, cwd=folder, env={"TCONV_TEST_FLIP_COPY": flip, **env})
            check_equal(result.code, code, f"{options}", result)
            if code == IO:
                check_equal(b"notes.txt: the copy has other bytes" in result.err, True, "message", result)
                check_equal(sorted(os.listdir(folder)), before, "nothing is left")
            else:
                expect(folder, OK, "diff", "-q", "in", "out")
                shutil.rmtree(folder / "out")
    expect(folder, OK, "-q", "--verify", "in", "out/", *TO_PT)
    check_equal((folder / "out/sub/deep/notes.txt").read_text(), names["sub/deep/notes.txt"], "copied")


# Folders that change.


def changes_while_read(folder):
    """A file that is replaced while a slow reader copies: an error or all of one file, never a mixture."""
    place = make(folder, tensors={"w": f32(*range(50_000))})
    big = place / "tokenizer.json"
    for turn in range(3 if SANITIZED else 10):
        big.write_bytes(b"a" * 4_000_000)
        process = subprocess.Popen(
            [TCONV, "-q", "--no-sync", "in", f"out{turn}/", *TO_PT], cwd=folder, stderr=subprocess.PIPE
        )
        time.sleep(0.002 * turn)
        (folder / "new").write_bytes(b"b" * 5_000_000)
        (folder / "new").rename(big)
        err = process.communicate()[1]
        out = folder / f"out{turn}"
        if process.returncode == IO:
            check_equal(out.exists(), False, f"no output ({err})")
            continue
        check_equal(process.returncode, OK, f"exit code ({err})")
        data = (out / "tokenizer.json").read_bytes()
        check_equal(data in (b"a" * 4_000_000, b"b" * 5_000_000), True, "whole")
    check_equal([name for name in os.listdir(folder) if name.startswith(".")], [], "nothing is left")


def swapped_link(folder):
    """A link that is turned elsewhere between two looks at it never leaks what it leads to."""
    place = make(folder, real="honest")
    (folder / "secret").write_text("secret")
    stop = folder / "stop"
    turner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys\n"
            "while not os.path.exists('stop'):\n"
            "    for target in ('real', '../secret'):\n"
            "        os.symlink(target, 'new'); os.rename('new', 'in/link')\n",
        ],
        cwd=folder,
    )
    try:
        for turn in range(10 if SANITIZED else 60):
            result = tconv("-q", "--no-sync", "in", f"out{turn}/", *TO_PT, cwd=folder)
            copied = folder / f"out{turn}" / "link"
            if result.code == OK and copied.exists() and copied.read_text() != "honest":
                raise result.failed("the secret was copied")
            if result.code not in (OK, UNSAFE, IO):
                raise result.failed(f"got exit {result.code}")
    finally:
        stop.touch()
        turner.wait()


def modes(folder):
    """Nobody may read more of the copy than of the folder."""
    place = make(folder, **{"run.sh": "#!/bin/sh", "sub/x": "x"})
    (place / "run.sh").chmod(0o6755)  # what runs as somebody else does not become another such file
    (place / "config.json").chmod(0o600)
    (place / "model.safetensors").chmod(0o640)
    (place / "sub").chmod(0o700)
    place.chmod(0o750)
    expect(folder, OK, "-q", "in", "out/", *TO_PT)
    found = {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode))
        for path in [folder / "out", *sorted((folder / "out").rglob("*"))]
    }
    check_equal(
        found,
        {
            "out": "0o750",
            "out/config.json": "0o600",
            "out/pytorch_model.bin": "0o640",
            "out/run.sh": "0o755",
            "out/sub": "0o700",
            "out/sub/x": "0o644",
        },
        "modes",
    )


def dry_run(folder):
    make(folder, **{"a.py": "x"})
    before = snapshot(folder)
    expect(folder, OK, "--dry-run", "--json", "in", "out/", *TO_PT)
    check_equal(snapshot(folder), before, "nothing is written")


def dry_run_shards(folder):
    """A dry run names the files that the run then writes, in text and in JSON."""
    tensors = {f"w{i}": f32(*range(1000)) for i in range(6)}
    make(folder, tensors=tensors)
    one = "in/model.safetensors"
    ways = {
        "folder": (["in", "out/", *TO_PT], "pytorch_model", ".bin"),
        "file": ([one, "out/m.safetensors"], "m", ".safetensors"),
        "same format": (["in", "out/", "-t", "safetensors"], "model", ".safetensors"),
        "no index": ([one, "out/m.gguf"], "m", ".gguf"),
    }
    for label, (words, stem, ending) in ways.items():
        (folder / "out").mkdir()
        told = expect(folder, OK, "--dry-run", *words, "--shard-size", "8K").out.decode().splitlines()[-1]
        object_ = json.loads(expect(folder, OK, "--dry-run", "--json", *words, "--shard-size", "8K").out)
        expect(folder, OK, "-q", *words, "--shard-size", "8K")
        written = sorted(str(path.relative_to(folder)) for path in folder.glob("out/*") if path.name != "config.json")
        named = object_["shards"] + ([object_["index"]] if "index" in object_ else [])
        check_equal(sorted(named), written, f"{label}: what is named in JSON")
        check_equal(f"{len(object_['shards'])} shards, out/{stem}-00001-of-" in told, True, f"{label}: {told}")
        check_equal(f"out/{stem}{ending}.index.json" in told, "index" in object_, f"{label}: {told}")
        check_equal(f"to out/{stem}{ending} (" in told, False, f"{label}: {told}")
        shutil.rmtree(folder / "out")
    plain = json.loads(expect(folder, OK, "--dry-run", "--json", "in", "out/", *TO_PT).out)
    check_equal("shards" in plain, False, "one file is no shards")


def slash_behind(folder):
    """Where the output's name is that of a folder, the hint says what a slash behind it would make of the input."""
    place = make(folder)
    (folder / "out").mkdir()
    hints = {"in": b"makes it a model folder", str(place / "model.safetensors"): b"add a slash to write into it"}
    for source, hint in hints.items():
        result = tconv(source, "out", *TO_PT, cwd=folder)
        check_equal((result.code, hint in result.err), (USAGE, True), source, result)
    expect(folder, OK, "in", "out/", *TO_PT)
    check_equal(sorted(content(folder / "out")), ["config.json", "pytorch_model.bin"], "what it says")


def strange_outputs(folder):
    make(folder)
    for output in ("./", "../", "in/../in/", "."):
        expect(folder, USAGE, "in", output if output != "." else "./", *TO_PT, "--replace")
    expect(folder, IO, "in", "none/out/", *TO_PT)


# Outputs that appear whole or not at all.

ENVIRONMENTS = {
    "": {},
    "named": {"TCONV_TEST_NAMED": "1"},
    "no exchange": {"TCONV_TEST_NO_EXCHANGE": "1"},
    "no exchange, named": {"TCONV_TEST_NO_EXCHANGE": "1", "TCONV_TEST_NAMED": "1"},
}
REPLACE = ("-q", "--no-sync", "--replace", "in", "out/", "-t", "safetensors")


class Replacing:
    """An old folder with folders in it, and a new one that takes its place."""

    def __init__(self, folder, environment):
        self.folder, self.environment = folder, environment
        make(folder, **{"sub/new.txt": "new", "a.txt": "a"})
        self.run(check=OK)
        self.new = content(folder / "out")
        self.reset()
        self.old = content(folder / "out")

    def reset(self):
        subprocess.run(["rm", "-rf", "out"], cwd=self.folder, check=True)
        make(self.folder, "out", {"old": f32(9)}, **{"sub/sub/old.txt": "old", "b.txt": "b", "sub/c": "c"})
        (self.folder / "out" / "link").symlink_to("b.txt")

    def run(self, check=None, prefix=(), **environment):
        result = tconv(*REPLACE, cwd=self.folder, prefix=prefix, env={**self.environment, **environment})
        if check is not None and result.code != check:
            raise result.failed(f"expected: exit {check}, got {result.code}")
        return result

    def state(self):
        out = self.folder / "out"
        found = content(out) if out.exists() else None
        found = {name: data for name, data in found.items() if name != "link"} if found else found
        old = {name: data for name, data in self.old.items() if name != "link"}
        return "old" if found == old else "new" if found == self.new else "gone" if found is None else "mixed"

    def leftovers(self):
        return [name for name in os.listdir(self.folder) if name.startswith(".")]


def killed(name, folder):
    bench = Replacing(folder, ENVIRONMENTS[name])
    states = []
    for step in itertools.count(1):
        bench.reset()
        result = bench.run(TCONV_TEST_KILL=str(step))
        if result.code == OK:
            break
        check_equal(result.code, -signal.SIGKILL, f"step {step}", result)
        state = bench.state()
        states.append(state)
        if state == "mixed" or (state == "gone" and not name.startswith("no exchange")):
            raise Failed(f"step {step}: {state}")
        # The next run tidies up though it fails, and puts back what had made way.
        bench.run(check=IO, prefix=limited("-f 0"))
        state = bench.state()
        check_equal((state in ("old", "new"), bench.leftovers()), (True, []), f"after step {step}: {state}")
    check_equal(len(states) > 10, True, f"steps: {len(states)}")
    check_equal({"old", "new"} <= set(states), True, f"states: {states}")
    check_equal(states.count("gone"), 1 if name.startswith("no exchange") else 0, "moments without a folder")
    check_equal((bench.state(), bench.leftovers()), ("new", []), "in the end")


def failed(name, folder):
    bench = Replacing(folder, ENVIRONMENTS[name])
    failures = 0
    for step in itertools.count(1):
        bench.reset()
        result = bench.run(TCONV_TEST_FAIL=str(step))
        state = bench.state()
        if result.code == OK:
            check_equal(state, "new", f"harmless at step {step}", result)
        else:
            failures += 1
            check_equal((result.code, state), (IO, "old"), f"step {step}", result)
        left = bench.leftovers()
        if left:  # where even the removal failed, the next run does it
            bench.run(check=OK)
            check_equal((bench.state(), bench.leftovers()), ("new", []), f"after step {step}")
        elif result.code == OK and step > 60:
            break
    check_equal(failures > 3, True, f"failures: {failures}")


def interrupted(folder):
    """A signal at any time leaves the old folder or the new one, and nothing else."""
    bench = Replacing(folder, {})
    (folder / "in" / "large.txt").write_bytes(b"x" * 20_000_000)
    bench.run(check=OK)
    bench.new = content(folder / "out")
    for turn in range(5 if SANITIZED else 25):
        bench.reset()
        process = subprocess.Popen([TCONV, *REPLACE], cwd=folder, stderr=subprocess.DEVNULL)
        time.sleep(0.004 * turn)
        process.terminate()
        process.wait()
        check_equal((bench.state() in ("old", "new"), bench.leftovers()), (True, []), f"turn {turn}")


def cases():
    for label, (code, slug, plant) in REFUSED.items():
        yield f"refused {label}", functools.partial(refused, code, slug, plant)
    yield "link to a sibling of a like name", sibling
    yield "weights elsewhere", weights_elsewhere
    yield "linked blobs", linked_blobs
    yield "scanned snapshot", scanned_snapshot
    yield "slices", slices
    yield "pipe as weights", pipe_as_weights
    for name in ("../x", "/etc/passwd", "a/b", "..", "", "a\0b", "..\\x"):
        yield f"index names {name!r}", functools.partial(hostile_index, name, UNSAFE)
    yield "index names itself", functools.partial(hostile_index, "model.safetensors.index.json", INVALID)
    for name in NAMES:
        yield f"name {name[:20]!r}", functools.partial(odd_names, name)
    yield "names of arrays", odd_arrays
    for case in (many_entries, many_arrays, verified_copies):
        yield case.__name__, case
    yield "changes while read", changes_while_read
    yield "swapped link", swapped_link
    yield "modes", modes
    yield "dry run", dry_run
    yield "dry run in shards", dry_run_shards
    yield "slash behind", slash_behind
    yield "strange outputs", strange_outputs
    for name in ENVIRONMENTS:
        yield f"killed {name}", functools.partial(killed, name)
        yield f"failed {name}", functools.partial(failed, name)
    yield "interrupted", interrupted


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
