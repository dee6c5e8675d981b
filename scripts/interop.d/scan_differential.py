"""Nothing that runs code, looks up a name outside the list or opens a file when it is loaded is clean to tconv scan.

Generated files go through CPython's pickle, torch.load, numpy.load, joblib.load and, member by member, through whatever
archive they are (watched.py), and through tconv scan. Every file depends on its number alone, so that a finding can be
made again; INTEROP_FULL=1 makes all of them, else a part. INTEROP_KEEP=FOLDER keeps what was found there.
"""
import base64
import collections
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

import numpy as np
import torch

import watched
from containers import CONTAINERS, HONEST, TAR, Member, joblib_of, npy_of, tar_of, zipped
from pickle_code import pickle_of, storage, tensor, text
from pickle_programs import Grammar, mutate, split
from pt_reading import VARIANTS, for_legacy, objects
from torch_peer import saved
from pickle_tricks import CALLS, ENDS, PRELUDES, Soup, program, random_program, state_program, touch

TESTDATA = Path(__file__).parents[2] / "testdata"
FULL = bool(os.environ.get("INTEROP_FULL"))
SEED = 20261117
BATCH = 1000
WORST = {"clean": 0, "unsafe": 1, "code": 1, "broken": 3, "other": 3}
LARGEST = 200_000  # bytes of a file of testdata that is mutated
# How many files of each kind, in full and by default; crossed are all there are, or a part of them.
COUNTS = {
    "mutated": 70_000,
    "rebuilt": 25_000,
    "tricks": 25_000,
    "soup": 25_000,
    "states": 20_000,
    "tensors": 12_000,
    "damaged": 15_000,
}
PART = 5


def seeds() -> list[tuple[str, bytes]]:
    """Honest files of kinds that testdata has none of."""
    array, tensor_ = np.arange(6.0).reshape(2, 3), torch.arange(4.0)
    values = {
        "data": {"a": [1, 2.5, "x", None, True, b"y", (1,), {2}, frozenset({3}), bytearray(b"z"), 1 << 80, 1j]},
        "ordered": collections.OrderedDict(a=collections.Counter("aab"), b=collections.defaultdict(list, c=[1])),
        "array": {"a": array, "b": array.T, "c": np.float32(1.5), "d": np.dtype("<i4")},
        "structured": np.zeros(2, [("a", "<f4"), ("b", "<i8", 2)]),
        "objects": np.array([{"a": 1}, None], object),
        "tensor": {"a": tensor_, "b": torch.nn.Parameter(tensor_)},
    }
    found = [
        (f"{kind}{protocol}.pkl", pickle.dumps(value, protocol))
        for kind, value in values.items()
        for protocol in range(6)
    ]
    for kind in ("array", "objects"):
        for compress in (0, 3, ("gzip", 3), ("bz2", 3)):
            found.append((f"{kind}.joblib", joblib_of({"x": values[kind]}, compress)))
    return found + [
        ("old.pt", tar_of(TAR)),
        ("objects.npy", npy_of(pickle.dumps(values["objects"], 4))),
        ("nested.zip", zipped([("a.pt", zipped(HONEST))])),
    ]


# What the fuzz targets keep is no file of a format.
KNOWN = [file for file in sorted(TESTDATA.rglob("*")) if file.is_file() and TESTDATA / "fuzz" not in file.parents]
FILES = [
    (file.name, file.read_bytes())
    for file in KNOWN
    if file.stat().st_size <= LARGEST and not file.name.startswith(("README", "expected"))
] + seeds()
ARCHIVES = [(name, data) for name, data in FILES if data[:4] == b"PK\3\4"]
CROSSED = [
    *((f"{trick} in {container}", trick, None, container) for trick in PRELUDES for container in CONTAINERS),
    *(
        (f"call {number} in {container}", None, number, container)
        for number in range(len(CALLS))
        for container in CONTAINERS
    ),
]
COMMON = [
    "a plain pickle as .pkl",
    "data.pkl",
    "a plain pickle as .pt",
    "an array of objects, '|O'",
    "a legacy file, pickle 3",
]


