#!/usr/bin/env python3
"""Memory does not grow with the model. Works in $TMPDIR, with up to 5 GiB at once, 10 with --full."""

import functools
import shutil
import struct
import sys

import pickles
from files import ZSTD, deathtensors_header, deathtensors_raw, zstd_zeros
from harness import FULL, MIB, OK, SANITIZED, WORK, Skip, Suite, check_equal, expect

GIB = (1 << 30) // (64 if SANITIZED else 1)  # a sanitizer build has no bars to keep
NEEDED = 12 if FULL else 6  # GiB
BAR = 64 * MIB
ZSTD_WINDOW = 8 * MIB  # of level 3 and below
ZSTD_WRITE_BAR = 160 * MIB
TIME = 300
DIGESTS = {}  # of a model, by its size
TRUSTED = ("--max-size", "16G")  # zeros pack so well that they look like a bomb


def sparse_safetensors(path, sizes):
    """Float tensors of these sizes in bytes, all zeros that take no space."""
    entries, offset = [], 0
    for number, size in enumerate(sizes):
        place = f"[{offset},{offset + size}]"
        entries.append(
            f'"layer.{number}":{{"dtype":"F32","shape":[{size // 4}],"data_offsets":{place}}}'
        )
        offset += size
    header = ("{" + ",".join(entries) + "}").encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + offset)
    return len(header)


def sparse_pt(path, sizes):
    """The same as torch saves it, with the true CRC of every storage."""
    state = {
        f"layer.{number}": pickles.tensor(
            pickles.storage(str(number), size // 4), size=(size // 4,)
        )
        for number, size in enumerate(sizes)
    }
    data = {str(number): [pickles.Zeros(size)] for number, size in enumerate(sizes)}
    members = pickles.pt_members(pickles.pickled(state), {})
    members |= {f"archive/data/{key}".encode(): pieces for key, pieces in data.items()}
    pickles.write_pieces(path.parent, path.name, pickles.sparse_zip(members))


def measured(folder, bar, *args):
    """Run tconv and hold its memory against a bar."""
    result = expect(folder, OK, *args, timeout=TIME)
    if not SANITIZED and result.rss > bar:
        raise result.failed(
            f"expected: at most {bar / MIB:.0f} MiB resident, got {result.rss / MIB:.0f}"
        )
    return result


def need_space():
    if shutil.disk_usage(WORK).free < NEEDED * GIB:
        raise Skip(f"less than {NEEDED} GiB free in {WORK.parent}")


def there(size, target, options, folder, make=sparse_safetensors, end="safetensors"):
    """A model of two tensors, which takes no space, into another format: the same data, by a
    comparison that has the same bar."""
    need_space()
    make(folder / f"in.{end}", [size // 2] * 2)
    measured(folder, BAR, f"in.{end}", target, "--no-sync", *options)
    measured(folder, BAR, "diff", "--ignore-metadata", f"in.{end}", target)
    check_equal(sum(file.stat().st_size for file in folder.glob(f"{target}*")) > size, True, "its size")


def there_and_back(size, bar, middle, options, folder, make=sparse_safetensors, end="safetensors"):
    """A model of two tensors into another format and back, with the same digest and never above the bar."""
    need_space()
    make(folder / f"in.{end}", [size // 2] * 2)
    measured(folder, bar, f"in.{end}", middle, "--no-sync", *options)
    back_bar = BAR + (ZSTD_WINDOW if "--compress" in options else 0)
    measured(folder, back_bar, middle, f"back.{end}", "--no-sync", *TRUSTED)
    for file in folder.glob(f"{middle}*"):  # what is beside a model too
        file.unlink()
    # The same tensors in whatever format, so that one digest does for all of a size.
    if size not in DIGESTS:
        DIGESTS[size] = measured(folder, BAR, "hash", "--digest", f"in.{end}").out.split()[0]
    digest = measured(folder, BAR, "hash", "--digest", f"back.{end}").out.split()[0]
    check_equal(digest, DIGESTS[size], "digest of what came back")


def foreign_zstd(folder):
    """A frame by the zstd program itself, ratio 32,000."""
    size = 2 * GIB
    header = deathtensors_header(
        {"zeros": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    )
    (folder / "in.deathtensors").write_bytes(deathtensors_raw(header, zstd_zeros(size), ZSTD))
    options = ("--no-sync", *TRUSTED)
    measured(folder, BAR + ZSTD_WINDOW, "in.deathtensors", "out.safetensors", *options)


def many_tensors(folder):
    """A million tensors are listed in seconds, in memory in proportion to their header."""
    length = sparse_safetensors(folder / "in.safetensors", [4] * 1_000_000)
    result = measured(folder, BAR + 3 * length, "list", "in.safetensors")
    check_equal(result.out.count(b"\n"), 1_000_000, "names listed", result)
    if not SANITIZED and result.cpu_seconds > 10:
        raise result.failed(f"expected: at most 10 s, got {result.cpu_seconds:.1f}")


def cases(full):
    """4 GiB passes every 32-bit size; what is written is the machine's memory, so that such models
    go one way each. There and back takes 256 MiB, in tensors of 128 MiB that no bar has room for,
    unless all is asked for."""
    usual = 4 * GIB if full else GIB // 4
    for label, bar, middle, options in (
        ("checksum", BAR, "middle.deathtensors", []),
        ("npz", BAR, "middle.npz", []),
        ("ot", BAR, "middle.ot", []),
        ("onnx", BAR, "middle.onnx", []),
        ("shards", BAR, "middle.deathtensors", ["--shard-size", str(usual // 2)]),
        ("zstd", ZSTD_WRITE_BAR, "middle.deathtensors", ["--compress"]),
        ("deflate", BAR, "middle.npz", ["--compress"]),
    ):
        yield label, functools.partial(there_and_back, usual, bar, middle, options)
    raw = ("middle.deathtensors", ["--no-checksum"])  # both ways
    yield "pt", functools.partial(there_and_back, usual, BAR, *raw, make=sparse_pt, end="pt")
    for label, target, options, more in (
        ("onnx beside", "out.onnx", [], {}),
        ("to pt", "out.pt", [], {}),
        ("from pt", "out.deathtensors", ["--no-checksum"], {"make": sparse_pt, "end": "pt"}),
    ):
        yield f"4 GiB {label}", functools.partial(there, 4 * GIB, target, options, **more)
    yield "foreign zstd", foreign_zstd
    yield "many tensors", many_tensors


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite.full), jobs=1))
