"""Parts of values, and what joins them: see _export_ops.py."""

import math

from . import _export_folded as folding, _export_turned as turning
from ._export_graph import Counted, Filled, N, Stacked, Stored, Value
from ._export_ops import Bound, line_dim, require
from ._export_picks import place_of_each, place_of_rows, rows_at
from ._export_shapes import _view, along, op_permute

_MOST_PARTS = 64  # of a line that joins


def op_unfold(w, a, shape):
    """Windows of a dimension, one behind the other, whose places become the last dimension."""
    x = w.value(a.self)
    dim = a.dimension % len(x.shape)
    require(dim or x.lifted, "of samples")
    cut = [*x.shape[:dim], 1, a.size, *x.shape[dim + 1:]]
    parts = [w.emit("reshape", [_narrow(w, x, dim, i * a.step, a.size)], cut, x.lifted)
             for i in range(shape[dim])]
    wide = [*x.shape[:dim], shape[dim], a.size, *x.shape[dim + 1:]]
    order = [i for i in range(len(wide)) if i != dim + 1] + [dim + 1]
    return op_permute(w, Bound(self=_joined(w, parts, dim, wide), dims=order), shape)


def op_roll(w, a, shape):
    x = w.value(a.self)
    require(len(a.dims) == len(a.shifts), "of all numbers in a row")
    for shift, dim in zip(a.shifts, a.dims):
        dim %= len(shape)
        require(dim or x.lifted, "it moves samples")
        size = shape[dim]
        if shift % size:
            parts = [_narrow(w, x, dim, size - shift % size, shift % size),
                     _narrow(w, x, dim, 0, size - shift % size)]
            x = w.emit("cat", parts, shape, x.lifted, dim=line_dim(x, dim))
    return x


def op_flip(w, a, shape):
    x = w.value(a.self)
    for dim in (d % len(shape) for d in a.dims):
        require(dim or x.lifted, "it turns samples round")
        parts = [_narrow(w, x, dim, i, 1) for i in reversed(range(shape[dim]))]
        x = _joined(w, parts, dim, shape)
    return x


def _joined(w, parts, dim, shape):
    """In several lines where they are more than a line takes."""
    while len(parts) > 1:
        rows = [parts[i:i + _MOST_PARTS] for i in range(0, len(parts), _MOST_PARTS)]
        parts = []
        for row in rows:
            size = sum(p.shape[dim] for p in row)
            one = [size if d == dim else n for d, n in enumerate(shape)]
            parts.append(row[0] if len(row) == 1 else
                         w.emit("cat", row, one, row[0].lifted, dim=line_dim(row[0], dim)))
    return parts[0]


def op_index_select(w, a, shape):
    """Places that a constant names: each run of them that stands together as one, or, of many runs,
    a product with a matrix that has a 1 for each place."""
    x, index = a.self, a.index
    if isinstance(index, Value) and a.dim == 0 and isinstance(x, (Stored, w.torch.Tensor)):
        return rows_at(w, x, index, shape)
    if isinstance(x, Stored):
        return op_index(w, Bound(self=x, indices=[None] * (a.dim % len(x.shape)) + [index]), shape)
    x = w.value(x)
    dim = a.dim % len(x.shape)
    require(isinstance(index, w.torch.Tensor) and index.dim() == 1 and len(index),
            "the places are computed")
    require(dim or x.lifted, "it picks samples")
    places, runs = (index % x.shape[dim]).tolist(), []
    for place in places:
        if runs and sum(runs[-1]) == place:
            runs[-1][1] += 1
        else:
            runs.append([place, 1])
    if len(runs) > _MOST_PARTS:
        ones = w.torch.nn.functional.one_hot(index.long() % x.shape[dim], x.shape[dim])
        return along(w, x, dim, ones.T, shape)
    return _joined(w, [_narrow(w, x, dim, *run) for run in runs], dim, shape)


