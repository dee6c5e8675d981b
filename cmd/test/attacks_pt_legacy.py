"""Attacks on the .pt stream of torch before 1.6: five pickles, then storages (L01 to L09)."""

import pickle as op
import struct

from attacks import Input, cuts, row
from attacks_pickle import FILE, ONE, PICKLES, framed
from attacks_pt import LONG_LINE
from files import f32
from harness import FEWER, INVALID, MIB, OK, UNSAFE, UNSUPPORTED
from pickles import (
    LEGACY_TENSOR,
    MAGIC,
    SYS_INFO,
    THREE,
    call,
    code,
    legacy,
    legacy_parts,
    name,
    pickled,
    sparse,
    storage,
    tensor,
)

HONEST = pickled({"w": LEGACY_TENSOR})


@row("L01", UNSAFE, FILE)
def magic_by_a_call():
    for builtins in ("builtins", "__builtin__"):
        yield Input(
            f"{builtins}.eval",
            legacy(HONEST, magic=call(builtins, "eval", hex(MAGIC))),
            message=f"{builtins}.eval",
        )
    hidden = call("os", "system", "touch pwned")
    for part in ("magic", "protocol", "sys_info", "keys"):
        yield Input(f"os.system as {part}", legacy(HONEST, **{part: hidden}), message="os.system")
    yield Input(
        "the right number after a call",
        legacy(HONEST, magic=hidden + op.POP + code(MAGIC)),
        message="os.system",
    )


@row("L02", INVALID, FILE)
def five_pickles():
    yield Input("honest", legacy(HONEST), OK, tensors=ONE)
    yield Input("another magic number", legacy(HONEST, magic=MAGIC + 1))
    yield Input("a small magic number", legacy(HONEST, magic=1))
    for protocol in (1000, 1002, 0):
        yield Input(f"protocol {protocol}", legacy(HONEST, protocol=protocol), UNSUPPORTED)
    yield Input("protocol of text", legacy(HONEST, protocol="1001"), {INVALID, UNSUPPORTED})
    for value in (1001, "x", [], (), None):
        yield Input(f"sys_info {value!r}", legacy(HONEST, sys_info=code(value)))


@row("L03", INVALID, FILE)
def machines():
    big = {"0": (3, struct.pack(">3f", 1, 2, 3))}
    yield Input(
        "big-endian",
        legacy(HONEST, big, sys_info={**SYS_INFO, "little_endian": False}),
        {OK, UNSUPPORTED},
        tensors=ONE,
    )
    for key, size in (("short", 3), ("int", 7), ("long", 5), ("int", -4), ("long", "4")):
        sizes = {**SYS_INFO["type_sizes"], key: size}
        yield Input(
            f"{key} of {size!r}", legacy(HONEST, sys_info={**SYS_INFO, "type_sizes": sizes})
        )


@row("L04", INVALID, FILE)
def storage_keys():
    twice = legacy(HONEST, keys=["0", "0"]) + struct.pack("<q", 3) + THREE.data
    yield Input("a key twice", twice)
    yield Input("a key twice, data once", legacy(HONEST, keys=["0", "0"]))
    unknown = {"0": (3, THREE.data), "1": (3, THREE.data)}
    yield Input("an unknown key", legacy(HONEST, unknown))
    yield Input("an unknown key alone", legacy(HONEST, keys=["1"]))
    yield Input("a key missing", legacy(HONEST, {}))
    yield Input("a key missing, data there", legacy(HONEST, keys=[]))
    for value in (0, None, ("0",), 1.0):
        yield Input(f"{value!r} as key", legacy(HONEST, keys=[value]))
    for value in ("0", {"0": 1}, None, 1):
        yield Input(f"{value!r} as list", legacy(HONEST, keys=code(value)))


