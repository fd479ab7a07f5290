"""Pools of pictures, sequences and volumes."""

import torch

from ..text import LEAST, Const, N, require
from . import lower
from .elements import maximum
from .indices import taken
from .layers import _windows, of_samples, pair, sides
from .reductions import largest, reduce
from .shapes import padded

aten = torch.ops.aten


@lower(aten.max_pool2d_with_indices)
def _(w, a, shape):
    x, stride = w.value(a.self), a.get("stride") or a.kernel_size
    require(len(shape[0]) == x.rank == 4, "of what has no dimension of samples beside its channels")
    how = sides({"size": a.kernel_size, "stride": stride, "padding": a.get("padding", 0)}, 2,
                "size", "stride", "padding")
    dilation = pair(a.get("dilation", 1))
    if set(dilation) != {1}:
        return [_dilated(w, x, shape[0], a, pair(stride), dilation), None]
    return [of_samples(w, "max_pool2d", x, [], shape[0], **how,
                       ceil_mode=int(a.get("ceil_mode", False))), None]


def _dilated(w, x, shape, a, stride, dilation):
    """Of the parts of x that each place of the window sees the largest."""
    size, padding = pair(a.kernel_size), pair(a.get("padding", 0))
    more = [max(0, (int(to) - 1) * s + d * (k - 1) + 1 - p - int(n)) for to, s, d, k, p, n in
            zip(shape[2:], stride, dilation, size, padding, x.shape[2:])]
    x = padded(w, x, [padding[1], more[1], padding[0], more[0]], LEAST)
    best = None
    for i in range(size[0]):
        for j in range(size[1]):
            part = x
            for d, first, s in ((2, i * dilation[0], stride[0]), (3, j * dilation[1], stride[1])):
                part = taken(w, part, d, torch.arange(int(shape[d])) * s + first)
            best = part if best is None else maximum(w, best, part)
    return best


@lower(aten.avg_pool2d)
def _(w, a, shape):
    """The line knows whole windows and divides by their size. What a last one lacks are zeros, and
    the rest a factor of each place: what PyTorch makes of ones, through what the line does."""
    pool, x = torch.nn.functional.avg_pool2d, w.value(a.self)
    require(x.rank == 4, "of what has no dimension of samples beside its channels")
    size, padding = pair(a.kernel_size), pair(a.get("padding", 0))
    stride, inside = pair(a.get("stride") or size), list(map(int, x.shape[2:]))
    lacks = [max(0, (int(to) - 1) * s + k - p - n) for to, s, k, p, n in
             zip(shape[2:], stride, size, padding, inside)]
    border = [padding[1], lacks[1], padding[0], lacks[0]]
    ones = torch.ones(1, 1, *inside)
    share = pool(ones, size, stride, padding, a.get("ceil_mode", False),
                 a.get("count_include_pad", True), a.get("divisor_override"))
    of_line = pool(torch.nn.functional.pad(ones, border), size, stride)
    of_line = of_line[:, :, :shape[2], :shape[3]]
    if any(lack > p for lack, p in zip(lacks, padding)):
        x, padding = padded(w, x, border), [0, 0]
    how = sides({"size": size, "stride": stride, "padding": padding}, 2, "size", "stride",
                "padding")
    y, factor = of_samples(w, "avg_pool2d", x, [], shape, **how), share / of_line
    return y if (factor == 1).all() else w.mul(y, Const([factor], list(factor.shape)))


@lower(aten._adaptive_avg_pool2d, aten.adaptive_avg_pool2d)
def _(w, a, shape):
    return of_samples(w, "adaptive_avg_pool2d", w.value(a.self), [], shape,
                      size=list(map(int, shape[2:])))


@lower(aten.adaptive_max_pool2d)
def _(w, a, shape):
    return [of_samples(w, "adaptive_max_pool2d", w.value(a.self), [], shape[0],
                       size=list(map(int, shape[0][2:]))), None]


@lower(aten.max_pool3d_with_indices, aten.avg_pool3d)
def _(w, a, shape):
    """Each picture by itself first, as PyTorch looks for the first of equal maxima."""
    mean = "avg" in w.op
    shape = shape if mean else shape[0]
    size, padding = pair(a.kernel_size, 3), pair(a.get("padding", 0), 3)
    stride, x = pair(a.get("stride") or size, 3), w.value(a.self)
    require(set(pair(a.get("dilation", 1), 3)) == {1} and not any(padding) and
            not a.get("divisor_override"), "of volumes with padding or dilation")
    pictures = w.view(x.permuted(0, 2, 1, 3, 4), [N(int(x.shape[0]) * int(x.shape[2])), x.shape[1],
                                                  *x.shape[3:]])
    how = sides({"size": size[1:], "stride": stride[1:]}, 2, "size", "stride")
    y = of_samples(w, "avg_pool2d" if mean else "max_pool2d", pictures, [],
                   [pictures.shape[0], shape[1], *shape[3:]], **how)
    y = w.view(y, [shape[0], x.shape[2], shape[1], *shape[3:]])
    to = int(shape[2])
    y = _windows(w, y, 1, to, size[0], stride[0])
    y = reduce(w, "mean", y, [2]) if mean else largest(w, y, [2]).squeezed([2])
    y = y.permuted(0, 2, 1, 3, 4)
    return y if mean else [y, None]
