#!/usr/bin/env python3
"""Writes sync_batch_norm.txt: the results of PyTorch's BatchNorm2d on a whole batch, in float64.
SyncBatchNorm must compute the same however the batch is split.

    python3 tests/golden/make_sync_batch_norm.py            needs torch, a second

x is (8, 6, 5, 4). Inputs are made from a formula that tests/syncbn/test_syncbn.c repeats: value(i,
a) = ((i * a + 13) mod 1000) / 500 - 1."""
import torch

from formulas import as_line, values, write

SHAPE = (8, 6, 5, 4)


layer = torch.nn.BatchNorm2d(SHAPE[1]).double()
with torch.no_grad():
    layer.weight.copy_(values((SHAPE[1],), 331) + 1.5)
    layer.bias.copy_(values((SHAPE[1],), 17))
x = (2 * values(SHAPE, 7919) + 0.25).requires_grad_()
y = layer(x)
y.backward(values(SHAPE, 3571))
text = as_line("whole_y", y) + as_line("whole_dx", x.grad) + as_line("whole_dw", layer.weight.grad) + \
    as_line("whole_db", layer.bias.grad) + as_line("whole_mean", layer.running_mean) + \
    as_line("whole_var", layer.running_var)
write(__file__, "a whole batch through BatchNorm2d, float64", text)
