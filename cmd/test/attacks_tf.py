"""Attacks on TensorFlow's tensors (F01 to F06) and records (F07 to F10)."""

import struct

from attacks import Input, cuts, row
from files import Tensor, f32
from harness import INVALID, MIB, OK, STACKS, UNSAFE, UNSUPPORTED
from protobufs import varint
from tf_files import field, masked_crc, record, tensor_proto, tensor_proto_of

FILE = "in.tensor"
RECORDS = "in.tfrecord"
ONE = struct.pack("<f", 1)
FLOAT_VAL, INT_VAL, BOOL_VAL, HALF_VAL = 5, 7, 11, 13


@row("F01", UNSAFE, FILE)
def splats():
    splat = field(FLOAT_VAL, ONE)
    yield Input("2^40", tensor_proto(1, [1 << 40], splat), message="--max-size", rss=16 * MIB)
    yield Input("2^40 zeros", tensor_proto(1, [1 << 40]), rss=16 * MIB)
    yield Input("16 GiB and 4 bytes", tensor_proto(1, [(1 << 32) + 2], splat))
    yield Input("over a limit", tensor_proto(1, [1000], splat), options=("--max-size", "3995"))
    thousand = {"in": Tensor("F32", [1000], ONE * 1000)}
    yield Input("1000", tensor_proto(1, [1000], splat), OK, tensors=thousand)
    yield Input(
        "within a limit",
        tensor_proto(1, [1000], splat),
        OK,
        tensors=thousand,
        options=("--max-size", "3996"),
    )
    yield Input(
        "a hundred splats in strings",
        tensor_proto(7, [100], *[field(8, tensor_proto(1, [1 << 26], splat))] * 100),
    )


@row("F02", INVALID, FILE)
def dtypes_and_shapes():
    for dtype in (0, 100, 200, 12345, -1):
        yield Input(f"dtype {dtype}, no elements", tensor_proto(dtype, [0]))
        yield Input(f"dtype {dtype}", tensor_proto(dtype, [1], field(4, ONE)))
    yield Input("unknown rank", tensor_proto(1, field(3, 1)))
    yield Input("unknown rank and dimensions", tensor_proto(1, field(2, field(1, 1)) + field(3, 1)))
    yield Input("-1", tensor_proto(1, [-1]))
    yield Input("-1 and 0", tensor_proto(1, [-1, 0]))
    yield Input("2^63", tensor_proto(1, [-(1 << 63)]))
    for shape in ((0, 1 << 40, 1 << 40), (1 << 40, 0, 1 << 40), (1 << 40, 1 << 40, 0)):
        yield Input(f"{shape}", tensor_proto(1, shape))
    yield Input("two dtypes", field(1, 1) + tensor_proto(1, [], field(4, ONE)))
    yield Input("two shapes", tensor_proto(1, [1], field(2, b""), field(4, ONE)))
    yield Input("no shape", field(1, 1) + field(4, ONE))
    for rank in (65, 10_000):
        yield Input(f"rank {rank}", tensor_proto(4, [1] * rank, field(4, b"\7")), UNSUPPORTED)
    yield Input("rank 64", tensor_proto(4, [1] * 64, field(4, b"\7")), OK)


@row("F03", INVALID, FILE)
def values():
    content, values = field(4, ONE * 3), field(FLOAT_VAL, ONE * 3)
    yield Input("a byte short", tensor_proto(1, [3], field(4, bytes(11))))
    yield Input("a byte long", tensor_proto(1, [3], field(4, bytes(13))))
    yield Input("both", tensor_proto(1, [3], content, values))
    yield Input("content twice", tensor_proto(1, [3], content, content))
    yield Input("four values for three", tensor_proto(1, [3], field(FLOAT_VAL, ONE * 4)))
    yield Input("four numbers for three", tensor_proto(3, [3], field(INT_VAL, b"\1\2\3\4")))
    yield Input("four pieces for three", tensor_proto(1, [3], *[field(FLOAT_VAL, ONE)] * 4))
    yield Input("values for none", tensor_proto(1, [0], field(FLOAT_VAL, ONE)))
    yield Input("numbers for none", tensor_proto(3, [0], field(INT_VAL, b"\1")))
    yield Input("of another dtype", tensor_proto(1, [3], field(INT_VAL, b"\1\2\3")))
    yield Input("cut value", tensor_proto(1, [3], field(FLOAT_VAL, bytes(7))))
    yield Input("half a complex number", tensor_proto(8, [3], field(9, ONE * 3)))
    yield Input("cut number", tensor_proto(3, [3], field(INT_VAL, b"\1\x80")))
    yield Input("length 2^64-1", tensor_proto(1, [3]) + b"\x22" + varint(-1))
    yield Input("length beyond the file", tensor_proto(1, [3]) + b"\x22\x0d" + bytes(12))
    yield Input("a group", tensor_proto(1, [3], content) + b"\x9b\1\x9c\1")
    yield Input("field 0", tensor_proto(1, [3], content) + b"\0\0")
    yield Input("an unknown field", tensor_proto(1, [3], content, field(19, 1)), UNSUPPORTED)
    yield Input("packed in pieces", tensor_proto(1, [3], *[field(FLOAT_VAL, ONE)] * 3), OK)
    yield from cuts(tensor_proto(1, [3], content)[8:], "without its shape, cut at ")


