#!/usr/bin/env python3
"""A training step of a small GPT on one core, with attention as one op and by its definition, and
PyTorch's, in turn in the same run.

    python3 bench/attention_step.py [ROUNDS [STEPS]]
    needs torch, build/duet and build/libduet.so

Two blocks of width 64 with 4 heads over tokens, causal, SGD 0.01. PyTorch trains eagerly on one
batch that lies in memory; Duet trains the export of the same model. The definition is softmax of a
product, exported as lines of their own.

A step's time is the difference of a long and a short run over the steps between them, in seconds
that the program had the processor. Shown are the least and the largest of all rounds."""
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import recurrent_step as step  # first: it sets the environment
import torch
from torch import nn
from torch.nn import functional as F

import duet

WIDTH, HEADS, WORDS = 64, 4, 100
SIZES = (64, 16), (128, 8), (256, 4), (512, 2), (1024, 1)  # places and samples
step.MOST = 100


class Block(nn.Module):
    def __init__(self, places, one_op):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(),
                                 nn.Linear(4 * WIDTH, WIDTH))
        self.one_op = one_op
        self.later = torch.full((places, places), float("-inf")).triu(1)

    def attend(self, q, k, v):
        if self.one_op:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + self.later
        return scores.softmax(-1) @ v

    def forward(self, x):
        q, k, v = (y.unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for y in self.qkv(self.norms[0](x)).chunk(3, 2))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    def __init__(self, places, one_op):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(places, WIDTH)
        self.blocks = nn.Sequential(*(Block(places, one_op) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1])
        return self.head(self.norm(self.blocks(self.words(tokens) + self.places(places)))[:, -1])


def main():
    rounds, steps = (int(a) for a in (sys.argv[1:] + ["3", "20"][len(sys.argv) - 1:]))
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}; ms a step")
    with tempfile.TemporaryDirectory() as folder:
        for places, samples in SIZES:
            step.BATCH = samples
            x = torch.randint(0, WORDS, (samples, places))
            labels = torch.randint(0, WORDS, (samples,))
            nets = [GPT(places, one_op) for one_op in (True, False)]
            paths = [duet.export(net, x[:1].repeat(2, 1), pathlib.Path(folder, f"net{i}.duet"))
                     for i, net in enumerate(nets)]
            times = zip(*([1e3 * t for t in (step.torch_step(nets[0], x, labels, steps),
                                             *(step.duet_step(p, steps) for p in paths))]
                          for _ in range(rounds)))
            says = [f"{name} {min(t):7.2f} to {max(t):7.2f}" for name, t in
                    zip(("PyTorch", "one op", "definition"), times)]
            print(f"{samples:3} x {places:5}  " + "   ".join(says), flush=True)


if __name__ == "__main__":
    main()
