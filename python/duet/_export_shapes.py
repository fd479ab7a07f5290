"""Views, parts and joins: see _export_ops.py."""

from . import _export_turned as turning
from ._export_graph import N, Stacked, Stored, Value
from ._export_ops import Bound, line_dim, require


def _in_front(x, shape):
    """Are the samples the first dimension, and alone?"""
    return not isinstance(x, Value) or x.lifted or (
        len(shape) > 0 and isinstance(shape[0], N) and shape[0] == 1)


def _view(w, a, shape):
    x = a.self if "self" in a else a.input
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


op_view = op_reshape = op_flatten = op_unflatten = op__unsafe_view = op_squeeze = _view
op_unsqueeze = op_view_as = op_reshape_as = _view


def op_expand(w, a, shape):
    x = a.self
    if isinstance(x, (Stored, w.torch.Tensor)) or x.lifted:
        if shape and isinstance(shape[0], N):
            missing = len(shape) - len(x.shape)
            own = [1] * missing + list(x.shape)
            require(own[1:] == list(shape[1:]) and own[0] == 1, "expand of other dimensions")
            return w.aligned(x, len(shape))
    x = w.value(x)
    require([str(d) for d in x.shape] == [str(d) for d in shape], "expand of other dimensions")
    return x


op_expand_as = op_expand


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
    require(a.step == 1, f"a step of {a.step}")
    require(dim or x.lifted, "it cuts the samples")
    start = max(0, start + x.shape[dim] if start < 0 else start)
    return _narrow(w, x, dim, start, shape[dim])


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
    x = w.value(a.self)
    parts = _pieces(w, x, a.dim, [1] * len(shape))
    return [w.emit("reshape", [p], s, p.lifted) for p, s in zip(parts, shape)]


def op_cat(w, a, shape):
    parts = list(a.tensors)
    lifted = all(not isinstance(x, Value) or x.lifted for x in parts)
    parts = [w.value(x) if lifted else w.aligned(x, len(shape)) for x in parts]
    dim = a.dim % len(shape)
    require(dim or lifted, "it joins samples")
    return w.emit("cat", parts, shape, lifted, dim=line_dim(parts[0], dim))


def op_stack(w, a, shape):
    dim = a.dim % len(shape)
    one = [1 if i == dim else d for i, d in enumerate(shape)]
    parts = [w.value(x) for x in a.tensors]
    parts = [w.emit("reshape", [x], one, x.lifted) for x in parts]
    return op_cat(w, Bound(tensors=parts, dim=dim), shape)
