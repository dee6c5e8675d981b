#!/usr/bin/env python3
"""Permissions and sizes of what is written, standard output that is a file, rules that make takes,
and what verify finds that loaders would believe."""

import functools
import itertools
import json
import math
import os
import random
import shutil
import stat
import struct
import subprocess
import sys

import files
from files import f32
from harness import OK, SANITIZED, TCONV, USAGE, Skip, Suite, check_equal, expect, run

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
    paths = shard_files(folder, name)
    lists = expect(folder, OK, "list", "--json", *(path.name for path in paths)).out.splitlines()
    check_equal(len(lists), len(paths), "files listed")
    return [
        (path.stat().st_size, json.loads(line)["tensors"]) for path, line in zip(paths, lists)
    ]


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


def i64(*values, shape=None):
    return files.Tensor("I64", shape or [len(values)], struct.pack(f"<{len(values)}q", *values))


ROLES = {"csr": ("crow_indices", "col_indices"), "csc": ("ccol_indices", "row_indices")}
ROLES |= {"bsr": ROLES["csr"], "bsc": ROLES["csc"]}


def sparse(layout, pointers, indices, values=None, shape=(2, 3)):
    """A sparse tensor of shape [2,3], or of four [1,1] blocks in [2,2]."""
    blocks = [1, 1] if layout[0] == "b" else []
    names = ROLES.get(layout, ("indices",)) + ("values", "shape")
    values = values or files.Tensor("F32", [3, *blocks], b"\0" * 12)
    parts = (*([pointers] if layout != "coo" else []), indices, values, i64(*shape))
    metadata = {
        f"s.{name}": {"sparse_layout": layout, "sparse_parent": "s", "sparse_role": name} for name in names
    }
    tensors = {f"s.{name}": part for name, part in zip(names, parts)}
    return files.safetensors(tensors, {"tconv.tensor_metadata": files.compact(metadata)})


def sparse_files():
    """(label, file, whether it is right)"""
    for layout in ROLES:
        lines, most = (2, 3) if ROLES[layout][0] == "crow_indices" else (3, 2)
        good = [0, 1, 3] if lines == 2 else [0, 1, 2, 3]
        honest = [0, 0, 1]
        yield f"{layout} honest", sparse(layout, i64(*good), i64(*honest)), True
        for label, pointers in (
            ("starts late", [1] + good[1:]),
            ("ends early", good[:-1] + [2]),
            ("ends late", good[:-1] + [4]),
            ("goes back", [0, 3, 1] if lines == 2 else [0, 3, 1, 3]),
            ("negative", [0, -1] + good[2:]),
            ("huge", [0, 2**62] + good[2:]),
            ("too short", good[:-1]),
        ):
            yield f"{layout} {label}", sparse(layout, i64(*pointers), i64(*honest)), False
        for label, indices in (("beyond", [0, 0, most]), ("negative", [0, -1, 1]), ("huge", [0, 0, 2**63 - 1])):
            yield f"{layout} index {label}", sparse(layout, i64(*good), i64(*indices)), False
    for label, indices, right in (
        ("honest", [0, 0, 1, 0, 2, 1], True),
        ("row beyond", [0, 0, 2, 0, 2, 1], False),
        ("column beyond", [0, 0, 1, 0, 3, 1], False),
        ("negative", [0, 0, 1, 0, -1, 1], False),
    ):
        yield f"coo {label}", sparse("coo", None, i64(*indices, shape=[2, 3])), right
    for label, shape in (("negative shape", (-2, 3)), ("shape of another rank", (2,))):
        yield f"coo {label}", sparse("coo", None, i64(0, 0, 1, 0, 2, 1, shape=[2, 3]), shape=shape), False


