#!/usr/bin/env python3
"""`tconv scan`: what a pickle would import or call, in every kind of file that can hold one."""

import functools
import json
import pickle as op
import subprocess
import sys
from dataclasses import dataclass

from attacks_foreign import RECOGNISED
from attacks_pt import zip_tricks
from files import Member, f32, npy, npz, safetensors, zip_file
from harness import DATA, INVALID, IO, SANITIZED, USAGE, Suite, check_equal, expect, tconv, text
from pickles import (
    LEGACY_TENSOR,
    TAR_VALUE,
    byte_string,
    call,
    code,
    frame,
    get,
    legacy,
    name,
    ndarray,
    ot,
    pickled,
    pt,
    pt_members,
    put,
    reduce,
    script_object,
    stack_name,
    storage,
    tar_storages,
    tar_tensors,
    tensor,
    torch_tar,
    torch_tar_members,
    zip_of,
)
from scan_files import PROGRAMS, gzip_with
from scans import BROKEN, CLEAN, EXIT, OTHER, UNSAFE, scan

NAMING = (op.GLOBAL, op.STACK_GLOBAL, op.INST, op.EXT1, op.EXT2, op.EXT4)
HOSTILE = call("os", "system", "touch pwned")
EVIL = pickled(HOSTILE)
HONEST = pickled({"w": tensor()})
SYSTEM = ("os.system",)


@dataclass
class Case:
    label: str
    content: bytes
    verdict: object = UNSAFE  # or a set
    names: tuple = ()  # globals that must be listed as not allowed
    member: str = None  # where they must be listed
    file: str = "in.pkl"


def report(result):
    """The one object on stdout, of the form that was promised."""
    try:
        (found,) = map(json.loads, result.out.splitlines())
        assert found.keys() >= {"file", "verdict", "globals", "calls"}, "a key is missing"
        assert found["verdict"] in EXIT and isinstance(found["calls"], list)
        for each in found["globals"]:
            assert isinstance(each["name"], str) and isinstance(each["allowed"], bool)
            assert isinstance(each["offset"], int) and each["offset"] >= 0
            assert isinstance(each.get("member", ""), str)
    except (AssertionError, KeyError, TypeError, ValueError) as problem:
        raise result.failed(f"a bad report ({problem!r}): {text(result.out)[:1500]}") from problem
    return found


def check(case, folder):
    (folder / case.file).write_bytes(case.content)
    result = scan(folder, "--json", case.file)
    found = report(result)
    verdicts = case.verdict if isinstance(case.verdict, set) else {case.verdict}
    if found["verdict"] not in verdicts:
        raise result.failed(f"expected: {sorted(verdicts)}", f"got: {text(result.out)[:1500]}")
    check_equal(result.code, EXIT[found["verdict"]], "exit code", result)
    check_equal(found["file"], case.file, "file", result)
    refused = {each["name"]: each for each in found["globals"] if not each["allowed"]}
    if found["verdict"] == CLEAN:
        check_equal(refused, {}, "refused globals of a clean file", result)
    if found["verdict"] == UNSAFE:
        check_equal([each for each in case.names if each not in refused], [], "missing", result)
        for each in case.names if case.member else ():
            check_equal(refused[each].get("member"), case.member, f"member of {each}", result)
    if case.content.startswith(op.PROTO):
        for each in found["globals"]:
            if each.get("relative"):  # inside bytes of the pickle
                continue
            at = each["offset"]
            check_equal(case.content[at : at + 1] in NAMING, True, f"a name at {at}", result)
    shown = scan(folder, case.file)
    check_equal(shown.code, result.code, "exit code without --json", shown)
    for each in case.names if found["verdict"] == UNSAFE else ():
        check_equal(each in text(shown.out), True, f"{each} on stdout", shown)


def storage_in_bytes(inner):
    """What pickle.dump makes of a tensor: its storage is a file of torch's own."""
    content = byte_string(legacy(pickled(inner)))
    return pickled({"w": tensor(call("torch.storage", "_load_from_bytes", content))})


