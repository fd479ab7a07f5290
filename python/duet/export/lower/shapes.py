"""Views, parts and sizes. What moves or splits a dimension writes no line by itself: values.py."""

import math

import torch

from ..text import LEAST, Const, N, Value, require
from . import lower

aten = torch.ops.aten


lower(aten.view)(lambda w, a, shape: w.view(w.value(a.self), shape))
lower(aten.unsqueeze)(lambda w, a, shape: w.value(a.self).unsqueezed(a.dim))
lower(aten.permute)(lambda w, a, shape: w.value(a.self).permuted(*(d % len(shape) for d in a.dims)))
# A new size of what has size 1 is no axis.
lower(aten.expand)(lambda w, a, shape: w.value(a.self).of_rank(len(shape)).but(shape=shape))
lower(aten.copy)(lambda w, a, shape: w.value(a.src).of_rank(len(shape)).but(shape=shape))


@lower(aten.clone, aten._to_copy, aten.lift_fresh_copy)
def _(w, a, shape):
    """Also a change of type: numbers become whole towards 0, and a bool is what is not 0."""
    from .elements import rounded, truth
    kind = a.get("dtype")
    if kind is torch.bool:
        return truth(w, a.self)
    if kind in (torch.int64, torch.int32) and a.self.dtype.is_floating_point:
        return w.detach(rounded(w, a, shape))
    return a.self


@lower(aten.squeeze)
def _(w, a, shape):
    x = w.value(a.self)
    dims = a.get("dim", range(x.rank))
    dims = [d % x.rank for d in ([dims] if isinstance(dims, int) else dims)]
    return x.squeezed([d for d in dims if x.shape[d] == 1])


@lower(aten.full_like, aten.full)
def _(w, a, shape):
    number = w.number(a.fill_value)
    require(number is not None, "its value is no number")
    return Const([torch.tensor(number)], shape)


lower(aten.empty, aten.new_empty, aten.empty_like)(
    lambda w, a, shape: Const([torch.tensor(0.0)], shape))


# ---- parts

def narrow(w, x, dim, start, length):
    size = x.shape[dim]
    if not isinstance(size, N) and length == size:
        return x
    shape = [*x.shape[:dim], length, *x.shape[dim + 1:]]
    if not x.dims[dim]:  # its numbers repeat
        return x.but(shape=shape)
    axes = x.dims[dim]
    if 0 in axes:
        return _of_several_rows(w, x, dim, start, length, shape)
    if len(axes) > 1:  # joined, if it cannot be told of the first of its axes alone
        inner = math.prod(x.axes[i] for i in axes[1:])
        if start % inner or length % inner:
            x = merged(w, x, dim)
            return narrow(w, x, dim, start, length)
        start, length = start // inner, length // inner
    new = [length if i == axes[0] else n for i, n in enumerate(x.axes)]
    name = w.emit("narrow", [x], new, shared=x.shared, dim=axes[0], start=start, length=length)
    return x.but(name=name, axes=new, shape=shape)


