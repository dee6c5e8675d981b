#!/usr/bin/env python3
"""Outputs of a tconv that is killed, or whose system calls fail, while it writes and publishes.

After each kill the output is the old one, the new one, or one file that readers refuse as
incomplete; the next run, though it fails itself, puts the old or the new one there and leaves no
temporary name; the run after that writes the new one. A kill comes at each system call by which
files get their names (TCONV_TEST_KILL, in builds with -Dtests=true), and at random times: 48, or
1000 with --full. TCONV_TEST_SEED=N repeats the random ones of a run with --full.
"""

import functools
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import files
from files import Tensor
from harness import (
    FULL,
    INVALID,
    IO,
    OK,
    SANITIZED,
    SEED,
    TCONV,
    USAGE,
    Failed,
    Process,
    Skip,
    Suite,
    check_equal,
    expect,
    limited,
    run,
    tconv,
    text,
)

MOST_STEPS = 400
STRIDE = 13 if SANITIZED and not FULL else 1  # from a step at which a run is killed to the next
SPARSE = 3 if SANITIZED and not FULL else 1  # the same for sizes of a full disk


@dataclass(frozen=True)
class Scenario:
    """A conversion of `IN` and what its readers open."""

    arguments: tuple
    head: str  # "" where the output is a folder of equals
    before: tuple = None  # how what was there before was written, in one command or several; None:
    #                       nothing was there
    aside: tuple = ()  # files that are of the old or the new run, whichever the model is of
    environment: dict = field(default_factory=dict)
    metadata: bool = True  # of the new input
    elements: int = 60  # of each of its five tensors
    sync: bool = False  # whether it waits for the disk, which takes more and slower steps


def shards(name, size, *options):
    return ("IN", name, "--shard-size", str(size), *options)


