"""Attacks on the trees of checkpoints (Y01 to Y03)."""

import json
import zipfile

import pickles
from attacks import Input, row, scene
from files import Tensor, f32, safetensors
from harness import INVALID, OK, STACKS, UNSAFE, UNSUPPORTED, check_equal, expect, text

FILE = "in.safetensors"
TARGET = "out.pt"
ONE = {"a": f32(1, 2)}
TWO = {"a": f32(1, 2), "b": f32(1, 2)}
INTEGERS = Tensor("I32", [2], bytes(8))


def tree(node):
    return '{"v":1,"root":%s}' % node


def written(tensors, tree_text):
    return safetensors(tensors, {"format": "pt", "tconv.tree": tree_text})


# What is no tree, whatever the tensors are.
MALFORMED = {
    "no JSON": "{",
    "nothing": "",
    "something behind it": tree('{"a":[]}') + "x",
    "version 2": '{"v":2,"root":{"a":[]}}',
    "version true": '{"v":true,"root":{"a":[]}}',
    "version 1.0": '{"v":1.0,"root":{"a":[]}}',
    "no version": '{"root":{"a":[]}}',
    "no root": '{"v":1}',
    "extra member": '{"v":1,"root":{"a":[]},"x":1}',
    "duplicate member": tree('{"a":[],"a":[]}'),
    "duplicate by escape": tree('{"a":[],"\\u0061":[]}'),
    "duplicate root": '{"v":1,"root":{"a":[]},"root":{"a":[]}}',
    "unknown tag": tree('{"a":["zz"]}'),
    "tag that is a number": tree('{"a":[1]}'),
    "option": tree('{"a":["t",null,{"w":1}]}'),
    "option twice": tree('{"a":["t",null,{"g":true,"g":true}]}'),
    "options no object": tree('{"a":["t",null,[]]}'),
    "four members": tree('{"a":["t",null,{},1]}'),
    "empty name": tree('{"a":["t",""]}'),
    "NaN": tree('{"a":[],"b":NaN}'),
    "1e999": tree('{"a":[],"b":1e999}'),
    "-0": tree('{"a":[],"b":-0}'),
    "a 20-digit integer": tree('{"a":[],"b":92233720368547758080}'),
    "2^63": tree('{"a":[],"b":9223372036854775808}'),
    "i that fits 64 bits": tree('{"a":[],"b":["i","5"]}'),
    "i of 10^6 digits": tree('{"a":[],"b":["i","%s"]}' % ("9" * 10**6)),
    "i of no digits": tree('{"a":[],"b":["i","%s"]}' % ("x" * 30)),
    "base64": tree('{"a":[],"b":["b","*"]}'),
    "base64 cut": tree('{"a":[],"b":["b","QQ"]}'),
    "base64 with a space": tree('{"a":[],"b":["b","QUFB "]}'),
    "text that is no UTF-8": tree('{"a":[],"b":["x","/w=="]}'),
    "odd map": tree('["d",1]'),
    "key twice": tree('["d","a",[],"a",1]'),
    "1 and 1.0": tree('["d",1,[],1.0,2]'),
    "1 and true": tree('["d",1,[],true,2]'),
    "equal tuples": tree('["d",["u",1,"x"],[],["u",1.0,"x"],2]'),
    "a list as a key": tree('["d",["l"],[]]'),
    "a tensor as a key": tree('["d",["t","a"],1]'),
    "[] as a key": tree('["d",[],1]'),
    "a tensor in a key's tuple": tree('["d",["u",[]],1]'),
    "a set of lists": tree('{"a":[],"b":["S",["l"]]}'),
    "a set with a member twice": tree('{"a":[],"b":["S",1,1]}'),
    "a Counter of floats": tree('{"a":[],"c":["C",{"x":1.5}]}'),
    "a negative Size": tree('{"a":[],"z":["z",-1]}'),
    "a Size of rank 65": tree('{"a":[],"z":["z"%s]}' % (",1" * 65)),
    "f of a word": tree('{"a":[],"f":["f","infinity"]}'),
    "nan that is none": tree('{"a":[],"f":["f","nan:3ff0000000000000"]}'),
    "c of integers": tree('{"a":[],"c":["c",1,2]}'),
    "O without a dict": tree('["O"]'),
    "O with three": tree('["O",{"a":[]},{},{}]'),
    "D without a class": tree('["D",{"a":[]}]'),
    "strides negative": tree('{"a":[],"b":["t",null,{"v":["a",1,[-1]]}]}'),
    "strides 2^62": tree('{"a":[],"b":["t",null,{"v":["a",0,[4611686018427387904]]}]}'),
    "offset negative": tree('{"a":[],"b":["t",null,{"v":["a",-1,[1]]}]}'),
    "view of a number": tree('{"a":[],"b":["t",null,{"v":[1,0,[1]]}]}'),
    "sparse of no layout": tree('{"a":["s",null,"dia",true]}'),
    "quantised of no scheme": tree('{"a":["q",null,"per_row",1.0,0,"qint8"]}'),
}


