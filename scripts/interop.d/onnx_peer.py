"""ONNX's own package and onnxruntime: what they write tconv reads, and what tconv writes they read and run.

Not named for its package, which a module of that name would hide.
"""

import copy
import json
import os
import warnings
from itertools import count
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from checks import hash_text
from models import BITS as OTHER_BITS
from models import NAMES, PACKED_SHAPES, SHAPES, Model, Tensor, random_tensor
from peers import optional, safetensors_by_hand

DTYPES = {
    TensorProto.BOOL: "BOOL", TensorProto.UINT8: "U8", TensorProto.INT8: "I8", TensorProto.UINT16: "U16",
    TensorProto.INT16: "I16", TensorProto.UINT32: "U32", TensorProto.INT32: "I32", TensorProto.UINT64: "U64",
    TensorProto.INT64: "I64", TensorProto.FLOAT16: "F16", TensorProto.BFLOAT16: "BF16", TensorProto.FLOAT: "F32",
    TensorProto.DOUBLE: "F64", TensorProto.COMPLEX64: "C64", TensorProto.COMPLEX128: "C128",
    TensorProto.FLOAT8E4M3FN: "F8_E4M3", TensorProto.FLOAT8E4M3FNUZ: "F8_E4M3FNUZ",
    TensorProto.FLOAT8E5M2: "F8_E5M2", TensorProto.FLOAT8E5M2FNUZ: "F8_E5M2FNUZ", TensorProto.FLOAT8E8M0: "F8_E8M0",
    TensorProto.UINT4: "U4", TensorProto.INT4: "I4", TensorProto.FLOAT4E2M1: "F4",
    TensorProto.FLOAT6E2M3: "F6_E2M3", TensorProto.FLOAT6E3M2: "F6_E3M2",
}  # fmt: skip
DATA_TYPES = {canonical: number for number, canonical in DTYPES.items()}
OTHER_BITS |= {"U4": 4, "I4": 4}  # random_tensor looks there
BITS = OTHER_BITS
INVALID, UNSUPPORTED, UNSAFE = 3, 4, 5
# onnxruntime must run these; for all others its own message is printed.
RUNS = {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64"}

warnings.simplefilter("ignore")  # of overflow, where ONNX's own test cases cast


def run(checks, tconv):
    read_tensors(checks, tconv)
    read_lists(checks, tconv)
    read_models(checks, tconv)
    read_external(checks, tconv)
    write_models(checks, tconv)
    write_lone_tensors(checks, tconv)
    run_models(checks, tconv)
    read_package_data(checks, tconv)
    read_node_cases(checks, tconv)


# What tensors are


def shapes_of(dtype: str) -> list[tuple[int, ...]]:
    return SHAPES if BITS[dtype] >= 8 else PACKED_SHAPES


def every_tensor() -> dict[str, Tensor]:
    random = np.random.default_rng(4)
    return {
        f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}": random_tensor(random, dtype, shape)
        for dtype in DATA_TYPES
        for shape in shapes_of(dtype)
    }


def elements(tensor: Tensor) -> np.ndarray:
    """As ONNX's package has them in memory, where a packed element takes a byte."""
    dtype = helper.tensor_dtype_to_np_dtype(DATA_TYPES[tensor.dtype])
    data = np.frombuffer(tensor.data, np.uint8)
    if BITS[tensor.dtype] < 8:
        bits = np.unpackbits(data, bitorder="little").reshape(-1, BITS[tensor.dtype])
        data = np.packbits(bits, axis=1, bitorder="little").reshape(-1)
        if tensor.dtype == "I4":  # ml_dtypes has the sign in all of the byte
            data = np.where(data > 7, data | 0xF0, data).astype(np.uint8)
    return data.view(dtype).reshape(tensor.shape)


def of_proto(proto: TensorProto, folder: str = "") -> Tensor:
    """The tensor as the package reads it."""
    array = numpy_helper.to_array(proto, folder)
    dtype = DTYPES[proto.data_type]
    data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    if BITS[dtype] < 8:
        bits = np.unpackbits(data.reshape(-1, 1), axis=1, bitorder="little")[:, : BITS[dtype]]
        data = np.packbits(bits.reshape(-1), bitorder="little")
    return Tensor(dtype, tuple(proto.dims), data.tobytes())


