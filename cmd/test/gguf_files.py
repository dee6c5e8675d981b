"""GGUF files made and read by hand; every field can be made to lie."""

import json
import struct

from files import Tensor

# name: (number, elements of a block, bytes of a block)
DTYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136),
    "I8": (24, 1, 1),
    "I16": (25, 1, 2),
    "I32": (26, 1, 4),
    "I64": (27, 1, 8),
    "F64": (28, 1, 8),
    "IQ1_M": (29, 256, 56),
    "BF16": (30, 1, 2),
    "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
}
BLOCKS = {name for name, (_, elements, _) in DTYPES.items() if elements > 1}
NUMBERS = {number: name for name, (number, _, _) in DTYPES.items()}
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
STRUCTS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(data, length=None):
    data = data.encode() if isinstance(data, str) else data
    return struct.pack("<Q", len(data) if length is None else length) + data


def array(kind, elements, count=None):
    """The bytes of an array, behind its type; elements are bytes already or numbers."""
    packed = b"".join(e if isinstance(e, bytes) else struct.pack(f"<{STRUCTS[kind]}", e) for e in elements)
    return struct.pack("<IQ", kind, len(elements) if count is None else count) + packed


def pair(key, kind, value):
    packed = value if isinstance(value, bytes) else struct.pack(f"<{STRUCTS[kind]}", value)
    return (key if isinstance(key, bytes) and key[8:] else string(key)) + struct.pack("<I", kind) + packed


def entry(name, dims, number, offset):
    """A tensor's entry; dims are as the file has them, innermost first."""
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset)


def padded(data, alignment):
    return data + bytes(-len(data) % alignment)


def raw(pairs=(), entries=(), data=b"", version=3, tensors=None, count=None, alignment=32, magic=b"GGUF"):
    head = struct.pack(
        "<4sIQQ",
        magic,
        version,
        len(entries) if tensors is None else tensors,
        len(pairs) if count is None else count,
    )
    head += b"".join(pairs) + b"".join(entries)
    return padded(head, alignment) + data if entries else head + data


def gguf(tensors, pairs=(), alignment=32, version=3):
    entries, data = [], b""
    for name, tensor in tensors.items():
        entries.append(entry(name, tensor.shape[::-1], DTYPES[tensor.dtype][0], len(data)))
        data = padded(data + tensor.data, alignment)
    return raw(pairs, entries, data, version, alignment=alignment)


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    def string(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def value(self, kind):
        if kind == STRING:
            return self.string().decode()
        if kind != ARRAY:
            return self.take(STRUCTS[kind])
        inner, count = self.take("I"), self.take("Q")
        return [self.value(inner) for _ in range(count)]


def read(path):
    """Metadata as {key: (type, value)}, tensors, version."""
    cursor = Cursor(path.read_bytes())
    magic, version, tensors, pairs = cursor.take("4sIQQ")
    assert magic == b"GGUF"
    metadata = {}
    for _ in range(pairs):
        key = cursor.string().decode()
        kind = cursor.take("I")
        metadata[key] = (kind, cursor.value(kind))
    alignment = metadata.get("general.alignment", (U32, 32))[1]
    entries = []
    for _ in range(tensors):
        name, rank = cursor.string().decode(), cursor.take("I")
        shape = [cursor.take("Q") for _ in range(rank)][::-1]
        entries.append((name, shape, NUMBERS[cursor.take("I")], cursor.take("Q")))
    base = -(-cursor.at // alignment) * alignment
    held = {}
    expected = 0
    for name, shape, dtype, offset in entries:
        _, elements, size = DTYPES[dtype]
        count = 1
        for dim in shape:
            count *= dim
        length = count // elements * size
        assert offset == expected, f"{name}: offset {offset}, expected {expected}"
        expected = -(-(offset + length) // alignment) * alignment
        data = cursor.data[base + offset : base + offset + length]
        assert len(data) == length
        held[name] = Tensor(dtype, shape, data)
    return metadata, held, version


def read_tensors(path):
    return read(path)[1]


def texts(metadata):
    """The strings of a file's metadata."""
    return {key: value for key, (kind, value) in metadata.items() if kind == STRING}


def tensor_metadata(metadata):
    return json.loads(texts(metadata).get("tconv.tensor_metadata", "{}"))
