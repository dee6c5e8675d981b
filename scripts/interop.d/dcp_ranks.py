"""One rank of a program that saves distributed checkpoints: python dcp_ranks.py RANK WORLD FOLDER WHAT"""
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor


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


RANDOM_DTYPES = [
    torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2,
]  # fmt: skip


def random_layouts(world, count=40):
    """The same on every rank: tensors of sizes below the number of ranks too, on meshes of one and two axes."""
    choice = random.Random(world)
    torch.manual_seed(world)
    meshes = [init_device_mesh("cpu", (world,))]
    meshes += [init_device_mesh("cpu", (2, world // 2))] if world % 2 == 0 else []
    state = {"step": 7, "name": "run", "list": [1.5, torch.arange(3)]}
    for number in range(count):
        shape = [choice.choice([1, 2, 3, 5, 8, 13]) for _ in range(choice.randint(1, 3))]
        mesh = choice.choice(meshes)
        placements = [choice.choice([Shard(choice.randrange(len(shape))), Replicate()]) for _ in range(mesh.ndim)]
        whole = torch.randint(0, 256, shape).to(RANDOM_DTYPES[number % len(RANDOM_DTYPES)])
        local = distribute_tensor(whole.to(torch.float64), mesh, placements)
        state[f"t{number}"] = DTensor.from_local(
            local.to_local().to(whole.dtype), mesh, placements, run_check=False, shape=whole.shape,
            stride=local.stride(),
        )  # fmt: skip
    return state


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
    state = {"fsdp": model, "random": random_layouts}.get(what, tensors)(world)
    full = whole(state) if what != "random" else None
    if rank == 0 and full:
        torch.save(full, folder / "whole.pt")
    if what == "hf":
        state = {name: value.contiguous() for name, value in state.items() if hasattr(value, "full_tensor")}
        writer = dcp.HuggingFaceStorageWriter(
            path=str(folder / "saved"), fqn_to_index_mapping=dict.fromkeys(state, 1), save_distributed=True
        )
        dcp.save(state, storage_writer=writer)
    elif what == "random" and world != 3:
        dcp.async_save(state, checkpoint_id=folder / "saved").result()
    else:
        dcp.save(state, checkpoint_id=folder / "saved")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
