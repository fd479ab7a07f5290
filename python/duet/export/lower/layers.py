"""Convolutions, of volumes too, and norms."""

import math

import torch

from ..text import N, require
from . import lower
from .products import matmul, swapped
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
    if not w.is_parameter(a.weight):
        return _of_computed(w, a, x, kernel, shape, settings, groups)
    bias = a.get("bias")
    own = bias is None or w.is_parameter(bias)
    operands = [w.parameter(a.weight, "weight"), w.parameter(bias, "bias") if own else None]
    square = len(kernel) == 2 and len(set(kernel)) == 1 and all(
        isinstance(y, int) for y in settings.values())
    if square and groups == settings["dilation"] == 1:
        del settings["dilation"]
        y = of_samples(w, "conv2d", x, operands, shape, **settings)
    else:
        y = of_samples(w, "conv", x, operands, shape, **settings, groups=groups)
    return y if own else _with_bias(w, y, bias)


def _with_bias(w, y, bias):
    return y if bias is None else w.add(y, w.view(w.value(bias), [
        1, y.shape[1], *[1] * (y.rank - 2)]))


def _windows_of(w, channels, kernel):
    """The weight of a convolution by channels whose outputs are the numbers of a window."""
    places = math.prod(kernel)
    return w.frozen_parameter(torch.eye(places).reshape(places, 1, *kernel).repeat(
        channels, *[1] * (1 + len(kernel))))


def _unfolded(w, x, kernel, to, settings):
    """The numbers of each window, (N, channels * places, ..)."""
    channels = int(x.shape[1])
    shape = [x.shape[0], channels * math.prod(kernel), *to]
    return of_samples(w, "conv", x, [_windows_of(w, channels, kernel), None], shape, **settings,
                      groups=channels)


def _of_computed(w, a, x, kernel, shape, settings, groups):
    """By a weight that other ops compute, as weight norms do: the windows times it."""
    places, out = math.prod(map(int, shape[2:])), int(shape[1])
    columns = int(a.weight.shape[1]) * math.prod(kernel)
    windows = _unfolded(w, x, kernel, shape[2:], settings)
    windows = w.view(windows, [shape[0], groups, columns, places])
    weight = w.view(w.value(a.weight), [1, groups, out // groups, columns])
    return _with_bias(w, w.view(matmul(w, weight, windows), shape), a.get("bias"))


@lower(aten.conv_transpose2d, aten.conv_transpose1d)
def _(w, a, shape):
    x, count = w.value(a.input), len(shape) - 2
    how = {"stride": a.get("stride", 1), "padding": a.get("padding", 0),
           "dilation": a.get("dilation", 1), "output_padding": a.get("output_padding", 0)}
    settings, groups = sides(how, count, *how), a.get("groups", 1)
    if not w.is_parameter(a.weight):
        return _transposed_of_computed(w, a, x, shape, settings, groups)
    return of_samples(w, "conv_transpose", x, [w.parameter(a.weight, "weight"),
                                               w.parameter(a.get("bias"), "bias")], shape,
                      **settings, groups=groups)


def _transposed_of_computed(w, a, x, shape, settings, groups):
    """The products of each place are added where its window lies."""
    into, each_out, *kernel = map(int, a.weight.shape)
    each, outputs = into // groups, each_out * math.prod(kernel)
    weight = swapped(w.view(w.value(a.weight), [1, groups, each, outputs]))
    rows = w.view(x, [x.shape[0], groups, each, math.prod(map(int, x.shape[2:]))])
    y = w.view(matmul(w, weight, rows), [x.shape[0], groups * outputs, *x.shape[2:]])
    y = of_samples(w, "conv_transpose", y, [_windows_of(w, int(shape[1]), kernel), None], shape,
                   **settings, groups=int(shape[1]))
    return _with_bias(w, y, a.get("bias"))


@lower(aten.im2col)
def _(w, a, shape):
    x, kernel = w.value(a.self), pair(a.kernel_size)
    to = [(int(n) + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(
        x.shape[2:], pair(a.padding), pair(a.dilation), kernel, pair(a.stride))]
    return w.view(_unfolded(w, x, kernel, to, sides(a, 2, "stride", "padding", "dilation")), shape)


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
    own = all(p is None or w.is_parameter(p) for p in (weight, bias))
    operands = [w.frozen_parameter(torch.full([int(shape[1])], number)) if p is None or not own
                else w.parameter(p, what) for p, what, number in (
                    (weight, "weight", 1.), (bias, "bias", 0.))]
    how = {"momentum": a.momentum} if training else {"training": 0}
    name, x, count = w.rows(x)
    full = [N(math.prod(count)), *map(int, shape[1:])]
    flat = full if len(full) in (2, 4) else [*full[:2], math.prod(full[2:]), 1]
    name = name if flat == full else w.emit("reshape", [name], flat)
    y = w.emit("batch_norm", [name, *operands, *buffers], flat, once=False, eps=a.eps, **how)
    y = y if flat == full else w.emit("reshape", [y], full)
    y = w.of_rows(y, x, count, shape)
    if not own:
        y = _scaled(w, y, weight, bias, [shape[1], *[1] * (len(shape) - 2)])
    return [y] + [None] * 4


def _scaled(w, y, weight, bias, sizes):
    """y times a weight plus a bias, which are seen with these sizes."""
    if weight is not None:
        y = w.mul(y, w.view(w.value(weight), sizes))
    return y if bias is None else w.add(y, w.view(w.value(bias), sizes))


@lower(aten.layer_norm)
def _(w, a, shape):
    x, count = w.value(a.input), len(a.normalized_shape)
    weight, bias = a.get("weight"), a.get("bias")
    own = all(p is None or w.is_parameter(p) for p in (weight, bias))
    dims = list(range(x.rank - count, x.rank))
    name, x, before = w.last(x, *dims)
    sizes = list(map(int, a.normalized_shape))
    operands = [w.parameter(weight, "weight"), w.parameter(bias, "bias")] if own else [None, None]
    y = w.emit("layer_norm", [name, *operands], [N(1), *(x.axes[i] for i in before), *sizes],
               shape=sizes, eps=a.get("eps", 1e-5))
    y = w.result(y, x, before, dims, sizes)
    return y if own else _scaled(w, y, weight, bias, sizes)


@lower(aten.group_norm, aten.instance_norm)
def _(w, a, shape):
    instance = "instance" in w.op
    require(not instance or a.use_input_stats and a.get("running_mean") is None,
            "running statistics of instances")
    weight, bias = a.get("weight"), a.get("bias")
    own = all(p is None or w.is_parameter(p) for p in (weight, bias))
    operands = [w.parameter(weight, "weight"), w.parameter(bias, "bias")] if own else [None, None]
    y = of_samples(w, "group_norm", w.value(a.input), operands, shape,
                   groups=int(shape[1]) if instance else a.num_groups, eps=a.get("eps", 1e-5))
    return y if own else _scaled(w, y, weight, bias, [shape[1], *[1] * (len(shape) - 2)])