SIDECAR = ("IN", "out.npz", "--keep-metadata=sidecar")
RECEIPT = ("--receipt", "r.json", "--depfile", "d.mk")
SAFE = "out.safetensors.index.json"
NAMED = {"TCONV_TEST_NAMED": "1"}
NO_LINKS = {"TCONV_TEST_NO_LINKS": "1"}
TO_PT = ("-t", "pt")
JOB = ("../new.safetensors", "out.safetensors", "--shard-size", "1000", "--shard")
SCENARIOS = {
    "single": Scenario(("IN", "out.npz"), "out.npz"),
    "single over old": Scenario(("IN", "out.npz"), "out.npz", ("IN", "out.npz"), sync=True),
    "single over old, named": Scenario(
        ("IN", "out.npz"), "out.npz", ("IN", "out.npz"), environment=NAMED
    ),
    "shards": Scenario(shards("out.safetensors", 1000), SAFE),
    "shards over old": Scenario(
        shards("out.safetensors", 1000), SAFE, shards("out.safetensors", 1000), sync=True
    ),
    "shards over old, named": Scenario(
        shards("out.safetensors", 1000), SAFE, shards("out.safetensors", 1000), environment=NAMED
    ),
    "shards over old, no links": Scenario(
        shards("out.safetensors", 1000), SAFE, shards("out.safetensors", 1000), environment=NO_LINKS
    ),
    "shards over others": Scenario(
        shards("out.safetensors", 1000, "--prune"), SAFE, shards("out.safetensors", 400)
    ),
    "own index over old": Scenario(
        shards("out.deathtensors", 1200),
        "out.deathtensors",
        shards("out.deathtensors", 1200, "--no-checksum"),
    ),
    "split files": Scenario(shards("out.gguf", 600), "out-00001-of-00005.gguf"),
    "split files over old": Scenario(
        shards("out.gguf", 600), "out-00001-of-00005.gguf", shards("out.gguf", 600), sync=True
    ),
    "split files over old, named": Scenario(
        shards("out.gguf", 600), "out-00001-of-00005.gguf", shards("out.gguf", 600), environment=NAMED
    ),
    "edit split files": Scenario(
        ("edit", "out-00001-of-00005.gguf", "--metadata", "k=v"), "out-00001-of-00005.gguf",
        shards("out.gguf", 600),
    ),
    "companion over old": Scenario(
        ("IN", "out.onnx", "--onnx-external"),
        "out.onnx",
        ("IN", "out.onnx", "--onnx-external"),
        elements=400,
    ),
    "sidecar": Scenario(SIDECAR, "out.npz"),
    "sidecar over old": Scenario(SIDECAR, "out.npz", SIDECAR),
    "sidecar goes": Scenario(("IN", "out.npz"), "out.npz", SIDECAR, metadata=False),
    "sidecar goes, no links": Scenario(
        ("IN", "out.npz"), "out.npz", SIDECAR, metadata=False, environment=NO_LINKS
    ),
    "folder": Scenario(("IN", "out/"), "", sync=True),
    "folder, named": Scenario(("IN", "out/"), "", environment=NAMED),
    "folder over old": Scenario(("IN", "out/"), "out/a.npy", ("IN", "out/")),
    "receipt over old": Scenario(
        ("IN", "out.npz", *RECEIPT), "out.npz", ("IN", "out.npz", *RECEIPT), ("r.json", "d.mk")
    ),
    "shards and receipt": Scenario(
        shards("out.safetensors", 1000, *RECEIPT),
        SAFE,
        shards("out.safetensors", 1000, *RECEIPT),
        ("r.json", "d.mk"),
    ),
    "model folder": Scenario(("../new-model", "out/", *TO_PT), ""),
    "replaced folder": Scenario(
        ("../new-model", "out/", *TO_PT, "--replace"), "", ("../old-model", "out/", *TO_PT), sync=True
    ),
    "replaced folder, named": Scenario(
        ("../new-model", "out/", *TO_PT, "--replace"), "", ("../old-model", "out/", *TO_PT), environment=NAMED
    ),
    "edit": Scenario(("edit", "out.npz", "--metadata", "k=v"), "out.npz", SIDECAR),
    "edit, blocks shared": Scenario(
        ("edit", "out.safetensors", "--metadata", "k=v", "--align", "reflink"), "out.safetensors",
        ("IN", "out.safetensors"),
    ),
    "edit shards": Scenario(
        ("edit", SAFE, "--metadata", "k=v"), SAFE, shards("out.safetensors", 1000), sync=True
    ),
    "index": Scenario(("index", "."), SAFE, ((*JOB, "1/2"), (*JOB, "2/2")), sync=True),
    "index over old": Scenario(
        ("index", SAFE), SAFE,
        (shards("out.safetensors", 400), (*JOB, "1/2"), (*JOB, "2/2")),
    ),
    "append": Scenario(("append", "out.npz", "IN"), "out.npz", ("../base.safetensors", *SIDECAR[1:])),
}


def write_models(folder, elements=60):
    """Two models of one shape, and a third for tensors to be added to."""
    for name, value, metadata in (("old", 1, True), ("new", 2, True), ("bare", 2, False)):
        tensors = {
            letter: Tensor("F32", [elements], struct.pack("<f", value + at) * elements)
            for at, letter in enumerate("abcde")
        }
        (folder / f"{name}.safetensors").write_bytes(
            files.safetensors(tensors, {"from": name} if metadata else None)
        )
        if metadata:
            model = folder / f"{name}-model"
            model.mkdir()
            shutil.copy(folder / f"{name}.safetensors", model / "model.safetensors")
            (model / "config.json").write_text(name)
            (model / f"{name}.txt").write_text(name)
    (folder / "base.safetensors").write_bytes(
        files.safetensors({"z": files.f32(9, 8, 7)}, {"from": "base"})
    )


def words(arguments, source):
    return [f"../{source}.safetensors" if word == "IN" else word for word in arguments]


def is_temporary(name):
    return any(part.startswith(".") and ".tconv-" in part[1:] for part in Path(name).parts)


