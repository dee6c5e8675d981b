"""Tensor files made and read by hand, independent of the program under test and of libraries.

A set of tensors is a dict: name -> Tensor. Makers return bytes; every field of a header can be
overridden to tell a lie.
"""

import ast
import bz2
import hashlib
import json
import lzma
import math
import re
import struct
import subprocess
import zipfile
import zlib
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

Tensor = namedtuple("Tensor", "dtype shape data")

NUMPY_DESCR = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "C64": "<c8",
    "C128": "<c16",
}


def f32(*values, shape=None):
    """A float tensor of these values."""
    return Tensor(
        "F32", [len(values)] if shape is None else shape, struct.pack(f"<{len(values)}f", *values)
    )


def hash_text(tensors):
    """What `tconv hash` prints for a set of tensors."""
    digests = {name: hashlib.sha256(tensor.data).hexdigest() for name, tensor in tensors.items()}
    return hash_lines((name, t.dtype, t.shape, digests[name]) for name, t in tensors.items())


def hash_lines(rows):
    """The same from rows of name, dtype, shape and SHA-256."""
    return "".join(
        f"{digest}  {dtype}  {compact(shape)}  {quoted(name)}\n"
        for name, dtype, shape, digest in sorted(rows, key=lambda row: row[0].encode())
    )


def quoted(name):
    """A name as `hash` prints it: JSON, raw UTF-8, but control characters, line ends and bidirectional controls escaped."""
    return re.sub(
        "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]",
        lambda match: f"\\u{ord(match[0]):04x}",
        json.dumps(name, ensure_ascii=False),
    )


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# npy


def npy(
    descr="<f4", shape=(3,), data=None, fortran=False, version=(1, 0), header=None, length=None
):
    """A .npy file; `shape` may be text, `header` replaces the dict, `length` its true length."""
    if header is None:
        header = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text = header.encode("latin-1" if version < (3, 0) else "utf-8")
    width = "<H" if version[0] == 1 else "<I"
    prefix = 8 + struct.calcsize(width)
    text += b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    if data is None:
        data = struct.pack("<3f", 1, 2, 3)
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack(width, len(text) if length is None else length)
        + text
        + data
    )


def npy_of(tensor):
    return npy(NUMPY_DESCR[tensor.dtype], tuple(tensor.shape), tensor.data)


