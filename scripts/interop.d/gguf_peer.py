"""GGUF: the gguf package, ggml and llama.cpp read what tconv writes, and the reverse, quantised types and metadata
included."""
import os
import subprocess
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
    if not os.access(os.environ.get("INTEROP_GGML", ""), os.X_OK):
        checks.skipped.append("ggml and llama.cpp could not be built")
        return
    with checks.case("values by ggml"), tconv.folder() as folder:
        check_values(checks, tconv, folder, random)
    for dtype in (None, Type.Q8_0, Type.Q4_0):
        with checks.case(f"a model in llama.cpp, {dtype.name if dtype else 'F32'}"), tconv.folder() as folder:
            check_model(checks, tconv, folder, random, dtype)


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


def ggml(*words):
    """What the program built from llama.cpp prints; None where it refuses the file."""
    done = subprocess.run([os.environ["INTEROP_GGML"], *map(str, words)], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def check_values(checks, tconv, folder, random):
    """Random blocks of every type: F32 values as ggml's own code gives them, NaN left out."""
    writer = gguf.GGUFWriter(folder / "made.gguf", "llama")
    for dtype, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        if elements > 1 and dtype.name not in ("Q8_1", "Q8_K"):
            data = random.integers(0, 256, (5, 64 * 256 // elements * size), np.uint8)
            writer.add_tensor(dtype.name, data, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if not tconv.convert(folder / "made.gguf", folder / "copy.gguf") or not tconv.convert(
        folder / "copy.gguf", folder / "values.npz"
    ):
        return
    lines = (ggml("values", folder / "copy.gguf", folder / "values.bin") or "").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("tensor ")]
    expected = np.fromfile(folder / "values.bin", np.float32)
    held = np.load(folder / "values.npz")
    checks.equal("tensors", sorted(names), sorted(held.files))
    at = 0
    for name in names:
        got = held[name].reshape(-1)
        want = expected[at : at + got.size]
        at += got.size
        number = ~np.isnan(want)
        same = np.array_equal(got[number].view(np.uint32), want[number].view(np.uint32))
        checks.equal(f"values of {name}", (same, bool(np.isnan(got[~number]).all())), (True, True))


def write_model(path, random, dtype):
    """A llama of one layer that has no vocabulary."""
    width, inner, heads, words = 256, 512, 4, 64
    writer = gguf.GGUFWriter(path, "llama")
    for add, value in (
        (writer.add_context_length, 128), (writer.add_embedding_length, width), (writer.add_block_count, 1),
        (writer.add_feed_forward_length, inner), (writer.add_head_count, heads), (writer.add_head_count_kv, heads),
        (writer.add_layer_norm_rms_eps, 1e-5), (writer.add_rope_dimension_count, width // heads),
        (writer.add_vocab_size, words), (writer.add_tokenizer_model, "no_vocab"),
    ):  # fmt: skip
        add(value)
    shapes = {"token_embd": (words, width), "output_norm": (width,), "output": (words, width)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes[f"blk.0.{name}"] = (width, width)
    shapes |= {"blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,), "blk.0.ffn_gate": (inner, width)}
    shapes |= {"blk.0.ffn_up": (inner, width), "blk.0.ffn_down": (width, inner)}
    for name, shape in shapes.items():
        values = random.standard_normal(shape).astype(np.float32)
        if dtype and len(shape) == 2:
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, dtype), raw_dtype=dtype)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_model(checks, tconv, folder, random, dtype):
    """llama.cpp loads the model as it was, copied, by way of safetensors, in version 2 and in parts."""
    write_model(folder / "m.gguf", random, dtype)
    want = ggml("load", folder / "m.gguf")
    checks.true(bool(want), lambda: "llama.cpp does not load the model itself")
    tconv.convert(folder / "m.gguf", folder / "copy.gguf")
    copy = (ggml("load", folder / "copy.gguf") or "").splitlines()  # in no order
    checks.equal("copy", sorted(copy), sorted((want or "").splitlines()))
    tconv.convert(folder / "m.gguf", folder / "parts.gguf", "--shard-size", "300K")
    first = min(folder.glob("parts-00001-of-*.gguf"))
    kept = [line for line in (ggml("load", first) or "").splitlines() if not line.startswith("split.")]
    checks.equal("in parts", sorted(kept), sorted((want or "").splitlines()))
    tconv.convert(folder / "m.gguf", folder / "way.safetensors")
    tconv.convert(folder / "way.safetensors", folder / "back.gguf", "--gguf-version", "2")
    back = (ggml("load", folder / "back.gguf") or "").splitlines()
    checks.equal("by way of safetensors, metadata", sorted(back[:-1]), sorted((want or "").splitlines()[:-1]))
    checks.true(bool(back) and (dtype is not None or back[-1] == want.splitlines()[-1]), lambda: "parameters differ")
