#!/usr/bin/env python3
"""Permissions of what is written, standard output that is a file, and rules that make takes."""

import functools
import itertools
import os
import random
import shutil
import stat
import subprocess
import sys

import files
from files import f32
from harness import OK, TCONV, USAGE, Skip, Suite, check_equal, expect, run

MODEL = {"w": f32(1, 2, 3), "b": f32(4)}
TARGETS = ("out.npz", "out.safetensors", "out.deathtensors", "out.pt", "out.ot", "out.onnx")


def write(path, tensors=MODEL, mode=0o644):
    path.write_bytes(files.safetensors(tensors))
    path.chmod(mode)


def modes(folder, *but):
    return {
        path.name: oct(stat.S_IMODE(path.stat().st_mode))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in but
    }


def with_umask(mask, folder, *args):
    """tconv under another umask."""
    return expect(folder, OK, *args, prefix=("sh", "-c", f'umask {mask:o}; exec "$@"', "sh"))


def permitted(mode, mask):
    return oct(0o666 & ~mask & (mode | 0o600))


def new_output(target, mode, mask, folder):
    write(folder / "in.safetensors", mode=mode)
    with_umask(mask, folder, "-q", "in.safetensors", target)
    check_equal(modes(folder, "in.safetensors"), {target: permitted(mode, mask)}, "modes")


def several_inputs(folder):
    """What one of the inputs hides from others the output hides too."""
    write(folder / "a.safetensors", {"a": f32(1)}, 0o664)
    write(folder / "b.safetensors", {"b": f32(1)}, 0o640)
    expect(folder, OK, "-q", "a.safetensors", "b.safetensors", "-o", "out.npz")
    check_equal(modes(folder)["out.npz"], "0o640", "merged")
    (folder / "c.safetensors").symlink_to("b.safetensors")
    expect(folder, OK, "-q", "c.safetensors", "linked.npz")
    check_equal(modes(folder)["linked.npz"], "0o640", "through a link")
    expect(folder, OK, "append", "-q", "a.safetensors", "b.safetensors")
    check_equal(modes(folder)["a.safetensors"], "0o640", "appended to")
    expect(folder, OK, "get", "-q", "b.safetensors", "b", "-o", "one.npy")
    check_equal(modes(folder)["one.npy"], "0o640", "one tensor")


def every_file(folder):
    """Shards, index, sidecar, external data, a folder's files, receipt, depfile, manifest, page."""
    write(folder / "in.safetensors", mode=0o600)
    for args in (
        ("out.safetensors", "--shard-size", "90"),
        ("out.npz", "--keep-metadata=sidecar", "--metadata", "k=v", "--receipt", "r.json", "--depfile", "d"),
        ("out.onnx", "--onnx-external"),
        ("all/", "-t", "npy"),
    ):
        expect(folder, OK, "-q", "in.safetensors", *args)
    expect(folder, OK, "manifest", "in.safetensors", "m.json")
    expect(folder, OK, "stats", "in.safetensors", "--html", "page.html")
    found = modes(folder)
    check_equal(set(found.values()), {"0o600"}, found)
    check_equal(len(found), 13, found)


def index_of_shards(folder):
    """A shard that only its owner may read makes an output that only he may read."""
    write(folder / "in.safetensors")
    expect(folder, OK, "-q", "in.safetensors", "m.safetensors", "--shard-size", "90")
    (folder / "m-00002-of-00002.safetensors").chmod(0o600)
    expect(folder, OK, "-q", "m.safetensors.index.json", "out.npz")
    check_equal(modes(folder)["out.npz"], "0o600", "mode")


def replaced(old, mode, folder):
    """What is replaced keeps its permissions, as far as the input has them; no set-uid bit stays."""
    write(folder / "in.safetensors", mode=mode)
    (folder / "out.npz").write_bytes(b"old")
    (folder / "out.npz").chmod(old)
    expect(folder, OK, "-q", "in.safetensors", "out.npz")
    check_equal(modes(folder)["out.npz"], oct(old & 0o777 & (mode | 0o600)), "mode")


def from_a_pipe(folder):
    """A pipe has no permissions to keep to; a redirected file has."""
    write(folder / "in.safetensors", mode=0o600)
    for name, line in (
        ("pipe.npz", 'umask 022; cat in.safetensors | "$0" -q - pipe.npz -f safetensors'),
        ("file.npz", 'umask 022; "$0" -q - file.npz -f safetensors < in.safetensors'),
    ):
        result = run("sh", "-c", line, TCONV, cwd=folder)
        check_equal(result.code, OK, line, result)
    found = modes(folder)
    check_equal((found["pipe.npz"], found["file.npz"]), ("0o644", "0o600"), "modes")


def shell(folder, line, code=OK):
    result = run("bash", "-c", f"set -o pipefail; {line}", TCONV, cwd=folder)
    check_equal(result.code, code, line, result)
    return result


