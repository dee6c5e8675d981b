#!/usr/bin/env python3
"""Values arrive bit for bit: every pattern of the small dtypes, NaN payloads, promotion.

And they are counted right: histograms of every dtype, beside those of a few lines of Python.
"""

import bisect
import functools
import json
import math
import random
import struct
import sys

import pickles
import protobufs
import torch_files
from files import (
    Tensor,
    deathtensors,
    npz,
    read_deathtensors,
    read_npz,
    read_safetensors,
    safetensors,
    same_values,
    values,
)
from harness import OK, Suite, check_equal, expect

READERS = {
    "npz": read_npz,
    "safetensors": read_safetensors,
    "deathtensors": read_deathtensors,
    "pt": torch_files.read_tensors,
    "ot": torch_files.read_tensors,
    "onnx": protobufs.read_onnx,
    "pb": protobufs.read_pb,
}
MAKERS = {  # name -> tensor to bytes
    "npz": npz,
    "safetensors": safetensors,
    "deathtensors": deathtensors,
    "pt": pickles.pt_of,
    "ot": pickles.ot_of,
    "onnx": protobufs.onnx,
    "pb": protobufs.pb,
}
BYTES = bytes(range(256))
HALVES = struct.pack("<65536H", *range(65536))
NAN_PAYLOADS = [
    sign << 63 | 0x7FF << 52 | payload
    for sign in (0, 1)
    for payload in (1, 1 << 51, (1 << 51) - 1, (1 << 52) - 1)
]

FLOATS = struct.pack(
    "<8I", 0, 1, 0x80000000, 0x80000001, 0x7F800001, 0xFFC00000, 0x7FBFFFFF, 0xFFFFFFFF
)
DOUBLES = struct.pack(f"<{len(NAN_PAYLOADS)}Q", *NAN_PAYLOADS)

SAME = {  # dtype -> data that a dtype's own bytes must survive
    "F16": HALVES,
    "BF16": HALVES,
    "F32": FLOATS,
    "F64": DOUBLES,
    "BOOL": bytes((0, 1, 2, 128, 255)),
    "U8": BYTES,
    "I8": BYTES,
    "U16": HALVES,
    "I16": HALVES,
    "U32": FLOATS,
    "I32": FLOATS,
    "U64": DOUBLES,
    "I64": DOUBLES,
    "C32": HALVES,
    "C64": FLOATS,
    "C128": DOUBLES,
    "F8_E4M3": BYTES,
    "F8_E5M2": BYTES,
    "F8_E4M3FNUZ": BYTES,
    "F8_E5M2FNUZ": BYTES,
    "F8_E8M0": BYTES,
}
F8 = {dtype for dtype in SAME if dtype.startswith("F8")}
LACKS = {  # format -> what it has no place for as it is
    "npz": F8 | {"BF16", "C32"},
    "safetensors": {"C32", "C128"},
    "deathtensors": F8 | {"C32"},
    "pt": set(),
    "ot": F8 | {"U16", "U32", "U64", "C32"},
    "onnx": {"C32"},
    "pb": {"C32"},
}


