#!/usr/bin/env python3
"""Checkpoint trees: every kind of value and tensor, as the nested object in a `.pt` and back.

A tree in the metadata of a safetensors file is written as an object of torch's, which is read again
as a tree: text for text the same, with the same tensors. That torch reads it so, too, is what
scripts/interop trees compares.
"""

import functools
import json
import struct
import sys

import files
from files import Tensor, f32
from harness import OK, Suite, check_equal, expect


def integers(*values, shape=None):
    return Tensor("I64", [len(values)] if shape is None else shape, struct.pack(f"<{len(values)}q", *values))


def doubles(*values):
    return Tensor("F64", [len(values)], struct.pack(f"<{len(values)}d", *values))


def small(*values):
    return Tensor("I8", [len(values)], struct.pack(f"<{len(values)}b", *values))


A = {"a": f32(1, 2)}
SPARSE = {
    "s.indices": integers(0, 1, 2, 0, shape=[2, 2]),
    "s.values": f32(5, 6),
    "s.shape": integers(2, 3),
}
ROWS = {
    "s.crow_indices": integers(0, 1, 2),
    "s.col_indices": integers(2, 0),
    "s.values": f32(5, 6),
    "s.shape": integers(2, 3),
}
COLUMNS = {
    "s.ccol_indices": integers(0, 1, 1, 2),
    "s.row_indices": integers(1, 0),
    "s.values": f32(5, 6),
    "s.shape": integers(2, 3),
}
CHANNELS = {"q": Tensor("I8", [2, 2], bytes([1, 2, 3, 4])), "q.scales": doubles(0.5, 0.25), "q.zero_points": integers(0, 1)}
BASE = {"base": f32(*range(12), shape=[3, 4])}

