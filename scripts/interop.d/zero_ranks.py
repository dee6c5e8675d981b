"""One rank of a training with DeepSpeed on the CPU: python zero_ranks.py RANK WORLD FOLDER CONFIG"""
import json
import os
import sys
from pathlib import Path

# DeepSpeed asks for these.
os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", DS_SKIP_CUDA_CHECK="1")

import deepspeed  # noqa: E402
import deepspeed.comm.torch  # noqa: E402
import torch  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.arange(3))
        self.register_buffer("scale", torch.tensor([0.5, 2.0]))
        self.emb = torch.nn.Embedding(11, 5)
        self.fc = torch.nn.Linear(5, 7)
        self.norm = torch.nn.LayerNorm(7)
        self.proj = torch.nn.Linear(7, 5)
        self.head = torch.nn.Linear(5, 11, bias=False)
        self.head.weight = self.emb.weight
        self.fixed = torch.nn.Linear(5, 5, bias=False)
        self.fixed.weight.requires_grad = False

    def forward(self, tokens):
        hidden = self.fixed(self.emb(tokens))
        return self.head(self.proj(self.norm(self.fc(hidden)))).float().square().mean()


def groups(module):
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    return [
        {"params": [p for name, p in named if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for name, p in named if p.ndim == 1], "weight_decay": 0.0},
    ]


def main(rank, world, folder, config):
    deepspeed.comm.torch.build_shm_op = lambda: None  # else it compiles a program first
    folder = Path(folder)
    os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(world))
    deepspeed.init_distributed("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world, auto_mpi_discovery=False)
    torch.manual_seed(2)
    module = Net()
    config = json.loads(config)
    optimizer = torch.optim.AdamW(groups(module), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
    for step in range(2):
        loss = engine(torch.tensor([[1, 2, 3, rank + step]]))
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(str(folder / "saved"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
