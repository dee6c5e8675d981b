"""Checkpoints that hold more than tensors (K01 to K12): what is skipped, found, refused and bounded.

Rows make one file for each member of a kind, and each beside an honest tensor and alone.
"""

import gzip
import itertools
import json
import pickle as op
import struct
import zlib

from attacks import Input, row
from attacks_pickle import FILE, HOSTILE, ONE
from files import f32
from harness import INVALID, MIB, OK, UNSAFE, UNSUPPORTED
from pickles import (
    ORDERED_DICT,
    THREE,
    byte_string,
    call,
    code,
    dtype,
    get,
    legacy,
    name,
    ndarray,
    ot,
    pickled,
    pt,
    put,
    reduce,
    storage,
    tensor,
    zip_of,
)

BUDGET = 256 * MIB
INERT = ("--pickle=inert",)


def objects(items):
    """An array of Python objects."""
    return ndarray((len(items),), list(items), "O8")


# Values that hold no tensor, and a word of the reason that is reported.
NO_TENSOR = {
    "a class": (name("torch", "Tensor"), "class or function"),
    "a storage class": (name("torch", "FloatStorage"), "class or function"),
    "a function": (name("torch._utils", "_rebuild_tensor_v2"), "class or function"),
    "the class OrderedDict": (name("collections", "OrderedDict"), "class or function"),
    "an array of objects": (objects([1, "a", None]), "Python objects"),
    "an array of a tensor": (objects([tensor()]), "Python objects"),
    "an array of text": (ndarray((2,), b"ab", "S1"), "array of text"),
    "an array of dates": (ndarray((1,), b"\0" * 8, "M8"), "dates"),
    "an array of records": (ndarray((1,), b"\0" * 8, "V8"), "records"),
    "a numpy dtype": (dtype(), "numpy dtype"),
    "a meta tensor": (
        call(
            "torch._utils",
            "_rebuild_meta_tensor_no_storage",
            name("torch", "float32"),
            (3,),
            (1,),
            False,
        ),
        "meta tensor",
    ),
    "a list in itself": (op.EMPTY_LIST + put(7) + get(7) + op.APPEND, "holds itself"),
    "a dict in itself": (
        op.EMPTY_DICT + put(7) + code("k") + get(7) + op.SETITEM,
        "holds itself",
    ),
    "65 dimensions": (
        call(
            "torch._utils",
            "_rebuild_tensor_v2",
            storage(),
            0,
            (1,) * 65,
            (1,) * 65,
            False,
            ORDERED_DICT,
        ),
        "dimensions",
    ),
}


@row("K01", OK, FILE)
def values_without_a_tensor():
    wraps = {
        "": lambda value: value,
        " in a list": lambda value: [value],
        " in a tuple": lambda value: (1, value),
        " below": lambda value: {"a": {"b": value}},
    }
    for (label, (value, why)), (where, wrap) in itertools.product(
        NO_TENSOR.items(), wraps.items()
    ):
        archive = pt(pickled({"w": tensor(), "x": wrap(value)}))
        yield Input(label + where, archive, tensors=ONE, message=why)
        yield Input(f"{label}{where}, strict", archive, UNSUPPORTED, options=("--strict",), commands=("convert",))
        yield Input(
            f"{label}{where}, excluded",
            archive,
            options=("--strict", "--exclude", "^x"),
            commands=("convert",),
            tensors=ONE,
        )
        yield Input(f"{label}{where} alone", pt(pickled({"x": wrap(value)})), UNSUPPORTED)
    # Only a tree holds long bytes.
    archive = pt(pickled({"w": tensor(), "x": byte_string(bytes(5000))}))
    yield Input("long bytes", archive, tensors=ONE)
    flat = ("--strict", "--tree=never")
    yield Input(
        "long bytes without a tree", archive, UNSUPPORTED, options=flat, commands=("convert",), message="bytes"
    )
    for label, (value, _why) in NO_TENSOR.items():
        hostile = pt(pickled({"w": tensor(), "x": value, "y": HOSTILE}))
        yield Input(f"{label} beside code", hostile, UNSAFE, message="os.system")