def honest():
    """Files of the real programs and of ours."""
    for folder in ("pt", "ot"):
        for path in sorted((DATA / folder).iterdir()):
            if path.is_file() and path.name != "onnx_dialect.ot":
                verdict = PROGRAMS.get(path.name, CLEAN)
                yield Case(f"{folder}/{path.name}", path.read_bytes(), verdict, file=path.name)
    for label, content, file in (
        ("zip", pt(HONEST), "in.pt"),
        ("legacy", legacy(pickled({"w": LEGACY_TENSOR})), "in.pt"),
        ("tar", torch_tar(), "in.pt"),
        ("libtorch", ot(), "in.ot"),
        ("pickle of arrays", pickled({"w": ndarray()}), "in.pkl"),
        ("pickle of a tensor", storage_in_bytes(storage(view=(None,))), "in.pkl"),
        ("pickle of nothing", pickled(None), "in.pkl"),
        ("npy", npy(), "in.npy"),
        ("npy of objects", npy("|O", (1,), pickled(ndarray((1,), ["x"], "O8"))), "in.npy"),
        ("npz", npz({"a": f32(1)}), "in.npz"),
        ("safetensors", safetensors({"a": f32(1)}), "in.safetensors"),
    ):
        yield Case(f"honest {label}", content, CLEAN, file=file)


def hostile_files():
    """One call, in every place a pickle can be."""
    for path, file in (
        ("bad/evil_bare.pkl", "in.pkl"),
        ("bad/evil_system.pt", "in.pt"),
        ("bad/evil_system_legacy.pt", "in.pt"),
    ):
        yield Case(path, (DATA / path).read_bytes(), names=("posix.system",), file=file)
    module = (DATA / "pt/whole_module.pt").read_bytes()
    linear = ("torch.nn.modules.linear.Linear",)
    yield Case("pt/whole_module.pt", module, names=linear, file="in.pt")

    for file in ("in.pkl", "in.pt", "in.bin", "in.npy", "in.safetensors", "in.txt", "in"):
        yield Case(f"pickle as {file}", EVIL, names=SYSTEM, file=file)
        yield Case(f"zip as {file}", pt(EVIL), names=SYSTEM, file=file)
    for protocol in (0, 1, 2, 3, 4, 5):
        yield Case(f"protocol {protocol}", pickled(HOSTILE, protocol), names=SYSTEM)
    yield Case("no protocol", pickled(HOSTILE, None), names=SYSTEM)
    yield Case("protocol 0, as text", b"cos\nsystem\n(S'touch pwned'\ntR.", names=SYSTEM)
    yield Case("protocol 0, INST", b"(S'touch pwned'\nios\nsystem\n.", names=SYSTEM)

    for part in ("magic", "protocol", "sys_info", "keys"):
        content = legacy(pickled({"w": LEGACY_TENSOR}), **{part: HOSTILE})
        yield Case(f"legacy, {part}", content, names=SYSTEM, file="in.pt")
    yield Case("legacy, object", legacy(EVIL), names=SYSTEM, file="in.pt")
    after = pickled({"w": LEGACY_TENSOR, "x": HOSTILE})
    yield Case("legacy, after a tensor", legacy(after), names=SYSTEM, file="in.pt")
    for member, content in torch_tar_members().items():
        evil = torch_tar(**{member: EVIL + content})
        yield Case(f"tar, {member}", evil, names=SYSTEM, member=member, file="in.pt")
    system = name("os", "system")
    for label, content in (
        ("storage's type", torch_tar(storages=tar_storages(kind=system))),
        ("tensor's type", torch_tar(tensors=tar_tensors(kind=system))),
        ("beside a tensor", torch_tar(pickled({"w": TAR_VALUE, "x": HOSTILE}))),
    ):
        yield Case(f"tar, {label}", content, names=SYSTEM, file="in.pt")

    objects = npy("|O", (1,), EVIL)
    yield Case("npy of objects", objects, names=SYSTEM, file="in.npy")
    fields = npy(
        "x", (1,), EVIL, header="{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (1,), }"
    )
    yield Case("npy of fields", fields, names=SYSTEM, file="in.npy")
    for method in (0, 8):
        archive = zip_file([Member(b"a.npy", npy(), method), Member(b"b.npy", objects, method)])
        yield Case(f"npz, method {method}", archive, names=SYSTEM, member="b.npy", file="in.npz")
        for member in (
            b"archive/data.pkl",
            b"x.pkl",
            b"archive/config.p",
            b"archive/extra",
            b"a.npy",
        ):
            members = pt_members(HONEST) | {member: EVIL}
            archive = zip_file([Member(*item, method) for item in members.items()])
            yield Case(
                f"zip, {member.decode()}, method {method}",
                archive,
                names=SYSTEM,
                member=member.decode(),
                file="in.pt",
            )
    readme = zip_of({b"readme.txt": b"hello", b"deep/x.pkl": EVIL})
    yield Case("any zip", readme, names=SYSTEM, member="deep/x.pkl", file="in.zip")
    for member in ("constants.pkl", "code/__torch__.py.debug_pkl"):
        archive = ot(more={member: EVIL})
        yield Case(f"libtorch, {member}", archive, names=SYSTEM, file="in.ot")
    script = script_object({"w": tensor()})
    yield Case("a script's class elsewhere", pickled(script), names=("__torch__.Module",))
    foreign = script_object({"w": tensor()}, name("evil", "Module"))
    yield Case(
        "a class in a script", ot(pickle=pickled(foreign)), names=("evil.Module",), file="in.ot"
    )