def quantised(scales, zeros, axis, rank=2):
    """A tensor quantised along an axis of [2,3]."""
    metadata = {"q": {"quant.scheme": "per_channel_affine", "quant.axis": str(axis)}}
    tensors = {"q": files.Tensor("I8", [2, 3], bytes(6))}
    if scales is not None:
        tensors["q.scales"] = files.Tensor("F64", list(scales), bytes(8 * math.prod(scales)))
    if zeros is not None:
        tensors["q.zero_points"] = files.Tensor("I64", list(zeros), bytes(8 * math.prod(zeros)))
    return files.safetensors(tensors, {"tconv.tensor_metadata": files.compact(metadata)})


def trusted_files():
    """(code of the finding, label, file, whether it is right)"""
    for label, data, right in sparse_files():
        yield "sparse", label, data, right
    for label, right, arguments in (
        ("rows", True, ([2], [2], 0)),
        ("columns", True, ([3], [3], 1)),
        ("too many scales", False, ([3], [2], 0)),
        ("too few scales", False, ([1], [2], 0)),
        ("zero points of another length", False, ([2], [3], 0)),
        ("scales of rank 2", False, ([2, 1], [2], 0)),
        ("no scales", False, (None, [2], 0)),
        ("no zero points", False, ([2], None, 0)),
        ("an axis beyond", False, ([2], [2], 2)),
        ("a negative axis", False, ([2], [2], -1)),
        ("an axis that is no number", False, ([2], [2], "x")),
    ):
        yield "quantisation", f"quantised {label}", quantised(*arguments), right
    tensors = {"embed.weight": f32(1), "b": f32(2)}
    for label, right, metadata in (
        ("right", True, {"lm_head.weight": "embed.weight"}),
        ("listed", True, {"head": "b", "tconv.aliases": '["head"]'}),
        ("no alias", True, {"train.rate": "0.1", "lm_head.weight": "tied, see paper", "a.version": "v1.2"}),
        ("target missing", False, {"lm_head.weight": "embed.wieght.weight"}),
        ("listed target missing", False, {"head": "c", "tconv.aliases": '["head"]'}),
    ):
        yield "alias", f"alias {label}", files.safetensors(tensors, metadata), right


def trusted(code, data, right, folder):
    """verify finds what loaders would believe, under its code, and nothing in what is right."""
    (folder / "x.safetensors").write_bytes(data)
    result = expect(folder, OK if right else 1, "verify", "--json", "x.safetensors")
    found = [finding["code"] for finding in json.loads(result.out)["findings"] if finding["code"] != "alignment"]
    check_equal(set(found), set() if right else {code}, "findings", result)


def lost_metadata(place, folder):
    """--verify compares metadata too: a bit that flips in a key or a value is seen."""
    metadata = {"note": "precious", "tconv.tensor_metadata": files.compact({"w": {"unit": "kelvin"}})}
    (folder / "in.safetensors").write_bytes(files.safetensors(MODEL, metadata))
    expect(folder, OK, "-q", "in.safetensors", "out.safetensors", "--verify")
    at = (folder / "out.safetensors").read_bytes().index(place.encode())
    (folder / "out.safetensors").unlink()
    command = ("-q", "--json", "--verify", "in.safetensors", "out.safetensors")
    result = expect(folder, {OK, 6}, *command, quiet=False, env={"TCONV_TEST_FLIP": str(at)})
    if result.code == OK:
        raise Skip("built without test hooks")
    check_equal(json.loads(result.out)["error"]["code"], "verification", "code", result)


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
        range(2 if SANITIZED else 8),
        (
            ("m.safetensors", ()),
            ("m.deathtensors", ()),
            ("m.deathtensors", ("--no-checksum",)),
            ("m.bin", ()),
        ),
    ):
        yield f"shards {name} {seed} {options}", functools.partial(shard_sizes, seed, name, options)
    for code, label, data, right in trusted_files():
        yield f"verify {label}", functools.partial(trusted, code, data, right)
    for place in ("precious", "note", "kelvin", "unit"):
        yield f"verify metadata {place}", functools.partial(lost_metadata, place)
    for name, place in itertools.product(NAMES, ("", "sub")):
        yield f"make {place} {name}", functools.partial(depends, name, place)
    yield "make and a stranger's shard", strangers_shard


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
