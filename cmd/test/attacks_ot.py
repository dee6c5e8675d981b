"""Attacks on .ot: libtorch archives and what else carries that name (O01 to O06)."""

import json
import pickle as op
import struct

from attacks import Input, row
from attacks_pickle import HOSTILE, ONE
from files import f32, npy, npz, safetensors
from harness import INVALID, OK, UNSAFE, UNSUPPORTED
from pickles import (
    CONSTANTS,
    MODULE,
    THREE,
    call,
    code,
    name,
    ot,
    pickled,
    pt,
    pt_members,
    reduce,
    script_object,
    storage,
    tensor,
    zip_of,
)

FILE = "in.ot"
LINEAR = name("__torch__.torch.nn.modules.linear", "Linear")
STATE = pickled(script_object({"w": tensor()}))
SOURCE = b"import os\nos.system('touch pwned')\n"


@row("O01", OK, FILE)
def code_is_ignored():
    yield Input("one tensor", ot(), tensors=ONE)
    yield Input("| for .", ot({"a|b|c": tensor()}), tensors={"a.b.c": THREE})
    nested = script_object({"training": False, "fc": script_object({"w": tensor()}, LINEAR)})
    for file in (FILE, "in.pt"):
        yield Input(
            f"nested modules as {file}",
            ot(pickle=pickled(nested), more={"code/__torch__/torch/nn/modules/linear.py": SOURCE}),
            file=file,
            tensors={"fc.w": THREE},
        )
        yield Input(
            f"code as {file}",
            ot(more={"code/__torch__.py": SOURCE, "code/__torch__.py.debug_pkl": pickled(HOSTILE)}),
            file=file,
            tensors=ONE,
            message="code",
        )


@row("O02", INVALID, FILE)
def constants_and_classes():
    constant = pickled((tensor(storage("0")),))
    yield Input("constants/0", ot(constants=constant, more={"constants/0": THREE.data}), OK)
    yield Input("constants/0 missing", ot(constants=constant))
    yield Input("constants.pkl broken", ot(constants=CONSTANTS[:-1]))
    yield Input("constants.pkl empty", ot(constants=b""))
    yield Input(
        "a hostile constants.pkl", ot(constants=pickled((HOSTILE,))), UNSAFE, message="os.system"
    )
    for module, kind in (("os", "system"), ("foo", "Bar"), ("__torch", "Module"), ("torch", "_C")):
        yield Input(
            f"REDUCE of {module}.{kind}",
            ot(pickle=pickled({"w": tensor(), "x": call(module, kind, "x")})),
            UNSAFE,
            message=f"{module}.{kind}",
        )
    yield Input("REDUCE of a module", ot(pickle=pickled(reduce(MODULE))), {UNSAFE, UNSUPPORTED})
    yield Input(
        "a module without constants.pkl", pt(STATE), UNSAFE, file="in.pt", message="__torch__"
    )
    yield Input(
        "a class that looks like one",
        ot(pickle=pickled(script_object({"w": tensor()}, name("__torch__x", "Module")))),
        UNSAFE,
        message="__torch__x.Module",
    )
    yield Input(
        "an object in itself",
        ot(
            pickle=pickled(
                MODULE + b")\x81" + op.BINPUT + b"\0" + code({"a": op.BINGET + b"\0"}) + op.BUILD
            )
        ),
        UNSUPPORTED,
    )


@row("O03", OK, FILE)
def first_torchscript():
    # torch 1.0 and 1.1 had model.json in the place of data.pkl; K05 has what is wrong with one.
    place = {"dims": ["3"], "strides": ["1"], "offset": "0", "data": {"key": "tensors/0"}}
    text = {
        "protoVersion": "2",
        "mainModule": {"parameters": [{"name": "w", "tensorId": "0"}], "name": "Old"},
        "producerName": "pytorch",
        "tensors": [{**place, "dataType": "FLOAT", "device": "cpu"}],
    }
    model = {
        b"archive/version": b"1\n",
        b"archive/model.json": json.dumps(text).encode(),
        b"archive/code/__torch__.py": SOURCE,
        b"archive/tensors/0": THREE.data,
    }
    attributes = {b"archive/attributes.pkl": pickled([1])}
    for file in (FILE, "in.pt"):
        yield Input(f"1.0 as {file}", zip_of(model), file=file, tensors=ONE)
        yield Input(f"1.1 as {file}", zip_of(model | attributes), file=file, tensors=ONE)
        bare = model | {b"archive/model.json": b'{"protoVersion":"2","mainModule":{}}'}
        yield Input(f"no tensor as {file}", zip_of(bare), file=file, tensors={})


@row("O04", INVALID, FILE)
def versions():
    yield Input("999999999999", ot(version=b"999999999999\n"), UNSUPPORTED)
    for label, version in (
        ("-1", b"-1\n"),
        ("empty", b""),
        ("1 MB", b"3" * 1_000_000),
        ("text", b"three\n"),
        ("a fraction", b"3.5\n"),
        ("a newline alone", b"\n"),
        ("NUL", b"3\0\n"),
    ):
        yield Input(label, ot(version=version))
        yield Input(f"{label} in .pt", pt(pickled({"w": tensor()}), version=version), file="in.pt")
    for version in (b"3\n", b"3", b"6\n", b"10\n"):
        yield Input(f"{version!r}", ot(version=version), OK, tensors=ONE)


@row("O05", INVALID, FILE)
def folders():
    members = pt_members(STATE, more={"constants.pkl": CONSTANTS})
    moved = {
        member.replace(b"archive/data/", b"other/data/"): content
        for member, content in members.items()
    }
    yield Input("data in another folder", zip_of(moved))
    for member in (b"data.pkl", b"constants.pkl", b"version", b"byteorder", b"data/0"):
        content = members[b"archive/" + member]
        yield Input(f"a second {member.decode()}", zip_of(members | {b"other/" + member: content}))
    for root in ("..", "../x", ".", "a/..", "/abs"):
        outcome = {INVALID, UNSAFE} if root in (".", "/abs") else UNSAFE
        archive = zip_of(pt_members(STATE, root=root, more={"constants.pkl": CONSTANTS}))
        yield Input(f"folder {root}", archive, outcome)


def onnx(values=(4, 5)):
    """An ONNX model of one initializer."""

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    data = struct.pack(f"<{len(values)}f", *values)
    initializer = b"\x08" + bytes([len(values)]) + b"\x10\x01" + field(8, b"x") + field(9, data)
    graph = field(2, b"graph") + field(5, initializer)
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11")


@row("O06", OK, FILE)
def other_content():
    yield Input("npz", npz(ONE), tensors=ONE)
    yield Input("safetensors", safetensors(ONE), tensors=ONE)
    yield Input("a plain .pt", pt(pickled({"w": tensor()})), tensors=ONE)
    archive = ot()
    unknown = b"\xa2\x06" + bytes([len(archive) & 0x7F | 0x80, len(archive) >> 7])
    assert len(archive) < 2**14
    yield Input(
        "a zip in a field of an ONNX model",
        onnx() + unknown + archive,
        {OK, INVALID, UNSUPPORTED},
        tensors={"x": f32(4, 5)},
    )
    yield Input("a zip, then an ONNX model", archive + onnx(), INVALID)
    members = pt_members(STATE, more={"constants.pkl": CONSTANTS})
    both = zip_of({**members, b"w.npy": npy()})
    yield Input("npz and libtorch in one", both, {INVALID, UNSUPPORTED})
