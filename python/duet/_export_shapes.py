"""Views, parts and joins: see _export_ops.py."""

from . import _export_turned as turning
from ._export_graph import Filled, N, Stacked, Stored, Value
from ._export_ops import Bound, line_dim, require

_MOST_PARTS = 64  # of a line that joins


def _in_front(x, shape):
    """Are the samples the first dimension, and alone?"""
    return not isinstance(x, Value) or x.lifted or (
        len(shape) > 0 and isinstance(shape[0], N) and shape[0] == 1)


def _view(w, a, shape):
    x = a.self if "self" in a else a.input
    if isinstance(x, Stacked):
        return _view_of_states(w, x, shape)
    if isinstance(x, Stored) and not x.transposed and not any(isinstance(d, N) for d in shape):
        return Stored(x.name, shape, x.of)
    if isinstance(x, turning.Turned) or not _in_front(x, shape):
        return turning.viewed(w, x, shape)
    x = w.value(x)
    if [str(d) for d in x.shape] == [str(d) for d in shape]:
        return x
    if x.lifted and shape and isinstance(shape[0], N):
        return w.emit("reshape", [x], shape)
    return w.emit("reshape", [x], shape, x.lifted)


def _view_of_states(w, states, shape):
    """Last states of layers, which stay in front; or the one of one layer alone."""
    if isinstance(shape[0], N) and len(states) == 1:
        return _view(w, Bound(self=states[0]), shape)
    require(shape[0] == len(states) and not isinstance(shape[0], N),
            "it joins the last states of several layers")
    return Stacked(_view(w, Bound(self=one), shape[1:]) for one in states)


op_view = op_reshape = op_flatten = op_unflatten = op__unsafe_view = op_squeeze = _view
op_unsqueeze = op_view_as = op_reshape_as = _view


def _expand_behind(w, x, shape, place):
    """To samples that are not in front, as (L, 1, E) becomes (L, N, E)."""
    x = w.value(x)
    require(x.lifted and list(x.shape) == [1 if i == place else d for i, d in enumerate(shape)],
            "expand to samples that are not in front, and of other dimensions")
    base = w.emit("reshape", [x], [N(1), *(d for i, d in enumerate(shape) if i != place)])
    return turning.Turned(base, [[0 if i == place else i + (i < place)] for i in range(len(shape))])


def op_expand(w, a, shape):
    x = a.self
    if isinstance(x, turning.Turned):
        return turning.expanded(w, x, shape)
    if isinstance(x, Filled):
        return Filled(x.number, shape)
    place = next((i for i, d in enumerate(shape) if isinstance(d, N)), 0)
    if place:
        return _expand_behind(w, x, shape, place)
    if isinstance(x, (Stored, w.torch.Tensor)) or x.lifted:
        if shape and isinstance(shape[0], N):
            missing = len(shape) - len(x.shape)
            own = [1] * missing + list(x.shape)
            require(own[1:] == list(shape[1:]) and own[0] == 1, "expand of other dimensions")
            return w.aligned(x, len(shape))
    x = w.value(x)
    own = [1] * (len(shape) - len(x.shape)) + list(x.shape)
    require(x.lifted or len(own) == len(x.shape), "expand to more dimensions than samples have")
    if [str(d) for d in own] == [str(d) for d in shape]:
        return x
    if len(own) != len(x.shape):
        x = w.emit("reshape", [x], own, x.lifted)
    return w.emit("expand", [x], shape, x.lifted)


op_expand_as = op_expand


def op_repeat(w, a, shape):
    """Each dimension is cut off as a 1 in front of it, which then expands."""
    x = w.value(a.self)
    if x.lifted and isinstance(shape[0], N):
        x, times = w.aligned(x, len(shape)), [1, *a.repeats[1:]]
    else:
        times = [int(t) for t in a.repeats]
    own = [1] * (len(times) - len(x.shape)) + list(x.shape)
    require(x.lifted or (len(own) == len(x.shape) and times[0] == 1), "it repeats samples")
    wide, tall = [], []
    for d, t in zip(own, times):
        wide, tall = wide + ([1] if t > 1 else []) + [d], tall + ([t] if t > 1 else []) + [d]
    x = w.emit("reshape", [x], wide, x.lifted) if list(x.shape) != wide else x
    x = w.emit("expand", [x], tall, x.lifted) if wide != tall else x
    return w.emit("reshape", [x], shape, x.lifted) if list(x.shape) != list(shape) else x


