"""Attacks on distributed checkpoints of torch (J01 to J08)."""

import os
import pickle as op
import struct

from attacks import Input, row, scene
from checkpoint_files import (
    MODULE,
    VALUE_ENTRY,
    chunk,
    dcp,
    index,
    info,
    item,
    numbers,
    pairs,
    size,
    table,
    tensor_entry,
    value_item,
)
from files import Tensor, f32, zstd, zstd_zeros
from harness import INVALID, OK, SANITIZED, UNSAFE, UNSUPPORTED, check_equal, expect
from pickles import call, code, integer, name, pickled, pt, storage, tensor

TABLE = ".metadata"
FILE = "__0_0.distcp"
EVIL = call("posix", "system", "true")
FOUR = Tensor("F32", [4], numbers(4))
GOOD = item([4], FOUR.data)


def case(label, entries, stored, items=(GOOD,), outcome=None, **more):
    return Input(label, lambda folder: dcp(folder, entries, stored, items), outcome, **more)


def one(label, outcome=None, where=0, entry=None, items=(GOOD,), **more):
    """A checkpoint of one tensor of four numbers."""
    entry = tensor_entry([4], [([0], [4])]) if entry is None else entry
    return case(label, [("a", entry)], [(index("a", [0]), where)], items, outcome, **more)


def attack(row_id, outcome, **more):
    return row(row_id, outcome, TABLE, mention="", **more)


@attack("J01", UNSAFE)
def code_in_pickles():
    yield one("in the table", entry=EVIL, message="posix.system")
    both = [("a", tensor_entry([4], [([0], [4])])), ("v", VALUE_ENTRY)]
    stored = [(index("a", [0]), 0), (index("v"), 1)]
    yield case("in a value", both, stored, (GOOD, value_item(EVIL)), message=FILE)
    yield one("in a tensor's item", items=(value_item(EVIL),), message="at 0x")
    spare = [(index("a", [0]), 0), (index("b", [0]), 1)]
    good = {"a": FOUR}
    yield case("in an item that nothing uses", both[:1], spare, (GOOD, value_item(EVIL)), OK, tensors=good)
    yield case("in a value that is not selected", both, stored, (GOOD, value_item(EVIL)), OK, tensors=good,
               options=("--include", "^a$"))  # fmt: skip


@attack("J02", UNSAFE)
def paths():
    for path in ("../x", "/etc/passwd", "a/b", "", "a\0b", "..", "a\\b"):
        yield one(repr(path), where=info(path, 0, len(GOOD)))
    yield one("the table itself", INVALID, info(TABLE, 0, 10))
    yield Input("a FIFO", with_fifo)
    yield Input("a link", with_link, OK, tensors={"a": FOUR})


def with_fifo(folder):
    dcp(folder, [("a", tensor_entry([4], [([0], [4])]))], [(index("a", [0]), 0)], [GOOD])
    (folder / FILE).unlink()
    os.mkfifo(folder / FILE)


def with_link(folder):
    dcp(folder, [("a", tensor_entry([4], [([0], [4])]))], [(index("a", [0]), 0)], [GOOD])
    (folder / FILE).rename(folder / "elsewhere")
    (folder / FILE).symlink_to("elsewhere")


@attack("J03", INVALID)
def ranges():
    whole = len(GOOD)
    for place in ((-1, whole), (0, -whole), (1, whole), (0, whole + 1), (2**63, whole), (0, 2**63), (2**62, 2**62),
                  (2**63 - 1, 2**63 - 1), (whole, 0), (0, 0)):  # fmt: skip
        yield one(str(place), where=info(FILE, *place))
    entry = tensor_entry([8], [([0], [4]), ([4], [4])])
    both = [(index("a", [0]), 0), (index("a", [4]), 0)]
    twice = {"a": f32(0, 1, 2, 3, 0, 1, 2, 3)}
    yield case("one item twice", [("a", entry)], both, outcome=OK, tensors=twice)


