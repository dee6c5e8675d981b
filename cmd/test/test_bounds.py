#!/usr/bin/env python3
"""Time and memory follow the file: small hard files (bounds.py) through every command.

A file below 4 MiB takes at most 10 s of processor time and 256 MiB, whatever is asked of it, and one
of an eighth of that size, as they are made unless TCONV_FULL is set, far less; with
--max-memory the limit holds for all that the file can make grow, and every table is counted: the
program's own count (TCONV_TEST_MEMORY, in test builds) is held against the pages it really took.
"""

import functools
import sys

import files
from bounds import FILES, SHARE
from harness import CPU_SECONDS, MIB, OK, SANITIZED, Suite, health_faults, text, tconv

SMALL = 4 * MIB
# What a process takes beside what it counts: its code, its libraries and threads, and what the heap
# does not give back.
BESIDE = 64 * MIB
MEMORY = 256 * MIB if SHARE == 1 else 256 * MIB // SHARE + BESIDE
# Some files are not made smaller: of a bomb, what it unpacks to counts.
SECONDS = CPU_SECONDS if SHARE == 1 else 3
TIGHT = 16 * MIB
BUFFERS = 48 * MIB  # core/base/memory.h: what streams may take beside a limit

READING = (
    ("hash", "--json"),
    ("hash", "--digest"),
    ("info",),
    ("info", "--json"),
    ("list",),
    ("stats",),
    ("stats", "--plot"),
    ("verify",),
    ("verify", "--json"),
    ("scan",),
    ("manifest",),
)
TARGETS = ("safetensors", "deathtensors", "npz", "pt", "ot", "onnx", "tfrecord")


def writing(name):
    for target in TARGETS:
        yield (name, f"out.{target}")
    yield (name, "out.safetensors", "--verify", "--receipt", "receipt.json", "--receipt-tensors")
    yield (name, "out.safetensors", "--densify", "--tied=copy")
    yield (name, "out.npz", "--keep-metadata=sidecar", "--compress")
    yield (name, "out.safetensors", "--shard-size", "400K")
    yield ("--dry-run", "--json", name, "out.npz")
    yield ("--rename", "s/.*[0-9]/x/", name, "out.safetensors")


def commands(name, first):
    """Every command on a file whose first tensor is called so."""
    for command in READING:
        yield (*command, name)
    yield ("diff", name, name)
    yield ("diff", "--json", "--atol", "1", name, name)
    yield ("show", name, first)
    yield ("show", "--full", name, first)
    yield ("get", name, first, "-o", "got.npy")
    for command in writing(name):
        yield (*command, "--no-sync")


def some(name, first):
    """Commands that take different paths through the program; the others are for --full."""
    yield ("hash", "--json", name)
    yield ("info", "--json", name)
    yield ("stats", "--plot", name)
    yield ("verify", name)
    yield ("scan", name)
    yield ("diff", name, name)
    yield ("show", name, first)
    yield (name, "out.safetensors", "--densify", "--verify", "--no-sync")
    yield (name, "out.npz", "--keep-metadata=sidecar", "--no-sync")
    yield (name, "out.onnx", "--no-sync")


def first_name(folder, name):
    """What the first tensor is called, or any name where the file is refused."""
    result = tconv("list", "-q", name, cwd=folder)
    return text(result.out).split("\n")[0] or "w" if result.code == OK else "w"


def checked(folder, args, memory):
    """Run a command; check its exit, time and memory."""
    counted = folder / "counted"
    result = tconv(*args, cwd=folder, env={"TCONV_TEST_MEMORY": str(counted)})
    faults = health_faults(result)
    if result.code not in range(7):
        faults.append(f"expected: an exit code from 0 to 6, got {result.code}")
    if not SANITIZED:
        if result.cpu_seconds > SECONDS:
            faults.append(f"expected: at most {SECONDS} s, got {result.cpu_seconds:.1f}")
        if result.rss > memory:
            faults.append(f"expected: at most {memory // MIB} MiB, got {result.rss // MIB}")
        if counted.exists() and result.rss > int(counted.read_text()) + BESIDE:
            faults.append(
                f"{result.rss // MIB} MiB were taken, and only "
                f"{int(counted.read_text()) // MIB} MiB counted: a table is not"
            )
    if faults:
        raise result.failed(*faults)
    counted.unlink(missing_ok=True)
    return result


def file_case(number, make, name, full, folder):
    path = make(folder)
    assert path.stat().st_size < SMALL, "the file is not a small one"
    first = first_name(folder, name)
    wanted = list((commands if full else some)(name, first))
    # In a sanitizer build each file goes through a third of the commands, the next file through another.
    for args in wanted[number % 3 :: 3] if SANITIZED and not full else wanted:
        checked(folder, args, MEMORY)
    if full or not SANITIZED:
        check_tight(folder, name)


def check_tight(folder, name):
    """A small limit is kept, and the message that refuses the file says which it is."""
    for args in (("hash", name), ("info", name), (name, "out.safetensors", "--no-sync")):
        result = checked(folder, (*args, "--max-memory", str(TIGHT)), TIGHT + BUFFERS + BESIDE)
        if b"more memory than" in result.err and b"--max-memory" not in result.err:
            raise result.failed("expected: the message names --max-memory")


def hook_case(folder):
    """The count is there, and it is of what was taken: a table of names counts as much as its file."""
    if SANITIZED:
        return
    size = FILES["prefixes.safetensors"](folder).stat().st_size
    result = tconv(
        "list", "prefixes.safetensors", cwd=folder, env={"TCONV_TEST_MEMORY": str(folder / "n")}
    )
    counted = int((folder / "n").read_text())
    if not 3 / 4 * size < counted < result.rss:
        raise result.failed(f"expected: a count of about {size}, got {counted}")


# What a tensor may take, as the program counts it (arrays that grow are larger than what is touched
# of them), by the input's format: 100 bytes are its name and place in the
# file, twice. A .pt has a pickle, whose nodes are gone before the conversion starts.
MANY = 50_000
BYTES_A_TENSOR = {"safetensors": 800, "deathtensors": 720, "pt": 740, "npz": 920}


def many_case(folder):
    """Of many small tensors each takes a few hundred bytes, whatever is done with them."""
    if SANITIZED:
        return
    header = {
        f"model.layers.{i // 10}.weight.{i % 10}": {
            "dtype": "F32",
            "shape": [4],
            "data_offsets": [16 * i, 16 * i + 16],
        }
        for i in range(MANY)
    }
    (folder / "many.safetensors").write_bytes(files.safetensors_raw(header, bytes(16 * MANY)))
    for name, most in BYTES_A_TENSOR.items():
        if name != "safetensors":
            tconv("-q", "many.safetensors", f"many.{name}", "--no-sync", cwd=folder)
        target = "deathtensors" if name == "safetensors" else "safetensors"
        for args in (("info", f"many.{name}"), (f"many.{name}", f"out.{target}", "--no-sync")):
            env = {"TCONV_TEST_MEMORY": str(folder / "n")}
            result = tconv(*args, cwd=folder, env=env)
            counted = int((folder / "n").read_text())
            if result.code != OK or counted > MANY * most + 4 * MIB:
                raise result.failed(f"expected: at most {most} bytes a tensor, got {counted / MANY:.0f}")


def cases(full):
    yield "hook", hook_case
    yield "many tensors", many_case
    for number, (name, make) in enumerate(FILES.items()):
        yield name, functools.partial(file_case, number, make, name, full)


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite.full)))
