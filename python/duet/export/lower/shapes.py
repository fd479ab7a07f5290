"""Views, parts and sizes."""

import torch

from ..text import LEAST, Const, N, require
from . import lower

aten = torch.ops.aten


lower(aten.view)(lambda w, a, shape: w.view(w.value(a.self), shape))
lower(aten.unsqueeze)(lambda w, a, shape: w.value(a.self).unsqueezed(a.dim))
lower(aten.permute)(lambda w, a, shape: w.permuted(w.value(a.self), *a.dims))
# A new size in place of size 1 is not an axis.
lower(aten.expand)(lambda w, a, shape: w.value(a.self).expanded(shape))
lower(aten.copy)(lambda w, a, shape: w.value(a.src).expanded(shape))


@lower(aten.clone, aten._to_copy, aten.lift_fresh_copy)
def _(w, a, shape):
    """Also a change of type: numbers are rounded towards 0, and a bool is x != 0."""
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
    require(number is not None, "its value is not a number")
    return Const([torch.tensor(number)], shape)


lower(aten.empty, aten.new_empty, aten.empty_like)(
    lambda w, a, shape: Const([torch.tensor(0.0)], shape))


# ---- parts

def narrow(w, x, dim, start, length):
    size = x.shape[dim]
    if not isinstance(size, N) and length == size:
        return x
    y = x.but(shape=[*x.shape[:dim], length, *x.shape[dim + 1:]])
    if dim in x.repeats:
        return y
    if x.at == dim:  # of kN rows those of all samples one time or several
        each = int(size) // x.front
        y.front, rest = divmod(int(length), each)
        require(isinstance(length, N) and (isinstance(start, N) or start == 0) and not rest and
                int(start) % each == 0, "it takes some of the samples: give dim, without that of "
                                        "the samples")
    dims, sizes = x.wide()
    name, at = w.lay(x, sizes, shared=True), 1 + dims.index(dim)
    y.axes = [N(1), *sizes]
    y.axes[at] = int(length)
    y.name = w.emit("narrow", [name], y.axes, shared=x.shared, dim=at, start=int(start),
                    length=int(length))
    return y


@lower(aten.select)
def _(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % x.rank
    require(not isinstance(x.shape[dim], N) or dim in x.repeats,
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
        require(step == 1, "it takes some of the samples")
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
    """Of samples behind samples, as the two sides of a pair, each sample has a row more."""
    if len(given) == 1:
        return given[0]
    needed = [d for d in range(len(shape)) if d == dim or any(x.size(d) != 1 for x in given)]
    like = next((x for x in given if x.at is not None), None)
    given = [w.dense(x, needed, like) for x in given]
    names, y, (place,) = w.beside(given, shape, skip=[dim])
    if isinstance(shape[dim], N):
        require(all(x.at == dim and x.front == int(x.shape[dim]) for x in given),
                "it joins some of the samples")
        y.front = int(shape[dim])
    sizes = [[*y.axes[:place], x.size(dim), *y.axes[place + 1:]] for x in given]
    return y.but(name=_cat(w, names, sizes, place, y.shared))


def _cat(w, names, axes, dim, shared):
    """Of more than a line takes the first are one."""
    while len(names) > 1:
        first, sizes = names[:64], axes[:64]
        joined = [*sizes[0][:dim], sum(s[dim] for s in sizes), *sizes[0][dim + 1:]]
        names = [w.emit("cat", first, joined, shared=shared, dim=dim), *names[64:]]
        axes = [joined, *axes[64:]]
    return names[0]


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
    require(step == 1, "at indices that are not adjacent: write torch.where")
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
    """Two sides at a time, as those of an image's rows."""
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
        size = [1] * (2 - len(dims)) + [int(x.shape[d]) for d in dims]
        to = [size[0] + sides[2] + sides[3], size[1] + sides[0] + sides[1]]

        def write(name, before):
            y = w.emit("reshape", [name], [*before, *size])
            return w.emit("pad2d", [y], [*before, *to], sides=sides, value=value)
        x = w.over(x, dims, to[2 - len(dims):], write, flat=True)
    return x
