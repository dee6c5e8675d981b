"""Attacks on pickles, whatever file they are in: P01 to P07 and P19 to P25.

A function under `in_any_framing` yields inputs whose content is a bare pickle. It takes the opcodes
of an honest tensor, which differ from one kind of file to the next. The rows themselves run in a
zip archive; `framed` gives the inputs of one in another kind of file.
"""

import pickle as op
import struct
from dataclasses import replace

from attacks import Input, row
from harness import INVALID, MIB, OK, SANITIZED, UNSAFE, UNSUPPORTED
from pickles import (
    ORDERED_DICT,
    THREE,
    byte_string,
    call,
    code,
    distinct_puts,
    dtype,
    frame,
    get,
    legacy,
    name,
    ndarray,
    pickled,
    pt,
    put,
    reduce,
    stack_name,
    storage,
    tensor,
)

FILE = "in.pt"
ONE = {"w": THREE}
HOSTILE = call("os", "system", "touch pwned")
REFUSED = {UNSAFE, UNSUPPORTED}
SMALL = 32 * MIB
PICKLES = {}  # row id -> (outcome, function)


def in_any_framing(row_id, outcome):
    def register(function):
        PICKLES[row_id] = (outcome, function)
        row(row_id, outcome, FILE)(lambda: framed(row_id, tensor(), pt))
        return function

    return register


def framed(row_id, one, wrap, label="", **common):
    """A row's inputs with their pickles in another file. One with options keeps its own commands."""
    outcome, function = PICKLES[row_id]
    for item in function(one):
        own = {"commands": item.commands} if item.options and item.commands else {}
        yield replace(
            item,
            label=f"{label}{item.label}",
            content=wrap(item.content),
            outcome=outcome if item.outcome is None else item.outcome,
            **{**common, **own},
        )


def beside(one, value):
    """A pickle of an honest tensor and something else."""
    return pickled({"w": one, "x": value})


@in_any_framing("P01", UNSAFE)
def os_system(one):
    yield Input("alone", pickled(HOSTILE), message="os.system")
    yield Input("after a tensor", beside(one, HOSTILE), message="os.system")
    yield Input("imported only", beside(one, name("os", "system")), message="os.system")
    yield Input("popped", pickled(HOSTILE + op.POP + code({"w": one})), message="os.system")


@in_any_framing("P02", UNSAFE)
def stack_globals(one):
    memoised = code("os") + put(0) + op.POP + code("system") + put(1) + op.POP
    from_memo = get(0) + get(1) + op.STACK_GLOBAL
    yield Input(
        "from the memo",
        pickled(memoised + code({"w": one, "x": reduce(from_memo, "x")}), 4),
        message="os.system",
    )
    eight = [op.BINUNICODE8 + struct.pack("<Q", len(text)) + text for text in (b"os", b"system")]
    yield Input("BINUNICODE8", beside(one, reduce(stack_name(*eight), "x")), message="os.system")
    short = [op.SHORT_BINUNICODE + bytes([len(text)]) + text for text in (b"os", b"system")]
    yield Input(
        "SHORT_BINUNICODE", beside(one, reduce(stack_name(*short), "x")), message="os.system"
    )
    yield Input(
        "a dotted name",
        beside(one, reduce(stack_name("collections", "OrderedDict.__init__"), ())),
        message="collections.OrderedDict.__init__",
    )
    for label, value in (
        ("numbers", 1),
        ("None", None),
        ("bytes", byte_string(b"os")),
        ("tuples", ("os",)),
        ("a tensor", one),
    ):
        yield Input(f"{label} as names", beside(one, stack_name(value, value)), INVALID)
        yield Input(f"{label} as module", beside(one, stack_name(value, "system")), INVALID)
    honest = code("collections") + put(0) + op.POP + code("OrderedDict") + put(1) + op.POP
    yield Input(
        "honest, from the memo",
        pickled(honest + code({"w": one, "x": reduce(from_memo)}), 4),
        OK,
        tensors=ONE,
    )


