"""Layers: convolutions, norms, pools, recurrent layers, matrix products and attention. Their
weights are parameters, or values computed from them."""

import math
import types

import torch

from ..passes import Const, N, require
from ..text import IN_FRONT, MIXES, Value, broadcast
from . import lower
from .elements import UNSAMPLED
from .reductions import softmax
from .shapes import narrow, padded

aten = torch.ops.aten
_UNBATCHED = "its images have no batch dimension in addition to channels: give x[:, None]"


def pair(x, count=2):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * count if len(x) == 1 else x


def sides(count, **settings):
    """Window settings for 1-D or 2-D; a single number if both dimensions agree."""
    settings = {name: pair(x, count)[:count] for name, x in settings.items()}
    return {name: y[0] if len(set(y)) == 1 else y for name, y in settings.items()}


def of_samples(w, op, x, operands, shape, **settings):
    """A line that takes the whole tensor, (samples, channels, ..)."""
    require(x.rank == 4 or "pool" not in op, _UNBATCHED)
    name, x, count = w.rows(x)
    y = w.emit(op, [name, *operands], [N(count), *map(int, shape[1:])], **settings)
    return w.of_rows(y, x, count, shape)


def _weights(w, a):
    return [w.parameter(a.get(what), what) for what in ("weight", "bias")]


@lower(aten.convolution)
def _(w, a, shape):
    """All of PyTorch's convolutions, in one or two dimensions, also transposed."""
    x, count = w.value(a.input), len(shape) - 2
    require(count < 3, "it convolves in three dimensions: use at most two")
    operands = _weights(w, a)
    more = {"output_padding": a.output_padding} if a.transposed else {}
    settings = sides(count, stride=a.stride, padding=a.padding, dilation=a.dilation, **more)
    if count == 2 and not a.transposed and a.groups == settings["dilation"] == 1 and \
            a.weight.shape[2] == a.weight.shape[3] and list not in map(type, settings.values()):
        del settings["dilation"]
        return of_samples(w, "conv2d", x, operands, shape, **settings)
    op = "conv_transpose" if a.transposed else "conv"
    return of_samples(w, op, x, operands, shape, **settings, groups=a.groups)


# ---- norms

@lower(aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit,
       aten._native_batch_norm_legit_no_training)
def _(w, a, shape):
    shape, buffers, x = shape[0], [None] * 3, w.value(a.input)
    if a.get("running_mean") is not None:
        base = getattr(a.running_mean, "name", "").removesuffix("running_mean")
        buffers = [base + "running_mean", base + "running_var", base + "num_batches_tracked"]
        require([getattr(x, "name", "") for x in (a.running_mean, a.running_var)] == buffers[:2] and
                w.names.issuperset(buffers), "its statistics are not the buffers running_mean, "
                "running_var and num_batches_tracked of one module, as nn.BatchNorm has them")
    ones, zeros = (Const([torch.full([int(shape[1])], n)], shape[1:2]) for n in (1., 0.))
    operands = [w.parameter(other if a.get(what) is None else a[what], what)
                for what, other in (("weight", ones), ("bias", zeros))]
    how = {"momentum": a.momentum} if a.get("training") else {"training": 0}
    require(not x.shared, "it normalizes a value without samples: use F.layer_norm")
    name, x, count = w.rows(x)
    full = [N(count), *map(int, shape[1:])]
    flat = full if len(full) in (2, 4) else [*full[:2], math.prod(full[2:]), 1]
    name = name if flat == full else w.emit("reshape", [name], flat)
    y = w.emit("batch_norm", [name, *operands, *buffers], flat, once=False, eps=a.eps, **how)
    y = w.of_rows(y if flat == full else w.emit("reshape", [y], full), x, count, shape)
    # A second use of the module finds the names of its statistics, which no other op takes.
    return [y, None, None, *(types.SimpleNamespace(name=name) if name else None
                             for name in buffers[:2])]


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
            "it keeps running statistics: leave track_running_stats out")
    return of_samples(w, "group_norm", w.value(a.input), _weights(w, a), shape,
                      groups=int(shape[1]) if instance else a.num_groups, eps=a.get("eps", 1e-5))


