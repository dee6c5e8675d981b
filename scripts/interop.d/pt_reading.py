"""Whatever torch and pickle write, tconv reads: names, dtypes, shapes, every bit, and leaves that are no tensors."""
import copy
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import torch
from torch import nn

from models import BITS, FLOAT8, NUMPY, PACKED_SHAPES, SHAPES, Model, Tensor, random_tensor
from peers import Deathtensors, Npz, Safetensors, is_available
from torch_peer import TORCH, check_metadata, check_seen, flatten, of_torch, repacked, saved, to_torch

PROTOCOLS = (2, 3, 4, 5)
VARIANTS = {
    **{f"zip, protocol {number}": {"pickle_protocol": number} for number in PROTOCOLS},
    **{
        f"legacy, protocol {number}": {"pickle_protocol": number, "_use_new_zipfile_serialization": False}
        for number in PROTOCOLS
    },
}
UNTYPED = {TORCH[dtype] for dtype in ("U16", "U32", "U64", "C32", "F4", *FLOAT8)}
TARGETS = [Safetensors(), Npz(deflated=False), Deathtensors(checksum=True, compress=False)]


class Net(nn.Module):
    """Parameters, buffers, a tie, and a list of submodules."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=index % 2 == 0) for index in range(3))
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(6, dtype=torch.int16).reshape(2, 3))

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def run(checks, tconv):
    torch.manual_seed(1)
    check_objects(checks, tconv)
    for protocol in range(6):
        with checks.case(f"pickle.dump, protocol {protocol}"), tconv.folder() as folder:
            arrays = numpy_leaves()
            file = folder / "arrays.pkl"
            file.write_bytes(pickle.dumps(arrays, protocol=protocol))
            check_seen(checks, tconv, file, flatten(arrays))
    for how, module in ("script", torch.jit.script(Net())), ("trace", torch.jit.trace(Net().eval(), torch.arange(7))):
        with checks.case(f"torch.jit.{how}"), tconv.folder() as folder:
            file = folder / "module.pt"
            torch.jit.save(module, file)
            tconv.check_hash(file, flatten(module.state_dict()))
    by_hand = {"big-endian": big_endian, "deflated": deflated, "without byteorder": no_byteorder, "tar": tar}
    for kind, make in by_hand.items():
        with checks.case(kind), tconv.folder() as folder:
            file = folder / "file.pt"
            data, want = make()
            file.write_bytes(data)
            found = flatten(torch.load(file, weights_only=kind != "tar"))
            assert found.tensors == want.tensors, f"torch reads {found.tensors}, not {want.tensors}"
            check_seen(checks, tconv, file, want)
    with checks.case("sharded"):
        check_sharded(checks, tconv)
    check_refused(checks, tconv)


def check_objects(checks, tconv):
    for kind, root in objects().items():
        want = flatten(root)
        for variant, options in VARIANTS.items():
            part = for_legacy(root) if variant.startswith("legacy") else root
            if isinstance(root, dict) and len(part) < len(root) and not part:
                continue
            with checks.case(f"{kind}, {variant}"), tconv.folder() as folder:
                check_saved(checks, tconv, folder / "file.pt", part, options)
        with checks.case(f"{kind}, to a file by name"), tconv.folder() as folder:
            file = folder / "a model.v1.pth"  # torch names the archive's folder after it
            torch.save(root, file)
            check_seen(checks, tconv, file, want)
            check_converted(checks, tconv, file, want)


def for_legacy(root):
    """Without the tensors whose legacy files torch writes and then can't read: those in an UntypedStorage."""
    if not isinstance(root, dict):
        return root
    keep = {key: item for key, item in root.items() if getattr(item, "dtype", None) not in UNTYPED}
    return root if len(keep) == len(root) else keep


def check_saved(checks, tconv, file, root, options):
    want = flatten(root)
    file.write_bytes(saved(root, **options))
    read = flatten(torch.load(file, weights_only=False))
    assert read.tensors == want.tensors, "torch reads something else than it saved"
    check_seen(checks, tconv, file, want)


