"""Files for scanners of pickles: each name on picklescan's and fickling's lists in each way to name it, the tricks
that got past those two before they knew them (each had an advisory), and the containers that carry pickles.
They are only ever read as bytes."""
import io
import struct
import zipfile
import zlib

from pickle_code import call, constant, model, name_of, pickle_of, storage, tensor, text, tuple_of

# What to call in a module of which everything is on a list.
SAMPLES = {
    "os": "system", "posix": "system", "nt": "system", "subprocess": "Popen", "sys": "exit",
    "socket": "create_connection", "ssl": "get_server_certificate", "shutil": "rmtree", "pickle": "loads",
    "_pickle": "loads", "pty": "spawn", "ctypes": "CDLL", "pydoc": "pipepager", "bdb": "Bdb.run",
    "runpy": "_run_code", "timeit": "timeit", "pip": "main", "venv": "create", "cProfile": "runctx",
    "profile": "Profile.run", "uuid": "_get_command_stdout", "webbrowser": "open", "importlib": "import_module",
    "urllib.request": "urlopen", "requests.api": "get", "aiohttp": "client.ClientSession",
    "httplib": "HTTPSConnection", "asyncio": "unix_events._UnixSubprocessTransport._start",
    "numpy.f2py": "crackfortran.getlincoef", "builtins": "exec", "numpy.testing._private.utils": "runstring",
    "distutils.file_util": "write_file", "__builtin__": "eval", "__builtins__": "eval",
    "_osx_support": "_read_output", "_aix_support": "_read_cmd_output", "_pyrepl": "pager.pipe_pager",
    "marshal": "loads", "test": "support.script_helper.assert_python_ok", "types": "FunctionType",
    "multiprocessing": "util.spawnv_passfds",
}  # fmt: skip


def listed_names(picklescan_list: dict, fickling_modules, fickling_functions: dict) -> list[tuple[str, str]]:
    """(module, name) of all that either knows to be unsafe."""
    found = []
    for module, names in picklescan_list.items():
        names = [SAMPLES.get(module, "run")] if names == "*" else [names] if isinstance(names, str) else sorted(names)
        found += [(module, name) for name in names]
    found += [(module, SAMPLES.get(module, "run")) for module in sorted(fickling_modules)]
    found += [(module, name) for module, names in fickling_functions.items() for name in sorted(names)]
    return list(dict.fromkeys(found))


def short(value: str) -> bytes:
    return b"\x8c" + bytes([len(value.encode())]) + value.encode()


def framed(body: bytes) -> bytes:
    return b"\x80\x04\x95" + struct.pack("<Q", len(body) + 1) + body + b"."


def ways_to_name(module: str, name: str) -> dict[str, bytes]:
    """Each a whole pickle."""
    line = f"{module}\n{name}\n".encode()
    return {
        "protocol 0": b"c" + line + b"(S'true'\ntR.",
        "protocol 2": pickle_of(b"c" + line + text("true") + b"\x85R"),
        "protocol 4": framed(
            short(module) + b"\x94" + short(name) + b"\x94\x93\x94" + short("true") + b"\x94\x85\x94R\x94"
        ),
        "names from the memo": pickle_of(
            text(name) + b"q\x00" + text(module) + b"q\x0100h\x01h\x00\x93" + text("true") + b"\x85R", 4
        ),
        "long strings": pickle_of(
            b"".join(b"\x8d" + struct.pack("<Q", len(part)) + part.encode() for part in (module, name)) + b"\x93)R", 4
        ),
        "INST": b"(S'true'\ni" + line + b".",
        "OBJ": b"(c" + line + b"S'true'\no.",
        "NEWOBJ": pickle_of(b"c" + line + b")\x81"),
        "named only": pickle_of(b"c" + line),
        "named and dropped": pickle_of(b"c" + line + b"0}"),
        "in a list": pickle_of(b"](" + text("a") + b"c" + line + b")Re"),
        "as the state of an object": pickle_of(call("collections.OrderedDict") + b"c" + line + b")Rb"),
    }


SYSTEM = name_of("posix.system") + tuple_of(text("true")) + b"R"
GOOD = tensor(storage())


