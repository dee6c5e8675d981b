"""Attacks on ONNX models and tensors (X01 to X16)."""

import functools
import os
import struct

from attacks import Input, cuts, row
from files import Tensor, f32
from harness import FULL, INVALID, IO, MIB, OK, SANITIZED, UNSAFE, UNSUPPORTED
from protobufs import (
    DATA_TYPES,
    MINUS_ONE,
    OPSET,
    STRING,
    attribute,
    block,
    constant,
    external,
    fixed32,
    fixed64,
    initializer,
    model,
    node,
    number,
    onnx,
    packed,
    pair,
    pb,
    shape_of,
    tag,
    tensor_proto,
    varint,
)

FILE = "in.onnx"
THREE = f32(1, 2, 3)
ONE = {"w": THREE}
BESIDE = "data"


def of(data, tensor=THREE, name="w"):
    """A model of one tensor whose data are these fields."""
    return model(initializer(tensor, name, data))


def with_data(content, *more):
    """Writes the model, and THREE's data beside it; `more` are functions of the folder."""

    def write(folder):
        (folder / FILE).write_bytes(content)
        (folder / BESIDE).write_bytes(THREE.data)
        for each in more:
            each(folder)

    return write


def name_it_dash(folder):
    (folder / BESIDE).rename(folder / "-")


@row("X01", UNSAFE, FILE)
def locations():
    for location in (
        "../../etc/passwd",
        "a/../../x",
        "/etc/passwd",
        "C:\\x",
        "",
        "data\0.txt",
        "..",
        "../data",
        "a/../data",
        "..\\data",
        "\\\\server\\share",
        "//etc/passwd",
        "data/..",
    ):
        yield Input(f"{location!r}", with_data(of(external(location))))
        yield Input(f"{location!r} .pb", tensor_proto(THREE, "w", external(location)), file="in.pb")
    yield Input(
        "in a constant",
        model(constant("c", "value", block(5, tensor_proto(THREE, "w", external("../x"))))),
    )
    sparse = block(1, tensor_proto(THREE, "s")) + block(
        2, tensor_proto(Tensor("I64", [3], b""), "i", external("../x"))
    )
    yield Input("in a sparse tensor's indices", model(block(15, sparse + number(3, 9))))
    yield Input(
        "in a subgraph",
        model(node(attribute("g", block(6, initializer(THREE, "w", external("/x")))))),
    )


def make_fifo(folder):
    os.mkfifo(folder / "special")


def make_folder(folder):
    (folder / "special").mkdir()


def link(target, folder):
    (folder / "special").symlink_to(target)


@row("X02", UNSAFE, FILE)
def special_files():
    special = of(external("special"))
    yield Input("FIFO", with_data(special, make_fifo))
    yield Input("/dev/zero", with_data(of(external("/dev/zero"))))
    yield Input("folder", with_data(special, make_folder))
    yield Input("the model's own folder", with_data(of(external("."))))
    yield Input("link to /dev/zero", with_data(special, functools.partial(link, "/dev/zero")))
    yield Input("link to a folder", with_data(special, functools.partial(link, "/etc")))
    yield Input(
        "link to a plain file", with_data(special, functools.partial(link, BESIDE)), OK, tensors=ONE
    )
    yield Input(
        "link to nothing",
        with_data(special, functools.partial(link, "none")),
        IO,
        mention="special",
    )
    yield Input("nothing", with_data(of(external("none"))), IO, mention="none")
    yield Input("itself", with_data(of(external(FILE, "0"))), {OK, INVALID, UNSAFE})
    # A file's name, never standard input.
    yield Input("-", with_data(of(external("-")), name_it_dash), OK, tensors=ONE)
    yield Input("- not there", with_data(of(external("-"))), IO, mention="-")