@row("K02", OK, FILE, commands=("convert",))
def excluded_tensors_refuse_nothing():
    """What nobody wants may be as broken as it likes."""
    broken = {
        "past its storage": tensor(size=(4,)),
        "of a storage that is not there": tensor(storage("9")),
        "of a storage of another size": tensor(storage("1", 5), size=(5,)),
        "of negative offset": tensor(offset=-1),
        "of too few strides": tensor(stride=()),
        "an array of too little data": ndarray((4,)),
    }
    for label, value in broken.items():
        archive = pt(
            pickled({"w": tensor(), "bad": value}), data={"0": THREE.data, "1": THREE.data}
        )
        yield Input(label, archive, INVALID)
        yield Input(f"{label}, excluded", archive, options=("--exclude", "bad"), tensors=ONE)
        yield Input(
            f"{label}, not included", archive, options=("--include", "^w$"), tensors=ONE
        )
    shown = tensor(size=(2**40,), stride=(0,))
    yield Input("too large", pt(pickled({"w": tensor(), "bad": shown})), UNSAFE)
    yield Input(
        "too large, excluded",
        pt(pickled({"w": tensor(), "bad": shown})),
        options=("--exclude", "bad"),
        tensors=ONE,
    )
    twice = pt(pickled({"w": tensor(), "bad": shown, "worse": shown}))
    yield Input("too large, one name excluded", twice, UNSAFE, options=("--exclude", "bad"))
    yield Input("too large, the other excluded", twice, UNSAFE, options=("--exclude", "worse"))
    yield Input("too large, both excluded", twice, options=("--exclude", "bad|worse"), tensors=ONE)


def state_of(class_, state, made=op.EMPTY_TUPLE + op.NEWOBJ):
    return name(*class_) + made + code(state) + op.BUILD


def module(parameters=None, modules=None, **attributes):
    state = {"training": True, "_parameters": parameters or {}, "_buffers": {}}
    return state_of(("my.net", "Net"), {**state, "_modules": modules or {}, **attributes})


@row("K03", OK, FILE)
def found_wherever_they_stand():
    one, net = tensor(), ("my.net", "Net")
    new = name(*net)
    jax_state = (1, (3,), dtype(), False, byte_string(THREE.data))
    jax = call(
        "jax._src.array",
        "_reconstruct_array",
        name("numpy._core.multiarray", "_reconstruct"),
        (name("numpy", "ndarray"), (0,), byte_string(b"b")),
        jax_state,
        {"weak_type": False},
    )
    body = {"_parameters": {"w": one}, "_buffers": {}, "_modules": {}, "_code": "x"}
    method = call("builtins", "getattr", state_of(net, {"w": one}), "forward")
    for label, value, path in (
        ("a parameter", module({"w": one}), "x.w"),
        ("a module in a module", module(None, {"l": module({"w": one})}), "x.l.w"),
        ("a plain attribute", module(extra=one), "x.extra"),
        ("a list of tensors", module(extra=[one]), "x.extra.0"),
        ("a state", state_of(net, {"w": one}), "x.w"),
        ("a state of slots", state_of(net, (None, {"w": one})), "x.w"),
        ("a state and slots", state_of(net, ({"a": 1}, {"w": one})), "x.w"),
        ("a state that is a tensor", state_of(net, one), "x"),
        ("a state that is a tuple", state_of(net, (1, 2, one)), "x.2"),
        ("an argument", reduce(new, 1, one), "x.1"),
        ("a call in a call", reduce(new, reduce(new, one)), "x.0.0"),
        ("NEWOBJ's argument", new + code((one,)) + op.NEWOBJ, "x.0"),
        ("a keyword", new + code(()) + code({"w": one}) + op.NEWOBJ_EX, "x.w"),
        ("items of a list", reduce(new) + code(one) + op.APPEND, "x.0"),
        ("items of a dict", reduce(new) + code("k") + one + op.SETITEM, "x.k"),
        ("a call of a method", reduce(method, 1), "x.0.w"),
        ("OBJ", op.MARK + new + one + op.OBJ, "x.0"),
        ("an odd call of a known name", call("builtins", "list", 1, one), "x.1"),
        ("a state of what has none", code([one]) + code({}) + op.BUILD, "x.0"),
        ("fx", call("torch.fx.graph_module", "reduce_graph_module", body, "import torch"), "x.w"),
        ("jax", jax, "x"),
        (
            "pandas",
            call("pandas._libs.internals", "_unpickle_block", ndarray(), None, 1),
            "x.0",
        ),
        ("an array of objects", objects([one]), "x.0"),
        ("an extension", op.EXT1 + b"\1" + code((one,)) + op.REDUCE, "x.0"),
    ):
        archive = pt(pickled({"x": value, "z": new}))
        yield Input(label, archive, options=INERT, tensors={path: THREE}, message="my.net.Net")
        yield Input(f"{label}, strict", archive, {UNSAFE, INVALID})
    yield Input(
        "counted",
        pt(pickled({str(i): state_of(net, {"w": one}) for i in range(3)})),
        options=INERT,
        message="my.net.Net is not understood (3 objects)",
    )


