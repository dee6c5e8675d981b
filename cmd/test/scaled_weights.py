"""Weights with scales of their own, of every kind that --dequantize knows, and what they stand for.

A maker takes dice and returns a Model. Values come from formulas in Python floats, which hold every
product here exactly; what is rounded, when, and to which dtype is spelt out for each kind.
"""

import math
import struct
from dataclasses import dataclass, field

from files import Tensor

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1}


@dataclass
class Model:
    tensors: dict
    config: dict = None  # config.json
    expected: dict = field(default_factory=dict)  # name: Tensor
    expected_f32: dict = field(default_factory=dict)  # what --dtype F32 gives, of weights alone
    quant_file: dict = None  # hf_quant_config.json


def volume(shape):
    return math.prod(shape)


def e2m1(code):
    return -E2M1[code & 7] if code & 8 else E2M1[code]


def e2m3(code):
    exponent, mantissa = code >> 3 & 3, code & 7
    size = math.ldexp(8 + mantissa, exponent - 4) if exponent else mantissa / 8
    return -size if code & 32 else size


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 127 == 127:
        return math.nan
    size = math.ldexp(8 + mantissa, exponent - 10) if exponent else math.ldexp(mantissa, -9)
    return -size if code & 128 else size


def f32_bits(value):
    try:
        return int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def stored(value, dtype):
    """A number, F32 already, as the bytes of a dtype; NaN as programs agree on it."""
    bits = f32_bits(value)
    if dtype == "F32":
        return struct.pack("<I", 0x7FC00000 if value != value else bits)
    if dtype == "BF16":
        rounded = 0x7FC0 if value != value else bits + 0x7FFF + (bits >> 16 & 1) >> 16
        return struct.pack("<H", rounded)
    try:
        return struct.pack("<H", 0x7E00) if value != value else struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<H", 0xFC00 if value < 0 else 0x7C00)


def rounded(value, dtype):
    """The value that a dtype has for a number; every step but the first starts from F32."""
    if dtype == "BF16":
        return struct.unpack("<f", b"\0\0" + stored(rounded(value, "F32"), "BF16"))[0]
    return struct.unpack({"F32": "<f", "F16": "<e"}[dtype], stored(value, dtype))[0]


def real_scales(dice, count, dtype):
    """Scales of many sizes, some of them strange: negative, zero, subnormal."""
    values = []
    for _ in range(count):
        value = dice.uniform(0.5, 2) * 2.0 ** dice.randint(-20, 4)
        values.append(dice.choice([value] * 12 + [-value, 0.0, -0.0, 1e-40, 3e4]))
    values = [rounded(value, dtype) for value in values]
    return values, b"".join(stored(value, dtype) for value in values)


def exponent_bytes(dice, count):
    return bytes(dice.choice((dice.randint(100, 140), dice.randint(0, 254))) for _ in range(count))


def powers(data):
    return [math.ldexp(1, byte - 127) for byte in data]


