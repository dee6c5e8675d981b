"""Attacks on .pt: the zip archive, its tensors and its names (P01 to P32)."""

import pickle as op
import struct
import zlib

from attacks import Input, row
from attacks_foreign import RECOGNISED
from attacks_pickle import FILE, HOSTILE, ONE, SMALL, beside
from files import Member, Tensor, crc32_zeros, deflate_zeros, f32, npy, zip_end, zip_file
from harness import INVALID, MIB, OK, UNSAFE, UNSUPPORTED
from pickles import (
    LEGACY_TENSOR,
    ORDERED_DICT,
    THREE,
    Zeros,
    byte_string,
    call,
    code,
    get,
    legacy,
    name,
    ndarray,
    pickled,
    pt,
    pt_members,
    put,
    sparse,
    sparse_zip,
    storage,
    tensor,
    zip_of,
)


@row("P01", UNSAFE, FILE)
def offset_of_a_global():
    archive = pt(beside(tensor(), HOSTILE))
    yield Input("where it is", archive, message=f"0x{archive.index(name('os', 'system')):x}")
    yield Input("where it is in a bare pickle", pickled(HOSTILE), message="0x2")


def zip_tricks(members, target):
    """What a zip can do to one member to be read in two ways: label, archive."""
    content = members[target]

    def rebuilt(*instead):
        others = [Member(*item) for item in members.items() if item[0] != target]
        return zip_file([*instead, *others])

    yield "a byte of it", zip_of(members).replace(content, content[:-2] + b"N" + content[-1:])
    for method in (0, 8):
        crc = zlib.crc32(content) ^ 1
        yield f"its CRC, method {method}", rebuilt(Member(target, content, method, crc=crc))
        yield f"a CRC of 0, method {method}", rebuilt(Member(target, content, method, crc=0))
        for size in (10, len(content) - 1, len(content) + 1, 0x7FFFFFFF):
            yield (
                f"{size} bytes for {len(content)}, method {method}",
                rebuilt(Member(target, content, method, size=size)),
            )
    other = pickled({})
    yield "twice", rebuilt(Member(target, content), Member(target, other))
    yield "twice, the other first", rebuilt(Member(target, other), Member(target, content))
    yield "another local name", rebuilt(Member(target, content, local_name=target[:-1] + b"x"))
    for flag in (0x20, 0x40):
        yield f"flag {flag:#x}", rebuilt(Member(target, content, flags=flag))
    member, double = Member(target, content), Member(target[:-1] + b"x", content)
    central = member.central(0) + double.central(0)
    yield (
        "two entries, one member",
        member.local() + central + zip_end(2, len(central), len(member.local())),
    )
    outer = Member(b"outer", member.local())
    central = outer.central(0) + member.central(outer.local().index(member.local()))
    yield (
        "inside another's data",
        outer.local() + central + zip_end(2, len(central), len(outer.local())),
    )


@row("P08", INVALID, FILE)
def tricks_on_the_pickle():
    members, target = pt_members(pickled({"w": tensor()})), b"archive/data.pkl"
    for label, archive in zip_tricks(members, target):
        yield Input(label, archive)
    locked = Member(target, members.pop(target), flags=1)
    yield Input(
        "encrypted", zip_file([locked, *(Member(*item) for item in members.items())]), UNSUPPORTED
    )


@row("P09", OK, FILE)
def names_that_lie():
    for file in ("in.npy", "in.safetensors", "in.bin", "in.npz", "in.pkl", "in.pth", "in.ot", "in"):
        yield Input(f"zip as {file}", pt(pickled({"w": tensor()})), file=file, tensors=ONE)
        yield Input(
            f"legacy as {file}", legacy(pickled({"w": LEGACY_TENSOR})), file=file, tensors=ONE
        )
        yield Input(f"hostile as {file}", pt(pickled(HOSTILE)), UNSAFE, file=file)
        yield Input(f"hostile pickle as {file}", pickled(HOSTILE), UNSAFE, file=file)
    yield Input("npy as .pt", npy(), tensors={"in": THREE})


