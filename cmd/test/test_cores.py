#!/usr/bin/env python3
"""However many threads there are, whichever instructions they use, and whatever the file system
lacks: the same bytes, the same errors, within the same memory. And make's jobserver gets its tokens
back, also where the command fails or is ended by a signal."""

import array
import hashlib
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time

import files
from batches import environment, needs
from files import Tensor
from harness import (
    FULL,
    INVALID,
    OK,
    SANITIZED,
    TCONV,
    UNSUPPORTED,
    Failed,
    Suite,
    check_equal,
    health_faults,
    run,
    tconv,
)

MIB = 1 << 20
# What a run is given: threads, instructions, and what the file system can't do. Copies by the kernel
# are also how blocks are shared.
THREADS = ("1", "2", "3", "8", "16")
CPUS = ("plain", "avx2")
LACKS = (
    {},
    {"TCONV_TEST_NAMED": "1"},
    {"TCONV_TEST_FAULT": "copy/EOPNOTSUPP:1+"},
    {"TCONV_TEST_FAULT": "copy/EXDEV:1+", "TCONV_TEST_NAMED": "1"},
    {"TCONV_TEST_FAULT": "thread:1+"},
    {"TCONV_TEST_FAULT": "thread:2+"},
)


def settings():
    """All of these; without --full each value at least once."""
    every = [(j, cpu, lack) for j in THREADS for cpu in CPUS for lack in LACKS]
    if FULL:
        return every
    some = [(j, "avx2", {}) for j in THREADS] + [("2", "plain", lack) for lack in LACKS]
    return some + [("8", "avx2", lack) for lack in LACKS[2:]]


def noise(seed, length):
    return random.Random(seed).randbytes(length)


def weights(seed, count):
    """Numbers that a narrower dtype rounds, without NaN: the exponents are small."""
    words = memoryview(noise(seed, 4 * count)).cast("I")
    return struct.pack(f"<{count}I", *(0x3C000000 | word & 0x83FFFFFF for word in words))


