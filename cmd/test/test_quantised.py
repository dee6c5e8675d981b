#!/usr/bin/env python3
"""Quantised weights of any shape: GGUF files and weights with scales of their own, made at random.

What they hold is known here by other formulas (block_values, scaled_weights). TCONV_TEST_SEED=N
makes those of another run; the seed is printed.
"""

import functools
import json
import math
import os
import random
import struct
import sys
from hashlib import sha256

import block_values
import gguf_files
import pickles
import scaled_weights
from files import Tensor, hash_text, read_npz, read_safetensors, safetensors
from gguf_files import ARRAY, BLOCKS, BOOL, DTYPES, F32, F64, STRING, STRUCTS
from harness import INVALID, OK, UNSAFE, Suite, check_equal, expect, one_in

SEED = int(os.environ.get("TCONV_TEST_SEED", 17))
CPUS = ({"TCONV_CPU": "plain"}, {})
PLAIN = {"F32": 4, "F16": 2, "F64": 8, "BF16": 2, "I8": 1, "I16": 2, "I32": 4, "I64": 8}
WORDS = "U8 I8 U16 I16 U32 I32 F32 BOOL STRING ARRAY U64 I64 F64".split()


# GGUF files


def gguf_shape(dice, dtype):
    """Of any rank that the dtype allows; rows are whole blocks."""
    block = DTYPES[dtype][1]
    rank = dice.randint(0 if block == 1 else 1, 4)
    shape = [dice.choice((1, 1, 2, 3, 5)) for _ in range(rank)]
    if rank and dice.random() < 0.1:
        shape[dice.randrange(rank)] = 0
    if rank:
        shape[-1] *= block if block > 1 else dice.choice((1, 7, 33))
    return shape


def gguf_tensor(dice, dtype):
    shape = gguf_shape(dice, dtype)
    blocks = math.prod(shape) // DTYPES[dtype][1]
    if dtype in BLOCKS:
        return Tensor(dtype, shape, b"".join(block_values.make_block(dtype, dice) for _ in range(blocks)))
    return Tensor(dtype, shape, dice.randbytes(blocks * PLAIN[dtype]))


def scalar(dice, kind):
    """A value of a type of metadata."""
    if kind == STRING:
        return dice.choice(("", "x", 'say "ü"\\\n\t\x01', "[1,2]", "7", "true", "😀", "null"))
    if kind == BOOL:
        return dice.random() < 0.5
    if kind in (F32, F64):
        value = dice.choice(
            (0.0, -0.0, 1e-5, 0.1, 1.0, -3.0, 1e15, 123456789.0, 1e300, -2.5e-44, math.inf, -math.inf, dice.gauss(0, 9))
        )
        return struct.unpack("<f", scaled_weights.stored(value, "F32"))[0] if kind == F32 else value
    size = 8 * struct.calcsize(STRUCTS[kind])
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if STRUCTS[kind].islower() else (0, (1 << size) - 1)
    return dice.choice((low, high, 0, 1, dice.randint(low, high)))


def nested(dice, kind, depth):
    count = dice.choice((0, 1, 2, 5)) if depth == 1 else dice.randint(1, 3)
    return [nested(dice, kind, depth - 1) if depth > 1 else scalar(dice, kind) for _ in range(count)]


def real_text(value, kind):
    """The fewest digits that give the same number of this precision."""
    if math.isinf(value):
        return '"-Infinity"' if value < 0 else '"Infinity"'
    if value == math.trunc(value) and abs(value) < 1e15:
        return f"{value:.0f}"
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        back = float(text)
        if back == value or (kind == F32 and scaled_weights.rounded(back, "F32") == value):
            return text
    raise AssertionError(value)


def text_of(value, kind, inside=False):
    """A value as tconv shows it: strings as they are, all else as compact JSON."""
    if isinstance(value, list):
        return "[" + ",".join(text_of(each, kind, True) for each in value) + "]"
    if kind == STRING:
        return json.dumps(value, ensure_ascii=False) if inside else value
    if kind == BOOL:
        return "true" if value else "false"
    return real_text(value, kind) if kind in (F32, F64) else str(value)


def packed(value, kind, depth):
    """The bytes of a value; arrays of arrays carry their types with them."""
    if not depth:
        return gguf_files.string(value) if kind == STRING else struct.pack(f"<{STRUCTS[kind]}", value)
    inner = ARRAY if depth > 1 else kind
    return struct.pack("<IQ", inner, len(value)) + b"".join(packed(each, kind, depth - 1) for each in value)


