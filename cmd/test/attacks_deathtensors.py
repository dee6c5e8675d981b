"""Attacks on .deathtensors (D01 to D16)."""

import functools
import json
import struct

from attacks import Input, cuts, row
from attacks_safetensors import BAD_DIMENSIONS, BAD_SHAPES, BAD_TEXT, DUPLICATES, ENTRY
from files import (
    CHECKSUM,
    ZSTD,
    deathtensors,
    deathtensors_header,
    deathtensors_raw,
    entries_of,
    f32,
    zstd,
    zstd_stored,
    zstd_zeros,
)
from harness import FEWER, INVALID, MIB, OK, UNSAFE, UNSUPPORTED

FILE = "in.deathtensors"
TWO = {"a": f32(1, 2), "b": f32(3)}
ENTRIES, BLOB = entries_of(TWO)
HEADER = json.dumps(deathtensors_header(ENTRIES)).encode()
ENCRYPTED = 4

deathtensors_row = functools.partial(row, file=FILE, target="out.safetensors")


def raw(blob=BLOB, flags=0, header=HEADER, **lies):
    return deathtensors_raw(header, blob, flags, **lies)


def header_around(entries):
    """A header whose tensors are this text."""
    return (
        b'{"format":"deathtensors","format_version":1,"global_metadata":{},"tensors":{'
        + entries.encode()
        + b"}}"
    )


def header_for(size):
    """A header of one tensor of so many bytes."""
    return header_around(f'"a":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}')


def tiny(flags):
    """A file of two bytes, short enough for a loop over all of it."""
    return raw(zstd(b"\1\2") if flags & ZSTD else b"\1\2", flags, header_for(2))


@deathtensors_row("D01", INVALID)
def cut():
    for flags, label in (
        (0, "raw"),
        (CHECKSUM, "checksum"),
        (ZSTD, "zstd"),
        (ZSTD | CHECKSUM, "zstd and checksum"),
    ):
        yield from cuts(tiny(flags), f"{label} ")


@deathtensors_row("D02", INVALID)
def magic():
    for word in (b"DTLEGIOM", b"dtlegion"):
        yield Input(word.decode(), raw(magic=word))
    yield Input("7 bytes", b"DTLEGIO")


@deathtensors_row("D03", UNSUPPORTED)
def version_and_flags():
    for version in (0, 2, 2**32 - 1):
        yield Input(f"version {version}", raw(version=version))
    for bit in range(3, 32):
        yield Input(f"flag bit {bit}", raw(flags=1 << bit))
    yield Input("all flags", raw(flags=2**32 - 1))


@deathtensors_row("D04", INVALID)
def header_size():
    for size in (0, 10_000, 2**64 - 1, 2**64 - 24, 2**63, len(HEADER) - 1, len(HEADER) + 1):
        yield Input(f"{size}", raw(size=size))


@deathtensors_row("D05", INVALID)
def padding():
    header = HEADER + b" " * (3 - len(HEADER) % 8)
    yield Input("not zero", raw(header=header, pad=b"\0\0\1\0\0"))
    yield Input("missing", raw(header=header, pad=b""))
    yield Input("a block too many", raw(header=header, pad=bytes(13)))


@deathtensors_row("D06", INVALID)
def blob_size():
    for flags in (0, CHECKSUM):
        yield Input(f"1 byte short, flags {flags}", raw(BLOB[:-1], flags))
        yield Input(f"1 byte long, flags {flags}", raw(BLOB + b"\0", flags))
        yield Input(f"zstd, 1 byte short, flags {flags}", raw(zstd(BLOB[:-1]), flags | ZSTD))
        yield Input(f"zstd, 1 byte long, flags {flags}", raw(zstd(BLOB + b"\0"), flags | ZSTD))


@deathtensors_row("D07", INVALID)
def bomb_behind_a_small_header():
    yield Input("256 MiB for 1 KiB", raw(zstd_zeros(256 * MIB), ZSTD, header_for(1024)), seconds=1)


@deathtensors_row("D08", UNSAFE)
def bomb_behind_a_large_header():
    yield Input("256 MiB for 1 TiB", raw(zstd_zeros(256 * MIB), ZSTD, header_for(2**40)), seconds=2)
    yield Input(
        "256 MiB, limit 1 MiB",
        raw(zstd_zeros(256 * MIB), ZSTD, header_for(256 * MIB)),
        options=("--max-size", "1M"),
    )
    yield Input(
        "256 MiB", raw(zstd_zeros(256 * MIB), ZSTD, header_for(256 * MIB)), OK, rss=64 * MIB
    )


@deathtensors_row("D09", UNSAFE)
def windows():
    yield Input("2**31", raw(zstd_stored(BLOB, 31), ZSTD))
    yield Input("2**27", raw(zstd_stored(BLOB, 27), ZSTD), {OK, INVALID}, tensors=TWO)
    yield Input(
        "2**27, nothing inside", raw(zstd_stored(b"", 27), ZSTD, header_for(0)), {OK, INVALID}
    )


