"""The JSON sidecar, byte for byte as the package writes it but for its time."""
import json
import re
from datetime import datetime, timezone

import numpy as np

from models import Model, random_tensor
from peers import Deathtensors, Safetensors, deathtensors

WRITTEN_AT = re.compile(rb'"written_at": "[^"]*"')


def run(checks, tconv):
    random = np.random.default_rng(12)
    format = Deathtensors(checksum=True, compress=False)
    tensors = {dtype.lower(): random_tensor(random, dtype, (2, 3)) for dtype in sorted(format.dtypes)}
    tensors |= {"scalar": random_tensor(random, "F32", ()), "重み\n": random_tensor(random, "I8", (0,))}
    models = {
        "all dtypes": Model(tensors, {"format": "pt", "ключ": "😀"}, {"scalar": {"k": "v"}}),
        "empty": Model({}),
    }
    for label, model in models.items():
        with checks.case(label), tconv.folder() as folder:
            file, theirs = folder / "model.deathtensors", folder / "theirs.json"
            format.write(file, model)
            deathtensors.write_manifest(file, theirs)
            if tconv.run("manifest", file) is None:
                continue
            ours = folder / "model.deathtensors.json"
            checks.equal("text", *(WRITTEN_AT.sub(b"", path.read_bytes()) for path in (ours, theirs)))
            read = deathtensors.read_manifest(ours)
            checks.equal("keys", list(read), list(deathtensors.read_manifest(theirs)))
            when = datetime.fromisoformat(read["written_at"])
            checks.equal("written_at", when, datetime.fromtimestamp(int(file.stat().st_mtime), timezone.utc))
    with checks.case("of safetensors"), tconv.folder() as folder:
        file, copy = folder / "model.safetensors", folder / "model.deathtensors"
        held = models["all dtypes"].only(lambda name, tensor: Safetensors().holds(name, tensor))
        Safetensors().write(file, Model(held.tensors, held.metadata))
        texts = [tconv.run("manifest", path, "-") for path in (file,) if tconv.convert(file, copy)]
        texts.append(tconv.run("manifest", copy, "-"))
        checks.equal("that of a copy", *(text and json.loads(WRITTEN_AT.sub(b'"x": 0', text)) for text in texts))
