#!/usr/bin/env python3
"""Memory does not grow with the model. Works in $TMPDIR, with up to 10 GiB at once."""

import shutil
import struct
import sys

from files import ZSTD, compact, deathtensors_header, deathtensors_raw, zstd_zeros
from harness import MIB, OK, SANITIZED, WORK, Skip, Suite, check_equal, expect

GIB = 1 << 30
NEEDED = 12 * GIB
BAR = 64 * MIB
ZSTD_WINDOW = 8 * MIB  # of level 3 and below
ZSTD_WRITE_BAR = 160 * MIB
TIME = 300


def sparse_safetensors(path, sizes):
    """Float tensors of these sizes in bytes, all zeros that take no space."""
    entries, offset = {}, 0
    for number, size in enumerate(sizes):
        entries[f"layer.{number}.weight"] = {
            "dtype": "F32",
            "shape": [size // 4],
            "data_offsets": [offset, offset + size],
        }
        offset += size
    header = compact(entries).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + offset)
    return len(header)


def measured(folder, bar, *args):
    """Run tconv and hold its memory against a bar."""
    result = expect(folder, OK, *args, timeout=TIME)
    if not SANITIZED and result.rss > bar:
        raise result.failed(
            f"expected: at most {bar / MIB:.0f} MiB resident, got {result.rss / MIB:.0f}"
        )
    return result


def need_space():
    if shutil.disk_usage(WORK).free < NEEDED:
        raise Skip(f"less than {NEEDED // GIB} GiB free in {WORK.parent}")


def there_and_back(folder, size, bar, middle, *options):
    """A model into another format and back, with the same digest and never above the bar."""
    need_space()
    sparse_safetensors(folder / "in.safetensors", [size // 4] * 4)
    measured(folder, bar, "in.safetensors", middle, *options)
    measured(
        folder, BAR + (ZSTD_WINDOW if "--compress" in options else 0), middle, "back.safetensors"
    )
    (folder / middle).unlink()
    digests = [
        measured(folder, BAR, "hash", "--digest", name).out.split()[0]
        for name in ("in.safetensors", "back.safetensors")
    ]
    check_equal(digests[1], digests[0], "digest of what came back")


def foreign_zstd(folder):
    """A frame by the zstd program itself, ratio 32,000."""
    size = 2 * GIB
    header = deathtensors_header(
        {"zeros": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    )
    (folder / "in.deathtensors").write_bytes(deathtensors_raw(header, zstd_zeros(size), ZSTD))
    measured(folder, BAR + ZSTD_WINDOW, "in.deathtensors", "out.safetensors")


def many_tensors(folder):
    """A million tensors are listed in seconds, in memory in proportion to their header."""
    length = sparse_safetensors(folder / "in.safetensors", [4] * 1_000_000)
    result = measured(folder, BAR + 3 * length, "list", "in.safetensors")
    check_equal(result.out.count(b"\n"), 1_000_000, "names listed", result)
    if not SANITIZED and result.seconds > 10:
        raise result.failed(f"expected: at most 10 s, got {result.seconds:.1f}")


CASES = {
    "raw": lambda folder: there_and_back(
        folder, 4 * GIB, BAR, "middle.deathtensors", "--no-checksum"
    ),
    "checksum": lambda folder: there_and_back(folder, 4 * GIB, BAR, "middle.deathtensors"),
    "npz": lambda folder: there_and_back(folder, 4 * GIB, BAR, "middle.npz"),
    "shards": lambda folder: there_and_back(
        folder, 4 * GIB, BAR, "middle.deathtensors", "--shard-size", "1G"
    ),
    "zstd": lambda folder: there_and_back(
        folder, GIB, ZSTD_WRITE_BAR, "middle.deathtensors", "--compress"
    ),
    "deflate": lambda folder: there_and_back(folder, GIB, BAR, "middle.npz", "--compress"),
    "foreign zstd": foreign_zstd,
    "many tensors": many_tensors,
}

if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(CASES.items(), jobs=1))
