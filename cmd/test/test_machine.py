#!/usr/bin/env python3
"""Machines that fail or are too small: disks, limits, clocks, processors, other programs.

Whatever the machine does, the output is the new one or the old one, a failure says why, and nothing
is left behind. What needs mount runs with --full. TCONV_TEST_SEED=N repeats the random signals of
another run.

Where this machine lacks a means, a stand-in of the test build takes its place, and says so: quotas
and broken disks are TCONV_TEST_FAULT with EDQUOT and EIO (test_faults.py has every call), a clock
that jumps is TCONV_TEST_CLOCK, and a control group's limit is RLIMIT_AS.
"""

import contextlib
import functools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import faults
import fault_scenarios
import files
from faults import Bench
from harness import (
    FULL,
    IO,
    OK,
    SANITIZED,
    SEED,
    TCONV,
    Failed,
    Skip,
    Suite,
    check_equal,
    expect,
    health_faults,
    limited,
    run,
    tconv,
    text,
    unprivileged,
)

BIG = 1 << 28
MANY = ("convert", "shards over old", "receipt and depfile", "folder", "append", "sidecar over old")


def write_zeros(path):
    """A model that takes no space on disk."""
    header = files.compact({"w": {"dtype": "U8", "shape": [BIG], "data_offsets": [0, BIG]}})
    path.write_bytes(files.safetensors_raw(header.encode()))
    os.truncate(path, 8 + len(header) + BIG)


def start_over(bench):
    bench.reset(faults.contents(bench.place))


def command(bench, *prefix, code=None, **how):
    """Run the bench's command under a prefix; the output must be old or new, and nothing else."""
    result = tconv(*bench.scenario.arguments, cwd=bench.place, prefix=prefix,
                   env=bench.scenario.environment, **how)
    problems = health_faults(result)
    found = faults.contents(bench.place)
    if code is not None and result.code != code:
        problems.append(f"expected: exit {code}, got {result.code}")
    elif result.code not in (OK, IO):
        problems.append(f"expected: exit {OK} or {IO}, got {result.code}")
    if result.code == OK and not bench.is_new(found):
        problems.append(f"expected: the new one, but {faults.difference(bench.new, found)}")
    if result.code == IO and found != bench.old:
        problems.append(f"expected: the old one, but {faults.difference(bench.old, found)}")
    if result.code == IO and not result.err.startswith(b"tconv: "):
        problems.append("expected: a message")
    if problems:
        raise result.failed(*problems)
    start_over(bench)
    return result.code


@contextlib.contextmanager
def bench_of(scenario, folder):
    bench = Bench(scenario, folder)
    try:
        yield bench
    finally:
        bench.close()


def small_limits(name, values, folder):
    """Limits from one under which nothing works to one under which all does."""
    with bench_of(fault_scenarios.WRITING[name], folder) as bench:
        codes = [command(bench, *limited(value)) for value in values]
    check_equal(codes[-1], OK, f"the largest of {values[0]} … {values[-1]}")


def address_space(name, folder):
    """Any amount of memory: where it does not suffice even to load libraries, the loader says so."""
    with bench_of(fault_scenarios.WRITING[name], folder) as bench:
        loads = next(
            mib for mib in range(8, 512) if run(*limited(f"-v {mib << 10}"), TCONV, "list").code == 2
        )
        sizes = [*range(loads, loads + 24, 1 if FULL else 4), 1024]
        codes = [command(bench, *limited(f"-v {mib << 10}")) for mib in sizes]
    check_equal((codes[-1], IO in codes), (OK, True), f"enough in the end, too little before: {codes}")


def file_size(folder):
    """SIGXFSZ is EFBIG: an error, and no signal."""
    with bench_of(fault_scenarios.WRITING["convert"], folder) as bench:
        command(bench, *limited("-f 1"), code=IO)
        result = tconv(*bench.scenario.arguments, cwd=bench.place, prefix=limited("-f 1"))
        check_equal(b"File too large" in result.err, True, "the reason", result)


