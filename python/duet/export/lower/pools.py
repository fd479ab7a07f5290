"""Pools of pictures, sequences and volumes."""

import torch

from ..text import Const, N, require
from . import lower
from .layers import _windows, of_samples, pair, sides
from .reductions import largest
from .shapes import padded

aten = torch.ops.aten


@lower(aten.max_pool2d_with_indices)
def _(w, a, shape):
    x, stride = w.value(a.self), a.get("stride") or a.kernel_size
    require(len(shape[0]) == x.rank == 4, "of what has no dimension of samples beside its channels")
    how = sides({"size": a.kernel_size, "stride": stride, "padding": a.get("padding", 0)}, 2,
                "size", "stride", "padding")
    require(set(pair(a.get("dilation", 1))) == {1}, "with dilation")
    return [of_samples(w, "max_pool2d", x, [], shape[0], **how,
                       ceil_mode=int(a.get("ceil_mode", False))), None]


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


@lower(aten.max_pool3d_with_indices)
def _(w, a, shape):
    """Each picture by itself first, as PyTorch looks for the first of equal maxima."""
    size, padding = pair(a.kernel_size, 3), pair(a.get("padding", 0), 3)
    stride, x, shape = pair(a.get("stride") or size, 3), w.value(a.self), shape[0]
    require(set(pair(a.get("dilation", 1), 3)) == {1} and not any(padding),
            "of volumes with padding or dilation")
    pictures = w.view(x.permuted(0, 2, 1, 3, 4), [N(int(x.shape[0]) * int(x.shape[2])), x.shape[1],
                                                  *x.shape[3:]])
    how = sides({"size": size[1:], "stride": stride[1:]}, 2, "size", "stride")
    y = of_samples(w, "max_pool2d", pictures, [], [pictures.shape[0], shape[1], *shape[3:]], **how)
    y = w.view(y, [shape[0], x.shape[2], shape[1], *shape[3:]])
    y = largest(w, _windows(w, y, 1, int(shape[2]), size[0], stride[0]), [2]).squeezed([2])
    return [y.permuted(0, 2, 1, 3, 4), None]