def check_converted(checks, tconv, file, model):
    for target in TARGETS:
        if not is_available(target.peer) or not all(target.holds(*item) for item in model.tensors.items()):
            continue
        copied = file.with_name(f"copy{target.suffix}")
        if not tconv.convert(file, copied):
            continue
        found = target.read(copied)
        checks.equal(f"tensors in {target.label}", found.tensors, {name: model.tensors[name] for name in found.tensors})
        checks.equal(f"number of tensors in {target.label}", len(found.tensors), len(model.tensors))
        if isinstance(target, Deathtensors):
            framework = {"format": "pt"}  # recorded on every way out of torch's files
            # How it was nested is the matter of the section trees.
            flat = {key: value for key, value in found.metadata.items() if key != "tconv.tree"}
            check_metadata(checks, "metadata in deathtensors", flat, {**framework, **model.metadata})
            checks.equal("tensor metadata", found.tensor_metadata, model.tensor_metadata)
        elif isinstance(target, Safetensors):
            checks.equal("format", found.metadata.get("format"), model.metadata.get("format", "pt"))


def objects() -> dict:
    random = np.random.default_rng(5)
    net = trained_net()
    return {
        "dtypes": every_dtype(random),
        **{f"only {dtype}": of_dtype(random, dtype) for dtype in TORCH},
        "views": views(),
        "complex views": complex_views(),
        "quantised": quantised(),
        "sparse": sparse(),
        "bare tensor": torch.randn(3, 4),
        "bare scalar tensor": torch.tensor(1.5),
        "bare parameter": nn.Parameter(torch.randn(3)),
        "list": [torch.randn(2), torch.arange(3)],
        "tuple": (torch.randn(2), {"deep": [torch.arange(3), (torch.ones(1),)]}),
        "no tensors": OrderedDict(),
        "state dict": net.state_dict(),
        "parameters": OrderedDict(net.named_parameters()),
        "tied": tied(),
        "checkpoint": checkpoint(net),
        "leaves": leaves(),
        "odd leaves": odd_leaves(),
        "empty containers": {"list": [], "tuple": (), "dict": {}, "nested": [{}, []], "w": torch.ones(2)},
        "numpy": numpy_leaves(),
        "odd names": OrderedDict((name, torch.tensor([float(index)])) for index, name in enumerate(ODD_NAMES)),
        "many": OrderedDict((f"t{index}", torch.tensor([index])) for index in range(3000)),  # LONG_BINPUT
        "attributes": with_attributes(),
    }


ODD_NAMES = [
    "",
    ".",
    "..",
    "a.b.",
    "ünïcödé",
    "重み",
    "a/b",
    "with space",
    'quote"',
    "back\\slash",
    "line\nbreak",
    "a|b",
    "-",
]


def of_dtype(random, dtype: str) -> dict:
    shapes = PACKED_SHAPES if dtype == "F4" else SHAPES
    return {
        f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}": to_torch(filled(random, dtype, shape)) for shape in shapes
    }


def every_dtype(random) -> dict:
    return {name: tensor for dtype in TORCH for name, tensor in of_dtype(random, dtype).items()}


def filled(random, dtype: str, shape) -> Tensor:
    if dtype == "C32":
        return Tensor("C32", shape, random.bytes(int(np.prod(shape)) * 4))
    return random_tensor(random, dtype, shape)


def views() -> dict:
    base = torch.randn(6, 8)
    cube = torch.arange(2 * 3 * 4 * 5, dtype=torch.int32).reshape(2, 3, 4, 5)
    return {
        "base": base,
        "transposed": base.t(),
        "row": base[3],
        "column": base[:, 2],
        "columns": base[:, 1:7:2],
        "block": base[2:5, 3:6],
        "tail": base[5:],
        "element": base[2, 3],
        "no rows": base[2:2],
        "no rows, past the end": base[6:],
        "expanded": torch.arange(5).expand(4, 5),
        "expanded scalar": torch.tensor(2.5).expand(2, 3, 4),
        "expanded in the middle": torch.randn(2, 1, 3).expand(2, 4, 3),
        "permuted": cube.permute(3, 1, 0, 2),
        "permuted, expanded": cube[:, :1].expand(2, 7, 4, 5).permute(1, 3, 2, 0),
        "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "channels last 3d": torch.randn(1, 2, 3, 4, 4).to(memory_format=torch.channels_last_3d),
        "overlapping": torch.arange(5).unfold(0, 3, 1),
        "overlapping far": torch.arange(12.0).as_strided((3, 3, 2), (2, 1, 3), 1),
        "diagonal": torch.randn(4, 4).diagonal(),
        "strides of ones": torch.randn(1, 1, 3).as_strided((1, 1, 3), (99, 0, 1)),
        "bfloat16": torch.randn(4, 6).bfloat16().t(),
        "bool": (torch.randn(4, 6) > 0).t()[::2],
        "float8": torch.arange(48, dtype=torch.uint8).view(torch.float8_e4m3fn).reshape(6, 8).t(),
        "uint16": torch.arange(48).to(torch.uint16).reshape(6, 8)[1:4, 2:5],
        "complex32": torch.randn(4, 6).to(torch.complex64).to(torch.complex32)[:, ::3],
        "reinterpreted": torch.arange(8, dtype=torch.int32).view(torch.int16)[3:],
        "high rank": torch.arange(2**12, dtype=torch.int16).reshape([2] * 12).permute(*reversed(range(12))),
    }


