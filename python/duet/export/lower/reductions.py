"""Sums, maxima, ops composed of them, softmax, and sorting."""

import math

import torch

from ..passes import N, require
from ..text import MIXES
from . import lower
from .elements import compare, maximum, minimum
from .shapes import cat, narrow

aten = torch.ops.aten


def dims_of(a, rank):
    dims = a.get("dim")
    dims = range(rank) if dims in (None, []) else [dims] if isinstance(dims, int) else dims
    return sorted(d % rank for d in dims)


def reduce(w, op, x, dims, keepdim=False):
    """sum or mean over dimensions; a repeated number is multiplied, not added repeatedly."""
    repeats = [x.shape[d] for d in dims if d in x.repeats]
    require(x.at not in dims and not any(isinstance(n, N) for n in repeats), MIXES)
    y = x.but(shape=[1 if d in dims else n for d, n in enumerate(x.shape)])
    wide, sizes = x.wide()
    gone = [i for i, d in enumerate(wide, 1) if d in dims]
    if gone:
        y.axes = [N(1), *y.wide()[1]]
        y.name = w.emit(op, [w.lay(x, sizes, shared=True)], y.axes, shared=x.shared, dims=gone,
                        keepdim=0)
    y = y if keepdim else y.squeezed(dims)
    return w.times(y, math.prod(repeats)) if op == "sum" else y


@lower(aten.sum, aten.mean)
def _(w, a, shape):
    x = w.value(a.self)
    return reduce(w, w.op[6:], x, dims_of(a, x.rank), a.get("keepdim", False))


def root(w, x):
    """The square root, with gradient 0 at 0, as in PyTorch's norms."""
    zero = compare(w, "equal", x, 0)
    return w.where(zero, 0.0, w.line("sqrt", w.where(zero, 1.0, x)))


@lower(aten.var, aten.std, aten.var_mean, aten.std_mean)
def _(w, a, shape):
    x = w.value(a.self)
    dims, keepdim = dims_of(a, x.rank), a.get("keepdim", False)
    mean = reduce(w, "mean", x, dims, True)
    off = w.sub(x, mean)
    total = reduce(w, "sum", w.mul(off, off), dims, keepdim)
    less = int(a.get("unbiased", True)) if a.get("correction") is None else a.correction
    count = math.prod(int(x.shape[d]) for d in dims)
    require(count > less, "it takes the variance of one number: give correction=0")
    y = w.times(total, 1 / (count - less))
    y = root(w, y) if "std" in w.op else y
    return [y, mean if keepdim else mean.squeezed(dims)] if "mean" in w.op else y


@lower(aten.linalg_vector_norm)
def _(w, a, shape):
    order, x = w.number(a.ord), w.value(a.self)
    require(order in (1, 2), f"it takes the norm of order {a.ord}: Duet has 1 and 2")
    each = w.line("abs", x) if order == 1 else w.mul(x, x)
    total = reduce(w, "sum", each, dims_of(a, x.rank), a.get("keepdim", False))
    return total if order == 1 else root(w, total)


def softmax(w, x, dim, op="softmax"):
    size = int(x.shape[dim])
    return w.over(x, [dim], [size], lambda name, before: w.emit(op, [name], [*before, size]))


lower(aten._softmax)(lambda w, a, shape: softmax(w, w.value(a.self), a.dim))
lower(aten._log_softmax)(lambda w, a, shape: softmax(w, w.value(a.self), a.dim, "log_softmax"))


@lower(aten._cdist_forward)
def _(w, a, shape):
    """Distances between the rows of two matrices."""
    require(a.p == 2, f"it takes the norm of order {a.p}: Duet has 2")
    off = w.sub(w.value(a.x1).unsqueezed(-2), w.value(a.x2).unsqueezed(-3))
    return root(w, reduce(w, "sum", w.mul(off, off), [off.rank - 1]))


# ---- maxima