def gguf_metadata(dice, alignment):
    """Pairs as bytes; what each is as text; the words of those that are no strings."""
    pairs, texts, words = [], {}, {}

    def add(key, kind, value, depth):
        pairs.append(gguf_files.pair(key, ARRAY if depth else kind, packed(value, kind, depth)))
        texts[key] = text_of(value, kind)
        if depth or kind != STRING:
            words[key] = "[" * depth + WORDS[kind] + "]" * depth

    kinds = [kind for kind in range(13) if kind != ARRAY]
    for kind in kinds:
        add(f"one.{WORDS[kind]}", kind, scalar(dice, kind), 0)
        depth = dice.choice((1, 1, 2, 3))
        add(f"many.{WORDS[kind]}", kind, nested(dice, kind, depth), depth)
    if alignment != 32 or dice.random() < 0.3:
        add("general.alignment", gguf_files.U32, alignment, 0)
    return pairs, texts, words


class Made:
    def __init__(self, dice):
        self.alignment = dice.choice((1, 2, 8, 32, 32, 64, 4096))
        self.version = dice.choice((2, 3))
        names = [*dice.sample(sorted(DTYPES), dice.randint(1, 8)), "F32"]
        self.tensors = {f"t{i}.{name}": gguf_tensor(dice, name) for i, name in enumerate(names)}
        pairs, self.texts, self.words = gguf_metadata(dice, self.alignment)
        self.bytes = gguf_files.gguf(self.tensors, pairs, self.alignment, self.version)

    def values(self):
        """What every other format gets."""
        return {
            name: Tensor("F32", t.shape, block_values.dequantise(t.dtype, t.data)) if t.dtype in BLOCKS else t
            for name, t in self.tensors.items()
        }


def plain(tensors):
    """What is compared, short enough to be shown."""
    return {name: (t.dtype, list(t.shape), sha256(t.data).hexdigest()[:16]) for name, t in tensors.items()}


def safetensors_header(path):
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def gguf_case(number, folder):
    dice = random.Random(f"{SEED} gguf {number}")
    made, env = Made(dice), dice.choice(CPUS)
    source = folder / "in.gguf"
    source.write_bytes(made.bytes)
    check_equal(expect(folder, OK, "hash", source).out.decode(), hash_text(made.tensors), "hash")
    info = json.loads(expect(folder, OK, "info", "--json", source).out)
    check_equal(info["metadata"], made.texts, "metadata as text")
    bits = {t["name"]: t.get("bits_per_weight") for t in info["tensors"] if t["dtype"] in BLOCKS}
    check_equal(
        bits,
        {n: 8 * DTYPES[t.dtype][2] / DTYPES[t.dtype][1] for n, t in made.tensors.items() if t.dtype in BLOCKS},
        "bits a weight",
    )
    result = expect(folder, OK, source, "out.safetensors", env=env)
    written = read_safetensors(folder / "out.safetensors")
    check_equal(plain(written), plain(made.values()), "values", result)
    told = b"dequantised" in result.err
    check_equal(told, any(t.dtype in BLOCKS for t in made.tensors.values()), "told in the ledger", result)
    kept = dict(safetensors_header(folder / "out.safetensors")["__metadata__"])
    types = kept.pop("tconv.gguf_types")
    check_equal(types, json.dumps(made.words, separators=(",", ":"), sort_keys=True), "types")
    check_equal(kept, made.texts, "metadata of safetensors")
    returns(made, dice, folder)
    narrows(made, dice, folder)


