"""DeepSpeed ZeRO: what its own script makes of checkpoints that it saved, tconv makes of them bit for bit."""
import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import torch  # noqa: E402
from dcp_peer import digest, expect  # noqa: E402
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

BASE = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True}
CASES = {
    "stage 1, 2 ranks": (2, {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}),
    "stage 2, 3 ranks": (3, {"zero_optimization": {"stage": 2}}),
    "stage 2, round robin": (2, {"zero_optimization": {"stage": 2, "round_robin_gradients": True}, "bf16": {"enabled": True}}),
    "stage 3, 2 ranks": (2, {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}),
    "stage 3, 3 ranks, sub-groups": (3, {"zero_optimization": {"stage": 3, "sub_group_size": 40}}),
}  # fmt: skip


def run(checks, tconv):
    for name, (ranks, config) in CASES.items():
        with checks.case(name), tconv.folder() as folder:
            if save(checks, folder, ranks, {**BASE, **config}):
                compare(checks, tconv, folder / "saved", folder)


def save(checks, folder, count, config):
    program = Path(__file__).with_name("zero_ranks.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, program, str(rank), str(count), folder, json.dumps(config)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank in range(count)
    ]  # fmt: skip
    ok = True
    for number, rank in enumerate(ranks):
        out, _ = rank.communicate(timeout=900)
        ok &= checks.equal(f"rank {number} {out.decode()[-700:] if rank.returncode else ''}", rank.returncode, 0)
    return ok


def compare(checks, tconv, saved, folder):
    state = get_fp32_state_dict_from_zero_checkpoint(str(saved))
    tensors = {name: tensor.detach() for name, tensor in state.items()}
    expect(checks, tconv, saved, tensors)
    tag = (saved / "latest").read_text().strip()
    expect(checks, tconv, saved / tag, tensors)
    tconv.run("verify", saved)
    out = folder / "out.pt"
    tconv.run("-q", saved, out)
    loaded = torch.load(out, weights_only=True)
    same = [name for name, tensor in tensors.items() if digest(loaded[name]) == digest(tensor)]
    checks.equal("loaded by torch", sorted(same), sorted(tensors))
    checks.equal("tied", loaded["emb.weight"].data_ptr(), loaded["head.weight"].data_ptr())
    tconv.run("-q", saved, folder / "out.safetensors")
    same = [name for name, t in load_file(folder / "out.safetensors").items() if digest(t) == digest(tensors[name])]
    checks.equal("loaded by safetensors", sorted(same), sorted(tensors))
