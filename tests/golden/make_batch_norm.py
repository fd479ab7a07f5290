#!/usr/bin/env python3
"""Writes batch_norm.txt: what PyTorch's BatchNorm2d computes, in float64, for tests/core/device/test_kernels_norm.c.

    python3 tests/golden/make_batch_norm.py            needs torch and numpy, a second

Inputs are made by formulas that a C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1.
Two batches go through one layer in training, the second one backwards with dy = value(i, 3571) too; then the first
batch goes through it in eval mode. Once with momentum 0.1 and once with None, the cumulative mean."""
import torch

from formulas import as_line, values, write

N, C, H, W = 5, 3, 4, 2


def facts(name, momentum):
    layer = torch.nn.BatchNorm2d(C, momentum=momentum).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.5, -1.25, 2.0]))
        layer.bias.copy_(torch.tensor([0.25, 0.0, -3.0]))
    first = values((N, C, H, W), 7919)
    second = (3 * values((N, C, H, W), 104729) + 0.5).requires_grad_()
    text = as_line(f"{name}_first_y", layer(first))
    y = layer(second)
    y.backward(values((N, C, H, W), 3571))
    text += as_line(f"{name}_running_mean", layer.running_mean) + as_line(f"{name}_running_var", layer.running_var)
    assert layer.num_batches_tracked.item() == 2
    if momentum is not None:
        text += as_line(f"{name}_dx", second.grad) + as_line(f"{name}_dw", layer.weight.grad) + \
            as_line(f"{name}_db", layer.bias.grad)
    layer.eval()
    return text + as_line(f"{name}_eval_y", layer(first))


write(__file__, "BatchNorm2d, float64", facts("momentum_01", 0.1) + facts("cumulative", None))
