"""Pickles for two machines to disagree about: honest, mutated, from a grammar, hostile; the same every time."""
import pickletools
from dataclasses import dataclass, field
from random import Random

from hostile_pickles import HOSTILE, hostile
from pickle_code import DATA, call, constant, integer, model, name_of, pickle_of, storage, tensor, text, tuple_of

# Names that one machine or the other takes, for arguments of every kind.
ALLOWED = [
    "collections.OrderedDict", "collections.Counter", "collections.defaultdict", "builtins.set", "__builtin__.set",
    "builtins.frozenset", "builtins.list", "builtins.dict", "builtins.int", "__builtin__.long",
    "builtins.bytearray", "builtins.complex", "_codecs.encode", "torch.Size", "torch.device", "torch.Tensor",
    "torch.nn.parameter.Parameter", "torch.float32", "torch.per_tensor_affine", "torch.FloatStorage",
    "torch.FloatTensor", "torch.sparse.FloatTensor", "torch.storage.UntypedStorage", "torch.storage.TypedStorage",
    "torch.serialization._get_layout", "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state", "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_qtensor", "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._utils._rebuild_wrapper_subclass", "torch._tensor._rebuild_from_type_v2", "numpy.dtype", "numpy.ndarray",
    "numpy._core.multiarray._reconstruct", "numpy.core.multiarray.scalar",
]  # fmt: skip
EDGES = [
    0,
    1,
    2,
    3,
    5,
    6,
    7,
    -1,
    -2,
    127,
    128,
    255,
    256,
    2**31 - 1,
    -(2**31),
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    2**70,
]


@dataclass
class Program:
    kind: str
    pickle: bytes
    storages: dict[str, bytes] = field(default_factory=dict)
    members: dict[str, bytes] = field(default_factory=lambda: {"version": b"3\n", "byteorder": b"little"})
    archive: bytes = b""  # the whole of it, where that is not what the rest would make


# Mutations of real pickles


def split(pickle: bytes) -> list[bytes]:
    """The bytes of each opcode with its argument."""
    places = [place for _, _, place in pickletools.genops(pickle)]
    return [pickle[start:end] for start, end in zip(places, [*places[1:], len(pickle)])]


def other_argument(random: Random, op: bytes) -> bytes:
    """The same opcode with another argument, or another of its kind."""
    code = op[:1]
    if code in (b"K", b"M", b"J", b"\x8a"):
        return integer(random.choice(EDGES))
    if code in (b"X", b"\x8c"):
        return text(
            random.choice(
                [
                    "",
                    "storage",
                    "cpu",
                    "0",
                    "1",
                    "9",
                    "../0",
                    "cuda:0",
                    "meta",
                    "a.b",
                    "x" * 70,
                    "module",
                    "torch.sparse_coo",
                ]
            )
        )
    if code == b"c":
        return name_of(random.choice(ALLOWED + HOSTILE[:8]))
    if code in (b"h", b"q"):
        return code + bytes([random.randrange(min(256, op[1] + 8))])
    if code in (b"\x88", b"\x89", b"N"):
        return random.choice([b"\x88", b"\x89", b"N", b")", b"]", b"}", integer(1)])
    if code in (b"t", b"\x85", b"\x86", b"\x87"):
        return random.choice([b"t", b"\x85", b"\x86", b"\x87", b"l", b"e", b"u", b"d"])
    if code in (b"R", b"b", b"\x81", b"s", b"u", b"a", b"e", b"Q"):
        return random.choice(
            [b"R", b"b", b"\x81", b"s", b"u", b"a", b"e", b"Q", b"0", b"2", b"1", b"o", b"\x90", b"\x91", b"\x92"]
        )
    return op


