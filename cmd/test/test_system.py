#!/usr/bin/env python3
"""tconv among signals, full disks, small limits, odd descriptors and other runs of itself."""

import functools
import itertools
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time

import files
import pickles
from files import f32
from harness import (
    DATA,
    INVALID,
    IO,
    OK,
    SANITIZED,
    TCONV,
    UNSAFE,
    USAGE,
    Process,
    Skip,
    Suite,
    changes,
    check_equal,
    expect,
    failure_faults,
    health_faults,
    limited,
    run,
    snapshot,
    text,
    unprivileged,
)

BIG = 1 << 30
TARGETS = ("out.deathtensors", "out.npz", "out.safetensors", "out.pt", "out.ot")
HOSTILE = [
    "a\x1b[31mb",
    "c\rd",
    "e\nf",
    "g\u202eh",
    "i\x07j",
    'k"l',
    "m\\n",
    "\u2066o",
    "ü\U0001f600",
]


def write_big(path, size=BIG):
    """A model of zeros that takes no space on disk but a second to convert."""
    header = files.compact(
        {"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    ).encode()
    path.write_bytes(files.safetensors_raw(header))
    os.truncate(path, 8 + len(header) + size)


def write_model(path, size=256 << 10):
    """A small model of noise, so that no writer can make it smaller."""
    path.write_bytes(
        files.safetensors({"w": files.Tensor("U8", [size], random.Random(0).randbytes(size))})
    )


def start_big(folder, *options):
    """A conversion under way onto an existing output."""
    write_big(folder / "in.safetensors")
    (folder / "out.deathtensors").write_bytes(b"old")
    before = snapshot(folder)
    return before, Process(
        [TCONV, *options, "in.safetensors", "out.deathtensors"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def digest(folder, name):
    return expect(folder, OK, "hash", "--digest", name).out.split()[0]


def signalled(number, delay, folder):
    """The temporary file goes, the old output stays, and the process dies by the signal."""
    before, process = start_big(folder)
    time.sleep(delay)
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    if process.returncode == OK:
        raise Skip("it was done before the signal came")
    check_equal(process.returncode, -number, f"how it ended (stderr: {text(err)})")
    check_equal((changes(before, snapshot(folder)), out), ([], b""), "what changed, and stdout")


def signalled_at_a_pipe(number, folder):
    """Waiting for somebody to open the other end of a pipe ends with the signal too."""
    os.mkfifo(folder / "pipe")
    write_model(folder / "in.safetensors")
    process = Process([TCONV, "in.safetensors", "pipe", "-t", "npy"], cwd=folder)
    time.sleep(0.2)
    process.send_signal(number)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    check_equal(process.returncode, -number, "how it ended")


def killed(delay, folder):
    """After SIGKILL the output is old or whole, and nothing else is there; a rerun works."""
    before, process = start_big(folder)
    time.sleep(delay)
    process.kill()
    process.communicate()
    left = changes(before, snapshot(folder))
    if process.returncode != OK:
        check_equal(left, [], "what changed")
    write_model(folder / "small.safetensors")
    expect(folder, OK, "small.safetensors", "out.deathtensors")
    check_equal(
        digest(folder, "out.deathtensors"),
        digest(folder, "small.safetensors"),
        "digest after a rerun",
    )


def writes(process):
    """Whether it has an output under way, which has no name.

    Within its sandbox a process shows its descriptors to root alone.
    """
    try:
        folder = f"/proc/{process.pid}/fd"
        return any("(deleted)" in os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder))
    except OSError:
        return False  # it has ended


def input_changes(change, folder):
    """An input that changes while it is read is an error, not a wrong output."""
    before, process = start_big(folder, "--sandbox=off")
    while process.poll() is None and not writes(process):
        time.sleep(0.01)
    time.sleep(0.05)
    change(folder / "in.safetensors")
    before["in.safetensors"] = snapshot(folder)["in.safetensors"]
    _, err = process.communicate(timeout=600)
    if process.returncode == OK:
        raise Skip("it was done before the change")
    check_equal(process.returncode, IO, f"exit code (stderr: {text(err)})")
    check_equal(changes(before, snapshot(folder)), [], "what changed")


def rewrite(path):
    with open(path, "r+b") as file:
        file.seek(BIG // 2)
        file.write(b"new")


def disk_full(folder):
    """Every size of a disk that is too small gives an I/O error and leaves nothing behind."""
    write_model(folder / "in.safetensors")
    disk = folder / "disk"
    for size in range(64, 512, 64):
        disk.mkdir(exist_ok=True)
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], capture_output=True
        ).returncode:
            raise Skip("can't mount a tmpfs")
        try:
            for target in TARGETS:
                (disk / target).write_bytes(b"old")
                result = expect(folder, {OK, IO}, "in.safetensors", f"disk/{target}")
                check_equal(
                    result.code, OK if size > 256 else IO, f"exit code with {size} KiB", result
                )
                (disk / target).unlink()
        finally:
            subprocess.run(["umount", disk], check=True)


def file_size_limit(target, folder):
    write_model(folder / "in.safetensors")
    (folder / target).write_bytes(b"old")
    expect(folder, IO, "in.safetensors", target, prefix=limited("-f 64"))


def full_stdout(args, folder):
    """A result that can't be written is an I/O error."""
    write_model(folder / "in.safetensors")
    for redirect in (">/dev/full", ">&-"):
        result = run("sh", "-c", f'exec "$0" "$@" {redirect}', TCONV, *args, cwd=folder)
        faults = health_faults(result) + failure_faults(result)
        if faults or result.code != IO:
            raise result.failed(*faults, f"expected: exit {IO} with {redirect}, got {result.code}")


def closed_pipe(folder):
    """A reader that goes away ends the run, by the signal or with an I/O error."""
    header = files.compact(
        {f"{n:06d}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in range(50_000)}
    )
    (folder / "in.safetensors").write_bytes(files.safetensors_raw(header))
    process = Process(
        [TCONV, "list", "in.safetensors"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    check_equal(
        process.wait(600) in (-signal.SIGPIPE, IO),
        True,
        f"died of the closed pipe, with {process.returncode} (stderr: {text(err)})",
    )


def closed_descriptors(closed, folder):
    """What would be said on a closed descriptor never lands in the output."""
    write_model(folder / "in.safetensors")
    redirects = " ".join(f"{fd}>&-" for fd in closed)
    result = run(
        "sh",
        "-c",
        f'exec "$0" "$@" {redirects}',
        TCONV,
        "in.safetensors",
        "out.deathtensors",
        cwd=folder,
    )
    if result.code not in (OK, IO):
        raise result.failed(f"expected: exit 0 or 6, got {result.code}")
    if result.code == OK:
        check_equal(digest(folder, "out.deathtensors"), digest(folder, "in.safetensors"), "digest")
    bad = run(
        "sh",
        "-c",
        f'exec "$0" "$@" {redirects}',
        TCONV,
        str(DATA / "bad/npz_crc.npz"),
        "bad.deathtensors",
        cwd=folder,
    )
    check_equal(
        (bad.code, (folder / "bad.deathtensors").exists()),
        (INVALID, False),
        "exit code for a damaged file, and its output",
        bad,
    )


def small_limits(limit, folder):
    """A small limit is an I/O error at worst."""
    write_model(folder / "in.safetensors")
    for target in TARGETS:
        result = expect(folder, {OK, IO}, "in.safetensors", target, prefix=limited(limit))
        if result.code == OK:
            check_equal(digest(folder, target), digest(folder, "in.safetensors"), "digest", result)


def at_once(folder):
    """Several runs onto one output leave one whole file."""
    write_model(folder / "in.safetensors", 4 << 20)
    runs = [
        Process(
            [TCONV, "in.safetensors", "out.deathtensors"], cwd=folder, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    check_equal([process.communicate()[1] for process in runs], [b""] * 8, "stderr of all")
    check_equal([process.returncode for process in runs], [OK] * 8, "exit codes")
    check_equal(sorted(os.listdir(folder)), ["in.safetensors", "out.deathtensors"], "files")
    check_equal(digest(folder, "out.deathtensors"), digest(folder, "in.safetensors"), "digest")


def json_names(folder):
    """Whatever is in a name, JSON output parses back to it."""
    (folder / "in.safetensors").write_bytes(
        files.safetensors({name: f32(1) for name in HOSTILE}, {"key\x1b": "value\u202e"})
    )
    result = expect(folder, OK, "info", "--json", "in.safetensors")
    info = json.loads(result.out)
    check_equal([tensor["name"] for tensor in info["tensors"]], HOSTILE, "names", result)
    check_equal(info["metadata"], {"key\x1b": "value\u202e"}, "metadata", result)
    result = expect(folder, OK, "hash", "in.safetensors")
    check_equal(
        {json.loads(line.split("  ", 3)[3]) for line in result.out.decode().splitlines()},
        set(HOSTILE),
        "names of hash",
        result,
    )


def odd_arguments(name, folder):
    """Messages about odd file names stay on one line and in plain characters."""
    result = expect(folder, {USAGE, IO}, "list", name)
    check_equal(result.err.isascii() or "ü" in text(result.err), True, "plain characters", result)
    expect(folder, {USAGE, IO}, "list", "--", name)


def odd_file_name(folder):
    (folder / "a\n\x1b[31m.npy").write_bytes(files.npy()[:-1])
    expect(folder, INVALID, "list", "a\n\x1b[31m.npy")
    expect(folder, INVALID, "hash", "a\n\x1b[31m.npy")


def unwritable_folder(folder):
    write_model(folder / "in.safetensors")
    (folder / "locked").mkdir(mode=0o555)
    (folder / "closed").mkdir(mode=0o000)
    for place in ("locked", "closed"):
        expect(folder, IO, "in.safetensors", f"{place}/out.npz", prefix=unprivileged())


def unreadable_input(folder):
    write_model(folder / "in.safetensors")
    (folder / "in.safetensors").chmod(0)
    expect(folder, IO, "list", "in.safetensors", prefix=unprivileged(), mention="in.safetensors")


def json_names_pt(folder):
    """Names of a pickle too, and those of classes that are not understood."""
    state = {name: pickles.tensor() for name in HOSTILE}
    strange = pickles.call("os\x1b[31m", "a\u202eb")
    (folder / "in.pt").write_bytes(pickles.pt(pickles.pickled({**state, "x\r": strange})))
    expect(folder, UNSAFE, "list", "in.pt")
    result = expect(folder, OK, "info", "--json", "--pickle=inert", "in.pt")
    names = [tensor["name"] for tensor in json.loads(result.out)["tensors"]]
    check_equal(names, HOSTILE, "names", result)


def changed_pt(folder):
    """A damaged storage is found, whatever is asked of it."""
    data = bytearray(pickles.pt(pickles.pickled({"w": pickles.tensor()})))
    data[data.index(pickles.THREE.data)] ^= 1
    (folder / "in.pt").write_bytes(data)
    for command in (["hash", "in.pt"], ["in.pt", "out.npz"], ["get", "in.pt", "w", "-o", "w.npy"]):
        expect(folder, INVALID, *command, mention="in.pt")


def slowly(folder, stderr, *args):
    """A conversion that takes over a second, whatever the machine: it is stopped for a while."""
    process = Process(
        [TCONV, "--sandbox=off", *args],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    while process.poll() is None and not writes(process):
        time.sleep(0.001)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.1)
    process.send_signal(signal.SIGCONT)
    return process


def on_terminal(folder, *args):
    """The exit code of such a run, and what it says on a terminal."""
    ours, theirs = pty.openpty()
    process = slowly(folder, theirs, *args)
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    process.communicate()
    return process.returncode, said


def progress_bar(folder):
    """A bar on a terminal for long work, wiped at the end; elsewhere only when asked for."""
    write_big(folder / "in.safetensors", BIG // 4)
    command = ("in.safetensors", "out.deathtensors", "--no-sync")
    code, said = on_terminal(folder, *command)
    check_equal(code, OK, f"exit code ({text(said)[-500:]})")
    if not said:
        raise Skip("it was done before it could be stopped")
    check_equal((said.startswith(b"\r["), b"/s, " in said), (True, True), f"a bar ({said[:80]!r})")
    bar, wiped, line = said.rpartition(b"\r\033[K")
    check_equal((bar != b"", wiped), (True, b"\r\033[K"), f"the bar is wiped ({said[-80:]!r})")
    done = rb"tconv: wrote out\.deathtensors: 1 tensor, 256\.0 MiB, [0-9.]+ s.*\r\n"
    check_equal(bool(re.fullmatch(done, line)), True, f"what was done ({line!r})")
    check_equal(on_terminal(folder, *command, "-q"), (OK, b""), "with -q")
    code, said = on_terminal(folder, *command, "--progress=none")
    check_equal((code, bool(re.fullmatch(done, said))), (OK, True), f"without a bar ({said!r})")
    process = slowly(folder, subprocess.PIPE, *command)
    check_equal((process.communicate()[1], process.returncode), (b"", OK), "no terminal, no bar")
    process = slowly(folder, subprocess.PIPE, *command, "--progress=bar")
    said = process.communicate()[1]
    check_equal((process.returncode, b"\r[" in said), (OK, True), f"but for who asks ({said!r})")


def progress_json(folder):
    """Lines for programs, on standard error or any descriptor, and a last one."""
    write_big(folder / "in.safetensors", BIG // 4)
    for options, passes in (([], 1), (["--verify"], 2)):
        result = run(
            TCONV, "in.safetensors", "out.npz", "--progress=json", "-q", *options, cwd=folder
        )
        events = [json.loads(line) for line in result.err.decode().splitlines()]
        check_equal(result.code, OK, "exit code", result)
        check_equal({event["event"] for event in events[:-1]}, {"progress"}, "events", result)
        last = events[-1]
        total = passes * BIG // 4
        check_equal(
            (last["event"], last["ok"], last["done"], last["total"]),
            ("done", True, total, total),
            "the last one",
            result,
        )
        check_equal(
            [sorted(event) for event in events[:-1]],
            [["done", "event", "rate", "seconds", "total"]] * (len(events) - 1),
            "members",
            result,
        )
        done = [event["done"] for event in events]
        check_equal(done, sorted(done), "never backwards", result)
    ours, theirs = os.pipe()
    process = Process(
        [TCONV, "in.safetensors", "o.npz", "--progress=json", f"--progress-fd={theirs}"],
        cwd=folder,
        pass_fds=[theirs],
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    with open(ours, "rb") as pipe:
        lines = pipe.read().splitlines()
    check_equal((process.communicate()[1], process.returncode), (b"", OK), "stderr, exit code")
    check_equal(json.loads(lines[-1])["event"], "done", "the last line of the descriptor")


def progress_failed(folder):
    """Failures end with a line too; a reader that goes away does not end the work."""
    damaged = bytearray(files.deathtensors({"a": f32(1, 2, 3)}, {}, files.CHECKSUM))
    damaged[-40] ^= 1
    (folder / "bad.deathtensors").write_bytes(damaged)
    result = run(TCONV, "bad.deathtensors", "out.npz", "--progress=json", "-q", cwd=folder)
    lines = result.err.decode().splitlines()
    check_equal((result.code, json.loads(lines[-2])["ok"]), (INVALID, False), "failed", result)
    write_big(folder / "in.safetensors", BIG // 4)
    ours, theirs = os.pipe()
    os.close(ours)
    command = [TCONV, "in.safetensors", "out.npz", "--progress=json", f"--progress-fd={theirs}"]
    process = subprocess.run(command, cwd=folder, pass_fds=[theirs], stderr=subprocess.PIPE)
    os.close(theirs)
    check_equal((process.returncode, process.stderr), (OK, b""), "nobody reads")
    expect(folder, USAGE, "in.safetensors", "x.npz", "--progress=json", "--progress-fd=77")
    expect(folder, USAGE, "in.safetensors", "x.npz", "--progress=json", "--progress-fd=x")
    expect(folder, USAGE, "in.safetensors", "x.npz", "--progress-fd=2")
    expect(folder, USAGE, "in.safetensors", "x.npz", "--progress=often")


def receipt_signalled(number, folder):
    """Nothing of an output, its receipt or depfile stays, whichever folder they go to."""
    write_big(folder / "in.safetensors")
    (folder / "other").mkdir()
    (folder / "other/r.json").write_bytes(b"old")
    before = snapshot(folder)
    process = Process(
        [TCONV, "in.safetensors", "out.npz", "--receipt", "other/r.json", "--depfile", "d"],
        cwd=folder,
        stderr=subprocess.PIPE,
    )
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=600)
    if process.returncode == OK:
        raise Skip("it was done before the signal came")
    check_equal(process.returncode, -number, "how it ended")
    check_equal(changes(before, snapshot(folder)), [], "what changed")


def locale(folder):
    """Numbers and case don't follow the locale."""
    write_model(folder / "in.safetensors")
    texts = {
        expect(folder, OK, "info", "in.safetensors", env={"LC_ALL": name}).out
        for name in ("C", "de_DE.UTF-8", "tr_TR.UTF-8", "POSIX")
    }
    check_equal(len(texts), 1, "different outputs")


def planted_symlink(folder):
    """A link at OUT's place or in the folder's temporary names is never followed."""
    write_model(folder / "in.safetensors")
    (folder / "victim").write_bytes(b"precious")
    (folder / "out.npz").symlink_to("victim")
    expect(folder, UNSAFE, "in.safetensors", "out.npz")


def cases():
    moments = random.Random(7)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for turn in range(4):
            yield f"signal {number.name} {turn}", functools.partial(
                signalled, number, moments.uniform(0.02, 0.4)
            )
        yield f"signal {number.name} at a pipe", functools.partial(signalled_at_a_pipe, number)
    for turn in range(4):
        yield f"kill {turn}", functools.partial(killed, moments.uniform(0.02, 0.4))
    yield "input truncated", functools.partial(
        input_changes, lambda path: os.truncate(path, BIG // 2)
    )
    yield "input truncated inside a page", functools.partial(
        input_changes, lambda path: os.truncate(path, BIG - 100)
    )
    yield "input rewritten", functools.partial(input_changes, rewrite)
    yield "disk full", disk_full
    for target in TARGETS:
        yield f"ulimit -f {target}", functools.partial(file_size_limit, target)
    for args in (
        ["list", "in.safetensors"],
        ["info", "in.safetensors"],
        ["hash", "in.safetensors"],
        ["formats"],
        ["--help"],
        ["get", "in.safetensors", "w"],
        ["in.safetensors", "-", "-t", "npy"],
    ):
        yield f"stdout {' '.join(args)}", functools.partial(full_stdout, args)
    yield "closed pipe", closed_pipe
    for count in (1, 2, 3):
        for closed in itertools.combinations((0, 1, 2), count):
            yield f"closed descriptors {closed}", functools.partial(closed_descriptors, closed)
    for limit in () if SANITIZED else ("-n 8", "-s 64", "-d 65536", "-c 0"):
        yield f"ulimit {limit}", functools.partial(small_limits, limit)
    yield "at once", at_once
    yield "names in JSON", json_names
    yield "names in JSON from a pickle", json_names_pt
    yield "a damaged storage", changed_pt
    for label, name in (
        ("dash", "-x"),
        ("newline", "a\nb"),
        ("bad UTF-8", b"\xff\xfe"),
        ("empty", ""),
        ("long", "x" * 5000),
        ("escape", "\x1b[31m"),
    ):
        yield f"argument {label}", functools.partial(odd_arguments, name)
    yield "odd file name", odd_file_name
    yield "unwritable folder", unwritable_folder
    yield "unreadable input", unreadable_input
    yield "progress bar", progress_bar
    yield "progress json", progress_json
    yield "progress failed", progress_failed
    yield "signal and receipt", functools.partial(receipt_signalled, signal.SIGTERM)
    yield "locale", locale
    yield "planted symlink", planted_symlink


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
