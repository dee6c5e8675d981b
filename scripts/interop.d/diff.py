"""`tconv diff` beside the package's own: what was added, removed or changed between two files."""
import json

import numpy as np

from models import Model, random_tensor
from peers import Deathtensors, Safetensors, deathtensors

FORMAT = Deathtensors(checksum=True, compress=False)
DTYPES = ("BOOL", "U8", "I16", "U32", "I64", "F16", "BF16", "F32", "F64", "C64", "C128")


def run(checks, tconv):
    random = np.random.default_rng(5)
    for round in range(40):
        first = Model(
            {f"layer.{i}": random_tensor(random, str(random.choice(DTYPES)), (3, 4)) for i in range(6)},
            {"note": "one"},
            {"layer.1": {"k": "v"}},
        )
        second = changed(random, first) if round else first
        with checks.case(f"round {round}"):
            check_pair(checks, tconv, first, second)


def changed(random, model):
    """A copy with some tensors removed, added, reshaped, retyped, or with another bit."""
    tensors, metadata, tensor_metadata = dict(model.tensors), dict(model.metadata), dict(model.tensor_metadata)
    for name in list(tensors):
        what = random.integers(8)
        if what == 0:
            del tensors[name]
            tensor_metadata.pop(name, None)
        elif what == 1:
            tensors[name] = random_tensor(random, tensors[name].dtype, (12,))
        elif what == 2:
            tensors[name] = random_tensor(random, "I8" if tensors[name].dtype != "I8" else "U8", (3, 4))
        elif what == 3:
            data = bytearray(tensors[name].data)
            data[int(random.integers(len(data)))] ^= 1
            tensors[name] = tensors[name]._replace(data=bytes(data))
        elif what == 4:
            tensor_metadata[name] = {"k": "another"}
    if random.integers(2):
        tensors["new"] = random_tensor(random, "F32", (2,))
    if random.integers(2):
        metadata["note"] = "two"
    return Model(tensors, metadata, tensor_metadata)


def check_pair(checks, tconv, first, second):
    with tconv.folder() as folder:
        a, b, other = folder / "a.deathtensors", folder / "b.deathtensors", folder / "b.safetensors"
        FORMAT.write(a, first)
        FORMAT.write(b, second)
        want = deathtensors.diff(str(a), str(b))
        done = tconv.fails("diff", "--json", a, b)
        found = json.loads(done.stdout)
        checks.equal("exit code", done.returncode, 0 if want["equal"] else 1)
        checks.equal("equal", found["equal"], want["equal"])
        checks.equal("added", sorted(found["added"]), sorted(want["added"]))
        checks.equal("removed", sorted(found["removed"]), sorted(want["removed"]))
        for ours, theirs in (("shape", "shape_changed"), ("dtype", "dtype_changed")):
            got = {entry["name"]: (entry["a"], entry["b"]) for entry in found[ours]}
            checks.equal(ours, got, {name: tuple(map(plain, sides)) for name, sides in want[theirs].items()})
        checks.equal("values", sorted(entry["name"] for entry in found["values"]), sorted(want["value_changed"]))
        named = {entry["tensor"] for entry in found["metadata"] if entry.get("tensor") is not None}
        checks.equal("metadata of tensors", named, set(want["metadata_changed"]))
        checks.equal(
            "metadata of the file",
            any(entry.get("tensor") is None for entry in found["metadata"]),
            bool(want.get("global_metadata_changed")),
        )
        # Across formats the answer is the same, but for metadata's own place.
        held = second.only(lambda name, tensor: Safetensors().holds(name, tensor))
        if held.tensors == second.tensors and tconv.convert(b, other):
            across = json.loads(tconv.fails("diff", "--json", a, other).stdout)
            for key in ("added", "removed", "shape", "dtype", "values"):
                checks.equal(f"{key} across formats", across[key], found[key])


def plain(side):
    return list(side) if isinstance(side, (list, tuple)) else side