def complex_views() -> dict:
    value = torch.randn(3, 4, dtype=torch.complex64)
    double = torch.randn(3, 2, dtype=torch.complex128)
    return {
        "conjugate": value.conj(),
        "conjugate, transposed": value.mH,
        "imaginary of conjugate": value.clone().conj().imag,  # a negative view
        "negative": torch._neg_view(torch.randn(3)),
        "negative, half": torch._neg_view(torch.randn(5).half()),
        "negative, bfloat16": torch._neg_view(torch.randn(5).bfloat16())[1::2],
        "negative, conjugate": torch._neg_view(double.conj()),
        "double": double.conj()[1:],
        "real": value.clone().real,
        "zeros": torch._neg_view(torch.tensor([0.0, -0.0, float("inf")])),
    }


def quantised() -> dict:
    value = torch.randn(3, 4)
    return {
        "int8": torch.quantize_per_tensor(value, 0.1, 3, torch.qint8),
        "uint8": torch.quantize_per_tensor(value, 1e-5, 128, torch.quint8),
        "int32": torch.quantize_per_tensor(value, 1 / 3, 0, torch.qint32),
        "transposed": torch.quantize_per_tensor(value, 0.5, 3, torch.qint8).t(),
        "channels": torch.quantize_per_channel(value, torch.rand(3) + 0.1, torch.tensor([0, 1, 2]), 0, torch.qint8),
        "last channels": torch.quantize_per_channel(value, torch.rand(4) + 0.1, torch.arange(4), 1, torch.quint8),
        "dense": torch.ones(2),
    }


def sparse() -> dict:
    dense = torch.tensor([[0.0, 1, 0, 2], [3, 0, 0, 0], [0, 0, 0, 4], [5, 6, 0, 0]])
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 2], [1, 1, 3]]), torch.tensor([1.0, 2.0, 3.0]), (4, 5))
    return {
        "coalesced": dense.to_sparse(),
        "not coalesced": twice,
        "hybrid": torch.randn(3, 4, 2).to_sparse(1),
        "no elements": torch.zeros(3, 4).to_sparse(),
        "cube": torch.eye(3).expand(2, 3, 3).to_sparse(),
        "int64 values": dense.long().to_sparse(),
        "bfloat16 values": dense.bfloat16().to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
        "csr in batches": dense.expand(3, 4, 4).to_sparse_csr(),
        "csr, 32-bit indices": torch.sparse_csr_tensor(
            torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), torch.ones(2), (2, 2)
        ),
        "dense": dense,
    }


def tied() -> dict:
    weight, twin = torch.randn(3, 4), torch.randn(6)
    return {"embedding": weight, "head": weight, "view": weight[:], "part": weight[1], "a": twin[:3], "b": twin[3:]}


def trained_net() -> Net:
    net = Net()
    net(torch.arange(7)).sum().backward()
    return net


def checkpoint(net) -> dict:
    root = {
        "model": net.state_dict(),
        "epoch": 3,
        "loss": 0.125,
        "name": "run 1",
        "args": {"lr": 1e-5, "layers": [1, 2]},
    }
    for kind in torch.optim.Adam, torch.optim.SGD:
        optimiser = kind(net.parameters(), lr=0.01, **({"momentum": 0.9} if kind is torch.optim.SGD else {}))
        optimiser.step()
        root[kind.__name__] = copy.deepcopy(optimiser.state_dict())
    root["rng"] = torch.get_rng_state()
    root["scheduler"] = torch.optim.lr_scheduler.StepLR(optimiser, 10).state_dict()
    return root