def sparse(layout, coalesced="true", **parts):
    """The parts of a sparse tensor, whose last part is its shape, and its tree."""
    tensors = {f"s.{role}": part for role, part in parts.items()}
    return tensors, tree('{"s":["s",null,"%s"%s]}' % (layout, f",{coalesced}" if layout == "coo" else ""))


def coordinates(*rows_and_columns, coalesced="true", shape=(2, 3)):
    indices = integers("I64", *rows_and_columns, shape=[2, len(rows_and_columns) // 2])
    values = f32(*range(len(rows_and_columns) // 2))
    return sparse("coo", coalesced, indices=indices, values=values, shape=integers("I64", *shape))


def compressed(starts, plain, layout="csr", dtype="I64"):
    first, second = ("crow", "col") if layout == "csr" else ("ccol", "row")
    parts = {f"{first}_indices": integers(dtype, *starts), f"{second}_indices": integers(dtype, *plain)}
    return sparse(layout, **parts, values=f32(*range(len(plain))), shape=SHAPE)


def many(count, last):
    """More entries than fit in one window, the last of them at `last`."""
    return coordinates(*range(count), *[1] * (count - 1), last, shape=(count, 3))


def integers(dtype, *values, shape=None):
    size = {"I32": 4, "I64": 8}[dtype]
    data = b"".join(value.to_bytes(size, "little", signed=True) for value in values)
    return Tensor(dtype, [len(values)] if shape is None else shape, data)


SHAPE = integers("I64", 2, 3)
PAIRS = integers("I64", 0, 1, 2, 0, shape=[2, 2])
STARTS = integers("I64", 0, 1, 2)
# What only the tensors show to be wrong.
STALE = {
    "not there": (ONE, tree('{"a":[],"b":[]}')),
    "left out": (TWO, tree('{"a":[]}')),
    "named twice": (ONE, tree('{"a":[],"b":["t","a"]}')),
    "view of itself": (ONE, tree('{"a":["t",null,{"v":["a",0,[1]]}]}')),
    "in a ring": (TWO, tree('{"a":["t",null,{"v":["b",0,[1]]}],"b":["t",null,{"v":["a",0,[1]]}]}')),
    "past its base": (TWO, tree('{"a":[],"b":["t",null,{"v":["a",1,[1]]}]}')),
    "far past its base": (TWO, tree('{"a":[],"b":["t",null,{"v":["a",9223372036854775807,[1]]}]}')),
    "view of nothing": (TWO, tree('{"a":[],"b":["t",null,{"v":["c",0,[1]]}]}')),
    "view of an array": (TWO, tree('{"a":["n"],"b":["t",null,{"v":["a",0,[1]]}]}')),
    "view of another rank": (TWO, tree('{"a":[],"b":["t",null,{"v":["a",0,[1,1]]}]}')),
    "view of another dtype": ({"a": f32(1, 2), "b": INTEGERS}, tree('{"a":[],"b":["t",null,{"v":["a",0,[1]]}]}')),
    "gradient of integers": ({"a": INTEGERS}, tree('{"a":["t",null,{"g":true}]}')),
    "parameter of integers": ({"a": INTEGERS}, tree('{"a":["p"]}')),
    "scalar of rank 1": (ONE, tree('{"a":["N"]}')),
    "sparse that is none": (ONE, tree('{"a":["s",null,"coo",false]}')),
    "indices in I32": sparse("coo", indices=integers("I32", 0, 1, 2, 0, shape=[2, 2]), values=f32(1, 2), shape=SHAPE),
    "a shape in I32": sparse("coo", indices=PAIRS, values=f32(1, 2), shape=integers("I32", 2, 3)),
    "a shape of one more": sparse("coo", indices=PAIRS, values=f32(1, 2), shape=integers("I64", 2, 3, 4)),
    "a negative shape": sparse("coo", indices=PAIRS, values=f32(1, 2), shape=integers("I64", 2, -3)),
    "a value too few": sparse("coo", indices=PAIRS, values=f32(1), shape=SHAPE),
    "indices of rank 1": sparse("coo", indices=integers("I64", 0, 1, 2, 0), values=f32(1, 2), shape=SHAPE),
    "indices of two dtypes": sparse(
        "csr", crow_indices=STARTS, col_indices=integers("I32", 0, 2), values=f32(1, 2), shape=SHAPE
    ),
    "a row too many": sparse(
        "csr", crow_indices=integers("I64", 0, 1, 2, 2), col_indices=integers("I64", 0, 2), values=f32(1, 2), shape=SHAPE
    ),
    "blocks that are none": sparse(
        "bsr", crow_indices=STARTS, col_indices=integers("I64", 0, 2), values=f32(1, 2), shape=SHAPE
    ),
    "scales that are integers": (
        {"q": integers("I32", 1, 2), "q.scales": integers("I64", 1, 1), "q.zero_points": integers("I64", 0, 0)},
        tree('{"q":["q",null,"per_channel_affine",0,"qint32"]}'),
    ),
    "a row past the shape": coordinates(0, 2, 2, 0),
    "a column past the shape": coordinates(0, 1, 3, 0, coalesced="false"),
    "a negative row": coordinates(-1, 1, 2, 0, coalesced="false"),
    "a negative column": coordinates(0, 1, 2, -1, coalesced="false"),
    "the last of many past the shape": many(200_000, 3),
    "a place twice and coalesced": coordinates(1, 1, 2, 2),
    "rows that descend and coalesced": coordinates(1, 0, 0, 1),
    "columns that descend and coalesced": coordinates(1, 1, 2, 0),
    "starts that descend": compressed([0, 2, 1], [0]),
    "starts past the end": compressed([0, 3, 2], [0, 1]),
    "starts not from 0": compressed([1, 1, 2], [0, 1]),
    "starts from -1": compressed([-1, 1, 2], [0, 1]),
    "starts that end early": compressed([0, 1, 1], [0, 1]),
    "a compressed column past the shape": compressed([0, 1, 2], [0, 3]),
    "a compressed column below 0": compressed([0, 1, 2], [-1, 0], dtype="I32"),
    "columns that descend": compressed([0, 2, 2], [1, 0], dtype="I32"),
    "a column twice": compressed([0, 2, 2], [1, 1]),
    "rows past the shape in csc": compressed([0, 1, 1, 2], [0, 2], "csc"),
    "rows that descend in csc": compressed([0, 2, 2, 2], [1, 0], "csc"),
    "blocks past the shape": sparse(
        "bsr",
        crow_indices=integers("I64", 0, 1),
        col_indices=integers("I64", 3),
        values=Tensor("F32", [1, 2, 1], bytes(8)),
        shape=SHAPE,
    ),
    "the second batch descends": sparse(
        "csr",
        crow_indices=integers("I64", 0, 1, 2, 0, 2, 2, shape=[2, 3]),
        col_indices=integers("I64", 0, 1, 1, 0, shape=[2, 2]),
        values=Tensor("F32", [2, 2], bytes(16)),
        shape=integers("I64", 2, 2, 3),
    ),
    "quantised floats": (ONE, tree('{"a":["q",null,"per_tensor_affine",1.0,0,"qint8"]}')),
}


# Sparse tensors that torch loads, close to those that it doesn't.
SPARSE = {
    "coalesced": coordinates(0, 0, 1, 0, 2, 0),
    "a place twice": coordinates(1, 1, 2, 2, coalesced="false"),
    "rows that descend": coordinates(1, 0, 0, 1, coalesced="false"),
    "many": many(200_000, 2),
    "no entry": coordinates(),
    "an empty row": compressed([0, 0, 2], [0, 2]),
    "csr in I32": compressed([0, 2, 3], [0, 2, 1], dtype="I32"),
    "csc": compressed([0, 2, 2, 3], [0, 1, 1], "csc"),
    "batches": sparse(
        "csr",
        crow_indices=integers("I64", 0, 1, 2, 0, 2, 2, shape=[2, 3]),
        col_indices=integers("I64", 0, 1, 0, 1, shape=[2, 2]),
        values=Tensor("F32", [2, 2], bytes(16)),
        shape=integers("I64", 2, 2, 3),
    ),
    "no axes and no bytes": sparse(
        "coo",
        "false",
        indices=Tensor("I64", [0, 1 << 50], b""),
        values=Tensor("F32", [1 << 50, 0], b""),
        shape=integers("I64", 0),
    ),
}


@scene("Y01", *SPARSE)
def sparse_that_fits(label, folder):
    tensors, given = SPARSE[label]
    (folder / FILE).write_bytes(written(tensors, given))
    done = expect(folder, OK, "--strict", FILE, TARGET)
    check_equal(text(done.err), "", "nothing is reported", done)


@row("Y01", OK, FILE, commands=("convert",), target=TARGET)
def trees():
    for label, given in MALFORMED.items():
        tensors = TWO if '"b":["t"' in given else ONE
        content = written(tensors, given)
        yield Input(label, content, message="structure", tensors=tensors)
        yield Input(f"{label}, --strict", content, INVALID, options=("--strict",))
    for label, (tensors, given) in STALE.items():
        content = written(tensors, given)
        yield Input(label, content, message="structure", tensors=tensors)
        yield Input(f"{label}, --strict", content, UNSUPPORTED, options=("--strict",))


def nested(depth, inner="1"):
    return tree('["l",' * depth + inner + "]" * depth)


def lists_twice(levels):
    """[x, x], where x is [y, y], and so on: 2^levels paths."""
    program = b"\x80\x02]q\x00"
    for number in range(levels):
        program += b"0]h%ca" % number + b"h%caq%c" % (number, number + 1)
    return program + b"."


@row("Y02", UNSAFE, FILE, commands=("convert",), target=TARGET)
def limits():
    for label, given in {
        "depth 100,000": nested(100_000),
        "depth 1,100": nested(1_100),
        "dicts 100,000 deep": tree('{"a":' * 100_000 + "1" + "}" * 100_000),
        "brackets 100,000 deep": tree("[" * 100_000),
        "over 4 M values": tree('["l"%s]' % (",1" * 4_000_001)),
    }.items():
        for stack, prefix in STACKS.items():
            yield Input(f"{label}{stack}", written({}, given), prefix=prefix)
    yield Input("64 MiB of [],", written({}, tree("[%s[]]" % ("[]," * (22 << 20)))))
    yield Input("a DAG", pickles.pt(lists_twice(64)), file="in.pt", target="out.safetensors")


NAMES = {
    "dtype load": '["dt","load"]',
    "dtype with a path": '["dt","os.system"]',
    "device": '["dv","cuda:0\\nc__builtin__\\neval"]',
    "device of four digits": '["dv","cuda:1234"]',
    "device with a zero before its number": '["dv","cuda:01"]',
    "layout": '["ly","_make"]',
    "factory": '["D","eval",{}]',
    "attribute of a dict": '["O",{},{"__class__":1}]',
    "attribute __init__": '["O",{},{"__init__":1}]',
    "attribute with a dot": '["O",{},{"a.b":1}]',
}


@scene("Y03", *NAMES)
def names(label, folder):
    """Refused: the output is flat, and names nothing but torch's own."""
    given = tree('{"a":[],"b":%s}' % NAMES[label])
    (folder / FILE).write_bytes(written(ONE, given))
    done = expect(folder, OK, FILE, TARGET)
    check_equal("structure" in text(done.err), True, "it is reported", done)
    expect(folder, OK, "scan", TARGET)


@scene("Y03")
def texts_that_are_programs(folder):
    program = "cos\nsystem\n(Vtrue\ntR."
    root = {"a": [], program: program, "more": ["l", program, "\x80\x02c__builtin__\neval\n", "(S'x'\no."]}
    (folder / FILE).write_bytes(written(ONE, tree(json.dumps(root, ensure_ascii=False))))
    done = expect(folder, OK, FILE, TARGET)
    check_equal(text(done.err), "", "nothing is reported", done)
    expect(folder, OK, "scan", TARGET)


@scene("Y01")
def values_that_only_a_tree_holds(folder):
    """A key with a NUL can't be one of flat metadata: a value below it is lost without the tree, and told."""
    values = {"a\0b": 3, "c": {"\0": 1}}
    (folder / "in.pt").write_bytes(pickles.pt(pickles.pickled({"w": pickles.tensor(), "m": values})))
    for kept in ("out.pt", "out.safetensors"):
        done = expect(folder, OK, "--strict", "in.pt", kept)
        check_equal("skipped" in text(done.err), False, f"told, {kept}", done)
    expect(folder, OK, "--strict", "out.safetensors", "again.pt")
    pickled = [zipfile.ZipFile(folder / name).read("archive/data.pkl") for name in ("out.pt", "again.pt")]
    check_equal(pickled[1], pickled[0], "there and back")
    done = expect(folder, OK, "--tree=never", "in.pt", "flat.safetensors")
    check_equal(text(done.err).count('NUL character: "m.a\\x00b", "m.c.\\x00"\n'), 1, "each is told once", done)
    expect(folder, UNSUPPORTED, "--strict", "--tree=never", "in.pt", "strict.safetensors", mention="skipped")
