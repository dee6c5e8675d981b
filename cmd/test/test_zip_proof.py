#!/usr/bin/env python3
"""What tconv's zip reader reads, Python's zipfile reads in the same way, or refuses.

Archives with fields and pieces changed here and there run through the reader (zip_trace) and through
zipfile. Names, their order and the bytes of each member must be the same; tconv may always refuse.
TCONV_TEST_SEED chooses other archives; --full makes a hundred times as many.
"""

import functools
import io
import os
import random
import subprocess
import sys
import warnings
import zipfile
from collections import Counter
from pathlib import Path

from harness import FULL, SANITIZED, TCONV, Failed, Suite
from zip_archives import any_members, archive

TRACE = Path(TCONV).parent / "zip_trace"
SEED = int(os.environ.get("TCONV_TEST_SEED", 20262))
BATCH = 1_000 if SANITIZED else 4_000
BATCHES = 200 if FULL else 2


def trace(archives):
    """What tconv's reader has for each: None, or (name, bytes or None) of each member."""
    data = b"".join(len(each).to_bytes(4, "little") + each for each in archives)
    result = subprocess.run([TRACE], input=data, capture_output=True)
    lines = result.stdout.decode(errors="replace").split("\n")[:-1]
    if result.returncode or len(lines) != len(archives):
        raise Failed(f"{TRACE.name} ends with {result.returncode}: {result.stderr!r}")
    for line in lines:
        if line.startswith("!"):
            yield None
            continue
        pairs = (field.split(" ", 1) for field in line.split("\t")[1:])
        yield [
            (bytes.fromhex(name), None if shown.startswith("!") else bytes.fromhex(shown))
            for name, shown in pairs
        ]


def with_zipfile(data):
    """The same by zipfile."""
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
    except Exception:
        return None
    members = []
    for info in file.infolist():
        coding = "utf-8" if info.flag_bits & 0x800 else "cp437"
        try:
            content = file.open(info).read()
        except Exception:
            content = None
        members.append((info.orig_filename.encode(coding), content))
    return members


def differs(ours, theirs):
    """How they differ, where both accept something; None: they don't."""
    if ours is None or theirs is None:
        return None
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return "other names"
    for (name, our_bytes), (_, their_bytes) in zip(ours, theirs):
        if None not in (our_bytes, their_bytes) and our_bytes != their_bytes:
            return f"other bytes of {name!r}"
    return None


def compare(number, folder):
    warnings.simplefilter("ignore")  # of names that occur twice
    rng = random.Random(SEED + number)
    made = [archive(rng, any_members(rng)) for _ in range(BATCH)]
    counts, faults = Counter(), []
    for data, ours in zip(made, trace(made), strict=True):
        theirs = with_zipfile(data)
        counts["tconv" if ours is not None else "none"] += 1
        counts["both"] += ours is not None and theirs is not None
        if fault := differs(ours, theirs):
            faults.append(f"{fault}: {data.hex()}\ntconv {ours}\nzipfile {theirs}")
    if faults:
        raise Failed(f"{len(faults)} differ:\n" + "\n".join(faults[:3]))
    if counts["both"] < BATCH // 50:
        raise Failed(f"too few are accepted to compare anything: {dict(counts)}")


def cases():
    for number in range(BATCHES):
        yield f"archives {number}", functools.partial(compare, number)


if __name__ == "__main__":
    print(f"TCONV_TEST_SEED={SEED}", flush=True)
    sys.exit(Suite(__doc__).run(cases()))
