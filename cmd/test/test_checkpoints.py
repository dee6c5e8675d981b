#!/usr/bin/env python3
"""Checkpoints in several files, torch's distributed ones and DeepSpeed's: each holds what its own program says."""

import functools
import json
import shutil
import sys

import files
from checkpoint_files import dcp, index, info, item, numbers, tensor_entry
from pickles import ORDERED_DICT, call, name, pickled, pt, storage
from harness import DATA, DIFFERENT, INVALID, IO, OK, UNSAFE, UNSUPPORTED, Suite, check_equal, expect

CODES = {"ok": OK, "corrupt": INVALID, "unsupported": UNSUPPORTED, "refused": UNSAFE, "io": IO}
# What is in the notes of the vectors as Python prints it, as metadata has it.
TEXTS = {"inf": '"Infinity"', "None": "null", "b'ab\\x00'": '"\\u0061\\u0062\\u0000"'}
SKIPPED = "(BytesIO)"


def paths(name):
    """The file that opens a checkpoint, and its folder."""
    path = DATA / name
    return [path] if path.is_dir() else [path, path.parent]


def hashes(expected):
    return files.hash_lines((t["name"], t["dtype"], t["shape"], t["sha256"]) for t in expected["tensors"])


def check_hash(path, expected, folder):
    result = expect(folder, OK, "hash", path)
    check_equal(result.out.decode(), hashes(expected), "hash", result)


def check_info(path, expected, folder):
    result = expect(folder, OK, "info", "--json", path)
    found = json.loads(result.out)
    facts = ("name", "dtype", "shape")
    got = [[tensor[fact] for fact in facts] for tensor in found["tensors"]]
    want = [[tensor[fact] for fact in facts] for tensor in expected["tensors"]]
    if expected.get("unordered"):
        got, want = sorted(got), sorted(want)
    check_equal(got, want, "tensors", result)
    tied = {t["name"]: t["tied_to"] for t in found["tensors"] if "tied_to" in t}
    check_equal(tied, {b: a for a, b in expected.get("tied", [])}, "ties", result)
    if "leaves" in expected:
        leaves = {k: TEXTS.get(v, v.strip("'")) for k, v in expected["leaves"].items() if SKIPPED not in v}
        check_equal(found["metadata"], leaves, "metadata", result)


def check_verify(path, expected, folder):
    expect(folder, OK, "verify", path)
    expect(folder, OK, "stats", "--json", path)
    expect(folder, OK, "scan", path)


def check_convert(path, expected, folder):
    """To a file, by way of a folder, and selected: the same tensors."""
    digest = expect(folder, OK, "hash", "--digest", path).out.split()[0]
    for out in ("out.safetensors", "out.deathtensors", "out.pt"):
        if out.endswith("deathtensors") and any(t["dtype"].startswith("F8") for t in expected["tensors"]):
            continue
        result = expect(folder, OK, path, out)
        check_equal(expect(folder, OK, "hash", "--digest", out).out.split()[0], digest, out, result)
        check_equal(b"BytesIO" in result.err, "io" in expected.get("leaves", {}), "what is left out", result)
    first = expected["tensors"][0]
    chosen = expect(folder, OK, "hash", "--include", f"^{first['name']}$", path).out.decode()
    check_equal(chosen, hashes({"tensors": [first]}), "one tensor")


def check_folder(path, expected, folder):
    """A folder becomes a folder: the weights and what lies beside them, but none of the checkpoint's files."""
    shutil.copytree(path, folder / "in")
    (folder / "in" / "config.json").write_text("{}")
    expect(folder, OK, "in", "out/", "-t", "safetensors")
    check_equal(sorted(p.name for p in (folder / "out").rglob("*")), ["config.json", "model.safetensors"], "files")
    check_equal(expect(folder, OK, "hash", "out").out.decode(), hashes(expected), "hash")


def check_bad(path, expected, folder):
    for command in (["hash", path], ["info", path], [path, "out.safetensors"]):
        expect(folder, CODES[expected["outcome"]], *command, mention="")
    check_equal((folder / "out.safetensors").exists(), False, "an output")


def vectors():
    for source in ("expected-dcp.json", "expected-zero.json"):
        for name, expected in json.loads((DATA / source).read_text()).items():
            for path in paths(name):
                label = path.relative_to(DATA)
                if expected["outcome"] != "ok":
                    yield f"{label} bad", functools.partial(check_bad, path, expected)
                    continue
                for check in (check_hash, check_info, check_verify, check_convert):
                    yield f"{label} {check.__name__[6:]}", functools.partial(check, path, expected)
                if path.is_dir() and "safetensors" not in name and "hf" not in name:
                    yield f"{label} folder", functools.partial(check_folder, path, expected)


