"""Run by the old torch's Python: what it loads from the files that are named, a line of JSON each.

python old_torch.py load|jit FILE...
"""
import hashlib
import json
import sys
import warnings

import torch


def dense(tensor):
    plain = tensor.detach().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return [str(plain.dtype), list(plain.shape), hashlib.sha256(data).hexdigest()]


def parts(tensor):
    if tensor.layout == torch.sparse_coo:
        return ["sparse_coo", list(tensor.shape), dense(tensor._indices()), dense(tensor._values())]
    return dense(tensor)


def load(path, **options):
    loaded = torch.load(path, **options)
    return {"type": type(loaded).__name__, "tensors": [[name, parts(tensor)] for name, tensor in loaded.items()]}


def jit(path):
    return {"tensors": [[name, dense(tensor)] for name, tensor in torch.jit.load(path).named_parameters()]}


warnings.simplefilter("ignore")
ways = {"jit": [jit], "load": [lambda path: load(path, weights_only=True), load]}[sys.argv[1]]
for path in sys.argv[2:]:
    for way in ways:
        try:
            print(json.dumps(way(path)))
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
