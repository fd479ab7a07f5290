"""Sums, maxima and what is made of them, softmax, and orders of numbers."""

import math

import torch

from ..text import N, Value, require
from . import lower
from .elements import compare, maximum, minimum

aten = torch.ops.aten


def dims_of(a, rank):
    dims = a.get("dim")
    dims = list(range(rank)) if dims is None or dims == [] else \
        [dims] if isinstance(dims, int) else list(dims)
    return sorted(d % rank for d in dims)


def without(x, dims, keepdim, axes, name, gone):
    """x, of whose line these axes are gone."""
    at = {i: k for k, i in enumerate(j for j in range(len(x.axes)) if j not in gone)}
    kept = [([] if d in dims else [at[i] for i in group], 1 if d in dims else n)
            for d, (group, n) in enumerate(zip(x.dims, x.shape)) if keepdim or d not in dims]
    return Value(name, axes, [n for _, n in kept], [g for g, _ in kept], x.shared, x.dtype)


def reduce(w, op, x, dims, keepdim=False):
    """sum or mean over dimensions; where numbers repeat, one times their count."""
    gone = w.axes_of(x, *dims)
    repeats = [x.shape[d] for d in dims if not x.dims[d]]
    require(not any(isinstance(n, N) for n in repeats), "it mixes samples: give dim, without that "
                                                        "of the samples")
    axes = [n for i, n in enumerate(x.axes) if i not in gone]
    name = x.name
    if gone:
        name = w.emit(op, [x], axes, shared=x.shared, dims=sorted(gone), keepdim=0)
    y = without(x, dims, keepdim, axes, name, gone)
    return w.times(y, math.prod(repeats)) if op == "sum" else y


@lower(aten.sum, aten.mean)
def _(w, a, shape):
    x = w.value(a.self)
    op = "mean" if "mean" in w.op else "sum"
    return reduce(w, op, x, dims_of(a, x.rank), a.get("keepdim", False))


def variance(w, a):
    x = w.value(a.self)
    dims = dims_of(a, x.rank)
    mean = reduce(w, "mean", x, dims, True)
    off = w.sub(x, mean)
    total = reduce(w, "sum", w.mul(off, off), dims, a.get("keepdim", False))
    correction = a.get("correction")
    correction = int(a.get("unbiased", True)) if correction is None else correction
    count = math.prod(int(x.shape[d]) for d in dims)
    require(count > correction, "of one number")
    mean = mean if a.get("keepdim") else mean.squeezed(dims)
    return w.times(total, 1 / (count - correction)), mean


def root(w, x):
    """The square root, whose gradient at 0 is 0, as PyTorch has it for norms."""
    zero = compare(w, "equal", x, 0)
    return w.where(zero, 0.0, w.line("sqrt", w.where(zero, 1.0, x)))


@lower(aten.var, aten.std)
def _(w, a, shape):
    y = variance(w, a)[0]
    return root(w, y) if "std" in w.op else y


@lower(aten.var_mean, aten.std_mean)
def _(w, a, shape):
    y, mean = variance(w, a)
    return [root(w, y) if "std" in w.op else y, mean]


@lower(aten.linalg_vector_norm)
def _(w, a, shape):
    order, x = w.number(a.ord), w.value(a.self)
    require(order in (1, 2), f"the norm of order {a.ord}")
    dims = dims_of(a, x.rank)
    if order == 1:
        return reduce(w, "sum", w.line("abs", x), dims, a.get("keepdim", False))
    return root(w, reduce(w, "sum", w.mul(x, x), dims, a.get("keepdim", False)))


@lower(aten._softmax, aten._log_softmax)
def _(w, a, shape):
    x = w.value(a.self)
    d = a.dim % x.rank
    name, x, before = w.last(x, d)
    op = "log_softmax" if "log" in w.op else "softmax"
    size = int(x.shape[d])
    if len(before) + 2 == len(x.axes) and name == x.name:
        return x.but(name=w.emit(op, [name], x.axes))
    y = w.emit(op, [name], [N(1), *(x.axes[i] for i in before), size])
    return w.result(y, x, before, [d], [size])


# ---- maxima

def largest(w, x, dims):
    """With the dimensions kept; the first of equal maxima has the gradient."""
    x = w.lifted(w.dense(x, only=dims))
    gone = w.axes_of(x, *dims)
    if not gone:
        return x
    rest = [i for i in range(1, len(x.axes)) if i not in gone and any(i in g for g in x.dims)]
    rows, count = math.prod(x.axes[i] for i in rest), math.prod(x.axes[i] for i in gone)
    y = w.arranged(x, [rest, [], gone])
    y = w.emit("adaptive_max_pool2d", [y], [N(1), rows, 1, 1], size=[1, 1])
    axes = [N(1), *(x.axes[i] for i in rest)]
    y = w.emit("reshape", [y], axes)
    at = {0: 0} | {i: k + 1 for k, i in enumerate(rest)}
    return Value(y, axes, [1 if d in dims else n for d, n in enumerate(x.shape)],
                 [[] if d in dims else [at[i] for i in g if i in at] for d, g in
                  enumerate(x.dims)], dtype=x.dtype) if count else None


