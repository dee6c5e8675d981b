"""Pickles made by a grammar of opcodes, tricks and mutations: what the machine of tconv must follow.

A program names made-up modules ("mod12.name3"), so that whoever runs it can tell which names it
reached. Nothing here ever loads one.
"""

import pickle as op
import random
import struct

INTEGERS = (
    b"1 0 00 01 -1 +1 -0 007 010 08 0x10 0X1f 0b11 0o17 1_0 1__0 _1 1_ 0x_1 0x 12L L 1l "
    b"99999999999999999999 -99999999999999999999 0x1ffffffffffffffffff 1e3 nan"
).split() + [b" 1", b"1 ", b"\t1", b"1\r", b"\v+1\f", b"", b" ", b"1\0x", b"\0x", b"- 1", b"1 1"]
FLOATS = (
    b"1 1.5 -2e3 inf -Infinity nan NaN 1_0 1_0.5 _1 1e 0x1p3 1e999 .5 5. . +.5 infx nan(1) 1,5"
).split() + [b" 1", b"1 ", b"", b"1\0x", b"1.5\r"]
KEYS = (
    b"0 1 2 3 +1 1_0 01 007 0x1 -1 -0 18446744073709551615 99999999999999999999 1L"
).split() + [b" 1", b"1 ", b"1\r", b"", b"1\0"]
STRINGS = [
    b"'a'", b'"a"', b"'a\"", b"'it\\'s'", b"'\\x41'", b"'\\x4'", b"'\\101'", b"'\\777'", b"'\\q'",
    b"'\\'", b"''", b"'", b"", b"'a' ", b"'\xe9'", b"'\\xff'", b"a", b"'\\N'", b"'a\r'",
]
UNICODES = [
    b"a", b"\xe9", b"\\u0041", b"\\\\u0041", b"\\u12", b"\\U0001F600", b"\\U00110000", b"\\ud800",
    b"\\x41", b"\\", b"", b"a\\", b"\\\\\\u0041",
]
SAFE_NAMES = [  # those of which both sides make data
    b"collections\nOrderedDict\n", b"__builtin__\nset\n", b"builtins\nlist\n",
    b"builtins\nfrozenset\n", b"collections\ndeque\n",
]

# Names of which tconv makes data, and values that they are called with.
DATA_NAMES = [
    b"collections\nOrderedDict\n", b"collections\nCounter\n", b"collections\ndefaultdict\n",
    b"collections\ndeque\n", b"builtins\nset\n", b"builtins\nfrozenset\n", b"builtins\nlist\n",
    b"builtins\ndict\n", b"builtins\nbytearray\n", b"builtins\nbytes\n", b"_codecs\nencode\n",
    b"pathlib\nPosixPath\n", b"argparse\nNamespace\n", b"copyreg\n_reconstructor\n",
    b"__builtin__\nset\n", b"types\nSimpleNamespace\n",
]  # fmt: skip
VALUES = [
    op.NONE, op.NEWTRUE, op.NEWFALSE, op.BININT1 + b"\0", op.BININT1 + b"\1", op.BININT1 + b"\2",
    op.BININT + b"\xff\xff\xff\xff", op.BINFLOAT + b"\x3f\xf0" + bytes(6),
    op.BINFLOAT + b"\x7f\xf8" + bytes(6), op.BINFLOAT + b"\x80" + bytes(7),
    op.LONG1 + b"\x09" + bytes(8) + b"\1", op.SHORT_BINUNICODE + b"\1a",
    op.SHORT_BINUNICODE + b"\2/b", op.SHORT_BINUNICODE + b"\5c//./", op.SHORT_BINUNICODE + b"\0",
    op.SHORT_BINUNICODE + b"\6latin1", op.SHORT_BINUNICODE + b"\2\xc3\xa9",
    op.SHORT_BINUNICODE + b"\3\xed\xa0\x80", op.SHORT_BINUNICODE + b"\6\\ud800",
    op.SHORT_BINSTRING + b"\1a",
    op.SHORT_BINBYTES + b"\2ab", op.EMPTY_LIST, op.EMPTY_DICT, op.EMPTY_TUPLE, op.EMPTY_SET,
    op.EMPTY_LIST + op.MARK + op.NONE + op.BININT1 + b"\1" + op.APPENDS,
    op.EMPTY_DICT + op.NEWTRUE + op.NONE + op.SETITEM, op.NONE + op.NEWTRUE + op.TUPLE2,
    op.NONE + op.NEWTRUE + op.TUPLE2 + op.TUPLE1, op.EMPTY_LIST + op.TUPLE1,
    op.MARK + op.BININT1 + b"\1" + op.FROZENSET, op.GLOBAL + b"builtins\nobject\n",
    op.GLOBAL + b"builtins\ndict\n", op.GLOBAL + b"builtins\nlist\n",
    op.GLOBAL + b"argparse\nNamespace\n",
]  # fmt: skip


def number(layout, value):
    return struct.pack(layout, value)