def op_repeat_interleave(w, a, shape):
    x = w.value(a.self)
    require(isinstance(a.repeats, int) and a.dim is not None, "other than a number of times")
    dim = a.dim % len(x.shape)
    require(dim or x.lifted, "it repeats samples")
    wide = [*x.shape[:dim + 1], 1, *x.shape[dim + 1:]]
    tall = [*x.shape[:dim + 1], a.repeats, *x.shape[dim + 1:]]
    x = w.emit("expand", [w.emit("reshape", [x], wide, x.lifted)], tall, x.lifted)
    return w.emit("reshape", [x], shape, x.lifted)


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


def along(w, x, dim, map_of, shape):
    """Dimension dim of x by the matrix map_of: (from, to)."""
    x, last = w.value(x), len(shape) - 1
    turned = x if dim == last else _swap(w, x, dim, last, swapped(x.shape, dim))
    y = w.emit("matmul", [turned, w.constant(map_of)], swapped(shape, dim), x.lifted)
    return y if dim == last else _swap(w, y, dim, last, shape)


def swapped(shape, dim):
    out = list(shape)
    out[dim], out[-1] = out[-1], out[dim]
    return out


def op_index_select(w, a, shape):
    """Places that a constant names: each run of them that stands together as one, or, of many runs,
    a product with a matrix that has a 1 for each place."""
    x, index = a.self, a.index
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
    if (not isinstance(a.self, Stored) or len(a.indices) > 1) and len(index) == 1 and \
            isinstance(index[0], w.torch.Tensor) and index[0].dtype is not w.torch.bool:
        dim, x = next(i for i, one in enumerate(a.indices) if one is not None), w.value(a.self)
        flat = index[0].flatten()
        y = op_index_select(w, Bound(self=x, dim=dim, index=flat),
                            [*x.shape[:dim], len(flat), *x.shape[dim + 1:]])
        return _view(w, Bound(self=y), shape)
    require(isinstance(a.self, Stored) and a.self.whole and len(a.self.shape) == 2 and
            a.self.name in w.stored and len(a.indices) == 1 and
            isinstance(index[0], w.torch.Tensor) and not index[0].is_floating_point() and
            index[0].dtype is not w.torch.bool, "of other than rows of a parameter")
    rows = w.value(index[0] % a.self.shape[0])
    return w.emit("embedding", [rows, a.self.name], shape, rows.lifted)


def _swap(w, x, d0, d1, shape):
    rank = len(x.shape)
    d0, d1 = d0 % rank, d1 % rank
    if d0 == d1:
        return x
    if isinstance(x, Stored) and rank == 2 and x.shape == list(x.of.shape)[::-1 if x.transposed
                                                                          else 1]:
        return Stored(x.name, x.shape[::-1], x.of, not x.transposed)
    if isinstance(x, turning.Turned) or not _in_front(x, shape):
        order = list(range(rank))
        order[d0], order[d1] = d1, d0
        return turning.permuted(w, x, order)
    x = w.value(x)
    return w.emit("transpose", [x], shape, x.lifted, dim0=line_dim(x, d0), dim1=line_dim(x, d1))


def op_t(w, a, shape):
    return _swap(w, a.self, 0, 1, shape) if len(a.self.shape) == 2 else a.self


def op_transpose(w, a, shape):
    return _swap(w, a.self, a.dim0, a.dim1, shape)


def op_numpy_T(w, a, shape):
    return op_t(w, a, shape)


def op_permute(w, a, shape):
    if isinstance(a.self, turning.Turned) or not _in_front(a.self, shape):
        return turning.permuted(w, a.self, [d % len(shape) for d in a.dims])
    x = w.value(a.self)
    order = [line_dim(x, d) for d in a.dims]
    return w.emit("permute", [x], shape, x.lifted, order=[0, *order] if x.lifted else order)


def _narrow(w, x, dim, start, length):
    shape = list(x.shape)
    if shape[dim] == length:
        return x
    shape[dim] = length
    return w.emit("narrow", [x], shape, x.lifted, dim=line_dim(x, dim), start=start, length=length)


def op_slice(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % len(x.shape)
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
    lifted = all(not isinstance(x, Value) or x.lifted for x in parts)
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
    parts = [w.emit("reshape", [x], one, x.lifted) for x in parts]
    return op_cat(w, Bound(tensors=parts, dim=dim), shape)
