"""Attacks on GGUF (G01 to G11); G10, every scale of every block dtype, is core/test/test_block.c."""

import struct

from attacks import Input, cuts, row
from files import Tensor, f32
from gguf_files import (
    ARRAY,
    BOOL,
    DTYPES,
    I64,
    STRING,
    U8,
    U32,
    U64,
    array,
    entry,
    gguf,
    pair,
    raw,
    string,
)
from harness import INVALID, OK, STACKS, UNSAFE, UNSUPPORTED

FILE = "in.gguf"
TARGET = "out.gguf"
T = {"t": f32(1, 2, 3, 4, shape=[2, 2])}
ARCHITECTURE = pair("general.architecture", STRING, string("llama"))
DATA = T["t"].data
GOOD = gguf(T, [ARCHITECTURE])
PADDED = gguf({"t": f32(1, 2, 3)}, [ARCHITECTURE])


def one(dims=(2, 2), number=0, offset=0, data=DATA, **lies):
    """A file of one tensor, whose entry may lie."""
    return raw([ARCHITECTURE], [entry("t", dims, number, offset)], data, **lies)


def with_pair(*pairs):
    return gguf(T, pairs)


def two(first, second):
    return raw([], [entry("a", [2, 2], 0, first), entry("b", [2, 2], 0, second)], bytes(128))


@row("G01", INVALID, FILE, target=TARGET)
def cut_files():
    yield from cuts(gguf({"t": Tensor("I8", [32], bytes(32))}, [ARCHITECTURE]))
    for length in range(1, 21):
        yield Input(f"padding without {length}", PADDED[:-length], OK, commands=("hash",))
    yield Input("padding and a byte", PADDED[:-21], commands=("hash",))


@row("G02", INVALID, FILE, target=TARGET)
def counts():
    for number in (2**64 - 1, 2**63, 2**40):
        yield Input(f"{number} tensors", one(tensors=number), seconds=1)
        yield Input(f"{number} pairs", one(count=number), seconds=1)
    yield Input("tensors, one too many", raw([], [], bytes(47), tensors=2))
    yield Input("pairs, one too many", raw([], [], bytes(25), count=2))


@row("G03", INVALID, FILE, target=TARGET)
def strings():
    for length in (2**63, 2**64 - 1, len(GOOD)):
        lie = string(b"x", length)
        yield Input(f"key of {length}", raw([lie + struct.pack("<I", U8) + b"\0"], data=bytes(64)))
        yield Input(f"value of {length}", with_pair(pair("k", STRING, lie)))
        yield Input(f"element of {length}", with_pair(pair("k", ARRAY, array(STRING, [lie]))))
        name = lie + struct.pack("<IQQIQ", 2, 2, 2, 0, 0)
        yield Input(f"name of {length}", raw([], [name], DATA))


def nested(depth):
    """An array in an array, so many times."""
    return struct.pack("<IQ", ARRAY, 1) * (depth - 1) + array(U8, [7])


@row("G04", INVALID, FILE, target=TARGET)
def arrays():
    yield Input("2^61 U64", with_pair(pair("k", ARRAY, array(U64, [], 2**61))))
    yield Input("2^40 strings", with_pair(pair("k", ARRAY, array(STRING, [], 2**40))))
    yield Input("2^32 arrays", with_pair(pair("k", ARRAY, array(ARRAY, [], 2**32))))
    yield Input("nested 2", with_pair(pair("k", ARRAY, nested(2))), OK, tensors=T)
    yield Input("nested 100", with_pair(pair("k", ARRAY, nested(100))), OK, tensors=T)
    for depth in (101, 1100, 1_000_000):
        deep = with_pair(pair("k", ARRAY, nested(depth)))
        for label, prefix in STACKS.items():
            yield Input(f"nested {depth}{label}", deep, UNSAFE, prefix=prefix)


@row("G05", INVALID, FILE, target=TARGET)
def alignments():
    for number in (0, 3, 48, 2**31):
        yield Input(f"{number}", with_pair(pair("general.alignment", U32, number)))
    yield Input("as U64", with_pair(pair("general.alignment", U64, 32)))
    twice = pair("general.alignment", U32, 32)
    yield Input("twice", with_pair(twice, twice))
    odd = {"a": Tensor("I8", [3], b"abc"), "b": f32(1, 2)}
    odd_file = gguf(odd, [pair("general.alignment", U32, 1)], alignment=1)
    yield Input("1, F32 at an odd address", odd_file, OK, tensors=odd)


