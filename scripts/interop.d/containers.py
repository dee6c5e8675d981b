"""All that a loader of tensors opens, with a pickle in it: (suffix, bytes) of each kind. A container is a function of
the pickle, and does not look into it."""
import bz2
import gzip
import io
import lzma
import pickle as pickle_bytes
import struct
import tarfile
import zipfile
import zlib

import numpy as np

from pickle_code import call, constant, model, name_of, pickle_of, storage, tensor

GOOD = tensor(storage())
PLAIN = pickle_of(model(w=GOOD))
DATA = struct.pack("<6f", *range(6))
MAGIC = pickle_of(b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19")
# of the legacy format, whose ids have one more entry, for views
PLAIN_LEGACY = pickle_of(model(w=tensor(storage().replace(b"tQ", b"NtQ"))))
PROTOCOL, SYSTEM_INFO, KEYS = (pickle_of(constant(each)) for each in (1001, {"little_endian": True}, ["0"]))
HONEST = [("archive/data.pkl", PLAIN), ("archive/version", b"3\n"), ("archive/data/0", DATA)]
REST = HONEST[1:]
OBJECTS = call("numpy._core.multiarray._reconstruct", name_of("numpy.ndarray"), constant((0,)), b"C\x01b")

METHODS = {
    zipfile.ZIP_STORED: lambda data: data,
    zipfile.ZIP_DEFLATED: lambda data: zlib.compress(data, 9)[2:-4],
    zipfile.ZIP_BZIP2: bz2.compress,
    zipfile.ZIP_LZMA: lambda data: b"\x09\x04\x05\x00" + b"\x5d" + struct.pack("<I", 1 << 16) + raw_lzma(data),
}


def raw_lzma(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16}])


class Member:
    """A member of a zip, and what its two headers say of it, true or not."""

    def __init__(self, name, content, method=0, flags=0, crc=None, size=None, listed=True, local_name=None,
                 attributes=0, extra=b"", comment=b"", descriptor=False, packed=None):  # fmt: skip
        self.name, self.content, self.method, self.flags = name, content, method, flags
        self.packed = METHODS.get(method, METHODS[0])(content) if packed is None else packed
        self.crc = zlib.crc32(content) if crc is None else crc
        self.size = len(content) if size is None else size
        self.listed, self.local_name = listed, name if local_name is None else local_name
        self.attributes, self.extra, self.comment, self.descriptor = attributes, extra, comment, descriptor

    def fields(self, name: bytes, local: bool) -> bytes:
        late = self.descriptor and local
        flags = self.flags | 8 * self.descriptor
        numbers = (0, 0, 0) if late else (self.crc, len(self.packed), self.size)
        return struct.pack("<HHHHHIIIHH", 20, flags, self.method, 0, 33, *numbers, len(name), len(self.extra))


def zipped(members, method: int = zipfile.ZIP_STORED, prefix: bytes = b"", comment: bytes = b"", tail: bytes = b"",
           shift: bool = True) -> bytes:  # fmt: skip
    """Written by hand: zipfile will not write what two readers take for two things. shift: offsets count the prefix."""
    body, directory, count = prefix, b"", 0
    base = 0 if shift else len(prefix)
    for each in members:
        member = each if isinstance(each, Member) else Member(*each, method=method)
        name, local = member.name.encode(), member.local_name.encode()
        if member.listed:
            place = struct.pack("<HHHII", len(member.comment), 0, 0, member.attributes, len(body) - base)
            directory += b"PK\x01\x02\x14\0" + member.fields(name, False) + place + name + member.extra + member.comment
            count += 1
        body += b"PK\x03\x04" + member.fields(local, True) + local + member.extra + member.packed
        if member.descriptor:
            body += b"PK\x07\x08" + struct.pack("<III", member.crc, len(member.packed), member.size)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body) - base, len(comment))
    return body + directory + end + comment + tail