def contents(place):
    """All files by name, and those that have temporary names (or are folders with one)."""
    found, temporary = {}, []
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if is_temporary(name):
            temporary.append(name)
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = None
    return found, temporary


class Bench:
    """A scenario's folder, which can be put back to what it was before the run, again and again."""

    def __init__(self, scenario, folder, elements=None):
        self.scenario, self.folder, self.place = scenario, folder, folder / "place"
        self.source = "new" if scenario.metadata else "bare"
        write_models(folder, elements or scenario.elements)
        self.place.mkdir()
        before = scenario.before or ()
        for command in before if not before or isinstance(before[0], tuple) else (before,):
            expect(self.place, OK, *words(command, "old"), "-q", "--no-sync")
        self.old, _ = contents(self.place)
        shutil.copytree(self.place, folder / "before")
        self.run(check=OK)
        self.new, temporary = contents(self.place)
        check_equal(temporary, [], "temporary names after a run")

    def reset(self):
        shutil.rmtree(self.place)
        shutil.copytree(self.folder / "before", self.place)

    def command(self, *more):
        return [*words(self.scenario.arguments, self.source), "-q", *more]

    def run(self, sync=False, check=None, **environment):
        result = tconv(
            *self.command(*([] if sync else ["--no-sync"])),
            cwd=self.place,
            env={**self.scenario.environment, **environment},
        )
        if check is not None and result.code != check:
            raise result.failed(f"expected: exit {check}, got {result.code}")
        return result

    def model(self, found):
        return {name: data for name, data in found.items() if name not in self.scenario.aside}

    def state(self):
        """old, new or refused, and the temporary names; anything else is a failure."""
        found, temporary = contents(self.place)
        for name in self.scenario.aside:
            if found.get(name) not in (self.old.get(name), self.new.get(name)):
                raise Failed(f"{name} is neither the old nor the new one")
        model = self.model(found)
        if model == self.model(self.new):
            return "new", temporary
        if model == self.model(self.old):
            return "old", temporary
        if not self.scenario.head:
            raise Failed(f"neither old nor new: {sorted(found)}")
        head = self.scenario.head
        if "TCONV_TEST_NO_LINKS" in self.scenario.environment and head not in found:
            return "refused", temporary  # without links there is a moment without a head
        result = tconv("hash", head, cwd=self.place)
        if result.code != INVALID or b"the model is incomplete" not in result.err:
            raise result.failed(
                f"expected: old, new, or refused as incomplete; got exit {result.code}",
                f"files: {sorted(found)} {temporary}",
            )
        return "refused", temporary

    def check_recovery(self, again=True):
        """The next run tidies up though it fails; the one after it succeeds."""
        result = self.run(TCONV_TEST_FAULT="write:1+,copy:1+")
        state, temporary = self.state()
        # What was appended is not appended again, nor what was joined joined again.
        done = {"append": INVALID, "index": OK, "../new-model": USAGE}.get(self.scenario.arguments[0])
        if result.code != IO and not (state == "new" and result.code == done):
            raise result.failed(f"expected: a run that fails, got {result.code}")
        check_equal((state in ("old", "new"), temporary), (True, []), f"recovered ({state})")
        if again and (state == "old" or done is None):
            self.run(check=OK)
            check_equal(self.state(), ("new", []), "after the next run")

    def count_steps(self):
        """How many system calls a whole run announces."""
        low, high = 0, MOST_STEPS
        while low + 1 < high:
            middle = (low + high) // 2
            self.reset()
            killed = self.run(sync=self.scenario.sync, TCONV_TEST_KILL=str(middle)).code != OK
            low, high = (middle, high) if killed else (low, middle)
        check_equal(0 < low < MOST_STEPS - 2, True, f"{low} steps")
        return low


