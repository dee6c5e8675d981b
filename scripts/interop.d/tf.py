"""What TensorFlow serialises, tconv reads, and the other way round: .tensor files, sparse tensors, lists, records."""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before it is loaded: it talks a lot

import numpy as np
import tensorflow as tf
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz
from tensorflow.core.framework import tensor_pb2

from models import NUMPY, SHAPES, Model, Tensor, random_tensor
from peers import Npz, Safetensors

FLOAT8 = {
    "F8_E4M3": float8_e4m3fn, "F8_E5M2": float8_e5m2, "F8_E4M3FNUZ": float8_e4m3fnuz, "F8_E5M2FNUZ": float8_e5m2fnuz,
}  # fmt: skip
ARRAYS = {**{dtype: np.dtype(name) for dtype, name in NUMPY.items()}, "BF16": np.dtype(bfloat16)}
ALL = {**ARRAYS, **{dtype: np.dtype(kind) for dtype, kind in FLOAT8.items()}}
NAMES = {dtype: name for name, dtype in ALL.items()}
WRITTEN = [dtype for dtype in ALL if "FNUZ" not in dtype]
RANDOM = np.random.default_rng(7)


def run(checks, tconv):
    for dtype in ARRAYS:  # those that have a kernel; F8 has none
        with checks.case(f"serialize_tensor, {dtype}"), tconv.folder() as folder:
            check_serialized(checks, tconv, folder, dtype)
    for dtype in WRITTEN:
        with checks.case(f"parse_tensor, {dtype}"), tconv.folder() as folder:
            check_parsed(checks, tconv, folder, dtype)
    for dtype in ALL:
        with checks.case(f"lists of values, {dtype}"), tconv.folder() as folder:
            check_lists(checks, tconv, folder, dtype)
    others = {
        "make_tensor_proto": check_protos, "ranks": check_ranks, "sparse": check_sparse,
        "many sparse": check_many_sparse, "a list": check_list, "records": check_records,
        "records by tconv": check_written_records, "named records": check_named_records, "a graph": check_graph,
        "a saved model": check_saved_model, "examples": check_examples,
    }  # fmt: skip
    for kind, check in others.items():
        with checks.case(kind), tconv.folder() as folder:
            check(checks, tconv, folder)


def array_of(tensor: Tensor) -> np.ndarray:
    return np.ndarray(tensor.shape, ALL[tensor.dtype], buffer=tensor.data)


def of_array(array: np.ndarray) -> Tensor:
    return Tensor(NAMES[array.dtype], array.shape, array.tobytes())


def samples(dtype: str):
    for shape in SHAPES:
        yield random_tensor(RANDOM, dtype, shape)


def check_serialized(checks, tconv, folder, dtype):
    file, copy = folder / "x.tensor", folder / "copy" / "x.tensor"
    copy.parent.mkdir()
    for tensor in samples(dtype):
        file.write_bytes(tf.io.serialize_tensor(array_of(tensor)).numpy())
        tconv.check_hash(file, Model({"x": tensor}))
        if tconv.convert(file, copy):
            checks.equal(f"bytes written, {list(tensor.shape)}", copy.read_bytes(), file.read_bytes())


def parsed(data: bytes) -> Tensor:
    proto = tensor_pb2.TensorProto.FromString(data)
    if proto.dtype >= 24:  # no kernel for F8, but numpy's way
        return of_array(tf.make_ndarray(proto))
    return of_array(np.array(tf.io.parse_tensor(data, tf.as_dtype(proto.dtype)).numpy()))


def check_parsed(checks, tconv, folder, dtype):
    peer = Npz(deflated=False) if dtype in NUMPY else Safetensors()
    for tensor in samples(dtype):
        source, file = folder / f"x{peer.suffix}", folder / "x.tensor"
        peer.write(source, Model({"x": tensor}))
        if tconv.convert(source, file):
            checks.equal(f"parse_tensor, {list(tensor.shape)}", parsed(file.read_bytes()), tensor)


def with_list(tensor: Tensor, length: int) -> tensor_pb2.TensorProto:
    """The first elements in the list that their dtype has."""
    array = array_of(tensor).reshape(-1)[:length]
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum)
    for size in tensor.shape:
        proto.tensor_shape.dim.add(size=size)
    if tensor.dtype in FLOAT8:
        proto.float8_val = array.tobytes()
    elif tensor.dtype in ("F16", "BF16"):
        proto.half_val.extend(array.view(np.uint16).tolist())
    elif array.dtype.kind == "c":
        parts = array.view(array.real.dtype).tolist()
        (proto.scomplex_val if tensor.dtype == "C64" else proto.dcomplex_val).extend(parts)
    else:
        fields = {
            "BOOL": "bool_val", "F32": "float_val", "F64": "double_val", "I64": "int64_val", "U32": "uint32_val",
            "U64": "uint64_val",
        }  # fmt: skip
        getattr(proto, fields.get(tensor.dtype, "int_val")).extend(array.tolist())
    return proto