class Program:
    """One pickle on its way, with a guess of what is on the stack."""

    def __init__(self, rng, index):
        self.rng, self.index, self.names = rng, index, 0
        self.out = bytearray()

    def fresh(self):
        self.names += 1
        return f"mod{self.index}".encode(), f"name{self.names}".encode()

    def text(self, data):
        opcode, layout = self.rng.choice(
            ((op.SHORT_BINUNICODE, "<B"), (op.BINUNICODE, "<I"), (op.BINUNICODE8, "<Q"))
        )
        return opcode + number(layout, len(data)) + data

    def old_text(self, data):
        way = self.rng.randrange(4)
        if way == 0:
            return op.SHORT_BINSTRING + bytes([len(data)]) + data
        if way == 1:
            return op.BINSTRING + number("<I", len(data)) + data
        return op.STRING + b"'" + data + b"'\n" if way == 2 else op.UNICODE + data + b"\n"

    def name(self):
        module, attribute = self.fresh()
        way = self.rng.randrange(8)
        if way < 4:
            return op.GLOBAL + module + b"\n" + attribute + b"\n"
        if way < 6:
            return self.text(module) + self.text(attribute) + op.STACK_GLOBAL
        if way == 6:
            return self.old_text(module) + self.text(attribute) + op.STACK_GLOBAL
        return op.MARK + op.INST + module + b"\n" + attribute + b"\n"

    def known(self):
        return op.GLOBAL + self.rng.choice(SAFE_NAMES)

    def scalar(self):
        pick = self.rng.choice
        return pick(
            (
                lambda: op.NONE,
                lambda: op.NEWTRUE,
                lambda: op.BININT1 + bytes([self.rng.randrange(256)]),
                lambda: op.BININT + number("<i", self.rng.randrange(-9, 9)),
                lambda: op.INT + pick(INTEGERS) + b"\n",
                lambda: op.LONG + pick(INTEGERS) + pick((b"L", b"")) + b"\n",
                lambda: op.FLOAT + pick(FLOATS) + b"\n",
                lambda: op.BINFLOAT + bytes(8),
                lambda: op.LONG1 + b"\x09" + bytes(9),
                lambda: op.LONG4 + number("<i", 2000) + bytes(2000),
                lambda: op.STRING + pick(STRINGS) + b"\n",
                lambda: op.UNICODE + pick(UNICODES) + b"\n",
                lambda: self.text(pick((b"a", b"\xed\xa0\x80", b"\xff", "é".encode()))),
                lambda: op.SHORT_BINBYTES + b"\x02ab",
                lambda: op.BYTEARRAY8 + number("<Q", 2) + b"ab",
                lambda: op.EMPTY_LIST,
                lambda: op.EMPTY_TUPLE,
                lambda: op.EMPTY_DICT,
                lambda: op.EMPTY_SET,
            )
        )()

    def memo(self):
        pick = self.rng.choice
        key = self.rng.randrange(6)
        return pick(
            (
                op.BINPUT + bytes([key]),
                op.LONG_BINPUT + number("<I", key),
                op.PUT + pick(KEYS) + b"\n",
                op.PUT + str(key).encode() + b"\n",
                op.MEMOIZE,
                op.MEMOIZE,
                op.BINGET + bytes([key]),
                op.LONG_BINGET + number("<I", key),
                op.GET + pick(KEYS) + b"\n",
                op.GET + str(key).encode() + b"\n",
            )
        )

    def call(self):
        function = self.rng.choice((self.name, self.name, self.known))()
        way = self.rng.randrange(9)
        if way < 4:
            arguments = self.rng.choice(
                (op.EMPTY_TUPLE, self.scalar() + op.TUPLE1, op.EMPTY_LIST, op.EMPTY_LIST + op.TUPLE1)
            )
            return function + arguments + op.REDUCE
        if way < 6:
            return function + op.EMPTY_TUPLE + op.NEWOBJ
        if way == 6:
            return function + op.EMPTY_TUPLE + op.EMPTY_DICT + op.NEWOBJ_EX
        return op.MARK + function + self.scalar() + op.OBJ

    def container(self):
        item = self.scalar
        return self.rng.choice(
            (
                lambda: op.EMPTY_LIST + item() + op.APPEND,
                lambda: op.EMPTY_LIST + op.MARK + item() + item() + op.APPENDS,
                lambda: op.EMPTY_DICT + self.text(b"k") + item() + op.SETITEM,
                lambda: op.EMPTY_DICT + op.MARK + self.text(b"k") + item() + op.SETITEMS,
                lambda: op.EMPTY_SET + op.MARK + op.NONE + op.ADDITEMS,
                lambda: op.MARK + item() + item() + op.TUPLE,
                lambda: op.MARK + item() + op.LIST,
                lambda: op.MARK + self.text(b"k") + item() + op.DICT,
                lambda: op.MARK + op.NONE + op.FROZENSET,
                lambda: item() + item() + op.TUPLE2,
                lambda: op.MARK + op.MARK + item() + op.POP_MARK + op.POP,
                lambda: item() + op.DUP + op.POP,
                lambda: op.EMPTY_LIST + op.NONE + op.APPEND + op.BININT1 + b"\0" + op.NONE
                + op.SETITEM,
                lambda: op.BYTEARRAY8 + number("<Q", 1) + b"a" + op.BININT1 + b"\x05" + op.APPEND,
                lambda: op.NONE + op.MARK + self.rng.choice((op.APPENDS, op.SETITEMS, op.ADDITEMS)),
            )
        )()

    def onto_object(self):
        use = self.rng.choice(
            (
                op.EMPTY_DICT + op.BUILD,
                op.NONE + op.EMPTY_DICT + op.TUPLE2 + op.BUILD,
                op.NONE + op.APPEND,
                op.MARK + op.NONE + op.APPENDS,
                op.NONE + op.NONE + op.SETITEM,
                op.MARK + op.NONE + op.ADDITEMS,
                op.BINPERSID,
            )
        )
        return self.rng.choice((self.call, self.name, self.known))() + use

    def framing(self):
        inner = self.piece()
        size = len(inner) + self.rng.choice((0, 0, 0, -1, -2, -5, 1, 3, 50, 1 << 40))
        return op.FRAME + number("<Q", max(size, 0)) + inner

    def oddity(self):
        return self.rng.choice(
            (
                op.PROTO + bytes([self.rng.choice((0, 1, 2, 3, 4, 5, 6, 99))]),
                op.PERSID + b"id\n",
                op.NONE + op.BINPERSID,
                op.EXT1 + b"\1",
                op.NEXT_BUFFER,
                op.NONE + op.READONLY_BUFFER,
                op.MARK,
                op.POP,
                op.DUP,
                op.POP_MARK,
            )
        )

    def data(self):
        """A name of which tconv makes data, with arguments that may fit it."""
        values = b"".join(self.rng.choices(VALUES, k=self.rng.choice((0, 1, 1, 1, 2, 2, 3))))
        call = self.rng.choice((op.REDUCE, op.REDUCE, op.REDUCE, op.NEWOBJ))
        return op.GLOBAL + self.rng.choice(DATA_NAMES) + op.MARK + values + op.TUPLE + call

    def value(self):
        return self.rng.choice(VALUES)

    def filled(self):
        """A container of several values, of which some may be equal."""
        opening, closing = self.rng.choice(
            (
                (op.MARK, op.TUPLE), (op.MARK, op.LIST), (op.MARK, op.DICT), (op.MARK, op.FROZENSET),
                (op.EMPTY_LIST + op.MARK, op.APPENDS), (op.EMPTY_SET + op.MARK, op.ADDITEMS),
                (op.EMPTY_DICT + op.MARK, op.SETITEMS), (op.EMPTY_DICT + op.MARK, op.SETITEMS),
            )
        )  # fmt: skip
        count = self.rng.choice((0, 1, 2, 2, 4, 4, 6))
        return opening + b"".join(self.value() for _ in range(count)) + closing

    def opcode(self):
        return self.rng.choice(
            (
                op.MARK, op.POP, op.DUP, op.POP_MARK, op.TUPLE1, op.TUPLE2, op.TUPLE3, op.APPEND,
                op.APPENDS, op.SETITEM, op.SETITEMS, op.ADDITEMS, op.TUPLE, op.LIST, op.DICT,
                op.MEMOIZE, op.BINPUT + b"\0", op.BINGET + b"\0", op.BUILD, op.REDUCE, op.NEWOBJ,
            )
        )  # fmt: skip

    def piece(self):
        makers = (
            self.scalar, self.scalar, self.memo, self.memo, self.name, self.call, self.container,
            self.container, self.onto_object, self.framing, self.oddity,
        )  # fmt: skip
        return self.rng.choice(makers)()

    def make(self):
        start = self.rng.choice((b"", op.PROTO + b"\2", op.PROTO + b"\4", op.PROTO + b"\5"))
        body = b"".join(self.piece() for _ in range(self.rng.randrange(1, 9)))
        end = self.rng.choice((op.STOP, op.STOP, op.STOP, b"", b"\n" + op.STOP))
        return start + body + self.name() + end


def mutate(rng, data):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        way = rng.randrange(4)
        if way == 0 and data:
            data[at] = rng.randrange(256)
        elif way == 1 and data:
            del data[at]
        elif way == 2:
            data.insert(at, rng.choice(b"(.0aeuRb\x81\x93\x94hq\n]}"))
        elif data:
            other = rng.randrange(len(data))
            low, high = min(at, other), max(at, other)
            data[low:low] = data[low:high][:40]
    return bytes(data)


def programs(seed, count):
    """`count` pickles, the same for the same seed."""
    rng = random.Random(seed)
    for index in range(count):
        made = Program(rng, index).make()
        yield mutate(rng, made) if index % 3 == 2 else made


def pieces(rng, count, strange):
    """So many pieces, which make a program in whatever order; not `strange`: most keep to names and
    values that tconv accepts."""
    made = []
    for index in range(count):
        program = Program(rng, index)
        plain = (program.data, program.value, program.value, program.filled, program.memo)
        odd = program.piece if strange or index % 16 == 0 else program.value
        made.append(rng.choice((*plain, odd, program.opcode if index % 2 else odd))())
    return made
