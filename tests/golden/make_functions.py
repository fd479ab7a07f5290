#!/usr/bin/env python3
"""Writes functions.txt: what PyTorch's pads, adaptive and padded pools and softmax compute, in float64, for tests/nn/test_functions.c.

    python3 tests/golden/make_functions.py            needs torch, a second

Inputs are made by formulas that the C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1;
x = value(i, 7919), dy = value(i, 3571)."""
import torch

from formulas import as_line, values, write

SHAPES = [(2, 3, 7, 5, 1, 1), (1, 2, 7, 5, 3, 4), (1, 1, 2, 3, 5, 3), (2, 1, 6, 8, 3, 2)]  # N C H W and height, width


def facts(name, function, shape):
    x = values(shape, 7919).requires_grad_()
    y = function(x)
    y.backward(values(tuple(y.shape), 3571))
    return as_line(f"{name}_y", y) + as_line(f"{name}_dx", x.grad)


text = ""
for i, (n, c, h, w, p, q) in enumerate(SHAPES):
    text += facts(f"adaptive_{i}", lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (p, q)), (n, c, h, w))
for i, (n, c, h, w, p, q) in enumerate(SHAPES[1:3]):
    text += facts(f"adaptive_max_{i}", lambda x: torch.nn.functional.adaptive_max_pool2d(x, (p, q)), (n, c, h, w))
text += facts("pad", lambda x: torch.nn.functional.pad(x, (2, 1, -1, 3), value=0.75), (2, 2, 4, 3))
PADDED = [(1, 2, 7, 6, 3, 2, 1, 0), (1, 1, 8, 6, 3, 2, 0, 1), (2, 1, 5, 9, 4, 3, 2, 1), (1, 1, 6, 5, 2, 3, 1, 1),
          (1, 1, 2, 5, 3, 2, 0, 1)]
for i, (n, c, h, w, size, stride, padding, ceil) in enumerate(PADDED):
    text += facts(f"max_pool_{i}", lambda x: torch.nn.functional.max_pool2d(x, size, stride, padding, ceil_mode=bool(ceil)),
                  (n, c, h, w))
text += facts("avg_pool", lambda x: torch.nn.functional.avg_pool2d(x, 3, 2, 1), (1, 2, 7, 6))
text += facts("narrow", lambda x: x.narrow(2, 1, 2), (2, 3, 4, 2))
text += facts("narrow_last", lambda x: x.narrow(-1, 2, 3), (2, 3, 6))
text += facts("cat", lambda x: torch.cat((x, x.narrow(1, 1, 2), x[:, :1], x), 1), (2, 3, 2, 2))
text += facts("cat_last", lambda x: torch.cat((x.narrow(-1, 3, 1), x), -1), (2, 3, 4))
text += facts("softmax", lambda x: torch.softmax(8 * x, 1), (3, 7))
text += facts("softmax_4d", lambda x: torch.softmax(8 * x, -1), (2, 3, 2, 4))
text += facts("log_softmax_3d", lambda x: torch.log_softmax(8 * x, -1), (2, 3, 4))
text += facts("max_pool_sides", lambda x: torch.nn.functional.max_pool2d(x, (2, 3), (3, 1), (0, 1), ceil_mode=True), (2, 2, 6, 5))
text += facts("avg_pool_sides", lambda x: torch.nn.functional.avg_pool2d(x, (3, 2), (1, 2), (1, 0)), (2, 2, 5, 7))
write(__file__, "pads, pools and softmax, float64", text)