@row("F04", UNSUPPORTED, FILE)
def foreign_dtypes():
    yield Input("resource", tensor_proto(20, [1], field(14, field(1, b"device"))))
    yield Input("variant", tensor_proto(21, [1], field(15, field(3, tensor_proto()))))
    yield Input("string", tensor_proto(7, [1], field(8, b"text")))
    yield Input("scalar string", tensor_proto(7, [], field(8, b"text")))
    yield Input("strings in content", tensor_proto(7, [1], field(4, b"\4text")))
    yield Input("no strings", tensor_proto(7, [0]))
    yield Input(
        "strings, some of them tensors",
        tensor_proto(7, [2], field(8, tensor_proto_of(f32(1))), field(8, b"x")),
    )
    inner = tensor_proto(7, [1], field(8, tensor_proto_of(f32(1))))
    yield Input("strings in strings", tensor_proto(7, [1], field(8, inner)))
    yield Input("too few strings", tensor_proto(7, [2], field(8, b"x")), INVALID)
    yield Input("too many strings", tensor_proto(7, [1], *[field(8, b"x")] * 2), INVALID)
    for dtype in (11, 12, 13, 15, 16, 27, 29, 30, 31, 32, 33, 40, 101, 107, 119, 133):
        yield Input(f"dtype {dtype}", tensor_proto(dtype, [1], field(4, b"\0")))


ODD = {  # what TensorFlow has that is no tensor of numbers
    "strings": (7, field(8, b"text")),
    "a resource": (20, field(14, field(1, b"device"))),
    "a variant": (21, field(15, b"")),
    "a reference": (101, field(4, bytes(4))),
    "quantised": (12, field(4, b"\0")),
    "unknown": (40, field(4, b"\0")),
}


@row("F04b", OK, FILE)
def odd_ones_among_others():
    """One that is no tensor costs its own number, wherever it stands, and nothing else."""
    good = tensor_proto_of(f32(1))
    for label, (dtype, value) in ODD.items():
        odd = tensor_proto(dtype, [1], value)
        for place in range(2):
            both = [good]
            both.insert(place, odd)
            left = {str(1 - place): f32(1)}
            strings = tensor_proto(7, [2], *(field(8, item) for item in both))
            reported = f'"{place}"'
            yield Input(f"{label}, {place} of a list", strings, tensors=left, message=reported)
            records = b"".join(record(item) for item in both)
            yield Input(
                f"{label}, record {place}",
                records,
                file="in.tfrecord",
                tensors=left,
                message=reported,
            )
        yield Input(
            f"{label} --strict",
            records,
            UNSUPPORTED,
            file="in.tfrecord",
            commands=("convert",),
            options=("--strict",),
        )
        alone = record(odd)
        yield Input(f"{label} alone", alone, UNSUPPORTED, file="in.tfrecord")
        yield Input(
            f"{label}, damaged", alone[:-1] + bytes([alone[-1] ^ 1]), INVALID, file="in.tfrecord"
        )


@row("F05", INVALID, FILE)
def out_of_range():
    yield Input("half_val 70000", tensor_proto(19, [1], field(HALF_VAL, varint(70000))))
    yield Input("half_val 70000 as BF16", tensor_proto(14, [1], field(HALF_VAL, varint(70000))))
    yield Input("half_val -1", tensor_proto(19, [1], field(HALF_VAL, varint(-1))))
    yield Input("bool_val 2", tensor_proto(10, [1], field(BOOL_VAL, b"\2")))
    yield Input("int_val 256 as U8", tensor_proto(4, [1], field(INT_VAL, varint(256))))
    yield Input("int_val -1 as U16", tensor_proto(17, [1], field(INT_VAL, varint(-1))))
    yield Input("int_val -129 as I8", tensor_proto(6, [1], field(INT_VAL, varint(-129))))
    yield Input("int_val 2^31", tensor_proto(3, [1], field(INT_VAL, varint(1 << 31))))
    yield Input(
        "the last of many", tensor_proto(10, [70_000], field(BOOL_VAL, b"\1" * 69_999 + b"\2"))
    )
    yield Input("half_val 65535", tensor_proto(19, [1], field(HALF_VAL, varint(65535))), OK)


