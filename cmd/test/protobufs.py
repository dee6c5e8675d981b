"""Protobuf messages made and read by hand, and the ONNX files that are made of them.

A message is bytes; a maker of fields returns bytes too, so a message is a sum of fields and every
lie can be told. The reader takes apart what tconv writes and knows no more than that needs.
"""

import struct

from files import Tensor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MODEL_GRAPH = 7
INITIALIZER = 5
SPARSE_INITIALIZER = 15
MINUS_ONE = 2**64 - 1  # as protobuf has it

DATA_TYPES = {
    "F32": 1,
    "U8": 2,
    "I8": 3,
    "U16": 4,
    "I16": 5,
    "I32": 6,
    "I64": 7,
    "BOOL": 9,
    "F16": 10,
    "F64": 11,
    "U32": 12,
    "U64": 13,
    "C64": 14,
    "C128": 15,
    "BF16": 16,
    "F8_E4M3": 17,
    "F8_E4M3FNUZ": 18,
    "F8_E5M2": 19,
    "F8_E5M2FNUZ": 20,
    "U4": 21,
    "I4": 22,
    "F4": 23,
    "F8_E8M0": 24,
    "F6_E2M3": 27,
    "F6_E3M2": 28,
}
DTYPES = {number: dtype for dtype, number in DATA_TYPES.items()}
STRING = 8


# Making


SHORT = [bytes([value]) for value in range(0x80)]


def varint(value):
    """A number in its shortest form; negative ones take ten bytes."""
    if 0 <= value <= 0x7F:
        return SHORT[value]
    value %= 2**64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def tag(number, kind):
    return varint(number << 3 | kind)


def number(field, value):
    return tag(field, VARINT) + varint(value)


def block(field, content, length=None):
    """Bytes, text or a message; `length` may lie."""
    content = content.encode() if isinstance(content, str) else content
    return tag(field, BYTES) + varint(len(content) if length is None else length) + content


def fixed32(field, value):
    return tag(field, FIXED32) + struct.pack("<f", value)


def fixed64(field, value):
    return tag(field, FIXED64) + struct.pack("<d", value)


def packed(field, values):
    return block(field, b"".join(map(varint, values)))


def pair(field, key, value):
    return block(field, block(1, key) + block(2, value))


def shape_of(sizes):
    return b"".join(number(1, size) for size in sizes)


def tensor_proto(tensor, name=None, data=None):
    """A TensorProto; `data` are the fields that hold the values, raw_data where none are given."""
    return (
        shape_of(tensor.shape)
        + number(2, DATA_TYPES[tensor.dtype])
        + (b"" if name is None else block(8, name))
        + (block(9, tensor.data) if data is None else data)
    )


def external(location, offset=None, length=None, more=()):
    """The fields of data in another file, and pairs besides."""
    entries = [("location", location), ("offset", offset), ("length", length), *more]
    pairs = [pair(13, key, value) for key, value in entries if value is not None]
    return b"".join(pairs) + number(14, 1)


def initializer(tensor, name, data=None):
    return block(INITIALIZER, tensor_proto(tensor, name, data))


def attribute(name, content):
    return block(5, block(1, name) + content)


def node(content, output=None, name=None, operator="Identity"):
    """A node of a graph; of a function it would be field 7."""
    head = b"" if output is None else block(2, output)
    return block(1, head + (b"" if name is None else block(3, name)) + block(4, operator) + content)


def constant(output, name, content):
    return node(attribute(name, content), output, operator="Constant")


OPSET = block(8, block(1, "") + number(2, 17))


def model(graph, before=b"", behind=b"", ir=8):
    """A ModelProto around the fields of a graph, in the order in which ONNX writes them."""
    return number(1, ir) + before + block(MODEL_GRAPH, graph) + OPSET + behind


def onnx(tensors, metadata=None):
    """A model that has these tensors as initializers."""
    return model(
        block(2, "graph") + b"".join(initializer(t, name) for name, t in tensors.items()),
        behind=b"".join(pair(14, key, value) for key, value in (metadata or {}).items()),
    )


def pb(tensors):
    """A file of one tensor."""
    ((name, tensor),) = tensors.items()
    return tensor_proto(tensor, name)