# The tensors, and the tree's root.
TREES = {
    "plain values": (A, '{"a":[],"n":null,"t":true,"f":false,"i":12,"x":0.1,"z":-0.0,"e":1e+300,"s":"x","l":["l"],"d":{}}'),
    "integers of each size": (A, '{"a":[],"l":["l",0,-1,255,256,65535,65536,2147483647,-2147483649,9223372036854775807,-9223372036854775808]}'),
    "integers past 64 bits": (A, '{"a":[],"i":["i","9223372036854775808"],"j":["i","-9223372036854775809"],"k":["i","%s"]}' % 10**300),
    "floats": (A, '{"a":[],"l":["l",5e-324,1.7976931348623157e+308,["f","inf"],["f","-inf"],["f","nan"],["f","nan:7ff800000000beef"]]}'),
    "complex numbers": (A, '{"a":[],"c":["c",0.0,1.0],"d":["c",-0.0,["f","inf"]]}'),
    "texts": (A, '{"a":[],"l":["l","","\\u0000","\\"\\\\\\n","ü","[]","%s"],"h":["x","7aCA"]}' % ("x" * 70_000)),
    "bytes": (A, '{"a":[],"b":["b","QUI="],"c":["B","QUI="],"d":["b",""],"e":["B",""]}'),
    "torch's own values": (A, '{"a":[],"d":["dt","bfloat16"],"e":["dt","float8_e4m3fn"],"z":["z",2,0,3],"y":["z"],"x":["l",["dt","uint4"],["dt","int7"],["dt","bits1x8"],["dt","quint2x4"]],"v":["dv","cuda:1"],"w":["dv","meta"],"l":["ly","strided"]}'),
    "lists and tuples": ({"3.x": f32(1, 2)}, '["l",["u",["l"],["u"]],["u",1],["u",1,2,3,4],{"x":[]}]'),
    "sets": (A, '{"a":[],"e":["S"],"i":["S",1],"n":["S",null],"t":["S",["u",1,"x"]]}'),
    "keys of many kinds": (A, '{"a":[],"d":["d",1,2,null,3,2.5,4,["u",1,"x"],5,["b","aw=="],6,"s",7]}'),
    "keys that are numbers": ({"0.w": f32(1), "-3": f32(2)}, '["d",0,{"w":[]},-3,[]]'),
    "ordered": (A, '["O",{"a":[]}]'),
    "ordered, with versions": (A, '["O",{"a":[]},{"_metadata":["O",{"":{"version":1}}]}]'),
    "ordered, with other keys": ({"1": f32(1, 2)}, '["O",["d",1,[],"x",2]]'),
    "a count": (A, '{"a":[],"c":["C",{"x":2}],"d":["C",["d",5,1]]}'),
    "defaults": ({"e.3": f32(1, 2)}, '{"d":["D","list",{"x":["l"]}],"e":["D","dict",["d",3,[]]],"f":["D",null,{}]}'),
    "what defaults are made of": (A, '{"a":[],"l":["l",["D","list",{}],["D","dict",{}],["D","int",{}],["D","float",{}],["D","str",{}],["D","set",{}],["D","tuple",{}],["D","bool",{}]]}'),
    "a tensor alone": ({"tensor": f32(1, 2)}, '[]'),
    "a value alone": ({}, "5"),
    "parameters": ({**A, "b": f32(3), "c": f32(4)}, '{"a":["p"],"b":["p",null,{"g":false}],"c":["t",null,{"g":true}]}'),
    "a parameter of integers": ({"a": integers(1)}, '{"a":["p",null,{"g":false}]}'),
    "attributes": (A, '{"a":["t",null,{"a":{"note":"x","n":["l",1]}}]}'),
    "views": ({**BASE, "row": f32(4, 5, 6, 7), "column": f32(1, 5, 9)}, '{"base":[],"row":["t",null,{"v":["base",4,[1]]}],"column":["t",null,{"v":["base",1,[4]]}]}'),
    "in another order": ({"a": f32(1, 2, 3, 4, 5, 6, shape=[2, 3])}, '{"a":["t",null,{"k":[1,2]}]}'),
    "shared by two": ({**A, "b": f32(1, 2)}, '{"a":[],"b":["t",null,{"v":["a",0,[1]]}]}'),
    "sparse": (SPARSE, '{"s":["s",null,"coo",true]}'),
    "sparse, not coalesced": (SPARSE, '{"s":["s",null,"coo",false]}'),
    "sparse by rows": (ROWS, '{"s":["s",null,"csr"]}'),
    "sparse by columns": (COLUMNS, '{"s":["s",null,"csc"]}'),
    "quantised": ({"q": small(1, -2)}, '{"q":["q",null,"per_tensor_affine",0.5,3,"qint8"]}'),
    "quantised by channel": (CHANNELS, '{"q":["q",null,"per_channel_affine",0,"qint8"]}'),
    "arrays of numpy": ({"a": f32(1, 2), "s": Tensor("F64", [], struct.pack("<d", 0.5))}, '{"a":["n"],"s":["N"]}'),
    "deep": ({"x" + ".0" * 900: f32(1)}, '{"x":%s[]%s}' % ('["l",' * 900, "]" * 900)),
    "an optimiser": (
        {"state.0.exp_avg": f32(1, 2), "state.0.step": f32(3, shape=[])},
        '{"state":["d",0,{"step":[],"exp_avg":[]}],"param_groups":["l",{"lr":0.001,"betas":["u",0.9,0.999],"eps":1e-08,"amsgrad":false,"foreach":null,"params":["l",0]}]}',
    ),
}


def write(folder, tensors, root):
    tree = '{"v":1,"root":%s}' % root
    (folder / "in.safetensors").write_bytes(files.safetensors(tensors, {"format": "pt", "tconv.tree": tree}))
    return tree


def header(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length])


def digest(folder, name):
    return expect(folder, OK, "hash", "--digest", name).out


def there_and_back(tensors, root, middle, folder):
    tree = write(folder, tensors, root)
    result = expect(folder, OK, "--strict", "in.safetensors", middle)
    check_equal(b"warning" in result.err, False, "no warning", result)
    if middle != "out.pt":
        expect(folder, OK, "--strict", middle, "out.pt")
    expect(folder, OK, "scan", "out.pt")
    expect(folder, OK, "out.pt", "again.pt", "--tree=always")
    expect(folder, OK, "again.pt", "back.safetensors", "--tree=always")
    metadata = header(folder / "back.safetensors")["__metadata__"]
    check_equal(metadata["tconv.tree"], tree, "the tree")
    check_equal(digest(folder, "back.safetensors"), digest(folder, "in.safetensors"), "tensors")


def cases(full):
    for name, (tensors, root) in TREES.items():
        yield name, functools.partial(there_and_back, tensors, root, "out.pt")
        yield f"{name}, by way of deathtensors", functools.partial(there_and_back, tensors, root, "middle.deathtensors")


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite.full)))