def check_lists(checks, tconv, folder, dtype):
    """Whole lists, shorter ones, which go on with their last value, and empty ones."""
    file = folder / "x.tensor"
    for length in (0, 1, 5, 12):
        # From small values: a NaN's payload does not survive Python's float.
        values = (RANDOM.integers(0, 2 if dtype == "BOOL" else 100, 12)).astype(np.float32)
        array = values.astype(ALL[dtype]).reshape(3, 4)
        data = with_list(of_array(array), length).SerializeToString()
        file.write_bytes(data)
        flat = array.reshape(-1).copy()
        flat[length:] = flat[length - 1] if length else 0
        want = of_array(flat.reshape(3, 4))
        if "FNUZ" not in dtype:  # which TensorFlow names, and can't make an array of
            checks.equal(f"TensorFlow's own reading, {length} of 12", parsed(data), want)
        tconv.check_hash(file, Model({"x": want}))


def check_protos(checks, tconv, folder):
    """make_tensor_proto: lists for scalars and lists, content for arrays; splats of a shape."""
    file = folder / "x.tensor"
    for value, options in (
        (1.5, {}), ([1.0, 2.0, 3.0], {}), (7, {"shape": [2, 3]}), (True, {"shape": [5]}), ([[1, 2], [3, 4]], {}),
        (1 + 2j, {"shape": [3]}), (-1, {"dtype": tf.int8}), ([1.5, -2.5], {"dtype": tf.bfloat16}),
        ([1.5, -2.5], {"dtype": tf.float16}), (2**64 - 1, {"dtype": tf.uint64}), ([], {"dtype": tf.float32}),
    ):  # fmt: skip
        proto = tf.make_tensor_proto(value, **options)
        array = tf.make_ndarray(proto)
        file.write_bytes(proto.SerializeToString())
        tconv.check_hash(file, Model({"x": Tensor(NAMES[array.dtype], array.shape, array.tobytes())}))


def check_ranks(checks, tconv, folder):
    source, file = folder / "x.npy", folder / "x.tensor"
    for rank in (1, 8, 32, 64):
        np.save(source, np.ones((1,) * rank, np.float32))
        if tconv.convert(source, file):
            found = tf.io.parse_tensor(file.read_bytes(), tf.float32)
            checks.equal(f"rank {rank}", found.shape.rank, rank)


def sparse_group(name: str, sparse: tf.SparseTensor) -> dict[str, Tensor]:
    return {
        f"{name}.indices": of_array(np.ascontiguousarray(sparse.indices.numpy().T)),
        f"{name}.values": of_array(sparse.values.numpy()),
        f"{name}.shape": of_array(sparse.dense_shape.numpy()),
    }


def random_sparse(shape, count, dtype=np.float32) -> tf.SparseTensor:
    places = np.sort(RANDOM.choice(np.prod(shape), count, replace=False))
    indices = np.stack(np.unravel_index(places, shape), axis=1).astype(np.int64).reshape(count, len(shape))
    return tf.SparseTensor(indices, RANDOM.integers(1, 100, count).astype(dtype), shape)


def check_sparse(checks, tconv, folder):
    file, dense = folder / "s.tensor", folder / "s.npy"
    for shape, count in (((3, 4), 5), ((7,), 3), ((2, 3, 4, 5), 40), ((3, 4), 0), ((3, 4), 1), ((100, 100), 5000)):
        for dtype in (np.float32, np.int64, np.complex128, np.uint8):
            sparse = random_sparse(shape, count, dtype)
            file.write_bytes(tf.io.serialize_tensor(tf.io.serialize_sparse(sparse)).numpy())
            tconv.check_hash(file, Model(sparse_group("s", sparse)))
            if tconv.convert(file, dense, "--densify", "-q"):
                want = np.zeros(shape, dtype)
                want[tuple(sparse.indices.numpy().T)] = sparse.values.numpy()
                checks.equal(f"dense, {shape}, {count}", of_array(np.load(dense)), of_array(want))