def broken_on_purpose():
    """Garbage that a loader never comes to, because the call ran before."""
    honest_array = pickled({"w": ndarray()})
    for label, content in (
        ("garbage after the call", EVIL[:-1] + b"\xff\xfe\xff"),
        ("no STOP", EVIL[:-1]),
        ("an empty stack", EVIL[:-1] + op.POP * 5 + op.STOP),
        ("garbage after STOP", EVIL + b"\xff" * 100),
        ("the second of two", honest_array + EVIL),
        ("the third of three", honest_array * 2 + EVIL),
        ("the first of two", EVIL + honest_array),
        ("between broken ones", EVIL + b"\xff" + honest_array),
        ("a call after another", pickled(call("builtins", "print", "x") + HOSTILE)),
        ("popped", pickled(HOSTILE + op.POP + op.NONE)),
        ("imported only", pickled(name("os", "system"))),
    ):
        yield Case(label, content, names=SYSTEM)
        later = {UNSAFE, BROKEN} if content.startswith(honest_array) else UNSAFE
        yield Case(f"{label}, in a zip", pt(content), later, names=SYSTEM, file="in.pt")
    long_frame = op.PROTO + b"\4" + frame(HOSTILE + op.STOP, 255)
    for label, content in (
        ("a call after a bad BUILD", pickled(code(1) + code(2) + op.BUILD + HOSTILE)),
        ("a call after a bad REDUCE", pickled(reduce("x") + HOSTILE)),
        ("a call in too long a frame", long_frame),
    ):
        yield Case(label, content, {UNSAFE, BROKEN}, names=SYSTEM)
    for label, content in (
        ("cut short", honest_array[:-1]),
        ("an unknown opcode", honest_array[:-1] + b"\xff."),
        ("a bad reference", pickled(get(7))),
        ("an empty stack", pickled(op.POP)),
    ):
        yield Case(f"honest, {label}", content, BROKEN)
        yield Case(f"honest, {label}, in a zip", pt(content), BROKEN, file="in.pt")
    yield Case("honest, garbage after STOP, in a zip", pt(HONEST + b"\xff"), BROKEN, file="in.pt")
    target = b"archive/data.pkl"
    for label, archive in zip_tricks(pt_members(HONEST), target):
        yield Case(f"honest, zip with {label}", archive, BROKEN, file="in.pt")
    for label, archive in zip_tricks(pt_members(EVIL), target):
        yield Case(f"zip with {label}", archive, {UNSAFE, BROKEN}, file="in.pt")
    for flags in (0x1, 0x20, 0x40, 0x2000):
        archive = zip_file([Member(target, EVIL, flags=flags), Member(b"archive/version", b"3\n")])
        yield Case(f"zip with flags {flags:#x}", archive, {UNSAFE, BROKEN}, file="in.pt")
    for label, content in (
        ("a checksum behind its end", gzip_with(10, b"aaaaaaa\0")(EVIL)[:18]),
        ("an extra field behind its end", gzip_with(4, b"\xff\xff")(EVIL)),
        ("a name without an end", gzip_with(8, b"a" * 1100)(EVIL)),
    ):
        yield Case(f"gzip header with {label}", content, BROKEN, file="in.gz")
    yield Case("a pickle before a zip", EVIL + pt(HONEST), names=SYSTEM)