def make_model(folder):
    """Tensors of several chunks and of less than one, some empty, that pack well and badly."""
    size = 3 * MIB // 4 + 331 if not SANITIZED else MIB // 8 + 331
    tensors = {
        "large": Tensor("F32", [size], weights(1, size)),
        "rows": Tensor("F32", [64, 1025], weights(2, 64 * 1025)),
        "zeros": Tensor("F32", [size // 2], bytes(size // 2 * 4)),
        "text": Tensor("U8", [size], (b"the same words again and again, " * (size // 32 + 1))[:size]),
        "noise": Tensor("U8", [2 * size], noise(3, 2 * size)),
        "numbers": Tensor("I64", [999], struct.pack("<999q", *range(-499, 500))),
        "empty": Tensor("F32", [0, 7], b""),
        "one": Tensor("F64", [], struct.pack("<d", 0.1)),
    }
    (folder / "m.safetensors").write_bytes(files.safetensors(tensors, {"author": "nobody"}))
    return tensors


JOBS = {
    "npz": ["m.safetensors", "out.npz"],
    "npz, deflated": ["--compress", "m.safetensors", "out.npz"],
    "npz, level 9": ["--compress=9", "m.safetensors", "out.npz"],
    "pt": ["m.safetensors", "out.pt"],
    "deathtensors": ["m.safetensors", "out.deathtensors"],
    "zstd": ["--compress", "m.safetensors", "out.deathtensors"],
    "onnx": ["m.safetensors", "out.onnx"],
    "tfrecord": ["m.safetensors", "out.tfrecord"],
    "same": ["m.safetensors", "out.safetensors"],
    "BF16": ["--lossy", "--dtype", "BF16", "m.safetensors", "out.safetensors"],
    "F64 in npz": ["--dtype", "F64", "--compress", "m.safetensors", "out.npz"],
    "shards": ["--shard-size", "1M", "m.safetensors", "out.safetensors"],
    "shards of shards": ["--shard-size", "2M", "shards/s.safetensors.index.json", "out.safetensors"],
    "a file a tensor": ["m.safetensors", "out/"],
    "packed, read": ["packed.npz", "out.safetensors"],
    "packed, rows": ["get", "--rows", "5:60000", "-o", "out.npy", "packed.npz", "large"],
    "packed, packed": ["--compress", "packed.npz", "out.npz"],
    "packed, cast": ["--lossy", "--dtype", "F16", "packed.npz", "out.safetensors"],
    "zstd, read": ["packed.deathtensors", "out.safetensors"],
    "Fortran": ["fortran.npy", "out.safetensors"],
    "Fortran, in blocks": ["blocks.npy", "out.safetensors"],
    "receipt": ["--verify", "--receipt", "out.receipt", "--receipt-tensors", "m.safetensors", "out.safetensors"],
}


def prepare(folder):
    tensors = make_model(folder)
    for arguments in (["--compress", "m.safetensors", "packed.npz"],
                      ["--compress", "m.safetensors", "packed.deathtensors"],
                      ["--shard-size", "1M", "m.safetensors", "shards/s.safetensors"]):
        (folder / "shards").mkdir(exist_ok=True)
        result = tconv("-q", *arguments, cwd=folder)
        check_equal(result.code, OK, "prepared", result)
    data = tensors["rows"].data
    (folder / "fortran.npy").write_bytes(files.npy("<f4", (1025, 64), data, fortran=True))
    (folder / "blocks.npy").write_bytes(files.npy("<f4", BLOCKS, noise(7, 4 * math.prod(BLOCKS)), fortran=True))


# Large enough to be copied in blocks.
BLOCKS = (97, 83, 85)


def fortran_order(folder):
    """An array that is copied in blocks, and the same by way of a stream, are what its order says."""
    a, b, c = BLOCKS
    data = noise(7, 4 * a * b * c)
    numbers = array.array("I", data)
    expected = array.array("I")
    for i in range(a):
        for j in range(b):
            expected.extend(numbers[i + a * j::a * b])
    (folder / "blocks.npy").write_bytes(files.npy("<f4", BLOCKS, data, fortran=True))
    for arguments in ([], ["--verify"]):
        result = tconv("-q", *arguments, "blocks.npy", "out.safetensors", cwd=folder)
        check_equal(result.code, OK, "exit", result)
        check_equal((folder / "out.safetensors").read_bytes()[-len(data):] == expected.tobytes(), True,
                    f"the elements with {arguments}", result)
        (folder / "out.safetensors").unlink()


def outputs(folder):
    """Each file of the output, with its digest."""
    found = {}
    for path in sorted(folder.glob("out*")):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            found[str(file.relative_to(folder))] = hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def same_bytes(arguments):
    def case(folder):
        prepare(folder)
        expected = None
        for threads, cpu, lack in settings():
            command = ["get"] if arguments[0] == "get" else []
            result = tconv(*command, "-q", "-j", threads, *arguments[len(command):], cwd=folder,
                           env={"TCONV_CPU": cpu, **lack})
            faults = health_faults(result)
            if faults or result.code != OK:
                raise result.failed(*faults, f"-j {threads}, {cpu}, {lack}: exit {result.code}")
            got = outputs(folder)
            expected = expected or got
            check_equal(got, expected, f"the output with -j {threads}, {cpu}, {lack}", result)
    return case


LOOKS = {
    "hash": ["hash", "m.safetensors", "packed.npz", "shards/s.safetensors.index.json"],
    "verify": ["verify", "m.safetensors", "packed.npz", "truths.safetensors", "shards/s.safetensors.index.json"],
    "diff": ["diff", "m.safetensors", "other.safetensors"],
    "diff, packed": ["diff", "packed.npz", "other.safetensors"],
    "diff, numbers": ["diff", "--atol", "1e-3", "--json", "m.safetensors", "other.safetensors"],
    "stats": ["stats", "m.safetensors"],
}


def same_text(arguments):
    def case(folder):
        prepare(folder)
        tensors = make_model(folder)
        changed = bytearray(tensors["large"].data)
        for at in (7, 4000, len(changed) // 2, len(changed) - 1):
            changed[at] ^= 0x41
        tensors["large"] = tensors["large"]._replace(data=bytes(changed))
        (folder / "other.safetensors").write_bytes(files.safetensors(tensors))
        truths = {name: Tensor("BOOL", [9], bytes([1, 0, number, 1, 0, 2, 1, 1, 1]))
                  for number, name in enumerate("abcdefgh")}
        (folder / "truths.safetensors").write_bytes(files.safetensors(truths))
        expected = None
        for threads, cpu, lack in settings():
            if "TCONV_TEST_FAULT" in lack and "thread" in lack["TCONV_TEST_FAULT"]:
                continue
            result = tconv(arguments[0], "-j", threads, *arguments[1:], cwd=folder, env={"TCONV_CPU": cpu, **lack})
            got = result.code, result.out, result.err
            expected = expected or got
            check_equal(got, expected, f"the result with -j {threads}, {cpu}, {lack}", result)
    return case


def same_errors(folder):
    """Of several failures the first in the file is told, whoever found which first."""
    tensors = make_model(folder)
    packed = bytearray(files.npz(tensors, method=8))
    for name in (b"noise.npy", b"rows.npy"):
        packed[packed.index(name) + len(name) + 40000] ^= 0xFF
    (folder / "bad.npz").write_bytes(packed)
    large = dict(tensors)
    for name in ("large", "rows"):
        data = bytearray(tensors[name].data)
        for at in (len(data) // 3 // 4 * 4, len(data) - 4):
            data[at:at + 4] = struct.pack("<f", 1e30)
        large[name] = tensors[name]._replace(data=bytes(data))
    (folder / "large.safetensors").write_bytes(files.safetensors(large))
    for code, arguments in ((INVALID, ["bad.npz", "out.safetensors"]),
                            (INVALID, ["bad.npz", "out.pt"]),
                            (UNSUPPORTED, ["--lossy", "--dtype", "^(large|rows)$=I16", "large.safetensors", "out.npz"])):
        expected = None
        for threads in THREADS:
            result = tconv("-j", threads, *arguments, cwd=folder)
            check_equal((result.code, outputs(folder)), (code, {}), f"-j {threads}", result)
            expected = expected or result.err
            check_equal(result.err, expected, f"the message with -j {threads}", result)


def bounded_memory(folder):
    """What a command takes does not grow with its threads beyond what it may."""
    count = 24 * MIB // (8 if SANITIZED else 1)
    with open(folder / "m.safetensors", "wb") as file:
        header = files.safetensors_raw({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}})
        file.write(header)
        file.truncate(len(header) + 4 * count)
    with open(folder / "f.npy", "wb") as file:
        file.write(header := files.npy("<f4", (count // 4096, 64, 64), b"", fortran=True))
        file.truncate(len(header) + 4 * count)
    for arguments in (["m.safetensors", "o.npz"], ["m.safetensors", "o.pt"], ["--compress", "m.safetensors", "o.npz"],
                      ["f.npy", "o.safetensors"], ["--dtype", "F64", "m.safetensors", "o.safetensors"], ["--verify", "m.safetensors", "o.onnx"]):
        for threads in ("1", "16"):
            result = tconv("-q", "-j", threads, *arguments, cwd=folder, env={"TCONV_TEST_MEMORY": str(folder / "peak")})
            check_equal(result.code, OK, "exit", result)
            peak = int((folder / "peak").read_text())
            if peak > 56 * MIB:
                raise result.failed(f"{peak} bytes at once with -j {threads}")


class Jobserver:
    """A fifo with tokens, as make 4.4 has; or its descriptors, as older ones have."""

    def __init__(self, folder, tokens, form):
        self.path = folder / "fifo"
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        os.write(self.fd, tokens)
        os.set_inheritable(self.fd, form == "descriptors")
        name = f"fifo:{self.path}" if form == "fifo" else f"{self.fd},{self.fd}"
        self.flags = {"MAKEFLAGS": f" -j4 --jobserver-auth={name}"}

    def tokens(self):
        try:
            held = os.read(self.fd, 100)
        except BlockingIOError:
            return b""
        os.write(self.fd, held)
        return bytes(sorted(held))

    def close(self):
        os.close(self.fd)
        self.path.unlink()


def jobserver(folder):
    """Its tokens come back after success, after a failure and after a signal."""
    make_model(folder)
    (folder / "bad.npz").write_bytes(b"PK\3\4nonsense")
    for form in ("fifo", "descriptors"):
        server = Jobserver(folder, b"+abc", form)
        environment_ = {**os.environ, **server.flags}
        for arguments, code in ((["-q", "--compress", "m.safetensors", "o.npz"], 0),
                                (["hash", "m.safetensors"], 0), (["-q", "bad.npz", "o.pt"], 3)):
            done = subprocess.run([TCONV, *arguments], cwd=folder, env=environment_, capture_output=True,
                                  close_fds=form == "fifo", check=False)
            check_equal((done.returncode, server.tokens()), (code, b"+abc"), f"{form}: {arguments}")
        server.close()


def jobserver_signals(folder):
    """A signal ends a command that holds tokens, and they come back."""
    count = 64 * MIB // (8 if SANITIZED else 1)
    header = files.safetensors_raw({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}})
    with open(folder / "m.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 4 * count)
    held = 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for _ in range(10):
            server = Jobserver(folder, b"+abc", "fifo")
            process = subprocess.Popen([TCONV, "-q", "-j", "4", "--compress=9", "m.safetensors", "o.npz"],
                                       cwd=folder, env={**os.environ, **server.flags},
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until = time.monotonic() + 20
            while server.tokens() == b"+abc" and process.poll() is None and time.monotonic() < until:
                time.sleep(0.001)
            caught = server.tokens() != b"+abc" and process.poll() is None
            process.send_signal(number)
            process.wait()
            check_equal(server.tokens(), b"+abc", f"tokens after signal {number}")
            server.close()
            if caught and process.returncode == -number:
                held += 1
                break
    if not held:
        raise Failed("no run held tokens when its signal came")


def under_make(folder):
    """In a recipe of make -j the number of threads is make's, and the output is the same."""
    needs("make")
    make_model(folder)
    (folder / "Makefile").write_text(
        "all: one two\none two:\n\t+tconv -q --compress m.safetensors $@.npz\n"
        "plain:\n\ttconv -q --compress m.safetensors $@.npz\n"
    )
    for command in (["make", "-j3"], ["make", "-j3", "plain"], ["make", "plain"]):
        result = run(*command, cwd=folder, env=environment())
        check_equal((result.code, b"jobserver" in result.err), (0, False), " ".join(command), result)
    check_equal({(folder / name).read_bytes() == (folder / "one.npz").read_bytes()
                 for name in ("two.npz", "plain.npz")}, {True}, "outputs")


def cases():
    for name, arguments in JOBS.items():
        yield f"same bytes: {name}", same_bytes(arguments)
    for name, arguments in LOOKS.items():
        yield f"same result: {name}", same_text(arguments)
    for case in (same_errors, fortran_order, bounded_memory, jobserver, jobserver_signals, under_make):
        yield case.__name__, case


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
