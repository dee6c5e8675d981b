"""Places where a pickle can hide, each as a maker of files around it.

A place takes the bytes of a pickle and gives {file: content}; the first file is the one to scan.
"""

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib

from checkpoint_files import VALUE_ENTRY, index, info, item, table, tensor_entry
from files import Member, f32, npy, safetensors, safetensors_raw, zip_file, zstd
from gguf_files import gguf
from pickles import (
    LEGACY_TENSOR,
    THREE,
    legacy,
    name,
    ndarray,
    ot,
    pickled,
    pt,
    pt_members,
    tar_member,
    tar_of,
    tensor,
    torch_tar,
    torch_tar_members,
    zip_of,
)
from protobufs import external, initializer, model, onnx
from tf_files import masked_crc

HONEST_PICKLE = pickled({"w": ndarray()})
HONEST_PT = pickled({"w": tensor()})


def zipped(members, method=zipfile.ZIP_STORED):
    """A zip by Python's own writer, for methods that ours has not."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return file.getvalue()


# a pickle that is a file of another format as well


def skipping(total):
    """Sizes of strings that together are so many bytes, each of a printable length."""
    count = total // 100
    sizes = [total // count + (n < total % count) for n in range(count)]
    assert all(100 <= size <= 110 for size in sizes), sizes
    return sizes


def as_safetensors(pickle):
    """A whole and valid file: its length is an opcode, its metadata strings to step over."""
    first = 100  # bytes that the length, read as BINBYTES, takes
    length = 0x42 + 256 * first
    entry = {"dtype": "U8", "shape": [len(pickle)], "data_offsets": [0, len(pickle)]}
    head = '{"__metadata__":{"a":"'
    tail = '"},"t":' + json.dumps(entry) + "}"
    text = head + "-" * (5 + first - 8 - len(head))
    blocks = skipping(8 + length - 5 - first)
    for size in blocks[:-1]:
        text += "U" + chr(size - 2) + "-" * (size - 2)
    text += "U" + chr(blocks[-1] - 2)
    text += tail
    return safetensors_raw(text + " " * (length - len(text)), pickle)


def as_tfrecord(pickle):
    """A record whose length is an opcode, with both of its checksums right."""
    first = 40
    length = 0x42 + 256 * first
    head = struct.pack("<Q", length)
    head += masked_crc(head)
    data = (bytes(5 + first - len(head)) + pickle).ljust(length, b"\0")
    return head + data + masked_crc(data)


def as_brace(pickle):
    """What safetensors has at its ninth byte, in a pickle that is text."""
    return b"S'12345{'\n0" + pickle


def polyglots():
    yield "a valid safetensors", lambda p: {"in.safetensors": as_safetensors(p)}
    yield "a TFRecord with its CRCs", lambda p: {"in.tfrecord": as_tfrecord(p)}
    yield "a brace at byte 8", lambda p: {"in.safetensors": as_brace(p)}
    for ending in "onnx ot npy npz pb tfrecord tensor deathtensors safetensors bin txt h5".split():
        yield f"called .{ending}", lambda p, ending=ending: {f"in.{ending}": p}
    yield "called nothing", lambda p: {"in": p}


# archives

ODD_NAMES = (
    "archive/data.pkl",
    "archive/DATA.PKL",
    "archive/data/0",
    "archive/data/0.pkl",
    "archive/data/deep/x",
    "archive/constants/0",
    "archive/version",
    "archive/byteorder",
    "archive/.data/serialization_id",
    "archive/tconv.json",
    "archive/extra/readme.txt",
    "archive/weird.",
    "archive/a.npy",
    "other/x",
    "x",
)


def zips():
    for member in ODD_NAMES:
        for method in (0, 8):

            def place(p, member=member.encode(), method=method):
                members = pt_members(HONEST_PT) | {member: p}
                return {"in.pt": zip_file([Member(*item, method) for item in members.items()])}

            yield f"zip, {member}, method {method}", place
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield f"npz, method {method}", lambda p, m=method: {"in.npz": zipped({"a.npy": objects(p)}, m)}
    yield "zip behind a prefix", lambda p: {"in.pt": b"#!" + bytes(98) + pt(p)}
    yield (
        "zip behind a counted prefix",
        lambda p: {
            "in.pt": bytes(100)
            + zip_file([Member(*item) for item in pt_members(p).items()], base=100)
        },
    )
    yield (
        "zip with a comment",
        lambda p: {"in.pt": zip_file([Member(*i) for i in pt_members(p).items()], comment=b"x" * 99)},
    )
    yield (
        "zip's comment",
        lambda p: {"in.pt": zip_file([Member(*i) for i in pt_members(HONEST_PT).items()], comment=p)},
    )
    yield "zip with bytes behind", lambda p: {"in.pt": pt(p) + bytes(300)}
    yield "zip behind a zip", lambda p: {"in.pt": pt(HONEST_PT) + pt(p)}
    yield "zip before a zip", lambda p: {"in.pt": pt(p) + pt(HONEST_PT)}
    yield "pickle before a zip", lambda p: {"in.pt": p + pt(HONEST_PT)}
    yield "zip behind safetensors", lambda p: {"in.safetensors": safetensors({"a": f32(1)}) + pt(p)}
    for method in (0, 8):

        def nested(p, method=method):
            inner = pt(p)
            middle = zip_file([Member(b"data/weights/w.pt", inner, method)])
            return {"in.pt2": zip_file([Member(b"archive/models/x.pt2", middle, method)])}

        yield f"zip in a zip in a zip, method {method}", nested
    yield "zip as a storage", lambda p: {"in.pt": pt(HONEST_PT, {"0": pt(p)})}
    yield "cut zip", lambda p: {"in.pt": pt(p)[:-60]}
    for member in ("constants.pkl", "code/__torch__.py.debug_pkl", "data.pkl", "attributes.pkl"):
        yield f"TorchScript, {member}", lambda p, m=member: {"in.ot": ot(more={m: p})}


def tars():
    for member in torch_tar_members():
        yield f"torch's tar, {member}", lambda p, m=member: {"in.pt": torch_tar(**{m: p})}
    yield (
        "a tar's fifth member",
        lambda p: {"in.pt": tar_of(torch_tar_members() | {"x": p})},
    )
    yield (
        "behind a damaged member",
        lambda p: {"in.pt": tar_of({"pickle": p}, tar_member(b"sys_info", b"x" * 600, checksum=1))},
    )
    yield (
        "behind a member without an end",
        lambda p: {"in.pt": tar_of({"pickle": p}, tar_member(b"sys_info", b"x", size=1 << 40))},
    )
    yield (
        "behind the end of a tar",
        lambda p: {"in.pt": tar_of({"a": b"hello"}) + tar_of({"pickle": p})},
    )
    yield (
        "a tar that starts as a legacy file",
        lambda p: {
            "in.pt": tar_of(
                {"pickle": p}, tar_member(legacy(HONEST_PICKLE)[:14] + b".", b"hello" * 9)
            )
        },
    )

    def compressed(p):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            entry = tarfile.TarInfo("deep/x.pkl")
            entry.size = len(p)
            archive.addfile(entry, io.BytesIO(p))
        return {"in.tar.gz": file.getvalue()}

    yield "tar.gz", compressed


def lzma_alone(data, **options):
    filters = [{"id": lzma.FILTER_LZMA1, **options}]
    return lzma.compress(data, lzma.FORMAT_ALONE, filters=filters)


def gzip_with(flags, fields):
    """gzip with optional fields in its header: extra 4, name 8, comment 16, checksum 2."""
    return lambda data: b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + fields + gzip.compress(data)[10:]


PACKERS = (
    ("gzip", gzip.compress),
    ("zlib", zlib.compress),
    ("zstd", zstd),
    ("bzip2", bz2.compress),
    ("xz", lzma.compress),
    ("LZMA", lzma_alone),
)
# Those that take several streams, one after the other, as Python's own files do.
MANY_STREAMS = [each for each in PACKERS if each[0] not in ("zlib", "zstd")]


def packed():
    for label, pack in PACKERS:
        yield f"{label}", lambda p, pack=pack: {"in.joblib": pack(p)}
        yield f"{label} twice", lambda p, pack=pack: {"in.joblib": pack(pack(p))}
        yield f"{label} of a zip", lambda p, pack=pack: {"in.pkl": pack(pt(p))}
    for label, pack in MANY_STREAMS:
        yield f"two {label} streams", lambda p, f=pack: {"in.gz": f(p[:9]) + f(p[9:])}
        yield (
            f"{label}, an empty stream first",
            lambda p, f=pack: {"in.gz": f(b"") + f(p)},
        )
    for label, pack in (
        ("a name", gzip_with(8, b"name\0")),
        ("all fields but a checksum", gzip_with(28, b"\3\0abcname\0comment\0")),
    ):
        yield f"gzip with {label}", lambda p, f=pack: {"in.gz": f(p)}
    yield "xz, then LZMA", lambda p: {"in.xz": lzma.compress(p[:9]) + lzma_alone(p[9:])}
    for label, options in (
        ("no mark", {"lc": 0, "lp": 2, "pb": 1}),
        ("a small dictionary", {"lc": 1, "dict_size": 3 << 12}),
    ):
        yield f"LZMA, {label}", lambda p, o=options: {"in.pkl.xz": lzma_alone(p, **o)}


# arrays


def objects(pickle, descr="|O", **lies):
    return npy(descr, (1,), pickle, **lies)


def header(descr, more=""):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), {more}}}"


ODD_DESCR = (
    "'|O'",
    "'O'",
    "'O8'",
    "'=O'",
    "'object'",
    "'|\\x4f'",
    "'|\\117'",
    "'|' 'O'",
    "'f4,O'",
    "('|O', (1,))",
    "'M8,O'",
    "'<M8[s],O,M8[s]'",
    "[('a', '|O')]",
    "[('a', '<f4'), ('b', '|O')]",
    "[('a', [('b', [('c', '|O')])])]",
    "[('a', '|O', (1,))]",
    "[(('title', 'a'), '|O')]",
    "{'names': ['a'], 'formats': ['|O']}",
    "u'|O'",
)


def arrays():
    for descr in ODD_DESCR:
        yield f"npy, {descr}", lambda p, d=descr: {"in.npy": objects(p, header=header(d))}
        for method in (0, 8):
            yield (
                f"npz, {descr}, method {method}",
                lambda p, d=descr, m=method: {
                    "in.npz": zip_file(
                        [
                            Member(b"a.npy", npy(), m),
                            Member(b"b.npy", objects(p, header=header(d)), m),
                        ]
                    )
                },
            )
    for size in (600, 9000, 60000):
        fields = ", ".join(f"('f{n}', '<f4')" for n in range(size // 14))
        yield (
            f"npy, a header of {size} bytes",
            lambda p, f=fields: {
                "in.npy": objects(p, header=header(f"[{f}, ('o', '|O')]"), version=(2, 0))
            },
        )
    for version in ((2, 0), (3, 0)):
        yield f"npy, version {version}", lambda p, v=version: {"in.npy": objects(p, version=v)}
    yield "npy behind a npy", lambda p: {"in.npy": npy() + objects(p)}
    yield "pickle behind a npy", lambda p: {"in.npy": npy() + p}
    yield "npy behind objects", lambda p: {"in.npy": objects(HONEST_PICKLE) + objects(p)}
    yield "npy behind a pickle", lambda p: {"in.pkl": HONEST_PICKLE + objects(p)}


# rows of pickles, and other files


def rows():
    for before in (1, 4, 5, 6, 20):
        yield f"behind {before} pickles", lambda p, n=before: {"in.pkl": HONEST_PICKLE * n + p}
    yield "a legacy file's sixth pickle", lambda p: {"in.pt": legacy(HONEST_PT, {}) + p}
    yield (
        "behind a legacy file",
        lambda p: {"in.pt": legacy(pickled({"w": LEGACY_TENSOR}), {}, keys=[]) + p},
    )
    for label, before in (("an old version", b"\x80\7"), ("two starts", b"\x80\2\x80\4")):
        yield label, lambda p, b=before: {"in.pkl": b + p}


def far_end(p):
    """A zip whose end record is further from the file's end than a comment can be long: torch's reader
    searches in steps of 4 KiB, and so finds it."""
    inner = zip_file([Member(*each) for each in pt_members(p).items()], base=80)
    data = inner + bytes(65535 + 22 + 1000)
    entry = {"t": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    return {"in.safetensors": safetensors_raw(json.dumps(entry).ljust(72), data)}


def old_joblib(data):
    """As joblib before 0.10 packed a file."""
    return b"ZF" + hex(len(data)).encode().ljust(19) + zlib.compress(data)


def odd_number(checksum):
    """A valid safetensors whose first 512 bytes are a tar's header to Python, which reads its checksum
    as it reads any number: with a sign, with underscores."""

    def place(p):
        data = tar_of(torch_tar_members(pickle=p))
        entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
        text = ('{"__metadata__":{"a":"'.ljust(149 - 9, "0") + " " * 8).ljust(337, "0")
        block = bytearray(safetensors_raw((text + '"},"t":' + json.dumps(entry) + "}").ljust(504), b""))
        block[148:156] = b" " * 8
        block[148:156] = checksum(sum(block))
        return {"in.pt": bytes(block) + data}

    return place


def disguised():
    yield "an end record far from the end", far_end
    for label, checksum in (
        ("a sign", lambda n: b"+%06o " % n),
        ("0o", lambda n: b"0o%05o " % n),
        ("an underscore", lambda n: b"0_%05o " % n),
        ("a tab", lambda n: b"%07o\t" % n),
    ):
        yield f"a tar whose checksum has {label}", odd_number(checksum)
    yield "joblib's old packing", lambda p: {"in.joblib": old_joblib(p)}
    yield (
        "joblib's old packing in a member's name",
        lambda p: {"in.tar": tar_member(old_joblib(p)[:100]) + old_joblib(p)[100:].ljust(512, b"\0")},
    )


def others():
    index = {"metadata": {"total_size": 12}, "weight_map": {"w": "a.bin", "v": "b.safetensors"}}
    yield (
        "an index's shard",
        lambda p: {
            "in.bin.index.json": json.dumps(index).encode(),
            "a.bin": pt(p),
            "b.safetensors": safetensors({"v": f32(1)}),
        },
    )
    graph = initializer(THREE, "w", external("weights.bin"))
    yield (
        "ONNX's external data",
        lambda p: {"in.onnx": model(graph), "weights.bin": p.ljust(12, b"\0")[:12] + p[12:]},
    )
    yield (
        "a Keras archive",
        lambda p: {
            "in.keras": zip_of(
                {b"metadata.json": b"{}", b"config.json": b"{}", b"assets/vocabulary": p}
            )
        },
    )


# distributed checkpoints: a range of a file is a file of its own


def hidden_item(pack, transforms=None, whole=False, kind=None):
    """A table whose value lies in the numbers of a tensor's item, where torch loads it all the same."""

    def place(p):
        content = pack(p)
        numbers = b"\x11" * 64 + content + bytes(-len(content) % 4)
        count = len(numbers) // 4
        outer = item([count], numbers)
        place = info("__0_0.distcp", outer.index(content), len(content), transforms, kind)
        entry = VALUE_ENTRY if not whole else tensor_entry([3], [([0], [3])])
        entries = [("a", tensor_entry([count], [([0], [count])])), ("v", entry)]
        stored = [
            (index("a", [0]), info("__0_0.distcp", 0, len(outer))),
            (index("v", [0] if whole else None), place),
        ]
        return {".metadata": table(entries, stored), "__0_0.distcp": outer}

    return place