# Each makes (what, suffix, file)


def crossed(random: Random, number: int):
    what, trick, call, container = CROSSED[number]
    made = program(random, PRELUDES[trick] if trick else b"", CALLS[call](random) if call is not None else None)
    return what, *CONTAINERS[container](made)


def contained(random: Random, what: str, made: bytes):
    container = random.choice(COMMON) if random.random() < 0.5 else random.choice(list(CONTAINERS))
    return f"{what} in {container}", *CONTAINERS[container](made)


def tricks(random: Random, number: int):
    return contained(random, "tricks", random_program(random))


def soup(random: Random, number: int):
    return contained(random, "soup", Soup(random, random.random() < 0.5).program())


def states(random: Random, number: int):
    return contained(random, "a state", state_program(random))


def tensors(random: Random, number: int):
    made = Grammar(random).program()
    how = "tensors"
    if random.random() < 0.5:
        made, how = with_touch(random, made), "tensors and a call"
    return contained(random, how, made)


def with_touch(random: Random, pickle: bytes) -> bytes:
    """A call put between two opcodes, and dropped again."""
    try:
        ops = split(pickle)
    except ValueError:
        return pickle
    ops.insert(random.randrange(len(ops)), touch(random) + b"0")
    return b"".join(ops)


def mutated(random: Random, number: int):
    name, data = FILES[number % len(FILES)]
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        data = damage(random, data)
    return f"{name}, mutated", suffix_of(name), data


def damage(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice([1, 1, 2, 4, 8, 32, 300]))
    how = random.randrange(9)
    if how < 3 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if how == 3:
        return (
            data[:at]
            + bytes([random.choice(b"\0\xff.0(N]})tRbcQqh\x80\x95\x93\n{PK") for _ in range(end - at)])
            + data[end:]
        )
    if how == 4:
        return data[:at] + data[end:]
    if how == 5:
        return data[:end] + data[at:]
    if how == 6:
        return data[:at]
    if how == 7:
        other = random.choice(FILES)[1]
        place = random.randrange(len(other) + 1)
        return data[:at] + other[place : place + random.choice([4, 32, 500])] + data[at:]
    made = random_program(random)
    return random.choice(
        [made + data, data + made, data[:at] + made + data[at + len(made) :], data[:at] + made + data[at:]]
    )


def suffix_of(name: str) -> str:
    return "".join(Path(name).suffixes[-2:])


def rebuilt(random: Random, number: int):
    """An archive of testdata with its pickles changed, and odd members beside them."""
    name, data = ARCHIVES[number % len(ARCHIVES)]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(each, archive.read(each)) for each in archive.namelist()]
    except Exception:  # of those in testdata/bad
        return mutated(random, number)
    pickles = [index for index, (_, content) in enumerate(members) if content[:1] == b"\x80"]
    if pickles and random.random() < 0.9:
        index = random.choice(pickles)
        place, content = members[index]
        try:
            changed = with_touch(random, content) if random.random() < 0.3 else mutate(random, content)[1]
        except (ValueError, IndexError):
            changed = damage(random, content)
        members[index] = (random.choice([place] * 8 + [place.upper(), place + "x"]), changed)
    if random.random() < 0.3:
        place = random.choice(["archive/x", "archive/data/99", "DATA.PKL", "x.npy", members[0][0]])
        members.insert(random.randrange(len(members) + 1), (place, random_program(random)))
    if random.random() < 0.2:
        random.shuffle(members)
    return (
        f"{name}, rebuilt",
        suffix_of(name),
        zipped(odd_members(random, members), prefix=random.choice([b""] * 9 + [b"x"])),
    )


