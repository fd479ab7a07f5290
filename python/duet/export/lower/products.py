"""Products of matrices, layers that are such a product, and attention."""

import math

import torch

from ..text import Const, N, Value, broadcast, require
from . import lower
from .reductions import softmax

aten = torch.ops.aten


def swapped(w, x):
    """The transposed matrices."""
    return w.permuted(x, *range(x.rank - 2), -1, -2)


def linear(w, x, weight, bias):
    """Of a parameter one line; matmul_add where the parameter is transposed."""
    weight, width = w.value(weight), int(weight.shape[0])
    own = bias is None or w.is_parameter(bias)
    if weight.rank == 2 and x.rank > 1 and w.is_parameter(weight) and not x.shared:
        transposed = weight.name in w.moved
        op, weight = ("matmul_add", swapped(w, weight)) if transposed else ("linear", weight)
        operands = [w.parameter(weight, "weight"), w.parameter(bias, "bias") if own else None]
        y = w.over(x, [-1], [width], lambda name, before: w.emit(op, [name, *operands],
                                                                 [*before, width]))
        return y if own else w.add(y, bias)
    y = matmul(w, x, swapped(w, weight))
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
        return linear(w, x, swapped(w, y), None)
    if x.rank > y.rank == 2 and x.shared and y.shared and not any(
            isinstance(n, N) for n in x.shape):
        flat = w.view(x, [math.prod(x.shape[:-1]), x.shape[-1]])
        return w.view(matmul(w, flat, y), [*x.shape[:-1], y.shape[1]])
    lead = broadcast(x.shape[:-2], y.shape[:-2])
    rank, shape = len(lead) + 2, [*lead, x.shape[-2], y.shape[-1]]
    x, y = x.of_rank(rank), y.of_rank(rank)
    require(x.at != rank - 1 and y.at != rank - 2 and not isinstance(x.shape[-1], N),
            "it mixes samples: give dim, without that of the samples")
    if x.shared and y.shared and rank == 2 and not x.repeats and not y.repeats:
        axes = [N(1), *map(int, shape)]
        z = w.emit("matmul", [w.lay(v, v.shape, shared=True) for v in (x, y)], axes, shared=True)
        return Value(z, axes, shape, shared=True, dtype=x.dtype)
    needed = [d for d in range(rank - 2) if x.size(d) != 1 or y.size(d) != 1]
    if y.at is None and all(y.size(d) == 1 for d in range(rank - 2)):  # one matrix for all rows
        right, width = w.dense(y, only=[rank - 2, rank - 1]), int(shape[-1])
        right = w.lay(right, [right.size(-2), width])
        return w.over(x, [-1], [width], lambda name, before: w.emit(
            "matmul", [name, right], [*before, width]), flat=True).but(shape=shape)
    like = x if x.at is not None else y
    x, y = (w.dense(v, [*needed, d], like) for v, d in ((x, rank - 1), (y, rank - 2)))
    # The samples are in front, whichever dimension they are of; they may not be of both.
    require(x.at is None or y.at is None or (x.at, x.front) == (y.at, y.front) and x.at in
            range(rank - 2), "it mixes samples: both have them in other dimensions")
    lead = [math.prod(int(shape[d]) for d in needed)] if needed else []
    axes = [N(1), *lead, x.size(-2), y.size(-1)]
    z = w.emit("matmul", [w.lay(v, [*lead, v.size(-2), v.size(-1)]) for v in (x, y)], axes)
    repeats = {d for d in range(rank - 2) if d not in needed} | x.repeats | y.repeats
    return Value(z, axes, shape, like.at, like.front, repeats - {like.at}, dtype=torch.float32)


@lower(aten.matmul, aten.mm, aten.bmm, aten.mv, aten.dot)
def _(w, a, shape):
    x, y = list(a.values())[:2]
    return matmul(w, x, y)


@lower(aten.addmm)
def _(w, a, shape):
    x, y = list(a.values())[1:3]
    if a.get("alpha", 1) == a.get("beta", 1) == 1 and isinstance(y, Value) and y.shared and \
            y.rank == 2 and isinstance(a.self, Value) and a.self.shared and a.self.rank == 1:
        return linear(w, w.value(x), swapped(w, y), a.self)
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
    needed = [d for d in range(rank) if d > rank - 3 or any(x.size(d) != 1 for x in values)]
    like = next((x for x in values if x.at is not None), None)
    require(like is None or like.at < rank - 2, "it mixes samples")
    values = [w.lifted(w.dense(x, needed, like)) for x in values]
    require(not p or like, "dropout of a tensor without samples: each sample would draw its own")
    names, y, places = w.beside(values, [*shape[:-2], 1, 1], skip=[rank - 2, rank - 1])
    y.axes[places[0]], y.axes[places[1]] = int(q.shape[-2]), int(v.shape[-1])
    settings = {"is_causal": 1} if a.get("is_causal") else {}
    settings.update({"scale": scale} if scale is not None else {})
    settings.update({"dropout_p": p} if p else {})
    if mask is not None:
        mask = _mask_line(w, mask, y, rank, int(k.shape[-2]))
        if mask is None:
            return _by_definition(w, q, k, v, _added_to_scores(w, a.attn_mask), scale, p)
    name = w.emit("scaled_dot_product_attention", [*names, mask], y.axes, once=not p, **settings)
    return y.but(name=name, shape=shape)


def _repeated(w, x, heads):
    groups = int(heads) // int(x.shape[-3])
    y = x.unsqueezed(-3)
    y = y.but(shape=[*x.shape[:-2], groups, *x.shape[-2:]])
    return w.view(y, [*x.shape[:-3], heads, *x.shape[-2:]])


def _mask_line(w, mask, y, rank, keys):
    """The mask beside the scores, of whose leading dimensions it has those that follow each other;
    None where they do not."""
    mask = mask.of_rank(rank)
    if mask.at is not None and (mask.at, mask.front) != (y.at, y.front):
        return None
    lead = [d for d in range(rank - 2) if y.size(d) != 1]
    own = [i for i, d in enumerate(lead, 1) if mask.size(d) != 1]
    if mask.shared and not own and mask.axes[1:] == [mask.size(-2), keys]:
        return mask.name
    own = own if mask.shared and not own else [0, *own]
    if own != list(range(len(own))):
        return None
    mask = w.dense(mask, only=[rank - 1])
    return w.lay(mask, [*(mask.size(d) for d in lead), mask.size(-2), keys])


def _by_definition(w, q, k, v, mask, scale, p):
    """softmax(q k^T scale + mask) v, as separate lines."""
    scale = int(q.shape[-1]) ** -0.5 if scale is None else scale
    scores = w.add(matmul(w, w.times(q, scale), swapped(w, k)), mask)
    weights = softmax(w, scores, -1)
    if p:
        weights = w.line("dropout", w.dense(weights), once=False, p=p)
    return matmul(w, weights, v)