def check_many_sparse(checks, tconv, folder):
    file = folder / "m.tensor"
    batch = random_sparse((5, 4, 6), 20)
    strings = tf.io.serialize_many_sparse(batch)
    file.write_bytes(tf.io.serialize_tensor(strings).numpy())
    want = {}
    for index in range(5):
        back = tf.io.deserialize_many_sparse(strings[index : index + 1], tf.float32, rank=3)
        one = tf.SparseTensor(back.indices[:, 1:], back.values, back.dense_shape[1:])
        want |= sparse_group(f"m.{index}", one)
    tconv.check_hash(file, Model(want))


def check_list(checks, tconv, folder):
    file = folder / "list.tensor"
    for count in (1, 2, 3, 50):
        tensors = [random_tensor(RANDOM, list(ARRAYS)[i % len(ARRAYS)], SHAPES[i % len(SHAPES)]) for i in range(count)]
        strings = [tf.io.serialize_tensor(array_of(tensor)).numpy() for tensor in tensors]
        file.write_bytes(tf.io.serialize_tensor(tf.constant(strings)).numpy())
        tconv.check_hash(file, Model({str(index): tensor for index, tensor in enumerate(tensors)}))
    file.write_bytes(tf.io.serialize_tensor(tf.constant(["some", "text"])).numpy())
    checks.equal("exit code for text", tconv.fails("hash", file).returncode, 4)


def varied(count: int) -> list[Tensor]:
    return [random_tensor(RANDOM, list(ARRAYS)[i % len(ARRAYS)], (i % 7, 3, i % 5 + 1)) for i in range(count)]


def check_records(checks, tconv, folder):
    file, copy = folder / "r.tfrecord", folder / "copy.tfrecord"
    for count in (1, 5, 300):
        tensors = varied(count)
        with tf.io.TFRecordWriter(str(file)) as writer:
            for tensor in tensors:
                writer.write(tf.io.serialize_tensor(array_of(tensor)).numpy())
        tconv.check_hash(file, Model({str(index): tensor for index, tensor in enumerate(tensors)}))
        if tconv.convert(file, copy):
            checks.equal("bytes written", copy.read_bytes() == file.read_bytes(), True)
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    checks.equal("exit code for damage", tconv.fails("hash", file).returncode, 3)


def check_written_records(checks, tconv, folder):
    source, file = folder / "x.safetensors", folder / "x.tfrecord"
    tensors = {f"{index:03}": t for index, t in enumerate(varied(100)) if t.dtype != "C128"}
    tensors["large"] = random_tensor(RANDOM, "F32", (1000, 3000))
    Safetensors().write(source, Model(tensors))
    if tconv.convert(source, file, "--order=name"):
        found = [parsed(data) for data in tf.data.TFRecordDataset(str(file)).as_numpy_iterator()]
        checks.equal("tensors in TFRecordDataset", found, list(tensors.values()))


def check_named_records(checks, tconv, folder):
    source, file, back = folder / "x.npz", folder / "x.tfrecord", folder / "y.npz"
    model = Model({f"layer.{index}": t for index, t in enumerate(varied(9)) if t.dtype in NUMPY})
    Npz(deflated=False).write(source, model)
    checks.equal("exit code with --strict", tconv.fails("--strict", source, file).returncode, 4)
    if tconv.convert(source, file, "--strict", "--keep-metadata=sidecar") and tconv.convert(file, back):
        checks.same_model(Npz(deflated=False).read(back), model)


def double(x):
    return x * 2.0


def check_graph(checks, tconv, folder):
    file = folder / "graph.pb"
    function = tf.function(double).get_concrete_function(tf.TensorSpec([None], tf.float32))
    file.write_bytes(function.graph.as_graph_def().SerializeToString())
    done = tconv.fails("info", file)
    checks.equal("exit code", done.returncode, 4)
    checks.true("TensorFlow graph" in done.stderr, lambda: f"not told what it is: {done.stderr}")


def check_saved_model(checks, tconv, folder):
    module = tf.Module()
    module.weight = tf.Variable([1.0, 2.0])
    tf.saved_model.save(module, str(folder / "model"))
    done = tconv.fails("info", folder / "model" / "saved_model.pb")
    checks.equal("exit code", done.returncode, 4)
    checks.true("saved model" in done.stderr, lambda: f"not told what it is: {done.stderr}")


def check_examples(checks, tconv, folder):
    file = folder / "examples.tfrecord"
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(example.SerializeToString())
    done = tconv.fails("info", file)
    checks.equal("exit code", done.returncode, 4)
    checks.true("tf.train.Example" in done.stderr, lambda: f"not told what it is: {done.stderr}")