def mutate(random: Random, pickle: bytes) -> tuple[str, bytes]:
    ops = split(pickle)
    at = random.randrange(1, len(ops))
    how = random.choice(
        ["argument"] * 6
        + ["delete", "double", "swap", "insert", "move", "cut", "flip", "tail", "proto", "splice", "two"]
    )
    if how == "argument":
        ops[at] = other_argument(random, ops[at])
    elif how == "delete":
        del ops[at]
    elif how == "double":
        ops.insert(at, ops[at])
    elif how == "swap":
        ops[at - 1], ops[at] = ops[at], ops[at - 1]
    elif how == "move":
        ops.insert(random.randrange(1, len(ops)), ops.pop(at))
    elif how == "insert":
        ops.insert(at, random_op(random))
    elif how == "cut":
        return how, pickle[: random.randrange(len(pickle))]
    elif how == "flip":
        place = random.randrange(len(pickle))
        return how, pickle[:place] + bytes([pickle[place] ^ 1 << random.randrange(8)]) + pickle[place + 1 :]
    elif how == "tail":
        return how, pickle + random.choice([b"\0", b".", pickle, b"cos\nsystem\n."])
    elif how == "proto":
        ops.insert(at, b"\x80" + bytes([random.choice([0, 1, 2, 3, 4, 5, 6, 255])]))
    elif how == "splice":
        length = random.randrange(1, 6)
        place = random.randrange(1, len(ops))
        ops[place:place] = ops[at : at + length]
    else:
        for _ in range(2):
            at = random.randrange(1, len(ops))
            ops[at] = other_argument(random, ops[at])
    return how, b"".join(ops)


def random_op(random: Random) -> bytes:
    """Any opcode at all, with an argument that can be read."""
    return random.choice([
        b"(", b"0", b"1", b"2", b"N", b"\x88", b"\x89", b"I01\n", b"I00\n", b"I5\n", b"L5L\n", b"F1.5\n", b"S'a'\n",
        b"Va\n", b"U\x01a", b"T\x01\0\0\0a", b"C\x01a", b"B\x01\0\0\0a", b"\x8c\x01a", b"\x8d\x01\0\0\0\0\0\0\0a",
        b"\x8e\x01\0\0\0\0\0\0\0a", b"\x96\x01\0\0\0\0\0\0\0a", b"\x97", b"\x98", b"\x8b\x01\0\0\0\x05", b"]", b"}",
        b")", b"\x8f", b"l", b"d", b"t", b"a", b"e", b"s", b"u", b"\x90", b"\x91", b"g0\n", b"p0\n", b"h\x00",
        b"q\x00", b"j\0\0\0\0", b"r\xff\xff\xff\x7f", b"\x94", b"R", b"b", b"\x81", b"\x92", b"o",
        b"icollections\nOrderedDict\n", b"P1\n", b"Q", b"\x93", b"\x82\x01", b"\x83\x01\0", b"\x84\x01\0\0\0",
        b"\x95\x05\0\0\0\0\0\0\0", b"\xff", b"\0", b".", integer(random.choice(EDGES)),
        name_of(random.choice(ALLOWED)), name_of(random.choice(HOSTILE)),
    ])  # fmt: skip


# Programs from a grammar: well-formed as opcodes, right or wrong as values