@row("P10", OK, FILE)
def other_containers():
    for kind in ("7z", "RAR", "gzip", "xz"):
        yield Input(kind, RECOGNISED[kind], UNSUPPORTED, message=kind)
    arrays = {"w": ndarray(), "deep": [ndarray((2,), f32(4, 5).data)]}
    expected = {"w": THREE, "deep.0": f32(4, 5)}
    for protocol in (2, 3, 4, 5):
        yield Input(
            f"bare pickle of arrays, protocol {protocol}",
            pickled(arrays, protocol),
            file="in.pkl",
            tensors=expected,
        )
    yield Input("bare pickle as .pt", pickled(arrays), tensors=expected)
    yield Input("hostile bare pickle", pickled(HOSTILE), UNSAFE, message="os.system")
    yield Input(
        "hostile after arrays", pickled({**arrays, "x": HOSTILE}), UNSAFE, message="os.system"
    )
    nested = call(
        "torch.storage", "_load_from_bytes", byte_string(legacy(pickled(storage(view=(None,)))))
    )
    yield Input("bare pickle of a tensor", pickled({"w": tensor(nested)}), tensors=ONE)
    yield Input(
        "bare pickle with a persistent id",
        pickled({"w": tensor()}),
        {INVALID, UNSAFE, UNSUPPORTED},
    )


@row("P11", INVALID, FILE)
def two_pickles():
    honest = pickled({"w": tensor()})
    yield Input("two folders", zip_of(pt_members(honest, root="a") | pt_members(honest, root="b")))
    yield Input(
        "two folders, one pickle alone", zip_of(pt_members(honest) | {b"b/data.pkl": honest})
    )
    for place in (b"data.pkl", b"archive/deep/data.pkl", b"archive/archive/data.pkl"):
        yield Input(place.decode(), zip_of(pt_members(honest) | {place: honest}))
        yield Input(f"{place.decode()} first", zip_of({place: honest} | pt_members(honest)))


@row("P12", INVALID, FILE)
def wrong_containers():
    setitem = code("k") + code(1) + op.SETITEM
    setitems = op.MARK + code("k") + code(1) + op.SETITEMS
    append, appends = code(1) + op.APPEND, op.MARK + code(1) + op.APPENDS
    additems = op.MARK + code(1) + op.ADDITEMS
    for label, value, opcodes in (
        ("a tensor", tensor(), (setitem, setitems, append, appends, additems)),
        ("a list", code([1]), (setitem, setitems, additems)),
        ("a tuple", code((1, 2)), (setitem, setitems, append, appends, additems)),
        ("text", code("x"), (setitem, setitems, append, appends, additems)),
        ("a dict", code({"a": 1}), (append, appends, additems)),
        ("an OrderedDict", ORDERED_DICT, (append, appends, additems)),
        ("a storage", storage(), (setitem, append)),
        ("None", code(None), (setitem, append)),
    ):
        for opcode in opcodes:
            shown = {b"s": "SETITEM", b"u": "SETITEMS", b"a": "APPEND", b"e": "APPENDS"}.get(
                opcode[-1:], "ADDITEMS"
            )
            yield Input(f"{shown} on {label}", beside_in_zip(value + opcode))


def beside_in_zip(value):
    return pt(beside(tensor(), value))


@row("P13", INVALID, FILE)
def storage_sizes():
    for count in (2, 4, 0, 2**30, 2**61 + 3, 2**62 + 3, 2**63 - 1, 2**63, 2**64 + 3, -1, -3):
        yield Input(
            f"{count} elements for 12 bytes",
            pt(pickled({"w": tensor(storage(count=count), size=(2,))})),
        )
    for count in (None, "3", 3.0, (3,)):
        yield Input(f"{count!r} elements", pt(pickled({"w": tensor(storage(count=count))})))
    for length in (0, 11, 13, 16):
        yield Input(f"{length} bytes for 3", pt(pickled({"w": tensor()}), {"0": bytes(length)}))


def viewed(**view):
    return pt(pickled({"w": tensor(**view)}))


@row("P14", INVALID, FILE)
def views_past_the_storage():
    huge = 2**63 - 1
    for view in (
        {"offset": 1},
        {"offset": 3, "size": ()},
        {"size": (4,)},
        {"stride": (2,)},
        {"size": (2, 2), "stride": (2, 1)},
        {"offset": -1},
        {"offset": -(2**63)},
        {"offset": huge},
        {"offset": 2**63},
        {"offset": 2**64},
        {"offset": 2**61},
        {"stride": (huge,)},
        {"stride": (2**62,)},
        {"stride": (2**63,)},
        {"size": (5,), "stride": (2**62,)},
        {"size": (huge,)},
        {"size": (2**32, 2**32), "stride": (0, 0)},
        {"size": (2**32 + 1, 2**32), "stride": (2**32, 1)},
        {"size": (2, 2), "stride": (huge, huge)},
        {"offset": huge, "size": (2,), "stride": (huge,)},
    ):
        shown = ", ".join(f"{key} {value}" for key, value in view.items())
        stride = view.get("stride", (1,) * len(view.get("size", (3,))))
        repeats = set(stride) == {0}
        yield Input(
            shown, viewed(**{**view, "stride": stride}), {INVALID, UNSAFE} if repeats else None
        )