def typed(name: str, tensor: Tensor) -> TensorProto:
    """The tensor in float_data, int32_data and so on; some bits of NaN are lost on the way there."""
    return helper.make_tensor(name, DATA_TYPES[tensor.dtype], tensor.shape, elements(tensor).reshape(-1))


def is_whole(tensor: Tensor) -> bool:
    """Packed elements that fill their last byte: others no other format could hold."""
    return prod(tensor.shape) * BITS[tensor.dtype] % 8 == 0


def model_of(tensors: list[TensorProto], nodes=(), **more) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "graph", [], [], tensors, **more)
    return helper.make_model(graph)


# From the package to tconv


def check_hash(checks, tconv, path: Path, tensors: dict[str, Tensor]):
    checks.equal("hash", tconv.run("hash", path), hash_text(Model(tensors)).encode())


def check_fails(checks, tconv, path: Path, *codes: int):
    done = tconv.fails("hash", path)
    checks.true(done.returncode in codes, lambda: f"exit code {done.returncode}, {done.stderr!r}; expected {codes}")


def read_tensors(checks, tconv):
    """Each tensor by itself in a .pb, and all in one model, as from_array, make_tensor and by hand."""
    ways = {
        "from_array": lambda name, tensor: numpy_helper.from_array(elements(tensor), name),
        "raw": lambda name, tensor: helper.make_tensor(
            name, DATA_TYPES[tensor.dtype], tensor.shape, tensor.data, raw=True
        ),
        "typed": typed,
    }
    tensors = every_tensor()
    for way, make in ways.items():
        protos, expected = [], {}
        for name, tensor in tensors.items():
            with checks.case(f"{way} {name}"), tconv.folder() as folder:
                proto = make(name, tensor)
                seen = of_proto(proto)
                if way != "typed":
                    checks.equal("what the package wrote, as it reads it", seen, tensor)
                (folder / "x.pb").write_bytes(proto.SerializeToString())
                if way == "typed" and tensor.dtype.startswith("F6_") and tensor.data:
                    check_fails(checks, tconv, folder / "x.pb", UNSUPPORTED)
                    continue
                check_hash(checks, tconv, folder / "x.pb", {name: seen})
                protos.append(proto)
                expected[name] = seen
        with checks.case(f"{way} in a model"), tconv.folder() as folder:
            onnx.save(model_of(protos), folder / "x.onnx")
            check_hash(checks, tconv, folder / "x.onnx", expected)
    for dtype, bits in BITS.items():
        if bits < 8:
            with checks.case(f"{dtype} that leaves bits"), tconv.folder() as folder:
                numbers = np.zeros(3 if bits == 4 else 2, helper.tensor_dtype_to_np_dtype(DATA_TYPES[dtype]))
                (folder / "x.pb").write_bytes(numpy_helper.from_array(numbers, "x").SerializeToString())
                check_fails(checks, tconv, folder / "x.pb", UNSUPPORTED)
    with checks.case("text"), tconv.folder() as folder:
        (folder / "x.pb").write_bytes(helper.make_tensor("x", TensorProto.STRING, [1], [b"text"]).SerializeToString())
        check_fails(checks, tconv, folder / "x.pb", UNSUPPORTED)


def read_lists(checks, tconv):
    """Sequences, which the package keeps in a message of their own."""
    arrays = [np.arange(3, dtype=np.float32), np.arange(4, dtype=np.int64).reshape(2, 2), np.zeros((0, 2), np.float32)]
    for label, items in (("one", arrays[:1]), ("alike", arrays[::2]), ("none with data", arrays[2:])):
        with checks.case(f"sequence, {label}"), tconv.folder() as folder:
            (folder / "x.pb").write_bytes(numpy_helper.from_list(items, "list").SerializeToString())
            check_hash(checks, tconv, folder / "x.pb", {str(at): Tensor.of(item) for at, item in enumerate(items)})


def sparse_of(name: str, shape, coordinates, linear: bool) -> onnx.SparseTensorProto:
    values = np.arange(1, len(coordinates) + 1, dtype=np.float32)
    indices = np.array(coordinates, np.int64).reshape(len(coordinates), len(shape))
    if linear:
        indices = np.ravel_multi_index(indices.T, shape).astype(np.int64)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(values, name), numpy_helper.from_array(indices, f"{name}_indices"), list(shape)
    )