def grid_values(codes, shape, scales, block, dtypes, product):
    """Elements in order, each with the scale of its block; leading dimensions have grids of their
    own. `product` gives a number from a code's value and a scale; a block of 0 is all."""
    rows, columns = (shape[-2] if len(shape) > 1 else 1), (shape[-1] if shape else 1)
    down, across = block[0] or max(rows, 1), block[1] or max(columns, 1)
    grid = (-(-rows // down), -(-columns // across))
    results = {dtype: bytearray() for dtype in dtypes}
    for at, code in enumerate(codes):
        matrix, place = divmod(at, rows * columns)
        row, column = divmod(place, columns)
        one = len(scales) == 1 and not any(block)
        number = 0 if one else (matrix * grid[0] + row // down) * grid[1] + column // across
        for dtype in dtypes:
            results[dtype] += stored(product(code, scales[number], dtype), dtype)
    return {dtype: bytes(data) for dtype, data in results.items()}


def plain_product(value, scale, _dtype):
    return rounded(value * scale, "F32")


def random_shape(dice, columns=1, least=2):
    """The rows and columns of a matrix, most often with something before it; whole units of
    `columns` in the last dimension."""
    lead = dice.choice(([], [], [2], [1, 3], [0])) if least <= 2 else []
    rows = dice.choice((1, 2, 3, 5, 17, 33, 130))
    units = dice.choice((1, 2, 3, 5) if columns > 1 else (1, 3, 7, 16, 31, 64, 129))
    return [*lead, rows, units * columns]


def grid_of(shape, block):
    return [*shape[:-2], -(-shape[-2] // block[0]), -(-shape[-1] // block[1])]


def bystanders(dice):
    """Tensors that stay as they are, some with names that look like a scale's."""
    return {
        "norm.weight": Tensor("BF16", [3], dice.randbytes(6)),
        "hc_attn_scale": Tensor("F32", [2], struct.pack("<2f", 1.5, -2)),
        "ids": Tensor("I64", [2, 1], dice.randbytes(16)),
        "plain.scale": Tensor("F32", [1], struct.pack("<f", 3)),
        "plain.weight": Tensor("BF16", [1, 2], dice.randbytes(4)),
    }


def model_dtype(dice, config):
    """Has a config name the model's dtype, as older or newer files do, or not at all."""
    name, dtype = dice.choice(
        (("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32"), (None, "BF16"))
    )
    if name:
        config[dice.choice(("torch_dtype", "dtype"))] = name
    return dtype


def finish(model, results, shape, name, dtype):
    model.expected[name] = Tensor(dtype, shape, results[dtype])
    model.expected_f32[name] = Tensor("F32", shape, results["F32"])


def scaled_fp8(model, dice, name, scale_name, dtype, block, scale_dtype, product=plain_product, grid=None):
    """Adds an F8 weight and its scales, a grid of them unless a shape is given."""
    shape = random_shape(dice)
    codes = dice.randbytes(volume(shape))
    grid = grid_of(shape, block) if grid is None else grid(shape)
    values, data = real_scales(dice, volume(grid), scale_dtype)
    model.tensors[name] = Tensor("F8_E4M3", shape, codes)
    model.tensors[scale_name] = Tensor(scale_dtype, grid, data)
    results = grid_values(map(e4m3, codes), shape, values, block, {dtype, "F32"}, product)
    finish(model, results, shape, name, dtype)


def fp8_blocks(dice):
    block = dice.choice(([128, 128], [1, 128], [16, 3], [5, 64], [1, 1], None))
    config = {"quantization_config": {"quant_method": "fp8"}, "hidden_size": 7}
    if block:
        config["quantization_config"]["weight_block_size"] = block
    dtype = model_dtype(dice, config)
    model = Model(bystanders(dice), config)
    for name in ("a.weight", "experts.gate_up_proj", "layers.0.w"):
        scale_dtype = dice.choice(("F32", "BF16"))
        scaled_fp8(model, dice, name, f"{name}_scale_inv", dtype, block or [128, 128], scale_dtype)
    if dice.random() < 0.3:  # without a config: BF16, 128 x 128
        return fp8_without_config(dice)
    return model


def fp8_without_config(dice):
    model = Model(bystanders(dice))
    for name in ("a.weight", "b.weight"):
        scaled_fp8(model, dice, name, f"{name}_scale_inv", "BF16", [128, 128], "F32")
    return model


def fp8_one_scale(dice):
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": None}}
    model = Model(bystanders(dice), config)
    dtype = model_dtype(dice, config)
    shape = dice.choice(([], [1]))
    for name in ("a.weight", "b.weight"):
        scaled_fp8(
            model, dice, name, f"{name}_scale_inv", dtype, [0, 0], "F32", grid=lambda _: shape
        )
    model.tensors["a.activation_scale"] = Tensor("F32", [], struct.pack("<f", 2))
    return model


def deepseek_v4(dice):
    block = dice.choice(([128, 128], [32, 32], [1, 7]))
    quantisation = {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": block}
    config = {"quantization_config": quantisation, "expert_dtype": "fp4"}
    model = Model(bystanders(dice), config)
    dtype = model_dtype(dice, config)
    shape = random_shape(dice)
    codes, grid = dice.randbytes(volume(shape)), grid_of(shape, block)
    data = exponent_bytes(dice, volume(grid))
    model.tensors.update({"a.weight": Tensor("F8_E4M3", shape, codes), "a.scale": Tensor("F8_E8M0", grid, data)})
    results = grid_values(map(e4m3, codes), shape, powers(data), block, {dtype, "F32"}, plain_product)
    finish(model, results, shape, "a.weight", dtype)
    packed_exponents(model, dice, "e.w1.weight", "e.w1.weight", "e.w1.scale", dtype, ("I8", "F8_E8M0"))
    return model


def nibbles(data):
    return [e2m1(code) for byte in data for code in (byte & 15, byte >> 4)]


def sixes(data):
    whole = int.from_bytes(data, "little")
    return [e2m3(whole >> at & 63) for at in range(0, 8 * len(data), 6)]


def packed_exponents(model, dice, weight, result, scale, dtype, kinds=("U8", "U8"), six=False):
    """Two codes of E2M1 a byte, or four of E2M3 in three, with a power of two for 32."""
    shape = random_shape(dice, 32)
    stored_shape = [*shape[:-1], shape[-1] * 3 // 4 if six else shape[-1] // 2]
    codes = dice.randbytes(volume(stored_shape))
    data = exponent_bytes(dice, volume(shape) // 32)
    model.tensors[weight] = Tensor(kinds[0], stored_shape, codes)
    model.tensors[scale] = Tensor(kinds[1], [*shape[:-1], shape[-1] // 32], data)
    values = sixes(codes) if six else nibbles(codes)
    results = grid_values(values, shape, powers(data), [1, 32], {dtype, "F32"}, plain_product)
    finish(model, results, shape, result, dtype)


def mxfp8(dice):
    ending, quantisation = dice.choice(
        (
            ("_scale_inv", {"quant_method": "mxfp8"}),
            ("_scale", {"quant_method": "modelopt", "quant_algo": "MXFP8"}),
            ("_scale", {"quant_method": "compressed-tensors", "format": "mxfp8-quantized"}),
        )
    )
    config = {"quantization_config": quantisation}
    dtype = model_dtype(dice, config)
    if quantisation["quant_method"] == "compressed-tensors":
        dtype = "BF16"
    model = Model(bystanders(dice), config)
    for name in ("a.weight", "b.c.weight"):
        shape = random_shape(dice, 32)
        codes, data = dice.randbytes(volume(shape)), exponent_bytes(dice, volume(shape) // 32)
        model.tensors[name] = Tensor("F8_E4M3", shape, codes)
        model.tensors[name + ending] = Tensor("U8", [*shape[:-1], shape[-1] // 32], data)
        results = grid_values(map(e4m3, codes), shape, powers(data), [1, 32], {dtype, "F32"}, plain_product)
        finish(model, results, shape, name, dtype)
    return model


def compressed_config(**weights):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    quantisation = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    return {"quantization_config": quantisation, "torch_dtype": "float16"}


def compressed_bystanders(model):
    """compressed-tensors leaves scales of activations in, and those of the cache out."""
    one = Tensor("F32", [1], struct.pack("<f", 0.5))
    model.tensors.update({"a.input_scale": one, "attn.k_scale": one, "attn.v_scale": one})
    model.expected["a.input_scale"] = one


def compressed_fp8(dice):
    strategy = dice.choice(("tensor", "channel", "block"))
    block = dice.choice(([128, 128], [16, 4], [1, 30]))
    weights = {"strategy": strategy, "num_bits": 8, "type": "float"}
    if strategy == "block":
        weights["block_structure"] = block
    model = Model(bystanders(dice), compressed_config(**weights))
    if dice.random() < 0.4:  # another group of modules, with blocks of its own
        groups = model.config["quantization_config"]["config_groups"]
        groups["group_1"] = {"weights": {"strategy": "group", "group_size": 4096}}
    if dice.random() < 0.3:  # the config of one of the model's parts
        model.config = {"model_type": "x", "text_config": model.config}
    compressed_bystanders(model)
    for name in ("a.weight", "b.weight"):
        scale_dtype = dice.choice(("BF16", "F16", "F32"))

        def product(value, scale, _dtype, own=scale_dtype):
            return rounded(rounded(value * scale, "F32"), own)

        one = dice.choice(([1], [1, 1]))
        grids = {"tensor": lambda _: one, "channel": lambda shape: [*shape[:-1], 1], "block": None}
        blocks = {"tensor": [0, 0], "channel": [1, 0], "block": block}
        scaled_fp8(
            model, dice, name, f"{name}_scale", "BF16", blocks[strategy], scale_dtype, product, grids[strategy]
        )
    return model


def f8_scales(dice, count):
    return bytes(dice.choice((dice.randint(1, 126), dice.randint(0, 126), dice.randint(128, 254))) for _ in range(count))


def nvfp4(model, dice, weight, result, scale, dtype, product, code_value=e2m1):
    shape = random_shape(dice, 16)
    codes = dice.randbytes(volume(shape) // 2)
    data = f8_scales(dice, volume(shape) // 16)
    model.tensors[weight] = Tensor("U8", [*shape[:-1], shape[-1] // 2], codes)
    model.tensors[scale] = Tensor("F8_E4M3", [*shape[:-1], shape[-1] // 16], data)
    values = [code_value(code) for byte in codes for code in (byte & 15, byte >> 4)]
    results = grid_values(values, shape, [e4m3(byte) for byte in data], [1, 16], {dtype, "F32"}, product)
    finish(model, results, shape, result, dtype)


def compressed_nvfp4(dice):
    model = Model(bystanders(dice), compressed_config(strategy="tensor_group", group_size=16, num_bits=4))
    compressed_bystanders(model)
    for stem in ("a.", "layers.1.mlp.down_proj."):
        whole = rounded(dice.uniform(0.5, 3000), "F32")
        model.tensors[f"{stem}weight_global_scale"] = Tensor("F32", [1], struct.pack("<f", whole))
        model.tensors[f"{stem}input_global_scale"] = model.expected[f"{stem}input_global_scale"] = Tensor(
            "F32", [1], struct.pack("<f", 7)
        )

        def product(value, scale, _dtype, whole=whole):
            return rounded(value * rounded(scale / whole, "F32"), "F32")

        nvfp4(model, dice, f"{stem}weight_packed", f"{stem}weight", f"{stem}weight_scale", "BF16", product)
    return model


def modelopt(dice, algorithm):
    """The configuration in one of the two files that have it."""
    config = {"architectures": ["X"]}
    dtype = model_dtype(dice, config)
    if dice.random() < 0.5:
        config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": algorithm}
        return Model(bystanders(dice), config), dtype
    model = Model(bystanders(dice), config)
    model.quant_file = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}
    return model, dtype


def modelopt_nvfp4(dice):
    model, dtype = modelopt(dice, "NVFP4")
    for stem in ("a.", "b."):
        second = rounded(dice.uniform(1e-4, 3), "F32")
        model.tensors[f"{stem}weight_scale_2"] = Tensor("F32", [], struct.pack("<f", second))
        model.tensors[f"{stem}input_scale"] = Tensor("F32", [], struct.pack("<f", 2))

        def product(value, scale, _dtype, second=second):
            return rounded(value * rounded(scale * second, "F32"), "F32")

        name = f"{stem}weight"
        nvfp4(model, dice, name, name, f"{name}_scale", dtype, product, lambda code: 0.0 if code == 8 else e2m1(code))
    return model


def modelopt_fp8(dice):
    model, dtype = modelopt(dice, "FP8")

    def product(value, scale, result):
        return rounded(value * rounded(scale, result), "F32")

    for name in ("a.weight", "b.weight"):
        scaled_fp8(model, dice, name, f"{name}_scale", dtype, [0, 0], "F32", product, lambda _: [])
        model.tensors[name.replace("weight", "input_scale")] = Tensor("F32", [], struct.pack("<f", 2))
    return model


def compressed_mx(dice):
    model = Model(bystanders(dice), compressed_config(strategy="group", group_size=32, num_bits=4))
    compressed_bystanders(model)
    for stem, six in (("a.", False), ("b.", True)):
        packed_exponents(
            model, dice, f"{stem}weight_packed", f"{stem}weight", f"{stem}weight_scale", "BF16", six=six
        )
    return model


def gpt_oss(dice):
    """Blocks of 16 bytes; transformers' layout has the result's last two dimensions swapped."""
    swaps = dice.random() < 0.6
    config = {"quantization_config": {"quant_method": "mxfp4"}} if swaps else None
    model = Model(bystanders(dice), config)
    ending = "_blocks" if swaps else ".blocks"
    for stem in ("mlp.experts.down_proj", "mlp.experts.gate_up_proj"):
        experts, rows, groups = dice.choice((1, 2, 3)), dice.choice((1, 2, 7, 31, 65)), dice.choice((1, 2, 3))
        codes = dice.randbytes(experts * rows * groups * 16)
        data = exponent_bytes(dice, experts * rows * groups)
        model.tensors[stem + ending] = Tensor("U8", [experts, rows, groups, 16], codes)
        model.tensors[stem + ending.replace("blocks", "scales")] = Tensor("U8", [experts, rows, groups], data)
        shape = [experts, rows, 32 * groups]
        results = grid_values(nibbles(codes), shape, powers(data), [1, 32], {"BF16", "F32"}, plain_product)
        if swaps:
            results = {dtype: swapped(all_values, shape, SIZES[dtype]) for dtype, all_values in results.items()}
            shape = [experts, 32 * groups, rows]
        finish(model, results, shape, stem, "BF16")
    return model


def swapped(data, shape, size):
    matrices, rows, columns = shape
    return b"".join(
        data[((matrix * rows + row) * columns + column) * size :][:size]
        for matrix in range(matrices)
        for column in range(columns)
        for row in range(rows)
    )


KINDS = {
    "FP8 blocks": fp8_blocks,
    "FP8 without a config": fp8_without_config,
    "FP8 with one scale": fp8_one_scale,
    "DeepSeek-V4": deepseek_v4,
    "MXFP8": mxfp8,
    "compressed-tensors FP8": compressed_fp8,
    "compressed-tensors NVFP4": compressed_nvfp4,
    "compressed-tensors MXFP4 and MXFP6": compressed_mx,
    "modelopt NVFP4": modelopt_nvfp4,
    "modelopt FP8": modelopt_fp8,
    "gpt-oss": gpt_oss,
}


def make(kind, dice):
    model = KINDS[kind](dice)
    for name, tensor in bystanders(dice).items():
        model.expected.setdefault(name, model.tensors[name])
    return model
