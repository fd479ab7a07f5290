#!/usr/bin/env python3
"""Writes algebra.txt: what PyTorch's matmul, add, sub, mul, sum, mean and F.embedding compute, in float64, for
tests/api/test_algebra.c.

    python3 tests/golden/make_algebra.py            needs torch, a second

Inputs are made by formulas that the C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1;
a = value(i, 7919), b = value(i, 6131), dy = value(i, 3571); index i of an embedding is (i * 5 + 1) mod 4."""
import torch

from formulas import as_line, values, write

MATMULS = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)),
           ((2, 3, 4), (4,)), ((2, 2, 3, 4), (2, 2, 4, 2)),
           # leading dimensions are broadcast
           ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((1, 3, 4), (2, 4, 5)),
           ((2, 1, 3, 4), (1, 3, 4, 2)), ((3, 3, 4), (2, 1, 4, 2)), ((2, 3, 4), (2, 2, 4, 2)), ((4,), (2, 2, 4, 3)),
           ((1, 1, 3, 4), (2, 3, 4, 2))]
BINARIES = [((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((4,), (2, 3, 4)), ((2, 1, 3, 1), (2, 1, 4)), ((2, 3, 1, 4), (2, 3, 1, 1))]
SUMS = [((3, 4), None), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((2, 3, 2, 3), 3), ((5,), 0)]


def of_two(name, function, shape_a, shape_b):
    a, b = values(shape_a, 7919).requires_grad_(), values(shape_b, 6131).requires_grad_()
    y = function(a, b)
    y.backward(values(tuple(y.shape), 3571))
    return as_line(f"{name}_y", y) + as_line(f"{name}_da", a.grad) + as_line(f"{name}_db", b.grad)


text = ""
for i, shapes in enumerate(MATMULS):
    text += of_two(f"matmul_{i}", torch.matmul, *shapes)
for name in "add", "sub", "mul":
    for i, shapes in enumerate(BINARIES):
        text += of_two(f"{name}_{i}", getattr(torch, name), *shapes)
for name in "sum", "mean":
    for i, (shape, dim) in enumerate(SUMS):
        x = values(shape, 7919).requires_grad_()
        y = getattr(torch, name)(x) if dim is None else getattr(torch, name)(x, dim)
        y.backward(values(tuple(y.shape), 3571))
        text += as_line(f"{name}_{i}_y", y) + as_line(f"{name}_{i}_da", x.grad)
w = values((4, 3), 7919).requires_grad_()
y = torch.nn.functional.embedding(torch.tensor([(i * 5 + 1) % 4 for i in range(10)]).reshape(5, 2), w)
y.backward(values(tuple(y.shape), 3571))
text += as_line("embedding_y", y) + as_line("embedding_dw", w.grad)
write(__file__, "matmul, broadcasts, sums and embedding, float64", text)
