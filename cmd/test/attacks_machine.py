"""Outputs, inputs and limits that a command meets on a machine (C01 to C30).

What takes signals, full disks and kills is in test_system, test_crash and others; rows/attacks.md
names the tests of each row.
"""

import json
import os
import pty
import random
import re
import signal
import socket
import subprocess
import time

import files
from attacks import OLD_TARGET, scene
from files import f32, npy, npz, safetensors
from harness import (
    FULL,
    INVALID,
    IO,
    MIB,
    OK,
    SANITIZED,
    TCONV,
    UNSAFE,
    UNSUPPORTED,
    USAGE,
    Process,
    Skip,
    check_equal,
    expect,
    limited,
    run,
    text,
    unprivileged,
)
from test_system import BIG, HOSTILE, digest, write_big, write_model, writes

FORMATS = ("npy", "npz", "safetensors", "deathtensors", "pt", "ot", "onnx", "pb", "tfrecord", "gguf")


def pair(folder, name="in.npz"):
    (folder / name).write_bytes(npz({"a": f32(1, 2), "b": f32(3)}))


@scene("C01", "the same path", "./", "a link", "a hard link", "a folder's link", "a bind mount")
def output_is_input(way, folder):
    pair(folder)
    source, target = "in.npz", "in.npz"
    if way == "./":
        target = "./in.npz"
    elif way == "a link":
        (folder / "link.npz").symlink_to("in.npz")
        source = "link.npz"
    elif way == "a hard link":
        os.link(folder / "in.npz", folder / "hard.npz")
        target = "hard.npz"
    elif way == "a folder's link":
        (folder / "here").symlink_to(".")
        target = "here/in.npz"
    elif way == "a bind mount":
        (folder / "bound.npz").write_bytes(b"")
        script = 'mount --bind in.npz bound.npz && exec "$0" in.npz bound.npz'
        prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c")
        if os.geteuid() or run(*prefix, "mount --bind in.npz bound.npz", cwd=folder).code:
            raise Skip("can't mount")
        check_equal(run(*prefix, script, TCONV, cwd=folder).code, USAGE, "exit code")
        return
    expect(folder, USAGE, source, target)


@scene("C02", "to a file", "to a folder", "to nothing")
def output_is_a_link(way, folder):
    pair(folder)
    (folder / "file").write_bytes(OLD_TARGET)
    (folder / "folder").mkdir()
    (folder / "out.npz").symlink_to(way.split()[-1])
    expect(folder, UNSAFE, "in.npz", "out.npz")


@scene("C03")
def output_exists(folder):
    pair(folder)
    (folder / "out.npz").write_bytes(OLD_TARGET)
    expect(folder, USAGE, "--no-clobber", "in.npz", "out.npz")


@scene("C03b")
def output_appears(folder):
    """Another process makes the output while ours is under way."""
    write_big(folder / "in.safetensors")
    process = Process(
        [TCONV, "-q", "--no-clobber", "--sandbox=off", "in.safetensors", "out.deathtensors"],
        cwd=folder,
    )
    while process.poll() is None and not writes(process):
        time.sleep(0.001)
    (folder / "out.deathtensors").write_bytes(OLD_TARGET)
    process.wait(600)
    check_equal(process.returncode, IO, "exit code")
    check_equal((folder / "out.deathtensors").read_bytes(), OLD_TARGET, "the other's output")
    check_equal(sorted(os.listdir(folder)), ["in.safetensors", "out.deathtensors"], "files")


@scene("C04", "missing", "a file", "read-only", "no x", "a read-only file system")
def output_folder(way, folder):
    """An error before the data is read: its checksum is wrong, and nobody noticed."""
    damaged = bytearray(files.deathtensors({"a": f32(1, 2, 3)}, {}, files.CHECKSUM))
    damaged[-40] ^= 1
    (folder / "in.deathtensors").write_bytes(damaged)
    place, prefix = folder / "place", ()
    if way == "a file":
        place.write_bytes(b"")
    elif way in ("read-only", "no x"):
        place.mkdir()
        place.chmod(0o555 if way == "read-only" else 0o666)
        prefix = unprivileged()
    elif way == "a read-only file system":
        place.mkdir()
        mounted = "mount -t tmpfs -o ro tmpfs place"
        prefix = ("unshare", "-m", "--propagation", "private", "sh", "-c")
        if os.geteuid() or run(*prefix, mounted, cwd=folder).code:
            raise Skip("can't mount")
        prefix = (*prefix, f'{mounted} && exec "$0" "$@"')
    expect(folder, IO, "in.deathtensors", "place/out.npz", prefix=prefix)


