"""Views, parts and sizes; reads and writes at constant or computed indices."""

import functools
import math

import torch

from ..passes import Const, N, name_of, require
from ..text import LEAST, PICKS, Value
from . import lower
from .elements import compare, rounded

aten = torch.ops.aten
SOME = "it takes some of the samples: give dim, without that of the samples"

lower(aten.view, aten.unsqueeze, aten.squeeze)(lambda w, a, shape: w.view(w.value(a.self), shape))
lower(aten.permute)(lambda w, a, shape: w.permuted(w.value(a.self), *a.dims))
# A new size in place of size 1 does not become an axis.
lower(aten.expand)(lambda w, a, shape: w.value(a.self).expanded(shape))
lower(aten.copy)(lambda w, a, shape: w.value(a.src).expanded(shape))


@lower(aten.clone, aten._to_copy, aten.lift_fresh_copy)
def _(w, a, shape):
    """Copies x, perhaps with another type: numbers are rounded towards 0, and a bool is x != 0."""
    kind = a.get("dtype")
    if kind in (torch.int64, torch.int32) and a.self.dtype.is_floating_point:
        return w.detach(rounded(w, a, shape))
    needs_comparing = kind is torch.bool and a.self.dtype is not torch.bool
    return compare(w, "equal", a.self, 0, negate=True) if needs_comparing else a.self


@lower(aten.full_like, aten.full, aten.empty, aten.new_empty, aten.empty_like)
def _(w, a, shape):
    number = w.number(a.get("fill_value", 0))
    require(number is not None, "its value is computed: write torch.zeros_like(x) + value")
    return Const([torch.tensor(number)], shape)


# ---- parts

def narrow(w, x, dim, start, length):
    size = x.shape[dim]
    if length == size:
        return x
    y = x.but(shape=[*x.shape[:dim], length, *x.shape[dim + 1:]])
    if not length:
        return Const([torch.empty(0)], y.shape)
    if dim in x.repeats:
        return y
    if x.at == dim:  # of kN rows, the rows of all samples, once or several times
        each = int(size) // x.front
        y.front, rest = divmod(int(length), each)
        require(isinstance(length, N) and (isinstance(start, N) or start == 0) and not rest and
                int(start) % each == 0, SOME)
    dims, sizes = x.wide()
    name, at = w.lay(x, sizes, shared=True), 1 + dims.index(dim)
    y.axes = [N(1), *sizes[:at - 1], int(length), *sizes[at:]]
    return y.but(name=w.emit("narrow", [name], y.axes, shared=x.shared, dim=at, start=int(start),
                             length=int(length)))