def argmax(w, x, dim):
    """The first of equal maxima: of the places that hold it the one with the most behind it. It has
    no gradient."""
    equal, count = compare(w, "equal", x, largest(w, x, [dim])), int(x.shape[dim])
    behind = torch.arange(count, 0, -1.0).reshape([count] + [1] * (x.rank - dim - 1))
    y = largest(w, w.mul(equal, w.constant(behind)), [dim])
    return w.plus(w.times(y, -1), count)


def _signed(w, a):
    """Minima are maxima of what is below 0."""
    x = w.value(a.self)
    sign = -1 if "min" in w.op else 1
    return w.times(x, sign), sign


@lower(aten.max, aten.min)
def _(w, a, shape):
    if "other" in a:
        return (maximum if "max" in w.op else minimum)(w, a.self, a.other)
    require("dim" in a, "it mixes samples: give dim")
    (x, sign), dims = _signed(w, a), [a.dim % len(a.self.shape)]
    y, index = w.times(largest(w, x, dims), sign), None
    if 1 in w.asked:
        index = argmax(w, x, dims[0])
    return [z if z is None or a.keepdim else z.squeezed(dims) for z in (y, index)]


@lower(aten.amax, aten.amin)
def _(w, a, shape):
    """All that are equal to the maximum share its gradient."""
    x, sign = _signed(w, a)
    dims = dims_of(a, x.rank)
    equal = compare(w, "equal", x, largest(w, x, dims))
    total = reduce(w, "sum", w.where(equal, x, 0.0), dims, a.keepdim)
    count = reduce(w, "sum", equal, dims, a.keepdim)
    return w.times(w.mul(total, w.line("reciprocal", count)), sign)


@lower(aten.argmax, aten.argmin)
def _(w, a, shape):
    require(a.get("dim") is not None, "it mixes samples: give dim")
    x, dim = _signed(w, a)[0], a.dim % len(a.self.shape)
    y = argmax(w, x, dim)
    return y if a.get("keepdim") else y.squeezed([dim])


@lower(aten.any, aten.all)
def _(w, a, shape):
    x = w.value(a.self)
    dims = dims_of(a, x.rank)
    hits = compare(w, "equal", x, 0, negate="any" in w.op)
    y = reduce(w, "sum", hits, dims, a.get("keepdim", False))
    return w.line("above" if "any" in w.op else "equal", y, number=0)


def along(w, x, dim, matrix):
    """Each row of dimension dim times a constant matrix."""
    name, x, before = w.last(x, dim)
    rows, (count, to) = math.prod(x.axes[i] for i in before), matrix.shape
    y = w.emit("reshape", [name], [N(1), rows, count])
    y = w.emit("matmul_add", [y, w.frozen_parameter(matrix), None], [N(1), rows, to])
    y = w.emit("reshape", [y], [N(1), *(x.axes[i] for i in before), to])
    return w.result(y, x, before, [dim], [to])


@lower(aten.cumsum)
def _(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % x.rank
    return along(w, x, dim, torch.ones(int(shape[dim]), int(shape[dim])).triu())


@lower(aten.cumprod, aten.prod)
def _(w, a, shape):
    """Each product times that of as many places before it, of which there are twice as many in each
    round. The last one is that of all."""
    from .shapes import cat, narrow
    require(a.get("dim") is not None, "it mixes samples: give dim")
    dim, step = a.dim % len(a.self.shape), 1
    x = w.dense(w.value(a.self), only=[dim])
    size = int(x.shape[dim])
    while step < size:
        first, rest = narrow(w, x, dim, 0, step), narrow(w, x, dim, step, size - step)
        x = cat(w, [first, w.mul(rest, narrow(w, x, dim, 0, size - step))], dim, x.shape)
        step *= 2
    if "cumprod" in w.op:
        return x
    x = narrow(w, x, dim, size - 1, 1)
    return x if a.get("keepdim") else x.squeezed([dim])


# ---- orders

def order(w, x, dim, descending):
    """The places of x in its order; of what is equal the first stays in front."""
    name, x, before = w.last(x, dim)
    axes = [N(1), *(x.axes[i] for i in before), int(x.shape[dim])]
    require(x.of_samples, "of a tensor without samples")
    index = w.emit("argsort", [name], axes, dim=len(axes) - 1, descending=int(descending))
    value = w.emit("gather", [name, index], axes, dim=len(axes) - 1)
    size = [x.shape[dim]]
    return [w.result(y, x, before, [dim], size) for y in (value, index)]


@lower(aten.sort)
def _(w, a, shape):
    return order(w, w.value(a.self), a.dim % len(a.self.shape), a.get("descending"))


@lower(aten._cdist_forward)
def _(w, a, shape):
    """Distances of the rows of two matrices, in a dimension of their own."""
    require(a.p == 2, f"the norm of order {a.p}")
    x, y = w.value(a.x1), w.value(a.x2)
    off = w.sub(x.unsqueezed(-2), y.unsqueezed(-3))
    return root(w, reduce(w, "sum", w.mul(off, off), [off.rank - 1]))


@lower(aten.topk)
def _(w, a, shape):
    from .shapes import narrow
    dim = a.dim % len(a.self.shape)
    return [narrow(w, y, dim, 0, a.k) for y in order(w, w.value(a.self), dim, a.largest)]


