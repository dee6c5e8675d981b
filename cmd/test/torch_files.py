"""What torch's files hold, read without torch: zip archives, legacy streams and .ot.

The stdlib's unpickler does it with stand-ins of our own for the few names that such files need:
any other global is an error.
"""

import ast
import collections
import io
import json
import math
import pickle
import pickletools
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from files import Tensor

STORAGES = {
    "BoolStorage": "BOOL",
    "ByteStorage": "U8",
    "CharStorage": "I8",
    "ShortStorage": "I16",
    "IntStorage": "I32",
    "LongStorage": "I64",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "FloatStorage": "F32",
    "DoubleStorage": "F64",
    "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128",
}
DTYPES = {
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "complex32": "C32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}
QUANTISED = {  # quantised tensors and their storages have dtypes of their own
    "QInt8Storage": ("qint8", "I8"),
    "QUInt8Storage": ("quint8", "U8"),
    "QInt32Storage": ("qint32", "I32"),
}
INTEGERS = dict(QUANTISED.values())
WIDTHS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F4"), 1),  # torch counts pairs of F4
    **{dtype: 1 for dtype in DTYPES.values() if dtype.startswith("F8")},
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32", "C32"), 4),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 8),
    "C128": 16,
}
ROLES = {
    "coo": ("indices", "values", "shape"),
    "csr": ("crow_indices", "col_indices", "values", "shape"),
    "csc": ("ccol_indices", "row_indices", "values", "shape"),
    "bsr": ("crow_indices", "col_indices", "values", "shape"),
    "bsc": ("ccol_indices", "row_indices", "values", "shape"),
}
# What torch.load(weights_only=True) and libtorch's own unpickler both run.
OPCODES = set(
    "PROTO GLOBAL NEWOBJ REDUCE BUILD SETITEMS MARK TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE "
    "EMPTY_DICT NEWFALSE BININT BININT1 BININT2 BINFLOAT LONG1 BINUNICODE BINPERSID BINGET BINPUT "
    "LONG_BINGET LONG_BINPUT STOP".split()
)


@dataclass
class Contents:
    """A file's tensors, sparse ones as their parts, quantised ones as their integers, and what only
    the file says of them."""

    tensors: dict = field(default_factory=dict)
    storages: dict = field(default_factory=dict)  # a tensor's name -> its storage's key
    layouts: dict = field(default_factory=dict)  # a sparse tensor's name -> coo, csr, …
    quantised: dict = field(default_factory=dict)  # a tensor's name -> how to compute its values
    metadata: dict = field(default_factory=dict)
    tensor_metadata: dict = field(default_factory=dict)

    def ties(self):
        """Names of one storage, by the first."""
        groups = collections.defaultdict(list)
        for name, key in self.storages.items():
            groups[key].append(name)
        return [names for names in groups.values() if len(names) > 1]


# What a pickle is made of.

Storage = collections.namedtuple("Storage", "key dtype count")
View = collections.namedtuple("View", "storage dtype offset size stride")
Sparse = collections.namedtuple("Sparse", "layout parts")
Quantised = collections.namedtuple("Quantised", "view scheme parameters")
Scheme = collections.namedtuple("Scheme", "name channels")
SCHEMES = [
    Scheme("per_tensor_affine", False),
    Scheme("per_channel_affine", True),
    Scheme("per_channel_affine_float_qparams", True),
]


class Module:
    """An object of TorchScript: its attributes."""

    def __setstate__(self, state):
        self.state = state


def _rebuild_v2(storage, offset, size, stride, *_):
    return View(storage, storage.dtype, offset, size, stride)


def _rebuild_v3(storage, offset, size, stride, _grad, _hooks, dtype, *_):
    assert storage.dtype is None, "a storage with a dtype"
    return View(storage, dtype, offset, size, stride)


def _rebuild_quantised(storage, offset, size, stride, quantiser, _grad, _hooks):
    """A quantiser is a scheme, then scale and zero point or, by channel, tensors of them and the axis
    of the channels."""
    scheme, *parameters = quantiser
    kinds = (View, View, int) if scheme.channels else (float, int)
    assert tuple(map(type, parameters)) == kinds, f"{scheme.name} of {parameters}"
    return Quantised(
        View(storage, INTEGERS[storage.dtype], offset, size, stride), scheme, parameters
    )