@scene("C07", "hash", "convert", "stats")
def memory_runs_out(command, folder):
    """At whichever allocation the memory ends, it is an I/O error that says so."""
    if SANITIZED:
        raise Skip("a sanitizer has memory of its own")
    pair(folder)
    args = ["in.npz", "out.deathtensors"] if command == "convert" else [command, "in.npz"]
    codes, step = [], 64
    # Below this the program can't be loaded.
    least = next(
        kib
        for kib in range(0, 8192, step)
        if subprocess.run([*limited(f"-d {kib}"), TCONV, "version"], capture_output=True).returncode == OK
    )
    for kib in [*range(least, least + 1024, step), *range(4096, 131072, 4096)]:
        result = expect(folder, {OK, IO}, *args, prefix=limited(f"-d {kib}"))
        codes.append(result.code)
        if result.code == IO:
            said = re.search("memory|thread|Resource temporarily", text(result.err))
            check_equal(bool(said), True, f"what is said with {kib} KiB", result)
    check_equal((IO in codes, codes[-1]), (True, OK), f"some fail, some don't: {codes}")


@scene("C11")
def input_is_replaced(folder):
    """Its name goes to another file; what was opened is what is read."""
    write_big(folder / "in.safetensors")
    expected = digest(folder, "in.safetensors")
    write_model(folder / "new.safetensors")
    process = Process(
        [TCONV, "-q", "--sandbox=off", "in.safetensors", "out.deathtensors", "--no-sync"], cwd=folder
    )
    while process.poll() is None and not writes(process):
        time.sleep(0.001)
    os.rename(folder / "new.safetensors", folder / "in.safetensors")
    process.wait(600)
    check_equal(process.returncode, OK, "exit code")
    check_equal(digest(folder, "out.deathtensors"), expected, "digest")


@scene("C12", "a FIFO", "a socket", "a terminal", "a folder", "/dev/zero", "/proc/self/mem")
def input_is_no_file(way, folder):
    name, ends = way, []
    if way == "a FIFO":
        os.mkfifo(folder / "pipe")
        name = "pipe"
    elif way == "a socket":
        name = "socket"
        server = socket.socket(socket.AF_UNIX)
        os.chdir(folder)  # the path of a socket is short
        server.bind(name)
        os.chdir("/")
        server.close()
    elif way == "a terminal":
        ends = pty.openpty()
        name = os.ttyname(ends[1])
    elif way == "a folder":
        (folder / "folder").mkdir()
        name = "folder"
    expect(folder, {USAGE, IO}, "list", name, timeout=30)
    expect(folder, {USAGE, IO}, name, "out.npz", timeout=30)
    for end in ends:
        os.close(end)


@scene("C13", *(f"from {name}" for name in FORMATS), "to a pipe")
def pipes(way, folder):
    """A format that must be searched is told so, or read as a whole; one that streams, streams."""
    pair(folder)
    if way == "to a pipe":
        script = 'set -o pipefail; "$0" in.npz - -t npz | cat'
        result = run("bash", "-c", script, TCONV, cwd=folder)
        check_equal(result.code, USAGE, "exit code", result)
        result = expect(folder, OK, "in.npz", "-", "-t", "safetensors")
        (folder / "piped.safetensors").write_bytes(result.out)
        check_equal(digest(folder, "piped.safetensors"), digest(folder, "in.npz"), "digest")
        return
    name = f"in.{way.split()[-1]}"
    one = "a" if name in ("in.npy", "in.pb") else "."
    if name != "in.npz":
        expect(folder, OK, "in.npz", name, "--include", one, "-q")
    command = 'cat "$1" | "$0" hash --digest -'
    result = run("sh", "-c", command, TCONV, name, cwd=folder)
    if result.code not in (OK, USAGE):
        raise result.failed(f"expected: exit {OK} or {USAGE}, got {result.code}")
    if result.code == OK and name not in ("in.npy", "in.pb", "in.tfrecord"):  # whose names are the file's
        check_equal(result.out.split()[0], digest(folder, name), "digest", result)