@row("X03", INVALID, FILE)
def offsets_and_lengths():
    for text in (
        "-1",
        "1e3",
        "0x10",
        "",
        " 0",
        "0 ",
        "+0",
        "0.0",
        "zero",
        "9" * 30,
        str(2**63),
        str(2**64),
    ):
        yield Input(f"offset {text!r}", with_data(of(external(BESIDE, text))))
        yield Input(f"length {text!r}", with_data(of(external(BESIDE, "0", text))))
    for offset in (1, 12, 13, 2**62, 2**63 - 1, 2**63 - 12):
        yield Input(f"offset {offset} of 12", with_data(of(external(BESIDE, str(offset), "12"))))
        yield Input(
            f"offset {offset} of 12, no length", with_data(of(external(BESIDE, str(offset))))
        )
    for length in (0, 11, 13, 2**63 - 1):
        yield Input(f"length {length} for 12", with_data(of(external(BESIDE, "0", str(length)))))
    four = f32(1, 2, 3, 4)
    yield Input("more than the file has", with_data(of(external(BESIDE), four)))
    yield Input(
        "as long as said, longer than the file", with_data(of(external(BESIDE, "0", "16"), four))
    )
    yield Input("what is right", with_data(of(external(BESIDE, "0", "12"))), OK, tensors=ONE)
    # What is skipped has bounds too: a loader that knows its type reads there.
    unread = {
        "text": (Tensor("F32", [3], b""), number(2, STRING)),
        "a type of the future": (Tensor("F32", [3], b""), number(2, 99)),
        "rank 65": (Tensor("F32", [1] * 65, b""), number(2, 1)),
        "half a byte": (Tensor("U4", [3], b""), number(2, 21)),
    }
    for label, (tensor, kind) in unread.items():
        shape = b"".join(number(1, size) for size in tensor.shape)
        for what, place, outcome in (
            ("within", external(BESIDE, "0", "12"), OK),
            ("past the end", external(BESIDE, "4", "12"), INVALID),
            ("behind the end", external(BESIDE, "13"), INVALID),
            ("above the folder", external("../x"), UNSAFE),
            ("in no file", external("none"), IO),
        ):
            odd = block(5, shape + kind + block(8, "odd") + place)
            both = model(initializer(THREE, "w") + odd)
            tensors = ONE if outcome == OK else None
            mention = "none" if outcome == IO else None
            yield Input(
                f"{label} {what}", with_data(both), outcome, tensors=tensors, mention=mention
            )
            chosen = ("--exclude", "odd")
            yield Input(
                f"{label} {what}, excluded", with_data(both), OK, options=chosen, tensors=ONE,
                commands=("convert",),
            )


@row("X04", INVALID, FILE)
def external_keys():
    for key in ("location", "offset", "length", "checksum"):
        value = BESIDE if key == "location" else "0" if key == "offset" else "12"
        twice = [(key, value)] * (2 if key == "checksum" else 1)
        yield Input(f"{key} twice", with_data(of(external(BESIDE, "0", "12", twice))))
    for key in ("basepath", "Location", "location ", "", "__class__", "length\0"):
        yield Input(f"key {key!r}", with_data(of(external(BESIDE, more=[(key, "x")]))))
    yield Input("no location", with_data(of(pair(13, "offset", "0") + number(14, 1))))
    yield Input("no keys", with_data(of(number(14, 1))))
    yield Input(
        "checksum",
        with_data(of(external(BESIDE, more=[("checksum", "0" * 40)]))),
        OK,
        tensors=ONE,
    )
    yield Input("data_location 2", with_data(of(pair(13, "location", BESIDE) + number(14, 2))))
    yield Input("data_location default", with_data(of(pair(13, "location", BESIDE))))


def nested(depth, content):
    """A graph's fields with `content` in the innermost of this many graphs below it."""
    heads, size = [], len(content)
    for _ in range(depth):
        for field in (6, 5, 1):  # graph, attribute, node
            head = tag(field, 2) + varint(size)
            heads.append(head)
            size += len(head)
    return b"".join(reversed(heads)) + content


