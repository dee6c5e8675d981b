"""What tconv writes as .pt, torch loads in every way it has: the same names in order, dtypes, shapes and bits."""
import json
import os
import pickletools
import struct
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import torch

from models import Model, Tensor, every_dtype, every_name, random_tensor
from peers import Deathtensors, Format, Npz, Safetensors, SafetensorsSharded, is_available
from pt_reading import Net, filled, sparse, tied
from torch_peer import (
    DTYPES,
    LAYOUTS,
    LOADS,
    add_tensor,
    check_seen,
    flatten,
    load,
    of_torch,
    saved,
    state_dict,
)

DEATHTENSORS = Deathtensors(checksum=True, compress=False)
SUFFIXES = [".pt", ".pth", ".bin"]


class Pt(Format):
    label, peer, suffix, dtypes = "pt", "torch", ".pt", set(DTYPES.values())

    def write(self, path, model):
        torch.save(state_dict(model), path)

    def read(self, path):
        return flatten(torch.load(path, weights_only=True))


SOURCES = [Npz(deflated=False), Safetensors(), SafetensorsSharded(), DEATHTENSORS, Deathtensors(True, True), Pt()]


def run(checks, tconv):
    sources = [source for source in SOURCES if is_available(source.peer)]
    for source in sources:
        for kind, model in ("dtypes", every_dtype()), ("names", every_name()), ("no tensors", Model({})):
            if model.tensors or source.may_be_empty:
                part = model.only(lambda name, tensor: source.holds(name, tensor) and tensor.dtype in Pt.dtypes)
                with checks.case(f"{kind}, {source.label} → pt"), tconv.folder() as inputs, tconv.folder() as outputs:
                    check_written(checks, tconv, source, part, inputs, outputs / "model.pt")
    random = np.random.default_rng(8)
    every_torch = Model({dtype: filled(random, dtype, (3, 4)) for dtype in Pt.dtypes})
    for suffix in SUFFIXES:
        with checks.case(f"every dtype of torch, pt → {suffix}"), tconv.folder() as inputs, tconv.folder() as outputs:
            check_written(checks, tconv, Pt(), every_torch, inputs, outputs / f"model{suffix}")
    for kind, check in {
        "module": check_module, "tied": check_tied, "sparse": check_sparse, "metadata": check_metadata,
        "shards": check_shards, "many tensors": check_many, "twice": check_twice, "members": check_members,
        "over 4 GiB": check_large,
    }.items():  # fmt: skip
        with checks.case(kind), tconv.folder() as folder:
            check(checks, tconv, folder)


def check_written(checks, tconv, source, model, inputs, copy):
    file = inputs / f"model{source.suffix}"
    source.write(file, model)
    written = source.read(file)
    if tconv.convert(source.entry(file), copy):
        check_loads(checks, copy, written)
        check_archive(checks, copy)
        tconv.check_hash(copy, written)


def check_loads(checks, path, model):
    for how, options in LOADS.items():
        loaded = load(path, **options)
        checks.equal(f"type, {how}", type(loaded), OrderedDict)
        checks.equal(f"names in order, {how}", list(loaded), list(model.tensors))
        found = {name: of_torch(tensor) for name, tensor in loaded.items()}
        for name, tensor in model.tensors.items():
            checks.equal(f"tensor {name[:60]!r}, {how}", found.get(name), tensor)
        checks.equal(f"contiguous, {how}", all(tensor.is_contiguous() for tensor in loaded.values()), True)
        checks.equal(f"requires_grad, {how}", any(tensor.requires_grad for tensor in loaded.values()), False)
        if options.get("mmap"):  # the map starts at a page, so addresses tell of offsets
            off = [
                name for name, tensor in loaded.items() if tensor.numel() and tensor.untyped_storage().data_ptr() % 64
            ]
            checks.equal("names of storages off a multiple of 64", off, [])