def items():
    yield "a pickle", hidden_item(bytes)
    yield "a pickle as a tensor", hidden_item(bytes, whole=True)
    yield "a legacy file", hidden_item(lambda p: legacy(p, {}))
    yield "a zip in zstd", hidden_item(lambda p: zstd(pt(p, {})), ["stream.zstd/1"])
    yield "a pickle in zstd as a tensor", hidden_item(zstd, ["stream.zstd/1"], whole=True)


def renamed(header):
    """torch's tar with its members named by headers before them, and a pickle in the numbers of a
    storage, where a row of pickles would end inside of a string."""

    def place(p):
        count = 0x0655  # as opcodes: a string of six zeros
        numbers = (b"0X" + (4 * count - 6 + len(p)).to_bytes(4, "little")).ljust(4 * count, b"\0")
        storages = pickled(1) + pickled(("0", "cpu", name("torch", "FloatStorage")))
        storages += count.to_bytes(8, "little") + numbers + p + b"."
        members = torch_tar_members(HONEST_PICKLE, storages=storages, tensors=pickled(0))
        rows = ((header(each), tar_member(b"x", data)) for each, data in members.items())
        return {"in.pt": b"".join(map(b"".join, rows)) + bytes(1024)}

    return place


def pax(key, value, kind=b"x"):
    record = f" {key}={value}\n"
    return tar_member(b"x", f"{len(record) + 2}{record}".encode(), kind)