@row("P15", INVALID, FILE)
def malformed_views():
    for view in (
        {"stride": (-1,), "offset": 2},
        {"stride": (-1,)},
        {"stride": (1, 1)},
        {"stride": ()},
        {"size": (3, 1)},
        {"size": ()},
        {"size": (-1,)},
        {"size": (-3, -1), "stride": (1, 1)},
        {"stride": ("1",)},
        {"stride": (1.0,)},
        {"stride": (None,)},
        {"stride": ((1,),)},
        {"size": ("3",)},
        {"size": (3.0,)},
        {"size": 3},
        {"size": None},
        {"stride": 1},
        {"stride": None},
        {"offset": "0"},
        {"offset": None},
        {"offset": 0.0},
    ):
        shown = ", ".join(f"{key} {value!r}" for key, value in view.items())
        yield Input(shown, viewed(**view))


@row("P16", OK, FILE)
def stride_zero():
    one = storage(count=1)

    def repeated(size):
        zeros = (0,) * len(size)
        return pt(pickled({"w": tensor(one, size=size, stride=zeros)}), {"0": f32(1).data})

    yield Input("8", repeated((8,)), tensors={"w": f32(*[1] * 8)})
    yield Input("4 by 2", repeated((4, 2)), tensors={"w": f32(*[1] * 8, shape=[4, 2])})
    for size in ((2**40,), (2**20, 2**20), (2**33, 1)):
        yield Input(f"{size}", repeated(size), UNSAFE, message="--max-size", rss=SMALL)
    yield Input(
        "4 KiB, limit 1 KiB",
        repeated((1024,)),
        UNSAFE,
        options=("--max-size", "1K"),
        message="--max-size",
    )


@row("P17", OK, FILE)
def overlapping_windows():
    yield Input(
        "3 by 3 over 5",
        pt(
            pickled({"w": tensor(storage(count=5), size=(3, 3), stride=(1, 1))}),
            {"0": f32(1, 2, 3, 4, 5).data},
        ),
        tensors={"w": f32(1, 2, 3, 2, 3, 4, 3, 4, 5, shape=[3, 3])},
    )


@row("P18", UNSAFE, FILE)
def many_views_of_one_storage():
    count = 2**28
    shared = storage(count=count) + put(0) + op.POP
    views = {
        f"w{number}": tensor(get(0), number, (count - 10_000,), (1,)) for number in range(10_000)
    }
    members = pt_members(pickled(shared + code(views)), {"0": [Zeros(4 * count)]})
    yield Input(
        "10,000 of 1 GB",
        sparse(FILE, sparse_zip(members)),
        message="--max-size",
        seconds=2,
        rss=128 * MIB,
    )


LONG_LINE = [op.PROTO + b"\2" + op.GLOBAL, Zeros(2**30)]


@row("P24", UNSAFE, FILE, commands=("hash",))
def long_line():
    pieces = sparse_zip(pt_members(LONG_LINE))
    yield Input("GLOBAL of 1 GB", sparse(FILE, pieces), message="lines", rss=128 * MIB)


@row("P26", {INVALID, UNSAFE}, FILE)
def persistent_ids():
    kind = name("torch", "FloatStorage")
    for label, value in {
        "a number": 1,
        "text": "0",
        "None": None,
        "4 parts": ("storage", kind, "0", "cpu"),
        "7 parts": ("storage", kind, "0", "cpu", 3, None, None),
        "no parts": (),
        "a list": ["storage", kind, "0", "cpu", 3],
        "tag module": ("module", kind, "x.py", "source"),
        "tag as bytes": (byte_string(b"other"), kind, "0", "cpu", 3),
        "unknown tag": ("tensor", kind, "0", "cpu", 3),
        "key of a path": ("storage", kind, "../../etc/passwd", "cpu", 3),
        "key of 1 MB": ("storage", kind, "0" * 1_000_000, "cpu", 3),
        "key with NUL": ("storage", kind, "0\0", "cpu", 3),
        "key a number": ("storage", kind, 0, "cpu", 3),
        "key of a tuple": ("storage", kind, ("0",), "cpu", 3),
        "kind of text": ("storage", "FloatStorage", "0", "cpu", 3),
        "kind no storage": ("storage", name("collections", "OrderedDict"), "0", "cpu", 3),
        "its own result": (storage()),
    }.items():
        yield Input(label, pt(pickled({"w": tensor(code(value) + op.BINPERSID)})))
    for label, second in (
        ("another count", storage(count=2)),
        ("another dtype", storage(kind="IntStorage")),
        ("another size", storage(count=6, kind="HalfStorage")),
    ):
        yield Input(
            f"a key twice, {label}",
            pt(pickled({"w": tensor(), "x": tensor(second, size=(2,))})),
        )
    again = (get(0) + op.BINPERSID) * 10_000_000
    shared = code(("storage", kind, "0", "cpu", 3)) + put(0) + op.POP
    yield Input(
        "10,000,000 times",
        pt(pickled(shared + code({"w": tensor(), "x": op.MARK + again + op.LIST}))),
        commands=("hash",),
    )


