"""Metadata of files and of tensors, across formats and back."""
import json
from itertools import product

import numpy as np

from models import Model, random_tensor
from peers import FORMATS, Deathtensors, Npz, Safetensors

TENSOR_METADATA = "tconv.tensor_metadata"  # where safetensors keeps what it has no place for

FILE = {
    "none": {},
    "one": {"format": "pt"},
    "several": {"zeta": "last", "alpha": "first", "format": "pt", "": "empty key", "empty": ""},
    "text": {"ключ": "значение 😀", "quotes": "\"'\\", "lines": "a\nb\r\n\tc", "control": "\x01\x7f", "json": '{"a": 1}'},
    "long": {"config": "0123456789" * 20000, "k" * 5000: "long key"},
}
TENSORS = {
    "first": {"layer": "0", "quant.scale": "0.125"},
    'name "quoted"\n重み': {"ключ": "😀", "": "", "lines": "a\nb"},
}
PLAIN = Deathtensors(checksum=True, compress=False)


def run(checks, tconv):
    random = np.random.default_rng(4)
    tensors = {name: random_tensor(random, "F32", (2, 3)) for name in [*TENSORS, "plain"]}
    model = Model(tensors, FILE["several"], TENSORS)
    keepers = [format for format in FORMATS if format.keeps_metadata]
    tensor_keepers = [format for format in keepers if isinstance(format, Deathtensors)]
    cases = [(kind, Model(tensors, metadata), keepers) for kind, metadata in FILE.items()]
    for kind, sent, formats in [*cases, ("of tensors", model, tensor_keepers)]:
        for source, target in product(formats, formats):
            with checks.case(f"{kind}, {source.label} → {target.label}"):
                check_direct(checks, tconv, source, target, sent)
    for back in tensor_keepers:
        with checks.case(f"of tensors, deathtensors → safetensors → {back.label}"):
            check_detour(checks, tconv, back, model)
    with checks.case("sidecar, deathtensors → npz → deathtensors"):
        check_sidecar(checks, tconv, model)
    for format in PLAIN, Safetensors():
        with checks.case(f"--metadata, {format.label}"):
            check_option(checks, tconv, format, Model(tensors, {"kept": "yes"}))


def check_direct(checks, tconv, source, target, model):
    with tconv.folder() as inputs, tconv.folder() as outputs, tconv.folder() as scratch:
        file, copy = inputs / f"model{source.suffix}", outputs / f"model{target.suffix}"
        source.write(file, model)
        written = source.read(file)
        if tconv.convert(source.entry(file), copy, *target.options(written)):
            found = target.read(copy)
            checks.equal("metadata", found.metadata, model.metadata)
            checks.equal("tensor metadata", found.tensor_metadata, model.tensor_metadata)
            if isinstance(target, Deathtensors):  # sorts the keys: safetensors' own order of several is random
                for part, got, want in target.against_peer(copy, written, scratch):
                    checks.equal(f"{part}, against {target.peer}'s own", got, want)


def check_detour(checks, tconv, back, model):
    """In safetensors they are one key beside the file's own; on the way back that key is gone."""
    with tconv.folder() as folder:
        first, second, third = folder / "1.deathtensors", folder / "2.safetensors", folder / "3.deathtensors"
        PLAIN.write(first, model)
        if tconv.convert(first, second) and tconv.convert(second, third, *back.options(model)):
            between = Safetensors().read(second)
            compact = json.dumps(model.tensor_metadata, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
            checks.equal("its key in safetensors", between.metadata.pop(TENSOR_METADATA, None), compact)
            checks.equal("the file's keys in safetensors", between.metadata, model.metadata)
            checks.same_model(back.read(third), Model(between.tensors, model.metadata, model.tensor_metadata))


def check_sidecar(checks, tconv, model):
    """npz has no place for metadata: it goes beside the file, and comes back from there."""
    with tconv.folder() as folder:
        first, second, third = folder / "1.deathtensors", folder / "2.npz", folder / "3.deathtensors"
        PLAIN.write(first, model)
        if tconv.convert(first, second, "--keep-metadata=sidecar") and tconv.convert(second, third):
            checks.equal("files", sorted(file.name for file in folder.glob("2*")), ["2.npz", "2.npz.tconv.json"])
            checks.equal("tensors in npz", Npz(deflated=False).read(second).tensors, model.tensors)
            checks.same_model(PLAIN.read(third), model)


def check_option(checks, tconv, format, model):
    with tconv.folder() as folder:
        source, target = folder / f"source{format.suffix}", folder / f"target{format.suffix}"
        format.write(source, model)
        if tconv.convert(source, target, "--metadata", "key=va=lue"):
            checks.equal("metadata", format.read(target).metadata, {**model.metadata, "key": "va=lue"})
