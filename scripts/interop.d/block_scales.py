"""Weights with scales of their own: what compressed-tensors and transformers make of them, to the bit."""
import json
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file

E4M3 = torch.float8_e4m3fn
NAN = {torch.bfloat16: 0x7FC0, torch.float16: 0x7E00, torch.float32: 0x7FC00000}


def run(checks, tconv):
    random = np.random.default_rng(17)
    compressed(checks, tconv, random)
    transformers_arithmetic(checks, tconv, random)
    transformers_model(checks, tconv, random)


def codes(random, *shape):
    """All bytes, NaN left out: its bits differ between programs, and the tests have it."""
    data = random.integers(0, 256, shape, np.uint8)
    data[data & 127 == 127] = 5
    return torch.from_numpy(data)


def f8(random, *shape):
    return codes(random, *shape).view(E4M3)


def scales(random, *shape, dtype=torch.float32):
    return torch.tensor(np.exp2(random.uniform(-12, 6, shape)), dtype=torch.float32).to(dtype)


def exponents(random, *shape):
    return torch.from_numpy(random.integers(90, 150, shape, np.uint8))


def raw(tensor):
    """dtype, shape and bytes, every NaN alike."""
    bits = tensor.contiguous().reshape(-1)
    if tensor.dtype in NAN:
        whole = bits.view(torch.int16 if tensor.element_size() == 2 else torch.int32).clone()
        whole[bits.isnan()] = torch.tensor(NAN[tensor.dtype], dtype=torch.int64).to(whole.dtype)
        bits = whole
    return tensor.dtype, tuple(tensor.shape), bits.view(torch.uint8).numpy().tobytes() if bits.numel() else b""


def same(checks, got, want):
    checks.equal("names", sorted(got), sorted(want))
    for name in want.keys() & got.keys():
        checks.equal(name, raw(got[name]), raw(want[name]))


def write(folder, tensors, config):
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def dequantised(tconv, folder, *options):
    out = folder.parent / "out.safetensors"
    if tconv.run("-q", "--dequantize", *options, folder / "model.safetensors", out) is None:
        return {}
    return load_file(out)


def scheme(**weights):
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, **weights}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    quantisation = {
        "quant_method": "compressed-tensors", "quantization_status": "compressed", "config_groups": groups,
        "ignore": ["lm_head"],
    }  # fmt: skip
    return {"torch_dtype": "float16", "quantization_config": quantisation}


