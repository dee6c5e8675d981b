#!/usr/bin/env python3
"""Values arrive bit for bit: every pattern of the small dtypes, NaN payloads, promotion."""

import functools
import struct
import sys

from files import Tensor, read_deathtensors, read_npz, read_safetensors, safetensors, same_values
from harness import OK, Suite, check_equal, expect

READERS = {"npz": read_npz, "safetensors": read_safetensors, "deathtensors": read_deathtensors}
BYTES = bytes(range(256))
HALVES = struct.pack("<65536H", *range(65536))
NAN_PAYLOADS = [
    sign << 63 | 0x7FF << 52 | payload
    for sign in (0, 1)
    for payload in (1, 1 << 51, (1 << 51) - 1, (1 << 52) - 1)
]

SAME = {  # dtype -> data that a dtype's own bytes must survive
    "F16": HALVES,
    "F32": struct.pack(
        "<8I", 0, 1, 0x80000000, 0x80000001, 0x7F800001, 0xFFC00000, 0x7FBFFFFF, 0xFFFFFFFF
    ),
    "F64": struct.pack(f"<{len(NAN_PAYLOADS)}Q", *NAN_PAYLOADS),
    "BOOL": bytes((0, 1, 2, 128, 255)),
}


def converted(folder, tensor, target):
    """A tensor after a trip to another format."""
    (folder / "in.safetensors").write_bytes(safetensors({"w": tensor}))
    expect(folder, OK, "in.safetensors", f"out.{target}")
    return READERS[target](folder / f"out.{target}")["w"]


def same(dtype, target, folder):
    data = SAME[dtype]
    tensor = Tensor(dtype, [len(data) // {"F16": 2, "F32": 4, "F64": 8, "BOOL": 1}[dtype]], data)
    check_equal(converted(folder, tensor, target), tensor, f"{dtype} in {target}")


def bf16_to_f32(folder):
    """Every pattern moves up by 16 bits, NaN payloads too."""
    expected = b"".join(b"\0\0" + HALVES[at : at + 2] for at in range(0, len(HALVES), 2))
    check_equal(
        converted(folder, Tensor("BF16", [65536], HALVES), "npz")
        == Tensor("F32", [65536], expected),
        True,
        "BF16 as F32",
    )


def widened(dtype, target, home, folder):
    """Every pattern has its value in the wider dtype, and no two share one."""
    narrow = Tensor(dtype, [256], BYTES)
    wide = converted(folder, narrow, target)
    check_equal(wide.dtype, home, "dtype")
    check_equal(same_values(wide, narrow), True, f"values of {dtype} in {target}")
    size = len(wide.data) // 256
    check_equal(
        len({wide.data[at : at + size] for at in range(0, len(wide.data), size)}),
        256,
        f"different patterns of {dtype} in {target}",
    )


def cases():
    for dtype in SAME:
        for target in READERS:
            yield f"same {dtype} {target}", functools.partial(same, dtype, target)
    yield "BF16 to F32", bf16_to_f32
    for dtype in ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"):
        for target in ("npz", "deathtensors"):
            yield f"{dtype} to F16 in {target}", functools.partial(widened, dtype, target, "F16")
    yield "F8_E8M0 to BF16", functools.partial(widened, "F8_E8M0", "deathtensors", "BF16")
    yield "F8_E8M0 to F32", functools.partial(widened, "F8_E8M0", "npz", "F32")


if __name__ == "__main__":
    sys.exit(Suite(__doc__).run(cases()))
