"""Convolutions, of volumes too, and norms. Their weights are parameters, or values of them."""

import math

import torch

from ..text import N, require
from . import lower
from .reductions import reduce
from .shapes import cat, narrow, padded

aten = torch.ops.aten


def pair(x, count=2):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * count if len(x) == 1 else x


def sides(a, count, *names):
    """Settings of windows of one side or two; one number for both."""
    settings = {name: pair(a[name], count)[:count] for name in names}
    return {name: y[0] if len(set(y)) == 1 else y for name, y in settings.items()}


def of_samples(w, op, x, operands, shape, **settings):
    """A line that takes the tensor as it is, (samples, channels, ..)."""
    require(x.rank == len(shape), "of what has no dimension of samples beside its channels")
    name, x, count = w.rows(x)
    rows = N(math.prod(count))
    y = w.emit(op, [name, *operands], [rows, *map(int, shape[1:])], **settings)
    return w.of_rows(y, x, count, shape)


# ---- convolutions

@lower(aten.conv2d, aten.conv1d)
def _(w, a, shape):
    x, kernel = w.value(a.input), list(map(int, a.weight.shape[2:]))
    padding = pair(a.get("padding", 0), len(kernel))
    if isinstance(padding[0], str):
        total = [d * (k - 1) * (padding[0] == "same") for k, d in
                 zip(kernel, pair(a.get("dilation", 1), len(kernel)))]
        padding = [t // 2 for t in total]
        if any(t % 2 for t in total):
            more = [n for t in reversed(total) for n in (0, t % 2)]
            x = padded(w, x, more)
    how = {"stride": a.get("stride", 1), "padding": padding, "dilation": a.get("dilation", 1)}
    settings, groups = sides(how, len(kernel), *how), a.get("groups", 1)
    require(x.rank == len(shape), "of an input without samples")
    operands = [w.parameter(a.weight, "weight"), w.parameter(a.get("bias"), "bias")]
    square = len(kernel) == 2 and len(set(kernel)) == 1 and all(
        isinstance(y, int) for y in settings.values())
    if square and groups == settings["dilation"] == 1:
        del settings["dilation"]
        return of_samples(w, "conv2d", x, operands, shape, **settings)
    return of_samples(w, "conv", x, operands, shape, **settings, groups=groups)


@lower(aten.conv_transpose2d, aten.conv_transpose1d)
def _(w, a, shape):
    x, count = w.value(a.input), len(shape) - 2
    how = {"stride": a.get("stride", 1), "padding": a.get("padding", 0),
           "dilation": a.get("dilation", 1), "output_padding": a.get("output_padding", 0)}
    settings, groups = sides(how, count, *how), a.get("groups", 1)
    return of_samples(w, "conv_transpose", x, [w.parameter(a.weight, "weight"),
                                               w.parameter(a.get("bias"), "bias")], shape,
                      **settings, groups=groups)


# ---- volumes, (N, C, T, H, W): a window over T becomes channels of pictures

def _windows(w, x, dim, to, taps, step, gap=1, border=0):
    """Beside each of `to` places of a dimension, `step` apart, the others of its window."""
    need = (taps - 1) * gap + to * step
    behind = need - border - int(x.shape[dim])
    if border or behind > 0:
        x = padded(w, x, [0, 0] * (x.rank - 1 - dim) + [border, max(behind, 0)])
    parts, shape = [], [*x.shape[:dim], to, 1, *x.shape[dim + 1:]]
    for i in range(taps):
        part = narrow(w, x, dim, i * gap, to * step)
        part = w.view(part, [*shape[:dim + 1], step, *shape[dim + 2:]])
        parts.append(narrow(w, part, dim + 1, 0, 1))
    return cat(w, parts, dim + 1, [*shape[:dim + 1], taps, *shape[dim + 2:]])


@lower(aten.conv3d)
def _(w, a, shape):
    x, kernel = w.value(a.input), list(map(int, a.weight.shape[2:]))
    how = {"stride": a.get("stride", 1), "padding": a.get("padding", 0),
           "dilation": a.get("dilation", 1)}
    require(not isinstance(how["padding"], str), "padding=same of volumes")
    (step, *stride), (border, *padding), (gap, *dilation) = (pair(v, 3) for v in how.values())
    to, taps = int(shape[2]), kernel[0]
    x = _windows(w, x, 2, to, taps, step, gap, border)
    x = w.view(x.permuted(0, 2, 1, 3, 4, 5), [N(int(x.shape[0]) * to), int(x.shape[1]) * taps,
                                              *x.shape[4:]])
    settings = sides({"stride": stride, "padding": padding, "dilation": dilation}, 2, "stride",
                     "padding", "dilation")
    y = of_samples(w, "conv", x, [w.parameter(a.weight, "weight"), w.parameter(
        a.get("bias"), "bias")], [x.shape[0], *shape[1:2], *shape[3:]], **settings,
        groups=a.get("groups", 1))
    return w.view(y, [shape[0], to, shape[1], *shape[3:]]).permuted(0, 2, 1, 3, 4)


# ---- norms

@lower(aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit,
       aten._native_batch_norm_legit_no_training)
def _(w, a, shape):
    shape, buffers, x = shape[0], [None] * 3, w.value(a.input)
    training = a.get("training", False)
    if a.get("running_mean") is not None:
        mean, var = a.running_mean, a.running_var
        base = getattr(mean, "name", "").removesuffix("running_mean")
        buffers = [base + "running_mean", base + "running_var", base + "num_batches_tracked"]
        require(getattr(mean, "name", "") == buffers[0] and var.name == buffers[1] and
                w.names.issuperset(buffers), "its statistics are no buffers running_mean, "
                "running_var and num_batches_tracked of one module, as nn.BatchNorm has them")
    weight, bias = a.get("weight"), a.get("bias")
    operands = [w.frozen_parameter(torch.full([int(shape[1])], number)) if p is None
                else w.parameter(p, what) for p, what, number in (
                    (weight, "weight", 1.), (bias, "bias", 0.))]
    how = {"momentum": a.momentum} if training else {"training": 0}
    if x.shared:
        require(training and buffers[0] is None, "of a value without samples")
        return [_of_weights(w, x, weight, bias, a.eps)] + [None] * 4
    name, x, count = w.rows(x)
    full = [N(math.prod(count)), *map(int, shape[1:])]
    flat = full if len(full) in (2, 4) else [*full[:2], math.prod(full[2:]), 1]
    name = name if flat == full else w.emit("reshape", [name], flat)
    y = w.emit("batch_norm", [name, *operands, *buffers], flat, once=False, eps=a.eps, **how)
    y = y if flat == full else w.emit("reshape", [y], full)
    y = w.of_rows(y, x, count, shape)
    return [y] + [None] * 4


def _of_weights(w, x, weight, bias, eps):
    """A standardised weight is a value of parameters, as the ops of the definition leave it."""
    dims, sizes = [d for d in range(x.rank) if d != 1], [1, x.shape[1], *[1] * (x.rank - 2)]
    off = w.sub(x, reduce(w, "mean", x, dims, True))
    scale = w.plus(reduce(w, "mean", w.mul(off, off), dims, True), eps)
    y = w.mul(off, w.line("reciprocal", w.line("sqrt", scale)))
    y = y if weight is None else w.mul(y, w.view(w.value(weight), sizes))
    return y if bias is None else w.add(y, w.view(w.value(bias), sizes))


def _weights(w, a):
    return [w.parameter(a.get(what), what) for what in ("weight", "bias")]


@lower(aten.layer_norm)
def _(w, a, shape):
    x, count = w.value(a.input), len(a.normalized_shape)
    dims = list(range(x.rank - count, x.rank))
    name, x, before = w.last(x, *dims)
    sizes = list(map(int, a.normalized_shape))
    y = w.emit("layer_norm", [name, *_weights(w, a)], [N(1), *(x.axes[i] for i in before), *sizes],
               shape=sizes, eps=a.get("eps", 1e-5))
    return w.result(y, x, before, dims, sizes)


@lower(aten.group_norm, aten.instance_norm)
def _(w, a, shape):
    instance = "instance" in w.op
    require(not instance or a.use_input_stats and a.get("running_mean") is None,
            "running statistics of instances")
    return of_samples(w, "group_norm", w.value(a.input), _weights(w, a), shape,
                      groups=int(shape[1]) if instance else a.num_groups, eps=a.get("eps", 1e-5))
