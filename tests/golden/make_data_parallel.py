#!/usr/bin/env python3
"""Writes data_parallel.txt: the results of nn.DataParallel over 4 devices with several inputs and outputs, in float64,
for tests/dp/test_multi.c.

    python3 tests/golden/make_data_parallel.py      needs torch, a second

nn.DataParallel itself needs GPUs. So this script does its parts one by one: it splits each input with torch.chunk, runs
the module on the n-th chunks of all inputs as long as every input has one (scatter ends with zip), concatenates
outputs, and makes a vector of those that are numbers.

Inputs are made from formulas that the C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1; index i
is (i * 5 + 1) mod 7, label i is (i * 3) mod 4. The gradient of output o is value(i, 3571 + 2 o)."""
import torch
from torch.nn import functional as F

from formulas import as_line, values, write

DEVICES = 4
E, W, b = values((7, 6), 7919), values((4, 6), 6131), values((4,), 5471)


def words(x, index, labels):
    h = x + F.embedding(index, E).mean(1)
    scores = F.linear(h.relu(), W, b)
    return scores, h, (h * h).mean(), F.cross_entropy(scores, labels)


def products(x, m):
    return x @ m, m.sum(0)


def data_parallel(module, inputs):
    outputs = [module(*chunks) for chunks in zip(*(x.chunk(DEVICES) for x in inputs))]
    return [torch.stack(parts) if parts[0].dim() == 0 else torch.cat(parts) for parts in zip(*outputs)]


def facts(name, module, inputs, params):
    """Backward from all outputs together, then from the last one alone."""
    leaves = [x for x in inputs if x.is_floating_point()] + params
    text = ""
    for part in "all", "last":
        outputs = data_parallel(module, inputs)
        for leaf in leaves:
            leaf.grad = None
        roots = [(o, y) for o, y in enumerate(outputs) if part == "all" or y is outputs[-1]]
        torch.autograd.backward([y for _, y in roots], [values(tuple(y.shape), 3571 + 2 * o) for o, y in roots])
        if part == "all":
            text += "".join(as_line(f"{name}_y{o}", y) for o, y in enumerate(outputs))
        for i, leaf in enumerate(leaves):
            text += as_line(f"{name}_{part}_d{i}", torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
    return text


for leaf in E, W, b:
    leaf.requires_grad_()
index = torch.tensor([(i * 5 + 1) % 7 for i in range(30)]).reshape(10, 3)
labels = torch.tensor([i * 3 % 4 for i in range(10)])
text = facts("words", words, [values((10, 6), 3571).requires_grad_(), index, labels], [E, W, b])
text += facts("products", products, [values((10, 2), 3571).requires_grad_(), values((6, 4), 6131).requires_grad_()], [])
write(__file__, "several inputs, several outputs, float64", text)
