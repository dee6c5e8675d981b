"""Zip archives that readers might see differently: honest ones, with a few fields or pieces changed.

`archive(rng, members)` makes one from names and bytes; the same generator makes the same archives.
"""

import struct
import zlib

from files import deflate

METHODS = (0, 0, 0, 8, 8)
EXTRAS = (
    b"",
    b"",
    b"FB\4\0ZZZZ",  # as torch pads
    b"UT\5\0\3\0\0\0\0",
    struct.pack("<HHQQ", 1, 16, 7, 7),  # zip64 where no field is full
    b"\x01\x00\x00\x00",
    b"zz",
    b"xx\xff\xff",
)
NUMBERS = {
    2: (0, 1, 2, 0xFFFF, 0xFFFE, 20, 46),
    4: (0, 1, 2, 0xFFFFFFFF, 0xFFFFFFFE, 22, 100),
    8: (0, 1, 44, 2**32 - 1, 2**32, 2**63, 2**64 - 1),
}


class Archive:
    """The bytes of an archive, and where its fields of numbers are."""

    def __init__(self, rng):
        self.rng, self.bytes, self.fields = rng, bytearray(), []

    def put(self, layout, *values):
        """Numbers in struct's letters, each noted as a field."""
        for letter, value in zip(layout, values, strict=True):
            size = struct.calcsize("<" + letter)
            self.fields.append((len(self.bytes), size))
            self.bytes += struct.pack("<" + letter, value & ((1 << 8 * size) - 1))

    def member(self, name, data):
        """A local header and its data; returns what the directory's entry needs."""
        rng = self.rng
        method = rng.choice(METHODS)
        packed = deflate(data) if method == 8 else data
        flags = 0x800 if not name.isascii() or rng.random() < 0.1 else 0
        flags |= 8 if rng.random() < 0.15 else 0
        zip64 = rng.random() < 0.15
        crc, offset = zlib.crc32(data), len(self.bytes)
        late = flags & 8 and rng.random() < 0.8
        sizes = (len(packed), len(data))
        extra = rng.choice(EXTRAS) if rng.random() < 0.2 else b""
        if zip64:
            extra = struct.pack("<HHQQ", 1, 16, *(sizes[::-1] if not late else (0, 0))) + extra
        shown = (0xFFFFFFFF,) * 2 if zip64 else (0, 0) if late else sizes
        self.bytes += b"PK\3\4"
        self.put("HHHHH", 45 if zip64 else 20, flags, method, 0, 0x21)
        self.put("IIIHH", 0 if late else crc, *shown, len(name), len(extra))
        self.bytes += name + extra + packed
        if flags & 8:
            self.bytes += rng.choice((b"PK\7\x08", b"PK\7\x08", b""))
            self.put("IQQ" if zip64 else "III", crc, *sizes)
        return name, flags, method, crc, sizes, offset, zip64

    def entry(self, name, flags, method, crc, sizes, offset, zip64):
        rng = self.rng
        zip64 = zip64 if rng.random() < 0.8 else not zip64
        far = zip64 and rng.random() < 0.3
        extra = struct.pack("<HHQQ", 1, 24 if far else 16, sizes[1], sizes[0]) if zip64 else b""
        extra += struct.pack("<Q", offset) if far else b""
        extra += rng.choice(EXTRAS) if rng.random() < 0.1 else b""
        comment = rng.choice((b"", b"", b"", b"note", b"PK\5\6"))
        shown = (0xFFFFFFFF,) * 2 if zip64 else sizes
        self.bytes += b"PK\1\2"
        self.put("HHHHHH", 0x31E, 20, flags, method, 0, 0x21)
        self.put("IIIHHH", crc, *shown, len(name), len(extra), len(comment))
        self.put("HHII", 0, 0, 0, 0xFFFFFFFF if far else offset)
        self.bytes += name + extra + comment

    def end(self, count, start):
        rng = self.rng
        size, position = len(self.bytes) - start, len(self.bytes)
        values = (count, count, size, start)
        if rng.random() < 0.25:
            self.bytes += b"PK\6\6"
            self.put("QHHIIQQQQ", 44, 45, 45, 0, 0, *values)
            self.bytes += b"PK\6\7"
            self.put("IQI", 0, position, 1)
            if rng.random() < 0.7:
                values = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
        comment = rng.choice((b"",) * 4 + (b"a note", b"PK\5\6" + bytes(18), b"PK\6\7" + bytes(16)))
        self.bytes += b"PK\5\6"
        self.put("HHHHIIH", 0, 0, *values, len(comment))
        self.bytes += comment

    def change_field(self):
        at, size = self.rng.choice(self.fields)
        if at + size > len(self.bytes):
            return
        value = int.from_bytes(self.bytes[at : at + size], "little")
        other, width = self.rng.choice(self.fields)
        value = self.rng.choice(
            (
                value + 1, value - 1, value ^ 1 << self.rng.randrange(8 * size),
                self.rng.choice(NUMBERS[size]),
                int.from_bytes(self.bytes[other : other + width], "little"),
            )
        )  # fmt: skip
        self.bytes[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def change_bytes(self):
        """A byte is changed, or some are removed, repeated or put somewhere else."""
        rng, data = self.rng, self.bytes
        at = rng.randrange(len(data) or 1)
        piece = bytes(data[at : at + rng.choice((1, 4, 22, 46, 100))])
        way = rng.randrange(6)
        if way < 3 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif way == 3:
            del data[at : at + len(piece)]
        else:
            place = rng.choice((0, len(data), at))
            data[place:place] = piece if way == 4 else rng.choice((b"PK\5\6", b"junk", bytes(4)))


def archive(rng, members):
    """One archive of these (name, bytes), which may be changed in up to three ways."""
    made = Archive(rng)
    if rng.random() < 0.05:
        made.bytes += b"#!/bin/sh\n"
    entries = [made.member(name, data) for name, data in members]
    if entries and rng.random() < 0.05:
        entries.append(entries[0])
    if rng.random() < 0.05:
        rng.shuffle(entries)
    start = len(made.bytes)
    for entry in entries:
        made.entry(*entry)
    made.end(len(entries), start)
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
        made.change_field() if rng.random() < 0.75 else made.change_bytes()
    return bytes(made.bytes)


def any_members(rng):
    """A few members, some of one name, some that are folders or have odd names."""
    names = (b"a", b"b", b"a", b"d/e.npy", "é".encode(), b"f/", b"A", b"a/", b"", b"x" * 40)
    data = (b"", b"\0", b"abc", b"abc" * 50, bytes(range(100)), b"PK\1\2" + bytes(42))
    return [(rng.choice(names), rng.choice(data)) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))]