def npy_of(
    content: bytes, descr: str = "'|O'", version: int = 1, shape: str = "(1,)", text: str = "", pad: int = 64
) -> bytes:
    header = (text or f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}").encode("utf-8")
    width = 2 if version == 1 else 4
    header += b" " * (-(8 + width + 1 + len(header)) % pad) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header + content


DESCRS = [
    "'|O'", "'O'", "'object'", "'|O8'", "'O8'", r"'|\x4f'", r"'\117'", r"'\u004f'", r"'\N{LATIN CAPITAL LETTER O}'",
    "'|' 'O'", "('|O')", "[('a', '|O')]", "[('a', '<f4'), ('b', 'O')]", "[('a', [('b', '|O')])]", "[('a', '|O', (2,))]",
    "('|O', (2,))", "[(('t', 'a'), 'O')]", "'''|O'''", "r'|O'", "b'|O'", "'>O'", "'=O'", "'<O'", "'f4,O'", "' O'",
    "'(2,)O'", "'object_'", "'object0'", "{'names': ['a'], 'formats': ['O']}", "[('', '|V4'), ('b', '|O')]", "'<U4'",
    "'|S4'", "'|V8'", "'<M8[D]'", "'<f4'",
]  # fmt: skip


def object_array(pickle: bytes) -> bytes:
    return npy_of(pickle)


def tar_of(members, link: str = "", damage: bool = False) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if link and name == "storages":
                entry.type, entry.linkname, content = tarfile.SYMTYPE, link, b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return data[:512] + b"\xff" * 8 + data[520:] if damage else data


TAR = [("storages", pickle_of(b"K\x00") + pickle_of(b"]")), ("tensors", pickle_of(b"K\x00")), ("pickle", PLAIN)]


def old_tar_of(members, signed: bool = False, first: bytes = b"") -> bytes:
    """As tar was before POSIX: no magic, only a checksum, which may also be summed of signed bytes. first: the first
    member's name, which may be anything that a pickle may begin with."""
    body = b""
    for name, content in members:
        name = first if first else name.encode()
        first = b""
        header = bytearray(
            name.ljust(100, b"\0")
            + b"0000644\0" * 3
            + b"%011o\0" % len(content)
            + b"00000000000\0"
            + b" " * 8
            + b"0"
            + bytes(100)
        )
        header += bytes(512 - len(header))
        total = sum(each - 256 if signed and each > 127 else each for each in header)
        header[148:156] = b"%06o\0 " % total
        body += bytes(header) + content + bytes(-len(content) % 512)
    return body + bytes(1024)


def tar_with(name: str, **options):
    return lambda pickle: (".pt", tar_of([(each, pickle if each == name else data) for each, data in TAR], **options))


def legacy(place: int):
    """A pickle instead of one of the five, or behind them."""

    def make(pickle: bytes):
        parts = [MAGIC, PROTOCOL, SYSTEM_INFO, PLAIN_LEGACY, KEYS]
        parts[place : place + 1] = [pickle]
        raw = struct.pack("<q", 6) + DATA if place < 5 else b""
        return ".pt", b"".join(parts) + raw

    return make


def joblib_of(content: dict, compress=0) -> bytes:
    import joblib  # which sections that only write zips do not need

    buffer = io.BytesIO()
    joblib.dump(content, buffer, compress=compress)
    return buffer.getvalue()


def joblib_with(pickle: bytes) -> bytes:
    """A dump of an array of objects: its pickle stands in the middle of the other."""
    plain = joblib_of({"a": np.array([None], object), "b": np.arange(3.0)})
    inner = pickle_bytes.dumps(np.array([None], object), pickle_bytes.HIGHEST_PROTOCOL)
    at = plain.index(inner)
    return plain[:at] + pickle + plain[at + len(inner) :]