def leaves() -> dict:
    return {
        "w": torch.ones(2),
        "text": "plain", "empty text": "", "unicode": "重み 😀", "lines": "a\nb\t\"c\"\\", "looks like json": "[1]",
        "zero": 0, "negative": -5, "byte": 255, "short": 65535, "int": 2**31 - 1, "least int": -(2**31),
        "long": 2**40, "long negative": -(2**63), "huge": 2**200, "huge negative": -(3**300),
        "true": True, "false": False, "none": None,
        "float": 0.1, "whole": 1.0, "tiny": 5e-324, "large": 1e300, "small": 1e-5, "minus zero": -0.0, "third": 1 / 3,
        "nan": float("nan"), "infinity": float("inf"), "minus infinity": float("-inf"),
        "list": [1, "two", 3.5, None, True], "tuple": (1, 2), "one": (1,), "long tuple": tuple(range(300)),
        "mixed": [1, [2, 3], {"a": 4}], "nested": {"a": {"b": {"c": "deep"}}}, 7: "integer key",
        "set": {3}, "frozenset": frozenset(["x"]), "shape": torch.Size([2, 3]),
        "counter": Counter(a=2, b=1), "ordered": OrderedDict(z=1, a=2),
        "default list": defaultdict(list, a=[1]), "default dict": defaultdict(dict, a={"b": 2}),
        "default none": defaultdict(None, a=1), "default int": defaultdict(int, a=1),
        "many ints": set(range(50)), "shared": [shared := ["s"], shared], "long text": "x" * 100_000,
    }  # fmt: skip


def odd_leaves() -> dict:
    """JSON has no word for them: complex numbers are pairs, bytes characters, the rest as torch prints it."""
    return {
        "w": torch.ones(2), "complex": 1.5 - 2j, "bytes": b"\x00\xff", "empty bytes": b"",
        "bytearray": bytearray(b"\x01\xfe"), "dtype": torch.float32, "device": torch.device("cpu"),
        "layout": torch.strided,
    }  # fmt: skip


def numpy_leaves() -> dict:
    random = np.random.default_rng(6)
    arrays = {dtype: random_tensor(random, dtype, (3, 5)).array() for dtype in NUMPY}
    return {
        "arrays": arrays,
        "scalar arrays": {dtype: array[0, 0].reshape(()) for dtype, array in arrays.items()},
        "scalars": {dtype: array[1, 1] for dtype, array in arrays.items()},
        "fortran": np.asfortranarray(arrays["F32"]),
        "transposed": arrays["I64"].T,
        "strided": arrays["F64"][::2, ::-1],
        "big-endian": arrays["I32"].astype(">i4"),
        "big-endian complex": arrays["C128"].astype(">c16"),
        "empty": np.zeros((0, 3), np.float32),
        "large": np.arange(100_000, dtype=np.uint32),
        "list": [arrays["U8"], np.float64(0.5)],
        "shared": [arrays["F16"], arrays["F16"]],
        "epoch": 4,
    }


def with_attributes() -> dict:
    """torch keeps what was set on a tensor, and calls _rebuild_from_type_v2 for it."""
    tensor, parameter = torch.randn(3), nn.Parameter(torch.randn(2))
    tensor.note, parameter.note = "kept by torch", {"a": 1}
    return {"tensor": tensor, "parameter": parameter}


def plain_dict() -> dict:
    dtypes = ["I16", "I32", "I64", "F16", "BF16", "F32", "F64", "C64", "C128", "U8", "BOOL"]
    random = np.random.default_rng(7)
    return {dtype: to_torch(random_tensor(random, dtype, (3, 5))) for dtype in dtypes}


def big_endian():
    """As torch writes it on such a machine. It does not swap what is in an UntypedStorage, so those dtypes stay out."""
    root = plain_dict()

    def swap(members):
        members["byteorder"] = b"big"
        for key, (dtype, tensor) in enumerate(root.items()):
            size = BITS[dtype] // (16 if dtype in ("C64", "C128") else 8)
            assert members[f"data/{key}"] == of_torch(tensor).data
            members[f"data/{key}"] = np.frombuffer(members[f"data/{key}"], f"<u{size}").astype(f">u{size}").tobytes()

    return repacked(saved(root), swap), flatten(root)


def deflated():
    root = plain_dict()
    return repacked(saved(root), lambda members: None, zipfile.ZIP_DEFLATED), flatten(root)


def no_byteorder():
    root = plain_dict()

    def change(members):
        for name in "byteorder", ".format_version", ".storage_alignment", ".data/serialization_id":
            del members[name]

    return repacked(saved(root), change), flatten(root)


