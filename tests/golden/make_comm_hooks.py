#!/usr/bin/env python3
"""Writes comm_hooks.txt: gradients after PyTorch's fp16_compress_hook and bf16_compress_hook.

It runs two ranks, whose gradients are the two columns below, and three ranks, where rank 0 has the
first column and the others have zeros, so that the order of the sum does not matter. It uses gloo.
"""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from formulas import as_line, bits, write

FIRST = [1.0, 0.1, -0.3, 1 / 3, 3.14159265, -2.71828, 1000.7, -4097.3, 6e-5, 3e-5, 1e-7, 4e-8,
         65000.0, 65519.0, 65520.0, -7e4, 0.0, -0.0, 1.00048828125, 1.0009765625, 0.00097, 123.456,
         -1e-3, 2049.0]
SECOND = [2.0, 0.7, 0.3, -1 / 7, 1.41421356, 2.71828, 0.3, 4097.1, 5e-5, 1e-8, 1e-7, 4e-8,
          65000.0, 65519.0, 1.0, 7e4, 0.0, -0.0, 1e-4, 3e-4, 0.33, -123.4,
          1e-8, 1.0]


def work(rank, world, hook, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = torch.nn.Linear(len(FIRST), 1, bias=False)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp.register_comm_hook(None, getattr(default_hooks, hook))
    x = FIRST if rank == 0 else SECOND if world == 2 else [0.0] * len(FIRST)
    ddp(torch.tensor([x])).sum().backward()
    if rank == 0:
        torch.save(model.weight.grad.flatten(), out)
    dist.destroy_process_group()


if __name__ == "__main__":
    rows = {"first": torch.tensor(FIRST), "second": torch.tensor(SECOND)}
    for hook in ("fp16", "bf16"):
        for world in (2, 3):
            out = "/tmp/comm_hook.%d" % os.getpid()
            mp.spawn(work, (world, hook + "_compress_hook", out), world)
            rows[f"{hook}_{world}"] = torch.load(out)
            os.remove(out)
    write(__file__, "bits of the gradients of two ranks, and of what hooks leave of them",
          [as_line(name, torch.tensor(bits(t)), hex) for name, t in rows.items()])