@row("G06", INVALID, FILE, target=TARGET)
def offsets():
    yield Input("overlap", two(0, 0))
    yield Input("a hole", two(0, 64))
    yield Input("backwards", two(32, 0))
    yield Input("misaligned", two(0, 16))
    yield Input("2^64-32", one(offset=2**64 - 32))
    empty = raw([], [entry("e", [3, 0], 0, 0), entry("t", [2, 2], 0, 0)], DATA)
    yield Input("an empty one at its neighbour's", empty, OK, tensors={"e": f32(shape=[0, 3]), **T})


@row("G07", INVALID, FILE, target=TARGET)
def dimensions():
    large = 2**40
    for dims in ([large, large], [large, large, 0], [large, 0, large], [0, large, large], [2**62], [2**63]):
        yield Input("x".join(map(str, dims)), one(dims))
        yield Input("Q8_0 " + "x".join(map(str, dims)), one(dims, DTYPES["Q8_0"][0]))


@row("G08", UNSUPPORTED, FILE, target=TARGET)
def unknown():
    yield Input("five dimensions", one([1, 1, 1, 2, 2]), message="5 dimensions")
    many = string("t") + struct.pack("<IQQIQ", 2**32 - 1, 2, 2, 0, 0)
    yield Input("2^32-1 dimensions", raw([], [many], DATA), message="4294967295 dimensions")
    for number in (4, 5, 9, 15, 31, 32, 33, 36, 37, 38, 43, 2**32 - 1):
        yield Input(f"type {number}", one(number=number), message=f"number {number}")
    yield Input("version 1", one(version=1), message="version 1")
    yield Input("version 4", one(version=4), message="version 4")
    yield Input("version 0", one(version=0), INVALID)
    yield Input("big-endian", b"GGUF" + struct.pack(">IQQ", 3, 1, 0) + bytes(64), message="big-endian")
    for magic in (b"lmgg", b"fmgg", b"tjgg"):
        yield Input(magic.decode(), magic + GOOD[4:], message=magic[::-1].decode())


@row("G09", INVALID, FILE, target=TARGET)
def values():
    q4_0 = DTYPES["Q4_0"][0]
    yield Input("rows of 48", one([48, 2], q4_0, data=bytes(54)))
    yield Input("rows of 16", one([16, 2], q4_0, data=bytes(18)))
    yield Input("value type 13", with_pair(pair("k", 13, b"\0")))
    yield Input("array of type 13", with_pair(pair("k", ARRAY, struct.pack("<IQ", 13, 0))))
    yield Input("bool 2", with_pair(pair("k", BOOL, b"\2")))
    yield Input("bool 2 in an array", with_pair(pair("k", ARRAY, array(U8, [2]).replace(b"\0", b"\7", 1))))
    yield Input("duplicate key", with_pair(ARCHITECTURE, ARCHITECTURE))
    yield Input("duplicate name", raw([], [entry("t", [2, 2], 0, 0), entry("t", [2, 2], 0, 32)], bytes(64)))
    yield Input("empty key", with_pair(string("") + struct.pack("<IB", U8, 1)))
    for name in (b"\xff", b"a\0b"):
        label = repr(name)
        yield Input(f"name {label}", raw([], [entry(name, [2, 2], 0, 0)], DATA))
        yield Input(f"key {label}", with_pair(pair(string(name), U8, 1)))


def many_tensors(folder):
    entries = [entry(f"t{i}", [1], DTYPES["I8"][0], 32 * i) for i in range(200_000)]
    (folder / FILE).write_bytes(raw([], entries, bytes(32 * len(entries))))


def many_pairs(folder):
    (folder / FILE).write_bytes(gguf(T, [pair(f"k{i}", I64, i) for i in range(1_000_000)]))


def many_tokens(folder):
    tokens = [string(f"token {i}") for i in range(150_000)]
    (folder / FILE).write_bytes(gguf(T, [pair("tokenizer.ggml.tokens", ARRAY, array(STRING, tokens))]))


@row("G11", OK, FILE, commands=("hash",), target=TARGET)
def large():
    yield Input("200,000 tensors", many_tensors, seconds=5)
    yield Input("1 M pairs", many_pairs, seconds=5, tensors=T)
    yield Input("150,000 tokens", many_tokens, seconds=5, tensors=T)
