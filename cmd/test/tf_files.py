"""TensorFlow's files made and read by hand: TensorProtos, and records of them."""

import struct
from pathlib import Path

from files import Tensor
from protobufs import block, coo, fields, message, number

STRING = 7
DTYPES = {
    "F32": 1,
    "F64": 2,
    "I32": 3,
    "U8": 4,
    "I16": 5,
    "I8": 6,
    "C64": 8,
    "I64": 9,
    "BOOL": 10,
    "BF16": 14,
    "U16": 17,
    "C128": 18,
    "F16": 19,
    "U32": 22,
    "U64": 23,
    "F8_E5M2": 24,
    "F8_E4M3": 25,
    "F8_E4M3FNUZ": 26,
    "F8_E5M2FNUZ": 28,
}


def field(place, value):
    """A field of a message: a number, or bytes."""
    return number(place, value) if isinstance(value, int) else block(place, value)


def tensor_proto(dtype=1, shape=(3,), *others):
    """A TensorProto; `shape` may be the bytes of one."""
    if not isinstance(shape, bytes):
        shape = b"".join(field(2, field(1, size) if size else b"") for size in shape)
    return field(1, dtype) + field(2, shape) + b"".join(others)


def tensor_proto_of(tensor):
    content = [field(4, tensor.data)] if tensor.data else []
    return tensor_proto(DTYPES[tensor.dtype], tensor.shape, *content)


def read_tensor_proto(data):
    message = dict(fields(data))
    dtype = next(name for name, value in DTYPES.items() if value == message[1])
    shape = [dict(fields(dim)).get(1, 0) for _, dim in fields(message[2])]
    return Tensor(dtype, shape, message.get(4, b""))


def read_sparse(name, data):
    """The parts of what tf.io.serialize_sparse makes: strings [3], which are indices [nnz, rank],
    values [nnz] and the shape [rank], each a TensorProto."""
    found = message(data)
    assert found[2] == [field(2, field(1, 3))], "a shape other than [3]"
    indices, values, shape = (read_tensor_proto(string) for string in found[8])
    assert (shape.dtype, len(shape.shape)) == ("I64", 1), shape
    sizes = struct.unpack(f"<{shape.shape[0]}q", shape.data)
    return coo(name, indices, values, sizes)


def read_tensor(path):
    """A dense tensor, or the parts of a sparse one."""
    name, data = Path(path).stem, Path(path).read_bytes()
    sparse = dict(fields(data))[1] == STRING
    return read_sparse(name, data) if sparse else {name: read_tensor_proto(data)}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc32c_of(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C = [_crc32c_of(byte) for byte in range(256)]


def masked_crc(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data, length=None, length_crc=None, data_crc=None):
    """A TFRecord; fields that are None get their true values."""
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + (length_crc or masked_crc(head)) + data + (data_crc or masked_crc(data))


def read_tfrecord(path):
    """The tensors of a .tfrecord file, by their numbers; every CRC is checked."""
    data, tensors = Path(path).read_bytes(), {}
    while data:
        (length,) = struct.unpack_from("<Q", data)
        assert data[: 12 + length + 4] == record(data[12 : 12 + length]), "a CRC is wrong"
        tensors[str(len(tensors))] = read_tensor_proto(data[12 : 12 + length])
        data = data[12 + length + 4 :]
    return tensors