def opcodes():
    """Ways to name or call that scanners have missed."""
    safe = ("torch._utils", "_rebuild_tensor_v2")

    def memoised(first, second):
        """os and system in entries 0 and 1, safe names by MEMOIZE, and a call by the entries."""
        unsafe = code("os") + first + op.POP + code("system") + second + op.POP
        decoy = b"".join(code(each) + op.MEMOIZE + op.POP for each in safe)
        return pickled(unsafe + decoy + reduce(get(0) + get(1) + op.STACK_GLOBAL, "x"), 4)

    yield Case("names from the memo", memoised(put(0), put(1)), names=SYSTEM)
    yield Case("names from text entries", memoised(b"p0\n", b"p1\n"), names=SYSTEM)
    overwritten = b"".join(
        code(each) + put(number) + op.POP
        for each, number in ((safe[0], 0), (safe[1], 1), ("os", 0), ("system", 1))
    )
    called = reduce(get(0) + get(1) + op.STACK_GLOBAL, "x")
    yield Case("entries overwritten", pickled(overwritten + called, 4), names=SYSTEM)
    counted = code("x") + put(1) + op.POP + code("os") + put(0) + code("system") + op.MEMOIZE
    moved = counted + op.POP * 2 + get(0) + get(2) + op.STACK_GLOBAL
    yield Case("MEMOIZE counts entries", pickled(reduce(moved, "x"), 4), names=SYSTEM)
    duplicated = code("os") + op.DUP + op.POP + code("system") + op.STACK_GLOBAL
    yield Case("names by DUP", pickled(reduce(duplicated, "x"), 4), names=SYSTEM)
    distant = code("os") + op.MARK + code(1) + op.POP_MARK + code("system") + op.STACK_GLOBAL
    yield Case("names far apart", pickled(reduce(distant, "x"), 4), names=SYSTEM)
    for opcode in ("BINUNICODE8", "SHORT_BINUNICODE"):
        width = 8 if opcode.endswith("8") else 1
        parts = [
            getattr(op, opcode) + len(each).to_bytes(width, "little") + each
            for each in (b"os", b"system")
        ]
        yield Case(f"names by {opcode}", pickled(reduce(stack_name(*parts), "x"), 4), names=SYSTEM)
    arguments = op.MARK + code("touch pwned")
    system = name("os", "system")
    for label, value in {
        "INST": arguments + op.INST + b"os\nsystem\n",
        "OBJ": op.MARK + system + code("touch pwned") + op.OBJ,
        "NEWOBJ": system + code(("x",)) + op.NEWOBJ,
        "NEWOBJ_EX": system + code(("x",)) + code({}) + op.NEWOBJ_EX,
        "BUILD": system + code({"x": 1}) + op.BUILD,
        "a key": op.EMPTY_DICT + system + op.NONE + op.SETITEM,
        "a persistent id": system + op.BINPERSID,
        "OrderedDict's items": call("collections", "OrderedDict", [("a", HOSTILE)]),
        "defaultdict's factory": call("collections", "defaultdict", system),
    }.items():
        yield Case(f"by {label}", pickled(value), names=SYSTEM)
    for label, value in (("EXT1", b"\x82\1"), ("EXT2", b"\x83\1\1"), ("EXT4", b"\x84\1\1\1\0")):
        yield Case(f"by {label}", pickled(value + code(("x",)) + op.REDUCE))
    for module, attribute in (
        ("builtins", "eval.__call__"),
        ("collections", "OrderedDict.__init__"),
        ("collections", "_sys.modules"),
        ("torch", "serialization.os.system"),
        ("torch._utils", "sys.modules"),
        ("torch.serialization", "os.system"),
        ("numpy", "dtype.__reduce__"),
        ("numpy.core.multiarray", "os.system"),
        ("_codecs", "encode.__self__"),
        ("_codecs", "decode"),
    ):
        dotted = reduce(stack_name(module, attribute), "x")
        yield Case(f"{module} {attribute}", pickled(dotted, 4), names=(f"{module}.{attribute}",))
    for module, attribute in (
        ("os", "system\r"),
        ("torch._utils\0", "_rebuild_tensor_v2"),
        ("torch._utils ", "_rebuild_tensor_v2"),
        ("Torch._utils", "_rebuild_tensor_v2"),
        ("", "os.system"),
        ("collections", ""),
    ):
        odd = reduce(stack_name(module, attribute), "x")
        yield Case(f"{module!r} {attribute!r}", pickled(odd, 4), {UNSAFE, BROKEN})