def odd_members(random: Random, members) -> list[Member]:
    found = []
    for name, content in members:
        options = {"method": random.choice([0] * 12 + [8, 8, 12, 14])}
        if random.random() < 0.05:
            options |= random.choice([{"flags": 1}, {"flags": 0x20}, {"crc": 0}, {"size": 0}, {"listed": False},
                {"descriptor": True},
                                      {"attributes": 16}, {"local_name": "x"}, {"extra": b"\x01\0\0\0"}])  # fmt: skip
        found.append(Member(name, content, **options))
    return found


def damaged(random: Random, number: int):
    """A container with a hostile pickle, and then some of its bytes changed."""
    what, suffix, data = contained(random, "a call", random_program(random))
    return f"{what}, damaged", suffix, damage(random, data)


MAKERS = {
    "mutated": mutated,
    "rebuilt": rebuilt,
    "tricks": tricks,
    "soup": soup,
    "states": states,
    "tensors": tensors,
    "damaged": damaged,
}


def case(kind: str, number: int):
    random = Random(f"{SEED} {kind} {number}")
    if kind == "crossed":
        return crossed(random, number)
    return MAKERS[kind](random, number)


def all_cases() -> list[tuple[str, int]]:
    step = 1 if FULL else PART
    found = [("crossed", number) for number in range(len(CROSSED))]
    if not FULL:
        found = Random(SEED).sample(found, len(found) // PART)
    return found + [(kind, number) for kind, count in COUNTS.items() for number in range(0, count, step)]


# Both sides, a batch at a time


def run(checks, tconv):
    watched.warm_up([file for file in KNOWN if TESTDATA / "bad" not in file.parents])
    cases = all_cases()
    batches = [cases[start : start + BATCH] for start in range(0, len(cases), BATCH)]
    totals: Counter[str] = Counter()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        for failures, counts in pool.map(judge_batch, [tconv.program] * len(batches), batches):
            for failure in failures:
                checks.fail(failure)
            totals += counts
            checks.passed += counts["files"] - len(failures)
            if FULL and totals["files"] % 20_000 == 0:
                print(f"interop: {totals['files']} of {len(cases)} files", file=sys.stderr, flush=True)
    check_written(checks, tconv)
    check_random_storages(checks, tconv, 1_000_000 if FULL else 100_000)
    checks.notes += [f"{count} {what}" for what, count in sorted(totals.items())]
    checks.true(
        totals["files that ran the canary"] > len(cases) // 5,
        lambda: "too few files did anything: the generators are broken",
    )


def judge_batch(program: str, batch) -> tuple[list[str], Counter]:
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base, prefix="tconv-interop.") as name:
        folder = Path(name)
        folder.chmod(0o755)
        whats, paths = [], []
        for index, (kind, number) in enumerate(batch):
            what, suffix, data = case(kind, number)
            path = folder / f"{index}{suffix}"
            path.write_bytes(data)
            whats.append(f"{kind} {number}: {what}")
            paths.append(str(path))
        told, code, errors = scan(program, paths)
        loaded = watched.Loaded(paths, folder)
        failures, counts = judge(whats, paths, told, loaded.found)
        counts["files of which a loader took too long"] += loaded.slow
        worst = max(
            (WORST.get(each.get("verdict"), 3) for each in told.values()),
            default=3,
            key=lambda value: (value == 1, value),
        )
        if code != worst and code not in (3, 5):
            failures.append(f"{kind} {number}: exit code {code} of scan, not {worst}: {errors[:300]}")
        return failures, counts


def scan(program: str, paths: list[str]) -> tuple[dict[str, dict], int, str]:
    done = subprocess.run(
        [program, "scan", "--json", *paths], capture_output=True, stdin=subprocess.DEVNULL, timeout=1800
    )
    if done.returncode < 0 and len(paths) > 1:  # a crash: which file was it? That one is left without a verdict
        alone = [scan(program, [path]) for path in paths]
        return {path: line for told, _, _ in alone for path, line in told.items()}, done.returncode, f"{done}"
    errors = done.stderr.decode("utf-8", "replace")
    if done.returncode < 0:
        return {}, done.returncode, errors
    lines = [json.loads(line) for line in done.stdout.decode("utf-8", "replace").split("\n") if line]
    return {line["file"]: line for line in lines if "file" in line}, done.returncode, errors


