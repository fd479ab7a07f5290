"""Products of matrices, layers that are one, and attention."""

import math

import torch

from ..text import Const, N, Value, broadcast, require
from . import lower

aten = torch.ops.aten


def swapped(x):
    """The transposed matrices."""
    return x.permuted(*range(x.rank - 2), -1, -2)


def _times_parameter(w, op, x, weight, bias, width):
    """linear or matmul_add, of all rows that x has."""
    name, x, before = w.last(x, -1)
    axes = [N(1), *(x.axes[i] for i in before), width]
    own = bias is None or w.is_parameter(bias)
    y = w.emit(op, [name, weight, w.parameter(bias, "bias") if own else None], axes)
    y = w.result(y, x, before, [x.rank - 1], [width])
    return y if own else w.add(y, bias)


def linear(w, x, weight, bias):
    weight, width = w.value(weight), int(weight.shape[0])
    if weight.rank == 2 and x.rank > 1:
        if w.is_whole(swapped(weight)) and not w.is_whole(weight) and not x.shared:
            return _times_parameter(w, "matmul_add", x, weight.name, bias, width)
        if w.is_parameter(weight) and not x.shared:
            return _times_parameter(w, "linear", x, w.parameter(weight, "weight"), bias, width)
    y = matmul(w, x, swapped(weight))
    return y if bias is None else w.add(y, bias)


@lower(aten.linear)
def _(w, a, shape):
    return linear(w, w.value(a.input), a.weight, a.get("bias"))


def matmul(w, x, y):
    x, y = w.value(x), w.value(y)
    if x.rank == 1:
        z = matmul(w, x.unsqueezed(0), y)
        return z.squeezed([z.rank - 2])
    if y.rank == 1:
        z = matmul(w, x, y.unsqueezed(1))
        return z.squeezed([z.rank - 1])
    if y.rank == 2 and w.is_parameter(y) and not x.shared:
        return linear(w, x, swapped(y), None)
    if x.rank > y.rank == 2 and x.shared and y.shared and not any(
            isinstance(n, N) for n in x.shape):
        flat = w.view(x, [math.prod(x.shape[:-1]), x.shape[-1]])
        return w.view(matmul(w, flat, y), [*x.shape[:-1], y.shape[1]])
    if x.rank == y.rank == 2 and x.shared and y.shared and all(x.dims[1]) and all(y.dims[0]):
        w.axes_of(x, 1)
        x, y = w.dense(x), w.dense(y)
        if x.shared and y.shared:
            axes = [N(1), int(x.shape[0]), int(y.shape[1])]
            z = w.emit("matmul", [w.arranged(v, v.dims, shared=True) for v in (x, y)], axes,
                       shared=True)
            return Value(z, axes, [axes[1], axes[2]], [[1], [2]], True, x.dtype)
    lead = broadcast(x.shape[:-2], y.shape[:-2])
    rank, shape = len(lead) + 2, [*lead, x.shape[-2], y.shape[-1]]
    w.axes_of(x, -1), w.axes_of(y, -2)
    x, y = x.of_rank(rank), y.of_rank(rank)
    if not any(y.dims[:-2]) and not y.of_samples:  # one matrix for all rows
        return _times_matrix(w, x, y, shape)
    needed = [d for d in range(rank - 2) if x.dims[d] or y.dims[d]]
    x, y = w.dense(x, only=[*needed, rank - 1]), w.dense(y, only=[*needed, rank - 2])
    x, y = w.refined([x, y], shape, skip=[rank - 2, rank - 1])
    # The samples are in front, whichever dimension they are of; of both they may not be.
    of = [[d for d, axes in enumerate(v.dims) if 0 in axes] for v in (x, y)]
    require(of[0] == of[1] or not of[0] or not of[1] or not x.of_samples,
            "it mixes samples: both have them in other dimensions")
    keys = [(d, k) for d in needed for k, i in enumerate(x.dims[d]) if i and y.dims[d][k]]
    require(all((i == 0) == (j == 0) for d in needed for i, j in zip(x.dims[d], y.dims[d])),
            "it mixes samples")
    batch = [[v.dims[d][k] for d, k in keys] for v in (x, y)]
    rows, columns = [i for i in x.dims[-2] if i], [i for i in y.dims[-1] if i]
    left = w.arranged(x, [batch[0], rows, x.dims[-1]] if keys else [rows, x.dims[-1]])
    right = w.arranged(y, [batch[1], y.dims[-2], columns] if keys else [y.dims[-2], columns])
    sizes = [x.axes[i] for i in batch[0]]
    to = [math.prod(x.axes[i] for i in rows), math.prod(y.axes[i] for i in columns)]
    lines = [N(1), *([math.prod(sizes)] if keys else []), *to]
    z = w.emit("matmul", [left, right], lines)
    axes, dims = [N(1), *sizes], []
    at = {key: i for i, key in enumerate(keys, 1)}
    for d in range(rank - 2):
        dims.append([0 if i == 0 else at[d, k] for k, i in enumerate(x.dims[d])])
    for v, d, own, size in ((x, -2, rows, to[0]), (y, -1, columns, to[1])):
        parts = own if 0 in v.dims[d] else [None]  # else one axis, in the order of the dimension
        dims.append([0 if i == 0 else len(axes) + own.index(i) for i in v.dims[d]]
                    if 0 in v.dims[d] else [len(axes)])
        axes += [size if i is None else v.axes[i] for i in parts]
    z = z if axes == lines else w.emit("reshape", [z], axes)
    return Value(z, axes, shape, dims, dtype=torch.float32)


