"""Attacks on weights that have scales of their own, for --dequantize (Q01 to Q08)."""

import json
import os
import struct

from attacks import Input, row, scene
from files import Tensor, f32, safetensors
from harness import INVALID, IO, OK, UNSAFE, check_equal, expect

FILE = "in.safetensors"
TARGET = "out.safetensors"
OPTIONS = ("--dequantize",)
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def f8(shape, byte=0x38):
    count = 1
    for dim in shape:
        count *= dim
    return Tensor("F8_E4M3", list(shape), bytes([byte]) * count)


def u8(shape, byte=0x11):
    return f8(shape, byte)._replace(dtype="U8")


def scale(shape, value=2.0):
    count = 1
    for dim in shape:
        count *= dim
    return f32(*[value] * count, shape=list(shape))


def write(folder, tensors, config=None, name=FILE):
    (folder / name).write_bytes(safetensors(tensors))
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))


def given(tensors, config=None):
    return lambda folder: write(folder, tensors, config)


def case(label, tensors, config=None, outcome=None, **more):
    return Input(label, given(tensors, config), outcome, options=OPTIONS, commands=("convert",), **more)


def scaled(outcome, row_id):
    return row(row_id, outcome, FILE, target=TARGET)


@scaled(INVALID, "Q01")
def grids():
    weight = f8([130, 140])
    for shape in ([1, 2], [3, 2], [2, 3], [4], [1, 2, 2], [2], [1]):
        yield case(f"grid {shape}", {"x.weight": weight, "x.weight_scale_inv": scale(shape)}, FP8)
    tall = {"x.weight": f8([130, 300]), "x.weight_scale_inv": scale([3, 2])}
    yield case("transposed", tall, FP8)
    good = {"x.weight": weight, "x.weight_scale_inv": scale([2, 2])}
    for block in ([0, 128], [-1, 1], [2**31, 2**31], "128", [128], [128, 128, 128], [1.5, 2]):
        yield case(f"block {block}", good, {**FP8, "weight_block_size": block}, mention="")
    compressed = {"x.weight": weight, "x.weight_scale": scale([2, 2])}
    groups = {f"g{i}": {"weights": {"block_structure": [65 + 63 * i, 128]}} for i in range(2)}
    two = {"quant_method": "compressed-tensors", "config_groups": groups}
    yield case("blocks of two sizes fit", compressed, two, message="two sizes")
    many = {f"g{i}": {"weights": {"block_structure": [1 + i, 128]}} for i in range(9)}
    yield case("too many sizes", compressed, {**two, "config_groups": many}, mention="config.json")


@scaled(INVALID, "Q02")
def missing():
    yield case("no scale", {"x.weight": f8([2, 2])}, FP8)
    yield case("no weight", {"x.weight_scale_inv": scale([1, 1])}, FP8)
    yield case("no global scale", {"x.weight_packed": u8([2, 16]), "x.weight_scale": f8([2, 2])})
    yield case("packed without scale", {"x.weight_packed": u8([2, 16])})
    both = {"x.weight": f8([2, 2]), "x.weight_scale_inv": scale([1, 1]), "x.weight_scale": scale([1])}
    yield case("two scales", both)
    yield Input("a shard missing", shards, IO, "in.safetensors.index.json", ("convert",), options=OPTIONS, mention="")


def shards(folder):
    write(folder, {"x.weight": f8([2, 2])}, FP8, "a.safetensors")
    index = {"weight_map": {"x.weight": "a.safetensors", "x.weight_scale_inv": "b.safetensors"}}
    (folder / "in.safetensors.index.json").write_text(json.dumps(index))


@scaled(OK, "Q03")
def lookalikes():
    tensors = {
        "layers.0.hc_attn_scale": f32(1, 2),
        "x.scale": f32(3),
        "x.weight": Tensor("BF16", [1, 2], b"\x80\x3f\x80\x3f"),
        "lm_head_blocks": f32(4, 5),
        "y.weight_scale": Tensor("I32", [1], b"\1\0\0\0"),
        "z_scales": u8([3]),
    }
    verbose = (*OPTIONS, "-v")
    kept = Input("names only", given(tensors), options=verbose, commands=("run",), message="kept as they are")
    yield kept


@scaled(INVALID, "Q04")
def taken_names():
    blocks = {"e.down_proj_blocks": u8([1, 2, 1, 16]), "e.down_proj_scales": u8([1, 2, 1])}
    yield case("beside", {"e.down_proj": f32(1), **blocks}, message="e.down_proj_blocks")
    original = {"e.down_proj.blocks": u8([1, 2, 1, 16]), "e.down_proj.scales": u8([1, 2, 1])}
    yield case("two pairs", {**blocks, **original}, message="e.down_proj.blocks")