@row("K04", UNSAFE, FILE)
def nothing_found():
    net = ("my.net", "Net")
    for label, value in (
        ("an object", state_of(net, {"a": 1})),
        ("a module without tensors", module()),
        ("a class", name(*net)),
        ("code alone", HOSTILE),
        ("an object in itself", name(*net) + op.EMPTY_TUPLE + op.NEWOBJ + put(0) + get(0) + op.BUILD),
    ):
        yield Input(label, pt(pickled({"x": value})), options=INERT, message="no tensor")
        yield Input(f"{label} at the root", pt(pickled(value)), options=INERT, message="no tensor")


def model_json(text, more=None):
    members = {
        b"old/model.json": text if isinstance(text, bytes) else json.dumps(text).encode(),
        b"old/tensors/0": THREE.data,
        b"old/version": b"1\n",
        b"old/code/old.py": b"op_version_set = 0\ndef forward(self):\n  return 1\n",
    }
    return zip_of(members | (more or {}))


def defined(**changes):
    tensor_ = {
        "dims": ["3"],
        "strides": ["1"],
        "offset": "0",
        "dataType": "FLOAT",
        "data": {"key": "tensors/0"},
        "device": "cpu",
    }
    return {key: value for key, value in {**tensor_, **changes}.items() if value is not None}


def model(*tensors, modules=(), parameters=({"name": "w", "tensorId": "0", "isBuffer": False},)):
    main = {"submodules": list(modules), "parameters": list(parameters), "name": "Old"}
    return {"protoVersion": "1", "mainModule": main, "tensors": list(tensors)}


@row("K05", INVALID, FILE)
def torch_1_0():
    below = {"name": "l", "parameters": [{"name": "b", "tensorId": "1", "isBuffer": True}]}
    two = defined(dims=["2"], offset="1")
    yield Input("a parameter", model_json(model(defined())), OK, tensors=ONE)
    yield Input(
        "a module in a module",
        model_json(model(defined(), two, modules=[below])),
        OK,
        tensors={"w": THREE, "l.b": f32(2, 3)},
    )
    plain = model(defined(dims=[3], strides=[1], offset=0, dataType=1))
    yield Input("numbers", model_json(plain), OK, tensors=ONE)
    typed = {"name": "l", "attributes": [{"name": "t", "type": "List[Tensor]", "id": "0"}]}
    yield Input(
        "an attribute",
        model_json(model(defined(), modules=[typed]), {b"old/attributes.pkl": pickled([])}),
        OK,
        tensors=ONE,
        message="List[Tensor]",
    )
    for label, made in (
        ("past its storage", model(defined(dims=["4"]))),
        ("at an offset past it", model(defined(offset="1"))),
        ("of no data", model(defined(data=None))),
        ("of a member that is not there", model(defined(data={"key": "tensors/1"}))),
        ("of a member above", model(defined(data={"key": "../tensors/0"}))),
        ("of no strides", model(defined(strides=None))),
        ("of negative size", model(defined(dims=["-3"]))),
        ("of size 2**63", model(defined(dims=[str(2**63)]))),
        ("of a size that is no number", model(defined(dims=["x"]))),
        ("that is not listed", model()),
    ):
        yield Input(label, model_json(made))
    for label, text in (("no JSON", b"{"), ("no main module", b"{}"), ("a list", b"[]")):
        yield Input(label, model_json(text))
    yield Input("of no known type", model_json(model(defined(dataType="STRING"))), UNSUPPORTED)
    yield Input("of 65 dimensions", model_json(model(defined(dims=["1"] * 65, strides=["1"] * 65))), UNSUPPORTED)
    deep = b'{"mainModule":' + b'{"submodules":[' * 1000 + b"]}" * 1000 + b"}"
    yield Input("1,000 modules in one another", model_json(deep), {INVALID, UNSAFE})