def returns(made, dice, folder):
    """GGUF again: bit for bit straight, with its types by way of other formats, and in parts."""
    first = gguf_files.read(folder / "in.gguf")[0]
    version = dice.choice((2, 3))
    expect(folder, OK, "in.gguf", "same.gguf", "--gguf-version", version)
    metadata, tensors, got = gguf_files.read(folder / "same.gguf")
    check_equal([got, metadata, plain(tensors)], [version, first, plain(made.tensors)], "GGUF again")
    way = dice.choice(("out.safetensors", "way.pt", "way.deathtensors", "way.onnx"))
    if way != "out.safetensors":
        expect(folder, OK, "in.gguf", way)
    expect(folder, OK, way, "back.gguf")
    metadata, tensors, _ = gguf_files.read(folder / "back.gguf")
    if way == "way.pt":  # tells where it came from
        first = {**first, "format": (STRING, "pt")}
    check_equal(metadata, first, f"typed metadata by way of {way}")
    check_equal(plain(tensors), plain(made.values()), f"values by way of {way}")
    key = dice.choice(sorted(made.words.keys() - {"general.alignment"}))
    expect(folder, OK, way, "set.gguf", "--metadata", f"{key}=12")
    got = gguf_files.read(folder / "set.gguf")[0]
    check_equal(got, {**first, key: (STRING, "12")}, "a key that was set has no type")
    expect(folder, OK, "in.gguf", "parts.gguf", "--shard-size", dice.choice((64, 300, 2000)))
    head = next(iter(sorted(folder.glob("parts-00001-of-*.gguf"))), folder / "parts.gguf")
    expect(folder, OK, head, "whole.gguf")
    metadata, tensors, _ = gguf_files.read(folder / "whole.gguf")
    first.pop("format", None)
    check_equal([metadata, plain(tensors)], [first, plain(made.tensors)], "in parts and whole again")


def narrows(made, dice, folder):
    dtype = dice.choice(("BF16", "F16"))
    names = {name: t for name, t in made.values().items() if made.tensors[name].dtype in BLOCKS}
    if not names:
        return
    expect(folder, OK, "in.gguf", "n.safetensors", "--lossy", "--dtype", rf"\.[A-Z]*[Q0-9].*={dtype}", "--saturate")
    got = read_safetensors(folder / "n.safetensors")
    for name, tensor in names.items():
        values = struct.unpack(f"<{len(tensor.data) // 4}f", tensor.data)
        data = b"".join(scaled_weights.stored(value, dtype) for value in values)
        check_equal(got[name].data == data, True, f"{name} as {dtype}")


# Scales of their own


def canonical(tensor):
    """With every NaN as programs agree on it."""
    form, one, limit, nan = {
        "BF16": ("H", 0x7FFF, 0x7F80, 0x7FC0),
        "F16": ("H", 0x7FFF, 0x7C00, 0x7E00),
        "F32": ("I", 0x7FFFFFFF, 0x7F800000, 0x7FC00000),
    }.get(tensor.dtype, (None, 0, 0, 0))
    data = tensor.data
    if form:
        bits = [nan if x & one > limit else x for (x,) in struct.iter_unpack(f"<{form}", data)]
        data = struct.pack(f"<{len(bits)}{form}", *bits)
    return tensor._replace(data=data)


def all_canonical(tensors):
    return plain({name: canonical(tensor) for name, tensor in tensors.items()})