@row("X05", UNSAFE, FILE)
def nesting():
    content = initializer(THREE, "w")
    yield Input(
        "12,000 subgraphs", model(nested(12_000, content)), message="100 deep", rss=64 * MIB
    )
    yield Input("12,000 subgraphs and nothing else", model(nested(12_000, b"")))
    yield Input(
        "12,000 in a function",
        model(content, behind=block(25, nested(12_000, b"").replace(b"\x0a", b"\x3a", 1))),
    )
    yield Input("101 subgraphs", model(nested(101, content)))
    yield Input("100 subgraphs", model(nested(100, content)), OK)
    yield Input(
        "12,000 messages that nobody reads", model(block(13, nested(12_000, b"")) + content), OK
    )


# Bytes in messages of two: what took a pointer for each would take over the bar of 64 MiB already.
MANY = 100_000_000 if FULL else 4_000_000 if SANITIZED else 18_000_000
CHUNK = 1_000_000


def write_many(folder, head, piece, tail, file=FILE):
    """A file with many bytes of one piece in the middle."""
    count = CHUNK // len(piece)
    with open(folder / file, "wb") as out:
        out.write(head)
        for _ in range(MANY // CHUNK):
            out.write(piece * count)
        out.write(tail)


@row("X06", {OK, UNSAFE}, FILE)
def many_small_messages():
    content = initializer(THREE, "w")
    size = MANY

    def graph_of(piece):
        """Pieces in the graph, then the initializer."""
        head = number(1, 8) + tag(7, 2) + varint(size + len(content))
        return functools.partial(write_many, head=head, piece=piece, tail=content + OPSET)

    def below(outer, piece):
        """Pieces in a message of the graph, then the initializer."""
        middle = tag(outer, 2) + varint(size)
        head = number(1, 8) + tag(7, 2) + varint(size + len(middle) + len(content)) + middle
        return functools.partial(write_many, head=head, piece=piece, tail=content + OPSET)

    flat = {"rss": 64 * MIB, "tensors": ONE, "timeout": 100}
    yield Input("empty nodes", graph_of(block(1, b"")), **flat)
    yield Input("empty value_info", graph_of(block(13, b"")), **flat)
    yield Input("unknown messages", graph_of(block(14, b"")), **flat)
    yield Input("unknown numbers", graph_of(number(14, 0)), **flat)
    yield Input("empty attributes of a node", below(1, block(5, b"")), **flat)
    yield Input("empty inputs of a node", below(1, block(1, b"")), **flat)
    for label, piece in (("messages", block(15, b"")), ("numbers", number(15, 0))):
        yield Input(
            f"unknown {label} of the model",
            functools.partial(write_many, head=number(1, 8), piece=piece, tail=model(content)[2:]),
            **flat,
        )
    count = size // 2
    tensor = shape_of([count]) + number(2, DATA_TYPES["BOOL"]) + block(8, "w")
    held = tag(5, 2) + varint(len(tensor) + size) + tensor
    graph = tag(7, 2) + varint(len(held) + size) + held
    yield Input(
        "a list of numbers, one by one",
        functools.partial(
            write_many,
            head=number(1, 8) + OPSET + graph,
            piece=number(5, 1),
            tail=b"",
        ),
        OK,
        rss=64 * MIB,
        printed=f"  BOOL  [{count}]  ",
        commands=("hash",),
        timeout=100,
    )


DAMAGES = {
    "11 bytes": tag(15, 0) + b"\x80" * 10 + b"\1",
    "a tag of 6 bytes": b"\xf8" + b"\x80" * 4 + b"\0\1",
    "a length of 6 bytes": tag(15, 2) + b"\x80" * 5 + b"\0",
    "tag 0": b"\0\1",
    "field 0": b"\2\0",
    "field 2**29": varint(2**32) + b"\1",
    "type 3": tag(15, 3),
    "type 3 and its end": tag(15, 3) + tag(15, 4),
    "type 4": tag(15, 4),
    "type 6": tag(15, 6) + b"\0",
    "type 7": tag(15, 7) + b"\0",
    "length 2**63": tag(15, 2) + varint(2**63),
    "length 2**64 - 1": tag(15, 2) + varint(MINUS_ONE),
    "length 2**31": tag(15, 2) + varint(2**31),
    "longer than its parent": block(15, b"", 100),
    "a tag alone": tag(15, 0),
    "half a number": tag(15, 1) + b"\0\0\0\0",
}


@row("X07", INVALID, FILE)
def wire_format():
    content = initializer(THREE, "w")
    for label, damage in DAMAGES.items():
        yield Input(f"{label} in the graph", model(content + damage))
        yield Input(f"{label} behind it", number(1, 8) + OPSET + block(7, content) + damage)
        yield Input(f"{label} before it", model(damage + content))
        yield Input(
            f"{label} in a tensor", model(initializer(THREE, "w", block(9, THREE.data) + damage))
        )
        yield Input(f"{label} in a node", model(content + block(1, damage)))
        yield Input(f"{label} in an attribute", model(content + node(block(5, damage))))
        yield Input(f"{label} in metadata", model(content, behind=block(14, damage)))
        yield Input(f"{label} in .pb", tensor_proto(THREE, "w") + damage, file="in.pb")
    yield Input(
        "child longer than its parent",
        number(1, 8) + OPSET + block(7, block(5, tensor_proto(THREE, "w"), 60), 24) + bytes(60),
    )
    yield Input(
        "graph longer than the file", number(1, 8) + OPSET + block(7, content, len(content) + 1)
    )


def stretched(value, size):
    """A number in more bytes than it needs, as protobuf's own parsers take it."""
    return bytes(value >> 7 * i & 0x7F | 0x80 for i in range(size - 1)) + b"\0"


@row("X07b", OK, FILE)
def numbers_longer_than_they_need_be():
    for size in range(2, 11):
        dims = tag(1, 0) + stretched(3, size)
        kind = tag(2, 0) + stretched(1, size)
        content = dims + kind + block(8, "w") + block(9, THREE.data)
        yield Input(f"a number of {size}", model(block(5, content)), tensors={"w": THREE})
        values = b"".join(stretched(value, size) for value in (1, 2, 3))
        integers = number(1, 3) + number(2, 6) + block(8, "w") + block(5, values)
        three = Tensor("I32", [3], struct.pack("<3i", 1, 2, 3))
        yield Input(f"values of {size}", model(block(5, integers)), tensors={"w": three})
    for size in range(2, 6):
        content = stretched(9 << 3 | 2, size) + stretched(12, size) + THREE.data
        content += number(1, 3) + number(2, 1) + block(8, "w")
        yield Input(f"a tag and a length of {size}", model(block(5, content)), tensors={"w": THREE})


@row("X08", INVALID, FILE)
def shapes():
    empty = block(9, b"")

    def shaped(*sizes, data=empty):
        return model(initializer(Tensor("F32", sizes, b""), "w", data))

    largest = 2**63 - 1
    yield Input("-1", shaped(MINUS_ONE))
    yield Input("-1 among others", shaped(2, MINUS_ONE, 2))
    yield Input("-1 beside 0", shaped(0, MINUS_ONE))
    yield Input("-2**63", shaped(2**63))
    yield Input("2**63 - 1 twice", shaped(largest, largest))
    for sizes in ((0, largest, largest), (largest, 0, largest), (largest, largest, 0)):
        yield Input(f"{sizes}", shaped(*sizes))
    yield Input("2**62 without data", shaped(2**62))
    yield Input("2**40 without data", shaped(2**40))
    many_sizes = packed(1, [1] * 1_000_000)
    tensor = many_sizes + number(2, 1) + block(8, "w") + block(9, bytes(4))
    yield Input("1 M dims", model(block(5, tensor)), UNSUPPORTED, rss=64 * MIB)
    yield Input(
        "1 M dims one by one", shaped(*[1] * 1_000_000, data=block(9, bytes(4))), UNSUPPORTED
    )
    yield Input("65 dims", shaped(*[1] * 65, data=block(9, bytes(4))), UNSUPPORTED)
    yield Input("64 dims", shaped(*[1] * 64, data=block(9, bytes(4))), OK)


@row("X09", INVALID, FILE)
def places_for_data():
    raw = block(9, THREE.data)
    floats = block(4, THREE.data)
    yield Input("none", of(b""))
    yield Input("a byte short", of(block(9, THREE.data[:-1])))
    yield Input("a byte long", of(block(9, THREE.data + b"\0")))
    yield Input("empty", of(block(9, b"")))
    yield Input("raw_data and float_data", of(raw + floats))
    yield Input("float_data and raw_data", of(floats + raw))
    yield Input("raw_data twice", of(raw + raw))
    yield Input("raw_data and external data", with_data(of(raw + external(BESIDE))))
    yield Input("float_data and external data", with_data(of(floats + external(BESIDE))))
    yield Input("float_data and int32_data", of(floats + packed(5, [1, 2, 3])))
    yield Input("one float too few", of(block(4, THREE.data[:-4])))
    yield Input("one float too many", of(block(4, THREE.data + bytes(4))))
    yield Input("half a float", of(block(4, THREE.data[:-2])))
    yield Input("floats as numbers", of(number(4, 1) * 3))
    fields = {4: bytes(8), 10: bytes(16), 5: b"\1\1", 7: b"\1\1", 11: b"\1\1"}
    homes = {"F32": 4, "C64": 4, "F64": 10, "C128": 10, "I64": 7, "U32": 11, "U64": 11}
    for dtype in DATA_TYPES:
        if dtype.startswith("F6_"):
            continue
        for field, data in fields.items():
            if field != homes.get(dtype, 5):
                tensor = Tensor(dtype, [2], b"")
                yield Input(f"{dtype} in field {field}", of(block(field, data), tensor))
    yield Input("text for floats", of(block(6, "1") * 3))


@row("X10", OK, FILE)
def lists():
    data = THREE.data
    singles = [fixed32(4, value) for value in (1, 2, 3)]
    doubles = Tensor("F64", [2], struct.pack("<2d", 1, -2))
    ints = Tensor("I32", [3], struct.pack("<3i", 1, -2, 300))
    wide = Tensor("I64", [3], struct.pack("<3q", 1, -(2**63), 300))
    large = Tensor("U64", [2], struct.pack("<2Q", 2**64 - 1, 0))
    for label, tensor, fields in (
        ("float_data packed", THREE, block(4, data)),
        ("float_data one by one", THREE, b"".join(singles)),
        ("float_data mixed", THREE, singles[0] + block(4, data[4:])),
        ("float_data in pieces", THREE, block(4, data[:4]) + block(4, b"") + block(4, data[4:])),
        ("double_data one by one", doubles, fixed64(10, 1) + fixed64(10, -2)),
        ("double_data mixed", doubles, fixed64(10, 1) + block(10, doubles.data[8:])),
        ("int32_data packed", ints, packed(5, [1, -2, 300])),
        ("int32_data one by one", ints, number(5, 1) + number(5, -2) + number(5, 300)),
        ("int32_data mixed", ints, packed(5, [1]) + number(5, -2) + packed(5, [300])),
        ("int64_data mixed", wide, number(7, 1) + packed(7, [-(2**63), 300])),
        ("uint64_data mixed", large, packed(11, [2**64 - 1]) + number(11, 0)),
        ("fields in between", THREE, singles[0] + number(15, 9) + block(4, data[4:])),
        ("an empty raw_data", THREE, block(9, b"") + block(4, data)),
    ):
        yield Input(label, of(fields, tensor), tensors={"w": tensor})
        lone = tensor_proto(tensor, "w", fields)
        yield Input(f"{label} .pb", lone, file="in.pb", tensors={"w": tensor})
    yield Input(
        "int64_data packed .pb",
        tensor_proto(wide, "w", packed(7, [1, -(2**63), 300])),
        file="in.pb",
        tensors={"w": wide},
    )
    sizes = Tensor("F32", [1, 3], data)
    for label, dims in (
        ("dims packed", packed(1, [1, 3])),
        ("dims one by one", number(1, 1) + number(1, 3)),
        ("dims mixed", packed(1, [1]) + number(1, 3)),
    ):
        tensor = dims + number(2, 1) + block(8, "w") + block(9, data)
        yield Input(label, model(block(5, tensor)), tensors={"w": sizes})
    for label, content in (
        ("ints one by one", number(8, 1) + number(8, -(2**63)) + number(8, 300)),
        ("ints packed", packed(8, [1, -(2**63), 300])),
        ("ints mixed", number(8, 1) + packed(8, [-(2**63), 300])),
    ):
        yield Input(label, model(constant("c", "value_ints", content)), tensors={"c": wide})


@row("X11", OK, FILE, target="out.onnx")
def values_out_of_range():
    """They wrap, as in ONNX's own library; the low bytes are what is left."""
    for dtype, value in (
        ("F16", 70_000),
        ("F16", -1),
        ("BF16", 65_536),
        ("BOOL", 2),
        ("BOOL", -1),
        ("I8", 300),
        ("I8", 128),
        ("I8", -129),
        ("U8", 256),
        ("U8", -1),
        ("I16", 32_768),
        ("I16", -32_769),
        ("U16", 65_536),
        ("U16", -1),
        ("I32", 2**31),
        ("I32", -(2**31) - 1),
        ("F8_E4M3", 256),
        ("F8_E8M0", -1),
        ("I4", 256),
        ("U4", -1),
        ("F4", 256),
    ):
        tensor = Tensor(dtype, [2] if dtype.endswith("4") else [1], b"")
        size = {"F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I32": 4}.get(dtype, 1)
        low = b"\1" if dtype == "BOOL" else (value % 2**32).to_bytes(4, "little")[:size]
        wrapped = {"w": tensor._replace(data=low)}
        for label, content in (("", number(5, value)), (" packed", packed(5, [value]))):
            yield Input(
                f"{dtype} {value}{label}", of(content, tensor), tensors=wrapped, message="wrap"
            )
    tensor = Tensor("U32", [1], b"")
    yield Input(
        "U32 2**32", of(number(11, 2**32), tensor), tensors={"w": Tensor("U32", [1], bytes(4))}
    )
    yield Input(
        "the last of many",
        of(packed(5, [1] * 99_999 + [2]), Tensor("BOOL", [100_000], b"")),
        tensors={"w": Tensor("BOOL", [100_000], b"\1" * 100_000)},
        message="wrap",
    )
    # Some readers take eight bits of it, others all.
    yield Input("BOOL 256", of(number(5, 256), Tensor("BOOL", [1], b"")), INVALID)


@row("X12b", OK, FILE)
def odd_tensors_among_others():
    """What is no tensor costs its own name, wherever it stands, and nothing else."""
    one = initializer(THREE, "w")
    text = number(1, 1) + number(2, STRING) + block(8, "odd") + block(6, "text")
    odd = {
        "a string initializer": block(5, text),
        "an unknown type": block(5, number(1, 1) + number(2, 99) + block(8, "odd")),
        "a segment": initializer(THREE, "odd", block(3, number(1, 0)) + block(9, THREE.data)),
        "a string constant": constant("odd", "value", block(5, text)),
        "a constant of text": constant("odd", "value_string", block(4, "text")),
        "a list of text": constant("odd", "value_strings", block(9, "a") * 1000),
        "rank 65": initializer(Tensor("F32", [1] * 65, b""), "odd", block(9, bytes(4))),
    }
    for label, content in odd.items():
        for order, graph in (("first", content + one), ("last", one + content)):
            yield Input(f"{label} {order}", model(graph), tensors={"w": THREE}, message='"odd"')
        yield Input(
            f"{label} --strict",
            model(one + content),
            UNSUPPORTED,
            commands=("convert",),
            options=("--strict",),
        )
        yield Input(f"{label} alone", model(content), UNSUPPORTED)


@row("X12", UNSUPPORTED, FILE)
def data_types():
    for kind in (0, STRING, 25, 26, 29, 99, 2**31, MINUS_ONE):
        content = number(1, 1) + number(2, kind) + block(8, "w")
        content += block(6, "text") if kind == STRING else block(9, bytes(4))
        yield Input(f"data_type {kind}", model(block(5, content)))
        yield Input(f"data_type {kind} .pb", content, file="in.pb")
    segment = block(3, number(1, 0) + number(2, 3))
    yield Input("segment", of(segment + block(9, THREE.data)))
    yield Input(
        "segment .pb", tensor_proto(THREE, "w", segment + block(9, THREE.data)), file="in.pb"
    )


@row("X13", INVALID, FILE)
def names():
    one = initializer(THREE, "w")
    yield Input("twice", model(one + one))
    yield Input("twice, with other values", model(one + initializer(f32(4), "w")))
    yield Input("empty", model(initializer(THREE, "")))
    yield Input("none", model(initializer(THREE, None)))
    yield Input("NUL", model(initializer(THREE, "a\0b")))
    yield Input("bad UTF-8", model(initializer(THREE, b"\xff\xfe")))
    yield Input("64 KiB and one", model(initializer(THREE, "x" * 65_537)), UNSAFE)
    yield Input(
        "an initializer and a constant", model(one + constant("w", "value_int", number(3, 1)))
    )
    branch = node(attribute("then_branch", block(6, initializer(f32(4), "w"))), "y", "if", "If")
    yield Input(
        "main graph and subgraph",
        model(one + branch),
        OK,
        tensors={"w": THREE, "if.then_branch.w": f32(4)},
        target="out.safetensors",
    )
    yield Input(
        "a subgraph's path that is taken",
        model(initializer(THREE, "if.then_branch.w") + branch),
        INVALID,
    )


@row("X14", INVALID, FILE)
def concatenated():
    one = onnx(ONE)
    yield Input("two models", one + one)
    yield Input("two different models", one + onnx({"x": f32(4)}))
    yield Input("a model and a graph", one + block(7, b""))
    yield Input("two tensors", pb(ONE) + pb(ONE), file="in.pb")


@row("X15", OK, FILE, commands=("hash",))
def beyond_two_gib():
    size = 2**31 + 16
    tensor = (
        shape_of([size]) + number(2, DATA_TYPES["U8"]) + block(8, "w") + tag(9, 2) + varint(size)
    )
    held = tag(5, 2) + varint(len(tensor) + size) + tensor
    head = number(1, 8) + OPSET + tag(7, 2) + varint(len(held) + size) + held

    def write(folder, head, file=FILE):
        with open(folder / file, "wb") as out:
            out.write(head)
            out.truncate(len(head) + size)

    for label, start, file in (("a model", head, FILE), ("a tensor", tensor, "in.pb")):
        yield Input(
            label,
            functools.partial(write, head=start, file=file),
            file=file,
            printed=f"  U8  [{size}]  ",
            rss=64 * MIB,
            timeout=100,
        )


@row("X16", INVALID, FILE)
def cut_short():
    small = model(
        constant("c", "value_ints", packed(8, [1, 2]))
        + block(2, "graph")
        + initializer(f32(1), "w")
        + initializer(f32(1), "v", fixed32(4, 1)),
        before=block(2, "maker"),
    )
    yield from cuts(small)
    for item in cuts(pb({"w": f32(1)}), ".pb "):
        item.file = "in.pb"
        yield item
