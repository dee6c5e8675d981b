""".ot, tch-rs's archives: libtorch loads what tconv writes, through Python and through tch, and the reverse."""
import os
import subprocess
from hashlib import sha256
from keyword import iskeyword
from pathlib import Path

import numpy as np
import torch

from models import SHAPES, Model, Tensor, random_tensor
from peers import Npz, Safetensors
from pt_reading import Net
from pt_writing import Pt
from torch_peer import TORCH, flatten, of_torch, saved

DTYPES = {  # and what tch calls them
    "BOOL": "Bool", "U8": "Uint8", "I8": "Int8", "I16": "Int16", "I32": "Int", "I64": "Int64", "F16": "Half",
    "BF16": "BFloat16", "F32": "Float", "F64": "Double", "C64": "ComplexFloat", "C128": "ComplexDouble",
}  # fmt: skip
PROMOTED = {"U16": "I32", "U32": "I64", "F8_E4M3": "F16", "F8_E5M2": "F16", "F8_E8M0": "BF16", "C32": "C64"}

# Words that mean something in TorchScript, and characters that end its strings or its lines.
NAMES = [
    "weight", "encoder.layer.0.weight", "0", "1a", "in", "None", "class", "def", "self", "import", "True", "Tensor",
    "__init__", "forward", "with space", "a-b", "a/b", "quote\"", "apostrophe'", "back\\slash", "\\", "\\n",
    "line\nbreak", "tab\t", "return\r", "end\"]", "\"] = Tensor\n", "#", "{}", "%s", "ünïcödé", "重み", "😀", "\x7f",
    "..", "a.", ".a", "n" * 4000,
]  # fmt: skip


def run(checks, tconv):
    random = np.random.default_rng(11)
    models = {
        "dtypes": Model({
            f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}": random_tensor(random, dtype, shape)
            for dtype in DTYPES for shape in SHAPES
        }),
        "names": Model({name: random_tensor(random, "F32", (index % 4,)) for index, name in enumerate(NAMES)}),
        "many": Model({f"layer.{index}.weight": random_tensor(random, "I16", (3,)) for index in range(2000)}),
        "no tensors": Model({}),
    }  # fmt: skip
    for kind, model in models.items():
        for source in Safetensors(), Npz(deflated=False), Pt():
            part = model.only(source.holds)
            with checks.case(f"{kind}, {source.label} → ot"), tconv.folder() as folder:
                check_written(checks, tconv, source, part, folder)
        with checks.case(f"{kind}, written by tch"), tconv.folder() as folder:
            check_tch(checks, tconv, model, folder)
    if not tch_is_ready():
        checks.skipped.append("tch's reading and writing")
    for kind, check in {
        "module": check_module, "promoted": check_promoted, "a bar in a name": check_bar, "twice": check_twice,
    }.items():  # fmt: skip
        with checks.case(kind), tconv.folder() as folder:
            check(checks, tconv, folder)


def tch_is_ready() -> bool:
    return os.access(os.environ.get("INTEROP_TCH", ""), os.X_OK)