@row("L05", INVALID, FILE)
def element_counts():
    for count in (-1, 2**62, 2**61 + 3, 2**63 - 1, -(2**63), 0, 2, 4, 12):
        yield Input(f"{count} for 3", legacy(HONEST, {"0": (count, THREE.data)}))
    for count in (2, 4, 2**62 + 3, -1):
        view = tensor(storage(count=count, view=(None,)), size=(2,))
        yield Input(f"3 for {count}", legacy(pickled({"w": view})))


def of_view(key="0", count=3, view=("v", 1, 2), size=(2,)):
    return tensor(storage(key, count, view=(view,)), size=size)


@row("L06", INVALID, FILE)
def views_of_storages():
    yield Input(
        "honest",
        legacy(pickled({"w": LEGACY_TENSOR, "x": of_view()})),
        OK,
        tensors={"w": THREE, "x": f32(2, 3)},
    )
    for view in (
        ("v", 2, 2),
        ("v", 0, 4),
        ("v", 4, 0),
        ("v", -1, 2),
        ("v", 1, -1),
        ("v", 2**62, 2),
        ("v", 2**63 - 1, 2**63 - 1),
        ("v", 1, 2**62 + 2),
        ("v", 1),
        ("v", 1, 2, 3),
        ("v", "1", 2),
        (7, 1, 2.0),
        "v",
        1,
        ("0", 1, 2),
    ):
        yield Input(f"view {view!r}", legacy(pickled({"x": of_view(view=view)})))
    yield Input("a tensor past its view", legacy(pickled({"x": of_view(size=(3,))})))
    yield Input(
        "two places for one view",
        legacy(pickled({"x": of_view(), "y": of_view(view=("v", 0, 2))})),
    )
    second = of_view("v", 2, ("vv", 0, 1), (1,))
    yield Input("a view of a view", legacy(pickled({"x": of_view(), "y": second})))
    yield Input(
        "a view of itself", legacy(pickled({"x": of_view("v", 3, ("v", 0, 2))}), keys=["v"])
    )
    yield Input(
        "views of each other",
        legacy(
            pickled({"x": of_view("a", 3, ("b", 0, 2)), "y": of_view("b", 3, ("a", 0, 2))}),
            {"a": (3, THREE.data), "b": (3, THREE.data)},
        ),
    )


@row("L07", INVALID, FILE)
def cut():
    two = {"0": (3, THREE.data), "1": (2, f32(4, 5).data)}
    second = tensor(storage("1", 2, view=(None,)), size=(2,))
    whole = legacy(pickled({"w": LEGACY_TENSOR, "x": second}), two)
    yield Input("whole", whole, OK, tensors={"w": THREE, "x": f32(4, 5)})
    yield from cuts(whole, "cut at ")
    yield Input("1 byte more", whole + b"\0")
    yield Input("a pickle more", whole + pickled({}))


@row("L08", UNSAFE, FILE)
def whole_module():
    def module(kind):
        return code(("module", kind, "/home/x/model.py", "class Net(Module):\n")) + op.BINPERSID

    for label, kind in (
        ("Linear", name("torch.nn.modules.linear", "Linear")),
        ("a class of the user's", name("__main__", "Net")),
        ("an allowed class", name("collections", "OrderedDict")),
    ):
        value = module(kind) + op.EMPTY_TUPLE + op.NEWOBJ + code({"w": LEGACY_TENSOR}) + op.BUILD
        yield Input(label, legacy(pickled(value)))
    yield Input(
        "Linear is named",
        legacy(pickled(module(name("torch.nn.modules.linear", "Linear")))),
        message="torch.nn.modules.linear.Linear",
    )


@row("L09", UNSAFE, FILE)
def pickles_again():
    # The machine is the same: a sanitizer build has seen it on the zip's.
    for row_id in list(PICKLES)[:: 3 if FEWER else 1]:
        yield from framed(row_id, LEGACY_TENSOR, legacy, f"{row_id} ", commands=("hash",))
    yield Input(
        "P24 GLOBAL of 1 GB",
        sparse(FILE, [*legacy_parts(b"")[:3], *LONG_LINE]),
        commands=("hash",),
        rss=128 * MIB,
    )
