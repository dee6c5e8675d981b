"""What the cases of diff, verify and check read besides testdata."""

import math
import struct

import files
from files import Tensor, f32


def make_diff(folder):
    one = {
        "same": f32(1, 2, 3),
        "gone": f32(1),
        "grown": f32(1, 2),
        "typed": f32(1, 2),
        "w": f32(1, 2, 3, 4, shape=[2, 2]),
        "x": f32(1, math.nan),
    }
    other = {
        "same": f32(1, 2, 3),
        "new": f32(1),
        "grown": f32(1, 2, shape=[2, 1]),
        "typed": Tensor("F64", [2], struct.pack("<2d", 1, 2)),
        "w": f32(1, 2.5, 3, 14, shape=[2, 2]),
        "x": f32(1, 1),
    }
    (folder / "diff_a.safetensors").write_bytes(files.safetensors(one, {"note": "one"}))
    (folder / "diff_b.safetensors").write_bytes(
        files.safetensors(other, {"note": "two", "more": "1"})
    )
    zeros = {"z": f32(0.0, 1)}
    signed = {"z": f32(-0.0, 1)}
    (folder / "zeros.safetensors").write_bytes(files.safetensors(zeros))
    (folder / "signed.safetensors").write_bytes(files.safetensors(signed))
    (folder / "f4_other.safetensors").write_bytes(
        files.safetensors({"w": Tensor("F4", [2, 4], bytes((1, 2, 3, 0x24)))})
    )


def make(folder):
    make_diff(folder)
