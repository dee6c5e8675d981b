"""One rank of a program that saves distributed checkpoints: python dcp_ranks.py RANK WORLD FOLDER WHAT"""
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def tensors(world):
    torch.manual_seed(3)
    row = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    grid = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    return {
        "rows": distribute_tensor(torch.randn(7, 6), row, [Shard(0)]),
        "columns": distribute_tensor(torch.randn(5, 9).to(torch.bfloat16), row, [Shard(1)]),
        "middle": distribute_tensor(torch.randn(3, 11, 4).double(), row, [Shard(1)]),
        "grid": distribute_tensor(torch.randn(9, 7), grid, [Shard(0), Shard(1)]),
        "both": distribute_tensor(torch.randn(13, 3), grid, [Shard(0), Shard(0)]),
        "half": distribute_tensor(torch.randn(6, 5), grid, [Replicate(), Shard(0)]),
        "tiny": distribute_tensor(torch.arange(2), row, [Shard(0)]),
        "same": distribute_tensor(torch.randn(4, 4), row, [Replicate()]),
        "plain": torch.arange(12).reshape(3, 4).t(),
    }


def model(world):
    torch.manual_seed(4)
    module = torch.nn.Sequential(torch.nn.Linear(9, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 3))
    fully_shard(module, mesh=init_device_mesh("cpu", (world,), mesh_dim_names=("dp",)))
    return {"model": module.state_dict(), "step": 7}


def whole(state):
    return {name: whole(value) if isinstance(value, dict) else
            value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()}  # fmt: skip


def main(rank, world, folder, what):
    folder = Path(folder)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    state = model(world) if what == "fsdp" else tensors(world)
    full = whole(state)
    if rank == 0:
        torch.save(full, folder / "whole.pt")
    if what == "hf":
        state = {name: value.contiguous() for name, value in state.items() if hasattr(value, "full_tensor")}
        writer = dcp.HuggingFaceStorageWriter(
            path=str(folder / "saved"), fqn_to_index_mapping=dict.fromkeys(state, 1), save_distributed=True
        )
        dcp.save(state, storage_writer=writer)
    else:
        dcp.save(state, checkpoint_id=folder / "saved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
