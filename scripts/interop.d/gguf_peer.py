"""GGUF: the gguf package reads what tconv writes, and the reverse, quantised types and metadata included."""
from hashlib import sha256

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

PLAIN = {
    Type.F32: ("F32", np.float32), Type.F16: ("F16", np.float16), Type.F64: ("F64", np.float64),
    Type.I8: ("I8", np.int8), Type.I16: ("I16", np.int16), Type.I32: ("I32", np.int32), Type.I64: ("I64", np.int64),
}  # fmt: skip
# What the package itself can quantise; of the others it dequantises most.
QUANTISED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.TQ1_0, Type.TQ2_0, Type.MXFP4, Type.BF16]


def run(checks, tconv):
    random = np.random.default_rng(5)
    with checks.case("written by gguf"), tconv.folder() as folder:
        source = folder / "peer.gguf"
        write(source, random)
        check_read(checks, tconv, source, folder)
    with checks.case("read by gguf"), tconv.folder() as folder:
        source = folder / "peer.gguf"
        write(source, random)
        check_written(checks, tconv, source, folder)
    with checks.case("split files"), tconv.folder() as folder:
        check_split(checks, tconv, folder, random)


def write(path, random):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("u32", 7)
    writer.add_int64("i64", -7)
    writer.add_float32("f32", 1e-5)
    writer.add_bool("flag", True)
    writer.add_array("tokens", ["<s>", "ünï", ""])
    writer.add_array("scores", [0.5, -1.0])
    for dtype, (_, numpy) in PLAIN.items():
        writer.add_tensor(f"plain.{dtype.name}", random.integers(-9, 9, (3, 5)).astype(numpy))
    for dtype in QUANTISED:
        values = random.standard_normal((3, 512)).astype(np.float32)
        writer.add_tensor(f"q.{dtype.name}", gguf.quants.quantize(values, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(path):
    """name: (dtype, shape, bytes, F32 values or None)"""
    held = {}
    for tensor in gguf.GGUFReader(path).tensors:
        data = np.asarray(tensor.data)
        try:
            values = np.asarray(gguf.quants.dequantize(data, tensor.tensor_type), np.float32)
        except NotImplementedError:
            values = None
        shape = tuple(int(dim) for dim in reversed(tensor.shape))
        held[tensor.name] = (tensor.tensor_type.name, shape, data.tobytes(), values)
    return held


def stored(held):
    """The same without the values."""
    return {name: tensor[:3] for name, tensor in held.items()}


def fields(path):
    reader = gguf.GGUFReader(path)
    return {
        name: ([kind.name for kind in field.types], field.contents())
        for name, field in reader.fields.items() if not name.startswith("GGUF.")
    }


def check_read(checks, tconv, source, folder):
    lines = (tconv.run("hash", source) or b"").decode().splitlines()
    expected = sorted(
        f'{sha256(data).hexdigest()}  {dtype}  [{",".join(map(str, shape))}]  "{name}"'
        for name, (dtype, shape, data, _) in tensors(source).items()
    )
    checks.equal("hashes of the stored bytes", sorted(lines), expected)
    if not tconv.convert(source, folder / "values.npz"):
        return
    values = np.load(folder / "values.npz")
    for name, (dtype, shape, _, dequantised) in tensors(source).items():
        if name.startswith("q.") and dequantised is not None:
            same = values[name].reshape(shape).tobytes() == dequantised.reshape(shape).tobytes()
            checks.equal(f"values of {name}", same, True)


def check_written(checks, tconv, source, folder):
    for detour in ("copy.gguf", "between.safetensors"):
        out = folder / "out.gguf"
        if not tconv.convert(source, folder / detour) or not tconv.convert(folder / detour, out):
            continue
        checks.equal(f"metadata by way of {detour}", fields(out), fields(source))
        if detour == "copy.gguf":
            checks.equal("tensors", stored(tensors(out)), stored(tensors(source)))


def check_split(checks, tconv, folder, random):
    source = folder / "peer.gguf"
    write(source, random)
    tconv.convert(source, folder / "m.gguf", "--shard-size", "4K")
    parts = sorted(folder.glob("m-*.gguf"))
    held = {}
    for part in parts:
        held.update(tensors(part))
    checks.equal("all parts", stored(held), stored(tensors(source)))
    first = fields(parts[0])
    checks.equal("split.count", first["split.count"], (["UINT16"], len(parts)))
    checks.equal("split.tensors.count", first["split.tensors.count"], (["INT32"], len(held)))