def check_archive(checks, path):
    with zipfile.ZipFile(path) as archive:
        checks.equal("first bad member", archive.testzip(), None)
        names = archive.namelist()
        roots = {name.partition("/")[0] for name in names}
        checks.equal("roots", len(roots), 1)
        root = roots.pop()
        present = {name.removeprefix(f"{root}/") for name in names}
        for needed in "data.pkl", "version", "byteorder":
            checks.true(needed in present, lambda: f"no {needed} in {sorted(present)[:20]}")
        # With them torch computes where storages are, as if a descriptor followed each.
        checks.equal("members that mislead torch", present & {".format_version", ".storage_alignment"}, set())
        pickle = archive.read(f"{root}/data.pkl")
        stored = {member.compress_type for member in archive.infolist()}
        checks.equal("methods", stored, {zipfile.ZIP_STORED})
    operations = list(pickletools.genops(pickle))
    checks.equal("first opcode", (operations[0][0].name, operations[0][1]), ("PROTO", 2))
    checks.equal("opcodes beyond protocol 2", {op.name for op, _, _ in operations if op.proto > 2}, set())
    pickletools.dis(pickle, out=open(os.devnull, "w"))  # raises where the stack does not work out
    checks.equal("bytes after STOP", len(pickle) - operations[-1][2] - 1, 0)
    checks.equal("globals to allow", torch.serialization.get_unsafe_globals_in_checkpoint(path), [])


def check_module(checks, tconv, folder):
    """A module's weights through another format, back into a module."""
    net, other = Net(), Net()
    first, second, third = folder / "1.pt", folder / "2.safetensors", folder / "3.pt"
    torch.save(net.state_dict(), first)
    if tconv.convert(first, second) and tconv.convert(second, third):
        state = load(third, weights_only=True)
        checks.equal(
            "load_state_dict", str(other.load_state_dict(state, strict=True)), "<All keys matched successfully>"
        )
        checks.equal("weights", flatten(other.state_dict()).tensors, flatten(net.state_dict()).tensors)
        words = torch.arange(7)
        checks.equal("what the module computes", of_torch(other.eval()(words)), of_torch(net.eval()(words)))


def check_tied(checks, tconv, folder):
    """What shares all shares one storage; what only overlaps need not."""
    source, copy = folder / "1.pt", folder / "2.pt"
    for variant in {}, {"_use_new_zipfile_serialization": False}:
        source.write_bytes(saved(tied(), **variant))
        want = flatten(torch.load(source, weights_only=True))
        if not tconv.convert(source, copy):
            continue
        check_loads(checks, copy, want)
        for how, options in LOADS.items():
            loaded = load(copy, **options)
            pointers = {loaded[name].data_ptr() for name in ("embedding", "head", "view")}
            checks.equal(f"places of one storage, {how}", len(pointers), 1)
            loaded["embedding"][0, 0] += 1
            checks.equal(f"a change that shows in both, {how}", loaded["head"][0, 0], loaded["embedding"][0, 0])
        with zipfile.ZipFile(copy) as archive:
            weights = [member for member in archive.infolist() if member.file_size == 48]
            checks.equal("storages of the shared size", len(weights), 1)


def check_sparse(checks, tconv, folder):
    root = sparse()
    source = folder / "1.pt"
    torch.save(root, source)
    routes = {"pt → pt": [], "pt → safetensors → pt": [folder / "2.safetensors"]}
    if is_available("deathtensors"):
        # which has no bfloat16 values; nor 32-bit names for what is sparse, but it holds them as any tensor
        routes["pt → deathtensors → pt"] = [folder / "2.deathtensors"]
    for route, between in routes.items():
        copy, last = folder / "3.pt", source
        steps = [*between, copy]
        converted = all(tconv.convert(a, b) for a, b in zip([last, *steps], steps))
        if not converted:
            continue
        loaded = load_sparse(copy)
        # safetensors orders tensors in its own way
        checks.equal(f"names, {route}", sorted(loaded), sorted(root))
        for name, tensor in root.items():
            got = loaded.get(name)
            checks.equal(f"layout of {name}, {route}", getattr(got, "layout", None), tensor.layout)
            if got is not None and got.layout == tensor.layout:
                parts = [Model({}), Model({})]
                for model, part in zip(parts, (got, tensor)):
                    add_tensor(model, name, part)
                checks.equal(f"{name}, {route}", parts[0].tensors, parts[1].tensors)
                checks.equal(f"shape of {name}, {route}", got.shape, tensor.shape)
                if tensor.layout in LAYOUTS:
                    same = torch.equal(got.to_dense(), tensor.to_dense())
                    checks.true(same, lambda: f"{name}, {route}: other values when dense")


