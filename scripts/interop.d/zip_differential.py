"""Zip archives of tensors with changed fields: what tconv reads, torch.load reads in the same way, or refuses.

The archives are those of cmd/test/test_zip_proof.py, which compares with Python's zipfile. A note has the seed;
INTEROP_SEED chooses another."""
import io
import json
import os
import random
import sys
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path

import torch

from torch_peer import saved

sys.path.append(str(Path(__file__).resolve().parents[2] / "cmd" / "test"))
from zip_archives import archive  # noqa: E402

SEED = int(os.environ.get("INTEROP_SEED", 20263))
COUNT = 30_000 if os.environ.get("INTEROP_FULL") else 3_000
BATCH = 100  # files a run of tconv


def run(checks, tconv):
    rng, counts = random.Random(SEED), Counter()
    with zipfile.ZipFile(io.BytesIO(saved({"w": torch.arange(6.0), "v": torch.arange(3)}))) as honest:
        members = [(name.encode(), honest.read(name)) for name in honest.namelist()]
    for _ in range(COUNT // BATCH):
        made = [archive(rng, some(rng, members)) for _ in range(BATCH)]
        with tconv.folder() as folder:
            paths = [folder / f"{number}.pt" for number in range(BATCH)]
            for path, data in zip(paths, made):
                path.write_bytes(data)
            ours = with_tconv(tconv, paths)
            for path, data in zip(paths, made):
                judge(checks, counts, data, ours.get(str(path)))
    checks.notes += [f"seed {SEED}", *(f"{count} × {what}" for what, count in sorted(counts.items()))]
    with checks.case("enough that both read"):
        checks.true(counts["both read it"] > COUNT // 100, lambda: str(dict(counts)))


def some(rng, members):
    """The members in most cases; now and then one of them with other data too, under the same or another name."""
    if rng.random() < 0.8:
        return members
    name, data = rng.choice(members)
    other = (rng.choice((name, name.upper(), name + b"/", b"other/" + name)), bytes(len(data)))
    place = rng.randrange(len(members) + 1)
    return [*members[:place], other, *members[place:]]


def with_tconv(tconv, paths) -> dict:
    """path -> name -> SHA-256, of the files that tconv reads."""
    found = {}
    for line in tconv.fails("hash", "--json", *paths).stdout.splitlines():
        report = json.loads(line)
        if "tensors" in report:
            found[report["file"]] = {each["name"]: each["sha256"] for each in report["tensors"]}
    return found


def with_torch(data) -> dict | None:
    try:
        loaded = torch.load(io.BytesIO(data), weights_only=True)
        return {name: sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in loaded.items()}
    except Exception:
        return None


def judge(checks, counts, data, ours):
    if ours is None:
        counts["tconv refuses it"] += 1
        return
    theirs = with_torch(data)
    counts["both read it" if theirs is not None else "torch alone refuses it"] += 1
    with checks.case(data.hex()):
        checks.true(theirs is None or theirs == ours, lambda: f"tconv reads {ours}, torch {theirs}")