@attack("J04", INVALID)
def boxes():
    cases = {
        "hole": [([0], [3])],
        "overlap": [([0], [4]), ([2], [2])],
        "overlap and hole": [([0], [2]), ([1], [2])],
        "outside": [([2], [4])],
        "far outside": [([2**62], [4])],
        "another rank": [([0, 0], [4, 1])],
        "offsets of another rank": [([0, 0], [4])],
        "none": [],
        "a negative size": [chunk([0], [4]), chunk([4], [-4])],
    }
    for label, chunks in cases.items():
        entry = tensor_entry([4], chunks)
        stored = [(index("a", [at]), 0) for at in (0, 1, 2, 4)]
        yield case(label, [("a", entry)], stored)
    yield one("2^40 by 2^40", entry=tensor_entry([2**40, 2**40], [([0, 0], [4, 1])]))
    yield one("2^40 by 2^40 by nothing", entry=tensor_entry([2**40, 2**40, 0], []))
    yield one("2^40 of which four are there", entry=tensor_entry([2**40], [([0], [4])]))
    yield one("a size that is negative", entry=tensor_entry([-4], [([0], [4])]))


def many(count, place):
    """The table of a tensor of so many pieces of one number each, all with one item; names and texts
    are memoised, as torch's pickler does it."""
    words = ["offsets", "sizes", "fqn", "offset", "index", "a"]
    kinds = [name(MODULE, "ChunkStorageMetadata"), name(MODULE, "MetadataIndex"), name("torch", "Size")]
    shared = [*map(code, words), *kinds, size(1), info(FILE, 0, len(ONE))]
    (offsets, sizes, fqn, offset, index_word, word, piece_class, index_class, size_class, one_size, where) = [
        op.BINGET + bytes([number]) for number in range(len(shared))
    ]
    memo = b"".join(each + op.BINPUT + bytes([i]) + op.POP for i, each in enumerate(shared))

    def size_at(at):
        return size_class + integer(at) + op.TUPLE1 + op.TUPLE1 + op.REDUCE

    new = op.EMPTY_TUPLE + op.NEWOBJ + op.EMPTY_DICT + op.MARK
    chunks = b"".join(
        piece_class + new + offsets + size_at(place(i)) + sizes + one_size + op.SETITEMS + op.BUILD
        for i in range(count)
    )
    stored = b"".join(
        index_class + new + fqn + word + offset + size_at(at) + index_word + op.NONE + op.SETITEMS + op.BUILD + where
        for at in sorted({place(i) for i in range(count)})
    )
    entry = tensor_entry([count], []).replace(
        op.EMPTY_LIST + op.MARK + op.APPENDS, op.EMPTY_LIST + op.MARK + chunks + op.APPENDS
    )
    whole = table([("a", entry)], [("x", "y")])
    whole = whole.replace(pairs([("x", "y")]), op.EMPTY_DICT + op.MARK + stored + op.SETITEMS)
    start = whole.index(op.NEWOBJ) + 1  # behind the name by which the table is recognised
    return whole[:start] + memo + whole[start:]


ONE = item([1], numbers(1, 5))


@scene("J05", "distinct", "all of one offset", "pairs")
def pieces(kind, folder):
    count = 2_000 if kind == "pairs" else 5_000 if SANITIZED else 1_000_000
    places = {
        "distinct": lambda i: i * 7919 % count,
        "all of one offset": lambda i: 0,
        "pairs": lambda i: i if i < count - 1 else count - 2,
    }
    (folder / TABLE).write_bytes(many(count, places[kind]))
    (folder / FILE).write_bytes(ONE)
    code = OK if kind == "distinct" else INVALID
    result = expect(folder, code, "list", TABLE, timeout=120, rss=2 << 30)
    if kind == "distinct":
        check_equal(result.out, b"a\n", "list", result)
    if not SANITIZED and result.cpu_seconds > 10:
        raise result.failed(f"expected: at most 10 s, got {result.cpu_seconds:.2f}")