def behind_legacy(pickle: bytes):
    return ".pt", b"".join([MAGIC, PROTOCOL, SYSTEM_INFO, PLAIN_LEGACY, KEYS]) + struct.pack("<q", 6) + DATA + pickle


def archive(*names, **options):
    """torch's archive with the pickle under these names, beside the honest members that they leave."""

    def make(pickle: bytes):
        taken = {name for name in names}
        members = [each for each in HONEST if each[0] not in taken]
        return ".pt", zipped([*members, *((name, pickle) for name in names)], **options)

    return make


def with_member(suffix=".pt", first=False, others=HONEST, name="archive/extra", **options):
    def make(pickle: bytes):
        odd = Member(name, pickle, **options)
        return suffix, zipped([odd, *others] if first else [*others, odd])

    return make


def tensorflow_record(pickle: bytes) -> bytes:
    """The pickle behind an opcode whose argument, with the opcode, is a record's length and its checksum."""
    length = b"V" + b"aaaaaaa"
    for tail in range(256):
        length = length[:7] + bytes([97 + tail % 26])
        crc = masked_crc(length)
        if b"\n" not in crc:
            break
    return length + crc + b"\n0" + pickle


def masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def named(suffix: str):
    return lambda pickle: (suffix, pickle)


def entries_of(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """What stands before a zip's directory, its entries, and its end record."""
    end = data.rindex(b"PK\x05\x06")
    start = struct.unpack_from("<I", data, end + 16)[0]
    found, at = [], start
    while at < end:
        length = 46 + sum(struct.unpack_from("<HHH", data, at + 28))
        found.append(data[at : at + length])
        at += length
    return data[:start], found, data[end:]


def with_entries(before: bytes, entries: list[bytes]) -> bytes:
    directory = b"".join(entries)
    return (
        before
        + directory
        + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(directory), len(before), 0)
    )


def reordered(data: bytes) -> bytes:
    before, entries, _ = entries_of(data)
    return with_entries(before, entries[::-1])


def doubled(data: bytes) -> bytes:
    before, entries, _ = entries_of(data)
    return with_entries(before, [*entries, entries[-1].replace(b"archive/x.pkl", b"archive/y.pkl")])


SUFFIXES = [
    ".pkl", ".pt", ".pth", ".bin", ".ckpt", ".npy", ".npz", ".safetensors", ".onnx", ".ot", ".json", ".pb", ".tfrecord",
    ".tensor", ".deathtensors", ".gguf", ".h5", ".joblib", ".txt", "", ".index.json", ".zip", ".tar", ".keras", ".pt2",
]  # fmt: skip