def tricks() -> dict[str, bytes]:
    """Pickles that got past one scanner or another; all of them name posix.system, os.system or builtins.eval."""
    system = text("posix") + text("system") + b"\x93" + tuple_of(text("true")) + b"R"
    many = b"".join(text(str(index)) + b"q" + bytes([index]) + b"0" for index in range(100))
    return {
        "then bytes that are no opcode": pickle_of(SYSTEM)[:-1] + b"\xff\xff\xff",
        "then the end of the file": pickle_of(SYSTEM)[:-1],
        "then a string cut short": pickle_of(SYSTEM)[:-1] + b"X\xff\xff\xff\x7f",
        "then an empty stack": pickle_of(SYSTEM)[:-1] + b"0000R.",
        "after a value that is missing in the memo": pickle_of(b"h\x63" + text("os") + b"\x93" + SYSTEM),
        "with a name that is missing in the memo": pickle_of(system + b"0" + b"h\x05" + text("os") + b"\x93"),
        "with a name that is a number": pickle_of(system + b"0" + b"K\x2a" + text("os") + b"\x93"),
        "with names out of a tuple": pickle_of(constant(("posix", "system")) + b"0" + system),
        "with DUP": pickle_of(text("posix") + b"20" + text("system") + b"\x93)R"),
        "after a hundred entries of the memo": pickle_of(many + system),
        "in a second pickle": pickle_of(constant({"a": 1})) + pickle_of(SYSTEM),
        "in a sixth pickle": pickle_of(constant({"a": 1})) * 5 + pickle_of(SYSTEM),
        "under a getattr": pickle_of(call("builtins.getattr", name_of("builtins.dict"), text("get"))),
        "through an import": pickle_of(call("builtins.__import__", text("os"))),
        "dotted": pickle_of(text("builtins") + text("eval.__call__") + b"\x93" + tuple_of(text("1")) + b"R", 4),
        "dotted from an allowed module": pickle_of(text("torch") + text("serialization.os.system") + b"\x93)R", 4),
        "by an extension": pickle_of(b"\x82\x01)R"), "as a persistent id": pickle_of(SYSTEM + b"Q"),
        "as a key": pickle_of(b"}" + SYSTEM + b"Ns"),
        "as an argument of an allowed call": pickle_of(call("collections.OrderedDict", SYSTEM)),
        "as a hook of a tensor": pickle_of(model(w=tensor(storage(), 0, (2, 3), (3, 1), b"\x89", SYSTEM))),
        "as the type of a tensor": pickle_of(
            call("torch._tensor._rebuild_from_type_v2", name_of("posix.system"), name_of("torch.Tensor"), b")", b"}")
        ),
        "as the default of a dict": pickle_of(call("collections.defaultdict", name_of("posix.system"))),
        "in a pickle in a pickle": pickle_of(call("torch.storage._load_from_bytes", b"C\x04test"), 3),
        "with a wrong frame": b"\x80\x04\x95" + struct.pack("<Q", 5) + SYSTEM + b".",
        "with a frame past the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + SYSTEM + b".",
        "with a protocol that does not exist": b"\x80\x09" + SYSTEM + b".", "without a protocol": SYSTEM + b".",
        "with a carriage return": b"cposix\r\nsystem\r\n(S'true'\ntR.",
        "with spaces": b"c posix\nsystem \n(S'true'\ntR.",
        "by Python 2's name of a module": b"ccommands\ngetoutput\n(S'true'\ntR.",
        "with a name that is no UTF-8": b"\x80\x02c\xff\xfe\nsystem\n)R0" + SYSTEM + b".",
        "among honest tensors": pickle_of(model(w=GOOD, x=SYSTEM)), "twice": pickle_of(SYSTEM + b"0" + SYSTEM),
    }  # fmt: skip