@lower(aten.select)
def _(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % x.rank
    require(not isinstance(x.shape[dim], N) or dim in x.repeats, SOME)
    index = a.index if a.index >= 0 else a.index + int(x.shape[dim])
    return narrow(w, x, dim, index, 1).squeezed([dim])


@lower(aten.slice)
def _(w, a, shape):
    x, dim, step = w.value(a.self), a.get("dim", 0) % len(shape), a.get("step", 1)
    start = _start(a, x.shape[dim])
    if step == 1 or not shape[dim]:
        return narrow(w, x, dim, start, shape[dim])
    require(not isinstance(x.shape[dim], N), SOME)
    return taken(w, x, dim, start + step * torch.arange(shape[dim]))


def _start(a, size):
    """The start of a slice, counted from the front; of samples it is N(k) or 0."""
    start = a.start or 0
    return type(start)(max(int(start) + int(size) if start < 0 else int(start), 0))


@lower(aten.split_with_sizes)
def _(w, a, shape):
    x, dim, sizes = w.value(a.self), a.dim % len(shape[0]), a.split_sizes
    return [narrow(w, x, dim, type(n)(sum(sizes[:i])), n) for i, n in enumerate(sizes)]


@lower(aten.slice_scatter)
def _(w, a, shape):
    """The part of x before, the written part, and the part of x after."""
    dim, x, length = a.dim % len(shape), w.value(a.self), a.src.shape[a.dim]
    size, start = shape[dim], _start(a, shape[dim])
    if length == size:
        return a.src
    require(not isinstance(size, N), SOME)
    require(a.step == 1, "it writes at indices that are not adjacent: write torch.where")
    before, behind = (narrow(w, x, dim, i, j - i) for i, j in ((0, start), (start + length, size)))
    return cat(w, [before, a.src, behind], dim, shape)


def cat(w, given, dim, shape):
    given = [w.value(x) for x in given if 0 not in [int(n) for n in x.shape]]
    if len(given) == 1:
        return given[0]
    needed = [d for d in range(len(shape)) if d == dim or any(x.size(d) != 1 for x in given)]
    like = next((x for x in given if x.at is not None), None)
    given = [w.dense(x, needed, like) for x in given]
    names, y, (axis,) = w.beside(given, shape, skip=[dim])
    if isinstance(shape[dim], N):  # each sample gets more rows
        require(all(x.at == dim and x.front == int(x.shape[dim]) for x in given), SOME)
        y.front = int(shape[dim])
    counts = [x.size(dim) for x in given]
    while len(names) > 1:  # a line takes at most 64 values, so the first ones are joined beforehand
        counts = [sum(counts[:64]), *counts[64:]]
        axes = [*y.axes[:axis], counts[0], *y.axes[axis + 1:]]
        names = [w.emit("cat", names[:64], axes, shared=y.shared, dim=axis), *names[64:]]
    return y.but(name=names[0])


lower(aten.cat)(lambda w, a, shape: cat(w, a.tensors, a.dim % len(shape), shape))


@lower(aten.flip)
def _(w, a, shape):
    x = w.value(a.self)
    for d in a.dims:
        x = taken(w, x, d % x.rank, torch.arange(int(x.shape[d]) - 1, -1, -1))
    return x


def padded(w, x, pad, value=0.0):
    """Pads two sides at a time, such as those of an image's rows."""
    value = min(max(value, LEAST), -LEAST)
    for i in range(0, len(pad) // 2, 2):
        sides = [*pad[2 * i:2 * i + 4], 0, 0][:4]
        dims = [d for d in (x.rank - 2 - i, x.rank - 1 - i) if d >= 0]
        if not any(sides):
            continue
        require(not isinstance(x.shape[dims[-1]], N) and
                (not any(sides[2:]) or not isinstance(x.shape[dims[0]], N)),
                "it adds samples: pad the other dimensions")
        if len(dims) < 2 or isinstance(x.shape[dims[0]], N):
            dims = dims[-1:]
        size = [1] * (2 - len(dims)) + [int(x.shape[d]) for d in dims]
        to = [size[0] + sides[2] + sides[3], size[1] + sides[0] + sides[1]]

        def write(name, before):
            y = w.emit("reshape", [name], [*before, *size])
            return w.emit("pad2d", [y], [*before, *to], sides=sides, value=value)
        x = w.over(x, dims, to[2 - len(dims):], write, flat=True)
    return x


lower(aten.constant_pad_nd)(
    lambda w, a, shape: padded(w, w.value(a.self), a.pad, float(a.get("value") or 0)))


# ---- indices, which are constant or computed

def taken(w, x, dim, indices):
    """x.index_select(dim, indices), with constant indices."""
    x, count = w.value(x), int(x.shape[dim])
    require(not isinstance(x.shape[dim], N), PICKS)
    indices = torch.where(indices < 0, indices + count, indices)
    first, length = int(indices[0]), len(indices)
    if indices.equal(torch.arange(first, first + length)):
        return narrow(w, x, dim, first, length)
    shape = [*x.shape[:dim], length, *x.shape[dim + 1:]]
    if dim in x.repeats:
        return x.but(shape=shape)
    if count == 1:
        return x.but(shape=shape, repeats=x.repeats | {dim})
    (dims, axes), y = x.wide(), x.but(shape=shape)
    at = dims.index(dim)
    index = w.constant(indices.reshape([length] + [1] * (len(axes) - 1 - at)))
    index = w.lay(index, [length if i == at else 1 for i in range(len(axes))], shared=x.shared)
    y.axes = [N(1), *axes[:at], length, *axes[at + 1:]]
    y.name = w.emit("gather", [w.lay(x, axes, shared=True), index], y.axes, shared=x.shared,
                    dim=at + 1)
    return y


def rows_of(w, table, index, padding=-1):
    """Selects rows of a parameter, or of a constant."""
    require(not isinstance(table.shape[0], N), PICKS)
    index, width = w.lifted(index), math.prod(map(int, table.shape[1:]))
    settings = {} if padding is None or padding < 0 else {"padding_idx": padding}
    table = table if isinstance(table, Value) else w.constant(table.alike())
    axes, rows = [*index.axes, width], w.view(table, [int(table.shape[0]), width])
    name = w.emit("embedding", [index, w.parameter(rows, "table")], axes, **settings)
    y = index.but(name=name, axes=axes, shape=[*index.shape, width], dtype=torch.float32)
    return w.view(y, [*index.shape, *table.shape[1:]])


@lower(aten.embedding)
def _(w, a, shape):
    require(not (a.get("scale_grad_by_freq") or a.get("sparse")),
            "its gradient is scaled or sparse: leave scale_grad_by_freq and sparse out")
    return rows_of(w, a.weight, a.indices, a.get("padding_idx", -1))


lower(aten.one_hot)(lambda w, a, shape: compare(
    w, "equal", w.value(a.self).unsqueezed(-1), w.constant(torch.arange(a.num_classes))))


def at_indices(w, x, dim, index, shape):
    """gather: x and index have the same rank; in other dimensions x is narrowed to the index."""
    x = w.value(x)
    require(not isinstance(x.shape[dim], N) and not isinstance(index.shape[dim], N), PICKS)
    for d in range(len(shape)):
        if d != dim and x.shape[d] != shape[d] and x.shape[d] != 1:
            x = narrow(w, x, d, 0, shape[d])
    if x.size(dim) == 1:
        return x.expanded(shape).but(repeats=x.repeats | {dim})
    given = [w.lifted(x), w.dense(w.lifted(index), only=[dim])]
    names, y, (axis,) = w.beside(given, shape, skip=[dim])
    return y.but(name=w.emit("gather", names, y.axes, dim=axis))


@lower(aten.gather)
def _(w, a, shape):
    if len(shape) == 1 and isinstance(shape[0], N) and not isinstance(a.self.shape[0], N):
        return rows_of(w, a.self, a.index)
    return at_indices(w, a.self, a.dim % len(shape), a.index, shape)


@lower(aten.index, aten._unsafe_index)
def _(w, a, shape):
    """Constant indices of dimensions that follow each other, as if they were one; rows of a table;
    of x[torch.arange(N), i] of each sample its own ones."""
    x, indices = w.value(a.self), list(a.indices)
    require(not any(isinstance(i, Value) and i.dtype is torch.bool for i in indices),
            "it selects by a mask, so its size depends on the numbers: write torch.where")
    given = [d for d, i in enumerate(indices) if i is not None]
    first = indices[given[0]]
    own = isinstance(first, Const) and isinstance(x.shape[given[0]], N) and \
        first.dtype is not torch.bool
    if own:
        require(given == list(range(len(indices))) and first.is_index(), PICKS)
        given = given[1:]
    if not given:
        return w.view(x, shape)
    at, end = given[0], given[0] + len(given)
    require(given == list(range(at, end)), "its indexed dimensions are not adjacent: permute first")
    sizes, constant = x.shape[at:end], all(isinstance(indices[d], Const) for d in given)
    require((constant or own or at == 0 and x.at is None) and
            not any(isinstance(n, N) for n in sizes), PICKS)
    if len(given) > 1:
        x = w.view(x, [*x.shape[:at], math.prod(sizes), *x.shape[end:]])
    if constant:
        chosen = [indices[d].alike() for d in given]
        require(all(p.dtype is not torch.bool or p.dim() == 1 for p in chosen),
                "its mask has several dimensions: flatten it and x first")
        chosen = [p.nonzero().flatten() if p.dtype is torch.bool else p for p in chosen]
        flat = functools.reduce(lambda index, one: index * one[0] + one[1] % one[0],
                                zip(map(int, sizes), chosen), torch.tensor(0))
        return w.view(taken(w, x, at, flat.flatten()), shape)
    require(len(given) == 1, "it computes several indices: write x.flatten(0, 1)[i * n + j]")
    index = indices[at]
    if w.ranges.get(w.given["indices"][at], (-1,))[0] < 0:  # one below 0 counts from the end
        index = w.add(index, w.times(compare(w, "above", index, 0, swap=True), int(sizes[0])))
    if own:
        behind = x.shape[2:]
        count = math.prod(map(int, shape[:len(shape) - len(behind)]))
        index = w.view(index, [N(1), count, *[1] * len(behind)])
        return w.view(at_indices(w, x, 1, index, [N(1), count, *behind]), shape)
    require(x.rank == 1 or w.is_parameter(x), "its table is computed: write one_hot @ table")
    return w.view(rows_of(w, x, index), shape)


# ---- values written at indices

@lower(aten.index_put)
def _(w, a, shape):
    """Writes a number where a mask is true."""
    mask, value = w.value(a.indices[0] or 0.0), a["values"]
    number = w.constant_number(value)
    require(len(a.indices) == 1 and mask.dtype is torch.bool and number is not None and
            not a.get("accumulate"), "it writes other than a number at a mask: write torch.where")
    return w.where(mask.with_ones(mask.shape + [1] * (len(shape) - mask.rank)), number, a.self)


def _sums(w, index, src, dim, shape):
    """Adds up the values of src for each index."""
    require(all(n == m for d, (n, m) in enumerate(zip(index.shape, shape)) if d != dim),
            "it writes into a part of other dimensions: expand the index")
    index, src = (w.lifted(w.dense(w.value(v), only=[dim])) for v in (index, src))
    names, y, (axis,) = w.beside([index, src], shape, skip=[dim])
    return y.but(name=w.emit("scatter_add", names, y.axes, dim=axis, size=int(shape[dim])),
                 dtype=torch.float32)


@lower(aten.scatter_add)
def _(w, a, shape):
    dim = a.dim % len(shape)
    require(not isinstance(shape[dim], N), PICKS)
    sums = _sums(w, a.index, a.src, dim, shape)
    zero = isinstance(a.self, Const) and a.self.number == 0
    return sums if zero else w.add(a.self, sums)


@lower(aten.scatter)
def _(w, a, shape):
    """Writes the value to the elements at the indices."""
    dim, value = a.dim % len(shape), a.get("value", a.get("src"))
    require(not isinstance(shape[dim], N), PICKS)
    require(not a.get("reduce"), "it has a reduce: write scatter_add")
    index = w.value(a.index)
    number = w.constant_number(value)
    node = w.given["index"]
    distinct = int(index.shape[dim]) == 1 or name_of(node) == "getitem" and \
        name_of(node.args[0]) in ("topk", "sort")
    require(number is not None or distinct and list(value.shape) == list(index.shape),
            "it writes several values in a row, whose indices may be equal: write scatter_add")
    if number is None:
        number = _sums(w, index, value, dim, shape)
    ones = w.value(Const([torch.ones(1)], index.shape))
    some = _sums(w, w.dense(index), ones, dim, shape)
    return w.where(w.line("above", some, number=0), number, a.self)
