"""What the tests of batches, of jobs and of make share: trees of small models, and digests."""

import os
import shutil
from pathlib import Path

import files
from harness import TCONV, WORK, Skip, check_equal, run

BIN = WORK / "bin"


def path():
    """A PATH on which the tconv under test is the first."""
    BIN.mkdir(exist_ok=True)
    link = BIN / "tconv"
    if not link.is_symlink():
        link.symlink_to(TCONV)
    return f"{BIN}:{os.environ['PATH']}"


def environment():
    """For commands that call tconv by its name, or make's that take TCONV for it: the name, since a
    path could have characters that the shell takes for its own."""
    return {"PATH": path(), "TCONV": "tconv"}


def needs(program):
    if not shutil.which(program):
        raise Skip(f"no {program} here")


def tensors(seed, count=6, elements=4000):
    return {
        f"w{i}": files.f32(*(float(seed * 100 + i + value) for value in range(elements)))
        for i in range(count)
    }


def model(path_, seed=0, **how):
    path_.parent.mkdir(parents=True, exist_ok=True)
    path_.write_bytes(files.safetensors(tensors(seed, **how)))


def tree(folder, names=("a", "x/b", "x/y/c")):
    """A tree of models in `folder`; returns their digests by name."""
    for seed, name in enumerate(names):
        model(folder / f"{name}.safetensors", seed)
    return {name: digest(folder / f"{name}.safetensors") for name in names}


def digest(path_):
    result = run(TCONV, "hash", "--digest", str(path_))
    check_equal(result.code, 0, f"hashing {path_}", result)
    return result.out.decode().split()[0]


def files_in(folder):
    """All files below a folder but the log of a batch, as relative paths."""
    return sorted(
        str(entry.relative_to(folder))
        for entry in Path(folder).rglob("*")
        if entry.is_file() and entry.name != ".tconv-batch.jsonl"
    )