# Folders


def small(folder):
    entry = tensor_entry([4], [([2], [2]), ([0], [2])])
    stored = [(index("a", [0]), 0), (index("a", [2]), 1)]
    dcp(folder, [("a", entry)], stored, [item([2], numbers(2)), item([2], numbers(2, 2))])


def unfinished(folder):
    small(folder)
    (folder / ".metadata").unlink()
    result = expect(folder, IO, "info", ".")
    check_equal(b"without its table" in result.err, True, "a hint", result)


def another_metadata(folder):
    """A file of that name that is none of torch's changes nothing."""
    (folder / "model.safetensors").write_bytes(files.safetensors({"a": files.f32(1, 2)}))
    (folder / ".metadata").write_text("hello")
    (folder / "latest").write_text("v2\n")
    result = expect(folder, OK, "hash", ".")
    check_equal(result.out.decode(), files.hash_text({"a": files.f32(1, 2)}), "hash", result)
    check_equal(result.err, b"", "notes", result)


def beside_weights(folder):
    """Where weights of a usual name are there they are read, unless the format is asked for."""
    small(folder)
    (folder / "model.safetensors").write_bytes(files.safetensors({"b": files.f32(1)}))
    check_equal(expect(folder, OK, "list", ".").out, b"b\n", "list")
    check_equal(expect(folder, OK, "list", "-f", "dcp", ".").out, b"a\n", "list")


def of_one_rank(folder):
    """Without collectives each rank has a table of its own."""
    for rank in range(2):
        entry = tensor_entry([2], [([0], [2])])
        data = item([2], numbers(2, rank))
        dcp(folder, [(f"r{rank}", entry)], [(index(f"r{rank}", [0]), 0)], [data], f"__{rank}_0.distcp",
            f"__{rank}.metadata")  # fmt: skip
    check_equal(expect(folder, OK, "list", ".").out, b"r0\n", "list")
    check_equal(expect(folder, OK, "list", "__1.metadata").out, b"r1\n", "list")


def only_needed_files(folder):
    """A selection opens no file that it does not need."""
    entry = tensor_entry([2], [([0], [2])])
    stored = [(index("a", [0]), 0), (index("b", [0]), info("gone.distcp", 0, 10))]
    dcp(folder, [("a", entry), ("b", entry)], stored, [item([2], numbers(2))])
    expect(folder, IO, "hash", ".", mention="")
    expect(folder, OK, "hash", "--include", "^a$", ".")


def damage_is_found(folder):
    small(folder)
    path = folder / "__0_0.distcp"
    data = bytearray(path.read_bytes())
    data[data.index(numbers(2, 2))] ^= 1
    path.write_bytes(data)
    result = expect(folder, DIFFERENT, "verify", ".")
    check_equal(b"__0_0.distcp" in result.out + result.err, True, "the file is named", result)
    expect(folder, INVALID, ".", "out.safetensors", mention="")
    check_equal((folder / "out.safetensors").exists(), False, "an output")


def dtype_of_few_bits(folder):
    """Names of dtypes that torch has no tensors of are values, and nothing else."""
    stored = [(index("a", [0]), 0)]
    dcp(folder, [("a", tensor_entry([2], [([0], [2])], "uint4"))], stored, [item([2], numbers(2))])
    expect(folder, UNSUPPORTED, "info", ".", mention="a tensor of dtype")
    untyped = storage("0", 8, "UntypedStorage", module="torch.storage")
    shape = (untyped, 0, (8,), (1,), False, ORDERED_DICT)
    made = call("torch._utils", "_rebuild_tensor_v3", *shape, name("torch", "uint4"))
    (folder / "few.pt").write_bytes(pt(pickled({"w": made}), {"0": numbers(2)}))
    expect(folder, UNSUPPORTED, "info", "few.pt", mention="a tensor of dtype")


def tag_folder(folder):
    """The folder of a tag opens as the whole does."""
    for stage in ("stage2", "stage3"):
        whole = expect(folder, OK, "hash", DATA / "zero" / stage).out
        check_equal(expect(folder, OK, "hash", DATA / "zero" / stage / "global_step1").out, whole, "hash")


SCENES = [
    unfinished, another_metadata, beside_weights, of_one_rank, only_needed_files, damage_is_found, dtype_of_few_bits, tag_folder
]  # fmt: skip


def cases():
    yield from vectors()
    for scene in SCENES:
        yield scene.__name__.replace("_", " "), scene


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(list(cases())))
