#!/usr/bin/env python3
"""How many instructions of its own tconv takes for a few fixed jobs, beside instructions.json.

No clock is involved, so that a regression shows on a busy machine too: valgrind counts, and only
what runs in the program itself, so that libraries of another version don't matter. A job that takes
over TOLERANCE more than it did, and ALLOWANCE, fails. TCONV_TEST_UPDATE=1 writes the file anew, for a commit that
says why.
"""

import functools
import json
import os
import platform
import random
import re
import shutil
import struct
import sys

import files
import pickles
from files import Tensor
from harness import FULL, HERE, OK, SANITIZED, TCONV, Skip, Suite, check_equal, run

KEPT = HERE / "instructions.json"
UPDATE = os.environ.get("TCONV_TEST_UPDATE") == "1"
TOLERANCE = 0.10  # another compiler, another way through a lock
ALLOWANCE = 50_000  # what a few more options take at the start
TIMEOUT = 600
CALL = re.compile(r"calls=")
OBJECT = re.compile(r"(c?)ob=(\(\d+\))(?: (.*))?")  # with its name where it is first told of
COST = re.compile(r"[+\-*\d]\S* (\d+)")


def own_instructions(path):
    """What callgrind counted in the program itself: not in what it called elsewhere."""
    names, current, total, inclusive = {}, None, 0, False
    for line in path.read_text(errors="replace").splitlines():
        if match := OBJECT.match(line):
            called, number, name = match.groups()
            if name:
                names[number] = os.path.basename(name)
            if not called:
                current = names[number]
        elif CALL.match(line):
            inclusive = True  # the next line has the cost of the whole call
        elif match := COST.match(line):
            if not inclusive and current == os.path.basename(TCONV):
                total += int(match[1])
            inclusive = False
    return total


def counted(folder, *arguments):
    out = folder / "callgrind.out"
    command = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet")
    result = run(*command, TCONV, *arguments, "--sandbox=off", cwd=folder, timeout=TIMEOUT)
    if result.code != OK:
        raise result.failed(f"exit {result.code} under valgrind")
    return own_instructions(out)


def floats(count, seed=1):
    dice = random.Random(seed)
    return struct.pack(f"<{count}f", *(dice.gauss(0, 0.02) for _ in range(count)))


def write_weights(folder):
    """A mebibyte in a few tensors."""
    data = floats(1 << 16)
    tensors = {f"layers.{i}.weight": Tensor("F32", [256, 256], data) for i in range(4)}
    (folder / "weights.safetensors").write_bytes(files.safetensors(tensors))


def write_many(folder):
    """Ten thousand tensors of two elements."""
    tensors = {f"layers.{i:05d}.weight": Tensor("F32", [2], bytes(8)) for i in range(10_000)}
    (folder / "many.safetensors").write_bytes(files.safetensors(tensors))


def write_checkpoint(folder):
    """A thousand storages of a checkpoint."""
    state = {
        f"layers.{i}.weight": pickles.tensor(pickles.storage(str(i), 64), size=(64,))
        for i in range(1000)
    }
    data = {str(i): floats(64, i) for i in range(1000)}
    (folder / "in.pt").write_bytes(pickles.pt(pickles.pickled(state), data))


def write_few_bits(folder):
    """Small integers, whose errors as floats of 8 bits are the same again and again, in one tensor of
    several chunks."""
    dice = random.Random(2)
    data = struct.pack("<1024h", *(round(dice.gauss(0, 20)) for _ in range(1024))) * 2048
    tensors = {"w": Tensor("I16", [1 << 21], data)}
    (folder / "few.safetensors").write_bytes(files.safetensors(tensors))


def write_fortran(folder):
    data = floats(1 << 18)
    (folder / "in.npy").write_bytes(files.npy("<f4", (8, 16, 32, 64), data, fortran=True))


def write_short_axes(folder):
    """Bytes in Fortran's order, of which neither side has long runs."""
    data = random.Random(3).randbytes(4 << 20)
    (folder / "in.npy").write_bytes(files.npy("|u1", (16, 4, 16, 64, 16, 4), data, fortran=True))


JOBS = {
    "info, 10,000 tensors": (write_many, ("info", "many.safetensors")),
    "convert 10,000 tensors": (write_many, ("many.safetensors", "out.deathtensors", "-q")),
    "from .pt, 1,000 tensors": (write_checkpoint, ("in.pt", "out.safetensors", "-q")),
    "raw, 1 MiB": (write_weights, ("weights.safetensors", "out.dt", "--no-checksum", "-q")),
    "to .npz, 1 MiB": (write_weights, ("weights.safetensors", "out.npz", "-q")),
    "F32 to BF16, 1 MiB": (
        write_weights,
        ("weights.safetensors", "out.safetensors", "--dtype", "BF16", "--lossy", "-q"),
    ),
    "I16 to F8_E5M2, 4 MiB": (
        write_few_bits,
        ("few.safetensors", "out.safetensors", "--dtype", ".*=F8_E5M2", "--lossy", "-q"),
    ),
    "stats, 1 MiB": (write_weights, ("stats", "weights.safetensors")),
    "hash, 1 MiB": (write_weights, ("hash", "weights.safetensors")),
    "Fortran order, bytes, 4 MiB": (write_short_axes, ("in.npy", "out.safetensors", "-q")),
    "Fortran order, 1 MiB": (write_fortran, ("in.npy", "out.npy", "-q")),
    "scan of a checkpoint": (write_checkpoint, ("scan", "in.pt")),
}


def needs_valgrind():
    if SANITIZED:
        raise Skip("a sanitizer's build has instructions of its own")
    if platform.machine() != "x86_64":
        raise Skip("the counts are of x86-64")
    if not shutil.which("valgrind"):
        raise Skip("no valgrind")


def kept():
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def compared(name, folder):
    needs_valgrind()
    write, arguments = JOBS[name]
    write(folder)
    count = counted(folder, *arguments)
    before = kept().get(name)
    if UPDATE:
        KEPT.write_text(json.dumps({**kept(), name: count}, indent=2, sort_keys=True) + "\n")
        return
    if before is None:
        raise AssertionError(f"instructions.json has no count for it: it takes {count}")
    change = count / before - 1
    if abs(change) > TOLERANCE / 2:
        print(f"{name}: {count} instructions, {change:+.1%} of what it was ({before})")
    most = before * (1 + TOLERANCE) + ALLOWANCE
    check_equal(count <= most, True, f"{name}: {count} instructions, {before} before")


def nothing_left(_folder):
    check_equal(sorted(kept()), sorted(JOBS), "jobs in instructions.json")


def notices(folder):
    """The comparison can fail: twice the work counts as about twice as much."""
    needs_valgrind()
    write_weights(folder)
    once = counted(folder, "stats", "weights.safetensors")
    twice = counted(folder, "stats", "--plot", "weights.safetensors")
    check_equal(twice > once * (1 + TOLERANCE), True, f"{once} and {twice} instructions")


def cases(_suite):
    for name in JOBS:
        yield name, functools.partial(compared, name)
    yield "nothing is left", nothing_left
    if FULL:
        yield "a regression shows", notices


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite), **({"jobs": 1} if UPDATE else {})))