# ---- pools of images and sequences

@lower(aten.max_pool2d_with_indices)
def _(w, a, shape):
    x, stride = w.value(a.self), a.get("stride") or a.kernel_size
    how = sides(2, size=a.kernel_size, stride=stride, padding=a.get("padding", 0))
    require(set(pair(a.get("dilation", 1))) == {1}, "its window is dilated: leave dilation out")
    return [of_samples(w, "max_pool2d", x, [], shape[0], **how,
                       ceil_mode=int(a.get("ceil_mode", False))), None]


@lower(aten.avg_pool2d)
def _(w, a, shape):
    """The line takes whole windows and divides by their size. A short last window is padded with
    zeros, and each output is multiplied by PyTorch's result for ones divided by the line's."""
    x, pool = w.value(a.self), torch.nn.functional.avg_pool2d
    require(x.rank == 4, _UNBATCHED)
    size, padding, ones = pair(a.kernel_size), pair(a.padding), torch.ones(1, 1, *x.shape[2:])
    stride = pair(a.stride or size)
    lacks = [max(0, (int(to) - 1) * s + k - p - n) for to, s, k, p, n in
             zip(shape[2:], stride, size, padding, ones.shape[2:])]
    border = [padding[1], lacks[1], padding[0], lacks[0]]
    share = aten.avg_pool2d(ones, *list(a.values())[1:])
    of_line = pool(torch.nn.functional.pad(ones, border), size, stride)
    if any(lack > p for lack, p in zip(lacks, padding)):
        x, padding = padded(w, x, border), [0, 0]
    how = sides(2, size=size, stride=stride, padding=padding)
    factor = share / of_line[:, :, :shape[2], :shape[3]]
    y = of_samples(w, "avg_pool2d", x, [], shape, **how)
    return y if (factor == 1).all() else w.mul(y, Const([factor], list(factor.shape)))


lower(aten._adaptive_avg_pool2d, aten.adaptive_avg_pool2d)(lambda w, a, shape: of_samples(
    w, "adaptive_avg_pool2d", w.value(a.self), [], shape, size=[*map(int, shape[2:])]))


# ---- nn.LSTM, nn.GRU and nn.RNN, a line for each layer and direction