def stdout_file(target, folder):
    """The same bytes as under a name, alone or between others'."""
    write(folder / "in.safetensors")
    form = target.partition(".")[2]
    expect(folder, OK, "-q", "in.safetensors", target)
    wanted = (folder / target).read_bytes()
    (folder / target).unlink()
    shell(folder, f'"$0" -q in.safetensors - -t {form} > got')
    check_equal((folder / "got").read_bytes(), wanted, "redirected")
    shell(folder, f'{{ echo before; "$0" -q in.safetensors - -t {form}; echo behind; }} > got')
    check_equal((folder / "got").read_bytes(), b"before\n" + wanted + b"behind\n", "between others")
    (folder / "got").write_bytes(b"x" * 5 + b"y" * (len(wanted) + 5))
    shell(folder, f'{{ head -c 5 > /dev/null; "$0" -q in.safetensors - -t {form} >&0; }} 0<> got')
    check_equal((folder / "got").read_bytes(), b"x" * 5 + wanted + b"y" * 5, "written over")


def stdout_append(folder):
    """What is only added to is a stream: formats that need to seek are refused, others go on."""
    write(folder / "in.safetensors")
    (folder / "got").write_bytes(b"old")
    result = shell(folder, '"$0" -q --json in.safetensors - -t npz 2>&1 >> got', USAGE)
    check_equal(b"redirect standard output to one with >, not >>" in result.out, True, "hint", result)
    (folder / "got").write_bytes(b"old")
    expect(folder, OK, "-q", "in.safetensors", "same.safetensors")
    shell(folder, '"$0" -q in.safetensors - -t safetensors >> got')
    check_equal((folder / "got").read_bytes(), b"old" + (folder / "same.safetensors").read_bytes(), "added")


def stdout_failure(folder):
    """Where the work fails nothing of it stays, but what was there before does."""
    write(folder / "in.safetensors")
    expect(folder, OK, "-q", "in.safetensors", "x.deathtensors")
    data = bytearray((folder / "x.deathtensors").read_bytes())
    data[-40] ^= 1
    (folder / "x.deathtensors").write_bytes(data)
    shell(folder, '{ echo before; "$0" -q x.deathtensors - -t npz; } > got', 3)
    check_equal((folder / "got").read_bytes(), b"before\n", "what is left")
    shell(folder, '"$0" -q --verify in.safetensors - -t npz > got', USAGE)
    shell(folder, '"$0" -q --shard-size 90 in.safetensors - -t safetensors > got', USAGE)


def random_model(seed):
    """Tensors of many sizes, empty ones too, names of many lengths, perhaps metadata."""
    chance = random.Random(seed)
    tensors = {}
    for i in range(chance.randrange(1, 60)):
        dtype, size = chance.choice((("U8", 1), ("F32", 4), ("I64", 8), ("F16", 2)))
        count = chance.choice((0, 1, chance.randrange(50), chance.randrange(2000)))
        name = f"t{i}" + "x" * chance.choice((0, 3, 90)) + "é" * chance.randrange(3)
        shape = [count] if chance.random() < 0.7 else [1, count, 1]
        tensors[name] = files.Tensor(dtype, shape, chance.randbytes(count * size))
    metadata = {"k" * chance.randrange(1, 9): "v" * chance.randrange(200)} if seed % 3 else None
    return files.safetensors(tensors, metadata)


def shard_files(folder, name):
    stem, _, extension = name.partition(".")
    return sorted(folder.glob(f"{stem}-*.{extension}")) or [folder / name]


def cut_at(folder, name, size, *options):
    for path in folder.glob(name.partition(".")[0] + "*"):
        path.unlink()
    expect(folder, OK, "-q", "--no-sync", "in.safetensors", name, f"--shard-size={size}", *options)
    found = []
    for path in shard_files(folder, name):
        names = expect(folder, OK, "list", path.name).out.splitlines()
        found.append((path.stat().st_size, names))
    return found


def shard_sizes(seed, name, options, folder):
    """No file is larger than was asked, but for one tensor alone; none could hold one more."""
    (folder / "in.safetensors").write_bytes(random_model(seed))
    whole = expect(folder, OK, "hash", "--digest", "in.safetensors").out
    for size in (1, 700, 3000, 20_000, 10**9):
        found = cut_at(folder, name, size, *options)
        for nbytes, names in found:
            check_equal(nbytes <= size or len(names) == 1, True, (size, nbytes, names))
        index = next((folder / f"{name}{end}" for end in ("", ".index.json") if (folder / f"{name}{end}").exists()))
        check_equal(expect(folder, OK, "hash", "--digest", index.name).out, whole, "digest")
        if len(found) < 2 or len(found) > 9:
            continue
        # Where a shard takes one byte less it has a tensor less, and as much room is enough for as many.
        largest = max(range(len(found)), key=lambda i: (len(found[i][1]) > 1, found[i][0]))
        nbytes, names = found[largest]
        exact = cut_at(folder, name, nbytes, *options)
        if max(nbytes for nbytes, _ in found) == nbytes and len(exact) < 10:
            check_equal(exact[: largest + 1], found[: largest + 1], f"at {nbytes}, its size at {size}")
        if len(names) > 1:
            less = cut_at(folder, name, nbytes - 1, *options)
            check_equal(names in [names for _, names in less], False, f"at {nbytes - 1}")