# Reading


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, value) of each field: an int, or bytes."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind, value = key & 7, None
        if kind == VARINT:
            value, at = read_varint(data, at)
        else:
            length = {FIXED32: 4, FIXED64: 8}.get(kind)
            if kind == BYTES:
                length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
            assert len(value) == length, "a field that is cut short"
        yield key >> 3, value


def message(data):
    """The fields of a message by number, each a list."""
    found = {}
    for field, value in fields(data):
        found.setdefault(field, []).append(value)
    return found


def entries(messages):
    """A list of StringStringEntryProto, as a dict."""
    pairs = [message(each) for each in messages]
    return {each[1][0].decode(): each[2][0].decode() for each in pairs}


def numbers(values):
    """The numbers of a repeated field, packed or not."""
    found = []
    for value in values:
        at = 0
        if isinstance(value, int):
            found.append(value)
        while isinstance(value, bytes) and at < len(value):
            single, at = read_varint(value, at)
            found.append(single)
    return found


FLOATS, DOUBLES = 4, 10  # the fields whose numbers are as they are in memory
TYPED = (FLOATS, DOUBLES, 5, 7, 11)
LETTERS = {  # others than a byte
    "I8": "b",
    "F16": "H",
    "BF16": "H",
    "I16": "h",
    "U16": "H",
    "I32": "i",
    "U32": "I",
    "I64": "q",
    "U64": "Q",
}


def listed(field, values, dtype):
    """The bytes of a typed list."""
    if field in (FLOATS, DOUBLES):
        return b"".join(values)
    letter, found = LETTERS.get(dtype, "B"), numbers(values)
    if letter.islower():
        found = [value - 2**64 if value >= 2**63 else value for value in found]
    return struct.pack(f"<{len(found)}{letter}", *found)


def read_tensor(data, folder):
    """The name and the tensor of a TensorProto."""
    found = message(data)
    dtype, shape = DTYPES[found[2][0]], numbers(found.get(1, []))
    if found.get(14) == [1]:
        place = entries(found[13])
        with open(folder / place["location"], "rb") as file:
            file.seek(int(place.get("offset", 0)))
            content = file.read(int(place["length"])) if "length" in place else file.read()
    else:
        typed = next((field for field in TYPED if field in found), None)
        content = listed(typed, found[typed], dtype) if typed else found.get(9, [b""])[0]
    return found.get(8, [b""])[0].decode(), Tensor(dtype, shape, content)


def transposed(data, rows, columns):
    """A matrix of numbers of 8 bytes, turned."""
    assert len(data) == rows * columns * 8, "a matrix of another size"
    places = [row * columns + column for column in range(columns) for row in range(rows)]
    return b"".join(data[place * 8 : place * 8 + 8] for place in places)


def rows_of(matrix):
    """The rows of a matrix of I64."""
    count, width = matrix.shape
    return list(struct.iter_unpack(f"<{width}q", matrix.data)) if count else []


def coo(name, indices, values, sizes):
    """The parts of a sparse tensor as tconv has them, by names, of indices [nnz, rank], values [nnz]
    and the sizes."""
    assert (indices.dtype, indices.shape) == ("I64", [values.shape[0], len(sizes)]), indices
    assert len(values.shape) == 1, values
    for place in rows_of(indices):
        assert all(0 <= index < size for index, size in zip(place, sizes)), f"{place} in {sizes}"
    turned = transposed(indices.data, *indices.shape)
    shape = struct.pack(f"<{len(sizes)}q", *sizes)
    return {
        f"{name}.indices": Tensor("I64", indices.shape[::-1], turned),
        f"{name}.values": values,
        f"{name}.shape": Tensor("I64", [len(sizes)], shape),
    }


def read_sparse(data, folder):
    """The name, the parts and the sizes of a SparseTensorProto: values 1, which have the name;
    indices 2, in ascending order, none twice; dims 3."""
    found = message(data)
    ((values,), (indices,)), sizes = (found[1], found[2]), numbers(found.get(3, []))
    (name, values), (_, indices) = read_tensor(values, folder), read_tensor(indices, folder)
    parts, places = coo(name, indices, values, sizes), rows_of(indices)
    assert name, "a sparse tensor without a name"
    assert places == sorted(set(places)), "indices that do not ascend"
    return name, parts, sizes


