"""Files below 4 MiB that each stress one dimension of what a file can make a program do.

`FILES` maps a name to a function that writes it (and what belongs to it) into a folder and returns
the path of the file. All are valid or nearly so: what makes them hard is number, length, repetition.
"""

import bz2
import gzip
import json
import lzma
import random
import struct
import zlib

import pickles
from files import (
    Member,
    ZSTD,
    Tensor,
    compact,
    deathtensors_header,
    deathtensors_raw,
    deflate_zeros,
    f32,
    npy,
    safetensors_raw,
    zip_end,
    zip64_end,
    zstd_zeros,
)
from harness import FULL, SANITIZED
from protobufs import block, constant, external, initializer, model, node, number, pair, tensor_proto
from tf_files import field, record
from tf_files import tensor_proto as tf_proto

# Of all that is repeated: an eighth, and with TCONV_FULL all. A sanitizer, under which no time or
# memory is measured, gets a sixteenth.
SHARE = 16 if SANITIZED else 1 if FULL else 8
LIMIT = (4 << 20) // SHARE - (64 << 10)  # bytes of a file that counts as small
FILES = {}


def file(name):
    def register(function):
        FILES[name] = function
        return function

    return register


def times(count):
    """So many times, or this run's share."""
    return range(max(2, count // SHARE))


def fill(pieces, limit=LIMIT):
    """Pieces joined until they would pass the limit."""
    out, length = [], 0
    for piece in pieces:
        length += len(piece)
        if length > limit:
            break
        out.append(piece)
    return out


def entry(name, dtype="U8", shape=(0,), offsets=(0, 0), more=""):
    place = f'"dtype":"{dtype}","shape":{compact(list(shape))},"data_offsets":{compact(list(offsets))}'
    return f"{json.dumps(name)}:{{{place}{more}}}"


def write(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


def safetensors_file(entries, data=b"", metadata=None):
    head = [f'"__metadata__":{compact(metadata)}'] if metadata else []
    return safetensors_raw("{" + ",".join(head + entries) + "}", data)


def deathtensors_file(entries, data=b"", metadata=None, flags=0):
    """As `safetensors_file`; every entry needs its metadata."""
    head = '{"format":"deathtensors","format_version":1,"created_by":"test","global_metadata":'
    header = f'{head}{compact(metadata or {})},"tensors":{{{",".join(entries)}}}}}'
    return deathtensors_raw(header.encode(), data, flags)


# safetensors


@file("empty.safetensors")
def empty_tensors(folder):
    """As many tensors as there is room for."""
    entries = fill(entry(f"{i:x}") + "," for i in range(10**6))
    return write(folder, "empty.safetensors", safetensors_file([e[:-1] for e in entries]))


@file("long_names.safetensors")
def long_names(folder):
    """Names as long as they may be, that differ in their last letters."""
    entries = [entry("n" * 65000 + f"{i}") for i in range(LIMIT // 65100)]
    return write(folder, "long_names.safetensors", safetensors_file(entries))


@file("prefixes.safetensors")
def prefixes(folder):
    """Names that share all but the end: each comparison goes through all of it."""
    entries = [entry("layer." * 100 + f"{i}") for i in range(LIMIT // 670)]
    random.Random(1).shuffle(entries)
    return write(folder, "prefixes.safetensors", safetensors_file(entries))


@file("metadata.safetensors")
def metadata_keys(folder):
    """Hundreds of thousands of metadata keys."""
    metadata = {f"{i}": "" for i in times(300000)}
    return write(folder, "metadata.safetensors", safetensors_file([entry("w")], b"", metadata))


@file("aliases.safetensors")
def aliases(folder):
    """Every metadata key is another name of one tensor, which is large."""
    size = 1 << 20
    metadata = {f"a.{i}": "w" for i in times(150000)}
    content = safetensors_file([entry("w", "U8", (size,), (0, size))], bytes(size), metadata)
    return write(folder, "aliases.safetensors", content)


@file("alias_list.safetensors")
def alias_list(folder):
    """The same by tconv's own list of aliases, which have long names."""
    size, names = 1 << 20, [("p" * 200) + f".{i}" for i in times(6000)]
    metadata = {each: "w" for each in names} | {"tconv.aliases": compact(names)}
    content = safetensors_file([entry("w", "U8", (size,), (0, size))], bytes(size), metadata)
    return write(folder, "alias_list.safetensors", content)


@file("tensor_metadata.safetensors")
def tensor_metadata(folder):
    """Metadata of tensors that all point at the same long texts, under one key of the file."""
    names = [f"{i}" for i in times(12000)]
    table = {each: {f"k{j}": "v" for j in range(10)} for each in names}
    metadata = {"tconv.tensor_metadata": compact(table)}
    return write(
        folder, "tensor_metadata.safetensors", safetensors_file([entry(n) for n in names], b"", metadata)
    )


@file("ranks.safetensors")
def ranks(folder):
    """As many dimensions as there may be, in every tensor."""
    shape = "[" + "1," * 63 + "0]"
    entries = fill(
        f'"{i}":{{"dtype":"U8","shape":{shape},"data_offsets":[0,0]}},' for i in range(10**6)
    )
    return write(folder, "ranks.safetensors", safetensors_file([e[:-1] for e in entries]))


@file("wide_zero.safetensors")
def wide_zero(folder):
    """Shapes that are huge but for one zero: nobody may count along the others."""
    shapes = [(1 << 40, 0), (0, 1 << 40), (1 << 20, 1 << 20, 0), (1 << 61, 0, 1)]
    entries = [entry(f"{i}", "F32", shape) for i, shape in enumerate(shapes * 1000)]
    return write(folder, "wide_zero.safetensors", safetensors_file(entries))


@file("sparse_groups.safetensors")
def sparse_groups(folder):
    """Sparse tensors by the thousand that declare dense shapes of 2^40 elements."""
    table, entries, data = {}, [], b""
    for i in times(2500):
        for role, dtype, shape, content in (
            ("indices", "I64", (2, 1), struct.pack("<qq", i, i)),
            ("values", "F32", (1,), struct.pack("<f", 1)),
            ("shape", "I64", (2,), struct.pack("<qq", 1 << 20, 1 << 20)),
        ):
            name = f"s{i}.{role}"
            table[name] = {
                "sparse_layout": "coo",
                "sparse_parent": f"s{i}",
                "sparse_role": role,
            }
            entries.append(entry(name, dtype, shape, (len(data), len(data) + len(content))))
            data += content
    metadata = {"tconv.tensor_metadata": compact(table)}
    return write(folder, "sparse_groups.safetensors", safetensors_file(entries, data, metadata))


@file("one_parent.safetensors")
def one_parent(folder):
    """Tens of thousands of tensors that all say they are parts of one sparse tensor."""
    table, entries = {}, [entry("p.indices", "I64", (1, 0)), entry("p.values", "F32", (0,))]
    entries.append(entry("p.shape", "I64", (1,), (0, 8)))
    parts = ["p.indices", "p.values", "p.shape"] + [f"{i}" for i in times(22000)]
    for name in parts:
        role = name.removeprefix("p.") if name.startswith("p.") else "indices"
        table[name] = {"sparse_parent": "p", "sparse_role": role}
    entries += [entry(name) for name in parts[3:]]
    metadata = {"tconv.tensor_metadata": compact(table)}
    content = safetensors_file(entries, struct.pack("<q", 8), metadata)
    return write(folder, "one_parent.safetensors", content)


@file("deep.safetensors")
def deep(folder):
    return write(folder, "deep.safetensors", safetensors_raw('{"a":' + "[" * (LIMIT - 10)))


@file("escapes.safetensors")
def escapes(folder):
    """Every letter of every text escaped: six bytes for one."""
    text = "\\u0001" * 10000
    entries = [f'"{text}{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(60)]
    return write(folder, "escapes.safetensors", safetensors_raw("{" + ",".join(entries) + "}"))


@file("packed.safetensors")
def packed_values(folder):
    """Types of less than a byte, and all their values."""
    size = 3 << 20
    data = bytes(range(256)) * (size // 256)
    content = safetensors_file([entry("w", "F4", (2 * size,), (0, size))], data)
    return write(folder, "packed.safetensors", content)


@file("rank64.safetensors")
def rank64(folder):
    """Four million elements whose last axes are all of length 2: printed as numpy would."""
    size = 1 << 21
    content = safetensors_file([entry("w", "U8", [1] * 43 + [2] * 21, (0, size))], bytes(size))
    return write(folder, "rank64.safetensors", content)


# deathtensors


@file("metadata.deathtensors")
def deathtensors_metadata(folder):
    """Metadata of its own in every tensor."""
    more = ',"metadata":{' + ",".join(f'"k{j}":"v"' for j in range(30)) + "}"
    entries = fill(entry(f"{i}", more=more) + "," for i in range(10**6))
    return write(folder, "metadata.deathtensors", deathtensors_file([e[:-1] for e in entries]))


@file("zeros.deathtensors")
def zeros(folder):
    """A frame of 250 MiB of zeros, in many tensors that are wanted backwards."""
    size, count = 250 << 20, 10000
    step = size // count // 4 * 4
    entries = [
        entry(f"{count - i:06}", "F32", (step // 4,), (i * step, (i + 1) * step), ',"metadata":{}')
        for i in range(count)
    ]
    content = deathtensors_file(entries, zstd_zeros(step * count), flags=ZSTD)
    return write(folder, "zeros.deathtensors", content)


# npz and npy


def zip_pieces(members):
    body, central, offset = [], [], 0
    for member in members:
        local = member.local()
        central.append(member.central(offset))
        body.append(local)
        offset += len(local)
    directory = b"".join(central)
    many = len(body) > 65534
    end = (
        zip64_end(len(body), len(directory), offset, offset + len(directory))
        if many
        else zip_end(len(body), len(directory), offset)
    )
    return b"".join(body) + directory + end


@file("members.npz")
def members(folder):
    """As many arrays as there is room for."""
    array = npy("|u1", (0,), b"")
    return write(
        folder, "members.npz", zip_pieces(Member(b"%d.npy" % i, array) for i in times(17000))
    )


@file("deflated.npz")
def deflated(folder):
    """Tens of thousands of deflated arrays: each starts an inflater of its own."""
    array = npy("<f4", (64,), bytes(256))
    packed = Member(b"", array, 8).packed
    each = (Member(b"%d.npy" % i, array, 8, packed=packed) for i in times(18000))
    return write(folder, "deflated.npz", zip_pieces(each))


@file("bombs.npz")
def bombs(folder):
    """Arrays of 4 MiB of zeros, each deflated to 4 KiB: 250 MiB in all."""
    array = npy("<f4", (1 << 20,), bytes(4 << 20))
    packed = Member(b"", array, 8).packed
    each = (Member(b"%d.npy" % i, array, 8, packed=packed) for i in times(62))
    return write(folder, "bombs.npz", zip_pieces(each))


@file("fortran.npz")
def fortran(folder):
    """The same in Fortran order: inflated to a temporary file and read from there in C order."""
    array = npy("|u1", (2,) * 22, bytes(4 << 20), fortran=True)
    packed = Member(b"", array, 8).packed
    each = (Member(b"%d.npy" % i, array, 8, packed=packed) for i in times(62))
    return write(folder, "fortran.npz", zip_pieces(each))


@file("foreign.npz")
def foreign(folder):
    """Members that are no arrays: each is reported."""
    each = (Member(b"x%d.txt" % i, b"") for i in times(34000))
    array = Member(b"w.npy", npy("|u1", (0,), b""))
    return write(folder, "foreign.npz", zip_pieces([array, *each]))


@file("fortran.npy")
def fortran_npy(folder):
    return write(folder, "fortran.npy", npy("|u1", (2,) * 21, bytes(2 << 20), fortran=True))


# ONNX


@file("initializers.onnx")
def initializers(folder):
    """Hundreds of thousands of tensors of no bytes."""
    tensors = fill(
        block(5, number(1, 0) + number(2, 2) + block(8, f"{i:x}")) for i in range(10**6)
    )
    return write(folder, "initializers.onnx", model(b"".join(tensors)))


@file("typed.onnx")
def typed(folder):
    """Values one field each, in an order that must be decoded."""
    data = b"".join(number(5, i & 0x7F) for i in times(1900000))
    tensor = Tensor("I32", (1900000,), b"")
    return write(folder, "typed.onnx", model(initializer(tensor, "w", data)))


@file("locations.onnx")
def locations(folder):
    """Each tensor in the same other file, of 1 MiB."""
    (folder / "data.bin").write_bytes(bytes(1 << 20))
    tensor = Tensor("U8", (1 << 20,), b"")
    one = [
        initializer(tensor, f"{i}", external("data.bin", "0", str(1 << 20))) for i in times(40000)
    ]
    return write(folder, "locations.onnx", model(b"".join(fill(one))))


@file("constants.onnx")
def constants(folder):
    """Nodes that each hold a constant."""
    tensor = Tensor("U8", (0,), b"")
    nodes = fill(
        constant(f"{i}", "value", block(5, tensor_proto(tensor)) + number(20, 4))
        for i in range(10**6)
    )
    return write(folder, "constants.onnx", model(b"".join(nodes)))


@file("nodes.onnx")
def empty_nodes(folder):
    """A million nodes that hold nothing."""
    return write(folder, "nodes.onnx", model(block(1, b"") * (LIMIT // 2)))


@file("metadata.onnx")
def onnx_metadata(folder):
    pairs = fill(pair(14, f"{i:x}", "") for i in range(10**6))
    return write(folder, "metadata.onnx", model(b"", behind=b"".join(pairs)))


@file("names.onnx")
def onnx_names(folder):
    """Long names of subgraphs in each other, which tensors inside them carry."""
    tensor = initializer(Tensor("U8", (0,), b""), "w")
    graph = b"".join([tensor])
    for _ in range(40):
        graph = node(block(5, block(1, "body") + block(6, graph) + number(20, 5)), "o", "n" * 1000)
    many = graph * (LIMIT // len(graph))
    return write(folder, "names.onnx", model(many))


@file("sparse.onnx")
def onnx_sparse(folder):
    """A sparse tensor of a dense shape of 2^60, thousands of times."""
    values = Tensor("F32", (1,), struct.pack("<f", 1))
    indices = Tensor("I64", (1,), struct.pack("<q", 5))
    one = [
        block(
            15,
            block(1, tensor_proto(values, f"s{i}"))
            + block(2, tensor_proto(indices, ""))
            + number(3, 1 << 30)
            + number(3, 1 << 30),
        )
        for i in times(50000)
    ]
    return write(folder, "sparse.onnx", model(b"".join(fill(one))))


# TensorFlow


@file("splats.pb")
def splats(folder):
    """Constants that each say one value 2^24 times."""
    nodes = []
    for i in times(20000):
        value = tf_proto(1, (1 << 24,), field(5, struct.pack("<f", 1)))
        attributes = block(5, block(1, "value") + block(2, block(8, value)))
        dtype = block(5, block(1, "dtype") + block(2, number(6, 1)))
        nodes.append(block(1, block(1, f"c{i}") + block(2, "Const") + attributes + dtype))
    return write(folder, "splats.pb", b"".join(fill(nodes)))


@file("records.tfrecord")
def records(folder):
    """As many records as there is room for, each a tensor of no elements."""
    one = record(tf_proto(4, (0,)))
    return write(folder, "records.tfrecord", one * (LIMIT // len(one)))


@file("empty.tfrecord")
def empty_records(folder):
    one = record(b"")
    return write(folder, "empty.tfrecord", one * (LIMIT // len(one)))


@file("half.tensor")
def half_values(folder):
    """Values one field each."""
    data = b"".join(field(13, i & 0x3FFF) for i in times(1300000))
    return write(folder, "half.tensor", tf_proto(19, (1300000,), data))


# torch


@file("views.pt")
def views(folder):
    """Overlapping views of rank 26 of a small storage: 64 MiB each."""
    randoms = random.Random(2)
    shape = (2,) * 24
    state = {
        f"{i}": pickles.tensor(
            pickles.storage("0", 1 << 19), 0, shape, tuple(randoms.randrange(20000) for _ in shape)
        )
        for i in range(8)
    }
    return write(folder, "views.pt", pickles.pt(pickles.pickled(state), {"0": bytes(4 << 19)}))


@file("expanded.pt")
def expanded(folder):
    """Tensors that show one element 2^20 times."""
    store = pickles.storage("0", 1)
    first = pickles.tensor(store, 0, (1 << 20,), (0,))
    state = {f"{i}": first for i in times(120)}
    return write(folder, "expanded.pt", pickles.pt(pickles.pickled(state), {"0": bytes(4)}))


@file("alternating.pt")
def alternating(folder):
    """Small views that go to and fro between two large deflated storages."""
    count = 25 << 20
    stores = [pickles.storage(key, count) for key in "01"]
    state = {f"{i}": pickles.tensor(stores[i % 2], i, (1,), (1,)) for i in times(4000)}
    zeros_of = Member(b"", bytes(4 * count), 8)
    each = [
        Member(key, content)
        for key, content in pickles.pt_members(pickles.pickled(state), {}).items()
    ]
    each += [
        Member(b"archive/data/%d" % i, zeros_of.data, 8, packed=zeros_of.packed) for i in (0, 1)
    ]
    return write(folder, "alternating.pt", zip_pieces(each))


@file("storages.pt")
def storages(folder):
    """Thousands of tensors, each with its storage."""
    state, data = {}, {}
    for i in times(8000):
        state[f"{i}"] = pickles.tensor(pickles.storage(f"{i}", 1), 0, (1,), (1,))
        data[f"{i}"] = bytes(4)
    return write(folder, "storages.pt", zip_pieces(
        Member(key, content) for key, content in pickles.pt_members(pickles.pickled(state), data).items()
    ))


@file("same_view.pt")
def same_view(folder):
    """One tensor under tens of thousands of names."""
    first = pickles.tensor(pickles.storage("0", 1 << 18), 0, (1 << 18,), (1,)) + pickles.put(0)
    state = {"0": first} | {f"{i}": pickles.get(0) for i in range(1, 150000 // SHARE)}
    return write(folder, "same_view.pt", pickles.pt(pickles.pickled(state), {"0": bytes(4 << 18)}))


@file("members.ot")
def script_members(folder):
    state = {f"p{i}": pickles.tensor(pickles.storage("0", 3)) for i in times(15000)}
    return write(folder, "members.ot", pickles.ot(state))


# an index


@file("shards/model.safetensors.index.json")
def shards(folder):
    """An index of thousands of shards, each with metadata of its own."""
    (folder / "shards").mkdir()
    weights = {}
    for i in times(6000):
        content = safetensors_file([entry(f"{i}")], b"", {f"k{i}": "v" * 100, "format": f"f{i}"})
        (folder / f"shards/s{i}.safetensors").write_bytes(content)
        weights[f"{i}"] = f"s{i}.safetensors"
    index = compact({"metadata": {"total_size": 0}, "weight_map": weights})
    return write(folder, "shards/model.safetensors.index.json", index.encode())


@file("missing/model.safetensors.index.json")
def missing_shards(folder):
    (folder / "missing").mkdir()
    weights = {f"{i}": f"s{i}.safetensors" for i in times(90000)}
    index = compact({"metadata": {}, "weight_map": weights})
    return write(folder, "missing/model.safetensors.index.json", index.encode())


@file("one_shard/model.safetensors.index.json")
def one_shard(folder):
    """Every weight in one shard, which has none of them."""
    (folder / "one_shard").mkdir()
    (folder / "one_shard/s.safetensors").write_bytes(safetensors_file([entry("w")]))
    weights = {f"{i}": "s.safetensors" for i in times(120000)}
    index = compact({"metadata": {}, "weight_map": weights})
    return write(folder, "one_shard/model.safetensors.index.json", index.encode())


# what stands beside a file


@file("sidecar.npz")
def sidecar(folder):
    """A sidecar of many entries for tensors that are not there."""
    write(folder, "sidecar.npz", zip_pieces([Member(b"w.npy", npy("|u1", (0,), b""))]))
    content = {
        "metadata": {f"{i}": "v" for i in times(100000)},
        "tensors": {f"t{i}": {"k": "v"} for i in times(60000)},
    }
    (folder / "sidecar.npz.tconv.json").write_bytes(compact(content).encode())
    return folder / "sidecar.npz"


# what is packed as a whole


def empty_streams(name, pack):
    """Streams that unpack to nothing, one behind the other."""

    @file(name)
    def streams(folder):
        stream = pack(b"")
        # A sanitizer takes a millisecond for the memory of a decoder, which is a microsecond's work.
        return write(folder, name, stream * (LIMIT // len(stream)))

    return streams


for packer, compress in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
    empty_streams(f"streams.pkl.{packer}", compress)
empty_streams("streams.pkl.lzma", lambda data: lzma.compress(data, lzma.FORMAT_ALONE))


@file("bomb.pkl.bz2")
def bzip2_of_zeros(folder):
    """Zeros are empty streams of LZMA again."""
    return write(folder, "bomb.pkl.bz2", bz2.compress(bytes(300 << 20)))