def nested():
    """Pickles in the arguments of what would load them."""
    evil_npy, evil_legacy = npy("|O", (1,), EVIL), legacy(EVIL)
    for module, attribute, *arguments in (
        ("torch.storage", "_load_from_bytes", byte_string(evil_legacy)),
        ("torch.storage", "_load_from_bytes", byte_string(pt(EVIL))),
        ("torch", "load", call("_io", "BytesIO", byte_string(evil_legacy))),
        ("numpy", "load", call("_io", "BytesIO", byte_string(evil_npy)), None, True),
        ("pickle", "loads", byte_string(EVIL)),
        ("_pickle", "loads", byte_string(EVIL)),
        ("joblib", "load", "x.pkl"),
        ("pandas.io.pickle", "read_pickle", "x.pkl"),
        ("marshal", "loads", byte_string(b"\xe3")),
    ):
        title = f"{module}.{attribute}"
        found = SYSTEM if attribute == "_load_from_bytes" else (title,)  # it is on the list
        label = f"{title} of {len(code(arguments[0]))}"
        yield Case(label, pickled(call(module, attribute, *arguments)), names=found)
        yield Case(
            f"{label}, in a zip",
            pt(pickled({"w": tensor(), "x": call(module, attribute, *arguments)})),
            names=found,
            file="in.pt",
        )


KNOWN = """
    __builtin__ apply                    builtins breakpoint              builtins compile
    builtins eval                        builtins exec                    builtins getattr
    builtins open                        builtins __import__              builtins setattr
    _io FileIO                           _io open                         _operator attrgetter
    aiohttp ClientSession                asyncio run                      nt system
    asyncio.unix_events _UnixSubprocessTransport._start                   posix system
    bdb Bdb.run                          bdb Bdb                          pty spawn
    cProfile run                         cProfile runctx                  profile Profile.run
    code InteractiveInterpreter          code InteractiveInterpreter.runcode
    codecs decode                        commands getoutput               ctypes CDLL
    ctypes.util find_library             distutils.file_util write_file   doctest debug_script
    distutils.spawn spawn                ensurepip _run_pip               functools partial
    functools reduce                     http.client HTTPSConnection      httplib HTTPSConnection
    idlelib.autocomplete AutoComplete.fetch_completions                   logging.config listen
    idlelib.autocomplete AutoComplete.get_entity                          logging FileHandler
    idlelib.calltip get_entity           idlelib.calltip Calltip.fetch_tip
    idlelib.debugobj ObjectTreeItem.SetText                               importlib import_module
    idlelib.pyshell ModifiedInterpreter.runcode                           importlib reload
    idlelib.pyshell ModifiedInterpreter.runcommand                        linecache getline
    idlelib.run Executive.runcode        importlib.util find_spec
    lib2to3.pgen2.grammar Grammar.loads  lib2to3.pgen2.pgen ParserGenerator.make_label
    multiprocessing.util spawnv_passfds  numpy.ctypeslib load_library
    numpy.f2py.crackfortran getlincoef   numpy.f2py.crackfortran _eval_length
    numpy.testing._private.utils runstring                                numpy.lib.npyio NpzFile
    operator attrgetter                  operator itemgetter              operator methodcaller
    os popen                             os execve                        nt popen
    pdb run                              pip main                         pip._internal main
    pip._internal.cli.main main          pkgutil resolve_name             platform popen
    profile runctx                       pydoc locate                     pydoc pipepager
    requests.api get                     runpy _run_code                  runpy run_path
    shutil rmtree                        site addsitedir                  smtplib SMTP
    socket create_connection             sqlite3 connect                  ssl get_server_certificate
    subprocess Popen                     subprocess run                   sys exit
    sys modules                          tarfile open                     tempfile mktemp
    timeit timeit                        timeit main                      trace Trace.run
    torch load                           torch.hub load                   torch.serialization load
    torch._dynamo.guards GuardBuilder.get                                 torch.jit load
    torch._inductor.codecache compile_file                                torch.ops load_library
    torch.fx.experimental.symbolic_shapes ShapeEnv.evaluate_guards_expression
    torch.jit.unsupported_tensor_ops execWrapper                          types CodeType
    torch.package PackageImporter        types FunctionType
    torch.utils._config_module ConfigModule.load_config
    torch.utils.bottleneck.__main__ run_autograd_prof
    torch.utils.bottleneck.__main__ run_cprofile                          urllib.request urlopen
    torch.utils.collect_env run          torch.utils.cpp_extension load
    torch.utils.data.datapipes.utils.decoder basichandlers                uuid _get_command_stdout
    venv create                          webbrowser open                  zipimport zipimporter
    _pickle Unpickler                    pickle load                      shelve open
    torch._utils _import_dotted_name     yaml load
    keras.src.saving load_model          sklearn.externals.joblib load    dill loads
    cloudpickle.cloudpickle _make_function                                nosuchmodule anything
"""