def _times_matrix(w, x, y, shape):
    name, x, before = w.last(x, -1)
    rows = math.prod(x.axes[i] for i in before)
    flat = w.emit("reshape", [name], [N(1), rows, int(x.shape[-1])]) if len(before) != 1 else name
    y = w.dense(y, only=[y.rank - 2, y.rank - 1])
    right = w.arranged(y, [y.dims[-2], y.dims[-1]])
    width = int(shape[-1])
    z = w.emit("matmul", [flat, right], [N(1), rows, width])
    if len(before) != 1:
        z = w.emit("reshape", [z], [N(1), *(x.axes[i] for i in before), width])
    return w.result(z, x, before, [x.rank - 1], [width])


@lower(aten.matmul, aten.mm, aten.bmm, aten.mv, aten.dot)
def _(w, a, shape):
    x, y = list(a.values())[:2]
    return matmul(w, x, y)


@lower(aten.addmm)
def _(w, a, shape):
    x, y = list(a.values())[1:3]
    if a.get("alpha", 1) == a.get("beta", 1) == 1 and isinstance(y, Value) and y.shared and \
            y.rank == 2 and w.is_whole(a.self) and a.self.rank == 1:
        return linear(w, w.value(x), swapped(y), a.self)
    return w.add(w.times(w.value(a.self), a.get("beta", 1)),
                 w.times(matmul(w, x, y), a.get("alpha", 1)))


# ---- attention

def _added_to_scores(w, mask):
    """The mask as numbers: of a bool one 0, and -inf where a key is hidden."""
    if isinstance(mask, Const):
        return Const([t.log() if t.dtype is torch.bool else t for t in mask.of], mask.shape)
    return w.line("log", mask) if mask.dtype is torch.bool else mask


@lower(aten.scaled_dot_product_attention)
def _(w, a, shape):
    q, k, v = (w.value(x) for x in (a.query, a.key, a.value))
    if a.get("enable_gqa") and k.shape[-3] != q.shape[-3]:
        k, v = (_repeated(w, x, q.shape[-3]) for x in (k, v))
    scale = a.get("scale")
    p, mask = a.get("dropout_p", 0.0), a.get("attn_mask")
    lead = broadcast(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    rank = len(lead) + 2
    mask = None if mask is None else w.value(_added_to_scores(w, mask))
    if mask is not None and mask.name in w.trained:
        return _by_definition(w, q, k, v, mask, scale, p)
    values = [x.of_rank(rank) for x in (q, k, v)]
    needed = [d for d in range(rank) if d > rank - 3 or any(x.dims[d] for x in values)]
    values = [merged_last(w, w.lifted(w.dense(x, only=needed)), (rank - 2, rank - 1))
              for x in values]
    require(not p or any(x.of_samples for x in values),
            "dropout of a tensor without samples: each sample would draw its own")
    names, axes, dims, places = w.beside(values, [*lead, 1, 1], skip=[rank - 2, rank - 1],
                                         last=True)
    axes[places[0]], axes[places[1]] = int(q.shape[-2]), int(v.shape[-1])
    settings = {"is_causal": 1} if a.get("is_causal") else {}
    settings.update({"scale": scale} if scale is not None else {})
    settings.update({"dropout_p": p} if p else {})
    if mask is not None:
        mask = _mask_line(w, mask, lead, axes, dims, int(k.shape[-2]))
        if mask is None:
            return _by_definition(w, q, k, v, _added_to_scores(w, a.attn_mask), scale, p)
    y = w.emit("scaled_dot_product_attention", [*names, mask], axes, once=not p, **settings)
    return Value(y, axes, shape, dims, dtype=torch.float32)


def merged_last(w, x, dims):
    from .shapes import merged
    for d in dims:
        w.axes_of(x, d)
        if len(x.dims[d]) > 1:
            x = merged(w, x, d)
    return x


def _repeated(w, x, heads):
    groups = int(heads) // int(x.shape[-3])
    y = x.unsqueezed(-3)
    y = y.but(shape=[*x.shape[:-2], groups, *x.shape[-2:]])
    return w.view(y, [*x.shape[:-3], heads, *x.shape[-2:]])


def _mask_line(w, mask, lead, axes, dims, keys):
    """The mask beside the axes of the scores, of which those that it has follow each other; None
    where they do not."""
    rank = len(lead) + 2
    mask = mask.of_rank(rank)
    if mask.shared and not any(mask.dims[:-2]) and mask.axes[1:] == list(map(int, mask.shape[-2:])):
        return mask.name
    mask = w.dense(mask, only=[rank - 1])
    for d in range(rank - 2):
        sizes = [axes[i] for i in dims[d]]
        if mask.dims[d] and mask.sizes(d) != sizes:
            return None
    at = {i: mask.dims[d][k] for d in range(rank - 2) for k, i in enumerate(dims[d])
          if mask.dims[d]}
    groups = [[at[i]] if i in at else [] for i in range(1, len(axes) - 2)]
    own = [n for n, g in enumerate(groups, 1) if g]
    if mask.of_samples:
        own = [0, *own]
    if own and own != list(range(own[0], own[-1] + 1)):
        return None
    return w.arranged(mask, [*groups, mask.dims[-2], mask.dims[-1]])


def _by_definition(w, q, k, v, mask, scale, p):
    """softmax(q k^T scale + mask) v, as lines of their own."""
    from . import LOWERINGS, Arguments
    scale = int(q.shape[-1]) ** -0.5 if scale is None else scale
    scores = w.add(matmul(w, w.times(q, scale), swapped(k)), mask)
    w.op = "aten::_softmax"
    weights = LOWERINGS["aten::_softmax"](w, Arguments(self=scores, dim=-1), scores.shape)
    if p:
        weights = w.line("dropout", w.dense(weights), once=False, p=p)
    return matmul(w, weights, v)