def resized(header):
    """A member that a header before it makes shorter, so that others begin inside of it."""

    def place(p):
        data = tar_of(torch_tar_members(p))
        entry = {"t": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
        inner = safetensors_raw(json.dumps(entry).ljust(504), data)
        return {"in.pt": header + tar_member(b"w.safetensors", inner) + bytes(1024)}

    return place


def misread():
    """Files that some loader runs a pickle of, though none is where a scan would see one: not clean."""
    for module, kind in (("argparse", "Namespace"), ("types", "SimpleNamespace")):
        yield f"a place that is a {kind}", hidden_item(bytes, kind=(module, kind))
    yield "a tar of long names", renamed(lambda each: tar_member(b"x", each.encode() + b"\0", b"L"))
    yield "a tar of PAX names", renamed(lambda each: pax("path", each))
    for label, tag in (("spaces", b" " * 600 + b"../x"), ("a control character", b"\x1c../x")):
        yield f"a checkpoint's latest with {label}", lambda p, tag=tag: {"latest": tag}
    yield "a PAX size", resized(pax("size", 512))
    yield "a PAX size for all", resized(pax("size", 512, b"g"))
    yield "a folder with content", lambda p: {"in.tar": tar_member(b"d", b"hello" * 9, b"5") + bytes(1024)}
    yield "an old folder with content", lambda p: {"in.tar": tar_member(b"d/", b"hello" * 9) + bytes(1024)}


def packed_storages():
    for label, pack in PACKERS:
        yield label, lambda p, f=pack: {"in.pt": pt(HONEST_PT, {"0": f(p)})}


def behind():
    yield "GGUF", lambda p: {"in.gguf": gguf({"a": f32(1, 2)}) + p}


def places():
    groups = (disguised, polyglots, zips, tars, packed, packed_storages, arrays, rows, others, items, behind)
    for group in groups:
        for label, place in group():
            yield f"{group.__name__}: {label}", place


# Files of real programs that hold more than tensors: their own functions, or what
# only the library that wrote them can build.
PROGRAMS = {
    "frozen.pt": "code",
    "model_1_0.pt": "code",
    "torchscript.pt": "code",
    "fx_module.pt": "unsafe",
    "jax.pkl": "unsafe",
    "odd_values.pt": "unsafe",
    "pandas.pkl": "unsafe",
    "whole_module.pt": "unsafe",
}


def stored(data):
    """A block of LZ4 that is not compressed."""
    return (len(data) | 1 << 31).to_bytes(4, "little") + data


def closed():
    """Packed by what is not unpacked: never clean, but nothing is named."""
    yield "LZ4", lambda data: b"\x04\x22\x4d\x18\x60\x40\x82" + stored(data) + bytes(4)
