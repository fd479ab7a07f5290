#!/usr/bin/env python3
"""Makes the golden facts about d2l's ResNet-18 (13.6) for tests/app/cli/test_golden_resnet.c.

PyTorch is a black box here: initial weights from seed 0 and the first 32 images of Fashion-MNIST go
in; losses, gradients and running statistics come out, in float64. The batch is normalised whole
("1", as on one device or with SyncBatchNorm), or split into 2 shards with their own statistics.
Shard v has the images v, v + shards, ..., as from DistributedSampler.

11 million gradients are too many to keep, so formulas.py keeps the norm and 16 sums of each tensor.

    python3 tests/golden/make_resnet18.py         needs torch and numpy, a few minutes

resnet18.txt has one fact per line, words separated by one space; '#' starts a comment.
"""
import torch
from torch import nn

from formulas import bits, fact, fashion_mnist, fnv1a64, write

# The learning rate is small: with 0.01 a ReLU that flips moves the next losses by 1e-4, with 1e-4 by
# 1e-5.
BATCH, STEPS, LR = 32, 5, 3e-5


class Residual(nn.Module):
    def __init__(self, inputs, channels, halve):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, padding=1, stride=2 if halve else 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv3 = nn.Conv2d(inputs, channels, 1, stride=2) if halve else None
        self.bn1 = nn.BatchNorm2d(channels)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.conv3(x) if self.conv3 else x))


def resnet18():
    net = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    widths = [64, 64, 128, 256, 512]
    for k in range(1, 5):
        first = Residual(widths[k - 1], widths[k], k > 1)
        net.add_module(f"resnet_block{k}", nn.Sequential(first, Residual(widths[k], widths[k], False)))
    net.add_module("global_avg_pool", nn.AdaptiveAvgPool2d((1, 1)))
    net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, 10)))
    return net


def step(net, x, y, shards, optimizer):
    """One step, whose loss and gradients are sums over the shards, each sample weighing 1/BATCH. The
    running statistics are those of shard 0."""
    optimizer.zero_grad()
    loss, kept = 0, None
    before = {k: v.clone() for k, v in net.named_buffers()}
    for v in range(shards):
        for k, b in net.named_buffers():
            b.copy_(before[k])
        part = nn.functional.cross_entropy(net(x[v::shards]), y[v::shards], reduction="sum") / len(x)
        part.backward()
        loss += part.item()
        kept = kept or {k: b.clone() for k, b in net.named_buffers()}
    for k, b in net.named_buffers():
        b.copy_(kept[k])
    return loss


def main():
    images, labels = fashion_mnist()
    x, y, out = (images[:BATCH] / 255).double(), labels[:BATCH], []
    torch.manual_seed(0)
    initial = resnet18()
    for name, p in initial.named_parameters():
        out.append(f"init {name} fnv1a64 {fnv1a64(bits(p)):016x}")
    for shards in (1, 2):
        net = resnet18()
        net.load_state_dict(initial.state_dict())
        net.double().train()
        optimizer = torch.optim.SGD(net.parameters(), lr=LR)
        for k in range(STEPS):
            out.append(f"loss {shards} {k} {step(net, x, y, shards, optimizer):.17g}")
            if k == 0:
                for name, p in net.named_parameters():
                    out.append(fact(f"grad {shards} {name}", p.grad))
                for name, b in net.named_buffers():
                    if b.dtype != torch.int64:
                        out.append(fact(f"buffer {shards} {name}", b))
            optimizer.step()
    write(__file__, "losses, gradients and running statistics of five steps, float64", "\n".join(out) + "\n")


main()