def known_bypasses():
    """What others' lists did not have: all that is not allowed is unsafe."""
    words = KNOWN.split()
    for module, attribute in zip(words[::2], words[1::2]):
        title = f"{module}.{attribute}"
        in_protocol_4 = pickled(reduce(stack_name(module, attribute), "x"), 4)
        yield Case(f"known {title}", in_protocol_4, names=(title,))
        if "." not in attribute:
            value = pickled({"w": tensor(), "x": call(module, attribute, "x")})
            yield Case(f"known {title} in a zip", pt(value), names=(title,), file="in.pt")


def names_of_an_honest_file(folder):
    result = scan(folder, "--json", DATA / "pt" / "tied.pt")
    found = report(result)
    expected = {"torch._utils._rebuild_tensor_v2", "torch.FloatStorage", "collections.OrderedDict"}
    check_equal({each["name"] for each in found["globals"]}, expected, "names", result)


def calls_are_listed(folder):
    (folder / "in.pkl").write_bytes(EVIL)
    result = scan(folder, "--json", "in.pkl")
    found = report(result)
    check_equal([each["offset"] for each in found["globals"]], [2], "offsets", result)
    check_equal("os.system" in json.dumps(found["calls"]), True, "os.system among calls", result)


def changing_folder(folder):
    """A folder in which files and folders are turned into links, and back, while it is scanned: what they lead to is
    never looked at."""
    top = folder / "top"
    (top / "a" / "b").mkdir(parents=True)
    honest = (DATA / "pt" / "tied.pt").read_bytes()
    for number in range(40):
        (top / "a" / "b" / f"{number:02}.pt").write_bytes(honest)
    outside = folder / "outside" / "b"
    outside.mkdir(parents=True)
    for number in range(40):
        (outside / f"{number:02}.pt").write_bytes(EVIL)
    turner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os\n"
            "os.symlink('../outside', 'top/link')\n"
            "os.symlink('../../../outside/b/20.pt', 'top/file')\n"
            "while not os.path.exists('stop'):\n"
            "    for one, other in (('top/a', 'top/link'), ('top/a/b/20.pt', 'top/file')):\n"
            "        try:\n"
            "            os.rename(one, 'kept'); os.rename(other, one)\n"
            "            os.rename(one, other); os.rename('kept', one)\n"
            "        except OSError as error:\n"
            "            raise SystemExit(error)\n",
        ],
        cwd=folder,
    )
    try:
        for _ in range(6 if SANITIZED else 30):
            result = tconv("scan", "--json", "top", cwd=folder)
            *found, _last = map(json.loads, result.out.splitlines())
            verdicts = {line["verdict"] for line in found if "verdict" in line}
            check_equal(verdicts <= {"clean"}, True, f"verdicts {verdicts}", result)
            codes = {line["error"]["code"] for line in found if "error" in line}
            check_equal(codes <= {"changed", "open"}, True, f"codes {codes}", result)
    finally:
        (folder / "stop").touch()
        turner.wait()
    check_equal(turner.returncode, 0, "the one who turns them")