def zlib_bomb(content, mark, zeros):
    """The content packed, with zeros in the place of a mark; never all of them in memory."""
    before, after = content.split(mark)
    pack = zlib.compressobj(9)
    packed = [pack.compress(before)]
    # After a full flush a stretch of zeros packs alike wherever it stands, so one does for all.
    packed += [pack.flush(zlib.Z_FULL_FLUSH)]
    stretch = pack.compress(bytes(MIB)) + pack.flush(zlib.Z_FULL_FLUSH)
    packed += [stretch] * (zeros // MIB)
    return b"".join([*packed, pack.compress(after), pack.flush()])


def wrapper(data, shape=(3,), descr="f4", order="C", alignment=None, protocol=2):
    """An array as joblib dumps it, its bytes behind the state."""
    state = {
        "subclass": name("numpy", "ndarray"),
        "shape": shape,
        "order": order,
        "dtype": dtype(descr),
        "allow_mmap": True,
        "numpy_array_alignment_bytes": alignment,
    }
    padding = b"\3\xff\xff\xff" if alignment else b""
    wrapped = name("joblib.numpy_pickle", "NumpyArrayWrapper") + op.EMPTY_TUPLE + op.NEWOBJ
    return wrapped + code(state) + op.BUILD + padding + data


@row("K06", OK, "in.joblib")
def joblib():
    matrix = f32(1, 4, 2, 5, 3, 6)
    matrix.shape[:] = [3, 2]
    fortran = f32(1, 2, 3, 4, 5, 6)
    for label, value, tensors in (
        ("an array", wrapper(THREE.data), {"w": THREE}),
        ("padded", wrapper(THREE.data, alignment=16), {"w": THREE}),
        ("Fortran's order", wrapper(fortran.data, (3, 2), order="F"), {"w": matrix}),
    ):
        dump = pickled({"w": value})
        yield Input(label, dump, tensors=tensors)
        yield Input(f"{label}, zlib", zlib.compress(dump), tensors=tensors)
        yield Input(f"{label}, gzip", gzip.compress(dump, mtime=0), tensors=tensors)
    odd = {"w": wrapper(THREE.data), "x": wrapper(b"ab", (2,), "S1")}
    yield Input("an array of text", pickled(odd), tensors=ONE, message="array of text")
    inner = pickled(objects([1]))
    odd = {"w": wrapper(THREE.data), "x": wrapper(inner, (1,), "O8")}
    yield Input("an array of objects", pickled(odd), tensors=ONE, message="Python objects")
    odd["x"] = wrapper(pickled(objects([HOSTILE])), (1,), "O8")
    yield Input("an array of hostile objects", pickled(odd), UNSAFE, message="os.system")
    for label, value in (
        ("cut short", wrapper(THREE.data[:8])),
        ("of a size beyond 64 bits", wrapper(THREE.data, (2**40, 2**40))),
        ("of negative size", wrapper(THREE.data, (-3,))),
        ("of no order", wrapper(THREE.data, order="X")),
    ):
        yield Input(label, pickled({"w": value}), {INVALID, UNSAFE})
    dump = zlib.compress(pickled({"w": wrapper(THREE.data)}))
    yield Input("zlib, a wrong sum", dump[:-1] + bytes([dump[-1] ^ 1]), INVALID)
    yield Input("zlib, cut short", dump[:-6], INVALID)
    yield Input("zlib, bytes behind it", dump + b"xxxx", INVALID)
    packed = gzip.compress(pickled({"w": wrapper(THREE.data)}), mtime=0)
    yield Input("gzip, a wrong length", packed[:-4] + struct.pack("<I", 1), INVALID)
    bomb = zlib_bomb(pickled({"w": wrapper(b"ZEROS", (1 << 28,))}), b"ZEROS", 1 << 30)
    yield Input("zlib, a gibibyte of zeros", bomb, UNSAFE, rss=BUDGET, commands=("hash",))


@row("K07", OK, "in.pkl")
def storages_in_bytes():
    def nested(value, data=THREE.data, **lies):
        return call("torch.storage", "_load_from_bytes", byte_string(legacy(value, **lies)))

    inner = pickled(storage(view=(None,)))
    yield Input("a tensor", pickled({"w": tensor(nested(inner))}), tensors=ONE)
    yield Input("a storage", pickled({"w": nested(inner)}), tensors=ONE)
    shared = nested(inner) + put(5)
    both = {"w": tensor(shared), "v": tensor(get(5), size=(2,), offset=1)}
    yield Input("one storage twice", pickled(both), tensors={"w": THREE, "v": f32(2, 3)})
    for label, value, outcome in (
        ("hostile", nested(pickled(HOSTILE)), UNSAFE),
        ("no torch file", call("torch.storage", "_load_from_bytes", byte_string(b"x")), INVALID),
        ("no bytes", call("torch.storage", "_load_from_bytes", "x"), {INVALID, UNSAFE}),
        ("a dict", nested(pickled({})), {INVALID, UNSUPPORTED}),
        ("itself", call("torch.storage", "_load_from_bytes", byte_string(legacy(pickled(nested(inner))))), {INVALID, UNSUPPORTED}),
    ):
        yield Input(label, pickled({"w": tensor(value)}), outcome)


@row("K08", OK, "in.ot")
def constants():
    held = pickled((tensor(), tensor(storage("1", 2), size=(2,))))
    more = {"constants/0": THREE.data, "constants/1": f32(7, 8).data}
    names = {"CONSTANTS.c0": THREE, "CONSTANTS.c1": f32(7, 8)}
    yield Input("of frozen code", ot({}, data={}, constants=held, more=more), tensors=names)
    yield Input("one is missing", ot({}, data={}, constants=held), INVALID)
    yield Input(
        "hostile", ot({}, data={}, constants=pickled((HOSTILE,))), UNSAFE, message="os.system"
    )


@row("K09", UNSUPPORTED, FILE)
def well_formed_but_not_ours():
    package = {b"p/.data/extern_modules": b"", b"p/.data/version": b"6", b"p/m/m.pkl": pickled({})}
    yield Input("torch.package", zip_of(package), message="torch.package")
    arrays = pickled({"w": ndarray()})
    yield Input("two pickles", arrays + pickled(1), file="in.pkl", message="several pickles")
    yield Input("three pickles", arrays * 3, file="in.pkl", message="several pickles")
    yield Input("a hostile second", arrays + pickled(HOSTILE), UNSAFE, file="in.pkl")
    yield Input("a broken second", arrays + b"\x80\2N", INVALID, file="in.pkl")
    yield Input("nothing but itself", pt(pickled(op.EMPTY_LIST + put(0) + get(0) + op.APPEND)))


@row("K10", {INVALID, UNSUPPORTED}, "in.bin")
def no_pickle_at_all():
    known = "not a format that tconv knows"
    for label, content in (
        ("ELF", b"\x7fELF" + bytes(60)),
        ("SQLite", b"SQLite format 3\0" + bytes(80)),
        ("TensorFlow Lite", b"\x1c\0\0\0TFL3" + bytes(60)),
        ("PNG", b"\x89PNG\r\n\x1a\n" + bytes(60)),
        ("text", b"hello, world\n" * 9),
        ("zeros", bytes(100)),
        ("protobuf", b"\x08\x01\x12\x03abc\x1a\x02xy" * 9),
        ("bare floats", struct.pack("<40f", *(1.5 + i / 7 for i in range(40)))),
        ("fastText", b"\xba\x16\x4f\x2f" + bytes(60)),
        ("MP4", b"\0\0\0\x18ftypmp42" + bytes(60)),
    ):
        for file in ("in.bin", "in.pkl", "in.ckpt"):
            word = label if label in ("ELF", "SQLite", "PNG") else known
            yield Input(f"{label} as {file}", content, file=file, message=known)
            yield Input(f"{label} as {file}, told", content, file=file, message=word)


@row("K11", UNSAFE, FILE, commands=("hash",))
def what_repeats_is_bounded():
    """Small pickles whose values would take minutes or gigabytes: each is refused for its cost."""
    numbers = op.EMPTY_LIST + op.MARK + b"K\1" * 100_000 + op.APPENDS + put(1)
    often = op.EMPTY_LIST + op.MARK + get(1) * 100_000 + op.APPENDS
    yield Input("a list 10^5 times", pt(pickled(numbers + op.POP + often)), seconds=10, rss=BUDGET)
    small = op.EMPTY_DICT + op.MARK + (code("k") + numbers) + op.SETITEMS + put(2)
    often = op.EMPTY_LIST + op.MARK + get(2) * 100_000 + op.APPENDS
    yield Input("a list in a dict 10^5 times", pt(pickled(small + op.POP + often)), seconds=10, rss=BUDGET)
    text = code("x" * 1_000_000) + put(3)
    often = op.EMPTY_LIST + op.MARK + get(3) * 100_000 + op.APPENDS
    yield Input("a text 10^5 times", pt(pickled(text + op.POP + often)), seconds=10, rss=BUDGET)
    inside = code("k" * 60_000) + put(4) + op.POP
    nest = op.EMPTY_DICT + get(4)
    yield Input(
        "keys as long as their path",
        pt(pickled(inside + nest * 900 + op.NONE + op.SETITEM * 900)),
        {OK, UNSAFE, UNSUPPORTED},
        seconds=10,
        rss=BUDGET,
    )
    leaves = op.EMPTY_DICT + op.MARK + b"".join(code(i) + op.NONE for i in range(1000)) + op.SETITEMS
    often = op.EMPTY_LIST + op.MARK + get(5) * 50_000 + op.APPENDS
    yield Input("a dict 50,000 times", pt(pickled(leaves + put(5) + op.POP + often)), seconds=10, rss=BUDGET)
    same = b"".join(code(i) + tensor() for i in range(2))
    twice = op.EMPTY_DICT + op.MARK + same + op.SETITEMS + put(6)
    often = op.EMPTY_LIST + op.MARK + get(6) * 300_000 + op.APPENDS
    yield Input("tensors 600,000 times", pt(pickled(twice + op.POP + often)), {OK, UNSAFE}, seconds=10, rss=BUDGET)


@row("K12", OK, FILE)
def one_name_many_times():
    """A thousand tensors of one name take a thousand tries, not a million."""
    count = 3000
    made = op.EMPTY_LIST + op.MARK + b"".join(code({"b": tensor()}) for _ in range(count)) + op.APPENDS
    yield Input("of a list", pt(pickled(made)), seconds=10)
    nested = {"a" + ".a" * i: {".".join(["a"] * (count // 10 - i)): tensor()} for i in range(count // 10)}
    yield Input("300 paths of one name", pt(pickled(nested)), seconds=10, message="299 tensors have the name")