class Grammar:
    def __init__(self, random: Random):
        self.random = random
        self.memo = 0

    def scalar(self) -> bytes:
        choice = self.random.randrange(9)
        if choice < 3:
            return integer(self.random.choice(EDGES[:9]))
        if choice == 3:
            return integer(self.random.choice(EDGES))
        if choice < 6:
            return text(self.random.choice(["a", "b", "w", "", "cpu", "latin1", "重", "x.y", "\ud800"]))
        return self.random.choice(
            [b"N", b"\x88", b"\x89", constant(1.5), constant(float("nan")), b"U\x01a", b")", b"]", b"}"]
        )

    def value(self, depth: int = 3) -> bytes:
        choice = self.random.randrange(14) if depth else 0
        if choice < 3:
            return self.scalar()
        if choice < 7:
            return self.tensor(depth)
        if choice == 7:
            return b"](" + b"".join(self.value(depth - 1) for _ in range(self.random.randrange(4))) + b"e"
        if choice == 8:
            return tuple_of(*(self.value(depth - 1) for _ in range(self.random.randrange(4))))
        if choice in (9, 10):
            pairs = [(self.key(depth), self.value(depth - 1)) for _ in range(self.random.randrange(4))]
            start = self.random.choice([b"}", call("collections.OrderedDict"), call("collections.Counter")])
            return start + b"(" + b"".join(key + value for key, value in pairs) + b"u"
        if choice == 11:
            return self.call(depth)
        if choice == 12 and self.memo:
            return b"h" + bytes([self.random.randrange(self.memo)])
        self.memo += 1
        return self.value(depth - 1) + b"q" + bytes([(self.memo - 1) % 256])

    def key(self, depth: int) -> bytes:
        if self.random.random() < 0.85:
            return (
                text(self.random.choice("abcdefgh"))
                if self.random.random() < 0.8
                else integer(self.random.randrange(4))
            )
        return self.value(min(depth, 1))

    def storage(self) -> bytes:
        random = self.random
        if random.random() < 0.75:
            key = random.choice("012")
            kinds = {
                "0": ("torch.FloatStorage", 6),
                "1": ("torch.LongStorage", 4),
                "2": ("torch.storage.UntypedStorage", 8),
            }
            return storage(key, kinds[key][1], kinds[key][0], random.choice(["cpu"] * 6 + ["cuda:0", "meta", ""]))
        kinds = ["Float", "Long", "Byte", "Bool", "Half", "QInt8", "storage.Untyped", "storage.Typed"]
        key, numel = random.choice(["0", "1", "2", "3", "", "../0"]), random.choice(
            [6, 4, 8, 0, 1, 5, 7, -1, 2**40, 2**62]
        )
        kind, tag = random.choice(kinds), random.choice(["storage"] * 5 + ["module", ""])
        return storage(key, numel, f"torch.{kind}Storage", "cpu", tag)

    def sizes(self) -> list:
        rank = self.random.choice([0, 1, 1, 2, 2, 3, 5])
        return [self.random.choice([0, 1, 1, 2, 2, 3, 4, 6]) for _ in range(rank)]

    def tensor(self, depth: int) -> bytes:
        random = self.random
        size = self.sizes()
        stride = [1] * len(size)
        for index in reversed(range(len(size) - 1)):
            stride[index] = stride[index + 1] * max(size[index + 1], 1)
        if random.random() < 0.3:
            stride = [random.choice([0, 1, 2, 3, -1, 2**40, 2**62]) for _ in size]
        if random.random() < 0.1:
            size = [random.choice(EDGES) for _ in size]
        if random.random() < 0.05:
            stride = stride[:-1]
        offset = random.choice([0, 0, 0, 0, 0, 1, 2, 5, 6, 7, -1, 2**40, 2**62, 2**63])
        numbers = constant(offset), constant(tuple(size)), constant(tuple(stride))
        hooks = random.choice([call("collections.OrderedDict")] * 6 + [b"N", b"}", b"]", self.scalar()])
        rest = [random.choice([b"\x88", b"\x89", b"\x89", b"N"]), hooks]
        if random.random() < 0.15:
            rest.append(random.choice([constant({"conj": True}), constant({"neg": True}), b"}", b"N", self.scalar()]))
        choice = random.randrange(10)
        if choice < 5:
            made = call("torch._utils._rebuild_tensor_v2", self.storage(), *numbers, *rest)
        elif choice == 5:
            made = call("torch._utils._rebuild_tensor", self.storage(), *numbers)
        elif choice in (6, 7):
            dtype = random.choice(
                [
                    "uint16",
                    "float8_e4m3fn",
                    "complex32",
                    "float32",
                    "uint64",
                    "bfloat16",
                    "float4_e2m1fn_x2",
                    "int4",
                    "qint8",
                ]
            )
            made = call(
                "torch._utils._rebuild_tensor_v3",
                self.storage(),
                *numbers,
                *rest[:2],
                name_of(f"torch.{dtype}"),
                *rest[2:],
            )
        elif choice == 8:
            scheme = random.choice([
                tuple_of(name_of("torch.per_tensor_affine"), constant(0.5), integer(1)),
                tuple_of(name_of("torch.per_channel_affine"), self.value(1), self.value(1), integer(0)),
                self.scalar(),
            ])  # fmt: skip
            kind = random.choice(["torch.QInt8Storage", "torch.QUInt8Storage"])
            made = call("torch._utils._rebuild_qtensor", storage("2", 8, kind), *numbers, scheme, *rest[:2])
        else:
            layout = call(
                "torch.serialization._get_layout", text(f"torch.sparse_{random.choice(['coo', 'csr', 'bsc', 'foo'])}")
            )
            parts = [
                tensor(storage("1", 4, "torch.LongStorage"), 0, (2, 2), (2, 1)),
                tensor(storage(), 0, (2,), (1,)),
                constant((3, 3)),
            ]
            if random.random() < 0.4:
                parts[random.randrange(3)] = self.value(1)
            made = call(
                "torch._utils._rebuild_sparse_tensor",
                layout,
                tuple_of(*parts, *random.choice([(), (b"\x88",), (b"N",)])),
            )
        wrap = random.random()
        if wrap < 0.1:
            return call("torch._utils._rebuild_parameter", made, b"\x88", hooks)
        if wrap < 0.13:
            return call(
                "torch._utils._rebuild_parameter_with_state", made, b"\x88", hooks, random.choice([b"}", self.scalar()])
            )
        if wrap < 0.16:
            return name_of("torch.nn.parameter.Parameter") + tuple_of(made, b"\x89") + b"\x81"
        return made

    def call(self, depth: int) -> bytes:
        name = self.random.choice(ALLOWED)
        arguments = [self.value(depth - 1) for _ in range(self.random.choice([0, 1, 1, 1, 2, 2, 3]))]
        return name_of(name) + tuple_of(*arguments) + self.random.choice([b"R", b"R", b"R", b"\x81"])

    def program(self) -> bytes:
        random = self.random
        entries = b"".join(text(name) + self.value() for name in "abc"[: random.randrange(1, 4)])
        body = random.choice([b"}", b"}", call("collections.OrderedDict")]) + b"(" + entries + b"u"
        if random.random() < 0.15:  # then something is done to the result
            body += random.choice([
                text("k") + self.value(1) + b"s", self.value(1) + b"b", self.value(1) + b"a",
                b"(" + self.value(1) + b"e", b"}" + text("_metadata") + self.value(1) + b"sb", b"\x85",
                b"0" + self.value(), b"2", b"q\x00h\x00\x86",
            ])  # fmt: skip
        return pickle_of(body)