def one_processor(folder):
    if not shutil.which("taskset"):
        raise Skip("no taskset")
    with bench_of(fault_scenarios.WRITING["compress and checksum"], folder) as bench:
        command(bench, "taskset", "-c", "0", code=OK)
    for arguments in (("hash", "in.safetensors"), ("stats", "--json", "in.safetensors")):
        for name, data in fault_scenarios.BIG.items():
            (folder / name).write_bytes(data)
        several = expect(folder, OK, *arguments).out
        one = expect(folder, OK, *arguments, prefix=("taskset", "-c", "0")).out
        check_equal(one, several, "the same with one processor")


def control_group(folder):
    """A group whose memory is limited; where groups can't be made, small_limits has RLIMIT_AS."""
    top = Path("/sys/fs/cgroup")
    old = (top / "memory").is_dir()  # the first version, a folder a resource
    group = (top / "memory" if old else top) / f"tconv-test-{os.getpid()}"
    limit = group / ("memory.limit_in_bytes" if old else "memory.max")
    try:
        group.mkdir()
    except OSError as problem:
        raise Skip(f"no control groups here ({problem.strerror}); RLIMIT_AS stands in") from None
    try:
        if not limit.exists():
            raise Skip("control groups without memory here; RLIMIT_AS stands in")
        limit.write_text(str(96 << 20))
        write_zeros(folder / "in.safetensors")
        # What is written would count where the folder is a RAM disk, so nothing is.
        enter = ("sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$0" "$@"')
        for words in (("hash", "in.safetensors"), ("stats", "in.safetensors")):
            expect(folder, OK, *words, prefix=enter)
    finally:
        group.rmdir()


def stand_in(plan, name, folder):
    """An error from a call and all after it, at each of them."""
    with bench_of(fault_scenarios.WRITING[name], folder) as bench:
        for number in range(1, 1000):
            made = bench.run(plan % number)
            if not made.faults:
                break
            problems = faults.judge(made, bench, False)
            if problems:
                raise made.failed(*problems)
        check_equal(number > 1, True, "some failed")


def jumping_clock(folder):
    """Years forward, years back, at each look at it."""
    with bench_of(fault_scenarios.WRITING["receipt and depfile"], folder) as bench:
        environment = {**bench.scenario.environment, "TCONV_TEST_CLOCK": "1"}
        for options in ([], ["--progress=json"], ["--progress=bar"]):
            result = tconv(*bench.scenario.arguments, *options, cwd=bench.place, env=environment)
            check_equal(result.code, OK, "exit code", result)
            found = faults.contents(bench.place)
            if not bench.is_new(found) and not options:
                raise result.failed(faults.difference(bench.new, found))
            check_equal(re.search(rb"nan|inf|-\d", result.err), None, "odd numbers", result)
            start_over(bench)
        result = tconv(
            *bench.scenario.arguments, cwd=bench.place, env={"TCONV_TEST_CLOCK": "1"}
        )
        check_equal(result.code, OK, "exit code without a date", result)


def change_while_read(what, change, folder):
    """A file that is not what it was when it was opened is an error, whatever is asked of it."""
    path = folder / "in.safetensors"
    write_zeros(path)
    process = subprocess.Popen(
        [TCONV, *what, "--sandbox=off"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    read = Path(f"/proc/{process.pid}/io")
    deadline = time.monotonic() + 20
    with contextlib.suppress(OSError, IndexError):  # it has ended
        while time.monotonic() < deadline:
            if int(re.findall(r"rchar: (\d+)", read.read_text())[0]) > BIG // 8:
                break
    process.send_signal(signal.SIGSTOP)
    change(path)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=600)
    if process.returncode == OK:
        raise Skip("it was done before the change")
    check_equal(process.returncode, IO, f"exit code (stderr: {text(err)})")
    check_equal(sorted(os.listdir(folder)), ["in.safetensors"], "files")
    check_equal(b"in.safetensors: " in err, True, f"the file is named ({text(err)})")


def grow(path):
    os.truncate(path, path.stat().st_size + 4096)


def rewrite(path):
    with open(path, "r+b") as file:
        file.seek(BIG - 100)
        file.write(b"new")


CHANGES = {"shrinks": lambda path: os.truncate(path, BIG // 2), "grows": grow, "changes": rewrite}
LOOKING = (
    ("in.safetensors", "out.npz"),
    ("hash", "in.safetensors"),
    ("stats", "in.safetensors"),
    ("verify", "in.safetensors"),
    ("diff", "in.safetensors", "in.safetensors"),
    ("get", "in.safetensors", "w", "-o", "w.npy"),
)


def two_writers(name, turns, folder):
    """Two models at once to one output: in the end one of them, whole."""
    scenario = fault_scenarios.WRITING[name]
    with bench_of(scenario, folder) as bench:
        start_over(bench)
        other = [word.replace("in.safetensors", "old.safetensors") for word in scenario.arguments]
        run(TCONV, *other, cwd=bench.place)
        rival = faults.contents(bench.place)
        start_over(bench)
        for turn in range(turns):
            both = [
                subprocess.Popen([TCONV, *words], cwd=bench.place, stderr=subprocess.PIPE)
                for words in (scenario.arguments, other)
            ]
            errors = [process.communicate(timeout=600)[1] for process in both]
            check_equal([process.returncode for process in both], [OK, OK], f"{errors}")
            found = faults.contents(bench.place)
            if found not in (bench.new, rival):
                raise Failed(f"turn {turn}: {faults.difference(bench.new, found)}")
            start_over(bench)


def random_signals(name, turns, folder):
    """A signal at any time: the old one or the new one, and the process dies by the signal."""
    dice = random.Random(f"{SEED} {name}")
    scenario = fault_scenarios.WRITING[name]
    with bench_of(scenario, folder) as bench:
        started = time.monotonic()
        command(bench, code=OK)
        longest = 1.3 * (time.monotonic() - started)
        for turn in range(turns):
            number = dice.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE))
            process = subprocess.Popen(
                [TCONV, *scenario.arguments],
                cwd=bench.place,
                env={**os.environ, **scenario.environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            time.sleep(dice.uniform(0, longest))
            process.send_signal(number)
            err = process.communicate(timeout=600)[1]
            found = faults.contents(bench.place)
            why = f"TCONV_TEST_SEED={SEED}, turn {turn}, {number.name}, ended {process.returncode}"
            if process.returncode not in (OK, -number) or b"Sanitizer" in err:
                raise Failed(f"{why}: {text(err)}")
            if found != bench.old and not bench.is_new(found):
                raise Failed(f"{why}: {faults.difference(bench.new, found)}")
            if process.returncode == OK and not bench.is_new(found):
                raise Failed(f"{why}: done, but {faults.difference(bench.new, found)}")
            start_over(bench)


def pipes(folder):
    """A pipe that nobody writes to or reads from: an error at once, or a signal ends the wait."""
    os.mkfifo(folder / "pipe")
    (folder / "in.safetensors").write_bytes(fault_scenarios.model(1))
    expect(folder, IO, "list", "pipe", mention="pipe", timeout=20)
    process = subprocess.Popen([TCONV, "get", "in.safetensors", "a", "-o", "pipe", "-t", "npy"], cwd=folder)
    time.sleep(0.2)
    check_equal(process.poll(), None, "it waits for a reader")
    reader = os.open(folder / "pipe", os.O_RDONLY)
    check_equal(process.wait(30), OK, "exit code")
    check_equal(os.read(reader, 6), b"\x93NUMPY", "what came through")
    os.close(reader)


@contextlib.contextmanager
def mounted(place, *options):
    if not FULL:
        raise Skip("mounts: --full")
    place.mkdir(exist_ok=True)
    if subprocess.run(["mount", *options, place], capture_output=True).returncode:
        raise Skip("can't mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def full_disk(name, unit, sizes, folder):
    """Disks from one that holds nothing to one that holds all, in blocks and in inodes."""
    scenario = fault_scenarios.WRITING[name]
    with bench_of(scenario, folder) as bench:
        start_over(bench)
        codes = []
        for size in sizes:
            with mounted(folder / "disk", "-t", "tmpfs", "-o", f"{unit}={size}", "tmpfs"):
                disk = folder / "disk"
                try:
                    shutil.copytree(bench.place, disk, dirs_exist_ok=True)
                except (OSError, shutil.Error):
                    continue
                # Not by the harness, whose processes stay in the folder of their last command.
                ended = subprocess.run(
                    [TCONV, *scenario.arguments],
                    cwd=disk,
                    env={**os.environ, **scenario.environment},
                    capture_output=True,
                    timeout=60,
                )
                found = faults.contents(disk)
                codes.append(ended.returncode)
                right = bench.is_new(found) if ended.returncode == OK else found == bench.old
                if ended.returncode not in (OK, IO) or not right:
                    what = faults.difference(bench.old, found)
                    raise Failed(f"{unit}={size}, {ended}: {what}")
        check_equal((codes[-1], IO in codes), (OK, True), f"{unit} {sizes}: {codes}")


def read_only(folder):
    (folder / "in.safetensors").write_bytes(fault_scenarios.model(1))
    with mounted(folder / "disk", "-t", "tmpfs", "-o", "ro", "tmpfs"):
        # Run beside the disk: nothing stays in it.
        for words in (("in.safetensors", "disk/out.npz"), ("in.safetensors", "disk/out/"),
                      ("get", "in.safetensors", "a", "-o", "disk/a.npy"), ("keygen", "disk/k")):
            expect(folder, IO, *words, mention="disk")


def unwritable(folder):
    """A folder that may not be written, for each command that writes."""
    (folder / "in.safetensors").write_bytes(fault_scenarios.model(1))
    (folder / "locked").mkdir(mode=0o555)
    for words in (("in.safetensors", "locked/out.npz"), ("in.safetensors", "locked/out/"),
                  ("manifest", "in.safetensors", "locked/m.json"), ("keygen", "locked/k"),
                  ("stats", "in.safetensors", "--html", "locked/s.html")):
        expect(folder, IO, *words, mention="locked", prefix=unprivileged(), quiet=False)


def cases():
    if not SANITIZED:  # a sanitizer reserves terabytes, and opens files of its own
        for name in MANY if FULL else MANY[:2]:
            yield f"ulimit -v {name}", functools.partial(address_space, name)
    for name in MANY if FULL else MANY[:3]:
        values = [f"-n {n}" for n in range(5, 48, 1 if FULL else 7)] + ["-n 256"]
        yield f"ulimit -n {name}", functools.partial(small_limits, name, values)
        values = [f"-f {n}" for n in range(1, 8)] + ["-f 4096"]
        yield f"ulimit -f {name}", functools.partial(small_limits, name, values)
        for plan in ("write/EDQUOT:%d+", "write/EIO:%d+", "read/EIO:%d+", "sync/EIO:%d+"):
            yield f"{plan} {name}", functools.partial(stand_in, plan, name)
    yield "a file too large", file_size
    yield "one processor", one_processor
    yield "control group", control_group
    yield "jumping clock", jumping_clock
    yield "pipes", pipes
    yield "unwritable", unwritable
    yield "read-only disk", read_only
    for what in LOOKING:
        for name, change in CHANGES.items() if FULL or not SANITIZED else ():
            yield f"{what[0]}, the file {name}", functools.partial(change_while_read, what, change)
    turns = (200 if FULL else 12) // (4 if SANITIZED else 1)
    for name in ("convert", "shards over old"):
        yield f"signals {name}", functools.partial(random_signals, name, turns)
    yield "two writers", functools.partial(two_writers, "sidecar over old", turns)
    yield "two writers of shards", functools.partial(
        two_writers, "shards over old, named", turns
    )
    for name in MANY:
        yield f"full disk {name}", functools.partial(
            full_disk, name, "size", [f"{n}k" for n in range(8, 132, 4)]
        )
        yield f"no inodes {name}", functools.partial(full_disk, name, "nr_inodes", range(2, 40))


if __name__ == "__main__":
    print(f"seed {SEED}")
    sys.exit(Suite(__doc__).run(cases()))