def load_sparse(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse tensors warn of themselves
        return torch.load(path, weights_only=True)


def check_metadata(checks, tconv, folder):
    """Without its tree, what is no tensor is beside the pickle: torch does not see it, and tconv finds it again."""
    source, copy, again, nested = (folder / f"{number}.pt" for number in (1, 2, 3, 7))
    root = {"w": torch.ones(2), "epoch": 3, "args": {"lr": 1e-5, "names": ["a", "b"]}, "title": "run 😀\n"}
    torch.save(root, source)
    if tconv.convert(source, nested):
        whole = load(nested, weights_only=True)
        checks.equal("the tensor of a nested copy", whole.pop("w").tolist(), root["w"].tolist())
        checks.equal("the rest of a nested copy", whole, {key: value for key, value in root.items() if key != "w"})
    if tconv.convert(source, copy, "--tree=never") and tconv.convert(copy, again, "--metadata", "more=yes"):
        check_loads(checks, copy, flatten({"w": root["w"]}))
        check_seen(checks, tconv, copy, flatten(root))
        check_seen(checks, tconv, again, flatten({**root, "more": "yes"}))
        checks.equal("names in torch", list(load(again, weights_only=True)), ["w"])
    if not is_available("deathtensors"):
        return
    tensors = {name: random_tensor(np.random.default_rng(9), "F32", (2, 3)) for name in ("a", "b")}
    model = Model(
        tensors, {"format": "pt", "": "empty key", "ключ": "значение\n"}, {"a": {"quant.scale": "0.5", "x": "😀"}}
    )
    first, second, third = folder / "4.deathtensors", folder / "5.pt", folder / "6.deathtensors"
    DEATHTENSORS.write(first, model)
    if tconv.convert(first, second) and tconv.convert(second, third):
        check_loads(checks, second, Model(tensors))
        checks.same_model(DEATHTENSORS.read(third), model)


def check_shards(checks, tconv, folder):
    """As transformers reads them: the index tells in which shard each tensor is."""
    model = every_dtype().only(lambda name, tensor: tensor.dtype in Pt.dtypes)
    source, copy = folder / "in.pt", folder / "pytorch_model.bin"
    Pt().write(source, model)
    limit = model.nbytes // 3
    if not tconv.convert(source, copy, "--shard-size", limit):
        return
    index = json.loads((folder / "pytorch_model.bin.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    checks.equal("total_size", index["metadata"]["total_size"], model.nbytes)
    checks.equal("names in the index", sorted(index["weight_map"]), sorted(model.tensors))
    expected = [f"pytorch_model-{number:05}-of-{len(shards):05}.bin" for number in range(1, len(shards) + 1)]
    checks.equal("shards", shards, expected)
    checks.true(len(shards) > 2, lambda: f"only {len(shards)} shards")
    files = sorted(file.name for file in folder.iterdir() if file != source)
    checks.equal("files", files, sorted([*shards, "pytorch_model.bin.index.json"]))
    for shard in shards:
        part = model.only(lambda name, _: index["weight_map"][name] == shard)
        check_loads(checks, folder / shard, part)
        checks.true(part.nbytes <= limit or len(part.tensors) == 1, lambda: f"{shard} has {part.nbytes} bytes")
    tconv.check_hash(folder / "pytorch_model.bin.index.json", model)


def check_many(checks, tconv, folder):
    """More members than a zip without its 64-bit records can count."""
    count = 70_000
    model = Model({f"layer.{index}": Tensor("I32", (1,), struct.pack("<i", index)) for index in range(count)})
    source, copy, back = folder / "many.safetensors", folder / "many.pt", folder / "back.safetensors"
    Safetensors().write(source, model)
    if tconv.convert(source, copy):
        for how, options in LOADS.items():
            loaded = load(copy, **options)
            wrong = [name for name, tensor in model.tensors.items() if of_torch(loaded[name]) != tensor]
            checks.equal(f"number of tensors, {how}", len(loaded), count)
            checks.equal(f"tensors that differ, {how}", wrong, [])
        check_archive(checks, copy)
        if tconv.convert(copy, back):
            checks.equal("back in safetensors", Safetensors().read(back).tensors, model.tensors)


def check_twice(checks, tconv, folder):
    """The same input gives the same bytes, under any name: torch loads the archive's folder whatever it is called."""
    source = folder / "in.pt"
    Pt().write(source, every_dtype().only(lambda name, tensor: tensor.dtype in Pt.dtypes))
    copies = [folder / "one.pt", folder / "two.pt", folder / "a.b c.pt"]
    if all([tconv.convert(source, copy) for copy in copies]):
        checks.equal("second copy", copies[1].read_bytes() == copies[0].read_bytes(), True)
        checks.equal(
            "copy by another name", list(load(copies[2], weights_only=True)), list(load(copies[0], weights_only=True))
        )
        moved = folder / "moved.bin"
        moved.write_bytes(copies[0].read_bytes())
        checks.equal("moved", list(load(moved, weights_only=True, mmap=True)), list(load(copies[0], weights_only=True)))


def check_members(checks, tconv, folder):
    """Storages of every size modulo 64, so that each amount of padding occurs; mmap tells where torch looks."""
    random = np.random.default_rng(10)
    model = Model({f"{'n' * (size % 70)}{size}": random_tensor(random, "U8", (size,)) for size in range(200)})
    source, copy = folder / "in.safetensors", folder / "out.pt"
    Safetensors().write(source, model)
    model = Safetensors().read(source)
    if tconv.convert(source, copy):
        check_loads(checks, copy, model)
        reader = torch._C.PyTorchFileReader(str(copy))
        data = copy.read_bytes()
        records = [record for record in reader.get_all_records() if record.startswith("data/")]
        checks.equal("records", len(records) >= 199, True)
        for record in records:
            offset, content = reader.get_record_offset(record), reader.get_record(record)
            checks.equal(f"{record} where torch finds it", data[offset : offset + len(content)], content)
            checks.equal(f"offset of {record} modulo 64", offset % 64, 0)


def check_large(checks, tconv, folder):
    if not os.environ.get("INTEROP_LARGE"):
        checks.skipped.append("a .pt over 4 GiB needs INTEROP_LARGE=1")
        return
    size = (4 << 30) + 4096
    header = json.dumps({
        "big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "last": {"dtype": "F32", "shape": [2], "data_offsets": [size, size + 8]},
    }).encode()  # fmt: skip
    source, copy = folder / "big.safetensors", folder / "big.pt"
    with source.open("wb") as file:  # a hole but for its ends
        file.write(struct.pack("<Q", len(header)) + header)
        start = file.tell()
        file.seek(start + size - 1)
        file.write(b"\x07" + struct.pack("<2f", 1.5, -2.5))
    if tconv.convert(source, copy):
        source.unlink()
        for how, options in LOADS.items():
            loaded = load(copy, **options)
            checks.equal(f"shape, {how}", loaded["big"].shape, torch.Size([size]))
            checks.equal(f"last byte, {how}", loaded["big"][-1].item(), 7)
            checks.equal(f"last tensor, {how}", loaded["last"].tolist(), [1.5, -2.5])
            del loaded