CONTAINERS = {
    **{f"a plain pickle as {suffix or 'no suffix'}": named(suffix) for suffix in SUFFIXES},
    "{ at byte 8": lambda pickle: (".safetensors", b"Vaaaaaaa{}\n0" + pickle),
    "a TFRecord's length and its checksum": lambda pickle: (".tfrecord", tensorflow_record(pickle)),
    "a text and a pickle": lambda pickle: (".onnx", b"I12\n0" + pickle),
    "a protobuf's first bytes": lambda pickle: (".onnx", b"J\x08\x0a\x12\x04" + b"0" + pickle),
    "a tar header's magic": lambda pickle: (".pt",
        b"X\x50\x02\0\0" + b"a" * 252 + b"ustar\x0000" + b"b" * 327 + b"0" + pickle),
    "an end of a zip in a string": lambda pickle: (".pt", b"X\x16\0\0\0PK\x05\x06" + bytes(18) + b"0" + pickle),
    "data.pkl": archive("archive/data.pkl"), "data.pkl, deflated": archive("archive/data.pkl", method=8),
    "data.pkl, bzip2": archive("archive/data.pkl", method=12), "data.pkl, lzma": archive("archive/data.pkl", method=14),
    "data.pkl alone": lambda pickle: (".pt", zipped([("archive/data.pkl", pickle)])),
    "DATA.PKL": archive("archive/DATA.PKL"), "Data.Pkl and no other": with_member(name="archive/Data.Pkl", others=REST),
    "ARCHIVE/data.pkl": archive("ARCHIVE/data.pkl"), "data.pkl twice, bad last": with_member(name="archive/data.pkl"),
    "data.pkl twice, bad first": with_member(name="archive/data.pkl", first=True),
    "data.pkl without a folder": archive("data.pkl"), "data.pkl two folders down": archive("a/b/data.pkl"),
    "another folder's data.pkl": with_member(name="other/data.pkl"),
    "another folder's data.pkl first": with_member(name="other/data.pkl", first=True),
    **{
        f"member {name}": archive(f"archive/{name}")
        for name in ("data/0", "data/1", "data/x.pkl", "DATA/0", "data/0/0", "version", "byteorder", "extra",
            "extra.pkl",
                     ".data/serialization_id", ".format_version", ".storage_alignment", "constants.pkl", "code/a.py",
                     "code/a.py.debug_pkl", "extra/x", "model.json", "attributes.pkl", "tensors/0", "a.npy", "b.npz",
                     "res/x.PICKLE", "model/model.pkl", ".data/extern_modules", "weights/a.bin")
    },
    **{
        f"member {name}, deflated": with_member(name=f"archive/{name}", method=8)
        for name in ("data/0", "data/9", "extra", "data/x.pkl", "version2")
    },
    "a wrong CRC": with_member(name="archive/data.pkl", others=REST, crc=0),
    "a size too small": with_member(name="archive/data.pkl", others=REST, size=1),
    "a size too large": with_member(name="archive/data.pkl", others=REST, size=1 << 20),
    "flag 1": with_member(name="archive/data.pkl", others=REST, flags=1),
    "flag 0x20": with_member(name="archive/data.pkl", others=REST, flags=0x20),
    "flag 0x40": with_member(name="archive/data.pkl", others=REST, flags=0x40),
    "flag 0x800": with_member(name="archive/data.pkl", others=REST, flags=0x800),
    "a data descriptor": with_member(name="archive/data.pkl", others=REST, descriptor=True),
    "a data descriptor, deflated": with_member(name="archive/data.pkl", others=REST, descriptor=True, method=8),
    "a member that is not listed": with_member(name="archive/hidden.pkl", listed=False),
    "another name in the directory": with_member(name="archive/data.txt", local_name="archive/data.pkl"),
    "another name in the header": with_member(name="archive/data.pkl", local_name="archive/data.txt", others=REST),
    "the directory bit": with_member(name="archive/dir", attributes=16),
    "a trailing slash": with_member(name="archive/dir/"),
    "a method that nobody has": with_member(name="archive/odd.pkl", method=93, packed=b""),
    "a pickle in a member's comment": lambda pickle: (".pt",
        zipped([*HONEST, Member("archive/x", b"", comment=pickle[:999])])),
    "a pickle in the zip's comment": lambda pickle: (".pt", zipped(HONEST, comment=pickle[:999])),
    "a pickle before the zip": lambda pickle: (".pt", zipped(HONEST, prefix=pickle)),
    "a pickle before the zip, offsets of its own": lambda pickle: (".pt", zipped(HONEST, prefix=pickle, shift=False)),
    "a pickle behind the zip": lambda pickle: (".pt", zipped(HONEST, tail=pickle)),
    "bytes before the zip": archive("archive/data.pkl", prefix=b"x" * 100),
    "bytes before the zip, offsets of its own": archive("archive/data.pkl", prefix=b"x" * 100, shift=False),
    "a comment": archive("archive/data.pkl", comment=b"hello"),
    "bytes behind": archive("archive/data.pkl", tail=b"x" * 50),
    "a comment with an end in it": archive("archive/data.pkl", comment=b"PK\x05\x06" + bytes(18)),
    "a zip in a zip": lambda pickle: (".zip", zipped([("model.pt", archive("archive/data.pkl")(pickle)[1])])),
    "a zip in a zip, deflated": lambda pickle: (".pt2",
        zipped([("a/weights.pt", archive("archive/data.pkl", method=8)(pickle)[1])], 8)),
    "a zip in a zip in a zip": lambda pickle: (
        ".zip", zipped([("b.zip", zipped([("model.pt", archive("archive/data.pkl")(pickle)[1])]))])),
    "a zip as a storage": lambda pickle: (".pt",
        zipped([*HONEST, ("archive/data/7", archive("archive/data.pkl")(pickle)[1])])),
    "an array of objects in a storage": lambda pickle: (".pt",
        zipped([*HONEST, ("archive/data/7", object_array(pickle))])),
    **{f"a legacy file, pickle {place}": legacy(place) for place in range(5)},
    "behind a legacy file's pickles": legacy(5), "behind a legacy file": behind_legacy,
    **{f"a tar's {name}": tar_with(name) for name in ("storages", "tensors", "pickle")},
    "a tar with a link": tar_with("pickle", link="/etc/hostname"),
    "a tar with a damaged member": tar_with("pickle", damage=True),
    "a tar of pickles": lambda pickle: (".tar", tar_of([("readme.txt", b"hello"), ("x.pkl", pickle)])),
    "a tar, gzip": lambda pickle: (".tar.gz", gzip.compress(tar_of([("x.pkl", pickle)]), mtime=0)),
    "a tar header before a legacy file": lambda pickle: (".pt", tar_of(TAR[:2])[:-1024] + legacy(3)(pickle)[1]),
    **{f"an array of objects, {descr}": (lambda descr: lambda pickle: (".npy",
        npy_of(pickle, descr)))(descr) for descr in DESCRS},
    **{f"an array of objects, version {version}": (lambda version: lambda pickle: (".npy",
        npy_of(pickle, version=version)))(version) for version in (2, 3)},
    "an array of objects, a long header": lambda pickle: (".npy", npy_of(pickle, pad=2048)),
    "an array of objects, a very long header": lambda pickle: (".npy", npy_of(pickle, version=2, pad=70000)),
    "an array of objects, no dimensions": lambda pickle: (".npy", npy_of(pickle, shape="()")),
    "an array of objects, long integers": lambda pickle: (".npy", npy_of(pickle, shape="(1L,)")),
    "an array of objects, another order": lambda pickle: (
        ".npy", npy_of(pickle, text="{'shape': (1,), 'descr': '|O', 'fortran_order': False}")),
    "an array of objects, double quotes": lambda pickle: (
        ".npy", npy_of(pickle, text='{"shape": (1,), "descr": "|O", "fortran_order": False}')),
    "an array of objects, two descrs": lambda pickle: (
        ".npy", npy_of(pickle, text="{'descr': '<f4', 'descr': '|O', 'fortran_order': False, 'shape': (1,), }")),
    "an array of objects, as a .npy of another name": lambda pickle: (".bin", object_array(pickle)),
    "an array of objects behind an array": lambda pickle: (".npy",
        npy_of(DATA, "'<f4'", shape="(6,)") + object_array(pickle)),
    "a pickle behind an array": lambda pickle: (".npy", npy_of(DATA, "'<f4'", shape="(6,)") + pickle),
    "a .npz": lambda pickle: (".npz", zipped([("a.npy", object_array(pickle))])),
    "a .npz, deflated": lambda pickle: (".npz", zipped([("a.npy", object_array(pickle))], 8)),
    "a .npz, lzma": lambda pickle: (".npz", zipped([("a.npy", object_array(pickle))], 14)),
    "a .npz, no .npy": lambda pickle: (".npz", zipped([("a", object_array(pickle))])),
    "a .npz with a pickle for a member": lambda pickle: (".npz",
        zipped([("a.npy", npy_of(DATA, "'<f4'", shape="(6,)")), ("b", pickle)])),
    "a .npz with fields": lambda pickle: (".npz", zipped([("a.npy", npy_of(pickle, "[('a', '|O')]"))])),
    "gzip": lambda pickle: (".pkl.gz", gzip.compress(pickle, mtime=0)),
    "zlib": lambda pickle: (".joblib", zlib.compress(pickle)),
    "bzip2": lambda pickle: (".pkl.bz2", bz2.compress(pickle)), "xz": lambda pickle: (".pkl.xz", lzma.compress(pickle)),
    "lzma": lambda pickle: (".pkl", lzma.compress(pickle, lzma.FORMAT_ALONE)),
    "gzip of an archive": lambda pickle: (".pt.gz", gzip.compress(archive("archive/data.pkl")(pickle)[1], mtime=0)),
    "a gzip as a member": lambda pickle: (".pt", zipped([*HONEST, ("archive/x.gz", gzip.compress(pickle, mtime=0))])),
    "an old tar": lambda pickle: (".pt", old_tar_of([*TAR[:2], ("pickle", pickle)])),
    "an old tar with a signed checksum": lambda pickle: (".pt",
        old_tar_of([*TAR[:2], ("pickle", pickle), ("\xff", b"")], signed=True)),
    "an old tar that begins as a pickle": lambda pickle: (".pt",
        old_tar_of([("x", b""), *TAR[:2], ("pickle", pickle)], first=b"N.")),
    "an old tar that begins as a legacy file": lambda pickle: (
        ".pt", old_tar_of([("x", b""), *TAR[:2], ("pickle", pickle)], first=MAGIC + PROTOCOL)),
    "an old tar that begins with the pickle": lambda pickle: (".pkl", old_tar_of([("x", b"")], first=pickle[:99])),
    "a joblib dump and a pickle": lambda pickle: (".joblib", joblib_of({"a": np.arange(6.0)}) + pickle),
    "an array of objects in a joblib dump": lambda pickle: (".joblib", joblib_with(pickle)),
    "an array of objects in a joblib dump, zlib": lambda pickle: (".joblib", zlib.compress(joblib_with(pickle))),
    "a pickle before a joblib dump": lambda pickle: (".joblib",
        pickle[:-1] + b"0" + joblib_of({"a": np.arange(6.0)})[2:]),
    **{f"an array of objects of shape {shape}": (lambda shape: lambda pickle: (".npy",
        npy_of(pickle, shape=shape)))(shape)
       for shape in ("(0,)", "(2, 2)", "(1000000000000,)", "(-1,)", "[1]", "1", "(True,)")},
    "the directory in another order": lambda pickle: (".pt", reordered(zipped([*HONEST, ("archive/x.pkl", pickle)]))),
    "two entries for one member": lambda pickle: (".pt", doubled(zipped([*HONEST, ("archive/x.pkl", pickle)]))),
    "a zip behind a zip": lambda pickle: (".pt", archive("archive/data.pkl")(pickle)[1] + zipped(HONEST)),
    "a zip before a zip": lambda pickle: (".pt", zipped(HONEST) + archive("archive/data.pkl")(pickle)[1]),
    "names that are odd": lambda pickle: (".pt",
        zipped([*HONEST, ("../x", pickle), ("/x", pickle), ("a\\b", pickle), ("é", pickle)])),
    "a name that is empty": with_member(name=""),
    "a lite interpreter's archive": with_member(name="archive/bytecode.pkl"),
    "a hundred pickles": lambda pickle: (".pkl", pickle_of(constant({"a": 1})) * 100 + pickle),
    "a second pickle": lambda pickle: (".pkl", pickle_of(constant({"a": 1})) + pickle),
    "a sixth pickle": lambda pickle: (".pkl", pickle_of(constant({"a": 1})) * 5 + pickle),
}  # fmt: skip
