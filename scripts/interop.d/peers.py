"""The formats as their own programs read and write them.

A Format is one way to write a format: how the peer does it, and which options ask tconv for the same.
"""
import io
import json
import re
import struct
import sys
import zipfile
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import numpy as np

from models import NUMPY, Model, Tensor


def optional(name: str):
    try:
        return import_module(name)
    except ImportError:
        return None


def is_available(peer: str) -> bool:
    return optional(peer) is not None


# deathtensors looks for torch at every tensor; its numpy side is what is tested. A section that has torch keeps it.
sys.modules.setdefault("torch", None)
safetensors = optional("safetensors")
deathtensors = optional("deathtensors")


class Format:
    label: str
    peer: str
    suffix: str
    dtypes: set[str]
    keeps_metadata = True
    may_be_empty = True

    def holds(self, name: str, tensor: Tensor) -> bool:
        return tensor.dtype in self.dtypes

    def options(self, model: Model) -> list[str]:
        """What tconv is given to write model in this way."""
        return []

    def entry(self, path: Path) -> Path:
        """The file to open for what was written to path."""
        return path

    def write(self, path: Path, model: Model):
        raise NotImplementedError

    def read(self, path: Path) -> Model:
        raise NotImplementedError

    def against_peer(self, path: Path, model: Model, scratch: Path):
        """Yields (what, bytes in tconv's file at path, bytes the peer writes for model); scratch is an empty folder."""
        raise NotImplementedError


class Npz(Format):
    peer, suffix, dtypes, keeps_metadata = "numpy", ".npz", set(NUMPY), False

    def __init__(self, deflated: bool):
        self.deflated = deflated
        self.label = "npz deflated" if deflated else "npz"

    def options(self, model):
        return ["--compress"] if self.deflated else []

    def write(self, path, model):
        save = np.savez_compressed if self.deflated else np.savez
        save(path, **{name: tensor.array() for name, tensor in model.tensors.items()})

    def read(self, path):
        with np.load(path, allow_pickle=False) as arrays:
            return Model({name: Tensor.of(arrays[name]) for name in arrays.files})

    def against_peer(self, path, model, scratch):
        method = zipfile.ZIP_DEFLATED if self.deflated else zipfile.ZIP_STORED
        with zipfile.ZipFile(path) as members:
            for name, tensor in model.tensors.items():
                member = members.getinfo(f"{name}.npy")
                yield f"method of member {name[:60]!r}", member.compress_type, method
                yield f"member {name[:60]!r}", members.read(member), npy_bytes(tensor.array())


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


