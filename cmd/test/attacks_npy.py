"""Attacks on .npy (N01 to N16)."""

import os
import pickle
import struct

from attacks import Input, cuts, row
from files import Tensor, f32, npy
from harness import INVALID, MIB, OK, STACKS, UNSAFE, UNSUPPORTED

FILE = "in.npy"
THREE = {"in": f32(1, 2, 3)}


class System:
    """Pickles as a call of os.system."""

    def __reduce__(self):
        return os.system, ("touch executed",)


@row("N01", INVALID, FILE)
def cut():
    return cuts(npy())


@row("N02", UNSUPPORTED, FILE)
def versions():
    for version in ((4, 0), (0, 0), (255, 255)):
        yield Input(f"{version}", npy(version=version))


@row("N03", INVALID, FILE)
def header_longer_than_file():
    yield Input("4 GiB", npy(version=(2, 0), length=0xFFFFFFFF)[:200], rss=16 * MIB)


@row("N04", UNSAFE, FILE)
def header_of_spaces():
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"
    yield Input("9 MB", npy(version=(2, 0), header=header + " " * 9_000_000), message="header")


def nested(depth):
    return npy(version=(2, 0), header="{'descr': " + "[" * depth)


@row("N05", INVALID, FILE)
def nesting():
    for label, prefix in STACKS.items():
        allowed = ("--max-header", "1M")
        yield Input(f"60,000{label}", nested(60_000), prefix=prefix)
        yield Input(f"100,000{label}", nested(100_000), UNSAFE, prefix=prefix)
        yield Input(f"100,000 allowed{label}", nested(100_000), prefix=prefix, options=allowed)


@row("N06", UNSAFE, FILE)
def objects():
    yield Input("os.system", npy("|O", (1,), pickle.dumps(System())))


@row("N07", UNSUPPORTED, FILE)
def structured():
    yield Input("only text in it", npy([("a", "<U1"), ("b", "|S2")], (1,), bytes(6)))
    yield Input("cut short", npy([("a", "<f4"), ("b", "<i4")], (1,), bytes(7)), INVALID)
    yield Input(
        "plain fields",
        npy([("a", "<f4"), ("b", "<i4")], (1,), bytes(4) + b"\1\0\0\0"),
        OK,
        tensors={
            "in.a": Tensor("F32", [1], bytes(4)),
            "in.b": Tensor("I32", [1], b"\1\0\0\0"),
        },
    )
    yield Input("an object field", npy([("a", "<f4"), ("b", "|O")], (1,), bytes(12)), UNSAFE)


@row("N08", INVALID, FILE)
def keys():
    yield Input(
        "descr twice",
        npy(header="{'descr': '<f4', 'descr': '|O', 'fortran_order': False, 'shape': (3,), }"),
    )
    yield Input(
        "shape twice",
        npy(header="{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'shape': (3,), }"),
    )
    yield Input("no fortran_order", npy(header="{'descr': '<f4', 'shape': (3,), }"))
    yield Input("no shape", npy(header="{'descr': '<f4', 'fortran_order': False, }"))
    yield Input(
        "an extra key",
        npy(header="{'descr': '<f4', 'extra': 1, 'fortran_order': False, 'shape': (3,), }"),
    )


@row("N09", INVALID, FILE)
def shapes():
    for shape in (
        f"({2**63},)",
        "(4294967296,4294967296)",
        "(-1,)",
        "(True,)",
        "(1.0,)",
        "[3]",
        "(3)",
        "3",
        "None",
        "(3,,)",
        f"({'9' * 400},)",
    ):
        yield Input(shape[:30], npy(shape=shape))


@row("N10", INVALID, FILE)
def zero_dimension_hides_overflow():
    for shape in ((0, 2**40, 2**40), (2**40, 0, 2**40), (2**40, 2**40, 0)):
        yield Input(f"{shape}", npy(shape=shape, data=b""))


