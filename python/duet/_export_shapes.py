"""Views and copies of values: see _export_ops.py."""

from . import _export_folded as folding, _export_turned as turning
from ._export_graph import Filled, N, Stacked, Stored, Value
from ._export_ops import Bound, line_dim, require


def _in_front(x, shape):
    """Are the samples the first dimension, and alone?"""
    return not isinstance(x, Value) or x.lifted or (
        len(shape) > 0 and isinstance(shape[0], N) and shape[0] == x.shape[0])


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
    if shape[0] != len(states) or isinstance(shape[0], N):
        return _view(w, Bound(self=folding.stacked(w, states)), shape)
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
            require(own[0] == 1, "expand of a tensor without samples to some")
            one = w.aligned(x, len(shape))
            if own[1:] != list(shape[1:]):
                one = w.emit("expand", [one], [one.shape[0], *shape[1:]])
            if shape[0] != w.rows:
                one = folding.repeated(w, one, int(shape[0]), [0, 1])
                one.alike = True
            return one
    x = w.value(x)
    own = [1] * (len(shape) - len(x.shape)) + list(x.shape)
    require(x.lifted or len(own) == len(x.shape), "expand to more dimensions than samples have")
    if [str(d) for d in own] == [str(d) for d in shape]:
        return x
    if len(own) != len(x.shape):
        x = w.emit("reshape", [x], own, x.lifted)
    return w.emit("expand", [x], shape, x.lifted)


op_expand_as = op_expand


def op_copy(w, a, shape):
    """copy_: of other sizes as expand."""
    x = a.src
    if isinstance(x, w.torch.Tensor) and x.dim() == 0 and any(isinstance(d, N) for d in shape):
        return Filled(float(x), shape)
    if not isinstance(x, (Value, turning.Turned, Stored)):
        x = w.value(x)
    return x if [str(d) for d in x.shape] == [str(d) for d in shape] else \
        op_expand(w, Bound(self=x), shape)


def op_repeat(w, a, shape):
    """A dimension of 1 expands; another one gets a 1 in front of it, which then expands."""
    if isinstance(a.self, turning.Turned):
        require(len(a.repeats) == len(a.self.shape) and set(a.repeats[1:]) <= {1},
                "of samples that are not in front")
        return turning.repeated(w, a.self, a.repeats[0], True)
    place = next((i for i, n in enumerate(a.repeats) if isinstance(n, N)), 0)
    if place and len(a.repeats) == len(a.self.shape) and int(a.self.shape[place]) == 1 and \
            all(n == 1 for i, n in enumerate(a.repeats) if i != place):
        return op_expand(w, Bound(self=a.self), shape)
    x = w.value(a.self)
    if not x.lifted and len(a.repeats) == len(x.shape) and a.repeats[0] > 1:
        within = [x.shape[0], *shape[1:]]
        x = op_repeat(w, Bound(self=x, repeats=[1, *a.repeats[1:]]), within)
        return folding.repeated(w, x, a.repeats[0], [1, 0])
    if x.lifted and isinstance(shape[0], N):
        x, times = w.aligned(x, len(shape)), [1, *a.repeats[1:]]
    else:
        times = [int(t) for t in a.repeats]
    own = [1] * (len(times) - len(x.shape)) + list(x.shape)
    require(x.lifted or (len(own) == len(x.shape) and times[0] == 1), "it repeats samples")
    wide, tall = [], []
    for d, t in zip(own, times):
        more = t > 1 and d > 1
        wide, tall = wide + [1] * more + [d], tall + ([t, d] if more else [d if t == 1 else t])
    x = w.emit("reshape", [x], wide, x.lifted) if list(x.shape) != wide else x
    x = w.emit("expand", [x], tall, x.lifted) if wide != tall else x
    return w.emit("reshape", [x], shape, x.lifted) if list(x.shape) != list(shape) else x


def op_repeat_interleave(w, a, shape):
    require(isinstance(a.repeats, int) and a.dim is not None, "other than a number of times")
    if isinstance(a.self, turning.Turned):
        require(a.dim % len(a.self.shape) == 0, "of samples that are not in front")
        return turning.repeated(w, a.self, a.repeats, False)
    x = w.value(a.self)
    dim = a.dim % len(x.shape)
    if not dim and not x.lifted:
        return folding.repeated(w, x, a.repeats, [0, 1])
    wide = [*x.shape[:dim + 1], 1, *x.shape[dim + 1:]]
    tall = [*x.shape[:dim + 1], a.repeats, *x.shape[dim + 1:]]
    x = w.emit("expand", [w.emit("reshape", [x], wide, x.lifted)], tall, x.lifted)
    return w.emit("reshape", [x], shape, x.lifted)


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