@scene("Q04")
def a_scale_in_two_inputs(folder):
    write(folder, {"x.weight": f8([2, 2])}, FP8)
    for name, value in {"one.safetensors": 1.0, "two.safetensors": 2.0}.items():
        write(folder, {"x.weight_scale_inv": scale([1, 1], value)}, None, name)
    done = expect(folder, INVALID, "--dequantize", FILE, "one.safetensors", "two.safetensors", "-o", TARGET)
    check_equal(b"x.weight_scale_inv" in done.err, True, "the scale is named", done)


@scaled(INVALID, "Q06")
def odd_sizes():
    nvfp4 = {"l.weight_packed": u8([4, 24]), "l.weight_scale": f8([4, 4]), "l.weight_global_scale": f32(1)}
    yield case("48 values, 4 groups", nvfp4)
    yield case("40 bytes of MXFP6", {"l.weight_packed": u8([1, 40]), "l.weight_scale": u8([1, 2])})
    yield case("blocks of 15", {"e_blocks": u8([1, 2, 1, 15]), "e_scales": u8([1, 2, 1])})
    yield case("12 bytes of MXFP4", {"l.weight_packed": u8([1, 12]), "l.weight_scale": u8([1, 1])})
    yield case("48 values of MXFP8", {"l.weight": f8([1, 48]), "l.weight_scale": u8([1, 1])})
    yield case("a scale in F64", {"l.weight": f8([1, 4]), "l.weight_scale_inv": Tensor("F64", [1, 1], bytes(8))}, FP8)


@scaled(INVALID, "Q07")
def exponents():
    u255 = u8([1, 2], 255)
    yield case("MXFP8", {"l.weight": f8([1, 64]), "l.weight_scale": u255}, message="255")
    yield case("MXFP4", {"l.weight_packed": u8([1, 32]), "l.weight_scale": u255}, message="255")
    yield case("gpt-oss", {"e_blocks": u8([1, 2, 1, 16]), "e_scales": u8([1, 2, 1], 255)}, message="255")
    e8m0 = Tensor("F8_E8M0", [1, 1], b"\xff")
    yield case("DeepSeek-V4", {"l.weight": f8([4, 4]), "l.scale": e8m0}, FP8, message="255")
    for value in (float("nan"), float("inf"), -2.0, 0.0, 1e-40):
        odd = {"l.weight": f8([2, 2], 0x7F), "l.weight_scale_inv": scale([1, 1], value)}
        yield Input(f"scale {value}", given(odd, FP8), OK, options=OPTIONS, commands=("run",))


def config_file(make):
    def content(folder):
        write(folder, {"x.weight": f8([2, 2]), "x.weight_scale_inv": scale([1, 1])})
        make(folder / "config.json")

    return content


@row("Q08", {INVALID, UNSAFE}, FILE, target=TARGET, mention="config.json")
def configs():
    makers = {
        "100 MB": lambda path: path.write_bytes(b'{"a": "' + bytes([120]) * 100_000_000 + b'"}'),
        "not JSON": lambda path: path.write_text("quantization_config"),
        "a symlink": lambda path: path.symlink_to("/etc/passwd"),
        "a FIFO": os.mkfifo,
        "a folder": lambda path: path.mkdir(),
        "a list": lambda path: path.write_text('{"quantization_config": []}'),
        "deep": lambda path: path.write_text('{"quantization_config": ' + "[" * 100_000),
    }
    for label, make in makers.items():
        yield Input(label, config_file(make), options=OPTIONS, commands=("convert",))
    upwards = ["../x", "/etc/passwd", "..", "a/../../b", "re:.*\\.\\./"]
    ignored = {**FP8, "modules_to_not_convert": upwards, "ignore": upwards}
    for text in ("{}", '{"quantization_config": null}', json.dumps({"quantization_config": ignored})):
        honest = config_file(lambda path, text=text: path.write_text(text))
        yield Input(text, honest, OK, options=OPTIONS, commands=("run",), mention="")


def sparse_weight(folder):
    """2^20 x 2^20 bytes that are not on the disk, with their scales: 2 TiB of values."""
    side = 1 << 20
    entries = {
        "x.weight_scale": {"dtype": "U8", "shape": [side, side // 16], "data_offsets": [0, side * side // 16]},
        "x.weight_packed": {
            "dtype": "U8",
            "shape": [side, side],
            "data_offsets": [side * side // 16, side * side // 16 + side * side],
        },
    }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(folder / FILE, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + side * side // 16 + side * side)


@row("Q05", OK, FILE, target=TARGET)
def huge():
    # The first rows alone: what a range costs does not depend on the rest.
    rows = (*OPTIONS, "--rows", "x.weight=0:16")
    yield Input("16 rows of 2 TiB", sparse_weight, options=rows, commands=("run",), rss=96 << 20)
    plan = (*OPTIONS, "--dry-run", "--json")
    yield Input("plan", sparse_weight, options=plan, commands=("run",), printed='"bytes_out":4398046511104')