def read_models(checks, tconv):
    """Tensors in all the places of a model, and names of all kinds."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        helper.make_node("Constant", [], ["value"], value=numpy_helper.from_array(array, "ignored")),
        helper.make_node("Constant", [], ["float"], value_float=1.5),
        helper.make_node("Constant", [], ["floats"], value_floats=[1.5, -2.0]),
        helper.make_node("Constant", [], ["int"], value_int=-(2**63)),
        helper.make_node("Constant", [], ["ints"], value_ints=[1, 2**63 - 1, -1]),
        helper.make_node("Constant", [], ["sparse"], sparse_value=sparse_of("x", (2, 3), [(0, 1), (1, 2)], True)),
        helper.make_node(
            "ConstantOfShape", ["ints"], ["filled"], name="fill", value=numpy_helper.from_array(array[:1, 0])
        ),
        helper.make_node("Conv", ["value"], ["out"], kernel_shape=[1, 2], alpha=1.0),
    ]
    inner = helper.make_graph(nodes[1:2], "inner", [], [], [numpy_helper.from_array(array, "w")])
    branch = helper.make_graph(
        [helper.make_node("Loop", [], ["looped"], body=inner)],
        "branch",
        [],
        [],
        [numpy_helper.from_array(array + 1, "w")],
    )
    nodes.append(helper.make_node("If", ["int"], ["chosen"], name="if", then_branch=branch, else_branch=inner))
    function = helper.make_function("local", "Half", [], ["half"], [helper.make_node("Constant", [], ["half"], value_float=0.5)], [helper.make_opsetid("", 17)])  # fmt: skip
    model = model_of(
        [numpy_helper.from_array(array, "w")],
        nodes,
        sparse_initializer=[
            sparse_of("dense", (4, 5), [(0, 1), (3, 4)], False),
            sparse_of("flat", (4, 5), [(2, 2)], True),
        ],
    )
    model.functions.append(function)
    helper.set_model_props(model, {"author": "me", "": "empty", "ü": "日"})
    with checks.case("every place"), tconv.folder() as folder:
        onnx.save(model, folder / "x.onnx")
        check_model(checks, tconv, folder / "x.onnx", model)
    random = np.random.default_rng(5)
    names = {name: random_tensor(random, "F32", (at % 4,)) for at, name in enumerate(NAMES) if name}
    with checks.case("names"), tconv.folder() as folder:
        onnx.save(model_of([numpy_helper.from_array(t.array(), name) for name, t in names.items()]), folder / "x.onnx")
        check_hash(checks, tconv, folder / "x.onnx", names)


class Unreadable(Exception):
    """A model that tconv refuses."""


def tensors_of(model: onnx.ModelProto, folder: str = "") -> dict[str, Tensor]:
    """What tconv must see in a model, found by the package's classes."""
    found = {}
    add_graph(found, model.graph, "", folder)
    for function in model.functions:
        for node in function.node:
            add_node(found, node, f"{function.name}.", folder)
    return found


def add_tensor(found, name: str, proto: TensorProto, folder: str):
    if proto.data_type not in DTYPES:
        raise Unreadable(f"data type {proto.data_type}")
    tensor = Tensor(DTYPES[proto.data_type], tuple(proto.dims), b"")
    if not is_whole(tensor):
        raise Unreadable(f"{tensor.dtype}{list(tensor.shape)}")
    found[name] = of_proto(proto, folder)


def add_sparse(found, name: str, proto: onnx.SparseTensorProto, folder: str):
    indices = numpy_helper.to_array(proto.indices, folder).astype(np.int64)
    if indices.ndim == 1:
        indices = np.stack(np.unravel_index(indices, tuple(proto.dims)), axis=1)
    found[f"{name}.indices"] = Tensor.of(np.ascontiguousarray(indices.T.astype("<i8")))
    add_tensor(found, f"{name}.values", proto.values, folder)
    found[f"{name}.shape"] = Tensor.of(np.array(proto.dims, "<i8"))


def add_graph(found, graph: onnx.GraphProto, prefix: str, folder: str):
    for proto in graph.initializer:
        add_tensor(found, prefix + proto.name, proto, folder)
    for proto in graph.sparse_initializer:
        add_sparse(found, prefix + proto.values.name, proto, folder)
    for node in graph.node:
        add_node(found, node, prefix, folder)