def programs(corpus, count: int = 1000) -> list[Program]:
    """corpus: (kind, pickle, storages) of files that torch wrote."""
    random = Random(20261116)
    found = [Program(f"honest: {kind}", pickle, storages) for kind, pickle, storages in corpus]
    for kind, body in hostile():
        pickle = pickle_of(body)
        if kind == "no STOP":
            pickle = pickle[:-1]
        elif kind in ("protocol 0", "unframed 4"):
            pickle = (b"" if kind == "protocol 0" else b"\x80\x04") + pickle[2:]
        found.append(Program(f"hostile: {kind}", pickle, dict(DATA)))
    for data in ({}, {"0": b""}, {"0": DATA["0"][:-1]}, {"0": DATA["0"] + b"x"}, {"0": DATA["0"] * 2}):
        found.append(
            Program(
                f"storages: {[len(part) for part in data.values()]} bytes", pickle_of(model(w=tensor(storage()))), data
            )
        )
    for order in (b"big", b"middle", b"", b"little\n", b"LITTLE"):
        found.append(
            Program(
                f"byteorder: {order}",
                pickle_of(model(w=tensor(storage()))),
                dict(DATA),
                {"version": b"3\n", "byteorder": order},
            )
        )
    for version in (b"1\n", b"2\n", b"10\n", b"11\n", b"999999\n", b"-1\n", b"", b"x\n"):
        found.append(
            Program(
                f"version: {version}",
                pickle_of(model(w=tensor(storage()))),
                dict(DATA),
                {"version": version, "byteorder": b"little"},
            )
        )
    small = [entry for entry in corpus if len(entry[1]) < 4000]
    for number in range(count):
        if number % 2:
            grammar = Grammar(random)
            found.append(Program(f"grammar: {number}", grammar.program(), dict(DATA)))
        else:
            kind, pickle, storages = random.choice(small)
            how, pickle = mutate(random, pickle)
            found.append(Program(f"mutated: {kind}, {how}, {number}", pickle, storages))
    return found
