"""Attacks on .safetensors (S01 to S18)."""

import functools
import json
import struct

from attacks import Input, cuts, row
from files import Tensor, compact, f32, safetensors, safetensors_raw
from harness import INVALID, MIB, OK, UNSAFE, UNSUPPORTED

FILE = "in.safetensors"
TWO = {"a": f32(1, 2), "b": f32(3)}


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


ENTRY = compact(entry())


def header(text, data=bytes(4)):
    """A file whose header is this text."""
    return safetensors_raw(text, data)


# Shared with the deathtensors container, by label: tensors' text, dimensions, shapes, ways to
# spoil a header's text.

DUPLICATES = {
    "a name": f'"a":{ENTRY},"a":{ENTRY}',
    "a name, escaped": f'"a":{ENTRY},"\\u0061":{ENTRY}',
    "dtype": '"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}',
    "shape": '"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}',
}
BAD_DIMENSIONS = (
    str(2**63),
    str(2**64 - 1),
    "9" * 400,
    "-1",
    "1.0",
    "1e2",
    '"2"',
    "true",
    "null",
    "[1]",
    "01",
    "+1",
    "",
)
BAD_SHAPES = {
    "2**64 bytes": "[2,9223372036854775807]",
    "2**64 + 4 bytes": "[4611686018427387905]",
    "zero first": f"[0,{2**40},{2**40}]",
    "zero last": f"[{2**40},{2**40},0]",
}
BAD_TEXT = {
    "not UTF-8": lambda text: text.replace(b'"a"', b'"\xff"'),
    "overlong UTF-8": lambda text: text.replace(b'"a"', b'"\xc0\x80"'),
    "surrogate in UTF-8": lambda text: text.replace(b'"a"', b'"\xed\xa0\x80"'),
    "BOM": lambda text: b"\xef\xbb\xbf" + text,
    "NUL after the text": lambda text: text + b"\0",
    "text after the text": lambda text: text + b"{}",
    "comment": lambda text: text.replace(b"{", b"{//x\n", 1),
    "NaN": lambda text: text.replace(b"[1]", b"[NaN]"),
    "trailing comma": lambda text: text[:-1] + b",}",
    "single quotes": lambda text: text.replace(b'"', b"'"),
    "raw newline in a name": lambda text: text.replace(b'"a"', b'"\n"'),
    "unknown escape": lambda text: text.replace(b'"a"', b'"\\x"'),
    "a list": lambda text: b"[" + text + b"]",
}


@row("S01", INVALID, FILE)
def cut():
    return cuts(safetensors(TWO))


@row("S02", INVALID, FILE)
def header_length():
    for length in (0, 1, 2**63, 2**64 - 1, 200):
        yield Input(f"{length}", safetensors_raw({"a": entry()}, bytes(4), length))
    yield Input("over the limit", write_long_header, UNSAFE, message="header")


def write_long_header(folder):
    with open(folder / FILE, "wb") as file:
        file.write(struct.pack("<Q", 100_000_001) + b"{}")
        file.truncate(8 + 100_000_001)


@row("S03", OK, FILE)
def leading_whitespace():
    for space in (" ", "\t", "\n", "\r"):
        yield Input(repr(space), header(f'{space}{{"a":{ENTRY}}}'), tensors={"a": f32(0)})


@row("S04", INVALID, FILE)
def duplicates():
    for label, entries in DUPLICATES.items():
        yield Input(label, header("{" + entries + "}"))
    yield Input("__metadata__", header(f'{{"__metadata__":{{}},"__metadata__":{{}},"a":{ENTRY}}}'))
    yield Input("a metadata key", header(f'{{"__metadata__":{{"k":"1","k":"2"}},"a":{ENTRY}}}'))


@row("S05", INVALID, FILE)
def tiling():
    for label, offsets, size in (
        ("hole", [(0, 4), (8, 12)], 12),
        ("overlap", [(0, 4), (2, 6)], 6),
        ("same place", [(0, 4), (0, 4)], 4),
        ("begin > end", [(4, 0), (4, 8)], 8),
        ("data left over", [(0, 4), (4, 8)], 9),
        ("data missing", [(0, 4), (4, 8)], 7),
    ):
        yield Input(
            label,
            safetensors_raw(
                {name: entry(offsets=place) for name, place in zip("ab", offsets)}, bytes(size)
            ),
        )


@row("S06", OK, FILE)
def order_and_alignment():
    one, two = f32(1), f32(2)
    data = one.data + two.data
    yield Input(
        "JSON order",
        safetensors_raw({"b": entry(offsets=(4, 8)), "a": entry()}, data),
        tensors={"a": one, "b": two},
    )
    text = compact({"a": entry("F64", (1,), (0, 8))})
    for pad in range(8):
        yield Input(
            f"unaligned by {pad}",
            safetensors_raw(text + " " * pad, struct.pack("<d", 2.5)),
            tensors={"a": Tensor("F64", [1], struct.pack("<d", 2.5))},
        )
    yield Input(
        "null metadata", header(f'{{"__metadata__":null,"a":{ENTRY}}}'), tensors={"a": f32(0)}
    )


def write_abuse(folder, size):
    """As many tensors as fit, all on the same 16 bytes."""
    piece = compact(entry(shape=(4,), offsets=(0, 16)))
    count = size // (len(piece) + 11)
    with open(folder / FILE, "wb") as file:
        file.write(bytes(8) + b"{")
        for start in range(0, count, 100_000):
            names = range(start, min(start + 100_000, count))
            file.write(
                ",".join(f'"{name:07d}":{piece}' for name in names).encode()
                + (b"," if names.stop < count else b"}")
            )
        length = file.tell() - 8
        file.write(bytes(16))
        file.seek(0)
        file.write(struct.pack("<Q", length))