def unwritten_reports(folder):
    """A report that can't be written is the exit code, where it is higher than that of what was found."""
    (folder / "in.pt").write_bytes(EVIL)
    (folder / "folder").mkdir()
    for option in ("--sarif", "--junit"):
        for place, wanted in (("none/x", IO), ("folder", USAGE), ("report", EXIT[UNSAFE])):
            result = tconv("scan", "-q", option, place, "in.pt", cwd=folder)
            check_equal(result.code, wanted, f"{option} {place}", result)


def several_files(contents, codes, folder):
    """One object a file, all files done."""
    names = [f"{number}.pkl" for number in range(len(contents))]
    for file, content in zip(names, contents):
        (folder / file).write_bytes(content)
    result = scan(folder, "--json", *names)
    objects = [json.loads(line) for line in result.out.splitlines()]
    check_equal([each.get("file") for each in objects], names, "files", result)
    check_equal(result.code in codes, True, f"exit {result.code} among {codes}", result)
    check_equal(scan(folder, *names).code, result.code, "exit code without --json", result)


def escaped_names(folder):
    """Names come from a stranger: no control characters reach a terminal, and JSON keeps them."""
    odd = "sys\x1b[31mtem\u202e"
    (folder / "in.pkl").write_bytes(pickled(stack_name("os", odd), 4))
    shown = scan(folder, "in.pkl")
    check_equal(
        any(each in shown.out for each in (b"\x1b", "\u202e".encode())), False, "raw", shown
    )
    found = report(scan(folder, "--json", "in.pkl"))
    check_equal([each["name"] for each in found["globals"]], [f"os.{odd}"], "names")


def never_clean(content, folder):
    """Whatever it is called, it is not called clean."""
    (folder / "in.pt").write_bytes(content)
    for options in ((), ("--json",)):
        result = scan(folder, *options, "in.pt")
        allowed = result.code in (EXIT[UNSAFE], INVALID)
        check_equal(allowed, True, f"exit {result.code} is 1 or 3", result)
        check_equal(b'"clean"' in result.out, False, "a clean verdict", result)


def no_pickle(kind, folder):
    """Files of no known format are described by what they look like."""
    never_clean(RECOGNISED[kind], folder)
    found = report(scan(folder, "--json", "in.pt"))
    check_equal(found["verdict"], OTHER, "verdict")
    unpacked = "text" if kind in ("gzip", "xz", "zstd") else kind
    check_equal(unpacked in found["other"], True, f"{unpacked} in {found['other']}")


def cases(_suite):
    for group in (
        honest,
        hostile_files,
        broken_on_purpose,
        opcodes,
        nested,
        known_bypasses,
    ):
        for case in group():
            yield f"{group.__name__} {case.label}", functools.partial(check, case)
    yield "names of an honest file", names_of_an_honest_file
    yield "calls are listed", calls_are_listed
    yield "escaped names", escaped_names
    clean, broken = pickled({"w": ndarray()}), pickled(get(7))
    for label, contents, codes in (
        ("clean and clean", [clean, clean], {0}),
        ("clean and unsafe", [clean, EVIL, clean], {1}),
        ("clean and broken", [broken, clean], {3}),
        ("broken and unsafe", [broken, EVIL, clean], {1, 3}),
    ):
        yield f"several: {label}", functools.partial(several_files, contents, codes)
    for kind in ("7z", "RAR", "gzip", "xz", "zstd", "ggml", "HDF5", "ELF"):
        yield f"error: {kind}", functools.partial(no_pickle, kind)
    for label, content in (
        ("empty", b""),
        ("text", b"hello, world\n"),
        ("noise", b"\xff\xfe" * 99),
        ("a zip cut short", pt(HONEST)[:-30]),
        ("40 bytes, then a zip", bytes(40) + pt(EVIL)),
        ("a zip, then 40 bytes", pt(EVIL) + bytes(40)),
        ("two zips", pt(EVIL) + pt(HONEST)),
    ):
        yield f"never clean: {label}", functools.partial(never_clean, content)
    for file in sorted((DATA / "bad").glob("scan_*")):  # that were clean once
        if file.is_file():
            yield f"never clean: {file.name}", functools.partial(never_clean, file.read_bytes())
    yield "a folder that changes", changing_folder
    yield "reports that can't be written", unwritten_reports
    yield "error: missing", lambda folder: expect(folder, IO, "scan", "in.pt", mention="in.pt")
    yield "error: no file", lambda folder: expect(folder, USAGE, "scan")


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite)))