def judge(whats, paths, told, did) -> tuple[list[str], Counter]:
    failures, counts = [], Counter()
    for index, path in enumerate(paths):
        events = did.get(index, [])
        line = told.get(path, {})
        verdict = line.get("verdict", "no verdict")
        ran = any(event[1] == "ran" for event in events)
        counts["files"] += 1
        did_what = "ran the canary" if ran else "did what data does not" if events else "made data or nothing"
        counts[f"files of verdict {verdict}, of which the loaders {did_what}"] += 1
        counts["files that ran the canary"] += ran
        for loader in {event[0] for event in events}:
            counts[f"files that {loader} did something with"] += 1
        # What is also broken is so under --allow=code too.
        passes = verdict == "clean" or verdict == "code" and "broken" not in line
        if verdict == "no verdict" or events and passes:
            failures.append(failure_of(whats[index], path, verdict, events))
        elif ran and verdict != "unsafe":
            counts["files that ran the canary and are not unsafe"] += 1
            keep("weak", whats[index], path)
    return failures, counts


def failure_of(what, path, verdict, events) -> str:
    data = Path(path).read_bytes()
    keep("found", what, path)
    seen = "; ".join(sorted({f"{loader}: {event} {detail}" for loader, event, detail in events}))
    content = base64.b64encode(data).decode() if len(data) <= 300 else f"{len(data)} bytes"
    return f"{what}: {verdict}, but {seen[:300]} ({content})"


def keep(kind: str, what: str, path: str):
    folder = os.environ.get("INTEROP_KEEP")
    if folder:
        name = "".join(each if each.isalnum() else "_" for each in what)[:100]
        target = Path(folder, kind)
        target.mkdir(parents=True, exist_ok=True)
        (target / f"{name}{suffix_of(path)}").write_bytes(Path(path).read_bytes())


def check_written(checks, tconv):
    """What torch writes is clean."""
    with tconv.folder() as folder:
        for kind, root in objects().items():
            for variant, options in VARIANTS.items():
                with checks.case(f"by torch: {kind}, {variant}"):
                    file = folder / "file.pt"
                    file.write_bytes(saved(for_legacy(root) if variant.startswith("legacy") else root, **options))
                    check_clean(checks, tconv, file)


def check_clean(checks, tconv, file):
    told, code, errors = scan(tconv.program, [str(file)])
    line = told.get(str(file), {})
    unknown = [entry["name"] for entry in line.get("globals", []) if not entry["allowed"]]
    checks.equal("exit code, verdict, findings", (code, line.get("verdict"), unknown[:3]), (0, "clean", []))


def check_random_storages(checks, tconv, count: int):
    """Data is not mistaken for a pickle."""
    random, a_file = Random(SEED), 5000
    for start in range(0, count, a_file):
        with checks.case(f"random storages from {start}"), tconv.folder() as folder:
            contents = [random.randbytes(random.choice([1, 2, 3, 4, 8, 16, 24, 64, 200])) for _ in range(a_file)]
            entries = b"".join(
                text(str(key)) + tensor(storage(str(key), len(data), "torch.ByteStorage"), 0, (len(data),), (1,))
                for key, data in enumerate(contents)
            )
            members = [("archive/data.pkl", pickle_of(b"}(" + entries + b"u")), ("archive/version", b"3\n")]
            members += [(f"archive/data/{key}", data) for key, data in enumerate(contents)]
            file = folder / "random.pt"
            file.write_bytes(zipped(members))
            check_clean(checks, tconv, file)


if __name__ == "__main__":  # scan_differential.py KIND NUMBER FILE: makes one of the files again
    what, suffix, data = case(sys.argv[1], int(sys.argv[2]))
    Path(sys.argv[3]).write_bytes(data)
    print(what, suffix)