def _of_several_rows(w, x, dim, start, length, shape):
    """Of kN rows, one sample's behind another's or all first rows first, those of some k."""
    axes, size = x.dims[dim], int(x.shape[dim])
    require(isinstance(length, N) and size > 1 and axes[0] != 0 and isinstance(start, (int, N)) and
            (isinstance(start, N) or start == 0), "it takes some of the samples: give dim, without "
                                                  "that of the samples")
    first, inner = axes[0], math.prod(x.axes[i] for i in axes[1:])
    require(int(start) % inner == 0 and int(length) % inner == 0, "it takes some of the samples")
    count = int(length) // inner
    new = [count if i == first else n for i, n in enumerate(x.axes)]
    name = w.emit("narrow", [x], new, dim=first, start=int(start) // inner, length=count)
    return x.but(name=name, axes=new, shape=shape)


def merged(w, x, dim):
    """x with one axis for a dimension."""
    name, x, before = w.last(x, dim)
    return w.result(name, x, before, [dim], [x.shape[dim]])


@lower(aten.select)
def _(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % x.rank
    require(0 not in x.dims[dim] or int(x.shape[dim]) > 1,
            "it takes one of the samples: give dim, without that of the samples")
    index = a.index if a.index >= 0 else a.index + int(x.shape[dim])
    return narrow(w, x, dim, index, 1).squeezed([dim])


@lower(aten.slice)
def _(w, a, shape):
    x = w.value(a.self)
    dim, size, step = a.get("dim", 0) % x.rank, x.shape[a.get("dim", 0) % x.rank], a.get("step", 1)
    if shape[dim] == size and step == 1:
        return x
    if 0 in [int(n) for n in shape]:
        return Const([torch.empty(0)], shape)
    start, stop = (w.sizes([n])[0] if n is not None else None for n in (a.get("start"),
                                                                        a.get("end")))
    if isinstance(size, N):
        start = start or 0
        if int(start) < 0:
            start = N(int(size) + int(start))
        return narrow(w, x, dim, start, shape[dim])
    start, stop, step = slice(start, stop, step).indices(int(size))
    if step == 1:
        return narrow(w, x, dim, start, shape[dim])
    from .indices import taken
    return taken(w, x, dim, torch.arange(start, stop, step))


@lower(aten.split_with_sizes)
def _(w, a, shape):
    x, at, out = w.value(a.self), 0, []
    dim = a.get("dim", 0) % x.rank
    for to in shape:
        start = N(at) if isinstance(to[dim], N) and at else at
        out.append(narrow(w, x, dim, start, to[dim]))
        at += int(to[dim])
    return out


@lower(aten.cat)
def _(w, a, shape):
    given = [w.value(x) for x in a.tensors if 0 not in [int(n) for n in x.shape]]
    dim = a.get("dim", 0) % len(shape)
    return cat(w, given, dim, shape)


def cat(w, given, dim, shape):
    if len(given) == 1:
        return given[0]
    if isinstance(shape[dim], N):
        return _of_samples(w, given, dim, shape)
    needed = [d for d in range(len(shape)) if d == dim or any(x.dims[d] for x in given)]
    like = next((x for x in given if x.of_samples), None)
    given = [w.dense(x, needed, like) for x in given]
    given = [merged(w, x, dim) if len(x.dims[dim]) > 1 else x for x in given]
    names, axes, dims, (place,) = w.beside(given, shape, skip=[dim])
    sizes = [[*axes[:place], int(x.shape[dim]), *axes[place + 1:]] for x in given]
    axes[place], shared = int(shape[dim]), all(x.shared for x in given)
    return Value(_cat(w, names, sizes, place, shared), axes, shape, dims, shared, given[0].dtype)


def _cat(w, names, axes, dim, shared):
    """Of more than a line takes the first are one."""
    while len(names) > 1:
        first, sizes = names[:64], axes[:64]
        joined = [*sizes[0][:dim], sum(s[dim] for s in sizes), *sizes[0][dim + 1:]]
        names = [w.emit("cat", first, joined, shared=shared, dim=dim), *names[64:]]
        axes = [joined, *axes[64:]]
    return names[0]


def _of_samples(w, given, dim, shape):
    """Samples behind samples, as the two sides of a pair: each sample has a row more."""
    given = [w.dense(x) for x in given]
    require(all(0 in x.dims[dim] and int(x.shape[dim]) == 1 for x in given),
            "it joins some of the samples")
    y = cat(w, [x.unsqueezed(dim) for x in given], dim,
            [*shape[:dim], len(given), N(1), *shape[dim + 1:]])
    return y.but(shape=shape, dims=[*y.dims[:dim], y.dims[dim] + y.dims[dim + 1],
                                    *y.dims[dim + 2:]])


@lower(aten.slice_scatter)
def _(w, a, shape):
    """x before, what is written, and x behind."""
    dim, size = a.get("dim", 0) % len(shape), shape[a.get("dim", 0) % len(shape)]
    start, stop = a.get("start") or 0, a.get("end")
    if isinstance(size, N) or (start == 0 and (stop is None or stop >= int(size)) and
                               a.get("step", 1) == 1):
        require(start == 0 and a.src.shape[dim] == size, "it writes into some of the samples")
        return a.src
    start, stop, step = slice(start, stop, a.get("step", 1)).indices(int(size))
    x, y, parts = w.value(a.self), w.value(a.src), []
    if step > 1:
        from .indices import put
        return put(w, x, dim, torch.arange(start, stop, step), y, shape)
    for part, first, length in ((x, 0, start), (y, 0, stop - start), (x, stop, int(size) - stop)):
        if length:
            parts.append(narrow(w, part, dim, first, length))
    return cat(w, parts, dim, shape)


@lower(aten.flip)
def _(w, a, shape):
    from .indices import taken
    x = w.value(a.self)
    for d in a.dims:
        x = taken(w, x, d % x.rank, torch.arange(int(x.shape[d]) - 1, -1, -1))
    return x


# ---- sizes

@lower(aten.constant_pad_nd)
def _(w, a, shape):
    return padded(w, w.value(a.self), a.pad, float(a.get("value") or 0))


def padded(w, x, pad, value=0.0):
    """Two sides at a time, as those of a picture's rows."""
    value = min(max(value, LEAST), -LEAST)
    for i in range(0, len(pad) // 2, 2):
        sides = [*pad[2 * i:2 * i + 4], 0, 0][:4]
        dims = [d for d in (x.rank - 2 - i, x.rank - 1 - i) if d >= 0]
        if not any(sides):
            continue
        require(not isinstance(x.shape[dims[-1]], N) and
                (not any(sides[2:]) or not isinstance(x.shape[dims[0]], N)),
                "padding of the samples")
        if len(dims) < 2 or isinstance(x.shape[dims[0]], N):
            dims = dims[-1:]
        name, x, before = w.last(x, *dims)
        size = [1] * (2 - len(dims)) + [int(x.shape[d]) for d in dims]
        to = [size[0] + sides[2] + sides[3], size[1] + sides[0] + sides[1]]
        planes = math.prod(x.axes[k] for k in before)
        y = w.emit("reshape", [name], [N(1), planes, *size])
        y = w.emit("pad2d", [y], [N(1), planes, *to], sides=sides, value=value)
        y = w.emit("reshape", [y], [N(1), *(x.axes[k] for k in before), *to[2 - len(dims):]])
        x = w.result(y, x, before, dims, to[2 - len(dims):])
    return x