MAKEFILE = """.PHONY: {phony} all
all: out.npz
out.npz: ; @echo building; touch out.npz
{rules}-include d
"""
# Names that mean something in a makefile, to make itself, or to who wrote the makefile.
NAMES = (
    "plain.safetensors", "two words.safetensors", "a#b.safetensors", "a$b.safetensors", "a$(x).safetensors",
    "a:b.safetensors", "a%b.safetensors", "a\\b.safetensors", "a\\ b.safetensors", "*.safetensors",
    "[x].safetensors", "~a.safetensors", "a&b.safetensors", "a'b\".safetensors", "ü.safetensors",
    "clean", "install", "include", "define", ".PHONY", ".DEFAULT", ".SUFFIXES", ".c", ".c.o", ".WAIT",
    "-lm", "-lm.a", "-k", "%", "export", "a.", "a,b.safetensors", "a@b", "a+b.x", "!", "a!b",
)  # fmt: skip


def make(folder):
    result = subprocess.run(["make"], cwd=folder, capture_output=True, text=True)
    check_equal((result.returncode, result.stderr), (0, ""), "make")
    return result.stdout


def depends(name, place, folder):
    """make builds when the input is newer and when it is gone, not otherwise; no other rule runs."""
    if not shutil.which("make"):
        raise Skip("make is not here")
    (folder / place).mkdir(exist_ok=True)
    phony = [word for word in ("clean", "install") if word != name] + ["a@b", "!", "a!b"]
    rules = "".join(f"{word}: ; @echo RAN {word}\n" for word in ("clean", "install", "!", "a!b"))
    (folder / "Makefile").write_text(MAKEFILE.format(phony=" ".join(phony), rules=rules))
    file = os.path.join(place, name)
    write(folder / file)
    expect(folder, OK, "-q", "--depfile", "d", "-f", "safetensors", "-o", "out.npz", "--", file)
    old = 1_600_000_000
    for path in (file, "Makefile", "d"):
        os.utime(folder / path, (old, old))
    check_equal(make(folder), "make: Nothing to be done for 'all'.\n", "nothing is newer")
    os.utime(folder / "out.npz", (old - 1, old - 1))
    check_equal(make(folder), "building\n", "the input is newer")
    (folder / file).unlink()
    check_equal(make(folder), "building\n", "the input is gone")


def strangers_shard(folder):
    """An index from elsewhere calls a shard as a rule is called: the rule does not run."""
    if not shutil.which("make"):
        raise Skip("make is not here")
    rules = "clean: ; @echo RAN clean\n"
    (folder / "Makefile").write_text(MAKEFILE.format(phony="clean", rules=rules))
    write(folder / "clean")
    index = {"metadata": {"total_size": 16}, "weight_map": {"w": "clean", "b": "clean"}}
    (folder / "model.safetensors.index.json").write_text(files.compact(index))
    expect(folder, OK, "-q", "--depfile", "d", "model.safetensors.index.json", "out.npz")
    os.utime(folder / "out.npz", (1_600_000_000, 1_600_000_000))
    check_equal(make(folder), "building\n", "what make did")


def cases():
    for target, mode, mask in itertools.product(
        TARGETS, (0o644, 0o640, 0o600, 0o400, 0o444, 0o666, 0o755), (0o022, 0o002, 0o077, 0)
    ):
        if target == TARGETS[0] or mask == 0o022:
            yield f"mode {mode:o} umask {mask:o} {target}", functools.partial(new_output, target, mode, mask)
    yield "mode of several inputs", several_inputs
    yield "mode of every file", every_file
    yield "mode of shards", index_of_shards
    yield "mode from a pipe", from_a_pipe
    for old, mode in itertools.product((0o644, 0o600, 0o640, 0o664, 0o4755), (0o644, 0o600, 0o640)):
        yield f"mode {mode:o} replaces {old:o}", functools.partial(replaced, old, mode)
    for target in TARGETS:
        yield f"stdout {target}", functools.partial(stdout_file, target)
    yield "stdout opened for appending", stdout_append
    yield "stdout after a failure", stdout_failure
    for seed, (name, options) in itertools.product(
        range(8),
        (
            ("m.safetensors", ()),
            ("m.deathtensors", ()),
            ("m.deathtensors", ("--no-checksum",)),
            ("m.bin", ()),
        ),
    ):
        yield f"shards {name} {seed} {options}", functools.partial(shard_sizes, seed, name, options)
    for name, place in itertools.product(NAMES, ("", "sub")):
        yield f"make {place} {name}", functools.partial(depends, name, place)
    yield "make and a stranger's shard", strangers_shard


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