@attack("J06", INVALID)
def items():
    yield one("a number", items=(value_item(5),))
    yield one("a list of tensors", items=(pt(pickled([tensor(storage("0", 4), 0, (4,), (1,))] * 2), {"0": FOUR.data}),))
    yield one("a dict of one tensor", items=(pt(pickled({"a": tensor(storage("0", 4), 0, (4,), (1,))}), {"0": FOUR.data}),))
    yield one("another dtype", items=(item([4], FOUR.data, "IntStorage"),))
    yield one("another shape", items=(item([2, 2], FOUR.data),))
    yield one("fewer numbers", items=(item([3], FOUR.data[:12]),))
    layout = call("torch.serialization", "_get_layout", "torch.sparse_coo")
    parts = (tensor(storage("0", 4, "LongStorage"), 0, (1, 4), (4, 1)), tensor(storage("1", 4), 0, (4,), (1,)),
             call("torch", "Size", (4,)))  # fmt: skip
    sparse = call("torch._utils", "_rebuild_sparse_tensor", layout, parts)
    yield one("a sparse tensor", items=(pt(pickled(sparse), {"0": struct.pack("<4q", 0, 1, 2, 3), "1": FOUR.data}),))
    yield one("a second archive behind the first", items=(GOOD + GOOD,))
    yield one("no archive", items=(b"\x80\x02K\x05.",))
    flipped = bytearray(GOOD)
    flipped[GOOD.index(FOUR.data)] ^= 1
    yield one("a wrong checksum", items=(bytes(flipped),), commands=("convert",))


@attack("J07", INVALID)
def transforms():
    def packed(label, content, names=("stream.zstd/1",), outcome=None, **more):
        return one(label, outcome, info(FILE, 0, len(content), list(names)), items=(content,), **more)

    frame = zstd(GOOD)
    yield packed("good", frame, outcome=OK, tensors={"a": FOUR})
    yield packed("a bomb", zstd_zeros(1 << 30), message="unpacks to more")
    yield packed("cut short", frame[:-5])
    yield packed("two frames", frame + frame)
    yield packed("no frame", GOOD)
    for names in (["stream.zstd/2"], ["stream.lzma/1"], ["stream.zstd/1"] * 2, ["stream.zstd/1"] * 1000):
        yield packed(f"{names[0]} {len(names)}", frame, names, UNSUPPORTED)
    yield packed("no name", frame, [5])


@attack("J08", INVALID)
def names():
    entry = tensor_entry([4], [([0], [4])])
    yield case("twice", [("a", entry), ("a", entry)], [(index("a", [0]), 0)])
    yield case("a value's and a tensor's", [("a", entry), ("a", VALUE_ENTRY)], [(index("a", [0]), 0)])
    yield case("two items of a piece", [("a", entry)], [(index("a", [0]), 0), (index("a", [0]), 0)])
    yield case("NUL", [("a\0b", entry)], [(index("a\0b", [0]), 0)])
    long = "a" * 1_000_000
    yield case("1 MB", [(long, entry)], [(index(long, [0]), 0)], outcome=UNSAFE)
    escape = "a\x1b[2J"
    yield case("ESC", [(escape, entry)], [(index(escape, [0]), 0)], outcome=OK, tensors={escape: FOUR})
    yield case("a number", [(5, entry)], [(index("a", [0]), 0)])
    yield case("a key that is no index", [("a", entry)], [("a", 0)])
    yield case("an index of another class", [("a", entry)], [(VALUE_ENTRY, 0)])
    yield case("no item", [("a", entry)], [(index("a", [1]), 0)])
    yield case("a value without an item", [("v", VALUE_ENTRY)], [])
    yield case("an entry of no known class", [("a", name("torch", "float32"))], [])
    yield Input("planner_data that says otherwise", with_planner, OK, tensors={"a": FOUR})
    yield Input("no Metadata", lambda folder: (folder / TABLE).write_bytes(pickled({"a": 1})),
                options=("-f", "dcp"))  # fmt: skip
    good = table([("a", entry)], [])
    yield Input("something behind it", lambda folder: (folder / TABLE).write_bytes(good + b"x"))


def with_planner(folder):
    entry = tensor_entry([4], [([0], [4])])
    dcp(folder, [("a", entry)], [(index("a", [0]), 0)], [GOOD], planner_data={"a": ("x", "y")})
