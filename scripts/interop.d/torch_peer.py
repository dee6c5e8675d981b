"""torch's objects as tconv must see them: tensors by dotted name, and all other leaves as metadata."""
import io
import json
import math
import sys
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from models import Model, Tensor

DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.uint16: "U16", torch.int16: "I16",
    torch.uint32: "U32", torch.int32: "I32", torch.uint64: "U64", torch.int64: "I64", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex32: "C32",
    torch.complex64: "C64", torch.complex128: "C128", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
    torch.float4_e2m1fn_x2: "F4",
}  # fmt: skip
TORCH = {canonical: dtype for dtype, canonical in DTYPES.items()}
LAYOUTS = {
    torch.sparse_coo: ("coo", ["indices", "values"]),
    torch.sparse_csr: ("csr", ["crow_indices", "col_indices", "values"]),
    torch.sparse_csc: ("csc", ["ccol_indices", "row_indices", "values"]),
    torch.sparse_bsr: ("bsr", ["crow_indices", "col_indices", "values"]),
    torch.sparse_bsc: ("bsc", ["ccol_indices", "row_indices", "values"]),
}
WORDS = (torch.dtype, torch.device, torch.layout)  # leaves that are reported as torch prints them

warnings.simplefilter("ignore")  # of what is new, old or in beta: the files are what is tested
torch.set_num_threads(1)


def same_text(got: str, want) -> bool:
    """Of metadata: a string is itself, and (value,) any JSON of the value."""
    if isinstance(want, str):
        return got == want
    try:
        found = json.loads(got)
    except ValueError:
        return False
    return type(found) is type(want[0]) and repr(found) == repr(want[0])


def of_torch(tensor: torch.Tensor) -> Tensor:
    """A dense tensor's values, as C order has them."""
    plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    dtype, shape = DTYPES[plain.dtype], tuple(plain.shape)
    if dtype == "F4":  # counted in pairs by torch
        shape = (*shape[:-1], shape[-1] * 2)
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return Tensor(dtype, shape, data)


