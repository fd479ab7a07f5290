#!/usr/bin/env python3
"""What PyTorch's fp16_compress_hook and bf16_compress_hook leave of gradients: prints comm_hooks.h.

Two ranks, whose gradients are the two columns below; and three ranks, of which rank 0 has the first
column and the others have zeros, so that the order of the sum does not matter. Over gloo.
"""
import os
import struct

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

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


def row(name, numbers):
    words = ["0x%08x" % struct.unpack("<I", struct.pack("<f", x))[0] for x in numbers]
    print("static const uint32_t %s[COMM_HOOK_GRADIENTS] = {" % name)
    for i in range(0, len(words), 6):
        print("    " + ", ".join(words[i:i + 6]) + ("," if i + 6 < len(words) else "};"))


if __name__ == "__main__":
    print("/* Made by make_comm_hooks.py with PyTorch %s on the CPU: bits of floats. */"
          % torch.__version__.split("+")[0])
    print("#ifndef TESTS_GOLDEN_COMM_HOOKS_H\n#define TESTS_GOLDEN_COMM_HOOKS_H\n")
    print("#include <stdint.h>\n\nenum { COMM_HOOK_GRADIENTS = %d };" % len(FIRST))
    print("/* The gradients of the two ranks. */")
    row("comm_hook_first", torch.tensor(FIRST).tolist())
    row("comm_hook_second", torch.tensor(SECOND).tolist())
    for hook in ("fp16", "bf16"):
        for world in (2, 3):
            out = "/tmp/comm_hook.%d" % os.getpid()
            mp.spawn(work, (world, hook + "_compress_hook", out), world)
            row("comm_hook_%s_%d" % (hook, world), torch.load(out).tolist())
            os.remove(out)
    print("\n#endif")
