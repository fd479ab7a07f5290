#!/usr/bin/env python3
"""Writes layers.txt: what PyTorch's activations, layer_norm, group_norm, linear of more than two dimensions, sum and mean
over several dimensions and permute compute, in float64, for tests/api/test_functions.c.

    python3 tests/golden/make_layers.py            needs torch, a second

Inputs are made by formulas that the C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1;
x = value(i, 7919), of activations 8 times that; w = value(i, 6131), b = value(i, 4001), dy = value(i, 3571)."""
import torch
import torch.nn.functional as F

from formulas import as_line, values, write

ACTIVATIONS = [lambda x: F.leaky_relu(x), lambda x: F.leaky_relu(x, 0.2), lambda x: F.elu(x), lambda x: F.elu(x, 0.7),
               lambda x: F.hardtanh(x), lambda x: F.hardtanh(x, -0.5, 2.0), lambda x: F.relu6(x), lambda x: F.gelu(x),
               lambda x: F.gelu(x, approximate="tanh"), lambda x: 0.25 * x - 3, lambda x: torch.log(x.abs() + 0.5),
               lambda x: 1 / torch.sqrt(torch.exp(x)), lambda x: F.softplus(x) - x * torch.sigmoid(x)]
# input, normalized_shape or number of groups, eps, which of weight and bias there are
LAYER_NORMS = [((3, 5), (5,), 1e-5, 2), ((2, 3, 4), (4,), 1e-5, 2), ((2, 3, 4), (3, 4), 1e-3, 2),
               ((2, 2, 3, 4), (2, 3, 4), 1e-5, 1), ((2, 3, 4), (4,), 1e-5, 0)]
GROUP_NORMS = [((3, 4), 2, 1e-5, 2), ((2, 6, 3), 3, 1e-5, 2), ((2, 4, 3, 2), 1, 1e-2, 2), ((2, 4, 3, 2), 4, 1e-5, 1),
               ((2, 4, 3, 2), 2, 1e-5, 0)]
LINEARS = [((2, 3, 4), 5, True), ((2, 2, 3, 4), 3, False)]
SUMS = [((2, 3, 4), (0, 2), False), ((2, 3, 4), (1, 2), True), ((2, 3, 2, 3), (1, -1), True), ((2, 3, 4), (), False),
        ((2, 3, 4), (-1,), True), ((2, 3, 2, 3), (3, 0, 2, 1), True)]
PERMUTES = [((2, 3), (1, 0)), ((2, 3, 4), (0, 2, 1)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 2, 4), (0, 2, 1, 3)),
            ((2, 3, 2, 4), (3, 1, -4, 2))]


def facts(name, y, x, **params):
    y.backward(values(tuple(y.shape), 3571))
    text = as_line(f"{name}_y", y) + as_line(f"{name}_da", x.grad)
    for key, p in params.items():
        text += as_line(f"{name}_{key}", p.grad) if p is not None else ""
    return text


def leaf(shape, a=7919, scale=1):
    return (scale * values(shape, a)).requires_grad_()


def main():
    text = ""
    for i, f in enumerate(ACTIVATIONS):
        x = leaf((6, 4), scale=8)
        text += facts(f"activation_{i}", f(x), x)
    for i, (shape, normalized, eps, count) in enumerate(LAYER_NORMS):
        x, w, b = leaf(shape), leaf(normalized, 6131) if count else None, leaf(normalized, 4001) if count > 1 else None
        text += facts(f"layer_norm_{i}", F.layer_norm(x, normalized, w, b, eps), x, dw=w, db=b)
    for i, (shape, groups, eps, count) in enumerate(GROUP_NORMS):
        c = (shape[1],)
        x, w, b = leaf(shape), leaf(c, 6131) if count else None, leaf(c, 4001) if count > 1 else None
        text += facts(f"group_norm_{i}", F.group_norm(x, groups, w, b, eps), x, dw=w, db=b)
    for i, (shape, out, bias) in enumerate(LINEARS):
        x, w, b = leaf(shape), leaf((out, shape[-1]), 6131), leaf((out,), 4001) if bias else None
        text += facts(f"linear_{i}", F.linear(x, w, b), x, dw=w, db=b)
    for name in "sum", "mean":
        for i, (shape, dims, keepdim) in enumerate(SUMS):
            x = leaf(shape)
            text += facts(f"{name}_{i}", getattr(torch, name)(x, dims, keepdim=keepdim), x)
    for i, (shape, order) in enumerate(PERMUTES):
        x = leaf(shape)
        text += facts(f"permute_{i}", x.permute(order), x)
    write(__file__, "activations, norms, linear, sums and permute, float64", text)


main()
