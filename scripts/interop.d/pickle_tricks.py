"""Pickles that reach the canary, in every way that Python's machine knows, and behind everything that another machine
might stumble over. Names that are not the canary's are for a process that stops at them (watched.py)."""
import struct
from random import Random

from containers import MAGIC, PROTOCOL, SYSTEM_INFO, zipped
from pickle_code import call, constant, integer, name_of, storage, tensor, text, tuple_of
from pickle_programs import ALLOWED

CANARY = "tconv_canary"
LEGACY_START = MAGIC + PROTOCOL + SYSTEM_INFO
STOPPED = [
    ("posix", "system"),
    ("builtins", "eval"),
    ("os", "system"),
    ("subprocess", "Popen"),
    ("builtins", "getattr"),
]


# Ways to write a string, to name, and to call


def strings(value: str) -> list[bytes]:
    raw = value.encode()
    first = f"{raw[0]:02x}"
    rest = value[1:]
    return [
        b"X" + struct.pack("<I", len(raw)) + raw, b"\x8c" + bytes([len(raw)]) + raw,
        b"\x8d" + struct.pack("<Q", len(raw)) + raw, b"V" + raw + b"\n", f"V\\u00{first}{rest}\n".encode(),
        f"V\\U000000{first}{rest}\n".encode(), b"S'" + raw + b"'\n", b'S"' + raw + b'"\n',
        f"S'\\x{first}{rest}'\n".encode(),
        f"S'\\{raw[0]:o}{rest}'\n".encode() if not rest[:1].isdigit() else b"V" + raw + b"\n",
        b"U" + bytes([len(raw)]) + raw, b"T" + struct.pack("<i", len(raw)) + raw,
    ]  # fmt: skip


MEMOS = [  # a value on the stack, kept and fetched again
    b"q\xc80h\xc8", b"p200\n0g200\n", b"p 200\n0g+200\n", b"p2_00\n0g200\n", b"p0200\n0g200\n",
    b"r\xc8\0\0\0" + b"0h\xc8",
    b"q\xc80j\xc8\0\0\0", b"r\x10\x27\0\0" + b"0j\x10\x27\0\0", b"q\xc8r\xc9\0\0\0" + b"0h\xc9",
    b"2q\xc800h\xc8", b"q\xc8(0" + b"0h\xc8", b"q\xc8N0",
]  # fmt: skip


def memoized(random: Random, pushed: bytes) -> bytes:
    if random.random() < 0.2:  # where MEMOIZE writes depends on how many entries there are
        return b"Nq\xfa0" + pushed + b"\x94N0"
    return pushed + random.choice(MEMOS)