def add_node(found, node: onnx.NodeProto, prefix: str, folder: str):
    constant = node.op_type == "Constant"
    owner = prefix + (node.output[0] if constant or not node.name else node.name)
    for attribute in node.attribute:
        name = owner if constant else f"{owner}.{attribute.name}"
        value, kind = helper.get_attribute_value(attribute), attribute.type
        if kind == onnx.AttributeProto.TENSOR:
            if value.data_type != TensorProto.STRING:  # left out, and reported
                add_tensor(found, name, value, folder)
        elif kind == onnx.AttributeProto.TENSORS:
            for at, proto in enumerate(value):
                add_tensor(found, f"{name}.{at}", proto, folder)
        elif kind == onnx.AttributeProto.SPARSE_TENSOR:
            add_sparse(found, name, value, folder)
        elif kind == onnx.AttributeProto.GRAPH:
            add_graph(found, value, f"{name}.", folder)
        elif kind == onnx.AttributeProto.GRAPHS:
            for at, graph in enumerate(value):
                add_graph(found, graph, f"{name}.{at}.", folder)
        elif constant and kind in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS):
            found[name] = Tensor.of(np.array(value, "<f4"))
        elif constant and kind in (onnx.AttributeProto.INT, onnx.AttributeProto.INTS):
            found[name] = Tensor.of(np.array(value, "<i8"))


def check_model(checks, tconv, path: Path, model: onnx.ModelProto):
    try:
        tensors = tensors_of(model, str(path.parent))
    except Unreadable:
        check_fails(checks, tconv, path, UNSUPPORTED)
        return
    check_hash(checks, tconv, path, tensors)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    if metadata:
        checks.equal("metadata", told_metadata(tconv, path), metadata)


def told_metadata(tconv, path: Path):
    out = tconv.run("info", "--json", path)
    return out and json.loads(out)["metadata"]


def read_external(checks, tconv):
    """Data that the package puts into files of their own, below the model's folder too."""
    tensors = every_tensor()
    whole = model_of(
        [numpy_helper.from_array(elements(tensor), name) for name, tensor in tensors.items()],
        [
            helper.make_node(
                "Constant", [], ["constant"], value=numpy_helper.from_array(np.arange(500, dtype=np.float64), "c")
            )
        ],
    )
    expected = tensors | {"constant": Tensor.of(np.arange(500, dtype="<f8"))}
    for threshold in (0, 1024):
        for attributes in (False, True):
            for location in ("data.bin", "below/weights.data", None):
                label = f"{location or 'a file a tensor'}, from {threshold} bytes, attributes {attributes}"
                with checks.case(label), tconv.folder() as folder:
                    (folder / "below").mkdir()
                    onnx.save_model(
                        copy.deepcopy(whole),
                        folder / "x.onnx",
                        save_as_external_data=True,
                        all_tensors_to_one_file=location is not None,
                        location=location,
                        size_threshold=threshold,
                        convert_attribute=attributes,
                    )
                    beside = sum(file.is_file() for file in folder.rglob("*")) - 1
                    checks.true(beside >= 1, lambda: "the package wrote no external data")
                    check_hash(checks, tconv, folder / "x.onnx", expected)
                    tconv_copy = folder / "copy.safetensors"
                    kept = ["--exclude", "^(C128|U4|I4)[.]"]
                    if tconv.convert(folder / "x.onnx", tconv_copy, *kept, "--keep-metadata=drop"):
                        some = {n: t for n, t in expected.items() if t.dtype not in ("C128", "U4", "I4")}
                        check_hash(checks, tconv, tconv_copy, some)


# From tconv to the package