class Safetensors(Format):
    # The package's names. It has none for F6, which its reader knows and its writer can't be asked for.
    NAMES = {
        **{dtype: np.dtype(numpy).name for dtype, numpy in NUMPY.items() if dtype != "C128"},
        "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
        "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
        "F4": "float4_e2m1fn_x2",
    }  # fmt: skip
    label, peer, suffix, dtypes = "safetensors", "safetensors", ".safetensors", set(NAMES)

    def write(self, path, model):
        path.write_bytes(self.encode(model))

    def encode(self, model: Model) -> bytes:
        specs = {
            name: safetensors.TensorSpec(
                dtype=self.NAMES[tensor.dtype],
                # F4 is named as torch's pairs are, so the package doubles the last dimension.
                shape=[*tensor.shape[:-1], tensor.shape[-1] // 2] if tensor.dtype == "F4" else tensor.shape,
                data_ptr=np.frombuffer(tensor.data, np.uint8).ctypes.data,
                data_len=len(tensor.data),
            )
            for name, tensor in model.tensors.items()
        }
        return bytes(safetensors.serialize(specs, metadata=model.metadata or None))

    def read(self, path):
        data = path.read_bytes()
        found = {
            name: Tensor(view["dtype"], tuple(view["shape"]), bytes(view["data"]))
            for name, view in safetensors.deserialize(data)
        }
        with safetensors.safe_open(path, "numpy") as opened:
            metadata = opened.metadata() or {}
        return Model({name: found[name] for name in in_data_order(data)}, metadata)

    def against_peer(self, path, model, scratch):
        yield "file", path.read_bytes(), self.encode(model)


def in_data_order(data: bytes) -> list[str]:
    """A safetensors file's names by offset, then by place in the header: the package gives them in a random order."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header.pop("__metadata__", None)
    return sorted(header, key=lambda name: header[name]["data_offsets"])


def safetensors_by_hand(model: Model, names_in_header) -> bytes:
    """A valid file that the package's writer would not make: dtypes it can't name, header and data in two orders."""
    entries, offset = {}, 0
    for name, tensor in model.tensors.items():
        offsets = [offset, offset := offset + len(tensor.data)]
        entries[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
    header = json.dumps({name: entries[name] for name in names_in_header}).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(tensor.data for tensor in model.tensors.values())


HEADER_ROOM = 16 << 20


def shard_limit(model: Model, shards: int = 4) -> int:
    """A size at which the model takes about that many shards, and exactly one if it is one.

    tconv counts whole files, the peers only data: for one shard there is room for any header."""
    return max(1, model.nbytes // shards) if shards > 1 else model.nbytes + HEADER_ROOM


class SafetensorsSharded(Safetensors):
    label, may_be_empty = "safetensors sharded", False  # no shards and their index: nobody writes that

    def options(self, model):
        return ["--shard-size", str(shard_limit(model))]

    def entry(self, path):
        return path.with_name(f"{path.name}.index.json")

    def write(self, path, model):
        shards, room = [], 0
        for name, tensor in model.tensors.items():
            if not shards or len(tensor.data) > room:
                shards.append({})
                room = shard_limit(model)
            shards[-1][name] = tensor
            room -= len(tensor.data)
        weight_map = {}
        for number, tensors in enumerate(shards, 1):
            shard = path.with_name(f"{path.stem}-{number:05}-of-{len(shards):05}.safetensors")
            super().write(shard, Model(tensors, model.metadata))
            weight_map |= dict.fromkeys(tensors, shard.name)
        index = {"metadata": {"total_size": model.nbytes}, "weight_map": weight_map}
        self.entry(path).write_text(json.dumps(index, indent=2))

    def read(self, path):
        weight_map = json.loads(self.entry(path).read_text())["weight_map"]
        model = Model({})
        for shard in dict.fromkeys(weight_map.values()):
            part = super().read(path.with_name(shard))
            assert {name for name in weight_map if weight_map[name] == shard} == set(part.tensors), shard
            model.tensors |= part.tensors
            model.metadata |= part.metadata
        return model

    def against_peer(self, path, model, scratch):
        index = json.loads(self.entry(path).read_text())
        shards = sorted(set(index["weight_map"].values()))
        yield "total_size", index["metadata"]["total_size"], model.nbytes
        expected = [f"{path.stem}-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))]
        yield "shards' names", shards, expected
        yield "files", sorted(file.name for file in path.parent.iterdir()), sorted([*shards, self.entry(path).name])
        for shard in shards:
            part = model.only(lambda name, _: index["weight_map"][name] == shard)
            yield f"size of {shard}", part.nbytes <= shard_limit(model) or len(part.tensors) == 1, True
            yield shard, path.with_name(shard).read_bytes(), self.encode(part)


class Deathtensors(Format):
    peer, dtypes = "deathtensors", {*NUMPY, "BF16"}

    def __init__(self, checksum: bool, compress: bool, shards: int = 0, suffix: str = ".deathtensors"):
        self.saving, self.shards, self.suffix = {"checksum": checksum, "compress": compress}, shards, suffix
        words = {**self.saving, "one shard": shards == 1, "sharded": shards > 1}
        self.label = " ".join([suffix[1:], *(word for word, holds in words.items() if holds)])

    def holds(self, name, tensor):
        return super().holds(name, tensor) and 1 <= len(name.encode()) <= 4096

    def options(self, model):
        return [
            *([] if self.saving["checksum"] else ["--no-checksum"]),
            *(["--compress"] if self.saving["compress"] else []),
            *(["--shard-size", str(shard_limit(model, self.shards))] if self.shards else []),
        ]

    def write(self, path, model):
        tensors = {
            name: tensor.array() if tensor.dtype in NUMPY else tuple(tensor) for name, tensor in model.tensors.items()
        }
        save, options = deathtensors.save, {}
        if self.shards:
            save, options = deathtensors.save_sharded, {"max_shard_bytes": shard_limit(model, self.shards)}
        save(path, tensors, metadata=model.tensor_metadata, global_metadata=model.metadata, **self.saving, **options)

    def read(self, path):
        reader = deathtensors.open_sharded if self.shards else deathtensors.open
        with reader(path, verify=True) as opened:
            model = Model({}, opened.metadata())
            for name in opened.keys():
                info, array = opened.info(name), opened.get_tensor(name, framework="numpy")
                shape = tuple(info["shape"])
                if info["dtype"] != "BF16":  # which the package hands over as plain bytes
                    assert array.shape == shape and array.dtype == NUMPY[info["dtype"]], name
                model.tensors[name] = Tensor(info["dtype"], shape, array.tobytes())
                if info["metadata"]:
                    model.tensor_metadata[name] = info["metadata"]
        return model

    def against_peer(self, path, model, scratch):
        self.write(scratch / path.name, model)
        files = sorted(file.name for file in scratch.iterdir())
        ours = sorted(file.name for file in path.parent.iterdir())
        if self.shards > 1 and ours != files:  # tconv counts whole files, the peer only data
            for file in (path.with_name(name) for name in ours if name != path.name):
                with deathtensors.open(file, verify=True) as shard:
                    small = file.stat().st_size <= shard_limit(model, self.shards)
                    yield f"size of {file.name}", small or len(shard.keys()) == 1, True
            return
        yield "files", ours, files
        for file in files:
            got, want = DeathtensorsFile(path.with_name(file)), DeathtensorsFile(scratch / file)
            yield f"created_by in {file}", bool(re.fullmatch(r"tconv \d+\.\d+\.\d+\S*", got.created_by())), True
            if want.compressed:  # two zstd encoders need not agree
                got.blob = want.blob
            yield file, got.encode(), want.encode(got.created_by())


class DeathtensorsFile:
    """The parts of a .deathtensors file, and what it would be had another program created it."""

    CREATED_BY = re.compile(rb'(?<="created_by": )"[^"]*"')

    def __init__(self, path: Path):
        data = path.read_bytes()
        flags, size = struct.unpack_from("<IQ", data, 12)
        start = 24 + size + -size % 8
        end = len(data) - 32 if flags & 2 else len(data)
        self.prefix, self.header, self.padding = data[:16], data[24 : 24 + size], data[24 + size : start]
        self.blob, self.footer, self.compressed = data[start:end], data[end:], bool(flags & 1)
        self.checksum_holds = self.footer in (b"", sha256(data[24:end]).digest())

    def created_by(self) -> str:
        return json.loads(self.header)["created_by"]

    def encode(self, created_by: str | None = None) -> bytes:
        header, padding = self.header, self.padding
        if created_by is not None:
            header = self.CREATED_BY.sub(json.dumps(created_by).encode(), header, count=1)
            padding = bytes(-len(header) % 8)
        body = header + padding + self.blob
        footer = sha256(body).digest() if self.footer and self.checksum_holds else self.footer
        return self.prefix + struct.pack("<Q", len(header)) + body + footer


FORMATS = [
    Npz(deflated=False),
    Npz(deflated=True),
    Safetensors(),
    SafetensorsSharded(),
    *(Deathtensors(checksum, compress) for checksum in (False, True) for compress in (False, True)),
    Deathtensors(checksum=True, compress=False, shards=4),
    Deathtensors(checksum=True, compress=True, shards=4),
    Deathtensors(checksum=False, compress=False, shards=1),
    Deathtensors(checksum=True, compress=False, suffix=".dt"),
    Deathtensors(checksum=False, compress=False, shards=4, suffix=".dt"),
]