@row("P27", INVALID, FILE)
def missing_and_idle_members():
    honest = pickled({"w": tensor()})
    yield Input("data/0 missing", pt(honest, {}))
    yield Input("data/0 under another name", pt(honest, {"00": THREE.data}))
    yield Input("no data.pkl", pt(None), {INVALID, UNSUPPORTED})
    yield Input(
        "data/1 that nobody uses",
        pt(honest, {"0": THREE.data, "1": bytes(8)}),
        OK,
        tensors=ONE,
        message="data/1",
    )


@row("P28", OK, FILE)
def byte_orders():
    honest = pickled({"w": tensor()})
    swapped = {"0": struct.pack(">3f", 1, 2, 3)}
    yield Input("big", pt(honest, swapped, byteorder=b"big"), tensors=ONE)
    yield Input("missing", pt(honest, byteorder=None), tensors=ONE)
    yield Input(
        "big and wide",
        pt(
            pickled(
                {
                    "c": tensor(storage("0", 1, "ComplexFloatStorage"), size=(1,)),
                    "d": tensor(storage("1", 1, "DoubleStorage"), size=(1,)),
                    "h": tensor(storage("2", 2, "ShortStorage"), size=(2,)),
                    "b": tensor(storage("3", 2, "ByteStorage"), size=(2,)),
                }
            ),
            {
                "0": struct.pack(">2f", 1, 2),
                "1": struct.pack(">d", 3),
                "2": struct.pack(">2h", 4, 5),
                "3": b"\6\7",
            },
            byteorder=b"big",
        ),
        tensors={
            "c": Tensor("C64", [1], struct.pack("<2f", 1, 2)),
            "d": Tensor("F64", [1], struct.pack("<d", 3)),
            "h": Tensor("I16", [2], struct.pack("<2h", 4, 5)),
            "b": Tensor("U8", [2], b"\6\7"),
        },
    )
    for order in (b"middle", b"", b"BIG", b"little\0", b"l" * 100_000):
        yield Input(f"{order[:8]!r}", pt(honest, byteorder=order), INVALID)


@row("P29", OK, FILE)
def keys():
    def named(value):
        return pt(pickled(value))

    two = tensor(size=(2,))
    for label, key in (
        ("bytes", byte_string(b"k")),
        ("a tuple", ("a", 1)),
        ("None", None),
        ("a float", 2.5),
        ("a truth value", True),
        ("a dtype", name("torch", "float32")),
    ):
        keyed = op.EMPTY_DICT + code(key) + tensor() + op.SETITEM
        yield Input(f"{label} as key", named(keyed), tensors={"?0": THREE})
        # The name is a change, which --strict=all refuses.
        yield Input(
            f"{label} as key, --strict=all",
            named(keyed),
            UNSUPPORTED,
            commands=("convert",),
            options=("--strict=all",),
            message="structure",
        )
        second = op.EMPTY_DICT + op.MARK + (code("x") + two + code(key) + tensor()) + op.SETITEMS
        yield Input(
            f"{label} as key below",
            named({"state": second}),
            tensors={"state.x": f32(1, 2), "state.?1": THREE},
        )
    keyed = op.EMPTY_DICT + tensor() + tensor() + op.SETITEM
    yield Input(
        "a tensor as key", named(keyed), tensors={"?0": THREE}, message="key that is no plain value"
    )
    for label, value, first, second in (
        ("a.b and a: b", {"a.b": tensor(), "a": {"b": two}}, "a.b", "a.b~1"),
        ("a: b and a.b", {"a": {"b": tensor()}, "a.b": two}, "a.b", "a.b~1"),
        ("0 and '0'", {0: tensor(), "0": two}, "0", "0~1"),
        ("a.0 and a: [0]", {"a.0": tensor(), "a": [two]}, "a.0", "a.0~1"),
        ("None and ?0", {None: tensor(), "?0": two}, "?0", "?0~1"),
    ):
        yield Input(
            f"collision of {label}",
            named(value),
            tensors={first: THREE, second: f32(1, 2)},
            message="the name of another",
        )
    yield Input(
        "a key twice",
        named(op.EMPTY_DICT + op.MARK + (code("w") + two + code("w") + tensor()) + op.SETITEMS),
        tensors=ONE,
    )
    yield Input(
        "numbers as keys",
        named({"state": {0: {"step": tensor()}, -1: two}}),
        tensors={"state.0.step": THREE, "state.-1": f32(1, 2)},
    )