def graph(depth, wrap):
    """A graph of one node; its attribute has messages in messages, `depth` times."""
    value = b""
    for _ in range(depth):
        value = wrap(value)
    node = field(1, b"n") + field(2, b"o") + field(5, field(1, b"k") + field(2, value))
    return field(1, node)


NESTED = {
    "functions": lambda value: field(10, field(2, field(2, value))),
    "lists": lambda value: field(1, field(9, field(2, field(2, value)))),
}


@row("F06", UNSAFE, FILE)
def nested():
    for kind in ("functions", "lists"):
        shallow, deep = graph(10, NESTED[kind]), graph(10_000, NESTED[kind])
        yield Input(f"{kind}, 10 deep", shallow, UNSUPPORTED, message="graph")
        for label, prefix in STACKS.items():
            yield Input(f"{kind}, 10,000 deep{label}", deep, prefix=prefix)
        yield Input(f"{kind}, as .pb", deep, file="in.pb")
        model = field(1, 1) + field(2, field(1, field(1, b"")) + field(2, deep))
        yield Input(f"{kind}, a saved model", model)
    tensor = tensor_proto(1, [1], field(4, ONE))
    for _ in range(10_000):
        tensor = tensor_proto(21, [1], field(15, field(3, tensor)))
    yield Input("variants in variants", tensor, UNSUPPORTED)
    yield Input("in a graph", graph(1, lambda _: field(8, tensor)))


WHOLE = record(tensor_proto_of(f32(1, 2))) + record(tensor_proto_of(f32(3)))


@row("F07", INVALID, RECORDS)
def records_cut():
    first = len(record(tensor_proto_of(f32(1, 2))))
    for item in cuts(WHOLE):
        if int(item.label) != first:  # a list of one
            yield item
    yield Input("whole", WHOLE, OK, tensors={"0": f32(1, 2), "1": f32(3)})
    yield Input("the first", WHOLE[:first], OK, tensors={"0": f32(1, 2)})
    yield Input("a byte behind", WHOLE + b"\0")
    yield Input("zeros behind", WHOLE + bytes(16))
    yield Input("a record of nothing", WHOLE + record(b""))


@row("F08", INVALID, RECORDS)
def record_lengths():
    data = tensor_proto_of(f32(1, 2))
    for length in (
        len(data) - 1,
        len(data) + 1,
        1 << 31,
        1 << 40,
        (1 << 63) - 1,
        (1 << 64) - 17,
        (1 << 64) - 1,
    ):
        yield Input(f"length {length}", record(data, length=length), rss=16 * MIB)
        yield Input(f"second length {length}", WHOLE + record(data, length=length), rss=16 * MIB)


@row("F09", INVALID, RECORDS)
def record_crcs():
    data = tensor_proto_of(f32(1, 2))
    yield Input("of the length", record(data, length_crc=b"\0\0\0\0"))
    yield Input("of the second length", WHOLE + record(data, length_crc=b"\0\0\0\0"))
    yield Input("of the data", record(data, data_crc=b"\0\0\0\0"), message="CRC")
    yield Input("of the second's data", WHOLE + record(data, data_crc=b"\0\0\0\0"), message="CRC")
    big_endian = bytes(reversed(masked_crc(data)))
    yield Input("big-endian", record(data, data_crc=big_endian), message="CRC")
    for at in range(0, len(WHOLE), 3):
        flipped = WHOLE[:at] + bytes([WHOLE[at] ^ 0x20]) + WHOLE[at + 1 :]
        yield Input(f"bit of byte {at}", flipped, commands=("hash",))


@row("F10", UNSUPPORTED, RECORDS)
def other_records():
    yield Input("tf.train.Example", record(field(1, field(1, b""))), message="Example")
    yield Input("a string", record(tensor_proto(7, [1], field(8, tensor_proto_of(f32(1))))))
    yield Input("text", record(b"hello"), INVALID)
    splat = record(tensor_proto(1, [1 << 26], field(FLOAT_VAL, ONE)))
    yield Input("a hundred splats", splat * 100, UNSAFE)
    # What is excluded neither refuses nor counts, wherever it stands.
    thousand = Tensor("F32", [1000], ONE * 1000)
    made = record(tensor_proto(1, [1000], field(FLOAT_VAL, ONE)))
    made_huge = record(tensor_proto(1, [1 << 40], field(FLOAT_VAL, ONE)))
    limit = ("--max-size", "3996")
    yield Input("two splats over a limit", made + made, UNSAFE, options=limit)
    for left in ("0", "1"):
        for label, other in (("a splat", made), ("a huge one", made_huge)):
            pair = (made, other) if left == "0" else (other, made)
            yield Input(
                f"{left} without {label}",
                b"".join(pair),
                OK,
                options=(*limit, "--include", f"^{left}$"),
                commands=("convert",),
                tensors={left: thousand},
            )