@in_any_framing("P03", REFUSED)
def opcodes_that_call(one):
    ordered = name("collections", "OrderedDict")
    function = name("torch._utils", "_rebuild_tensor_v2")
    newobj, newobj_ex = op.EMPTY_TUPLE + op.NEWOBJ, op.EMPTY_TUPLE + op.EMPTY_DICT + op.NEWOBJ_EX
    for label, value in {
        "INST of an allowed class": op.MARK + op.INST + b"collections\nOrderedDict\n",
        "OBJ of an allowed class": op.MARK + ordered + op.OBJ,
        "EXT1": op.EXT1 + b"\1",
        "EXT2": op.EXT2 + b"\1\1",
        "EXT4": op.EXT4 + b"\1\1\1\0",
        "PERSID": op.PERSID + b"0\n",
        "NEXT_BUFFER": op.NEXT_BUFFER,
        "READONLY_BUFFER": byte_string(b"x") + op.READONLY_BUFFER,
        "NEWOBJ of text": code("x") + newobj,
        "NEWOBJ of a function": function + newobj,
        "NEWOBJ_EX of text": code("x") + newobj_ex,
        "NEWOBJ_EX of a function": function + newobj_ex,
        "REDUCE of text": reduce("x"),
        "REDUCE of a number": reduce(1),
        "REDUCE of a tensor": reduce(one),
        "BUILD of text": code("x") + code({}) + op.BUILD,
        "BUILD of a list": code([1]) + code({"a": 1}) + op.BUILD,
        "BUILD of a function": function + code({"a": 1}) + op.BUILD,
    }.items():
        yield Input(label, beside(one, value))
    arguments = op.MARK + code("touch pwned")
    for label, value in {
        "INST": arguments + op.INST + b"os\nsystem\n",
        "OBJ": op.MARK + name("os", "system") + code("touch pwned") + op.OBJ,
        "NEWOBJ": name("os", "system") + code(("x",)) + op.NEWOBJ,
        "NEWOBJ_EX": name("os", "system") + code(("x",)) + code({}) + op.NEWOBJ_EX,
        "BUILD": name("os", "system") + code({"x": 1}) + op.BUILD,
    }.items():
        yield Input(f"{label} of os.system", beside(one, value), UNSAFE, message="os.system")


@in_any_framing("P04", {INVALID, UNSAFE})
def hostile_arguments(one):
    for label, value in {
        "bytearray": call("builtins", "bytearray", 2**40),
        "list": call("builtins", "list", 2**40),
        "set": call("__builtin__", "set", 2**40),
        "frozenset": call("builtins", "frozenset", 2**40),
        "dict": call("builtins", "dict", 2**40),
        "rot13": call("_codecs", "encode", "x", "rot13"),
        "zlib": call("_codecs", "encode", "x", "zlib"),
        "a codec that is no text": call("_codecs", "encode", "x", 1),
        "a text that is none": call("_codecs", "encode", 2**40, "latin1"),
        "not in the codec": call("_codecs", "encode", "\u20ac", "latin1"),
        "Counter": call("collections", "Counter", 2**40),
        "OrderedDict": call("collections", "OrderedDict", 2**40),
        "Size": call("torch", "Size", 10**9),
        "Size of text": call("torch", "Size", ("x",)),
        "an array of 2**40": ndarray((2**40,)),
        "an array of 2**64 + 12 bytes": ndarray((2**62 + 3,)),
        "an array of -3": ndarray((-3,)),
        "a scalar cut short": call(
            "numpy._core.multiarray", "scalar", dtype(), byte_string(b"123")
        ),
        "a buffer cut short": call(
            "numpy._core.numeric", "_frombuffer", byte_string(b"123"), dtype(), (1,), "C"
        ),
    }.items():
        yield Input(label, beside(one, value), rss=SMALL)
    yield Input(
        "an array of objects",
        beside(one, ndarray((1,), ["x"], "O8")),
        OK,
        tensors=ONE,
        message="Python objects",
    )