@row("P30", UNSUPPORTED, FILE)
def tensors_we_do_not_know():
    float32, cpu = name("torch", "float32"), call("torch", "device", "cpu")
    strided = call("torch.serialization", "_get_layout", "torch.strided")
    for module, function, *arguments in (
        ("torch._utils", "_rebuild_meta_tensor_no_storage", float32, (3,), (1,), False),
        ("torch._utils", "_rebuild_nested_tensor", *[tensor()] * 4),
        (
            "torch._utils",
            "_rebuild_wrapper_subclass",
            name("torch", "Tensor"),
            float32,
            (3,),
            (1,),
            0,
            strided,
            cpu,
            False,
        ),
    ):
        value = call(module, function, *arguments)
        yield Input(function, pt(pickled({"w": value})), message=function)
        yield Input(f"{function} alone", pt(pickled(value)), message=function)
        yield Input(
            f"{function} beside another",
            pt(pickled({"x": value, "w": tensor()})),
            OK,
            tensors=ONE,
            message=function,
        )
    yield Input(
        "_rebuild_njt",
        pt(
            pickled(
                call(
                    "torch._tensor",
                    "_rebuild_from_type_v2",
                    name("torch.nested._internal.nested_tensor", "_rebuild_njt"),
                    name("torch.nested._internal.nested_tensor", "NestedTensor"),
                    ({"values": tensor(), "offsets": tensor()},),
                    {},
                )
            )
        ),
        message="_rebuild_njt",
    )
    wrapper = name("torch._utils", "_rebuild_wrapper_subclass")
    kind = name("torch.distributed.tensor", "DTensor")
    placed = (kind, float32, (3,), (1,), 0, strided, cpu, False)
    yield Input(
        "DTensor",
        pt(
            pickled(
                {
                    "w": call(
                        "torch._tensor",
                        "_rebuild_from_type_v2",
                        wrapper,
                        kind,
                        placed,
                        {"_local_tensor": tensor()},
                    )
                }
            )
        ),
        message="_rebuild_wrapper_subclass",
    )


TEXT_TENSOR = (
    b"(dp0\nVw\np1\nctorch._utils\n_rebuild_tensor_v2\np2\n"
    b"((S'storage'\np3\nctorch\nFloatStorage\np4\nV0\np5\nS\"cpu\"\np6\nI3\ntQ"
    b"L0L\n(I3\nt(I1\ntI00\nccollections\nOrderedDict\np7\n(tRtp8\nRp9\n"
    b"sVn\nF1.5\nsVyes\nI01\nsVt\ng1\ns."
)


@row("P31", OK, FILE)
def protocols():
    yield Input("0, as text", pt(TEXT_TENSOR), tensors=ONE)
    for protocol in (None, 0, 1, 2, 3, 4, 5):
        yield Input(f"{protocol}", pt(pickled({"w": tensor()}, protocol)), tensors=ONE)
    for protocol in (6, 200, 255):
        yield Input(f"{protocol}", pt(pickled({"w": tensor()}, protocol)), UNSUPPORTED)
    middle = op.PROTO + b"\2"
    yield Input("PROTO in the middle", pt(pickled(code({"w": tensor()}) + middle)), INVALID)
    yield Input("PROTO twice", pt(pickled(middle + code({"w": tensor()}))), INVALID)


@row("P32", INVALID, FILE)
def bomb():
    yield Input("40 GB for 4 floats", write_bomb, seconds=1)


def write_bomb(folder):
    blocks, block = 2384, 16 << 20
    pieces = list(deflate_zeros(b"", blocks, block))
    members = pt_members(pickled({"w": tensor(storage(count=4), size=(4,))}), {})
    entries = [Member(*item) for item in members.items()]
    entries.append(
        Member(
            b"archive/data/0",
            b"",
            8,
            packed=b"",
            crc=crc32_zeros(0, blocks * block),
            size=blocks * block,
            packed_size=sum(map(len, pieces)),
            zip64=True,
        )
    )
    central = b""
    with open(folder / FILE, "wb") as file:
        for entry in entries:
            central += entry.central(file.tell())
            file.write(entry.local())
        file.writelines(pieces)
        offset = file.tell()
        file.write(central + zip_end(len(entries), len(central), offset))
