#!/usr/bin/env python3
"""A training step of an LSTM and of a GRU on one core: Duet and PyTorch in turn, in the same run.

    python3 bench/recurrent_step.py [ROUNDS [STEPS]]
    needs torch, build/duet and build/libduet.so

The layer is read from (32, 20, width) numbers, as wide as its state, and a linear layer takes its
last step; SGD 0.01. PyTorch trains eagerly on one batch that lies in memory; Duet trains the export
of the same model on random numbers. The losses of both are checked by tests/python/export.py.

A step's time is the difference of a long and a short run over the steps between them, in seconds
that the program had the processor, which other programs on the machine disturb less. Shown are the
least and the largest of all rounds."""
import os
import pathlib
import resource
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("DUET_COMMAND", str(ROOT / "build/duet"))
os.environ.setdefault("DUET_LIBRARY", str(ROOT / "build/libduet.so"))
import torch
from torch import nn

import duet

BATCH, LENGTH, CLASSES, WARM_STEPS, LR = 32, 20, 10, 2, 0.01
MOST = 200  # steps


class Net(nn.Module):
    def __init__(self, kind, width):
        super().__init__()
        self.layer = kind(width, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def torch_step(net, x, labels, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    for i in range(steps):
        if i == WARM_STEPS:
            start = time.process_time()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
    return (time.process_time() - start) / (steps - WARM_STEPS)


def duet_run(path, steps):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    duet.train(model=path, dataset="random", samples=BATCH * MOST, batch_size=BATCH, steps=steps,
               lr=LR, mode="single", progress=False, quiet=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def duet_step(path, steps):
    short, long = duet_run(path, WARM_STEPS), duet_run(path, steps)
    return (long - short) / (steps - WARM_STEPS)


def main():
    rounds, steps = (int(a) for a in (sys.argv[1:] + ["3", "60"][len(sys.argv) - 1:]))
    steps = min(steps, MOST)
    torch.set_num_threads(1)
    print("ms a step     PyTorch          Duet             Duet / PyTorch")
    with tempfile.TemporaryDirectory() as folder:
        for kind in nn.LSTM, nn.GRU:
            for width in 64, 128, 256, 512:
                net, x = Net(kind, width), torch.randn(BATCH, LENGTH, width)
                labels = torch.randint(0, CLASSES, (BATCH,))
                path = duet.export(net, x[:2], pathlib.Path(folder, "net.duet"))
                pairs = [(1e3 * torch_step(net, x, labels, steps), 1e3 * duet_step(path, steps))
                         for _ in range(rounds)]
                spans = [f"{min(t):6.2f} to {max(t):6.2f}" for t in
                         (*zip(*pairs), [b / a for a, b in pairs])]
                print(f"{kind.__name__:4} {width:4}   " + "   ".join(spans), flush=True)


if __name__ == "__main__":
    main()