@in_any_framing("P05", UNSAFE)
def other_ways_to_run_code(one):
    inner = pickled(HOSTILE)
    for module, attribute, *arguments in (
        ("pip", "main", ["install", "x"]),
        ("pip", "_internal.main", ["install", "x"]),
        ("torch.storage", "_load_from_bytes", byte_string(legacy(inner))),
        ("torch.storage", "_load_from_bytes", byte_string(inner)),
        ("numpy", "load", "x.npy", None, True),
        ("numpy.lib.npyio", "load", "x.npy", None, True),
        ("pickle", "loads", byte_string(inner)),
        ("_pickle", "loads", byte_string(inner)),
        ("pkgutil", "resolve_name", "os:system"),
        ("torch", "load", "x.pt"),
        ("builtins", "getattr", name("collections", "OrderedDict"), "__init__"),
        ("builtins", "eval", "1"),
    ):
        label = f"{module}.{attribute} of {len(arguments[0])}"
        yield Input(
            label,
            beside(one, call(module, attribute, *arguments)),
            message="os.system" if attribute == "_load_from_bytes" else f"{module}.{attribute}",
        )


@in_any_framing("P06", UNSAFE)
def broken_after_the_call(one):
    start = op.PROTO + b"\2" + HOSTILE
    for label, rest in (
        ("no STOP", b""),
        ("unknown opcodes", b"\xff\xfe\xff"),
        ("an empty stack", op.POP * 3 + op.STOP),
        ("a text cut short", op.BINUNICODE + b"\xff\0\0\0x"),
        ("a bad reference", get(9) + op.STOP),
        ("an unknown storage", tensor(storage("9")) + op.STOP),
    ):
        yield Input(label, start + rest, message="os.system")


@in_any_framing("P07", INVALID)
def around_the_pickle(one):
    honest = pickled({"w": one})
    yield Input("a byte after STOP", honest + b"\0")
    yield Input("text after STOP", honest + b"garbage")
    yield Input("two pickles", honest + honest, {INVALID, UNSUPPORTED})
    yield Input("a second STOP", honest + op.STOP)
    skipped = code("straddle") + op.POP
    body = skipped + code({"w": one}) + op.STOP
    start = op.PROTO + b"\4"
    for label, length in (
        ("ends in a length", 3),
        ("ends in a text", 8),
        ("ends one byte early", len(body) - 1),
        ("ends one byte late", len(body) + 1),
        ("ends far behind the file", 2**40),
    ):
        outcome = {OK, INVALID} if label == "ends one byte early" else None
        yield Input(f"a frame that {label}", start + frame(body, length), outcome)
    yield Input("a frame in a frame", start + frame(skipped + frame(code({"w": one}) + op.STOP)))
    yield Input(
        "two frames",
        start + frame(skipped) + frame(code({"w": one}) + op.STOP),
        OK,
        tensors=ONE,
    )


@in_any_framing("P19", OK)
def memo(one):
    last = 0xFFFFFFFF
    yield Input(
        "index 0xffffffff",
        pickled(code("x") + put(last) + op.POP + code({"w": one, "x": get(last)})),
        tensors=ONE,
        rss=SMALL,
    )
    yield Input(
        "a text index of 2**63",
        pickled(b"I1\n" + op.PUT + b"9223372036854775808\n" + op.POP + code({"w": one})),
        {OK, INVALID, UNSAFE},
        rss=SMALL,
    )
    yield Input(
        "a negative index", pickled(b"I1\n" + op.PUT + b"-1\n" + op.POP + code({"w": one})), INVALID
    )
    for millions, outcome in ((10, {OK, UNSAFE}), (17, UNSAFE)):
        yield Input(
            f"{millions},000,000 entries",
            pickled(code({"w": one}) + distinct_puts(millions * 1_000_000)),
            outcome,
            commands=("hash",),
            rss=512 * MIB,
        )


