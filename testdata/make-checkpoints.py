#!/usr/bin/env python3
"""Makes the checkpoints of testdata/pt that hold more than tensors, and what is in them.

Needs torch, numpy, joblib, pandas and jax; torch 2.15, numpy 2.4, joblib 1.6, pandas 3 and jax 0.11
made the files that are here. Only model_1_0.pt is put together by hand, as torch 1.0 laid it out,
which can no longer be installed. Run in this folder; expected-torch.json gets their entries anew.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import pickle
import types
import warnings
import zipfile

import jax.numpy
import joblib
import numpy
import pandas
import torch

warnings.simplefilter("ignore")
here = pathlib.Path(__file__).parent
entries = {}
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}


def values(*shape, start=1):
    count = int(numpy.prod(shape))
    return torch.arange(start, start + count, dtype=torch.float32).reshape(shape)


def told(name, tensor):
    tensor = torch.as_tensor(tensor).contiguous()
    data = tensor.numpy().tobytes()
    return {
        "dtype": DTYPES[tensor.dtype],
        "name": name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "shape": list(tensor.shape),
    }


def ok(path, tensors, **more):
    listed = [told(name, tensor) for name, tensor in tensors.items()]
    entries[path] = {**more, "outcome": "ok", "tensors": listed}


def other(path, outcome, why):
    entries[path] = {"outcome": outcome, "why": why}


# Names: keys that are neither text nor whole numbers, and paths of one name.
a, b, c, d = values(2), values(3), values(4), values(5)
keys = {"w": a, None: b, (1, "x"): {2.5: c}, True: 7, "?1": d, torch.float32: a + 1, -3: b + 1}
torch.save(keys, here / "pt/odd_keys.pt")
ok(
    "pt/odd_keys.pt",
    {"w": a, "?1": b, "?2.?0": c, "?1~1": d, "?5": a + 1, "-3": b + 1},
    metadata={"?3": "7"},
)
torch.save({"a.b": a, "a": {"b": b, "b.c": c}, "a.b.c": d, 1: a + 1, "1": b + 1, 2: "x", "2": "y"}, here / "pt/collisions.pt")
ok(
    "pt/collisions.pt",
    {"a.b": a, "a.b~1": b, "a.b.c": c, "a.b.c~1": d, "1": a + 1, "1~1": b + 1},
    metadata={"2": "x", "2~1": "y"},
)

# Values that hold no tensor: each is left out, the tensors stay.
cycle = {"w": a}
cycle["again"] = [cycle]
odd = {
    "w": a,
    "class": torch.Tensor,
    "meta": torch.empty(3, device="meta"),
    "objects": numpy.array([{}, 3, None], dtype=object),
    "text": numpy.array(["x", "yy"]),
    "dates": numpy.array(["2026-01-02"], dtype="M8[D]"),
    "dtype": numpy.dtype("f4"),
    "cycle": cycle,
    "v": b,
}
torch.save(odd, here / "pt/odd_values.pt")
ok("pt/odd_values.pt", {"w": a, "cycle.w": a, "v": b}, shared=[["w", "cycle.w"]])
plain = {
    "args": argparse.Namespace(lr=0.5, w=a),
    "space": types.SimpleNamespace(w=b),
    "queue": collections.deque([c, 2]),
}
torch.save(plain, here / "pt/plain_classes.pt")
ok(
    "pt/plain_classes.pt",
    {"args.w": a, "space.w": b, "queue.0": c},
    metadata={"args.lr": "0.5", "queue.1": "2"},
)
torch.save({"w\ud800": a, "text": "x\udc80y"}, here / "pt/surrogates.pt")
ok("pt/surrogates.pt", {"w?": a}, metadata={"text": "x\\udc80y"})

# Other ways to keep tensors and arrays in pickles.
with open(here / "pt/plain_tensors.pkl", "wb") as file:
    pickle.dump({"t": values(2, 3).t(), "p": torch.nn.Parameter(a)}, file)
ok("pt/plain_tensors.pkl", {"t": values(2, 3).t(), "p": a})
arrays = {
    "c": numpy.arange(6, dtype="f4").reshape(2, 3),
    "f": numpy.asfortranarray(numpy.arange(6.0).reshape(3, 2)),
    "i": numpy.arange(3),
    "text": numpy.array(["x", "yy"]),
    "objects": numpy.array([1, "a", None], dtype=object),
    "n": 3,
}
for file, how in (("joblib.pkl", 0), ("joblib_zlib.pkl", 3)):
    joblib.dump(arrays, here / "pt" / file, compress=how)
    ok(f"pt/{file}", {name: arrays[name] for name in "cfi"}, metadata={"n": "3"})

# TorchScript: constants of frozen code; the form of torch 1.0.
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(values(2, 3))

    def forward(self, x):
        return x @ self.w


torch.jit.save(torch.jit.freeze(torch.jit.script(Net().eval())), here / "pt/frozen.pt")
ok("pt/frozen.pt", {"CONSTANTS.c0": values(2, 3)})


def definition(tensor, key, dtype="FLOAT"):
    return {
        "dims": [str(size) for size in tensor.shape],
        "offset": "0",
        "strides": [str(size) for size in tensor.stride()],
        "requiresGrad": True,
        "dataType": dtype,
        "data": {"key": key},
        "device": "cpu",
    }


count = torch.tensor(5)
model = {
    "protoVersion": "2",
    "mainModule": {
        "submodules": [
            {
                "torchscriptArena": {"key": "code/l.py"},
                "parameters": [
                    {"isBuffer": False, "tensorId": "1", "name": "weight"},
                    {"isBuffer": True, "tensorId": "2", "name": "count"},
                ],
                "name": "l",
                "optimize": True,
            }
        ],
        "parameters": [{"isBuffer": False, "tensorId": "0", "name": "w"}],
        "name": "Old",
        "optimize": True,
        "attributes": [{"type": "int", "name": "n", "id": "0"}],
    },
    "producerName": "pytorch",
    "producerVersion": "1.0",
    "tensors": [
        definition(values(2, 3), "tensors/0"),
        definition(values(2, 3).t(), "tensors/0"),
        definition(count, "tensors/1", "INT64"),
    ],
}
with zipfile.ZipFile(here / "pt/model_1_0.pt", "w") as archive:
    for name, content in {
        "model.json": json.dumps(model),
        "tensors/0": values(2, 3).numpy().tobytes(),
        "tensors/1": count.numpy().tobytes(),
        "attributes.pkl": b"\x80\x02]K\x03a.",
        "code/l.py": "op_version_set = 0\ndef forward(self) -> Tensor:\n  return self.weight\n",
        "version": "2\n",
    }.items():
        archive.writestr(zipfile.ZipInfo(f"old/{name}"), content)
ok(
    "pt/model_1_0.pt",
    {"w": values(2, 3), "l.weight": values(2, 3).t(), "l.count": count},
    shared=[["w", "l.weight"]],
)

# Refused, but for --pickle=inert.
torch.save(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3))), here / "pt/fx_module.pt")
with open(here / "pt/jax.pkl", "wb") as file:
    pickle.dump({"w": jax.numpy.arange(6.0).reshape(2, 3), "b": jax.numpy.ones(3, "bfloat16")}, file)
pandas.DataFrame({"x": [1.0, 2.0], "y": [3, 4]}).to_pickle(here / "pt/pandas.pkl")
for path in ("pt/fx_module.pt", "pt/jax.pkl", "pt/pandas.pkl"):
    other(path, "refused", "names outside the list; its tensors are arguments of calls")

# Well formed, but none of ours.
with open(here / "bad/several_pickles.pkl", "wb") as file:
    pickle.dump({"a": numpy.ones(2)}, file)
    pickle.dump({"b": numpy.ones(3)}, file)
other("bad/several_pickles.pkl", "unsupported", "two pickles, one after the other")
itself = []
itself.append(itself)
torch.save(itself, here / "bad/holds_itself.pt")
other("bad/holds_itself.pt", "unsupported", "a list that holds nothing but itself")
with torch.package.PackageExporter(here / "bad/torch_package.pt") as exporter:
    exporter.save_pickle("m", "m.pkl", {"w": a})
other("bad/torch_package.pt", "unsupported", "a torch.package archive")

path = here / "expected-torch.json"
expected = {**json.loads(path.read_text()), **entries}
path.write_text(json.dumps(dict(sorted(expected.items())), indent=1, ensure_ascii=True) + "\n")
