"""Pickles and torch's files made by hand: opcodes, tensors, and the archives around them.

Makers return bytes, and nothing here ever loads a pickle. Where a value is asked for, bytes are
opcodes already and anything else is encoded, so that code nests:

    pickled({"w": tensor(), "x": call("os", "system", "true")})

The stdlib's pickle module names the opcodes: `import pickle as op`.
"""

import functools
import pickle as op
import struct
import zlib

import torch_files
from files import Member, crc32_zeros, f32, zip64_end, zip_file

THREE = f32(1, 2, 3)
STORAGE_OF = {dtype: kind for kind, dtype in torch_files.STORAGES.items()}
NEW_DTYPE_OF = {dtype: label for label, dtype in torch_files.DTYPES.items()}


# values and calls


def code(value):
    """The opcodes that push a value."""
    match value:
        case bytes():
            return value
        case None:
            return op.NONE
        case bool():
            return op.NEWTRUE if value else op.NEWFALSE
        case int():
            return integer(value)
        case float():
            return op.BINFLOAT + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return op.BINUNICODE + struct.pack("<I", len(data)) + data
        case tuple():
            return op.MARK + b"".join(map(code, value)) + op.TUPLE if value else op.EMPTY_TUPLE
        case list():
            return op.EMPTY_LIST + op.MARK + b"".join(map(code, value)) + op.APPENDS
        case dict():
            items = b"".join(code(key) + code(item) for key, item in value.items())
            return op.EMPTY_DICT + op.MARK + items + op.SETITEMS
    raise TypeError(value)