def tensor_of(dtype):
    data = SAME[dtype]
    return Tensor(dtype, [len(data) // torch_files.WIDTHS[dtype]], data)


def converted(folder, tensor, target, source="safetensors"):
    """A tensor after a trip to another format."""
    (folder / f"in.{source}").write_bytes(MAKERS[source]({"w": tensor}))
    expect(folder, OK, f"in.{source}", f"out.{target}")
    return READERS[target](folder / f"out.{target}")["w"]


def same(dtype, source, target, folder):
    tensor = tensor_of(dtype)
    got = converted(folder, tensor, target, source)
    check_equal(got, tensor, f"{dtype} from {source} in {target}")


def bf16_to_f32(folder):
    """Every pattern moves up by 16 bits, NaN payloads too."""
    expected = b"".join(b"\0\0" + HALVES[at : at + 2] for at in range(0, len(HALVES), 2))
    check_equal(
        converted(folder, Tensor("BF16", [65536], HALVES), "npz")
        == Tensor("F32", [65536], expected),
        True,
        "BF16 as F32",
    )


def patterns(data, count):
    size = len(data) // count
    return len({data[at : at + size] for at in range(0, len(data), size)})


def widened(dtype, target, home, folder, source="safetensors"):
    """Every pattern has its value in the wider dtype, and no two share one."""
    narrow = tensor_of(dtype)
    wide = converted(folder, narrow, target, source)
    check_equal(wide.dtype, home, "dtype")
    check_equal(same_values(wide, narrow), True, f"values of {dtype} in {target}")
    count = narrow.shape[0]
    check_equal(
        patterns(wide.data, count),
        patterns(narrow.data, count),
        f"different patterns of {dtype} in {target}",
    )


BINS = 40


def numbers(tensor):
    """What a histogram counts: of complex numbers their magnitudes, of the others what is finite."""
    found = [float(bool(value) if tensor.dtype == "BOOL" else value) for value in values(tensor)]
    if tensor.dtype.startswith("C"):
        found = [math.hypot(real, imaginary) for real, imaginary in zip(found[::2], found[1::2])]
    return [value for value in found if math.isfinite(value)]


def bins_of(found):
    """As numpy.histogram: bins hold their lower edge, the last one its upper edge, too."""
    low, high = min(found), max(found)
    edges = [at * ((high - low) / BINS) + low for at in range(BINS)]
    counts = [0] * BINS
    for value in found:
        counts[bisect.bisect_right(edges, value) - 1] += 1
    return counts


def bins_by_tconv(folder, tensor):
    (folder / "in.pt").write_bytes(pickles.pt_of({"w": tensor}))
    result = expect(folder, OK, "stats", "--plot", "--json", "in.pt")
    return json.loads(result.out)["tensors"][0]["histogram"]


def histogram(dtype, folder):
    """Values of all sizes, more than one block of them."""
    dice = random.Random(f"histogram {dtype}")
    width = torch_files.WIDTHS[dtype]
    code = {"F16": "e", "C32": "e", "F32": "f", "C64": "f", "F64": "d", "C128": "d"}.get(dtype)
    if dtype == "BF16":
        data = b"".join(struct.pack("<f", dice.gauss(0, 1))[2:] for _ in range(5000))
    elif code:
        data = b"".join(struct.pack(f"<{code}", dice.gauss(0, 1)) for _ in range(10000))
    else:
        data = dice.randbytes(5000 * width)
    tensor = Tensor(dtype, [len(data) // width], data)
    check_equal(bins_by_tconv(folder, tensor), bins_of(numbers(tensor)), f"histogram of {dtype}")


def large_histogram(folder):
    """A tensor that several threads read: what each of them counted is added up."""
    part = struct.pack("<4096f", *range(4096))
    bins = bins_by_tconv(folder, Tensor("F32", [4096 * 1000], part * 1000))
    expected = bins_of([float(value) for value in range(4096)])
    check_equal(bins, [1000 * count for count in expected], "histogram")


def cases():
    for dtype in SAME:
        yield f"histogram {dtype}", functools.partial(histogram, dtype)
    yield "histogram of a large tensor", large_histogram
    for dtype in SAME:
        able = [each for each in READERS if dtype not in LACKS[each]]
        for source in able:
            for target in able:
                yield f"same {dtype} {source} {target}", functools.partial(
                    same, dtype, source, target
                )
    yield "BF16 to F32", bf16_to_f32
    for dtype in ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
        for target in ("npz", "deathtensors", "ot"):
            yield f"{dtype} to F16 in {target}", functools.partial(widened, dtype, target, "F16")
    for dtype, target, home in (
        ("F8_E8M0", "deathtensors", "BF16"),
        ("F8_E8M0", "ot", "BF16"),
        ("F8_E8M0", "npz", "F32"),
        ("U16", "ot", "I32"),
        ("U32", "ot", "I64"),
    ):
        yield f"{dtype} to {home} in {target}", functools.partial(widened, dtype, target, home)
    for target in ("npz", "safetensors", "deathtensors", "ot", "onnx", "pb"):
        yield f"C32 to C64 in {target}", functools.partial(
            widened, "C32", target, "C64", source="pt"
        )


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
