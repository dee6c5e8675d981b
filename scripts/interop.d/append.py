"""Tensors added to a file, beside what the package's own append makes of it."""
import shutil
from itertools import product

import numpy as np

from models import Model, random_tensor
from peers import Deathtensors, DeathtensorsFile, Npz, Safetensors, deathtensors

ADDED = {"k": "v", "ключ": "😀"}  # to the file's metadata


def run(checks, tconv):
    random = np.random.default_rng(11)
    kept = Model(
        {name: random_tensor(random, dtype, (3, 5)) for name, dtype in (("z", "F32"), ("a", "I8"), ("重み", "BF16"))},
        {"format": "pt", "zeta": "last"},
        {"a": {"layer": "0"}},
    )
    new = Model({name: random_tensor(random, dtype, (7,)) for name, dtype in (("n", "F64"), ("b", "BOOL"), ("empty", "U8"))})
    for checksum, compress in product((False, True), (False, True)):
        with checks.case(f"deathtensors, checksum {checksum}, compress {compress}"):
            check_deathtensors(checks, tconv, Deathtensors(checksum, compress), kept, new)
    for format in Safetensors(), Npz(deflated=False), Npz(deflated=True):
        with checks.case(format.label):
            check_other(checks, tconv, format, kept.only(lambda name, tensor: format.holds(name, tensor)), new)


def check_deathtensors(checks, tconv, format, kept, new):
    with tconv.folder() as folder:
        ours, theirs, inputs = folder / "ours.deathtensors", folder / "theirs.deathtensors", folder / "new.deathtensors"
        format.write(ours, kept)
        shutil.copy(ours, theirs)
        Deathtensors(checksum=True, compress=False).write(inputs, new)
        tuples = [(name, tensor.dtype, tensor.shape, tensor.data, {}) for name, tensor in new.tensors.items()]
        deathtensors.append_file(theirs, tuples, ADDED)
        options = [f"--metadata={key}={value}" for key, value in ADDED.items()]
        if tconv.run("append", "--verify", "--no-sync", *options, ours, inputs) is None:
            return
        want = Model(kept.tensors | new.tensors, kept.metadata | ADDED, kept.tensor_metadata)
        checks.same_model(format.read(ours), want)
        checks.same_model(format.read(theirs), want)
        got, peer = DeathtensorsFile(ours), DeathtensorsFile(theirs)
        checks.equal("prefix", got.prefix, peer.prefix)
        checks.equal("header", got.CREATED_BY.sub(b"", got.header), got.CREATED_BY.sub(b"", peer.header))
        checks.true(got.checksum_holds, lambda: "the checksum does not hold")
        if not got.compressed:
            checks.equal("data", got.blob, peer.blob)


def check_other(checks, tconv, format, kept, new):
    kept = Model(kept.tensors, kept.metadata if format.keeps_metadata else {})
    with tconv.folder() as folder:
        file, inputs = folder / f"file{format.suffix}", folder / f"new{format.suffix}"
        format.write(file, kept)
        format.write(inputs, new)
        if tconv.run("append", "--verify", "--no-sync", file, inputs) is None:
            return
        found = format.read(file)
        checks.equal("tensors", found.tensors, kept.tensors | new.tensors)
        checks.equal("metadata", found.metadata, kept.metadata)