GLOBALS = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_v3,
    ("torch._utils", "_rebuild_sparse_tensor"): Sparse,
    ("torch._utils", "_rebuild_qtensor"): _rebuild_quantised,
    ("torch.serialization", "_get_layout"): lambda text: text.removeprefix("torch.sparse_"),
    ("torch.storage", "UntypedStorage"): None,
    ("__torch__", "Module"): Module,
    **{("torch", name): dtype for name, dtype in (*STORAGES.items(), *DTYPES.items())},
    **{("torch", name): dtype for name, (dtype, _) in QUANTISED.items()},
    **{("torch", scheme.name): scheme for scheme in SCHEMES},
}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return GLOBALS[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, _location, count, *_ = pid
        assert kind == "storage", pid
        return Storage(key, dtype, count)


def _view_bytes(view, data):
    """A view's bytes in C order, and its shape as tconv reports it."""
    width = WIDTHS[view.dtype]
    expected = view.storage.count * (1 if view.storage.dtype is None else width)
    assert len(data) == expected, f"a storage of {len(data)} bytes, not {expected}"
    places = [view.offset]
    for size, stride in zip(view.size, view.stride, strict=True):
        places = [place + index * stride for place in places for index in range(size)]
    bytes_ = b"".join(data[place * width : (place + 1) * width] for place in places)
    assert len(bytes_) == width * math.prod(view.size), "a view beyond its storage"
    shape = list(view.size)
    if view.dtype == "F4":
        shape[-1] *= 2
    return Tensor(view.dtype, shape, bytes_)


def _fill(contents, values, data):
    def add(name, view):
        contents.tensors[name] = _view_bytes(view, data[view.storage.key])
        contents.storages[name] = view.storage.key

    for name, value in values.items():
        if isinstance(value, Sparse):
            contents.layouts[name] = value.layout
            *parts, shape = value.parts[: len(ROLES[value.layout])]
            for role, part in zip(ROLES[value.layout], parts):
                add(f"{name}.{role}", part)
            contents.tensors[f"{name}.shape"] = Tensor(
                "I64", [len(shape)], struct.pack(f"<{len(shape)}q", *shape)
            )
        elif isinstance(value, Quantised):
            how = {"quant.scheme": value.scheme.name}
            add(name, value.view)
            if value.scheme.channels:
                scales, zero_points, axis = value.parameters
                add(f"{name}.scales", scales)
                add(f"{name}.zero_points", zero_points)
                how["quant.axis"] = str(axis)
            else:
                scale, zero_point = value.parameters
                how |= {"quant.scale": repr(scale), "quant.zero_point": str(zero_point)}
            contents.quantised[name] = how
        elif isinstance(value, View):
            add(name, value)


def _read_zip(path):
    contents = Contents()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        root = next(name for name in names if name.endswith("data.pkl"))[: -len("data.pkl")]
        values = Unpickler(io.BytesIO(archive.read(root + "data.pkl"))).load()
        if isinstance(values, Module):
            values = {name.replace("|", "."): value for name, value in values.state.items()}
        prefix = root + "data/"
        data = {n.removeprefix(prefix): archive.read(n) for n in names if n.startswith(prefix)}
        _fill(contents, values, data)
        if root + "tconv.json" in names:
            more = json.loads(archive.read(root + "tconv.json"))
            contents.metadata, contents.tensor_metadata = more["metadata"], more["tensors"]
    return contents


def _read_legacy(path):
    stream = io.BytesIO(Path(path).read_bytes())
    _magic, _protocol, _system, values, keys = (Unpickler(stream).load() for _ in range(5))
    views = [value.view if isinstance(value, Quantised) else value for value in values.values()]
    widths = {view.storage.key: WIDTHS[view.dtype] if view.storage.dtype else 1 for view in views}
    data = {}
    for key in keys:
        (count,) = struct.unpack("<q", stream.read(8))
        data[key] = stream.read(count * widths[key])
    contents = Contents()
    _fill(contents, values, data)
    return contents


def read(path):
    """A state dict that torch or tconv wrote; what is no tensor in it is passed over."""
    return _read_zip(path) if zipfile.is_zipfile(path) else _read_legacy(path)


def read_tensors(path):
    return read(path).tensors


def faults(path, script):
    """What torch or libtorch would not take, or take wrongly, in an archive that tconv wrote."""
    found = []
    data = Path(path).read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        storages = [name for name in names if name.startswith("archive/data/")]
        expected = {"archive/data.pkl", "archive/byteorder", "archive/version"}
        expected |= {"archive/code/__torch__.py", "archive/constants.pkl"} if script else set()
        rest = set(names) - set(storages) - {"archive/tconv.json"}
        if rest != expected:
            found.append(f"members {sorted(rest)}")
        if storages != [f"archive/data/{number}" for number in range(len(storages))]:
            found.append(f"storages {storages}")
        for member in members:
            name, extra = struct.unpack_from("<HH", data, member.header_offset + 26)
            if (member.header_offset + 30 + name + extra) % 64:
                found.append(f"{member.filename} is not aligned")
            if member.compress_type != zipfile.ZIP_STORED:
                found.append(f"{member.filename} is compressed")
        if archive.testzip():
            found.append(f"{archive.testzip()} has a wrong CRC")
        code = archive.read("archive/data.pkl")
        found += pickle_faults(code, script)
        if script and archive.read("archive/constants.pkl") != b"\x80\x02).":
            found.append("constants.pkl")
        if script:
            attributes = list(Unpickler(io.BytesIO(code)).load().state)
            found += source_faults(archive.read("archive/code/__torch__.py"), attributes)
    return found


def source_faults(source, attributes):
    """The class must have every attribute as a parameter and nothing else; it reads as Python."""
    annotations = "".join(f"\n__annotations__[{name!r}] = Tensor" for name in attributes)
    meant = ast.parse(
        f"class Module(Module):\n __parameters__ = {attributes!r}\n __buffers__ = []\n"
        " __annotations__ = []" + annotations.replace("\n", "\n ")
    )
    return [] if ast.dump(ast.parse(source)) == ast.dump(meant) else [source.decode()]


def pickle_faults(code, script):
    found = []
    opcodes = list(pickletools.genops(code))
    strange = {opcode.name for opcode, _, _ in opcodes} - OPCODES
    if strange:
        found.append(f"opcodes {sorted(strange)}")
    if opcodes[0][0].name != "PROTO" or opcodes[0][1] != 2:
        found.append("not protocol 2")
    for opcode, value, place in opcodes:
        if script and opcode.name == "LONG1" and code[place + 1] != 8:
            found.append(f"{value} in {code[place + 1]} bytes, where libtorch reads only 8")
    return found