def read_npy(data):
    """The tensor of a .npy file in C order and little-endian, as tconv writes them."""
    wide = data[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    start = 12 if wide else 10
    header = ast.literal_eval(data[start : start + length].decode())
    assert header["fortran_order"] is False, header
    dtype = next(name for name, descr in NUMPY_DESCR.items() if descr == header["descr"])
    return Tensor(dtype, list(header["shape"]), data[start + length :])


# zip and npz


@dataclass
class Member:
    """A zip member; fields that are None get their true values."""

    name: bytes
    data: bytes
    method: int = 0
    flags: int = 0
    packed: bytes = None  # the bytes in the archive
    crc: int = None
    size: int = None
    packed_size: int = None
    local_name: bytes = None
    disk: int = 0
    zip64: bool = False
    attributes: int = 0  # external ones

    def __post_init__(self):
        if self.packed is None:
            packer = {8: deflate, 12: bz2.compress, 14: lzma_member}.get(self.method, bytes)
            self.packed = packer(self.data)
        self.crc = zlib.crc32(self.data) if self.crc is None else self.crc
        self.size = len(self.data) if self.size is None else self.size
        self.packed_size = len(self.packed) if self.packed_size is None else self.packed_size

    def _fields(self, name):
        sizes = (0xFFFFFFFF, 0xFFFFFFFF) if self.zip64 else (self.packed_size, self.size)
        extra = struct.pack("<HHQQ", 1, 16, self.size, self.packed_size) if self.zip64 else b""
        version = 45 if self.zip64 else 20
        return (
            struct.pack(
                "<HHHHHIIIHH",
                version,
                self.flags,
                self.method,
                0,
                0x21,
                self.crc,
                *sizes,
                len(name),
                len(extra),
            ),
            extra,
        )

    def local(self):
        name = self.local_name or self.name
        fields, extra = self._fields(name)
        return b"PK\x03\x04" + fields + name + extra + self.packed

    def central(self, offset):
        fields, extra = self._fields(self.name)
        return (
            b"PK\x01\x02"
            + struct.pack("<H", 0x031E)
            + fields
            + struct.pack("<HHHII", 0, self.disk, 0, self.attributes, offset)
            + self.name
            + extra
        )


def lzma_member(data, dictionary=1 << 16, end_marker=True):
    """LZMA as zip has it: a version, the length of the properties, those, the raw stream."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, "lc": 3, "lp": 0, "pb": 2}]
    head = struct.pack("<BBHBI", 9, 20, 5, (2 * 5 + 0) * 9 + 3, dictionary)
    if end_marker:
        return head + lzma.compress(data, lzma.FORMAT_RAW, filters=filters)
    return head + lzma.compress(data, lzma.FORMAT_ALONE, filters=filters)[13:]


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zip_end(count, size, offset, comment=b"", disk=0):
    return (
        b"PK\x05\x06"
        + struct.pack("<HHHHIIH", disk, disk, count, count, size, offset, len(comment))
        + comment
    )


def zip64_end(count, size, offset, position):
    """The zip64 end record and locator at `position`, and the classic one that defers to them."""
    record = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, position, 1)
    return record + locator + zip_end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def zip_file(members, comment=b"", base=0, disk=0):
    """A zip archive of members; `base` is what its offsets count besides (bytes put before it)."""
    body, central, offset = [], [], base
    for member in members:
        central.append(member.central(offset))
        body.append(member.local())
        offset += len(body[-1])
    listed = b"".join(central)
    return b"".join([*body, listed, zip_end(len(members), len(listed), offset, comment, disk)])


def npz(tensors, method=0):
    return zip_file(
        [
            Member(
                f"{name}.npy".encode(), npy_of(tensor), method, flags=0 if name.isascii() else 0x800
            )
            for name, tensor in tensors.items()
        ]
    )


def read_npz(path):
    with zipfile.ZipFile(path) as archive:
        return {
            name.removesuffix(".npy"): read_npy(archive.read(name)) for name in archive.namelist()
        }


def crc32_zeros(crc, count):
    """The CRC-32 of data followed by zeros, from the data's, by repeated squaring."""

    def apply(step, state):
        result = 0
        for bit, column in enumerate(step):
            if state >> bit & 1:
                result ^= column
        return result

    table = [zlib.crc32(bytes([value]), 0xFFFFFFFF) ^ 0xFFFFFFFF for value in range(256)]
    step = [table[1 << bit & 0xFF] ^ (1 << bit >> 8) for bit in range(32)]
    state = crc ^ 0xFFFFFFFF
    while count:
        if count & 1:
            state = apply(step, state)
        step = [apply(step, column) for column in step]
        count >>= 1
    return state ^ 0xFFFFFFFF


def deflate_zeros(head, blocks, block=16 << 20):
    """Deflated `head` and zeros, in pieces: after a full flush every block is the same bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    yield packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    piece = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(blocks):
        yield piece
    yield packer.flush()


# safetensors


def entries_of(tensors):
    """Header entries that pack tensors in order, and the data."""
    entries, data = {}, b""
    for name, tensor in tensors.items():
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(tensor.data)],
        }
        data += tensor.data
    return entries, data


def safetensors_raw(header, data=b"", length=None):
    """A .safetensors file around a header given as text, bytes or an object."""
    if not isinstance(header, (str, bytes)):
        header = compact(header)
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def safetensors(tensors, metadata=None):
    entries, data = entries_of(tensors)
    header = compact({"__metadata__": metadata, **entries} if metadata else entries)
    return safetensors_raw(header + " " * (-len(header.encode()) % 8), data)


def read_safetensors(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return _cut(header, data[8 + length :])


def _cut(entries, data):
    return {
        name: Tensor(entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
        for name, entry in entries.items()
    }


# deathtensors

ZSTD, CHECKSUM = 1, 2


def deathtensors_header(entries, metadata=None):
    return {
        "format": "deathtensors",
        "format_version": 1,
        "created_by": "test",
        "global_metadata": metadata or {},
        "tensors": {
            name: {**entry, "metadata": entry.get("metadata", {})}
            for name, entry in entries.items()
        },
    }


def deathtensors_raw(
    header, blob=b"", flags=0, magic=b"DTLEGION", version=1, size=None, pad=None, footer=None
):
    """A .deathtensors file around a header given as bytes or an object."""
    if not isinstance(header, bytes):
        header = json.dumps(header, indent=2, ensure_ascii=False).encode()
    body = header + (bytes(-len(header) % 8) if pad is None else pad) + blob
    if footer is None:
        footer = hashlib.sha256(body).digest() if flags & CHECKSUM else b""
    return (
        magic
        + struct.pack("<IIQ", version, flags, len(header) if size is None else size)
        + body
        + footer
    )


def deathtensors(tensors, metadata=None, flags=0, **lies):
    entries, data = entries_of(tensors)
    return deathtensors_raw(
        deathtensors_header(entries, metadata), zstd(data) if flags & ZSTD else data, flags, **lies
    )


def deathtensors_parts(path):
    """Flags, header and uncompressed blob of a .deathtensors file."""
    data = Path(path).read_bytes()
    magic, version, flags, size = struct.unpack_from("<8sIIQ", data)
    assert (magic, version) == (b"DTLEGION", 1), (magic, version)
    body = data[24:-32] if flags & CHECKSUM else data[24:]
    if flags & CHECKSUM:
        assert hashlib.sha256(body).digest() == data[-32:], "the footer is wrong"
    blob = body[size + -size % 8 :]
    return flags, json.loads(body[:size]), unzstd(blob) if flags & ZSTD else blob


def read_deathtensors(path):
    _, header, blob = deathtensors_parts(path)
    return _cut(header["tensors"], blob)


# zstd


def zstd(data, *options):
    """One frame by the zstd program, without the frame checksum unless asked for."""
    return subprocess.run(
        ["zstd", "-q", "-c", "--no-check", *options], input=data, stdout=subprocess.PIPE, check=True
    ).stdout


def unzstd(data):
    return subprocess.run(
        ["zstd", "-q", "-dc"], input=data, stdout=subprocess.PIPE, check=True
    ).stdout


def zstd_zeros(count):
    """One frame of `count` zero bytes, made without holding them."""
    with open("/dev/zero", "rb") as zeros:
        head = subprocess.Popen(["head", "-c", str(count)], stdin=zeros, stdout=subprocess.PIPE)
        with head:
            return subprocess.run(
                ["zstd", "-q", "-c", "--no-check"],
                stdin=head.stdout,
                stdout=subprocess.PIPE,
                check=True,
            ).stdout


def zstd_stored(data, window_log=20, checksum=None, dictionary=None):
    """One frame by hand: a raw block behind a header that can claim what it likes."""
    descriptor = (4 if checksum is not None else 0) | (1 if dictionary is not None else 0)
    frame = b"\x28\xb5\x2f\xfd" + bytes([descriptor, window_log - 10 << 3])
    if dictionary is not None:
        frame += bytes([dictionary])
    frame += struct.pack("<I", len(data) << 3 | 1)[:3] + data
    return frame + (struct.pack("<I", checksum) if checksum is not None else b"")


# values

_MINIFLOAT = {  # exponent bits, mantissa bits, bias, which patterns are not finite
    "F8_E4M3": (4, 3, 7, "fn"),
    "F8_E5M2": (5, 2, 15, "ieee"),
    "F8_E4M3FNUZ": (4, 3, 8, "fnuz"),
    "F8_E5M2FNUZ": (5, 2, 16, "fnuz"),
}


def _minifloat(bits, exponent_bits, mantissa_bits, bias, kind):
    sign = -1.0 if bits >> 7 else 1.0
    exponent, mantissa = (
        bits >> mantissa_bits & (1 << exponent_bits) - 1,
        bits & (1 << mantissa_bits) - 1,
    )
    if (kind == "fnuz" and bits == 0x80) or (kind == "fn" and bits & 0x7F == 0x7F):
        return math.nan
    if kind == "ieee" and exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)


def values(tensor):
    """A tensor's elements as Python numbers; complex ones as pairs in a row."""
    dtype, data = tensor.dtype, tensor.data
    if dtype == "BOOL":
        return [int(byte != 0) for byte in data]
    if dtype in _MINIFLOAT:
        return [_minifloat(byte, *_MINIFLOAT[dtype]) for byte in data]
    if dtype == "F8_E8M0":
        return [math.nan if byte == 255 else math.ldexp(1.0, byte - 127) for byte in data]
    if dtype == "BF16":
        return [
            struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(0, len(data), 2)
        ]
    code = {
        "U8": "B",
        "I8": "b",
        "U16": "H",
        "I16": "h",
        "U32": "I",
        "I32": "i",
        "U64": "Q",
        "I64": "q",
        "F16": "e",
        "C32": "e",
        "F32": "f",
        "F64": "d",
        "C64": "f",
        "C128": "d",
    }[dtype]
    return [value for value, in struct.iter_unpack("<" + code, data)]


def same_values(one, other):
    """Equal element by element, NaN with NaN, and the sign of zero included."""
    return [repr(float(value)) for value in values(one)] == [
        repr(float(value)) for value in values(other)
    ]