def write_model(model, dice, folder):
    """One file, shards with an index, or several files of different formats; returns the inputs."""
    if model.config is not None:
        (folder / "config.json").write_text(json.dumps(model.config, indent=dice.choice((None, 2))))
    if model.quant_file is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(model.quant_file))
    names = list(model.tensors)
    dice.shuffle(names)
    layout = dice.choice(("one", "shards", "several"))
    if layout == "one":
        (folder / "model.safetensors").write_bytes(safetensors(model.tensors))
        return ["model.safetensors"]
    cut = dice.randint(1, len(names) - 1)
    halves = [{name: model.tensors[name] for name in part} for part in (names[:cut], names[cut:])]
    if layout == "several":
        second = dice.choice(("b.safetensors", "b.pt"))
        (folder / "a.safetensors").write_bytes(safetensors(halves[0]))
        (folder / second).write_bytes(
            safetensors(halves[1]) if second == "b.safetensors" else pickles.pt_of(halves[1])
        )
        return ["a.safetensors", second]
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for file, part in zip(files, halves):
        (folder / file).write_bytes(safetensors(part))
    where = {name: file for file, part in zip(files, halves) for name in part}
    index = {"metadata": {"total_size": sum(len(t.data) for t in model.tensors.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return ["model.safetensors.index.json"]


def scaled_case(kind, number, folder):
    dice = random.Random(f"{SEED} {kind} {number}")
    model = scaled_weights.make(kind, dice)
    (folder / "m").mkdir()
    inputs = [folder / "m" / name for name in write_model(model, dice, folder / "m")]
    env = dice.choice(CPUS)
    result = expect(folder, OK, "--dequantize", *inputs, "-o", "out.safetensors", env=env)
    got = read_safetensors(folder / "out.safetensors")
    check_equal(all_canonical(got), all_canonical(model.expected), "what it stands for", result)
    check_equal(b"dequantised" in result.err, True, "told in the ledger", result)
    expect(folder, OK, "--dequantize", "--dtype", "F32", *inputs, "-o", "wide.npz", env=env)
    wide = read_npz(folder / "wide.npz")
    check_equal(
        all_canonical({name: wide[name] for name in model.expected_f32}),
        all_canonical(model.expected_f32),
        "before the last rounding",
    )
    if len(inputs) == 1:
        check_folder(model, folder)


def without_scales(config):
    rest = {key: value for key, value in config.items() if key != "quantization_config"}
    return {key: without_scales(value) if isinstance(value, dict) else value for key, value in rest.items()}


def check_folder(model, folder):
    """A folder's configuration no longer speaks of scales; the rest of it stays."""
    (folder / "m" / "tokenizer.json").write_text("{}")
    expect(folder, OK, "--dequantize", "-t", "safetensors", "m", "o/")
    if model.config is not None:
        rest = without_scales(model.config)
        check_equal(json.loads((folder / "o/config.json").read_text()), rest, "config.json")
    check_equal((folder / "o/hf_quant_config.json").exists(), False, "hf_quant_config.json")
    check_equal((folder / "o/tokenizer.json").read_text(), "{}", "other files")
    inside = next((folder / "o").glob("*.index.json"), folder / "o/model.safetensors")
    expect(folder, OK, inside, "again.safetensors")
    got = read_safetensors(folder / "again.safetensors")
    check_equal(all_canonical(got), all_canonical(model.expected), "a folder")


# Of each method, how its list is called, one that has the module, and one that has not.
LISTS = (
    ("compressed-tensors", "ignore", ["lm_head", "re:.*\\.gate$", "a.x.down"], True),
    ("compressed-tensors", "ignore", ["re:a[.]x[.]d"], True),
    ("compressed-tensors", "ignore", ["re:x[.]down", "a.x", "down", "*", ""], False),
    ("compressed-tensors", "modules_to_not_convert", ["a.x.down"], False),
    ("fp8", "modules_to_not_convert", ["lm_head", "a.x.down"], True),
    ("fp8", "modules_to_not_convert", ["a.x"], True),
    ("mxfp4", "modules_to_not_convert", ["x.down"], True),
    ("fp8", "modules_to_not_convert", ["a.x.dow", "re:.*", "*", "own", ""], False),
    ("fp8", "ignore", ["a.x.down"], False),
    ("fp8", "modules_to_not_convert", None, False),
    ("fp8", "modules_to_not_convert", [7, {}], False),
    ("modelopt", "exclude_modules", ["lm_head*", "a.*.do?n", "a*down"], True),
    ("modelopt", "ignore", ["*x.down"], True),
    ("modelopt", "exclude_modules", ["*.dow", "a?x*", "a.x", "A.*"], False),
)


def spared(folder):
    """An F8 weight without a scale is kept where the config says that its module is not quantised."""
    weight = Tensor("F8_E4M3", [2, 2], b"1234")
    (folder / "m.safetensors").write_bytes(safetensors({"a.x.down.weight": weight}))
    for method, key, names, kept in LISTS:
        config = {"quantization_config": {"quant_method": method, key: names}}
        (folder / "config.json").write_text(json.dumps(config))
        result = expect(folder, OK if kept else INVALID, "-v", "--dequantize", "m.safetensors", "o.safetensors", quiet=False)
        check_equal(b"not quantised: kept" in result.err, kept, f"{key} {names}", result)
        if kept:
            check_equal(read_safetensors(folder / "o.safetensors")["a.x.down.weight"], weight, "the weight", result)
    for names, code in ((["re:(a"], INVALID), (["re:(a|aa)+c"], UNSAFE)):
        config = {"quantization_config": {"quant_method": "compressed-tensors", "ignore": names}}
        (folder / "config.json").write_text(json.dumps(config))
        long = safetensors({"a" * 300 + "b.c.weight": weight})
        (folder / "m.safetensors").write_bytes(long)
        expect(folder, code, "--dequantize", "m.safetensors", "o.safetensors", quiet=False)


def cases():
    yield "spared", spared
    for number in range(60):
        name = f"gguf {number}"
        if one_in(5, name):
            yield name, functools.partial(gguf_case, number)
    for kind in scaled_weights.KINDS:
        for number in range(12):
            name = f"{kind} {number}"
            if one_in(5, name):
                yield name, functools.partial(scaled_case, kind, number)


if __name__ == "__main__":
    print(f"seed {SEED}")
    sys.exit(Suite(__doc__).run(cases()))
