#!/usr/bin/env python3
"""Makes fsdp.txt: training with PyTorch's fully_shard (FSDP2) in processes on one machine, over gloo on the CPU.

Everything is float64, so that the golden side has no relevant rounding. Data and initial weights are those of
`--dataset random` and the seed, in float32.

    python3 tests/golden/make_fsdp.py             needs torch and numpy, half a minute
"""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from formulas import fact, write

STEPS, BATCH, SAMPLES = 5, 12, 60


def mlp():
    return nn.Sequential(nn.Linear(17, 23), nn.ReLU(), nn.Linear(23, 11), nn.ReLU(), nn.Linear(11, 7)), ["fc1", None, "fc2", None, "fc3"]


def conv():
    return nn.Sequential(nn.Conv2d(2, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 5 * 4, 7)), ["conv1", None, None, "fc"]


SGD, ADAM = torch.optim.SGD, torch.optim.Adam
# name, model, shape of a sample, ranks, optimizer
CASES = [("mlp_sgd", mlp, (17, 1, 1), 2, lambda p: SGD(p, lr=0.1, momentum=0.9)),
         ("mlp_adam", mlp, (17, 1, 1), 4, lambda p: ADAM(p, lr=0.001)),
         ("conv_adam", conv, (2, 5, 4), 3, lambda p: ADAM(p, lr=0.001))]


def work(rank, case, rendezvous, results):
    name, build, shape, ranks, make_optimizer = CASES[case]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    x, y = torch.randn(SAMPLES, *shape).double(), torch.randint(0, 7, (SAMPLES,))
    torch.manual_seed(0)
    net, names = build()
    net.double()
    if len(shape) == 3 and shape[1:] == (1, 1):
        x = x.flatten(1)
    for layer in net:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(net)
    optimizer = make_optimizer(net.parameters())
    lines = []
    for step in range(STEPS):
        rows = slice(step * BATCH + rank, (step + 1) * BATCH, ranks)
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        lines.append(f"loss {name} {step} {mean.item() / ranks:.17g}")
    lines = lines if rank == 0 else []
    for key, parameter in net.named_parameters():
        layer, kind = key.split(".")
        known = {"value": parameter, **{k: v for k, v in optimizer.state[parameter].items() if k != "step"}}
        for state, tensor in known.items():
            local = tensor.to_local()
            lines.append(fact(f"{name} {names[int(layer)]}.{kind} {state} {rank} {local.shape[0]}", local, sums=8, digits=10))
    torch.save(lines, f"{results}/{rank}")
    dist.destroy_process_group()


def main():
    lines = [
        f"# {SAMPLES} samples, batches of {BATCH} in order, seed 0; each layer and the whole are sharded by fully_shard",
        "# loss CASE STEP: the mean over the ranks. CASE NAME STATE RANK ROWS: of the shard of a parameter or of its",
        "# optimizer state after the last step, as many rows as said: the norm, and 8 sums of all elements with signs",
    ]
    for case in range(len(CASES)):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (case, os.path.join(folder, "meet"), folder), CASES[case][3])
            for rank in range(CASES[case][3]):
                lines += torch.load(f"{folder}/{rank}")
    write(__file__, "FSDP2 (fully_shard) over gloo, float64", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
