#!/usr/bin/env python3
"""Threads that use the same memory without a lock: valgrind's helgrind watches jobs on several threads.

A race may do no harm for years, so the tests that compare results don't find it. Where one is found,
it fails here, whether or not the output is right. What the libraries do at their first call (which
instructions there are, which functions to take) is theirs, and listed in races.supp.
"""

import functools
import random
import re
import shutil
import sys

import files
from files import Tensor
from harness import FULL, HERE, OK, SANITIZED, TCONV, Skip, Suite, check_equal, run

SUPPRESSED = HERE / "races.supp"
TIMEOUT = 600
FOUND = re.compile(r"Possible data race|lock order|Exiting thread still holds|unlocked a not-locked")
KIB = 1 << 10


def write_model(folder):
    """Tensors of five mebibytes in all: enough for other threads to be worth their start."""
    dice = random.Random(1)
    tensors = {f"t{i:02d}": Tensor("F32", [32, 1024], dice.randbytes(128 * KIB)) for i in range(40)}
    (folder / "in.safetensors").write_bytes(files.safetensors(tensors))


def shard(folder):
    expect_ok(folder, "in.safetensors", "sharded.safetensors", "--shard-size", "300K", "-q")


def pack(folder):
    expect_ok(folder, "in.safetensors", "packed.npz", "--compress", "-q")


def checkpoint(folder):
    expect_ok(folder, "in.safetensors", "in.pt", "-q")


def nothing(_):
    pass


def expect_ok(folder, *arguments):
    result = run(TCONV, *arguments, cwd=folder)
    if result.code != OK:
        raise result.failed(f"exit {result.code}")


# The first of them run always, the others with --full.
JOBS = {
    "shards to shards": (shard, ("sharded.safetensors.index.json", "out.safetensors", "--shard-size", "150K")),
    "a cast": (nothing, ("in.safetensors", "out.safetensors", "--dtype", "BF16", "--lossy")),
    "verified, with a receipt": (nothing, ("in.safetensors", "out.deathtensors", "--verify", "--receipt", "out.json")),
    "deflating": (nothing, ("in.safetensors", "out.npz", "--compress")),
    "inflating": (pack, ("packed.npz", "out.safetensors")),
    "zstd": (nothing, ("in.safetensors", "out.deathtensors", "--compress")),
    "to .pt": (nothing, ("in.safetensors", "out.pt")),
    "from .pt": (checkpoint, ("in.pt", "out.npz")),
    "shards with casts": (shard, ("sharded.safetensors.index.json", "out.safetensors", "--dtype", "F16", "--lossy")),
    "hash": (shard, ("hash", "sharded.safetensors.index.json")),
    "hash of a checkpoint": (checkpoint, ("hash", "in.pt")),
    "stats": (nothing, ("stats", "in.safetensors")),
    "verify": (checkpoint, ("verify", "in.pt")),
    "diff": (checkpoint, ("diff", "in.safetensors", "in.pt")),
}
ALWAYS = 3


def watched(name, folder):
    if SANITIZED:
        raise Skip("the sanitizers' memory is not valgrind's")
    if not shutil.which("valgrind"):
        raise Skip("no valgrind")
    if not FULL and list(JOBS).index(name) >= ALWAYS:
        raise Skip("needs --full")
    prepare, arguments = JOBS[name]
    write_model(folder)
    prepare(folder)
    log = folder / "helgrind.log"
    command = ("valgrind", "--quiet", "--tool=helgrind", f"--suppressions={SUPPRESSED}", f"--log-file={log}")
    result = run(*command, TCONV, *arguments, "-j", "4", "--sandbox=off", cwd=folder, timeout=TIMEOUT)
    if result.code != OK:
        raise result.failed(f"exit {result.code} under valgrind")
    found = log.read_text(errors="replace")
    check_equal(FOUND.search(found) is None, True, found[:4000], result)


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run((name, functools.partial(watched, name)) for name in JOBS))