@scene("C16")
def output_folder_is_renamed(folder):
    """The output is in the folder that was named, or there is an error and no output."""
    write_big(folder / "in.safetensors")
    (folder / "place").mkdir()
    command = [TCONV, "-q", "--sandbox=off", "in.safetensors", "place/out.deathtensors", "--no-sync"]
    process = Process(command, cwd=folder)
    while process.poll() is None and not writes(process):
        time.sleep(0.001)
    os.rename(folder / "place", folder / "moved")
    process.wait(600)
    check_equal(process.returncode, IO, "exit code")
    check_equal(os.listdir(folder / "moved"), [], "what is left")


@scene("C18", "-x", "a\nb", "a\x1b[31mb")
def file_names(name, folder):
    """A name that looks like an option or breaks a line is a name."""
    (folder / name).write_bytes(npy())
    expect(folder, OK, "list", "--", name)
    (folder / name).write_bytes(npy()[:-1])
    expect(folder, INVALID, "hash", "--", name)


@scene("C19")
def names_of_tensors(folder):
    (folder / "in.safetensors").write_bytes(safetensors({name: f32(1) for name in HOSTILE}))
    for command in (["list"], ["info"], ["hash"], ["stats"], ["scan"]):
        result = expect(folder, OK, *command, "in.safetensors")
        raw = [byte for byte in result.out if byte < 32 and byte != 10]
        check_equal((raw, "\u202e" in text(result.out)), ([], False), f"{command} escapes", result)
    result = expect(folder, OK, "list", "--json", "in.safetensors")
    check_equal(all(json.dumps(name)[1:-1] for name in HOSTILE), True, "names")
    names = json.dumps(json.loads(result.out), ensure_ascii=False)
    for name in HOSTILE:
        check_equal(json.dumps(name, ensure_ascii=False) in names, True, f"{name!r} parses back", result)


@scene("C20", "case", "case of any letter", "NFC and NFD", "order of accents", "Hangul", "/ and .", "a rule")
def names_meet(way, folder):
    names = {
        "case": ("Weight", "weight"),
        "case of any letter": ("STRASSE \u00c9", "stra\u00dfe \u00e9"),
        "NFC and NFD": ("\u00e9", "e\u0301"),
        "order of accents": ("a\u0323\u0302", "a\u0302\u0323"),
        "Hangul": ("\ud55c", "\u1112\u1161\u11ab"),
        "/ and .": ("a/b", "a.b"),
        "a rule": ("a1", "a2"),
    }[way]
    (folder / "in.safetensors").write_bytes(safetensors({name: f32(1) for name in names}))
    rule = ("--rename", "s/[0-9]//") if way == "a rule" else ()
    result = expect(folder, INVALID, "in.safetensors", "out/", "-t", "npy", *rule)
    for name in names:
        check_equal(name in text(result.err), True, f"{name} is shown", result)


@scene("C20b", "a dot at the end", "a folder and a file")
def names_do_not_meet(way, folder):
    """The extension behind the dot, and the dot in the place of the slash, keep them apart."""
    names = ("a", "a.") if way == "a dot at the end" else ("a", "a/b")
    (folder / "in.safetensors").write_bytes(safetensors({name: f32(1) for name in names}))
    expect(folder, OK, "in.safetensors", "out/", "-t", "npy", "-q")
    files = [name for name in os.listdir(folder / "out") if name.endswith(".npy")]
    check_equal(len(files), 2, "files")


@scene("C21", "../x", "/x", "a//b", ".", "..", "", "a/../../x", "a/./b")
def names_of_files(name, folder):
    (folder / "in.safetensors").write_bytes(safetensors({name: f32(1)}))
    expect(folder, UNSAFE, "in.safetensors", "out/", "-t", "npy")