def check_written(checks, path: Path, tensors: dict[str, Tensor], metadata=None):
    """What the package loads, and that its checker accepts it; in memory too where all is in one file."""
    onnx.checker.check_model(path, full_check=True)
    checks.passed += 1
    model = onnx.load(path)
    found = {proto.name: of_proto(proto) for proto in model.graph.initializer}
    checks.equal("names in order", list(found), list(tensors))
    for name, tensor in tensors.items():
        checks.equal(f"tensor {name[:60]!r}", found.get(name), tensor)
    outputs = {
        value.name: (
            DTYPES.get(value.type.tensor_type.elem_type),
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
        )
        for value in model.graph.output
    }
    checks.equal("outputs", outputs, {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
    checks.equal("metadata", {entry.key: entry.value for entry in model.metadata_props}, metadata or {})


def lowest_versions(dtypes) -> tuple[int, int]:
    """IR version and opset of the first release that has these dtypes."""
    least = {"U4": 10, "I4": 10, "F4": 11, "F8_E8M0": 12, "F6_E2M3": 14, "F6_E3M2": 14}
    ir = max([4, *(least.get(dtype, 9 if dtype.startswith("F8") else 4) for dtype in dtypes)])
    opset = 9 if ir == 4 else min(row[2] for row in helper.VERSION_TABLE if row[1] == ir)
    return ir, max(opset, 13) if "BF16" in dtypes else opset


def write_models(checks, tconv):
    tensors = every_tensor()
    metadata = {"format": "pt", "ü": "日"}
    with tconv.folder() as folder:
        source = model_of([numpy_helper.from_array(elements(tensor), name) for name, tensor in tensors.items()])
        helper.set_model_props(source, metadata)
        onnx.save(source, folder / "all.onnx")
        for options in ([], ["--onnx-external"]):
            with checks.case(f"all, {options}"):
                out = folder / f"out{len(options)}.onnx"
                if tconv.convert(folder / "all.onnx", out, *options):
                    check_written(checks, out, tensors, metadata)
                    beside = out.with_name(f"{out.name}.data").exists()
                    checks.equal("data beside it", beside, bool(options))
                back = folder / f"back{len(options)}.ot"
                if tconv.convert(out, back, "--ot-dialect", "onnx"):
                    loaded = onnx.load(back, format="protobuf")
                    checks.equal("as .ot", {p.name: of_proto(p) for p in loaded.graph.initializer}, tensors)
    held = {name: tensor for name, tensor in tensors.items() if tensor.dtype not in ("C128", "U4", "I4")}
    for dtype in DATA_TYPES:
        part = {name: tensor for name, tensor in held.items() if tensor.dtype == dtype}
        if not part:
            continue
        with checks.case(f"{dtype} from safetensors"), tconv.folder() as folder:
            (folder / "x.safetensors").write_bytes(safetensors_by_hand(Model(part), list(part)))
            if tconv.convert(folder / "x.safetensors", folder / "x.onnx", "--order=source"):
                found = {p.name: of_proto(p) for p in onnx.load(folder / "x.onnx").graph.initializer}
                checks.equal("tensors", found, part)
                model = onnx.load(folder / "x.onnx")
                versions = (model.ir_version, model.opset_import[0].version)
                checks.equal("versions", versions, lowest_versions({dtype}))
                onnx.checker.check_model(folder / "x.onnx", full_check=True)
    random = np.random.default_rng(6)
    names = {name: random_tensor(random, "F32", (at % 4,)) for at, name in enumerate(NAMES) if name}
    with checks.case("names"), tconv.folder() as folder:
        (folder / "x.safetensors").write_bytes(safetensors_by_hand(Model(names), list(names)))
        if tconv.convert(folder / "x.safetensors", folder / "x.onnx", "--order=source"):
            check_written(checks, folder / "x.onnx", names)


def write_lone_tensors(checks, tconv):
    for name, tensor in every_tensor().items():
        with checks.case(f".pb of {name}"), tconv.folder() as folder:
            (folder / "x.pb").write_bytes(numpy_helper.from_array(elements(tensor), name).SerializeToString())
            if tconv.convert(folder / "x.pb", folder / "y.pb"):
                proto = TensorProto.FromString((folder / "y.pb").read_bytes())
                checks.equal("tensor", (proto.name, of_proto(proto)), (name, tensor))
                onnx.checker.check_tensor(proto)


# onnxruntime


def run_models(checks, tconv):
    runtime = optional("onnxruntime")
    if not runtime:
        checks.skipped.append("onnxruntime")
        return
    runtime.set_default_logger_severity(4)
    tensors = every_tensor()
    for dtype in DATA_TYPES:
        part = {name: t for name, t in tensors.items() if t.dtype == dtype and t.data}
        for options in ([], ["--onnx-external"]):
            with checks.case(f"onnxruntime, {dtype}, {options}"), tconv.folder() as folder:
                source = model_of([numpy_helper.from_array(elements(t), name) for name, t in part.items()])
                onnx.save(source, folder / "x.onnx")
                if not tconv.convert(folder / "x.onnx", folder / "y.onnx", *options):
                    continue
                try:
                    session = runtime.InferenceSession(folder / "y.onnx", providers=["CPUExecutionProvider"])
                    outputs = session.run(None, {})
                except Exception as error:
                    words = " ".join(str(error).split())[:160]
                    if dtype in RUNS:
                        checks.fail(words)
                    elif not options:
                        checks.notes.append(f"onnxruntime does not run {dtype}: {words}")
                    continue
                names = [output.name for output in session.get_outputs()]
                checks.equal("outputs", names, list(part))
                for name, array in zip(names, outputs):
                    checks.equal(f"shape of output {name}", array.shape, part[name].shape)
                    # What numpy has no type for comes as bytes, packed ones with whatever is in memory behind them.
                    data = array.tobytes()[: len(part[name].data)]
                    checks.equal(f"output {name}", data, part[name].data)


# What the package brings along


def read_package_data(checks, tconv):
    """Every model and tensor among its backend tests' data."""
    root = Path(onnx.__file__).parent / "backend/test/data"
    for path in sorted(root.rglob("*.onnx")):
        with checks.case(str(path.relative_to(root))):
            check_model(checks, tconv, path, onnx.load(path))
    for path in sorted(root.rglob("*.pb")):
        with checks.case(str(path.relative_to(root))):
            model = path.parent.parent / "model.onnx"
            kind = kind_of(onnx.load(model, load_external_data=False), path.stem) if model.exists() else "tensor_type"
            check_value(checks, tconv, path, kind)


def kind_of(model: onnx.ModelProto, stem: str) -> str:
    """Which message input_0 or output_0 is."""
    side, _, at = stem.partition("_")
    values = model.graph.input if side == "input" else model.graph.output
    return values[int(at)].type.WhichOneof("value")


def check_value(checks, tconv, path: Path, kind: str):
    data = path.read_bytes()
    if kind == "tensor_type":
        proto = TensorProto.FromString(data)
        found = {}
        try:
            add_tensor(found, proto.name or path.stem, proto, "")
        except Unreadable:
            check_fails(checks, tconv, path, UNSUPPORTED)
            return
        check_hash(checks, tconv, path, found)
    elif kind == "sequence_type":
        sequence = onnx.SequenceProto.FromString(data)
        if sequence.elem_type != onnx.SequenceProto.TENSOR or any(
            proto.data_type not in DTYPES for proto in sequence.tensor_values
        ):
            check_fails(checks, tconv, path, UNSUPPORTED)
        elif not sequence.tensor_values:  # as a tensor whose data was cut off looks
            check_fails(checks, tconv, path, INVALID, UNSUPPORTED, UNSAFE)
        else:
            numbers = count()
            check_hash(checks, tconv, path, {p.name or str(next(numbers)): of_proto(p) for p in sequence.tensor_values})
    elif kind == "optional_type":
        value = onnx.OptionalProto.FromString(data)
        if value.elem_type == onnx.OptionalProto.TENSOR and value.HasField("tensor_value"):
            check_hash(checks, tconv, path, {value.tensor_value.name or "0": of_proto(value.tensor_value)})
        else:
            check_fails(checks, tconv, path, INVALID, UNSUPPORTED, UNSAFE)
    else:
        check_fails(checks, tconv, path, INVALID, UNSUPPORTED, UNSAFE)


def read_node_cases(checks, tconv):
    """The tests of single operators, which the package makes rather than ships: every dtype, list and optional."""
    from onnx.backend.test.case.node import collect_testcases

    with tconv.folder() as folder:
        for case in collect_testcases(None):
            with checks.case(case.name):
                path = folder / "model.onnx"
                path.write_bytes(case.model.SerializeToString())
                check_model(checks, tconv, path, case.model)
                for number, (inputs, outputs) in enumerate(case.data_sets or []):
                    for side, values, infos in (
                        ("input", inputs, case.model.graph.input),
                        ("output", outputs, case.model.graph.output),
                    ):
                        for at, (value, info) in enumerate(zip(values, infos)):
                            kind = info.type.WhichOneof("value")
                            proto = value_proto(value, kind, info.name)
                            if proto is not None:
                                target = folder / f"{side}_{at}.pb"
                                target.write_bytes(proto.SerializeToString())
                                check_value(checks, tconv, target, kind)
                                os.remove(target)


def value_proto(value, kind: str, name: str):
    """The message that the package's own tool writes for a value."""
    if isinstance(value, TensorProto):
        return value
    if kind == "map_type":
        return numpy_helper.from_dict(value, name)
    if kind == "sequence_type":
        return numpy_helper.from_list(value, name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, name)
    return numpy_helper.from_array(np.asarray(value), name)