def tch(*arguments) -> str:
    command = [os.environ["INTEROP_TCH"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, f"tch-archive {arguments[0]}: {done.stderr.strip()[-500:]}"
    return done.stdout


def in_torch(path: Path) -> dict[str, Tensor]:
    return {name: of_torch(parameter) for name, parameter in torch.jit.load(path).named_parameters()}


def check_written(checks, tconv, source, model, folder):
    file, copy, back = folder / f"model{source.suffix}", folder / "model.ot", folder / "back.safetensors"
    source.write(file, model)
    written = source.read(file)
    if tconv.convert(file, copy):
        check_loads(checks, copy, written)
        tconv.check_hash(copy, written)
        if all(tensor.dtype != "C128" for tensor in model.tensors.values()) and tconv.convert(copy, back):
            found = Safetensors().read(back).tensors
            checks.equal("back in safetensors", found, {name: written.tensors.get(name) for name in found})
            checks.equal("number of tensors back", len(found), len(written.tensors))


def check_loads(checks, path, model):
    found = in_torch(path)
    stored = {name.replace(".", "|"): tensor for name, tensor in model.tensors.items()}
    checks.equal("names in order, torch.jit.load", list(found), list(stored))
    for name, tensor in stored.items():
        checks.equal(f"parameter {name[:60]!r}", found.get(name), tensor)
    if tch_is_ready():
        lines = [
            f"{name.encode().hex()} {DTYPES[tensor.dtype]} [{','.join(map(str, tensor.shape))}] "
            + sha256(tensor.data).hexdigest()
            for name, tensor in model.tensors.items()
        ]
        checks.equal("Tensor::load_multi", tch("list", path).splitlines(), lines)


def check_tch(checks, tconv, model, folder):
    """What tch writes itself, and what it writes of what tconv wrote."""
    if not tch_is_ready() or not model.tensors:
        return
    # libtorch can't load its own archive of a name that is a word of TorchScript or has a quote; and the safetensors
    # in tch has no complex numbers.
    part = model.only(lambda name, tensor: is_plain(name) and tensor.dtype not in ("C64", "C128"))
    first, second, third, fourth = (folder / name for name in ("1.safetensors", "2.ot", "3.ot", "4.ot"))
    Safetensors().write(first, part)
    tch("save", first, second)
    tconv.check_hash(second, part)
    if tconv.convert(second, third):
        check_loads(checks, third, ordered_as_tch(second, part))
        tch("save", third, fourth)
        tconv.check_hash(fourth, part)


def is_plain(name: str) -> bool:
    return name.isascii() and name.replace(".", "_").isidentifier() and not iskeyword(name) and name != "self"


def ordered_as_tch(path, model: Model) -> Model:
    names = [bytes.fromhex(line.split(" ")[0]).decode() for line in tch("list", path).splitlines()]
    return Model({name: model.tensors[name] for name in names})


def check_module(checks, tconv, folder):
    """A module's weights for tch; and a scripted module as it is."""
    net = Net()
    source, copy, script = folder / "1.pt", folder / "2.ot", folder / "script.ot"
    source.write_bytes(saved(net.state_dict()))
    if tconv.convert(source, copy):
        check_loads(checks, copy, flatten(net.state_dict()))
    torch.jit.save(torch.jit.script(net), script)
    tconv.check_hash(script, flatten(net.state_dict()))
    if tconv.convert(script, copy):
        found = in_torch(copy)
        want = {name.replace(".", "|"): tensor for name, tensor in flatten(net.state_dict()).tensors.items()}
        checks.equal("a scripted module's tensors", found, {name: want.get(name) for name in found})
        checks.equal("their number", len(found), len(want))


def check_promoted(checks, tconv, folder):
    """libtorch's pickle has no words for these: the next wider dtype, and U64 not at all."""
    source, copy = folder / "1.pt", folder / "2.ot"
    values = torch.tensor([0.0, 1.0, 2.0, 0.5, 4.0])
    root = {dtype: values.to(TORCH[dtype]) for dtype in PROMOTED}
    source.write_bytes(saved(root))
    if tconv.convert(source, copy):
        want = {dtype: of_torch(root[dtype].to(TORCH[wider])) for dtype, wider in PROMOTED.items()}
        checks.equal("promoted", in_torch(copy), want)
    source.write_bytes(saved({"u64": values.to(torch.uint64)}))
    checks.equal("exit code for U64", tconv.fails(source, copy).returncode, 4)


def check_bar(checks, tconv, folder):
    """tch reads every bar as a dot, so one that is a bar is lost, and two names may become one."""
    source, copy = folder / "1.safetensors", folder / "2.ot"
    one = Tensor("F32", (1,), b"\0\0\x80\x3f")
    Safetensors().write(source, Model({"a|b": one}))
    checks.equal("exit code with --strict", tconv.fails("--strict", source, copy).returncode, 4)
    if tconv.convert(source, copy):
        checks.equal("name in torch", list(in_torch(copy)), ["a|b"])
        tconv.check_hash(copy, Model({"a.b": one}))
    Safetensors().write(source, Model({"a|b": one, "a.b": one}))
    done = tconv.fails(source, folder / "3.ot")
    checks.true(done.returncode in (3, 4), lambda: f"two names become one: exit code {done.returncode}")


def check_twice(checks, tconv, folder):
    source, copies = folder / "1.safetensors", [folder / "a.ot", folder / "b.ot"]
    Safetensors().write(source, Model({name: Tensor("F32", (0,), b"") for name in NAMES}))
    if all([tconv.convert(source, copy) for copy in copies]):
        checks.equal("the same bytes", copies[0].read_bytes() == copies[1].read_bytes(), True)