@in_any_framing("P20", UNSAFE)
def laughs(one):
    def levels(bottom, double):
        doubled = b"".join(op.POP + double(get(level)) + put(level + 1) for level in range(64))
        return code(bottom) + put(0) + doubled

    for label, bottom in (("text", "lol"), ("tensors", one), ("empty tuples", ())):
        for kind, double in (
            ("tuples", lambda item: item + item + op.TUPLE2),
            ("lists", lambda item: code([item, item])),
            ("dicts", lambda item: code({"a": item, "b": item})),
        ):
            yield Input(f"{kind} of {label}", beside(one, levels(bottom, double)), rss=128 * MIB)
        yield Input(f"DUP of {label}", beside(one, code(bottom) + (op.DUP + op.TUPLE2) * 64))


@in_any_framing("P21", OK)
def cycles(one):
    for item in cyclic_values(one):
        whole = item.outcome is None
        reason = item.message or "holds itself"
        yield replace(item, message=reason, tensors=ONE if whole else None)
        if whole:
            yield replace(
                item,
                label=f"{item.label}, --strict",
                outcome=UNSUPPORTED,
                commands=("convert",),
                options=("--strict",),
                message="--strict: ",
            )


def cyclic_values(one):
    yield Input("a list in itself", beside(one, op.EMPTY_LIST + put(0) + get(0) + op.APPEND))
    into_dict = op.EMPTY_DICT + put(0) + code("a") + get(0) + op.SETITEM
    yield Input("a dict in itself", beside(one, into_dict))
    yield Input(
        "a tuple in its list", beside(one, op.EMPTY_LIST + put(0) + get(0) + op.TUPLE1 + op.APPEND)
    )
    yield Input(
        "a list in its OrderedDict",
        beside(one, ORDERED_DICT + put(0) + code("a") + code([get(0)]) + op.SETITEM),
    )
    # A legacy file has a storage that then nothing refers to.
    yield Input("the root in itself", pickled(into_dict), {UNSUPPORTED, INVALID}, message=" ")
    yield Input(
        "two lists in each other",
        beside(
            one,
            op.EMPTY_LIST + put(0) + op.EMPTY_LIST + put(1) + get(0) + op.APPEND + op.APPEND,
        ),
    )


@in_any_framing("P22", UNSAFE)
def nesting(one):
    million = 1_000_000
    for label, value in (
        ("MARK", op.MARK * million + op.NONE + op.TUPLE * million),
        ("MARK, never closed", op.MARK * million),
        ("EMPTY_LIST", op.EMPTY_LIST * million + op.APPEND * (million - 1)),
        ("TUPLE1", op.NONE + op.TUPLE1 * million),
        ("LIST", op.MARK * million + op.LIST * million),
        ("DICT", (op.EMPTY_DICT + code("k")) * million + op.NONE + op.SETITEM * million),
    ):
        yield Input(f"{label} x 1,000,000", beside(one, value), commands=("hash",))
        yield Input(f"{label} x 1,000,000 at the root", pickled(value), commands=("hash",))
    path = ".".join(["0"] * 500)
    deep = op.EMPTY_LIST * 500 + one + op.APPEND * 500
    yield Input("500 lists", pickled(deep), OK, tensors={path: THREE})


@in_any_framing("P23", INVALID)
def lengths(one):
    for opcode, layout, length in (
        ("BINUNICODE", "<I", 0xFFFFFFFF),
        ("BINBYTES", "<I", 0xFFFFFFFF),
        ("BINUNICODE8", "<Q", 2**63),
        ("BINBYTES8", "<Q", 2**63),
        ("BYTEARRAY8", "<Q", 2**63),
        ("FRAME", "<Q", 2**63),
        ("BINUNICODE8", "<Q", 2**64 - 1),
        ("BINBYTES8", "<Q", 2**64 - 1),
        ("BYTEARRAY8", "<Q", 2**64 - 1),
        ("FRAME", "<Q", 2**64 - 1),
        ("BINSTRING", "<i", -1),
        ("BINSTRING", "<i", 2**31 - 1),
        ("LONG4", "<i", -1),
        ("LONG4", "<i", 2**31 - 1),
        ("SHORT_BINUNICODE", "<B", 255),
        ("SHORT_BINBYTES", "<B", 255),
        ("SHORT_BINSTRING", "<B", 255),
        ("LONG1", "<B", 255),
    ):
        value = getattr(op, opcode) + struct.pack(layout, length) + b"x"
        yield Input(f"{opcode} {length}", pickled(code({"w": one}) + value, 4), rss=SMALL)


