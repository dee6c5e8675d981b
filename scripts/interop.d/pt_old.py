"""What tconv writes, torch 1.13 of 2022 loads too."""
import json
import os
import subprocess
from hashlib import sha256

import numpy as np
import torch

from models import SHAPES, Model, random_tensor
from ot import DTYPES as OT_DTYPES
from ot import NAMES as OT_NAMES
from pt_reading import ODD_NAMES, sparse, tied
from pt_writing import Pt
from torch_peer import TORCH, of_torch, saved, state_dict

# It has storages of their own kind for these, and knows nothing of the dtypes that came later.
DTYPES = list(OT_DTYPES)


def run(checks, tconv):
    random = np.random.default_rng(12)
    models = {
        "dtypes": Model({
            f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}": random_tensor(random, dtype, shape)
            for dtype in DTYPES for shape in SHAPES
        }),
        "names": Model({name: random_tensor(random, "F32", (2,)) for name in ODD_NAMES if name}),
        "many": Model({f"layer.{index}": random_tensor(random, "I16", (3,)) for index in range(3000)}),
        "no tensors": Model({}),
    }  # fmt: skip
    for kind, model in models.items():
        with checks.case(kind), tconv.folder() as folder:
            source, copy = folder / "in.pt", folder / "out.pt"
            source.write_bytes(saved(state_dict(model)))
            if tconv.convert(source, copy):
                check(checks, copy, {name: seen(tensor) for name, tensor in model.tensors.items()})
    for kind, root in ("tied", tied()), ("sparse", without_new(sparse())):
        with checks.case(kind), tconv.folder() as folder:
            source, copy = folder / "in.pt", folder / "out.pt"
            source.write_bytes(saved(root))
            if tconv.convert(source, copy):
                check(checks, copy, {name: parts(tensor) for name, tensor in root.items()})
    names = Model({name: random_tensor(random, "F32", (2,)) for name in OT_NAMES})
    for kind, model in ("ot, dtypes", models["dtypes"]), ("ot, names", names):
        with checks.case(kind), tconv.folder() as folder:
            source, copy = folder / "in.pt", folder / "out.ot"
            Pt().write(source, model)
            if tconv.convert(source, copy):
                want = [[name.replace(".", "|"), seen(tensor)] for name, tensor in model.tensors.items()]
                (loaded,) = old_torch("jit", copy)
                checks.equal("torch.jit.load", loaded.get("error") or loaded["tensors"], want)


def without_new(root: dict) -> dict:
    """Only COO: for CSR that torch wants a function that today's does not allow, and the others came later."""
    kept = ("coalesced", "not coalesced", "hybrid", "no elements", "cube", "int64 values", "bfloat16 values", "dense")
    return {name: root[name] for name in kept}


def old_torch(way, path) -> list[dict]:
    command = [
        os.environ["INTEROP_OLD_PYTHON"],
        "-B",
        os.path.join(os.path.dirname(__file__), "old_torch.py"),
        way,
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen(tensor) -> list:
    return [str(TORCH[tensor.dtype]), list(tensor.shape), sha256(tensor.data).hexdigest()]


def parts(tensor) -> list:
    if tensor.layout == torch.sparse_coo:
        return [
            "sparse_coo",
            list(tensor.shape),
            *(seen(of_torch(part)) for part in (tensor._indices(), tensor._values())),
        ]
    return seen(of_torch(tensor))


def check(checks, path, want):
    for how, loaded in zip(("weights_only", "all"), old_torch("load", path)):
        if checks.equal(f"error, {how}", loaded.get("error"), None):
            checks.equal(f"type, {how}", loaded["type"], "OrderedDict")
            checks.equal(f"names in order, {how}", [name for name, _ in loaded["tensors"]], list(want))
            for name, parts in loaded["tensors"]:
                checks.equal(f"tensor {name[:60]!r}, {how}", parts, want.get(name))