def integer(value):
    for opcode, layout, low, high in (
        (op.BININT1, "<B", 0, 2**8),
        (op.BININT2, "<H", 0, 2**16),
        (op.BININT, "<i", -(2**31), 2**31),
    ):
        if low <= value < high:
            return opcode + struct.pack(layout, value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return op.LONG1 + bytes([len(data)]) + data


def byte_string(data):
    return op.BINBYTES + struct.pack("<I", len(data)) + data


def name(module, attribute):
    """A global by the opcode of the first protocols."""
    return op.GLOBAL + f"{module}\n{attribute}\n".encode()


def stack_name(module, attribute):
    """A global as protocol 4 has it; the names can be any values."""
    return code(module) + code(attribute) + op.STACK_GLOBAL


def reduce(function, *args):
    return code(function) + code(args) + op.REDUCE


def call(module, attribute, *args):
    return reduce(name(module, attribute), *args)


def put(number):
    """Memoise the top of the stack."""
    return op.LONG_BINPUT + struct.pack("<I", number)


def get(number):
    return op.LONG_BINGET + struct.pack("<I", number)


def frame(body, length=None):
    return op.FRAME + struct.pack("<Q", len(body) if length is None else length) + body


def pickled(value, protocol=2):
    """A whole pickle; protocol None leaves PROTO out, as protocols 0 and 1 do."""
    start = b"" if protocol is None else op.PROTO + bytes([protocol])
    return start + code(value) + op.STOP


def distinct_puts(count):
    """PUT opcodes for so many different memo entries, made by their upper halves."""
    lower = [op.LONG_BINPUT + struct.pack("<H", number) for number in range(1 << 16)]
    parts = []
    for first in range(0, count, 1 << 16):
        upper = struct.pack("<H", first >> 16)
        parts += [upper.join(lower[: count - first]), upper]
    return b"".join(parts)


# tensors and arrays

ORDERED_DICT = call("collections", "OrderedDict")


def storage(key="0", count=3, kind="FloatStorage", view=(), module="torch"):
    """A storage by its persistent id; in the legacy stream `view` is (None,) or ((key, …),)."""
    return code(("storage", name(module, kind), key, "cpu", count, *view)) + op.BINPERSID


def tensor(store=None, offset=0, size=(3,), stride=(1,)):
    """A view of a storage, by default all of the three floats in "0"."""
    store = storage() if store is None else store
    return call(
        "torch._utils", "_rebuild_tensor_v2", store, offset, size, stride, False, ORDERED_DICT
    )


def dtype(descr="f4"):
    """As numpy writes one of numbers, or of objects, which has flags of its own."""
    order, flags = ("|", 63) if "O" in descr else ("<", 0)
    state = (3, order, None, None, None, -1, -1, flags)
    return call("numpy", "dtype", descr, False, True) + code(state) + op.BUILD


def ndarray(shape=(3,), data=THREE.data, descr="f4"):
    """An array as numpy pickles it in protocols 3 and 4."""
    empty = call(
        "numpy._core.multiarray",
        "_reconstruct",
        name("numpy", "ndarray"),
        (0,),
        byte_string(b"b"),
    )
    data = data if isinstance(data, list) else byte_string(data)
    return empty + code((1, shape, dtype(descr), False, data)) + op.BUILD


# zip archives


def pt_members(pickle, data=None, root="archive", byteorder=b"little", version=b"3\n", more=None):
    """The members of a torch archive, name -> content; None leaves one out."""
    members = {"data.pkl": pickle, "byteorder": byteorder}
    members |= {
        f"data/{key}": content
        for key, content in ({"0": THREE.data} if data is None else data).items()
    }
    members |= {"version": version, ".data/serialization_id": b"0" * 40, **(more or {})}
    return {
        f"{root}/{member}".encode(): content
        for member, content in members.items()
        if content is not None
    }


def pt(pickle, *args, **lies):
    """A torch archive around a pickle; `data` are its storages, one of three floats by default."""
    return zip_of(pt_members(pickle, *args, **lies))


def zip_of(members):
    return zip_file([Member(member, content) for member, content in members.items()])


CONSTANTS = pickled(())
MODULE = name("__torch__", "Module")


def script_object(state, kind=MODULE):
    """A TorchScript object with these attributes."""
    return kind + op.EMPTY_TUPLE + op.NEWOBJ + code(state) + op.BUILD


def script_source(names):
    """The code of a module that has nothing but these tensors."""
    quoted = [f'"{each}"' for each in names]
    return (
        f"class Module(Module):\n  __parameters__ = [{''.join(each + ', ' for each in quoted)}]\n"
        "  __buffers__ = []\n  __annotations__ = []\n"
        + "".join(f"  __annotations__[{each}] = Tensor\n" for each in quoted)
    ).encode()


def ot(state=None, pickle=None, data=None, constants=CONSTANTS, **lies):
    """A libtorch archive: one module whose attributes are tensors."""
    state = {"w": tensor()} if state is None else state
    members = {"code/__torch__.py": script_source(state), "constants.pkl": constants}
    return pt(
        pickled(script_object(state)) if pickle is None else pickle,
        data,
        **{**lies, "more": {**members, **lies.get("more", {})}},
    )


def views_of(tensors):
    """The views and the storages of a set of tensors, as opcodes and as bytes."""
    views, data = {}, {}
    for number, (label, each) in enumerate(tensors.items()):
        kind, new = STORAGE_OF.get(each.dtype), NEW_DTYPE_OF.get(each.dtype)
        key, stride = str(number), 1
        strides = []
        for size in reversed(each.shape):
            strides.insert(0, stride)
            stride *= size
        if kind:
            views[label] = tensor(storage(key, stride, kind), 0, tuple(each.shape), tuple(strides))
        else:
            untyped = storage(key, len(each.data), "UntypedStorage", module="torch.storage")
            args = (untyped, 0, tuple(each.shape), tuple(strides), False, ORDERED_DICT)
            views[label] = call("torch._utils", "_rebuild_tensor_v3", *args, name("torch", new))
        data[key] = each.data
    return views, data


def pt_of(tensors):
    """A state dict as torch saves it; no F4."""
    views, data = views_of(tensors)
    return pt(pickled(views), data)


def ot_of(tensors):
    views, data = views_of(tensors)
    return ot({label.replace(".", "|"): view for label, view in views.items()}, data=data)


# legacy streams

MAGIC = 0x1950A86A20F9469CFC6C
SYS_INFO = {
    "protocol_version": 1001,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
LEGACY_TENSOR = tensor(storage(view=(None,)))


def legacy_parts(pickle, storages=None, magic=MAGIC, protocol=1001, sys_info=None, keys=None):
    """The parts of a stream: five pickles, then (count, data) of each storage."""
    storages = {"0": (3, THREE.data)} if storages is None else storages
    return [
        pickled(magic),
        pickled(protocol),
        pickled(SYS_INFO if sys_info is None else sys_info),
        pickle,
        pickled(list(storages) if keys is None else keys),
        *(struct.pack("<q", count) + data for count, data in storages.values()),
    ]


def legacy(pickle, *args, **lies):
    return b"".join(legacy_parts(pickle, *args, **lies))


# tar archives

TAR_STORAGE, TAR_TENSOR = 1001, 2001
TAR_VALUE = code(str(TAR_TENSOR)) + op.BINPERSID


def tar_member(member, data=b"", kind=b"0", link=b"", size=None, checksum=None):
    """A header in ustar form and padded data; `size` is the field's bytes or a number."""
    if not isinstance(size, bytes):
        size = b"%011o\0" % (len(data) if size is None else size)
    header = bytearray(
        struct.pack(
            "100s8s8s8s12s12s8sc100s8s247x",
            member,
            b"0000644\0",
            b"0000000\0",
            b"0000000\0",
            size,
            b"00000000000\0",
            b" " * 8,
            kind,
            link,
            b"ustar\x0000",
        )
    )
    header[148:156] = b"%06o\0 " % (sum(header) if checksum is None else checksum)
    return bytes(header) + data + bytes(-len(data) % 512)


def tar_storages(count=1, key=TAR_STORAGE, elements=3, data=THREE.data, views=(), kind=None):
    return (
        pickled(count)
        + pickled((key, "cpu", kind or name("torch", "FloatStorage")))
        + struct.pack("<q", elements)
        + data
        + pickled(list(views))
    )


def tar_tensors(count=1, store=TAR_STORAGE, size=(3,), stride=(1,), offset=0, ndim=None, kind=None):
    return (
        pickled(count)
        + pickled((TAR_TENSOR, store, kind or name("torch", "FloatTensor")))
        + struct.pack("<ii", len(size) if ndim is None else ndim, 0)
        + struct.pack(f"<{len(size)}q{len(stride)}qq", *size, *stride, offset)
    )


def torch_tar_members(pickle=None, **members):
    """name -> content of the four members; a keyword replaces one."""
    return {
        "sys_info": pickled(SYS_INFO),
        "pickle": pickled({"w": TAR_VALUE}) if pickle is None else pickle,
        "tensors": tar_tensors(),
        "storages": tar_storages(),
        **members,
    }


def tar_of(members, before=b"", end=bytes(1024)):
    """A tar archive; `before` are members in bytes already."""
    return (
        before
        + b"".join(tar_member(member.encode(), data) for member, data in members.items())
        + end
    )


def torch_tar(pickle=None, **members):
    return tar_of(torch_tar_members(pickle, **members))


# files with holes


class Zeros(int):
    """So many zero bytes, which take no space on disk."""


def write_pieces(folder, file, pieces):
    with open(folder / file, "wb") as out:
        for piece in pieces:
            if isinstance(piece, Zeros):
                out.truncate(out.seek(piece, 1))
            else:
                out.write(piece)


def sparse(file, pieces):
    """The content of an attack's input: a file of bytes and Zeros."""
    return functools.partial(write_pieces, file=file, pieces=pieces)


def sparse_zip(members):
    """The pieces of a zip archive of stored members: name -> pieces."""
    pieces, central, offset = [], b"", 0
    for member, content in members.items():
        content = [content] if isinstance(content, bytes) else content
        crc = 0
        for piece in content:
            crc = crc32_zeros(crc, piece) if isinstance(piece, Zeros) else zlib.crc32(piece, crc)
        size = sum(piece if isinstance(piece, Zeros) else len(piece) for piece in content)
        entry = Member(
            member, b"", packed=b"", crc=crc, size=size, packed_size=size, zip64=size >= 2**32
        )
        central += entry.central(offset)
        pieces += [entry.local(), *content]
        offset += len(entry.local()) + size
    end = zip64_end(len(members), len(central), offset, offset + len(central))
    return [*pieces, central, end]