def op_index(w, a, shape):
    """Rows of a table that a constant names, as relative positions do; or of a value places of one
    dimension."""
    index = [i for i in a.indices if i is not None]
    if isinstance(index[0], Counted):
        require(len(a.indices) == len(index) == 2, "its places depend on the number of samples")
        return place_of_each(w, a.self, index, shape)
    if (not isinstance(a.self, Stored) or len(a.indices) > 1 or len(a.self.shape) == 1) and \
            len(index) == 1 and isinstance(index[0], w.torch.Tensor) and \
            index[0].dtype is not w.torch.bool:
        dim, x = next(i for i, one in enumerate(a.indices) if one is not None), w.value(a.self)
        flat = index[0].flatten()
        y = op_index_select(w, Bound(self=x, dim=dim, index=flat),
                            [*x.shape[:dim], len(flat), *x.shape[dim + 1:]])
        return _view(w, Bound(self=y), shape)
    if len(index) > 1 and all(isinstance(i, w.torch.Tensor) for i in index):
        return _at_places(w, a, index, shape)
    if isinstance(index[0], Value) and len(a.indices) == 1 and "indices" not in w.bools:
        return rows_at(w, a.self, index[0], shape)
    if isinstance(a.self, Stored) and len(index) == len(a.indices) == len(a.self.shape) == 2 and \
            all(isinstance(i, Value) for i in index) and \
            list(map(str, index[0].shape)) == list(map(str, index[1].shape)):
        return place_of_rows(w, a.self, index, shape)
    require(isinstance(a.self, Stored) and a.self.whole and len(a.self.shape) == 2 and
            a.self.name in w.stored and len(a.indices) == 1 and
            isinstance(index[0], w.torch.Tensor) and not index[0].is_floating_point() and
            index[0].dtype is not w.torch.bool, "of other than rows of a parameter")
    rows = w.value(index[0] % a.self.shape[0])
    return w.emit("embedding", [rows, a.self.name], shape, rows.lifted)


def _at_places(w, a, index, shape):
    """Of neighbouring dimensions the places that constants name together, as those below the
    diagonal: the dimensions are joined, and so are the places."""
    dim = next(i for i, one in enumerate(a.indices) if one is not None)
    x = w.value(a.self)
    own = [int(n) for n in x.shape[dim:dim + len(index)]]
    require(None not in a.indices[dim:dim + len(index)] and
            not any(i.dtype is w.torch.bool for i in index), "of places that cannot be followed")
    flat = w.torch.zeros((), dtype=w.torch.int64)
    for i, size in zip(index, own):
        flat = flat * size + i % size
    before, behind = list(x.shape[:dim]), list(x.shape[dim + len(own):])
    x = _view(w, Bound(self=x), [*before, math.prod(own), *behind])
    flat = flat.flatten()
    y = op_index_select(w, Bound(self=x, dim=dim, index=flat), [*before, len(flat), *behind])
    return _view(w, Bound(self=y), shape)


def _narrow(w, x, dim, start, length):
    shape = list(x.shape)
    if shape[dim] == length:
        return x
    shape[dim] = length
    return w.emit("narrow", [x], shape, x.lifted, dim=line_dim(x, dim), start=start, length=length)


def op_slice(w, a, shape):
    dim = a.dim % len(shape)
    if not dim and folding.is_of_sets(a.self) and str(shape[0]) != str(a.self.shape[0]):
        require(a.step == 1 and isinstance(a.start or N(0), N), "it cuts the samples")
        start = int(a.start or 0)
        return folding.set_of(w, a.self, start + int(a.self.shape[0]) * (start < 0), int(shape[0]))
    x = a.self
    if isinstance(x, turning.Turned):
        return turning.in_front(w, x, lambda x, shape, order: op_slice(
            w, Bound(a, self=x, dim=order.index(dim)), shape), shape, len(shape))
    x = w.value(x)
    if str(shape[dim]) == str(x.shape[dim]):
        return x
    start = a.start or 0
    require(dim or x.lifted, "it cuts the samples")
    if shape[dim] == 0:
        return Filled(0.0, shape)  # of nothing, which op_cat leaves out
    start = max(0, start + x.shape[dim] if start < 0 else start)
    if a.step > 1:
        return _every(w, x, dim, start, a.step, shape)
    return _narrow(w, x, dim, start, shape[dim])