@lower(aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
def _(w, a, shape):
    require("batch_first" in a, "it takes a packed sequence: give a padded one")
    op, states = w.op[6:], 2 if "lstm" in w.op else 1
    x, ways, each = w.value(a.input), 2 if a.bidirectional else 1, 4 if a.has_biases else 2
    require(len(a.params) == ways * each * a.num_layers, "it has a proj_size: add a Linear")
    given = a.hx if isinstance(a.hx, (list, tuple)) else [a.hx]
    if all(isinstance(g, Const) and g.number == 0 for g in given):
        given = []  # the line has the same default
    order, cell = [0, 1] if a.batch_first else [1, 0], int(states == 2 and 2 in w.asked)
    name, transposed, count = w.rows(w.permuted(x, *order, 2))
    rows, length, width = N(count), int(transposed.shape[1]), int(a.params[1].shape[1])
    axes, made = [rows, length, width * ways], []

    def part(y, start, size):
        return w.emit("narrow", [y], [rows, size, width], dim=1, start=start, length=size)

    def joined(parts, *sizes, dim):
        return parts[0] if len(parts) == 1 else w.emit("cat", parts, [rows, *sizes], dim=dim)
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
        name = joined(outputs, *axes[1:], dim=2)
        if a.dropout and a.train and layer + 1 < a.num_layers:
            name = w.emit("dropout", [name], axes, once=False, p=a.dropout)

    def value(name, order, *sizes):
        y = w.of_rows(name, transposed, count, [transposed.shape[0], *sizes])
        return w.permuted(y, *order, 2)

    def last(of_cells):
        """The states after the last step; an LSTM's cell states follow those of all steps."""
        parts = [part(y, length if of_cells else end, 1) for y, end in made]
        return value(joined(parts, len(parts), width, dim=1), [1, 0], len(parts), width)
    return [value(name, order, *axes[1:]),
            *(last(k) if 1 + k in w.asked else None for k in range(states))]


# ---- matrix products

def swapped(w, x):
    """The transposed matrices."""
    return w.permuted(x, *range(x.rank - 2), -1, -2)


def linear(w, x, weight, bias):
    """One line if w is a parameter; matmul_add if the parameter is transposed."""
    weight, width = w.value(weight), int(weight.shape[0])
    own = bias is None or w.is_parameter(bias)
    if weight.rank == 2 and x.rank > 1 and w.is_parameter(weight) and not x.shared:
        transposed = weight.name in w.moved
        op, weight = ("matmul_add", swapped(w, weight)) if transposed else ("linear", weight)
        operands = [w.parameter(weight, "weight"), w.parameter(bias, "bias") if own else None]
        y = w.over(x, [-1], [width], lambda name, before: w.emit(op, [name, *operands],
                                                                 [*before, width]))
        return y if own else w.add(y, bias)
    y = matmul(w, x, swapped(w, weight))
    return y if bias is None else w.add(y, bias)


lower(aten.linear)(lambda w, a, shape: linear(w, w.value(a.input), a.weight, a.get("bias")))


def matmul(w, x, y):
    x, y = w.value(x), w.value(y)
    if 1 in (x.rank, y.rank):  # a vector is a matrix of one row, or of one column
        z = matmul(w, x.unsqueezed(0), y) if x.rank == 1 else matmul(w, x, y.unsqueezed(1))
        return z.squeezed([z.rank - 2 if x.rank == 1 else z.rank - 1])
    if y.rank == 2 and w.is_parameter(y) and not x.shared:
        return linear(w, x, swapped(w, y), None)
    if x.rank > y.rank == 2 and x.shared and y.shared and not any(
            isinstance(n, N) for n in x.shape):
        flat = w.view(x, [math.prod(x.shape[:-1]), x.shape[-1]])
        return w.view(matmul(w, flat, y), [*x.shape[:-1], y.shape[1]])
    lead = broadcast(x.shape[:-2], y.shape[:-2])
    rank, shape = len(lead) + 2, [*lead, x.shape[-2], y.shape[-1]]
    x, y = x.of_rank(rank), y.of_rank(rank)
    require(x.at != rank - 1 and y.at != rank - 2 and not isinstance(x.shape[-1], N), MIXES)
    if x.shared and y.shared and rank == 2 and not x.repeats and not y.repeats:
        axes = [N(1), *map(int, shape)]
        z = w.emit("matmul", [w.lay(v, v.shape, shared=True) for v in (x, y)], axes, shared=True)
        return Value(z, axes, shape, shared=True, dtype=x.dtype)
    needed = [d for d in range(rank - 2) if x.size(d) != 1 or y.size(d) != 1]
    if y.at is None and all(y.size(d) == 1 for d in range(rank - 2)):  # one matrix for all rows
        right, width = w.dense(y, only=[rank - 2, rank - 1]), int(shape[-1])
        right = w.lay(right, [right.size(-2), width])
        return w.over(x, [-1], [width], lambda name, before: w.emit(
            "matmul", [name, right], [*before, width]), flat=True).but(shape=shape)
    like = x if x.at is not None else y
    x, y = (w.dense(v, [*needed, d], like) for v, d in ((x, rank - 1), (y, rank - 2)))
    # The samples move to the front from any dimension, which must be the same in both.
    require(x.at is None or y.at is None or (x.at, x.front) == (y.at, y.front) and x.at in
            range(rank - 2), IN_FRONT)
    lead = [math.prod(int(shape[d]) for d in needed)] if needed else []
    axes = [N(1), *lead, x.size(-2), y.size(-1)]
    z = w.emit("matmul", [w.lay(v, [*lead, v.size(-2), v.size(-1)]) for v in (x, y)], axes)
    repeats = {d for d in range(rank - 2) if d not in needed} | x.repeats | y.repeats
    return Value(z, axes, shape, like.at, like.front, repeats - {like.at}, dtype=torch.float32)


lower(aten.matmul, aten.mm, aten.bmm, aten.mv, aten.dot)(
    lambda w, a, shape: matmul(w, *list(a.values())[:2]))


@lower(aten.addmm)
def _(w, a, shape):
    x, y = list(a.values())[1:3]
    if a.get("alpha", 1) == a.get("beta", 1) == 1 and len(a.self.shape) == 1 and \
            w.is_parameter(y) and w.is_parameter(a.self):
        return linear(w, w.value(x), swapped(w, w.value(y)), a.self)
    return w.add(w.times(w.value(a.self), a.get("beta", 1)),
                 w.times(matmul(w, x, y), a.get("alpha", 1)))


# ---- attention

@lower(aten.scaled_dot_product_attention)
def _(w, a, shape):
    q, k, v = (w.value(x) for x in (a.query, a.key, a.value))
    groups = int(q.shape[-3]) // int(k.shape[-3]) if a.get("enable_gqa") else 1
    if groups > 1:  # each head is repeated in a row
        k, v = (w.view(x.unsqueezed(-3).expanded([*x.shape[:-2], groups, *x.shape[-2:]]),
                       [*x.shape[:-3], q.shape[-3], *x.shape[-2:]]) for x in (k, v))
    scale, p, mask = a.get("scale"), a.get("dropout_p", 0.0), a.get("attn_mask")
    rank = max(x.rank for x in (q, k, v))
    if isinstance(mask, Const):  # a bool mask becomes 0, and -inf where a key is hidden
        mask = w.value(Const([t.log() if t.dtype is torch.bool else t for t in mask.of],
                             mask.shape))
    elif mask is not None and mask.dtype is torch.bool:
        mask = w.line("log", mask)
    if mask is not None and mask.name in w.trained:
        return _by_definition(w, q, k, v, mask, scale, p)
    values = [x.of_rank(rank) for x in (q, k, v)]
    needed = [d for d in range(rank) if d > rank - 3 or any(x.size(d) != 1 for x in values)]
    like = next((x for x in values if x.at is not None), None)
    require(like is None or like.at < rank - 2, IN_FRONT)
    values = [w.lifted(w.dense(x, needed, like)) for x in values]
    require(not p or like, UNSAMPLED)
    names, y, at = w.beside(values, [*shape[:-2], 1, 1], skip=[rank - 2, rank - 1])
    y.axes[at[0]], y.axes[at[1]] = int(q.shape[-2]), int(v.shape[-1])
    settings = {"is_causal": 1} if a.get("is_causal") else {}
    settings |= {"scale": scale} if scale is not None else {}
    settings |= {"dropout_p": p} if p else {}
    mask = None if mask is None else _mask_line(w, mask, y, rank, int(k.shape[-2]))
    name = w.emit("scaled_dot_product_attention", [*names, mask], y.axes, once=not p, **settings)
    return y.but(name=name, shape=shape)


def _mask_line(w, mask, y, rank, keys):
    """The mask in the scores' layout, with their leading dimensions up to the mask's last one."""
    mask = mask.of_rank(rank)
    require(mask.at is None or (mask.at, mask.front) == (y.at, y.front),
            "its mask has the samples in another dimension: permute it first")
    lead = [d for d in range(rank - 2) if y.size(d) != 1]
    own = [d for d in lead if mask.size(d) != 1]
    if mask.shared and not own and mask.axes[1:] == [mask.size(-2), keys]:
        return mask.name
    before = [d for d in lead if own and d < own[-1]]
    sizes = [y.shape[d] if d in before else mask.shape[d] for d in range(rank - 1)]
    mask = w.dense(mask.expanded([*sizes, keys]), only=[*before, rank - 1])
    return w.lay(mask, [*(mask.size(d) for d in lead), mask.size(-2), keys])


def _by_definition(w, q, k, v, mask, scale, p):
    """softmax(q k^T scale + mask) v, as separate lines."""
    scale = int(q.shape[-1]) ** -0.5 if scale is None else scale
    scores = w.add(matmul(w, w.times(q, scale), swapped(w, k)), mask)
    weights = softmax(w, scores, -1)
    return matmul(w, w.line("dropout", w.dense(weights), once=False, p=p) if p else weights, v)