def to_torch(tensor: Tensor) -> torch.Tensor:
    shape = tensor.shape
    if tensor.dtype == "F4":
        shape = (*shape[:-1], shape[-1] // 2)
    if not tensor.data:
        return torch.empty(shape, dtype=TORCH[tensor.dtype])
    return torch.frombuffer(bytearray(tensor.data), dtype=torch.uint8).view(TORCH[tensor.dtype]).reshape(shape)


def flatten(root) -> Model:
    """What tconv must make of a file that torch.save or pickle.dump wrote for root; metadata as in same_text."""
    model = Model({})
    if isinstance(root, (torch.Tensor, np.ndarray, np.generic, torch.TypedStorage, torch.UntypedStorage)):
        root = {"tensor": root}
    add(model, [], root)
    return model


def free_name(model: Model, path: list[str]) -> str:
    """Where two paths have one name, the later tensor is called NAME~1, NAME~2 and so on."""
    name = ".".join(path)
    taken = model.tensors.keys() | {entry.get("sparse_parent") for entry in model.tensor_metadata.values()}
    return next(name for name in (name, *(f"{name}~{n}" for n in range(1, len(taken) + 2))) if name not in taken)


def add(model: Model, path: list[str], value):
    if isinstance(value, (torch.Tensor, torch.TypedStorage, torch.UntypedStorage, np.ndarray, np.generic)):
        name = free_name(model, path)
    else:
        name = ".".join(path)
    if isinstance(value, torch.Tensor):
        add_tensor(model, name, value)
    elif isinstance(value, (torch.TypedStorage, torch.UntypedStorage)):
        dtype = getattr(value, "dtype", torch.uint8)
        untyped = value.untyped() if isinstance(value, torch.TypedStorage) else value
        model.tensors[name] = of_torch(torch.empty(0, dtype=dtype).set_(untyped))
    elif isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        model.tensors[name] = Tensor.of(
            np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).reshape(array.shape)
        )
    elif isinstance(value, Mapping) and (value or not path):
        for place, (key, item) in enumerate(value.items()):
            plain = isinstance(key, (str, int)) and not isinstance(key, bool)
            add(model, [*path, str(key) if plain else f"?{place}"], item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = list(value)
        if all(is_scalar(item) for item in items):
            model.metadata[name] = ([in_json(item) for item in items],)
        else:
            for index, item in enumerate(items):
                add(model, [*path, str(index)], item)
    else:
        told = in_json(value)
        model.metadata[name] = told if isinstance(value, (str, *WORDS)) else (told,)


def add_tensor(model: Model, name: str, tensor: torch.Tensor):
    if tensor.layout in LAYOUTS:
        layout, roles = LAYOUTS[tensor.layout]
        parts = {role: getattr(tensor, f"_{role}" if layout == "coo" else role)() for role in roles}
        parts["shape"] = torch.tensor(tensor.shape)
        for role, part in parts.items():
            model.tensors[f"{name}.{role}"] = of_torch(part)
            model.tensor_metadata[f"{name}.{role}"] = {
                "sparse_layout": layout, "sparse_parent": name, "sparse_role": role,
            }  # fmt: skip
    elif tensor.is_quantized:
        model.tensors[name] = of_torch(tensor.int_repr())
        scheme = {"quant.scheme": str(tensor.qscheme()).removeprefix("torch.")}
        if tensor.qscheme() == torch.per_tensor_affine:
            scheme |= {"quant.scale": repr(tensor.q_scale()), "quant.zero_point": str(tensor.q_zero_point())}
        else:
            scheme |= {"quant.axis": str(tensor.q_per_channel_axis())}
            model.tensors[f"{name}.scales"] = of_torch(tensor.q_per_channel_scales())
            model.tensors[f"{name}.zero_points"] = of_torch(tensor.q_per_channel_zero_points())
        model.tensor_metadata[name] = scheme
    else:
        model.tensors[name] = of_torch(tensor)


def is_scalar(value) -> bool:
    return value is None or isinstance(value, (str, bool, int, float, complex, bytes, bytearray, *WORDS))


def in_json(value):
    """The value as json.loads gives it back."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    if isinstance(value, complex):
        return [in_json(value.real), in_json(value.imag)]
    if isinstance(value, WORDS):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def info(tconv, path: Path) -> Model | None:
    """What `tconv info --json` tells, without the values, which `tconv hash` has."""
    out = tconv.run("info", "--json", path)
    if out is None:
        return None
    told = json.loads(out)
    return Model(
        {entry["name"]: Tensor(entry["dtype"], tuple(entry["shape"]), b"") for entry in told["tensors"]},
        told["metadata"],
        {entry["name"]: entry["metadata"] for entry in told["tensors"] if entry.get("metadata")},
    )


def check_seen(checks, tconv, path: Path, want: Model):
    """tconv's table of the file, and the hashes of all values."""
    seen = info(tconv, path)
    if seen is None:
        return
    table = {name: tensor._replace(data=b"") for name, tensor in want.tensors.items()}
    if checks.equal("names in order", list(seen.tensors), list(table)):
        checks.equal("dtypes and shapes", seen.tensors, table)
        tconv.check_hash(path, want)
    check_metadata(checks, "metadata", seen.metadata, want.metadata)
    for name, metadata in want.tensor_metadata.items():
        checks.equal(f"metadata of {name}", seen.tensor_metadata.get(name), metadata)


def check_metadata(checks, what: str, got: dict, want: dict):
    if checks.equal(f"keys of {what}", sorted(got), sorted(want)):
        for key, text in want.items():
            checks.true(
                same_text(got[key], text), lambda: f"{what}, {key!r}: got {got[key][:200]!r}, expected {text!r:.200}"
            )


def load(path: Path, **options):
    """torch.load, of which any warning is an error: it would tell that something about the file is odd."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return torch.load(path, **options)


LOADS = {
    "weights_only": {"weights_only": True},
    "weights_only and mmap": {"weights_only": True, "mmap": True},
    "all": {"weights_only": False},
}


def state_dict(model: Model) -> OrderedDict:
    return OrderedDict((name, to_torch(tensor)) for name, tensor in model.tensors.items())


def saved(root, **options) -> bytes:
    buffer = io.BytesIO()
    torch.save(root, buffer, **options)
    return buffer.getvalue()


def repacked(data: bytes, change, method: int = zipfile.ZIP_STORED) -> bytes:
    """The archive with its members as change, given {name without the root folder: bytes}, leaves them."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        root = names[0].partition("/")[0]
        members = {name.removeprefix(f"{root}/"): archive.read(name) for name in names}
    change(members)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), content, method)
    return buffer.getvalue()


assert sys.byteorder == "little", "the checks take torch's memory for little-endian"
