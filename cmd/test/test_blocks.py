#!/usr/bin/env python3
"""Where data lies (--align), and blocks that XFS and btrfs share between input and output.

The file systems are images in $TMPDIR, mounted for this process alone. With --full the model has
4 GiB, of which most is shared within it, so that the image stays small.
"""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys

# Before the harness starts the processes that run commands: they see what is mounted here.
if os.geteuid() == 0 and "TCONV_TEST_MOUNTS" not in os.environ and shutil.which("unshare"):
    command = ["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv]
    if subprocess.run([*command[:4], "true"], check=False, capture_output=True).returncode == 0:
        os.environ["TCONV_TEST_MOUNTS"] = "1"
        os.execvp(command[0], command)

import files  # noqa: E402
from harness import (  # noqa: E402
    FULL,
    MIB,
    OK,
    SANITIZED,
    UNSUPPORTED,
    USAGE,
    Skip,
    Suite,
    check_equal,
    expect,
    run,
    text,
)

SHARING = {"xfs": ("mkfs.xfs", "-q"), "btrfs": ("mkfs.btrfs", "-q")}
MAKE = SHARING | {"ext4": ("mkfs.ext4", "-q")}
IMAGE = 1024 * MIB  # sparse: only what is written takes space
FICLONERANGE = 0x4020940D
PIECES = 16  # of a model, which share their blocks
SMALL = 16 * MIB
LARGE = 4096 * MIB if FULL and not SANITIZED else SMALL
BLOCK = 4096
ALIGNED = {  # by output: the most that its data is aligned to
    "out.safetensors": 65536,
    "out.deathtensors": 65536,
    "out.npz": 32768,
    "out.pt": 32768,
    "out.ot": 32768,
}


@contextlib.contextmanager
def mounted(system, folder):
    """A folder on a new file system of this kind."""
    if "TCONV_TEST_MOUNTS" not in os.environ:
        raise Skip("can't mount")
    if not shutil.which(MAKE[system][0]):
        raise Skip(f"no {MAKE[system][0]}")
    image, place = folder / "image", folder / "disk"
    with open(image, "wb") as file:
        file.truncate(IMAGE)
    place.mkdir()
    subprocess.run([*MAKE[system], image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, place], check=False).returncode:
        raise Skip(f"can't mount {system}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def used(place):
    """The bytes that are taken on a file system, once all is written."""
    subprocess.run(["sync", "-f", place], check=True)
    disk = os.statvfs(place)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def model_header(total):
    """Tensors of odd sizes that fill `total` bytes, in the order of their offsets, which is not that
    of their names."""
    header, end = {"__metadata__": {"made": "here"}}, 0
    while end < total:
        number = len(header)
        size = min(3 * MIB // 4 + 8 * number, total - end)
        entry = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [end, end + size]}
        header[f"layers.{number}.weight"] = entry
        end += size
    return json.dumps(header).encode()


def write_model(path, size, shift, shared=True):
    """A model whose pieces share their blocks with each other, but for a block of their own. The data
    starts `shift` bytes behind the start of a block."""
    header, piece = model_header(size), size // PIECES
    header += b" " * ((shift - 8 - len(header)) % BLOCK)
    start = 8 + len(header)
    with open(path, "w+b") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(-start % BLOCK))
        first = file.tell()
        for number in range(piece // MIB):
            file.write(random.Random(number).randbytes(MIB))
        file.flush()
        os.fsync(file.fileno())
        for number in range(1, PIECES):
            place = struct.pack("qQQQ", file.fileno(), first, piece, first + number * piece)
            if shared:
                fcntl.ioctl(file.fileno(), FICLONERANGE, place)
            else:
                os.copy_file_range(file.fileno(), file.fileno(), piece, first, first + number * piece)
        for number in range(PIECES):
            own = random.Random(-1 - number).randbytes(BLOCK)
            os.pwrite(file.fileno(), own, first + number * (piece + BLOCK))
        file.truncate(start + size)
        os.fsync(file.fileno())


def values(folder, path):
    """The hashes of the tensors, whatever these are called."""
    lines = text(expect(folder, OK, "hash", path).out).splitlines()
    return sorted(line.split("  ")[0] for line in lines)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shares(system, folder):
    """Outputs that take next to no space, and are right. Their times are shown, and decide nothing."""
    into = ("in.safetensors", "--align", "reflink", "-o")
    kinds = {
        "renamed": (("--rename", "s/layers/blocks/", *into, "out.safetensors"), "out.safetensors"),
        "deathtensors": (("--no-checksum", *into, "out.dt"), "out.dt"),
        "edited": (("edit", "out.dt", "--rename", "s/layers/blocks/"), "out.dt"),
        "shards": (
            ("--shard-size", str(LARGE // 4), *into, "out.safetensors"),
            "out.safetensors.index.json",
        ),
    }
    with mounted(system, folder) as place:
        write_model(place / "in.safetensors", LARGE, 1000)
        expected = values(place, "in.safetensors")
        for name, (arguments, output) in kinds.items():
            before = used(place)
            result = expect(place, OK, *arguments, "-q", "--no-sync", exec=True)
            taken = used(place) - before
            print(f"{system}: {name}: {result.seconds * 1000:.0f} ms ({result.cpu_seconds * 1000:.0f} of processors), "
                  f"took {taken} bytes of {LARGE}")
            if taken > LARGE // 16 + MIB:
                raise result.failed(f"took {taken} bytes of the {LARGE} that could be shared")
            check_equal(values(place, output), expected, "values", result)


def same_bytes_anywhere(system, folder):
    """The output does not depend on what the file system, or the kernel, can do."""
    arguments = ("in.safetensors", "out.safetensors", "--align", "reflink", "--metadata", "a=b")
    with mounted(system, folder) as place:
        write_model(place / "in.safetensors", SMALL, 24, system in SHARING)
        expect(place, OK, *arguments)
        here = sha256(place / "out.safetensors")
        for fault in ("copy/EOPNOTSUPP:1+", "copy/EXDEV:1+", "copy/short:1+"):
            (place / "out.safetensors").unlink()
            expect(place, OK, *arguments, env={"TCONV_TEST_FAULT": fault})
            check_equal(sha256(place / "out.safetensors"), here, f"bytes with {fault}")
        other = folder / "other"
        other.mkdir()
        shutil.copy(place / "in.safetensors", other)
        expect(other, OK, *arguments)
        check_equal(sha256(other / "out.safetensors"), here, "bytes on another file system")


def edits(system, folder):
    """The file is replaced by one that shares its blocks; another link to it keeps the old one."""
    with mounted(system, folder) as place:
        write_model(place / "in.safetensors", SMALL, 1000)
        os.link(place / "in.safetensors", place / "link.safetensors")
        old, hashes, before = sha256(place / "in.safetensors"), values(place, "in.safetensors"), used(place)
        for number in range(3):
            key = "key" * 400 * number
            result = expect(place, OK, "edit", "--no-sync", "in.safetensors", "--metadata", f"k{key}=v")
        check_equal(used(place) - before < SMALL // 16 + MIB, True, "shared", result)
        check_equal(values(place, "in.safetensors"), hashes, "values", result)
        check_equal(sha256(place / "link.safetensors"), old, "the other link")
        metadata = json.loads(expect(place, OK, "info", "--json", "in.safetensors").out)["metadata"]
        check_equal((metadata["made"], len(metadata)), ("here", 4), "metadata")


def unaligned_source(system, folder):
    """Data that starts at an odd byte is copied, to where it can be read."""
    with mounted(system, folder) as place:
        write_model(place / "in.safetensors", SMALL, 1001, system in SHARING)
        expect(place, OK, "in.safetensors", "out.safetensors", "--align", "reflink")
        offsets = [tensor["offset"] for tensor in info(place, "out.safetensors")["tensors"]]
        check_equal(offsets[0] % 8, 0, "the first offset")
        check_equal(values(place, "out.safetensors"), values(place, "in.safetensors"), "values")


def info(folder, path):
    return json.loads(expect(folder, OK, "info", "--json", path).out)


def write_small(folder):
    dice = random.Random(1)
    tensors = {
        name: files.Tensor("F32", [size], dice.randbytes(4 * size))
        for name, size in (("b", 3), ("a", 1000), ("c", 1), ("d", 0), ("e", 25001), ("f", 25000))
    }
    (folder / "in.safetensors").write_bytes(files.safetensors(tensors))


def aligned(output, options, folder):
    """Data starts at a multiple of the alignment, and each tensor where there may be gaps."""
    write_small(folder)
    expect(folder, OK, "in.safetensors", "plain" + output)
    digest = expect(folder, OK, "hash", "--digest", "in.safetensors").out.split()[0]
    for align in (8, 64, 512, 4096, 8192, 32768, 65536):
        if align > ALIGNED[output]:
            expect(folder, UNSUPPORTED, "in.safetensors", output, "--align", align)
            continue
        expect(folder, OK, "in.safetensors", output, "--align", align, "--verify", *options)
        tensors = [one for one in info(folder, output)["tensors"] if one["nbytes"]]
        gaps = not output.endswith("safetensors")
        for tensor in tensors if gaps else tensors[:1]:
            if "offset" in tensor:
                check_equal(tensor["offset"] % align, 0, f"--align {align}: {tensor['name']}")
        found = expect(folder, OK, "hash", "--digest", output).out.split()[0]
        check_equal(found, digest, "digest")
        expect(folder, OK, "verify", output)
        if align == 8 and output.endswith(".safetensors"):
            check_equal((folder / output).read_bytes(), (folder / f"plain{output}").read_bytes(), "8")


def aligned_shards(folder):
    """Padding counts: no shard is larger than its size."""
    write_small(folder)
    for output in ("s.safetensors", "s.deathtensors", "s.pt"):
        expect(folder, OK, "in.safetensors", output, "--align", 4096, "--shard-size", "160000")
        sizes = [path.stat().st_size for path in folder.glob(f"s-*{output[1:]}")]
        check_equal((len(sizes) > 1, max(sizes) <= 160000), (True, True), f"{output}: {sizes}")


def aligned_npy(folder):
    dice = random.Random(2)
    (folder / "in.npy").write_bytes(files.npy("<f4", (1000,), dice.randbytes(4000)))
    for align in (8, 64, 4096, 8192):
        expect(folder, OK, "in.npy", "out.npy", "--align", align)
        data = (folder / "out.npy").read_bytes()
        check_equal((len(data) - 4000) % align, 0, f"--align {align}")
        check_equal(data[-4000:], (folder / "in.npy").read_bytes()[-4000:], "values")
    expect(folder, UNSUPPORTED, "in.npy", "out.npy", "--align", 16384)


def refused(folder):
    write_small(folder)
    for value in ("0", "7", "4", "24", "131072", "-8", "", "page", "1e3"):
        expect(folder, USAGE, "in.safetensors", "out.safetensors", f"--align={value}")
    for output in ("out.npz", "out.pt", "out.gguf", "out.onnx"):
        expect(folder, UNSUPPORTED, "in.safetensors", output, "--align", "reflink")
    result = expect(folder, OK, "in.safetensors", "out.deathtensors", "--align", "reflink")
    check_equal("its checksum needs every byte" in text(result.err), True, "a warning", result)


def cases(_suite):
    for system in SHARING:
        yield f"{system}: shared blocks", functools.partial(shares, system)
        yield f"{system}: edit", functools.partial(edits, system)
    for system in MAKE:
        yield f"{system}: the same bytes", functools.partial(same_bytes_anywhere, system)
        yield f"{system}: an odd start", functools.partial(unaligned_source, system)
    for output in ALIGNED:
        yield f"align: {output}", functools.partial(aligned, output, ())
    yield "align: compressed", functools.partial(aligned, "out.deathtensors", ("--compress",))
    yield "align: raw", functools.partial(aligned, "out.deathtensors", ("--no-checksum",))
    yield "align: shards", aligned_shards
    yield "align: npy", aligned_npy
    yield "align: refused", refused


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite)))