@row("N11", UNSUPPORTED, FILE)
def ranks():
    yield Input(
        "64",
        npy(shape=(1,) * 64, data=bytes(4)),
        OK,
        tensors={"in": Tensor("F32", [1] * 64, bytes(4))},
    )
    for rank in (65, 10_000):
        yield Input(f"{rank}", npy(shape=(1,) * rank, data=bytes(4)))


@row("N12", INVALID, FILE)
def data_size():
    yield Input("1 byte short", npy()[:-1])
    yield Input("1 byte long", npy() + b"\0")


@row("N12b", INVALID, FILE)
def several_arrays():
    two = npy() + npy()
    tensors = {"0": f32(1, 2, 3), "1": f32(1, 2, 3)}
    yield Input("two", two, OK, tensors=tensors)
    for length in range(len(npy()) + 1, len(two), 7):
        yield Input(f"two, cut at {length}", two[:length])
    yield Input("and one byte", two + b"\0")
    yield Input("and zeros", two + bytes(64))
    yield Input("objects behind numbers", npy() + npy("|O", (1,), b"N."), OK, message='"1"')


@row("N13", INVALID, FILE)
def expressions():
    yield Input("import", npy(header="__import__('os').system('touch executed')"))
    for shape in (
        "(2*3,)",
        "(1,)+(2,)",
        "(0x3,)",
        "(0b11,)",
        "(0o3,)",
        "(0_3,)",
        "(03,)",
        "(+3,)",
        "(3,) if 1 else 2",
    ):
        yield Input(shape, npy(shape=shape))
    for descr in (r"'\x3cf4'", "'<' 'f4'", "b'<f4'", "r'<f4'", "f'<f4'"):
        yield Input(
            descr, npy(header=f"{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}")
        )
    for fortran in ("0", "false", "not True"):
        yield Input(f"fortran_order {fortran}", npy(fortran=fortran))


@row("N14", OK, FILE)
def python_2_integers():
    yield Input("version 1", npy(shape="(3L,)"), tensors=THREE)
    yield Input("version 2", npy(shape="(3L,)", version=(2, 0)), tensors=THREE)
    yield Input("version 3", npy(shape="(3L,)", version=(3, 0)), INVALID)


@row("N15", UNSUPPORTED, FILE)
def dtypes():
    for descr, size in (
        ("<U10", 40),
        ("<M8[ns]", 8),
        ("<f16", 16),
        ("V7", 7),
        ("|V7", 7),
        ("<V2", 2),
        ("|V2", 2),
        ("<V1", 1),
        ("<f1", 1),
        ("|S3", 3),
    ):
        yield Input(descr, npy(descr, (1,), bytes(size)))


@row("N16", OK, FILE)
def layouts():
    yield Input(">f4", npy(">f4", data=struct.pack(">3f", 1, 2, 3)), tensors=THREE)
    yield Input(
        ">i2",
        npy(">i2", data=struct.pack(">3h", -1, 2, 300)),
        tensors={"in": Tensor("I16", [3], struct.pack("<3h", -1, 2, 300))},
    )
    yield Input(
        ">c16",
        npy(">c16", (1,), struct.pack(">2d", 1, -2)),
        tensors={"in": Tensor("C128", [1], struct.pack("<2d", 1, -2))},
    )
    fortran = b"".join(
        bytes([i * 12 + j * 4 + k]) for k in range(4) for j in range(3) for i in range(2)
    )
    yield Input(
        "fortran order",
        npy("|u1", (2, 3, 4), fortran, fortran=True),
        tensors={"in": Tensor("U8", [2, 3, 4], bytes(range(24)))},
    )
    yield Input("0-d", npy(shape=(), data=struct.pack("<f", 7)), tensors={"in": f32(7, shape=[])})
    yield Input(
        "no elements", npy(shape=(0, 3), data=b""), tensors={"in": Tensor("F32", [0, 3], b"")}
    )
    yield Input(
        "keys in another order",
        npy(header="{'shape': (3,), 'fortran_order': False, 'descr': '<f4'}"),
        tensors=THREE,
    )
    yield Input(
        "double quotes",
        npy(header='{"shape": (3,), "fortran_order": False, "descr": "<f4"}'),
        tensors=THREE,
    )