@scene("C22")
def hostile_tmpdir(folder):
    """Temporary files are made beside the output: TMPDIR and what lies there do not matter."""
    pair(folder)
    for name in ("trap", "victim"):
        (folder / name).mkdir()
    (folder / "link").symlink_to("victim")
    for place in ("trap", "link", "nowhere", "/proc"):
        for named in ("0", "1"):
            env = {"TMPDIR": str(folder / place), **({"TCONV_TEST_NAMED": "1"} if named == "1" else {})}
            expect(folder, OK, "in.npz", "out.deathtensors", env=env)
    check_equal([*os.listdir(folder / "trap"), *os.listdir(folder / "victim")], [], "files in TMPDIR")
    check_equal(len(os.listdir(folder)), 5, "files")


@scene("C25", "8 EiB", "empty", "text", *(f"random {name}" for name in FORMATS))
def no_tensors(way, folder):
    if way == "8 EiB":
        (folder / "in").write_bytes(b"")
        for power in (63, 44, 43):  # as many as the file system has
            try:
                os.truncate(folder / "in", 2**power - 1)
                break
            except OSError:
                continue
        for name in FORMATS:
            expect(folder, {INVALID, UNSUPPORTED, UNSAFE}, "hash", "in", "-f", name)
        expect(folder, INVALID, "hash", "in")
    elif way == "empty":
        (folder / "in").write_bytes(b"")
        for name in FORMATS:
            expect(folder, INVALID, "hash", "in", "-f", name)
        expect(folder, INVALID, "hash", "in")
    elif way == "text":
        (folder / "in").write_text("It was a dark and stormy night.\n" * 1000)
        for name in FORMATS:
            expect(folder, INVALID, "hash", "in", "-f", name)
        expect(folder, INVALID, "hash", "in")
    else:
        for seed in range(10_000 if FULL else 2 if SANITIZED else 10):
            (folder / "in").write_bytes(random.Random(seed).randbytes(MIB))
            expect(folder, INVALID, "hash", "in", "-f", way.split()[1])


@scene("C26", "stopped and continued", "a slow pipe")
def broken_calls(way, folder):
    """Calls that are interrupted or do less than they were asked for are made again."""
    write_big(folder / "in.safetensors", BIG // 16)
    if way == "a slow pipe":
        script = '"$0" in.safetensors - -t safetensors | dd bs=1777 status=none >out.safetensors'
        result = run("sh", "-c", script, TCONV, cwd=folder)
        check_equal((result.code, result.err), (OK, b""), "exit code, stderr", result)
    else:
        process = Process([TCONV, "-q", "in.safetensors", "out.safetensors", "--no-sync"], cwd=folder)
        while process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.001)
        check_equal(process.returncode, OK, "exit code")
    check_equal(digest(folder, "out.safetensors"), digest(folder, "in.safetensors"), "digest")


@scene("C28", "-1", "9", "20", "70")
def flipped(place, folder):
    pair(folder)
    (folder / "out.safetensors").write_bytes(OLD_TARGET)
    env = {"TCONV_TEST_FLIP": place}
    result = expect(folder, IO, "--verify", "in.npz", "out.safetensors", env=env)
    check_equal("verification failed" in text(result.err), True, "what is said", result)


@scene("C29", "out.npz", "out.safetensors", "out.deathtensors", "out.pt", "out.ot", "out.onnx")
def same_bytes(target, folder):
    """Twice, on one processor and on all, within the sandbox and without."""
    dice = random.Random(29)
    tensors = {f"t{n}": files.Tensor("U8", [70_000], dice.randbytes(70_000)) for n in range(40)}
    (folder / "in.safetensors").write_bytes(safetensors(tensors))
    compress = ("--compress",) if target in ("out.npz", "out.deathtensors") else ()
    contents = set()
    for options, prefix in (
        ((), ()),
        ((), ()),
        ((), ("taskset", "1")),
        (("--sandbox=off",), ()),
    ):
        expect(folder, OK, "in.safetensors", target, *compress, *options, "-q", prefix=prefix)
        contents.add((folder / target).read_bytes())
    check_equal(len(contents), 1, "different outputs")


@scene("C30", "Landlock", "seccomp")
def no_sandbox(lacks, folder):
    pair(folder)
    variable = "TCONV_TEST_LANDLOCK" if lacks == "Landlock" else "TCONV_TEST_SECCOMP"
    expect(folder, OK, "hash", "in.npz", env={variable: "0"})
    expect(folder, IO, "hash", "--sandbox=require", "in.npz", env={variable: "0"})
    expect(folder, OK, "hash", "--sandbox=require", "in.npz")