def killed_at_each_step(scenario, folder):
    bench = Bench(scenario, folder)
    states, leftovers = [], 0
    for step in range(1, bench.count_steps() + 1, STRIDE):
        bench.reset()
        result = bench.run(sync=scenario.sync, TCONV_TEST_KILL=str(step))
        check_equal(result.code, -signal.SIGKILL, f"step {step}", result)
        try:
            state, temporary = bench.state()
            states.append(state)
            leftovers += bool(temporary)
            bench.check_recovery(again=step % 4 == 0)
        except Failed as problem:
            raise Failed(f"killed at step {step}: {problem}") from None
    check_equal(states[0], "old", "at the first step")
    if scenario is SCENARIOS["single over old"] and STRIDE == 1:
        check_equal(leftovers, 1, "moments in which a kill leaves a name")
    order = {"old": 0, "refused": 1, "new": 2}
    check_equal(states, sorted(states, key=order.get), "one after the other")
    if scenario is SCENARIOS["companion over old"]:
        check_equal(sorted(bench.new), ["out.onnx", "out.onnx.data"], "files")
    several = scenario.head and len({**bench.model(bench.new), **bench.model(bench.old)}) > 1
    if STRIDE == 1 or not several:
        check_equal("refused" in states, bool(several), f"refused in between ({states})")


def failed_at_each_step(scenario, folder):
    """A system call that fails: all is as before, or the failure did no harm."""
    bench = Bench(scenario, folder)
    failures = 0
    for step in range(1, bench.count_steps() + 1, STRIDE):
        bench.reset()
        result = bench.run(sync=scenario.sync, TCONV_TEST_FAIL=str(step))
        state, temporary = bench.state()
        if result.code == IO and b"cannot sync" in result.err and len(bench.new) == 1:
            check_equal((state, temporary), ("new", []), f"in place, maybe not for good ({step})")
        elif result.code == IO:
            failures += 1
            found, _ = contents(bench.place)
            check_equal((found, temporary), (bench.old, []), f"files at step {step}", result)
        else:
            check_equal((result.code, state), (OK, "new"), f"harmless at step {step}", result)
    check_equal(failures > 0, True, "some steps fail")


def killed_at_random(seed, count, scenario, folder):
    """Kills at any time, also while data is written."""
    bench = Bench(scenario, folder, elements=400_000)
    dice = random.Random(seed)
    bench.reset()
    started = time.monotonic()
    bench.run(check=OK)
    longest = 1.2 * (time.monotonic() - started)
    killed = 0
    for turn in range(count):
        bench.reset()
        process = Process(
            [TCONV, *bench.command("--no-sync")],
            cwd=bench.place,
            env={**os.environ, **scenario.environment},
            stderr=subprocess.DEVNULL,
        )
        time.sleep(dice.uniform(0, longest))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        try:
            bench.state()
            bench.check_recovery(again=turn % 4 == 0)
        except Failed as problem:
            raise Failed(f"turn {turn} of seed {seed}: {problem}") from None
    if count > 10:
        check_equal(killed > 0, True, "some kills came in time")


