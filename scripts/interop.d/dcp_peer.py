"""torch.distributed.checkpoint: tconv reads bit for bit what torch saves, from one process and from several."""
import io
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.float8_e4m3fn,
    torch.float8_e5m2,
]  # fmt: skip
RANKS = 4


def run(checks, tconv):
    for name, writer in writers().items():
        with checks.case(f"one process, {name}"), tconv.folder() as folder:
            state = nested()
            dcp.save(state, storage_writer=writer(folder / "saved"), no_dist=True)
            compare(checks, tconv, folder / "saved", flat(state))
    with checks.case("only what is selected"), tconv.folder() as folder:
        dcp.save(nested(), checkpoint_id=folder / "saved", no_dist=True)
        expect(checks, tconv, folder / "saved", flat({"model": nested()["model"]}), "--include", "model.*")
    for what in ("tensors", "fsdp", "hf"):
        with checks.case(f"{RANKS} processes, {what}"), tconv.folder() as folder:
            save_in_ranks(checks, folder, what)
            whole = flat(torch.load(folder / "whole.pt", weights_only=True))
            if what == "hf":
                whole.pop("plain")
            compare(checks, tconv, folder / "saved", whole)


    for world in (3, 4):
        with checks.case(f"{world} processes, random layouts"), tconv.folder() as folder:
            save_in_ranks(checks, folder, "random", world)
            dcp_to_torch_save(folder / "saved", folder / "whole.pt")
            compare(checks, tconv, folder / "saved", flat(torch.load(folder / "whole.pt", weights_only=True)))


def writers():
    found = {
        "one file": lambda path: dcp.FileSystemWriter(path),
        "a file an item": lambda path: dcp.FileSystemWriter(path, single_file_per_rank=False),
        "threads": lambda path: dcp.FileSystemWriter(path, thread_count=3),
    }
    try:
        import zstandard  # noqa: F401
        from torch.distributed.checkpoint._extension import ZStandard

        ZStandard()
        found["zstd"] = lambda path: dcp.FileSystemWriter(path, _extensions=[ZStandard()])
    except (ImportError, RuntimeError, ValueError):
        pass
    return found


def nested():
    torch.manual_seed(1)
    model = {f"dtype.{number}": torch.arange(12).reshape(3, 4).to(dtype) for number, dtype in enumerate(DTYPES)}
    model["transposed"] = torch.randn(5, 3).t()
    model["slice"] = torch.randn(8, 8)[2:5, ::2]
    model["scalar"] = torch.tensor(1.5)
    model["empty"] = torch.empty(0, 4)
    model["large"] = torch.randn(600, 700)
    return {
        "model": model,
        "optim": {"state": {0: {"exp_avg": torch.randn(4), "step": torch.tensor(3.0)}}, "lr": 0.1},
        "list": [None, torch.ones(2), {"x": torch.zeros(1)}],
        "tuple": (1, torch.full((2,), 2.0)),
        "epoch": 3,
        "bytes": io.BytesIO(b"hello"),
    }


def flat(value, name=""):
    """What tconv must find: tensors by their paths."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    if isinstance(value, torch.Tensor):
        return {name: value.detach()}
    return {path: tensor for key, inner in items for path, tensor in flat(inner, f"{name}.{key}".lstrip(".")).items()}


def digest(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
    return sha256(data.numpy().tobytes()).hexdigest()


def expect(checks, tconv, source, tensors, *options):
    lines = (tconv.run("hash", source, *options) or b"").decode().splitlines()
    found = {line.split('"', 1)[1].rstrip('"'): line.split()[0] for line in lines}
    checks.equal("hashes", found, {name: digest(tensor) for name, tensor in tensors.items()})


def compare(checks, tconv, source, tensors):
    expect(checks, tconv, source, tensors)
    tconv.run("verify", source)
    out = source.parent / "out.safetensors"
    tconv.run("-q", source, out)
    loaded = load_file(out)
    checks.equal("names", sorted(loaded), sorted(tensors))
    same = [name for name, tensor in tensors.items() if digest(loaded[name]) == digest(tensor)]
    checks.equal("loaded", sorted(same), sorted(tensors))


def save_in_ranks(checks, folder, what, world=RANKS):
    program = Path(__file__).with_name("dcp_ranks.py")
    ranks = [
        subprocess.Popen([sys.executable, program, str(rank), str(world), folder, what], stderr=subprocess.PIPE)
        for rank in range(world)
    ]
    for number, rank in enumerate(ranks):
        _, err = rank.communicate(timeout=600)
        checks.equal(f"rank {number} {err.decode()[-500:] if rank.returncode else ''}", rank.returncode, 0)