@row("S07", UNSAFE, FILE, commands=("hash",))
def abuse():
    yield Input("101 MB", functools.partial(write_abuse, size=101_000_000), seconds=2)
    size = 99_000_000
    bar = 64 * MIB + 3 * size  # as for an honest header
    yield Input("99 MB", functools.partial(write_abuse, size=size), INVALID, rss=bar)


@row("S08", {INVALID, UNSAFE}, FILE, commands=("hash",))
def memory_for_json():
    yield Input("a list as metadata", header(b'{"__metadata__":[' + b"{}," * 33_000_000 + b"{}]}"))
    yield Input("lists as a tensor", header(b'{"a":[' + b"[]," * 33_000_000 + b"[]]}"))


@row("S09", INVALID, FILE)
def nesting():
    for label, text in (
        ("lists", b"[" * 100_000),
        ("objects", b'{"a":' * 100_000),
        ("in metadata", b'{"__metadata__":{"k":' + b"[" * 100_000),
        ("in a shape", b'{"a":{"dtype":"F32","shape":' + b"[" * 100_000),
    ):
        yield Input(label, header(text))


@row("S10", INVALID, FILE)
def dimensions():
    for dimension in BAD_DIMENSIONS:
        yield Input(
            dimension[:24] or "missing",
            header(f'{{"a":{{"dtype":"F32","shape":[1,{dimension}],"data_offsets":[0,4]}}}}'),
        )


@row("S11", INVALID, FILE)
def products():
    for label, shape in BAD_SHAPES.items():
        offsets = "[0,0]" if "zero" in label else "[0,4]"
        yield Input(
            label,
            header(
                f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}',
                b"" if "zero" in label else bytes(4),
            ),
        )
    yield Input(
        "U8 of 2**64 + 4",
        header('{"a":{"dtype":"U8","shape":[3689348814741910324,5],"data_offsets":[0,4]}}'),
    )


@row("S12", UNSUPPORTED, FILE)
def dtypes():
    yield Input("F128", safetensors_raw({"a": entry("F128", (1,), (0, 16))}, bytes(16)))
    for dtype, count in (("F4", 3), ("F6_E2M3", 1), ("F6_E3M2", 3)):
        yield Input(
            f"{dtype}, {count} elements",
            safetensors_raw({"a": entry(dtype, (count,), (0, 2))}, bytes(2)),
            INVALID,
        )


@row("S13", INVALID, FILE)
def offsets():
    for text in ("[0]", "[0,4,4]", "[]", '["0","4"]', "[0.0,4.0]", "[0,4e0]", "{}", "null", "4"):
        yield Input(text, header(f'{{"a":{{"dtype":"F32","shape":[1],"data_offsets":{text}}}}}'))
    for missing in ("dtype", "shape", "data_offsets"):
        yield Input(
            f"no {missing}",
            safetensors_raw(
                {"a": {key: value for key, value in entry().items() if key != missing}}, bytes(4)
            ),
        )


@row("S14", INVALID, FILE)
def metadata():
    for value in ("1", "null", "true", "[]", "{}", '{"k":"v"}'):
        yield Input(f"value {value}", header(f'{{"__metadata__":{{"k":{value}}},"a":{ENTRY}}}'))
    for value in ("1", "[]", '"text"'):
        yield Input(f"metadata {value}", header(f'{{"__metadata__":{value},"a":{ENTRY}}}'))


@row("S15", OK, FILE, target="out.safetensors")
def names():
    for label, text, name in (
        ("empty", "", ""),
        ("escape", "\\u001b[31m", "\x1b[31m"),
        ("delete", "\\u007f", "\x7f"),
        ("bidirectional", "\u202e", "\u202e"),
        ("C1 control", "\u009b31m", "\u009b31m"),
        ("next line", "a\u0085b", "a\u0085b"),
        ("line separator", "a\u2028b", "a\u2028b"),
        ("paragraph separator", "a\u2029b", "a\u2029b"),
        ("quote", '\\"\\\\', '"\\'),
    ):
        yield Input(label, header(f'{{"{text}":{ENTRY}}}'), tensors={name: f32(0)})
    yield Input("NUL", header(f'{{"\\u0000":{ENTRY}}}'), INVALID)
    yield Input("lone surrogate", header(f'{{"\\ud800":{ENTRY}}}'), INVALID)
    yield Input(
        "surrogate pair", header(f'{{"\\ud83d\\ude00":{ENTRY}}}'), tensors={"\U0001f600": f32(0)}
    )
    yield Input("1 MB", header(f'{{"{"x" * 1_000_000}":{ENTRY}}}'), UNSAFE, message="name")


@row("S16", INVALID, FILE)
def json_text():
    text = f'{{"a":{ENTRY}}}'.encode()
    for label, spoil in BAD_TEXT.items():
        yield Input(label, header(spoil(text)))


@row("S17", {OK, UNSAFE}, FILE, commands=("hash",))
def a_million_empty_tensors():
    piece = compact(entry(shape=(0,), offsets=(0, 0)))
    yield Input(
        "1,000,000",
        header("{" + ",".join(f'"{name}":{piece}' for name in range(1_000_000)) + "}", b""),
    )


@row("S18", INVALID, FILE)
def metadata_of_one_tensor_again_and_again():
    for count in (2, 20_000):
        maps = ",".join(f'"a":{{"k{n}":"v"}}' for n in range(count))
        text = json.dumps("{" + maps + "}")
        yield Input(
            f"{count} times",
            header(f'{{"__metadata__":{{"tconv.tensor_metadata":{text}}},"a":{ENTRY}}}'),
            message="twice",
        )
