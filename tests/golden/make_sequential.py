#!/usr/bin/env python3
"""Writes sequential_net.txt and sequential.txt for tests/models/test_sequential.c.

    python3 tests/golden/make_sequential.py            needs torch, a second

sequential_net.txt is print(model) of an nn.Sequential with every kind of layer that `duet --model FILE` reads.
sequential.txt has the hashes of its initial weights by torch.manual_seed(0) and, with these weights, the loss and the
norms of the gradients of one training step in float64, on a batch made by a formula that the test repeats."""
import math
import pathlib

import torch
from torch import nn

SAMPLES, CLASSES = 32, 10
folder = pathlib.Path(__file__).parent


def fnv1a64(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding="same", bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
    nn.MaxPool2d(3, 2, padding=1, ceil_mode=True),
    nn.Sequential(nn.Conv2d(8, 16, (3, 3), stride=2), nn.Tanh(), nn.Dropout2d(0.0), nn.Identity(), nn.Softplus(),
                  nn.GroupNorm(4, 16), nn.LeakyReLU(0.2),
                  nn.Sequential(nn.AvgPool2d(3, stride=2, padding=1), nn.ZeroPad2d((1, 0, 0, 1)), nn.ConstantPad2d((0, -1, 1, 1), 0.5),
                                nn.AdaptiveAvgPool2d((2, 3)))),
    nn.Flatten(), nn.Unflatten(1, (24, 2, 2)), nn.Sequential(nn.SiLU(), nn.LayerNorm((24, 2, 2)), nn.GELU()),
    nn.AdaptiveMaxPool2d((None, 1)),
    nn.Flatten(), nn.Dropout(0.0), nn.Linear(48, 32), nn.BatchNorm1d(32, momentum=None, eps=1e-3), nn.Sigmoid(),
    nn.Sequential(nn.Hardtanh(-0.25, 0.75), nn.LayerNorm(32, eps=1e-3, bias=False), nn.GELU(approximate="tanh"),
                  nn.LeakyReLU(), nn.ELU(0.5), nn.ReLU6()),
    nn.Linear(32, CLASSES, bias=False), nn.LogSoftmax(dim=1))

facts = [f"# made by make_sequential.py with torch {torch.__version__}"]
for name, p in model.named_parameters():
    facts.append(f"init {name} {fnv1a64(p.detach().numpy().tobytes()):016x}")
(folder / "sequential_net.txt").write_text(f"{model}\n")

model = model.double()
x = torch.tensor([((i * 7919 + 13) % 1000) / 500 - 1 for i in range(SAMPLES * 28 * 28)], dtype=torch.float64)
# the test's batch is made of floats
x = x.float().double().reshape(SAMPLES, 1, 28, 28)
loss = nn.functional.nll_loss(model(x), torch.arange(SAMPLES) * 3 % CLASSES)
loss.backward()
facts.append(f"loss {loss.item():.17g}")
for name, p in model.named_parameters():
    facts.append(f"grad {name} {math.sqrt((p.grad ** 2).sum().item()):.17g}")
(folder / "sequential.txt").write_text("\n".join(facts) + "\n")