def graph_of(path):
    return message(path.read_bytes())[MODEL_GRAPH][0]


def sparse_tensors(path):
    """The sparse initializers of a model by name, each its dtype and sizes."""
    found = message(graph_of(path)).get(SPARSE_INITIALIZER, [])
    read = [read_sparse(each, path.parent) for each in found]
    return {name: (parts[f"{name}.values"].dtype, sizes) for name, parts, sizes in read}


def read_onnx(path):
    """The initializers of a model as they stand there, sparse ones as their parts."""
    tensors = {}
    for place, value in fields(graph_of(path)):
        if place == INITIALIZER:
            more = dict([read_tensor(value, path.parent)])
        elif place == SPARSE_INITIALIZER:
            more = read_sparse(value, path.parent)[1]
        else:
            continue
        assert not tensors.keys() & more.keys(), f"two of a name: {list(more)}"
        tensors |= more
    return tensors


def companions(path):
    """The files that hold a model's external data."""
    graph = message(graph_of(path))
    places = [entries(message(each).get(13, [])) for each in graph.get(INITIALIZER, [])]
    return {path.parent / place["location"] for place in places if place}


def read_pb(path):
    name, tensor = read_tensor(path.read_bytes(), path.parent)
    return {name or path.stem: tensor}


def read_metadata(path):
    return entries(message(path.read_bytes()).get(14, []))


LOWEST_IR = {"U4": 10, "I4": 10, "F4": 11, "F8_E8M0": 12, "F6_E2M3": 14, "F6_E3M2": 14}
SPARSE_IR = 6  # which has sparse initializers
LOWEST_OPSET = {4: 9, SPARSE_IR: 11, 9: 19, 10: 21, 11: 23, 12: 24, 14: 28}
ALIGNMENT = 1 << 16


def faults(path):
    """What a model by tconv must not be: other versions than the lowest, tensors that are no outputs
    of the same type, external data that is not aligned, overlaps or leaves a gap of its own."""
    top = message(path.read_bytes())
    graph = message(top[MODEL_GRAPH][0])
    tensors, sparse = read_onnx(path), sparse_tensors(path)
    found = []
    ir = max(
        [
            SPARSE_IR if sparse else 4,
            *(
                LOWEST_IR.get(t.dtype, 9 if t.dtype.startswith("F8") else 4)
                for t in tensors.values()
            ),
        ]
    )
    opset = LOWEST_OPSET[ir]
    if any(t.dtype == "BF16" for t in tensors.values()):
        opset = max(opset, 13)
    versions = top[1], [message(each)[2][0] for each in top[8]]
    if versions != ([ir], [opset]):
        found.append(f"versions {versions}, expected {ir} and {opset}")
    outputs = {}
    for each in graph.get(12, []):
        output = message(each)
        kind = message(message(output[2][0])[1][0])
        sizes = [message(dim)[1][0] for dim in message(kind[2][0]).get(1, [])]
        outputs[output[1][0].decode()] = (DTYPES[kind[1][0]], sizes)
    parts = {f"{name}.{role}" for name in sparse for role in ("indices", "values", "shape")}
    dense = {name: (t.dtype, t.shape) for name, t in tensors.items() if name not in parts}
    if outputs != dense | sparse:
        found.append("the outputs are others than the initializers")
    end = 0
    for each in graph.get(INITIALIZER, []):
        tensor = message(each)
        if tensor.get(14) != [1]:
            continue
        place = entries(tensor[13])
        aligned = -(-end // ALIGNMENT) * ALIGNMENT
        if place["location"] != f"{path.name}.data" or int(place["offset"]) != aligned:
            found.append(f"external data in {place}, expected at {aligned}")
        end = aligned + int(place["length"])
    beside = path.with_name(f"{path.name}.data")
    if end != (beside.stat().st_size if beside.exists() else 0):
        found.append(f"{beside.name} is not {end} bytes long")
    return found
