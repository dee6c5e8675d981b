"""The tensors that are sent through the programs: every dtype, odd shapes, odd names."""
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import numpy as np

# Canonical dtype → numpy's name for it, and bits an element.
NUMPY = {
    "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "C128": "<c16",
}  # fmt: skip
CANONICAL = {numpy: canonical for canonical, numpy in NUMPY.items()}
FLOAT8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0")
BITS = {
    **{dtype: np.dtype(numpy).itemsize * 8 for dtype, numpy in NUMPY.items()},
    **dict.fromkeys(FLOAT8, 8),
    "BF16": 16, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip

# Bit patterns that a careless copy changes: signalling and negative NaN, −0, the smallest subnormal, ∞.
SPECIAL = {
    "F16": ("<u2", [0x7C01, 0xFE2A, 0x8000, 0x0001, 0x7C00]),
    "BF16": ("<u2", [0x7F81, 0xFFD5, 0x8000, 0x0001, 0x7F80]),
    "F32": ("<u4", [0x7F800001, 0xFFC12345, 0x80000000, 0x00000001, 0x7F800000]),
    "F64": ("<u8", [0x7FF0000000000001, 0xFFF8123456789ABC, 1 << 63, 1, 0x7FF0000000000000]),
}
SPECIAL |= {"C64": SPECIAL["F32"], "C128": SPECIAL["F64"]}

SHAPES = [(), (0,), (3, 0, 2), (1,), (3, 5), (2, 1, 2, 1, 2, 1, 2, 3), (1000, 37)]
PACKED_SHAPES = [(0,), (8,), (3, 4), (2, 1, 2, 1, 2, 1, 2, 4)]  # whole bytes at 4 and at 6 bits

NAMES = [
    "weight", "layer.0.weight", "a/b/c", "/rooted", "../up", ".", "..", "-", "--help", "%s%n", "C:\\x", "a|b",
    "with space", " around ", "{\"key\": [1, 2]}", "quote\"'`", "back\\slash", "line\nbreak", "tab\tand\rreturn",
    "\x01\x1f", "delete\x7f", "\x1b[31mred", "ünïcödé", "é and e\u0301", "重み", "😀🎉", "\u2028\ufeff\u00a0",
    "\u202eright to left\u2069", "weight.npy", "n" * 4096, "重" * 1365 + "x", "", "long" * 15000,
]  # fmt: skip


class Tensor(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: bytes  # C order, little-endian

    def array(self) -> np.ndarray:
        return np.ndarray(self.shape, NUMPY[self.dtype], buffer=self.data)

    @classmethod
    def of(cls, array: np.ndarray) -> "Tensor":
        return cls(CANONICAL[array.dtype.str], array.shape, array.tobytes())


@dataclass
class Model:
    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)
    tensor_metadata: dict[str, dict[str, str]] = field(default_factory=dict)

    def only(self, keep) -> "Model":
        """The tensors for which keep(name, tensor) holds."""
        return replace(self, tensors={name: tensor for name, tensor in self.tensors.items() if keep(name, tensor)})

    @property
    def nbytes(self) -> int:
        return sum(len(tensor.data) for tensor in self.tensors.values())


def random_tensor(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Tensor:
    data = random.bytes(prod(shape) * BITS[dtype] // 8)
    if dtype == "BOOL":
        data = bytes(byte & 1 for byte in data)
    elif dtype in SPECIAL:
        words, patterns = SPECIAL[dtype]
        values = np.frombuffer(bytearray(data), words)
        values[: len(patterns)] = patterns[: len(values)]
        data = values.tobytes()
    return Tensor(dtype, shape, data)


def every_dtype() -> Model:
    """Each dtype in each shape, in an order that no format would choose."""
    random = np.random.default_rng(1)
    cases = [
        (dtype, shape) for dtype, bits in BITS.items() for shape in (SHAPES if bits >= 8 else PACKED_SHAPES)
    ]
    random.shuffle(cases)
    return Model(
        {
            f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}": random_tensor(random, dtype, tuple(shape))
            for dtype, shape in cases
        },
        {"format": "pt"},
    )


def every_name() -> Model:
    random = np.random.default_rng(2)
    return Model({name: random_tensor(random, "F32", (index % 4,)) for index, name in enumerate(NAMES)})