def tar():
    """As torch wrote it before 0.1.10: two tensors, one of them transposed, of one storage."""
    values = torch.arange(6.0)
    members = {
        "sys_info": pickle.dumps(
            {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2
        ),
        "storages": pickle.dumps(1, 2) + global_pickle((1, "cpu", "torch FloatStorage"))
        + struct.pack("<q", 6) + of_torch(values).data + pickle.dumps([], 2),
        "tensors": pickle.dumps(2, 2)
        + global_pickle((10, 1, "torch FloatTensor")) + struct.pack("<i4x5q", 2, 2, 3, 3, 1, 0)
        + global_pickle((11, 1, "torch FloatTensor")) + struct.pack("<i4x3q", 1, 2, 3, 1),
        "pickle": b"\x80\x02}(X\x01\x00\x00\x00aK\x0aQX\x01\x00\x00\x00bK\x0bQu.",
    }  # fmt: skip
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue(), flatten({"a": values.reshape(2, 3), "b": values.as_strided((2,), (3,), 1)})


def global_pickle(items) -> bytes:
    """The pickle of a tuple of three, where a text with a space is a global."""
    parts = [
        (
            b"c" + item.replace(" ", "\n").encode() + b"\n"
            if isinstance(item, str) and " " in item
            else pickle.dumps(item, 2)[2:-1]
        )
        for item in items
    ]
    return b"\x80\x02" + b"".join(parts) + b"\x87."


def check_sharded(checks, tconv):
    """As transformers writes them: shards by torch.save, and an index."""
    state = {name: tensor for name, tensor in plain_dict().items()} | {
        f"layers.{i}.w": torch.randn(10, 3) for i in range(9)
    }
    names = list(state)
    shards = [names[:5], names[5:11], names[11:]]
    files = [f"pytorch_model-{number:05}-of-{len(shards):05}.bin" for number in range(1, len(shards) + 1)]
    for options in {}, {"_use_new_zipfile_serialization": False}:
        with tconv.folder() as folder:
            for file, part in zip(files, shards):
                torch.save({name: state[name] for name in part}, folder / file, **options)
            weight_map = {name: file for file, part in zip(files, shards) for name in part}
            total = sum(tensor.nbytes for tensor in state.values())
            index = folder / "pytorch_model.bin.index.json"
            index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2) + "\n")
            want = flatten(state)
            tconv.check_hash(index, want)
            check_converted(checks, tconv, index, Model({name: t for name, t in want.tensors.items()}))


class Unknown:
    pass


def check_refused(checks, tconv):
    """What can't be read is refused, and what a pickle would import is named."""
    cases = {
        "a whole module": (saved(nn.Linear(2, 2)), 5, "torch.nn.modules.linear"),
        "an object of ours": (pickle.dumps({"a": Unknown()}), 5, "Unknown"),
        "a meta tensor": (saved({"m": torch.empty(2, device="meta")}), 4, ""),
        "a nested tensor": (saved({"n": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])}), 4, ""),
        "4-bit quantised": (saved({"q": torch.quantize_per_channel(
            torch.randn(4, 4), torch.rand(4) + 0.1, torch.rand(4), 0, torch.quint4x2)}), None, "QUInt4x2"),
    }  # fmt: skip
    if hasattr(torch, "bcomplex32"):
        cases["bcomplex32"] = (saved({"b": torch.zeros(2, dtype=torch.bcomplex32)}), None, "bcomplex32")
    for kind, (data, code, named) in cases.items():
        with checks.case(kind), tconv.folder() as folder:
            file = folder / "file.pt"
            file.write_bytes(data)
            done = tconv.fails("hash", file)
            wanted = (code,) if code else (4, 5)
            checks.true(
                done.returncode in wanted, lambda: f"exit code {done.returncode}, not {wanted}: {done.stderr!r}"
            )
            checks.true(named in done.stderr, lambda: f"not named: {named} in {done.stderr!r}")
    arrays = {
        "objects": np.array([{}, None], object), "structures": np.zeros(2, [("x", "<i4"), ("y", "<f4")]),
        "dates": np.array(["2020-01-01"], "M8[D]"), "text": np.array(["abc"]), "void": np.zeros(2, "V3"),
    }  # fmt: skip
    for kind, array in arrays.items():
        with checks.case(f"an array of {kind}"), tconv.folder() as folder:
            file = folder / "file.pkl"
            file.write_bytes(pickle.dumps({"other": np.ones(2, "<f4"), "a": array}, protocol=2))
            done = tconv.fails("--strict", file, folder / "file.safetensors")
            checks.true(done.returncode in (4, 5), lambda: f"exit code {done.returncode}: {done.stderr!r}")