def compressed_models(random):
    """name: tensors, config"""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield f"FP8, one scale of {name}", {
            "a.weight": f8(random, 7, 33), "a.weight_scale": scales(random, 1, dtype=dtype),
        }, scheme(strategy="tensor")  # fmt: skip
        yield f"FP8, scales of {name} for rows", {
            "a.weight": f8(random, 7, 33), "a.weight_scale": scales(random, 7, 1, dtype=dtype),
        }, scheme(strategy="channel")  # fmt: skip
        yield f"FP8, scales of {name} for blocks", {
            "a.weight": f8(random, 130, 65), "a.weight_scale": scales(random, 3, 3, dtype=dtype),
        }, scheme(strategy="block", block_structure=[64, 32])  # fmt: skip
    for shape in ([1], []):
        yield f"NVFP4, global scale {shape}", {
            "a.weight_packed": codes(random, 12, 32), "a.weight_scale": f8(random, 12, 4),
            "a.weight_global_scale": scales(random, *shape) * 300,
        }, scheme(num_bits=4, strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn")  # fmt: skip
    mx = {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
    yield "MXFP4", {
        "a.weight_packed": codes(random, 5, 48), "a.weight_scale": exponents(random, 5, 3),
    }, scheme(num_bits=4, **mx)  # fmt: skip
    yield "MXFP8", {
        "a.weight": f8(random, 5, 96), "a.weight_scale": exponents(random, 5, 3),
    }, scheme(num_bits=8, **mx)  # fmt: skip


def compressed(checks, tconv, random):
    try:
        from compressed_tensors.entrypoints.convert.converters.ct_dequantizer import CompressedTensorsDequantizer
    except ImportError as error:
        checks.skipped.append(f"compressed-tensors: {error}")
        return
    one = torch.tensor([0.5])
    rest = {"lm_head.weight": torch.ones(2, 2), "a.input_scale": one, "attn.k_scale": one.clone()}
    for name, tensors, config in compressed_models(random):
        with checks.case(f"compressed-tensors: {name}"), tconv.folder() as folder:
            write(folder / "m", {**tensors, **rest}, config)
            want = CompressedTensorsDequantizer(folder / "m").process({**tensors, **rest})
            same(checks, dequantised(tconv, folder / "m"), want)


def transformers_arithmetic(checks, tconv, random):
    try:
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    except ImportError as error:
        checks.skipped.append(f"transformers: {error}")
        return
    fp8 = {"quant_method": "fp8", "weight_block_size": [16, 8]}
    pairs = {
        "FP8 blocks": ("a.weight", f8(random, 3, 64, 40), "a.weight_scale_inv", scales(random, 3, 4, 5), fp8),
        "FP4 experts": (
            "a.weight", codes(random, 6, 48).view(torch.int8), "a.scale",
            exponents(random, 6, 3).view(torch.float8_e8m0fnu), fp8,
        ),
        "MXFP8": ("a.weight", f8(random, 6, 96), "a.weight_scale_inv", exponents(random, 6, 3), {"quant_method": "mxfp8"}),
    }  # fmt: skip
    for name, (weight_name, weight, scale_name, scale, quantisation) in pairs.items():
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            with checks.case(f"transformers: {name} as {dtype}"), tconv.folder() as folder:
                config = {"dtype": str(dtype).removeprefix("torch."), "quantization_config": quantisation}
                write(folder / "m", {weight_name: weight, scale_name: scale}, config)
                want = Fp8Dequantize(None)._dequantize_one(weight, scale, dtype)
                same(checks, dequantised(tconv, folder / "m"), {weight_name: want})
    with checks.case("transformers: gpt-oss"), tconv.folder() as folder:
        blocks, powers = codes(random, 3, 10, 2, 16), exponents(random, 3, 10, 2)
        write(folder / "m", {"e_blocks": blocks, "e_scales": powers}, {"quantization_config": {"quant_method": "mxfp4"}})
        same(checks, dequantised(tconv, folder / "m"), {"e": convert_moe_packed_tensors(blocks, powers)})


def tiny_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50, dtype="bfloat16",
    )  # fmt: skip
    return LlamaForCausalLM(config).to(torch.bfloat16)


def transformers_model(checks, tconv, random):
    """A model that is stored in FP8: transformers loads what tconv makes of it as it loads the original."""
    try:
        from transformers import FineGrainedFP8Config, LlamaForCausalLM
    except ImportError as error:
        checks.skipped.append(f"transformers: {error}")
        return
    with checks.case("transformers: a whole model"), tconv.folder() as folder:
        tiny_model().save_pretrained(folder / "m")
        tensors = load_file(folder / "m/model.safetensors")
        for name in [name for name in tensors if name.endswith("_proj.weight")]:
            rows, columns = tensors[name].shape
            tensors[name] = f8(random, rows, columns)
            tensors[f"{name}_scale_inv"] = scales(random, rows // 16, columns // 32) / 100
        save_file(tensors, folder / "m/model.safetensors", {"format": "pt"})
        config = json.loads((folder / "m/config.json").read_text())
        quantisation = {"quant_method": "fp8", "weight_block_size": [16, 32], "activation_scheme": "dynamic"}
        (folder / "m/config.json").write_text(json.dumps({**config, "quantization_config": quantisation}))
        if tconv.run("-q", "--dequantize", "-t", "safetensors", folder / "m", f"{folder / 'o'}/") is None:
            return
        ours = LlamaForCausalLM.from_pretrained(folder / "o", dtype=torch.bfloat16)
        checks.equal("quantised", getattr(ours.config, "quantization_config", None), None)
        wanted = FineGrainedFP8Config(weight_block_size=(16, 32), dequantize=True)
        theirs = LlamaForCausalLM.from_pretrained(folder / "m", dtype=torch.bfloat16, quantization_config=wanted)
        same(checks, ours.state_dict(), theirs.state_dict())
        shutil.rmtree(folder / "m")
