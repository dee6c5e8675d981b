"""Attacks on the trees of checkpoints (Y01 to Y03)."""

import json

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


def sparse(layout, **parts):
    """The parts of a sparse tensor, whose last part is its shape, and its tree."""
    tensors = {f"s.{role}": part for role, part in parts.items()}
    return tensors, tree('{"s":["s",null,"%s"%s]}' % (layout, ",true" if layout == "coo" else ""))


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
    "quantised floats": (ONE, tree('{"a":["q",null,"per_tensor_affine",1.0,0,"qint8"]}')),
}


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
