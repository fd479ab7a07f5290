"""Convolutions, norms, pools and recurrent layers. Their weights are parameters, or values computed
from them."""

import math

import torch

from ..text import Const, N, require
from . import lower
from .shapes import narrow, padded

aten = torch.ops.aten


def pair(x, count=2):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * count if len(x) == 1 else x


def sides(a, count, *names):
    """Window settings for 1-D or 2-D; a single number if both dimensions agree."""
    settings = {name: pair(a[name], count)[:count] for name in names}
    return {name: y[0] if len(set(y)) == 1 else y for name, y in settings.items()}


def of_samples(w, op, x, operands, shape, **settings):
    """A line that takes the tensor as it is, (samples, channels, ..)."""
    require(x.rank == len(shape), "without a batch dimension in addition to its channels")
    name, x, count = w.rows(x)
    y = w.emit(op, [name, *operands], [N(count), *map(int, shape[1:])], **settings)
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
                w.names.issuperset(buffers), "its statistics are not the buffers running_mean, "
                "running_var and num_batches_tracked of one module, as nn.BatchNorm has them")
    weight, bias = a.get("weight"), a.get("bias")
    operands = [w.parameter(Const([torch.full([int(shape[1])], number)], shape[1:2]) if p is None
                            else p, what) for p, what, number in (
                                (weight, "weight", 1.), (bias, "bias", 0.))]
    how = {"momentum": a.momentum} if training else {"training": 0}
    require(not x.shared, "of a value without samples")
    name, x, count = w.rows(x)
    full = [N(count), *map(int, shape[1:])]
    flat = full if len(full) in (2, 4) else [*full[:2], math.prod(full[2:]), 1]
    name = name if flat == full else w.emit("reshape", [name], flat)
    y = w.emit("batch_norm", [name, *operands, *buffers], flat, once=False, eps=a.eps, **how)
    y = y if flat == full else w.emit("reshape", [y], full)
    y = w.of_rows(y, x, count, shape)
    return [y] + [None] * 4


def _weights(w, a):
    return [w.parameter(a.get(what), what) for what in ("weight", "bias")]


@lower(aten.layer_norm)
def _(w, a, shape):
    x, sizes = w.value(a.input), list(map(int, a.normalized_shape))
    return w.over(x, range(x.rank - len(sizes), x.rank), sizes, lambda name, before: w.emit(
        "layer_norm", [name, *_weights(w, a)], [*before, *sizes], shape=sizes,
        eps=a.get("eps", 1e-5)))


@lower(aten.group_norm, aten.instance_norm)
def _(w, a, shape):
    instance = "instance" in w.op
    require(not instance or a.use_input_stats and a.get("running_mean") is None,
            "running statistics of instances")
    return of_samples(w, "group_norm", w.value(a.input), _weights(w, a), shape,
                      groups=int(shape[1]) if instance else a.num_groups, eps=a.get("eps", 1e-5))


# ---- pools of images and sequences

@lower(aten.max_pool2d_with_indices)
def _(w, a, shape):
    x, stride = w.value(a.self), a.get("stride") or a.kernel_size
    require(len(shape[0]) == x.rank == 4, "without a batch dimension in addition to its channels")
    how = sides({"size": a.kernel_size, "stride": stride, "padding": a.get("padding", 0)}, 2,
                "size", "stride", "padding")
    require(set(pair(a.get("dilation", 1))) == {1}, "with dilation")
    return [of_samples(w, "max_pool2d", x, [], shape[0], **how,
                       ceil_mode=int(a.get("ceil_mode", False))), None]


@lower(aten.avg_pool2d)
def _(w, a, shape):
    """The line knows whole windows and divides by their size. A short last one is filled with
    zeros, and each place gets a factor: PyTorch's result for ones, over the line's."""
    pool, x = torch.nn.functional.avg_pool2d, w.value(a.self)
    require(x.rank == 4, "without a batch dimension in addition to its channels")
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
    x, to = w.value(a.self), list(map(int, shape[0][2:]))
    size = [int(n) // k for n, k in zip(x.shape[2:], to)]
    require(all(int(n) == s * k for n, s, k in zip(x.shape[2:], size, to)),
            f"{to[0]}x{to[1]} windows of unequal sizes")
    return [of_samples(w, "max_pool2d", x, [], shape[0], size=size, stride=size), None]


# ---- nn.LSTM, nn.GRU and nn.RNN, a line for each layer and direction

def _recurrent(op, packet, states):
    def run(w, a, shape):
        require("batch_first" in a, "packed sequences")
        x, ways, each = w.value(a.input), 2 if a.bidirectional else 1, 4 if a.has_biases else 2
        require(len(a.params) == ways * each * a.num_layers, "proj_size")
        given = a.hx if isinstance(a.hx, (list, tuple)) else [a.hx]
        if all(isinstance(g, Const) and g.number == 0 for g in given):
            given = []  # as the line has it without states
        order, cell = [0, 1] if a.batch_first else [1, 0], int(states == 2 and 2 in w.asked)
        name, transposed, count = w.rows(w.permuted(x, *order, 2))
        rows, length, width = N(count), int(transposed.shape[1]), int(a.params[1].shape[1])
        axes, made = [rows, length, width * ways], []

        def part(y, start, size):
            return w.emit("narrow", [y], [rows, size, width], dim=1, start=start, length=size)
        for layer in range(a.num_layers):
            outputs = []
            for at in range(layer * ways, (layer + 1) * ways):
                params = [w.parameter(p, "weight") for p in a.params[at * each:(at + 1) * each]]
                first = [w.rows(narrow(w, w.value(g), 0, at, 1).squeezed([0]))[0] for g in given]
                how = {**({"reverse": 1} if at % ways else {}), **({"cell": 1} if cell else {})}
                y = w.emit(op, [name, *params, *[None] * (4 - each), *(first or [None] * states)],
                           [rows, length + cell, width], **how)
                made.append((y, 0 if at % ways else length - 1))
                outputs.append(part(y, 0, length) if cell else y)
            name = outputs[0] if ways == 1 else w.emit("cat", outputs, axes, dim=2)
            if a.dropout and a.train and layer + 1 < a.num_layers:
                name = w.emit("dropout", [name], axes, once=False, p=a.dropout)

        def value(name, *sizes):
            return w.of_rows(name, transposed, count, [transposed.shape[0], *sizes])

        def last(of_cells):
            """The states behind the last place; those of an LSTM's cells lie behind all places."""
            parts = [part(y, length if of_cells else end, 1) for y, end in made]
            name = parts[0] if len(parts) == 1 else w.emit(
                "cat", parts, [rows, len(parts), width], dim=1)
            return w.permuted(value(name, len(parts), width), 1, 0, 2)
        return [w.permuted(value(name, *axes[1:]), *order, 2),
                *(last(k) if 1 + k in w.asked else None for k in range(states))]
    lower(packet)(run)


_recurrent("lstm", aten.lstm, 2)
_recurrent("gru", aten.gru, 1)
_recurrent("rnn_tanh", aten.rnn_tanh, 1)
_recurrent("rnn_relu", aten.rnn_relu, 1)
