"""Pickles for scanners: each name on their lists in each way to name it, and the tricks that got past one or another
before it knew them (each had an advisory). They are only ever read as bytes."""
import struct
from pathlib import Path

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


def listed_names(lists: list[dict], modules) -> list[tuple[str, str]]:
    """(module, name) of all that the lists have; of a module of which everything is listed, one name."""
    found = []
    for names_by_module in lists:
        for module, names in names_by_module.items():
            names = (
                [SAMPLES.get(module, "run")] if names == "*" else [names] if isinstance(names, str) else sorted(names)
            )
            found += [(module, name) for name in names]
    found += [(module, SAMPLES.get(module, "run")) for module in sorted(modules)]
    found += [tuple(line.split(" ")) for line in TESTED.read_text().splitlines() if not line.startswith("#")]
    return list(dict.fromkeys(found))


TESTED = Path(__file__).parent / "dangerous_names.txt"


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
INNER = b"\x80\x03" + SYSTEM + b"."
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
        "in a pickle in a pickle": pickle_of(call("torch.storage._load_from_bytes", b"C" + bytes([len(INNER)]) + INNER), 3),
        "with a wrong frame": b"\x80\x04\x95" + struct.pack("<Q", 5) + SYSTEM + b".",
        "with a frame past the end": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + SYSTEM + b".",
        "with a protocol that does not exist": b"\x80\x09" + SYSTEM + b".", "without a protocol": SYSTEM + b".",
        "with a carriage return": b"cposix\r\nsystem\r\n(S'true'\ntR.",
        "with spaces": b"c posix\nsystem \n(S'true'\ntR.",
        "by Python 2's name of a module": b"ccommands\ngetoutput\n(S'true'\ntR.",
        "with a name that is no UTF-8": b"\x80\x02c\xff\xfe\nsystem\n)R0" + SYSTEM + b".",
        "among honest tensors": pickle_of(model(w=GOOD, x=SYSTEM)), "twice": pickle_of(SYSTEM + b"0" + SYSTEM),
    }  # fmt: skip