def _every(w, x, dim, start, step, shape):
    """start, start + step, ..: the first of each run of `step`. What the last run lacks is made up
    of what stands in front, which no one takes."""
    runs, size = shape[dim], x.shape[dim]
    lacks = max(0, start + runs * step - size)
    if lacks:
        x = w.emit("cat", [x, _narrow(w, x, dim, 0, lacks)],
                   [n + lacks if d == dim else n for d, n in enumerate(x.shape)], x.lifted,
                   dim=line_dim(x, dim))
    x = _narrow(w, x, dim, start, runs * step)
    wide = [*x.shape[:dim], runs, step, *x.shape[dim + 1:]]
    x = _narrow(w, w.emit("reshape", [x], wide, x.lifted), dim + 1, 0, 1)
    return w.emit("reshape", [x], shape, x.lifted)


def op_narrow(w, a, shape):
    x = w.value(a.self)
    return _narrow(w, x, a.dim % len(x.shape), a.start, a.length)


def op_select(w, a, shape):
    if isinstance(a.self, Stacked):
        require(a.dim == 0, "of the last states it takes other than a layer")
        return a.self[a.index]
    if isinstance(a.self, turning.Turned):
        return turning.selected(w, a.self, a.dim % len(a.self.dims), a.index)
    x = w.value(a.self)
    dim = a.dim % len(x.shape)
    require(dim or x.lifted, "it picks a sample")
    x = _narrow(w, x, dim, a.index % x.shape[dim], 1)
    return w.emit("reshape", [x], shape, x.lifted)


def _pieces(w, x, dim, lengths):
    x, at, out = w.value(x), 0, []
    dim %= len(x.shape)
    require(dim or x.lifted, "it cuts the samples")
    for length in lengths:
        out.append(_narrow(w, x, dim, at, length))
        at += length
    return out


def op_split(w, a, shape):
    dim = a.dim % len(shape[0])
    if not dim and folding.is_of_sets(a.self) and all(isinstance(s[0], N) for s in shape):
        ends = [sum(int(s[0]) for s in shape[:i]) for i in range(len(shape))]
        return [folding.set_of(w, a.self, at, int(s[0])) for at, s in zip(ends, shape)]
    return _pieces(w, a.self, a.dim, [s[a.dim % len(s)] for s in shape])


op_chunk = op_split_with_sizes = op_tensor_split = op_split


def op_unbind(w, a, shape):
    if isinstance(a.self, turning.Turned):
        dim = a.dim % len(a.self.dims)
        return [turning.selected(w, a.self, dim, i) for i in range(len(shape))]
    x = w.value(a.self)
    parts = _pieces(w, x, a.dim, [1] * len(shape))
    return [w.emit("reshape", [p], s, p.lifted) for p, s in zip(parts, shape)]


def op_cat(w, a, shape):
    parts = [x for x in a.tensors if 0 not in x.shape]  # PyTorch joins [0] to any shape
    if not parts:
        return Filled(0.0, shape)
    if all(isinstance(x, turning.Turned) for x in parts):
        return turning.in_front(w, parts[0], lambda x, to, order: op_cat(w, Bound(tensors=[
            x, *(w.value(turning.permuted(w, y, order)) for y in parts[1:])],
            dim=order.index(a.dim % len(shape))), to), shape, len(shape))
    lifted = all(not isinstance(x, Value) or x.lifted for x in parts)
    if a.dim % len(shape) == 0 and not lifted and all(isinstance(x, Value) for x in parts):
        require(len({str(x.shape) for x in parts}) == 1 and not any(x.lifted for x in parts),
                "it joins samples of different shapes")
        return folding.beside(w, parts, [1, 0])
    parts = [w.value(x) if lifted else w.aligned(x, len(shape)) for x in parts]
    dim = a.dim % len(shape)
    require(dim or lifted, "it joins samples")
    if len(parts) == 1:
        return parts[0]
    return w.emit("cat", parts, shape, lifted, dim=line_dim(parts[0], dim))


def op_stack(w, a, shape):
    dim = a.dim % len(shape)
    one = [1 if i == dim else d for i, d in enumerate(shape)]
    parts = [w.value(x) for x in a.tensors]
    if not dim and not any(x.lifted for x in parts):
        return folding.stacked(w, parts)
    parts = [w.emit("reshape", [x], one, x.lifted) for x in parts]
    return op_cat(w, Bound(tensors=parts, dim=dim), shape)