@deathtensors_row("D10", INVALID)
def unfinished_frame():
    for flags in (ZSTD, ZSTD | CHECKSUM):
        for missing in (1, 3):
            yield Input(f"{missing} bytes, flags {flags}", raw(zstd(BLOB)[:-missing], flags))


@deathtensors_row("D11", INVALID)
def behind_the_frame():
    for label, extra in (
        ("a second frame", zstd(b"x")),
        ("an empty frame", zstd(b"")),
        ("a skippable frame", b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + bytes(4)),
        ("a million empty frames", zstd_stored(b"") * 1_000_000),
        ("a byte", b"\0"),
    ):
        for flags in (ZSTD, ZSTD | CHECKSUM):
            yield Input(f"{label}, flags {flags}", raw(zstd(BLOB) + extra, flags))


@deathtensors_row("D12", INVALID)
def frame_fields():
    yield Input("checksum", raw(zstd(BLOB, "--check"), ZSTD), OK, tensors=TWO)
    yield Input("wrong checksum", raw(zstd_stored(BLOB, checksum=0x12345678), ZSTD))
    yield Input("dictionary", raw(zstd_stored(BLOB, dictionary=7), ZSTD), UNSUPPORTED)


@deathtensors_row("D13", INVALID, commands=("hash",))
def flipped_bits():
    good = tiny(CHECKSUM)
    for bit in range(0, len(good) * 8, 11 if FEWER else 1):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        yield Input(
            f"bit {bit}", bytes(bad), {INVALID, UNSUPPORTED} if 8 <= bit // 8 < 16 else INVALID
        )


@deathtensors_row("D14", INVALID)
def footers():
    good = raw(flags=CHECKSUM)
    yield Input("flag without footer", good[:-32])
    yield Input("footer without flag", raw(footer=good[-32:]))
    yield Input("31 bytes", good[:-1])
    yield Input("33 bytes", good + b"\0")
    yield Input("zeros", good[:-32] + bytes(32))


@deathtensors_row("D15", UNSUPPORTED)
def encrypted():
    for flags in (ENCRYPTED, ENCRYPTED | CHECKSUM, ENCRYPTED | ZSTD):
        yield Input(f"flags {flags}", raw(flags=flags))


def one_float(header):
    return deathtensors_raw(header, bytes(4))


@deathtensors_row("D16", INVALID)
def json_of_safetensors_rows():
    for label, entries in DUPLICATES.items():
        yield Input(f"S04 {label}", one_float(header_around(entries)))
    for key in (b'"format":"deathtensors"', b'"global_metadata":{}'):
        yield Input(
            f"S04 {key.decode()}",
            one_float(header_around(f'"a":{ENTRY}').replace(key, key + b"," + key)),
        )
    for label, text in (("lists", b"[" * 100_000), ("objects", b'{"a":' * 100_000)):
        yield Input(f"S09 {label}", deathtensors_raw(text))
    for dimension in BAD_DIMENSIONS:
        yield Input(
            f"S10 {dimension[:24]}",
            one_float(
                header_around(f'"a":{{"dtype":"F32","shape":[1,{dimension}],"data_offsets":[0,4]}}')
            ),
        )
    for label, shape in BAD_SHAPES.items():
        end = 0 if "zero" in label else 4
        yield Input(
            f"S11 {label}",
            deathtensors_raw(
                header_around(f'"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}'),
                bytes(end),
            ),
        )
    for label, spoil in BAD_TEXT.items():
        yield Input(f"S16 {label}", one_float(spoil(header_around(f'"a":{ENTRY}'))))


@deathtensors_row("D16", {INVALID, UNSAFE}, commands=("hash",))
def memory_for_json():
    yield Input(
        "S08",
        deathtensors_raw(
            b'{"format":"deathtensors","format_version":1,"global_metadata":['
            + b"{}," * 33_000_000
            + b"{}]}"
        ),
    )


@deathtensors_row("D17", INVALID)
def places_in_the_blob():
    """Gaps are accepted, overlaps are not, and the blob ends where its last tensor does."""

    def places(*offsets):
        return deathtensors_raw(
            deathtensors_header(
                {
                    name: {"dtype": "F32", "shape": [1], "data_offsets": list(place)}
                    for name, place in zip("ab", offsets)
                }
            ),
            bytes(12),
        )

    yield Input("gap", places((0, 4), (8, 12)), OK, tensors={"a": f32(0), "b": f32(0)})
    yield Input("overlap", places((0, 4), (2, 6)))
    yield Input("same place", places((8, 12), (8, 12)))
    yield Input("end before the blob's", places((0, 4), (4, 8)))
    yield Input("past the blob", places((0, 4), (12, 16)))
    yield Input("begin > end", places((4, 0), (8, 12)))
    yield Input("empty name", deathtensors({"": f32(1)}))
    yield Input("long name", deathtensors({"x" * 4097: f32(1)}), {INVALID, UNSAFE})