@in_any_framing("P24", UNSAFE)
def long_numbers(one):
    hundred = 100_000_000
    binary = op.LONG4 + struct.pack("<i", hundred) + b"\1" * hundred
    yield Input("LONG4 of 100 MB", beside(one, binary), commands=("hash",))
    digits = b"9" * 10_000_000
    for label, value, outcome in (
        ("LONG", op.LONG + digits + b"L\n", UNSAFE),
        ("INT", op.INT + digits + b"\n", {INVALID, UNSAFE}),
    ):
        yield Input(f"{label} of 10 MB", beside(one, value), outcome, commands=("hash",), seconds=2)


POPPING = {  # opcode -> its argument
    "APPEND": b"",
    "APPENDS": b"",
    "ADDITEMS": b"",
    "BUILD": b"",
    "BINPERSID": b"",
    "PUT": b"0\n",
    "BINPUT": b"\0",
    "LONG_BINPUT": b"\0\0\0\0",
    "DICT": b"",
    "DUP": b"",
    "FROZENSET": b"",
    "LIST": b"",
    "MEMOIZE": b"",
    "NEWOBJ": b"",
    "NEWOBJ_EX": b"",
    "POP": b"",
    "POP_MARK": b"",
    "REDUCE": b"",
    "SETITEM": b"",
    "SETITEMS": b"",
    "STACK_GLOBAL": b"",
    "STOP": b"",
    "TUPLE": b"",
    "TUPLE1": b"",
    "TUPLE2": b"",
    "TUPLE3": b"",
    "INST": b"collections\nOrderedDict\n",
    "OBJ": b"",
    "READONLY_BUFFER": b"",
}
REFUSED_ANYWAY = ("INST", "OBJ", "NEWOBJ_EX", "READONLY_BUFFER")
CLOSES_A_MARK = ("DICT", "FROZENSET", "LIST", "POP", "POP_MARK", "TUPLE", "INST")
OPCODES = {value for key, value in vars(op).items() if key.isupper() and isinstance(value, bytes)}


@in_any_framing("P25", INVALID)
def empty_stack(one):
    for opcode, argument in POPPING.items():
        outcome = {INVALID, *REFUSED} if opcode in REFUSED_ANYWAY else None
        step = getattr(op, opcode) + argument
        yield Input(f"{opcode} on nothing", pickled(step), outcome)
        yield Input(f"{opcode} after POP", pickled(one + op.POP + step + code({})), outcome)
        if opcode not in CLOSES_A_MARK:
            yield Input(f"{opcode} on a mark", pickled(op.MARK + step), outcome)
    for label, value in (
        ("SETITEMS of 1", op.EMPTY_DICT + op.MARK + code("a") + op.SETITEMS),
        ("SETITEMS of 3", op.EMPTY_DICT + op.MARK + code("a") * 3 + op.SETITEMS),
        ("DICT of 3", op.MARK + code("a") * 3 + op.DICT),
        ("TUPLE2 of 1", op.MARK + code(1) + op.TUPLE2),
        ("TUPLE3 of 2", op.MARK + code(1) * 2 + op.TUPLE3),
        ("GET of nothing", op.GET + b"7\n"),
        ("BINGET of nothing", op.BINGET + b"\7"),
        ("LONG_BINGET of nothing", get(7)),
    ):
        yield Input(label, beside(one, value))
    yield Input("STOP over a mark", pickled(op.MARK + code({"w": one})), {OK, INVALID})
    yield Input("no pickle at all", b"")
    yield Input("no STOP", pickled({"w": one})[:-1])
    for byte in range(256):
        if bytes([byte]) not in OPCODES:
            unknown = bytes([byte]) + bytes(8)
            yield Input(f"opcode {byte:#04x}", beside(one, unknown), commands=("hash",))


# What the file around a pickle takes is left out. A sanitizer, under which nothing is measured, gets
# an eighth.
FOUR_MIB = 4 * MIB // (8 if SANITIZED else 1) - 4096