def killed_batch(seed, count, rest, folder):
    """A batch and all its processes killed at any time: each output is whole or not there, and the
    next batch makes the rest, and leaves nothing else."""
    dice = random.Random(seed)
    for number in range(4):
        tensors = {
            letter: Tensor("F32", [100_000], struct.pack("<f", number) * 100_000) for letter in "abc"
        }
        place = folder / "src" / f"{number}"
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(files.safetensors(tensors))
        if number % 2:
            (place / "config.json").write_text("{}")
    command = ["batch", "src", "dst", "-t", "safetensors", "--shard-size", "500K", "--no-sync", "-q", "--replace"]
    receipts = ["--receipts"] if rest == ("--update",) else []
    started = time.monotonic()
    expect(folder, OK, *command, *receipts)
    longest = 1.2 * (time.monotonic() - started)
    whole, _ = contents(folder / "dst")
    log = ".tconv-batch.jsonl"
    for turn in range(count):
        shutil.rmtree(folder / "dst")
        process = Process(
            [TCONV, *command, *receipts], cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(dice.uniform(0, longest))
        # The parent alone, or all of them.
        (os.killpg if turn % 2 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        while run("pgrep", "-s", str(process.pid)).code == 0:
            time.sleep(0.01)  # until its processes have ended, by themselves or killed
        why = f"turn {turn} of seed {seed}"
        result = tconv(*command, *rest, cwd=folder)
        check_equal(result.code, OK, f"exit code, {why}", result)
        found, temporary = contents(folder / "dst")
        check_equal(temporary, [], f"temporary names, {why}")
        found.pop(log)
        wrong = [name for name, data in whole.items() if name != log and found.get(name) != data]
        wrong = [name for name in wrong if not name.endswith(".receipt.json") or name not in found]
        check_equal((wrong, sorted(found)), ([], sorted(whole.keys() - {log})), f"outputs, {why}")


def signalled_named(folder):
    """Where files wait under names, a signal removes those, too."""
    bench = Bench(SCENARIOS["shards over old, named"], folder, elements=2_000_000)
    stopped = 0
    for delay in (0.01, 0.02, 0.05, 0.1):
        bench.reset()
        process = Process(
            [TCONV, *bench.command("--no-sync")], cwd=bench.place, env={**os.environ, **NAMED}
        )
        time.sleep(delay)
        process.send_signal(signal.SIGTERM)
        ended = process.wait()
        state, temporary = bench.state()
        check_equal(temporary, [], f"after {delay} s, ended {ended}")
        check_equal((ended, state) != (OK, "old"), True, "what ends well is done")
        stopped += state == "old"
    check_equal(stopped > 0, True, "some signals came in time")


def few_descriptors(folder):
    """More shards than descriptors, read again before they are published."""
    write_models(folder, 2000)
    place = folder / "place"
    place.mkdir()
    options = ("--verify", "--receipt", "r.json", "--depfile", "d")
    for name in ("out.safetensors", "out.deathtensors"):
        for _ in range(2):
            arguments = words(shards(name, 200, *options), "new")
            tensors = files.safetensors(
                {f"t{at:03}": files.f32(*range(20)) for at in range(120)}, {"from": "new"}
            )
            (folder / "new.safetensors").write_bytes(tensors)
            expect(place, OK, "-q", *arguments, prefix=limited("-n 32"))
            check_equal(contents(place)[1], [], "temporary names")
    check_equal(len(list(place.glob("out-*.safetensors"))), 120, "shards")
    head = expect(place, OK, "hash", "--digest", SAFE).out.split()[0]
    whole = expect(place, OK, "hash", "--digest", "../new.safetensors").out.split()[0]
    check_equal(head, whole, "digest")


def at_once(folder):
    """Several runs onto one sharded output leave one of their models, whole."""
    place = folder / "place"
    place.mkdir()
    digests, runs = set(), []
    for number in range(6):
        tensors = {
            letter: Tensor("F32", [50_000], struct.pack("<f", number) * 50_000) for letter in "abcd"
        }
        (folder / f"{number}.safetensors").write_bytes(files.safetensors(tensors))
        digests.add(
            expect(folder, OK, "hash", "--digest", f"{number}.safetensors").out.split()[0]
        )
    for number in range(6):
        command = [TCONV, f"../{number}.safetensors", "out.safetensors", "--shard-size", "250K"]
        runs.append(Process(command, cwd=place, stderr=subprocess.PIPE))
    for process in runs:
        err = process.communicate()[1]
        check_equal((err, process.returncode), (b"", OK), "stderr and exit code")
    got = expect(place, OK, "hash", "--digest", SAFE).out.split()[0]
    check_equal((got in digests, contents(place)[1]), (True, []), "one of them, nothing else")


def live_one_stays(folder):
    """The temporary files of a run that still lives are not removed by another run to the same output."""
    write_models(folder, 3_000_000)
    place = folder / "place"
    place.mkdir()
    arguments = words(shards("out.safetensors", "13M"), "old")
    first = Process([TCONV, *arguments], cwd=place, env={**os.environ, **NAMED})
    # Once its folder of new files is there it has locked what is its own.
    while first.poll() is None and not any(name.endswith("/new") for name in contents(place)[1]):
        time.sleep(0.001)
    if first.poll() is None:
        os.kill(first.pid, signal.SIGSTOP)
    before = contents(place)[1]
    second = run(TCONV, *words(shards("out.safetensors", "13M"), "new"), cwd=place)
    kept = contents(place)[1]
    os.kill(first.pid, signal.SIGCONT)
    check_equal((first.wait(), second.code), (OK, OK), "exit codes", second)
    check_equal(kept, before, "what the first one has under way", second)
    check_equal(contents(place)[1], [], "temporary names")
    got = expect(place, OK, "hash", "--digest", SAFE).out.split()[0]
    check_equal(got, expect(folder, OK, "hash", "--digest", "old.safetensors").out.split()[0], "last")


def others_leftovers(folder):
    """Only what looks like a leftover of this output is removed, and no link is followed."""
    write_models(folder)
    place = folder / "place"
    place.mkdir()
    expect(place, OK, "-q", *words(("IN", "out.npz"), "old"))
    for name in (".other.npz.tconv-abcdef", ".out.npz.tconv-abc", "out.npz.tconv-abcdef"):
        (place / name).write_bytes(b"stays")
    (place / ".out.npz.tconv-000000").write_bytes(b"goes")
    (place / ".out.npz.tconv-linked").symlink_to("../old.safetensors")
    hostile = place / ".out.npz.tconv-111111"
    (hostile / "new").mkdir(parents=True)
    (hostile / "old").mkdir()
    hostile.chmod(0o700)
    (hostile / "new/out.npz").write_bytes(b"x")
    (hostile / "old/victim").write_bytes(b"x")
    (hostile / "journal").write_bytes(b"tconv journal 1 0\0H 1 2 out.npz\0F 1 0 ../victim\0end\0")
    (folder / "victim").write_bytes(b"precious")
    expect(place, OK, "-q", *words(("IN", "out.npz"), "new"))
    check_equal(
        sorted(os.listdir(place)),
        [
            ".other.npz.tconv-abcdef",
            ".out.npz.tconv-abc",
            ".out.npz.tconv-linked",
            "out.npz",
            "out.npz.tconv-abcdef",
        ],
        "names",
    )
    check_equal((folder / "victim").read_bytes(), b"precious", "a file elsewhere")


def stale_shards(folder):
    """Shards of an earlier run are warned of, and removed with --prune; other files stay."""
    write_models(folder)
    place = folder / "place"
    place.mkdir()
    expect(place, OK, "-q", *words(shards("out.safetensors", 400), "old"))
    earlier = sorted(path.name for path in place.glob("out-*"))
    similar = [
        "out-00001-of-00009.bin",
        "out-00009-of-00002.safetensors",
        "out-1-of-9.safetensors",
        "out-00001-of-00009.safetensors.bak",
        "xout-00001-of-00009.safetensors",
    ]
    for name in similar:
        (place / name).write_bytes(b"stays")
    (place / "out-00001-of-00007.safetensors").symlink_to("elsewhere")
    (place / "out-00002-of-00007.safetensors").mkdir()
    (place / "out-00001-of-00004.safetensors").write_bytes((folder / "new.safetensors").read_bytes())
    source = "out-00001-of-00004.safetensors"
    others = [*similar, "out-00001-of-00007.safetensors", "out-00002-of-00007.safetensors", source]
    result = expect(place, OK, source, "out.safetensors", "--shard-size", "1000")
    expected = (
        f"{len(earlier)} shards of an earlier run, which the new index does not name, stay "
        f'(--prune removes them): the first is "{earlier[0]}"'
    )
    check_equal(expected in text(result.err), True, "reported", result)
    own = sorted({path.name for path in place.iterdir()} - {*earlier, *others, SAFE})
    check_equal((len(own) > 1, len(own) != len(earlier)), (True, True), f"new shards {own}")
    result = expect(place, OK, source, "out.safetensors", "--shard-size", "1000", "--prune")
    check_equal("were removed" in text(result.err), True, "reported", result)
    check_equal(sorted(os.listdir(place)), sorted([*own, *others, SAFE]), "what is left")
    result = expect(place, OK, source, "out.safetensors", "--shard-size", "1000", "--prune")
    check_equal(result.err, b"", "nothing more to tell", result)


def mounted(options, command):
    """A shell line run with a tmpfs on `disk`, seen by nobody else."""
    line = f"mount -t tmpfs -o {options} tmpfs disk && {command}"
    return ("unshare", "-m", "--propagation", "private", "sh", "-c", line, TCONV)


def needs_mount(folder):
    (folder / "disk").mkdir()
    if os.geteuid() or run(*mounted("size=64k", "true"), cwd=folder).code:
        raise Skip("can't mount a tmpfs")


def full_disk(scenario, folder):
    """No room for a file, a name or a folder, at whichever stage: all is as before."""
    needs_mount(folder)
    write_models(folder, 2000)
    bad = 0
    convert, before = (
        " ".join(words(arguments, source))
        for arguments, source in ((scenario.arguments, "new"), (scenario.before, "old"))
    )
    script = (
        f'cd disk && "$0" -q {before} && find . | sort | xargs -d "\\n" ls -di >../a && '
        f'md5sum $(find . -type f | sort) >../b; '
        f'"$0" -q {convert} 2>../err; code=$?; '
        f'[ $code != 0 ] || exit 0; [ $code = 6 ] || exit 50; '
        f'find . | sort | xargs -d "\\n" ls -di | cmp - ../a || exit 51; '
        f"md5sum --quiet -c ../b || exit 52; exit 6"
    )
    codes = []
    for options in [f"size=16m,nr_inodes={count}" for count in range(6, 60, SPARSE)] + [
        f"size={kib}k" for kib in range(40, 260, 12 * SPARSE)
    ]:
        (folder / "a").unlink(missing_ok=True)
        result = run(*mounted(options, script), cwd=folder)
        if not (folder / "a").exists() or not (folder / "a").read_bytes():
            continue  # no room for the old one
        if result.code not in (OK, IO):
            raise result.failed(f"with {options}: exit {result.code}")
        codes.append(result.code)
        if result.code == IO:
            bad += 1
            errors = text((folder / "err").read_bytes())
            check_equal("No space left" in errors or "not enough space" in errors, True, errors)
    check_equal((bad * SPARSE > 2, OK in codes), (True, True), f"some fail, some don't: {codes}")


def cases(suite):
    for name, scenario in SCENARIOS.items():
        yield f"kill at each step: {name}", functools.partial(killed_at_each_step, scenario)
    for name, scenario in SCENARIOS.items():
        yield f"fail at each step: {name}", functools.partial(failed_at_each_step, scenario)
    dice = random.Random(SEED)
    chosen = ["single over old", "shards", "shards over old", "folder", "sidecar over old"]
    chosen += ["shards over old, named", "replaced folder", "edit shards", "model folder"]
    each = 1000 // len(chosen) + 1 if suite.full else 3 if SANITIZED else 8
    for name in chosen:
        yield f"kill at random: {name}", functools.partial(
            killed_at_random, dice.randrange(1 << 32), each, SCENARIOS[name]
        )
    for rest in (("--resume",), ("--skip-existing",), ("--update",)):
        yield f"kill a batch, then {rest[0]}", functools.partial(
            killed_batch, dice.randrange(1 << 32), 60 if suite.full else 2 if SANITIZED else 6, rest
        )
    yield "signal while files have names", signalled_named
    yield "few descriptors", few_descriptors
    yield "shards at once", at_once
    yield "a live one stays", live_one_stays
    yield "leftovers of others", others_leftovers
    yield "stale shards", stale_shards
    for name in ("single over old", "shards over old", "sidecar over old"):
        yield f"full disk: {name}", functools.partial(full_disk, SCENARIOS[name])


if __name__ == "__main__":
    print(f"seed {SEED}")
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite)))