def containers() -> dict[str, tuple[str, bytes]]:
    """(suffix, file): the same payload in all that a loader might open."""
    evil, plain = pickle_of(model(w=GOOD, x=SYSTEM)), pickle_of(model(w=GOOD))
    data = struct.pack("<6f", *range(6))
    good = [("archive/data.pkl", plain), ("archive/version", b"3\n"), ("archive/data/0", data)]
    bad = [("archive/data.pkl", evil), *good[1:]]
    magic = pickle_of(b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19")
    legacy = [
        magic,
        pickle_of(constant(1001)),
        pickle_of(constant({"little_endian": True})),
        plain,
        pickle_of(constant(["0"])),
    ]
    raw = struct.pack("<q", 6) + data
    npy = npy_of(
        pickle_of(
            call("numpy._core.multiarray._reconstruct", name_of("numpy.ndarray"), constant((0,)), b"C\x01b")
            + SYSTEM
            + b"b",
            3,
        )
    )
    stored = zipped(bad)
    at = stored.index(evil) - 30 - len("archive/data.pkl")
    return {
        "a plain pickle": (".pkl", evil), "a plain pickle as .pt": (".pt", evil),
        "a plain pickle as .bin": (".bin", evil), "a plain pickle as .npy": (".npy", evil),
        "a plain pickle as .safetensors": (".safetensors", evil), "a .pt": (".pt", stored),
        "a .pt as .zip": (".zip", stored), "a .pt as .npz": (".npz", stored),
        "a .pt, deflated": (".pt", zipped(bad, zipfile.ZIP_DEFLATED)),
        "a .pt with a wrong CRC": (".pt", with_field(stored, evil, 14, b"\0\0\0\0")),
        "a .pt with flag 0x1": (".pt", stored[: at + 6] + b"\x01\0" + stored[at + 8 :]),
        "a .pt with flag 0x20": (".pt", stored[: at + 6] + b"\x20\0" + stored[at + 8 :]),
        "a .pt with flag 0x40": (".pt", stored[: at + 6] + b"\x40\0" + stored[at + 8 :]),
        "a .pt with another name in the directory": (".pt", b"data.txt".join(stored.rsplit(b"data.pkl", 1))),
        "a .pt whose pickle has no .pkl": (".pt", zipped([*good, ("archive/extra", evil)])),
        "a .pt with a second pickle": (".pt", zipped([*good, ("archive/extra.pkl", evil)])),
        "a .pt with a pickle for a storage": (".pt", zipped([*good[:2], ("archive/data/0", evil)])),
        "a .pt with data.pkl twice": (".pt", zipped([*good, ("archive/data.pkl", evil)])),
        "a .pt with data.pkl twice, the bad one first": (".pt", zipped([("archive/data.pkl", evil), *good])),
        "a .pt with DATA.PKL": (".pt", zipped([*good, ("archive/DATA.PKL", evil)])),
        "a .pt with Data.pkl alone": (".pt", zipped([("archive/Data.pkl", evil), *good[1:]])),  # which torch loads
        "a .pt with bytes before it": (".pt", b"x" * 100 + stored),
        "a .pt after another": (".pt", zipped(good) + stored),
        "a .pt cut short": (".pt", stored[:-40]),
        "a .pt without a version": (".pt", zipped([("archive/data.pkl", evil)])),
        "TorchScript's constants": (".pt", zipped([*good, ("archive/constants.pkl", pickle_of(tuple_of(SYSTEM)))])),
        "TorchScript's data": (".pt", zipped([*bad, ("archive/constants.pkl", pickle_of(b")"))])),
        **{
            f"a legacy .pt, pickle {number}": (
                ".pt", b"".join([*legacy[:number], pickle_of(SYSTEM), *legacy[number + 1 :]]) + raw)
            for number in range(5)
        },
        "a legacy .pt whose magic number is computed": (
            ".pt", b"".join([pickle_of(call("__builtin__.eval", text("0x1950a86a20f9469cfc6c"))), *legacy[1:]]) + raw),
        "an array of objects": (".npy", npy),
        "an array of objects, version 2": (".npy", npy_of(npy[128:], 2)),
        "an array of objects in a .npz": (".npz", zipped([("a.npy", npy)])),
        "an array of objects in a deflated .npz": (".npz", zipped([("a.npy", npy)], zipfile.ZIP_DEFLATED)),
        "a zip of pickles": (".zip", zipped([("readme.txt", b"hello"), ("a/b/model.pkl", evil)])),
        "a zip in a zip": (".zip", zipped([("model.pt", stored)])),
    }  # fmt: skip


def npy_of(pickle: bytes, version: int = 1) -> bytes:
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (128 - (8 + 2 * version) - 1 - len(header)) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(2 * version, "little") + header + pickle


def zipped(members, method: int = zipfile.ZIP_STORED) -> bytes:
    """Written by hand: zipfile won't have one name twice without a warning."""
    body, directory, count = b"", b"", 0
    for name, content in members:
        packed = zlib.compress(content, 9)[2:-4] if method else content
        fields = struct.pack(
            "<HHHHHIIIHH", 20, 0, method, 0, 33, zlib.crc32(content), len(packed), len(content), len(name), 0
        )
        directory += b"PK\x01\x02\x14\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += b"PK\x03\x04" + fields + name.encode() + packed
        count += 1
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)
    data = body + directory + end
    zipfile.ZipFile(io.BytesIO(data)).close()
    return data


def with_field(archive: bytes, content: bytes, offset: int, value: bytes) -> bytes:
    """Another value in a member's local header and in the directory, where the field lies two bytes further."""
    start = archive.index(content)
    header = archive.rindex(b"PK\x03\x04", 0, start)
    entry = archive.index(b"PK\x01\x02", start)
    for at in (header + offset, entry + offset + 2):
        archive = archive[:at] + value + archive[at + len(value) :]
    return archive