def largest(w, x, dims):
    """The maximum with its dimensions kept; the first of equal maxima gets the gradient."""
    def write(name, before):
        size = math.prod(int(x.shape[d]) for d in dims)
        y = w.emit("reshape", [name], [*before, 1, size])
        return w.emit("max_pool2d", [y], [*before, 1, 1], size=[1, size], stride=[1, size])
    return w.over(x, dims, [1] * len(dims), write, flat=True)


def argmax(w, x, dim):
    """The index of the first of equal maxima: the one with the most elements after it. It has no
    gradient."""
    equal, count = compare(w, "equal", x, largest(w, x, [dim])), int(x.shape[dim])
    behind = torch.arange(count, 0, -1.0).reshape([count] + [1] * (x.rank - dim - 1))
    y = largest(w, w.mul(equal, w.constant(behind)), [dim])
    return w.plus(w.times(y, -1), count)


def _signed(w, a):
    """Minima are maxima of the negated numbers."""
    sign = -1 if "min" in w.op else 1
    return w.times(w.value(a.self), sign), sign


@lower(aten.max, aten.min, aten.argmax, aten.argmin)
def _(w, a, shape):
    if "other" in a:
        return (maximum if "max" in w.op else minimum)(w, a.self, a.other)
    require(a.get("dim") is not None, MIXES)
    (x, sign), dims, alone = _signed(w, a), [a.dim % len(a.self.shape)], "arg" in w.op
    y = None if alone else w.times(largest(w, x, dims), sign)
    index = argmax(w, x, dims[0]) if alone or 1 in w.asked else None
    y, index = (z if z is None or a.keepdim else z.squeezed(dims) for z in (y, index))
    return index if alone else [y, index]


@lower(aten.amax, aten.amin)
def _(w, a, shape):
    """All elements that equal the maximum share its gradient."""
    x, sign = _signed(w, a)
    dims = dims_of(a, x.rank)
    equal = compare(w, "equal", x, largest(w, x, dims))
    total = reduce(w, "sum", w.where(equal, x, 0.0), dims, a.keepdim)
    count = reduce(w, "sum", equal, dims, a.keepdim)
    return w.times(w.mul(total, w.line("reciprocal", count)), sign)


@lower(aten.cumsum)
def _(w, a, shape):
    """Each row of the dimension times a constant matrix."""
    size = int(shape[a.dim])
    matrix = w.parameter(w.constant(torch.ones(size, size).triu()), "matrix")
    return w.over(w.value(a.self), [a.dim], [size], lambda name, before: w.emit(
        "matmul_add", [name, matrix, None], [*before, size]), flat=True)


@lower(aten.cumprod)
def _(w, a, shape):
    """Multiplies each product by the one `step` elements before it, and doubles `step` in each
    round."""
    dim, step = a.dim % len(a.self.shape), 1
    x = w.dense(w.value(a.self), only=[dim])
    size = int(x.shape[dim])
    while step < size:
        first, rest = narrow(w, x, dim, 0, step), narrow(w, x, dim, step, size - step)
        x = cat(w, [first, w.mul(rest, narrow(w, x, dim, 0, size - step))], dim, x.shape)
        step *= 2
    return x


# ---- orders

@lower(aten.sort, aten.topk)
def _(w, a, shape):
    """The values and their indices, of topk the first k; equal elements keep their order."""
    x, dim = w.value(a.self), a.dim % len(a.self.shape)
    size, descending = int(x.shape[dim]), int(a.get("largest", a.get("descending")))
    require(x.at is not None, "it sorts a tensor without samples: expand it first")

    def indices(name, before):
        return w.emit("argsort", [name], [*before, size], dim=len(before), descending=descending)

    def values(name, before):
        return w.emit("gather", [name, indices(name, before)], [*before, size], dim=len(before))
    whole = [w.over(x, [dim], [size], write) for write in (values, indices)]
    return [narrow(w, y, dim, 0, shape[0][dim]) for y in whole]