def naming(random: Random, module: str, name: str) -> bytes:
    """Bytes that leave the object on the stack."""
    choice = random.randrange(8)
    line = f"c{module}\n{name}\n".encode()
    if choice == 0:
        return line
    if choice == 1 and module == CANARY and name == "touch":
        return random.choice([b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0"])
    if choice == 2 and module == CANARY:
        return b"\x80\x04" + naming_by_strings(random, module, f"inner.{name}" if name in ("touch", "Touch") else name)
    if choice == 3:
        return b"\x80\x04" + b"c" + f"{module}\n{name}\n".encode()
    if choice == 4:
        return memoized(random, line)
    return naming_by_strings(random, module, name)


def naming_by_strings(random: Random, module: str, name: str) -> bytes:
    parts = [random.choice(strings(part)) for part in (module, name)]
    for index in (0, 1):
        if random.random() < 0.3:
            parts[index] = memoized(random, parts[index])
    return b"".join(parts) + b"\x93"


def touch(random: Random) -> bytes:
    """A call of the canary, or of a name at which the process stops."""
    if random.random() < 0.15:
        return naming(random, *random.choice(STOPPED)) + tuple_of(text("true")) + b"R"
    return random.choice(CALLS)(random)


def canary(random: Random, name: str = "touch") -> bytes:
    return naming(random, CANARY, name)


def nested(random: Random) -> bytes:
    """Bytes on the stack that are a file with a pickle of their own, pushed or made by a call."""
    inner = b"\x80\x02" + canary(random) + b")R."
    file = random.choice(
        [inner, LEGACY_START + inner, zipped([("archive/data.pkl", inner), ("archive/version", b"3\n")])]
    )
    plain = b"B" + struct.pack("<I", len(file)) + file
    return random.choice([
        lambda: plain, lambda: b"\x8e" + struct.pack("<Q", len(file)) + file,
        lambda: b"\x96" + struct.pack("<Q", len(file)) + file,
        lambda: call("_codecs.encode", text(file.decode("latin1")),
            text(random.choice(["latin1", "latin-1", "iso-8859-1", "L1", "8859"]))),
        lambda: call("builtins.bytearray", plain),
        lambda: call("builtins.bytearray", text(file.decode("latin1")), text("latin1")),
        lambda: call("builtins.bytes", constant(list(file))), lambda: call("builtins.bytearray", constant(list(file))),
        lambda: memoized(random, plain), lambda: plain + b"\x98",
    ])()  # fmt: skip


CALLS = [
    lambda random: canary(random) + b")R", lambda random: canary(random) + b"N\x85R",
    lambda random: canary(random) + b"(NNtR", lambda random: canary(random, "Touch") + b")\x81",
    lambda random: canary(random, "Touch") + b")}\x92", lambda random: b"(" + canary(random) + b"No",
    lambda random: b"(" + canary(random, "Touch") + b"o", lambda random: b"(itconv_canary\ntouch\n",
    lambda random: b"(Nitconv_canary\nTouch\n", lambda random: canary(random, "value") + b"Nb",
    lambda random: canary(random, "value") + b"}b", lambda random: canary(random, "value") + b"Na",
    lambda random: canary(random, "value") + b"(NNe", lambda random: canary(random, "value") + b"NNs",
    lambda random: canary(random, "value") + b"(NNu", lambda random: canary(random, "value") + b"(N\x90",
    lambda random: b"}" + canary(random, "value") + b"Ns", lambda random: b"\x8f(" + canary(random, "value") + b"\x90",
    lambda random: b"(" + canary(random, "value") + b"\x91", lambda random: b"(" + canary(random, "value") + b"Nd",
    lambda random: b"(" + canary(random) + b"l0N", lambda random: canary(random) + b"0N",
    lambda random: call("torch._tensor._rebuild_from_type_v2", canary(random), name_of("torch.Tensor"), b")", b"}"),
    lambda random: call("torch._utils._rebuild_parameter_with_state", tensor(storage()), b"\x89",
        call("collections.OrderedDict"),
                        b"}" + text("a") + canary(random) + b"s"),
    lambda random: call("collections.OrderedDict") + b"}" + text("__setstate__") + canary(random) + b"sb}b",
    lambda random: call("collections.defaultdict", canary(random)),
    lambda random: call("numpy._core.multiarray._reconstruct", canary(random, "Touch"), constant((0,)), b"C\x01b"),
    lambda random: call("collections.OrderedDict", b"](" + tuple_of(canary(random, "value"), b"N") + b"e"),
    lambda random: call("collections.Counter", b"](" + canary(random, "value") + b"e"),
    lambda random: call("builtins.set", b"](" + canary(random, "value") + b"e"),
    lambda random: tuple_of(text("module"), canary(random, "Touch"), text("a.py"), text("pass")) + b"Q",
    lambda random: tuple_of(text("storage"), canary(random, "value"), text("0"), text("cpu"), integer(6)) + b"Q",
    lambda random: tensor(storage(), 0, (2, 3), (3, 1), b"\x89", canary(random) + b")R"),
    lambda random: call("_codecs.encode", canary(random) + b")R", text("latin1")),
    lambda random: call("torch.storage._load_from_bytes", nested(random)),
    lambda random: b"(" + name_of("torch.storage._load_from_bytes") + nested(random) + b"o",
    lambda random: call("torch._tensor._rebuild_from_type_v2", name_of("torch.storage._load_from_bytes"),
        name_of("torch.Tensor"),
                        tuple_of(nested(random)), b"}"),
    lambda random: call("copyreg._reconstructor", canary(random, "Touch"), name_of("builtins.object"), b"N"),
]  # fmt: skip


# No name but of the list: a listed function that loads bytes is put where the machine looks for a method of an object

LOADER = name_of("torch.storage._load_from_bytes")
LIGHTNING = "pytorch_lightning.utilities.parsing.AttributeDict"
HOLDERS = [
    call("collections.OrderedDict"), call("collections.Counter"), call("argparse.Namespace"),
    call("types.SimpleNamespace"), call(LIGHTNING),
    name_of(LIGHTNING) + b")\x81", name_of("argparse.Namespace") + b")\x81",
    call("torch.torch_version.TorchVersion", text("2.1")), tensor(storage()),
    call("copyreg._reconstructor", name_of("argparse.Namespace"), name_of("builtins.object"), b"N"),
    name_of("argparse.Namespace"), name_of(LIGHTNING),
    name_of("torch._utils._rebuild_tensor_v2"), call("pathlib.PosixPath", text("a")),
    call("collections.defaultdict", name_of("builtins.list")),
    call("torch._utils._rebuild_parameter", tensor(storage()), b"\x89", call("collections.OrderedDict")), b"]", b"}",
    call("collections.deque"),
    call("torch.Size", constant((1,))), call("torch.device", text("cpu")),
    name_of("joblib.numpy_pickle.NumpyArrayWrapper") + b")\x81",
]  # fmt: skip


def with_method(random: Random) -> bytes:
    method = random.choice(
        [
            "__setstate__",
            "append",
            "extend",
            "add",
            "__setitem__",
            "__call__",
            "__class__",
            "__dict__",
            "__getattr__",
            "update",
        ]
    )
    state = b"}" + text(method) + LOADER + b"s"
    put = random.choice([
        lambda: state + b"b", lambda: tuple_of(b"N", state) + b"b", lambda: text(method) + LOADER + b"s",
        lambda: b"(" + text(method) + LOADER + b"u",
        lambda: tuple_of(b"N", b"}" + text("__dict__") + state + b"s") + b"b",
        lambda: b"}" + text("__dict__") + state + b"sb",
    ])()  # fmt: skip
    uses = [nested(random) + b"b", nested(random) + b"a", b"(" + nested(random) + b"e",
        b"(" + nested(random) + b"\x90", text("k") + nested(random) + b"s",
            tuple_of(nested(random)) + b"R", tuple_of(b"N", b"}" + text("a") + nested(random) + b"s") + b"b",
            b"}" + text("k") + nested(random) + b"sb"]  # fmt: skip
    return random.choice(HOLDERS) + put + random.choice(uses) + random.choice([b"", random.choice(uses)])


CALLS.append(with_method)


# What may stand before it: each leaves the stack as it was


INTEGERS = [
    b"I5\n", b"I0x10\n", b"I 1\n", b"I\t1\n", b"I1_0\n", b"I0b1\n", b"I0o7\n", b"I010\n", b"I+5\n", b"I-0x5\n",
    b"I01\n", b"I00\n",
    b"I1\0x\n", b"I99999999999999999999\n", b"I0x99999999999999999999\n", b"I1 \n", b"I\x0b1\n", b"I1\r\n", b"L5\n",
    b"L5L\n",
    b"L0x10L\n", b"L0x10\n", b"L1_0L\n", b"L 5L\n", b"L-5L\n", b"L0b1L\n", b"L+5\n", b"L5 \n", b"L0L\n", b"L00L\n",
    b"F1.5\n", b"F1e5\n",
    b"Finf\n", b"F-nan\n", b"F1\0x\n", b"F1.\n", b"F.5\n", b"F1_0\n", b"F0x1\n", b"F 1\n", b"\x8a\0",
    b"\x8a\x02\xff\x7f", b"\x8a\x01\xff",
    b"\x8b\0\0\0\0", b"\x8b\x02\0\0\0\xff\xff", b"K\x05", b"M\x05\0", b"J\xff\xff\xff\xff", b"G" + bytes(8),
    b"G\x7f\xf8" + bytes(6),
]  # fmt: skip
STRINGS = [
    b"S'a'\n", b'S"a"\n', b"S'\\x41'\n", b"S'a\\'b'\n", b"S'a'b'\n", b"S''\n", b"S'\\101'\n", b"S'a\\\nb'\n",
    b"S'\\q'\n", b"Va\n", b"V\n",
    b"V\\u0041\n", b"V\\U0001F600\n", b"V\xe9\n", b"V\\x41\n", b"V\\ud800\n", b"V\\\n", b"Va\r\n", b"U\0", b"U\x01a",
    b"U\x01\n",
    b"T\x01\0\0\0a", b"X\0\0\0\0", b"X\x01\0\0\0a", b"X\x03\0\0\0\xed\xa0\x80", b"\x8c\0", b"\x8c\x01a",
    b"\x8d" + bytes(8),
    b"C\0", b"C\x01a", b"B\x01\0\0\0a", b"\x8e\x01" + bytes(7) + b"a", b"\x96\x01" + bytes(7) + b"a",
    b"\x96\x01" + bytes(7) + b"a\x98",
    b"C\x01a\x98",
]  # fmt: skip
STACK = [
    b"(0", b"(1", b"N20" + b"0", b"(NN1", b"(l0", b"(Nl0", b"(t0", b"(d0", b"(NNd0", b"]0", b"}0", b")0", b"\x8f0",
    b"(\x910", b"(N\x910",
    b"](NNe0", b"](e0", b"}(NNu0", b"}(u0", b"}NNs0", b"]Na0", b"\x8f(N\x900", b"\x8f(\x900", b"N\x850", b"NN\x860",
    b"NNN\x870", b"((11",
    b"(N(1" + b"1", b"((0" + b"0", b"\x880", b"\x890", b"]20" + b"0", b"((NtNt0", b"]2a0", b"}0", b"N(1" + b"0",
]  # fmt: skip
MEMO = [
    b"Np0\n0", b"Nq\0" + b"0", b"Nr\0\0\0\0" + b"0", b"N\x940", b"N\x940h\0" + b"0", b"Nq\x010N\x940h\x010",
    b"Nq\x020N\x940N\x940h\x020",
    b"Nq\0Nq\0" + b"00h\0" + b"0", b"Np 1\n0g1\n0", b"Np+3\n0g3\n0", b"Np1_1\n0g11\n0", b"Np01\n0g1\n0",
    b"Nr\xff\xff\0\0" + b"0",
    b"Nr\0\x01\0\0" + b"0j\0\x01\0\0" + b"0", b"N(Nq\0" + b"1" + b"0", b"]q\x03h\x03a0", b"}q\x03Nh\x03s0",
]  # fmt: skip
PROTOCOLS = [b"\x80" + bytes([number]) for number in (0, 1, 2, 3, 4, 5)]
FRAMES = [b"\x95" + struct.pack("<Q", length) for length in (0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16)]
HARMLESS = [
    call("collections.OrderedDict"), call("builtins.set", b"]"), call("_codecs.encode", text("é"), text("latin1")),
    call("torch.Size", constant((1, 2))), name_of("torch.float32"), call("torch.device", text("cpu")),
    tensor(storage()),
    call("collections.OrderedDict") + constant({"a": 1}) + b"b", b"(ccollections\nOrderedDict\no",
    b"(icollections\nOrderedDict\n",
    name_of("collections.OrderedDict") + b")\x81", name_of("collections.OrderedDict") + b")}\x92",
    call("builtins.bytearray", constant(3)),
    call("numpy.dtype", text("f4"), b"\x89", b"\x88"), call("torch.serialization._get_layout", text("torch.strided")),
    call("collections.defaultdict", name_of("builtins.list")), call("builtins.complex", constant(1.0), constant(2.0)),
]  # fmt: skip
PRELUDES = {
    **{f"{push!r}"[2:-1]: push + b"0" for push in INTEGERS + STRINGS},
    **{f"{code!r}"[2:-1]: code for code in STACK + MEMO + PROTOCOLS + FRAMES},
    **{f"{code!r}"[2:62]: code + b"0" for code in HARMLESS},
}
# What may stand behind it; the machine has run by then.
ENDS = [
    b".", b"", b"0N.", b"\xff", b"X\xff\xff\xff\x7f", b"00000.", b"(.", b"NN.", b".\xff\xff", b"..", b"N\x80\x04N.",
    b"R.", b"b.", b"Q.",
    b"h\xf0.", b"\x950000", b"0}.", b"\x85.", b"\x97.", b"\x82\xee.", b"cno_such_module\nx\n.", b"c\xff\n\xff\n.",
    b"e.", b"\x80\x09.",
]  # fmt: skip


def program(random: Random, prelude: bytes = b"", call: bytes | None = None, end: bytes = b".") -> bytes:
    body = prelude + (touch(random) if call is None else call) + end
    start = random.choice(
        [b"", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x04\x95" + struct.pack("<Q", len(body)), b"\x80\x05"]
    )
    return start + body


def random_program(random: Random) -> bytes:
    prelude = b"".join(random.choice(list(PRELUDES.values())) for _ in range(random.choice([0, 1, 1, 2, 3, 5, 8])))
    return program(random, prelude, end=random.choice(ENDS) if random.random() < 0.4 else b".")


# States and arguments that no honest file has


NUMBERS = [0, 1, 2, 3, 4, 8, 16, 63, 64, 127, 255, -1, 2**31, 2**62, 2**63, 2**70]


def odd_value(random: Random, depth: int = 2) -> bytes:
    choice = random.randrange(16)
    if choice < 4:
        return integer(random.choice(NUMBERS))
    if choice < 7:
        return text(random.choice(["", "a", "b", "O", "O8", "|O", "f4", "<f8", "V8", "object", "i4,O", "cpu", "meta",
            "latin1", "rot13", "idna",
                                   "punycode", "unicode_escape", "zlib", "base64", "hex", "undefined", "mbcs", "utf-7",
                                   "<", "|", "=",
                                   "torch.strided", "a.b", "__class__", "__dict__", "__setstate__", "__reduce_ex__",
                                   "__del__"]))  # fmt: skip
    if choice < 9:
        return random.choice(
            [b"N", b"\x88", b"\x89", b")", b"]", b"}", constant(1.5), b"C\x01b", b"C\x08aaaaaaaa", b"C\x00"]
        )
    if choice == 9:
        return nested(random)
    if choice == 10:
        return name_of(random.choice(NAMES))
    if choice == 11:
        return tensor(storage())
    if not depth:
        return b"N"
    parts = [odd_value(random, depth - 1) for _ in range(random.choice([0, 1, 1, 2, 3, 5]))]
    if choice == 12:
        return b"](" + b"".join(parts) + b"e"
    if choice == 13:
        return b"}(" + b"".join(key + odd_value(random, 0) for key in parts) + b"u"
    if choice == 14:
        return tuple_of(*parts)
    return odd_call(random, depth - 1)


NAMES = [
    *ALLOWED, "builtins.bytes", "builtins.slice", "builtins.range", "builtins.tuple", "builtins.object",
    "torch.nn.parameter.Buffer", "torch.qint8", "torch.per_channel_affine", "torch.cuda.HalfStorage",
    "torch.UntypedStorage", "torch._utils._rebuild_sparse_csr_tensor", "torch._utils._rebuild_nested_tensor",
    "torch._utils._rebuild_device_tensor_from_numpy", "torch._utils._rebuild_xla_tensor",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor", "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar", "numpy._core.numeric._frombuffer", "torch.storage._load_from_bytes",
    "copyreg._reconstructor", "pytorch_lightning.utilities.parsing.AttributeDict", "collections.deque",
    "argparse.Namespace", "types.SimpleNamespace", "pathlib.PosixPath", "torch.torch_version.TorchVersion",
    "builtins.float", "builtins.str", "builtins.bool", "joblib.numpy_pickle.NumpyArrayWrapper",
]  # fmt: skip


def odd_call(random: Random, depth: int = 2) -> bytes:
    arguments = [odd_value(random, depth) for _ in range(random.choice([0, 1, 1, 2, 2, 3, 3, 4, 6, 7]))]
    name = name_of(random.choice(NAMES))
    return random.choice([
        lambda: name + tuple_of(*arguments) + b"R", lambda: name + tuple_of(*arguments) + b"R",
        lambda: name + tuple_of(*arguments) + b"\x81", lambda: name + tuple_of(*arguments) + b"}\x92",
        lambda: b"(" + name + b"".join(arguments) + b"o", lambda: name + odd_value(random, depth) + b"R",
        lambda: name + odd_value(random, depth) + b"b",
        lambda: name + tuple_of(*arguments) + b"R" + odd_value(random,
            depth) + random.choice([b"b", b"a", b"Ns", b"0Nb"]),
    ])()  # fmt: skip


def dtype_state(random: Random) -> bytes:
    """numpy.dtype with a state of its own: what an array's bytes mean is in there."""
    base = random.choice(["V8", "V16", "f4", "f8", "O", "i8", "U2", "M8", "O8", "S8", "V0"])
    dtype = call("numpy.dtype", text(base), *random.choice([(), (b"\x89", b"\x88"), (b"\x88", b"\x89")]))
    inner = random.choice(
        [
            b"N",
            b"N",
            call("numpy.dtype", text("O")),
            tuple_of(call("numpy.dtype", text(random.choice(["O", "f4"]))), constant((2,))),
        ]
    )
    names = random.choice([b"N", b"N", constant(("a",)), constant(("a", "b")), constant(["a"])])
    fields = random.choice([
        b"N", b"N", b"}",
        b"}" + text("a") + tuple_of(call("numpy.dtype", text(random.choice(["O", "f4", "V8"]))),
            integer(random.choice([0, 4, 8, 99]))) + b"s",
    ])  # fmt: skip
    flags = integer(random.choice([0, 0, 1, 8, 16, 27, 63, 64, 128, 255]))
    state = [
        integer(random.choice([0, 1, 2, 3, 3, 3, 4, 5])), text(random.choice(["<", "|", ">", "="])), inner, names,
        fields,
        integer(random.choice([-1, 0, 1, 4, 8, 8, 16, 2**31])), integer(random.choice([-1, 0, 1, 8])), flags,
    ][: random.choice([8, 8, 8, 8, 7, 6, 5, 3])]  # fmt: skip
    if random.random() < 0.1:
        state.append(odd_value(random))
    return dtype + tuple_of(*state) + b"b"


def array_state(random: Random) -> bytes:
    core = random.choice(["numpy._core.multiarray", "numpy.core.multiarray"])
    dtype = (
        dtype_state(random)
        if random.random() < 0.7
        else call("numpy.dtype", text(random.choice(["O", "f4", "i8"])), b"\x89", b"\x88")
    )
    count = random.choice([0, 1, 1, 2, 3])
    if random.random() < 0.3:
        data = random.choice([bytes(8), b"aaaaaaaa", b"\x10" * 16, bytes(24), b"a"])
        made = call(f"{core}.scalar", dtype, b"C" + bytes([len(data)]) + data)
        return made if random.random() < 0.7 else call(f"{core}.scalar", dtype, odd_value(random))
    raw = random.choice([bytes(8 * count), b"a" * 8 * count, b"\x41" * (4 * count), b"", b"\x10\0\0\0\0\0\0\0" * count])
    content = random.choice(
        [
            b"C" + bytes([len(raw)]) + raw,
            b"C" + bytes([len(raw)]) + raw,
            constant([None] * count),
            constant(["a"] * count),
            odd_value(random),
        ]
    )
    if random.random() < 0.2:
        return call(
            f"{core.replace('multiarray', 'numeric')}._frombuffer", content, dtype, constant((count,)), text("C")
        )
    made = call(
        f"{core}._reconstruct", name_of(random.choice(["numpy.ndarray"] * 6 + NAMES)), constant((0,)), b"C\x01b"
    )
    state = [
        integer(random.choice([1, 1, 1, 0, 2])),
        constant(random.choice([(count,), (), (2, 2), (-1,), (2**40,)])),
        dtype,
        b"\x89",
        content,
    ]
    return made + tuple_of(*state[: random.choice([5, 5, 5, 5, 4])]) + b"b"


def state_program(random: Random) -> bytes:
    made = random.choice(
        [dtype_state, array_state, array_state, odd_call, odd_call, odd_call, with_method, with_method]
    )(random)
    return b"\x80" + bytes([random.choice([2, 3, 4])]) + b"}" + text("a") + made + b"s."


# Programs of any opcodes, most of which the machine runs to the end


class Soup:
    """A random program: keeps track of the kinds of values on the stack, and mostly picks opcodes that fit them."""

    PUSHES = [(code, "i") for code in INTEGERS] + [(code, "s") for code in STRINGS] + [
        (b"N", "n"), (b"\x88", "n"), (b"\x89", "n"), (b"]", "l"), (b"}", "d"), (b")", "t"), (b"\x8f", "e"),
        (b"](NNe", "l"),
    ]  # fmt: skip

    def __init__(self, random: Random, hostile: bool):
        self.random, self.hostile = random, hostile
        self.code = b""
        self.stack: list[str] = []  # of kinds; "(" is a mark
        self.memo: dict[int, str] = {}

    def put(self, code: bytes, takes: int = 0, gives: str = ""):
        self.code += code
        if takes:
            del self.stack[-takes:]
        self.stack += gives

    def above_mark(self) -> int:
        return len(self.stack) - 1 - max((index for index, kind in enumerate(self.stack) if kind == "("), default=-1)

    def step(self):
        random, free = self.random, self.above_mark()
        choice = random.random()
        if choice < 0.3 or not self.stack:
            return self.push()
        if choice < 0.4:
            return self.put(b"(", 0, "(")
        if choice < 0.55 and "(" in self.stack:
            return self.close(free)
        if choice < 0.65 and free:
            return self.keep()
        if choice < 0.72 and self.memo:
            key = random.choice(list(self.memo))
            return self.put(random.choice([b"g%d\n" % key, b"j" + struct.pack("<I", key)]), 0, self.memo[key])
        if choice < 0.85 and free:
            return self.change(free)
        if choice < 0.93 and free:
            return self.put(*random.choice([(b"0", 1, ""), (b"2", 0, self.stack[-1]), (b"\x85", 1, "t")]))
        self.put(random.choice([*PROTOCOLS, *FRAMES[:4], b""]))

    def push(self):
        random = self.random
        choice = random.random()
        if choice < 0.7:
            code, kind = random.choice(self.PUSHES)
            return self.put(code, 0, kind)
        if choice < 0.97 or not self.hostile:
            return self.put(random.choice(HARMLESS), 0, "o")
        self.put(touch(random), 0, "o")

    def close(self, free: int):
        random = self.random
        endings = [(b"t", "t"), (b"l", "l"), (b"1", ""), (b"\x91", "e")]
        if free % 2 == 0:
            endings.append((b"d", "d"))
        code, kind = random.choice(endings)
        below = self.stack[-free - 2] if len(self.stack) > free + 1 else ""
        if below == "l" and random.random() < 0.7:
            code, kind = b"e", ""
        elif below == "d" and free % 2 == 0 and random.random() < 0.7:
            code, kind = b"u", ""
        elif below == "e" and random.random() < 0.7:
            code, kind = b"\x90", ""
        self.put(code, free + 1, kind)

    def keep(self):
        random, kind = self.random, self.stack[-1]
        key = random.choice([0, 1, 2, 3, 5, 8, 255, 256, 70000, len(self.memo)])
        if random.random() < 0.4:
            self.memo[len(self.memo)] = kind
            return self.put(b"\x94")
        self.memo[key] = kind
        self.put(
            random.choice(
                [b"p%d\n" % key, b"r" + struct.pack("<I", key), *([b"q" + bytes([key])] if key < 256 else [])]
            )
        )

    def change(self, free: int):
        random = self.random
        if free > 2 and self.stack[-3] == "d":
            return self.put(b"s", 2, "")
        if free > 1 and self.stack[-2] == "l":
            return self.put(b"a", 1, "")
        if free > 1 and random.random() < 0.5:
            return self.put(b"\x86", 2, "t")
        if random.random() < 0.3:
            code, takes = random.choice(
                [(b"R", 2), (b"b", 1), (b"\x81", 2), (b"Q", 1), (b"o", 1), (b"s", 2), (b"a", 1), (b"\x93", 2)]
            )
            return self.put(code, min(takes, free), "")

    def program(self) -> bytes:
        for _ in range(self.random.choice([3, 6, 10, 20, 40])):
            self.step()
        if self.hostile and self.random.random() < 0.6:
            self.put(touch(self.random))
        return self.random.choice([b"", b"\x80\x02", b"\x80\x04", b"\x80\x05"]) + self.code + b"."