def filled(start, piece, end=b"", size=FOUR_MIB):
    """As many of a piece as a pickle of this size holds."""
    return start + piece * ((size - len(start) - len(end)) // len(piece)) + end


def costly():
    """Pickles under 4 MiB that would take minutes or gigabytes to build: (label, opcodes)."""
    half = FOUR_MIB // 2
    yield "lists on the stack", filled(b"", op.EMPTY_LIST)
    yield "lists in a tuple", filled(op.MARK, op.EMPTY_LIST, op.TUPLE)
    yield "numbers in a list", filled(op.EMPTY_LIST + op.MARK, op.BININT1 + b"\1", op.APPENDS)
    yield "lists of one", filled(b"", op.EMPTY_LIST + op.NONE + op.APPEND)
    yield "marks", filled(op.NONE, op.MARK)
    yield "numbers of 1 KiB", filled(b"", op.LONG4 + struct.pack("<i", 1024) + b"\x81" * 1024)
    yield "digits", filled(b"", op.LONG + b"9" * 4000 + b"L\n")
    yield "memo entries", filled(op.NONE, op.MEMOIZE)
    far = b"".join(put(number * 4096 + 7) for number in range(half // 5))
    yield "memo entries far apart", op.NONE + far
    many = op.MARK + (op.BININT1 + b"\1") * (half // 2) + op.TUPLE + put(0)
    for label, function, last in (
        ("torch.Size", name("torch", "Size"), b""),
        ("set", name("builtins", "set"), b""),
        ("list", name("builtins", "list"), b""),
        ("OrderedDict", name("collections", "OrderedDict"), b""),
        ("_reconstruct", name("numpy.core.multiarray", "_reconstruct"), b""),
    ):
        again = op.BINGET + b"\1" + get(0) + op.TUPLE1 + op.REDUCE + op.POP + last
        yield f"{label} of many, often", filled(many + function + put(1), again)
    pairs = filled(op.EMPTY_DICT + op.MARK, op.NONE + op.NONE, op.SETITEMS, half) + put(0)
    ordered = name("collections", "OrderedDict") + put(1)
    copied = op.BINGET + b"\1" + get(0) + op.TUPLE1 + op.REDUCE + op.POP
    yield "dicts copied", filled(pairs + ordered, copied)
    built = op.BINGET + b"\1" + op.EMPTY_TUPLE + op.REDUCE + get(0) + op.BUILD + op.POP
    yield "states of many keys", filled(pairs + ordered, built)
    text = code("a" * half) + put(0)
    encode = name("_codecs", "encode") + put(1) + op.POP + code("latin1") + put(2)
    encoded = op.BINGET + b"\1" + get(0) + get(2) + op.TUPLE2 + op.REDUCE + op.POP
    yield "text encoded", filled(text + encode, encoded)
    path = name("pathlib", "PosixPath") + put(1)
    yield "paths", filled(text + path, copied)
    dots = code("a." * (half // 2) + "a") + put(0)
    yield "long names", filled(dots, get(0) + get(0) + op.STACK_GLOBAL + op.POP)
    yield "old text", filled(b"", op.UNICODE + b"\\u00e9" * 600 + b"\n")
    yield "frames", filled(b"", op.FRAME + bytes(8))
    crossed = op.FRAME + struct.pack("<Q", 3) + op.BININT + bytes(4)
    yield "frames crossed", filled(b"", crossed)


@row("B09", {OK, INVALID, UNSUPPORTED, UNSAFE}, "in.pkl", commands=("hash",))
def cost_follows_the_file():
    """A pickle under 4 MiB takes at most 10 s and 256 MiB, whatever it holds."""
    for label, body in costly():
        for ending in ("", "cut"):
            content = op.PROTO + b"\4" + body + (b"" if ending else op.STOP)
            yield Input(
                f"{label} {ending}".rstrip(),
                content,
                options=("--max-memory", str(192 * MIB)),
                seconds=10,
                rss=256 * MIB,
                mention="",
            )
