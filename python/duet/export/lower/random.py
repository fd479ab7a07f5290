"""Random numbers, of which each sample has its own, and dropout. In an evaluation they are drawn
too, but for stochastic depth, which is a dropout."""

import math

import torch

from ..passes import name_of
from ..text import N, Value, require
from . import lower
from .elements import compare, rounded

aten = torch.ops.aten


def _own(w, shape):
    """The axes of what is drawn, and the dims."""
    require(shape and isinstance(shape[0], N), "it draws numbers that are of no sample")
    count = [int(shape[0])] if int(shape[0]) > 1 else []
    axes = [N(1), *count, *map(int, shape[1:])]
    front = [0, 1] if count else [0]
    return axes, [front, *([len(count) + d] for d in range(1, len(shape)))]


def _drawn(w, op, shape):
    axes, dims = _own(w, shape)
    return Value(w.emit(op, [], axes, once=False), axes, shape, dims, dtype=torch.float32)


lower(aten.rand, aten.rand_like)(lambda w, a, shape: _drawn(w, "rand", shape))
lower(aten.randn, aten.randn_like)(lambda w, a, shape: _drawn(w, "randn", shape))
lower(aten.normal_functional)(
    lambda w, a, shape: w.plus(w.times(_drawn(w, "randn", shape), a.std), a.mean))
lower(aten.uniform)(lambda w, a, shape: w.plus(
    w.times(_drawn(w, "rand", shape), a.to - a["from"]), a["from"]))


@lower(aten.exponential)
def _(w, a, shape):
    """As Gumbel's softmax takes it, which is never 0 or infinite."""
    return w.times(w.line("log", w.line("clamp", _drawn(w, "rand", shape), min=2.0 ** -25)),
                   -1 / a.lambd)


@lower(aten.bernoulli)
def _(w, a, shape):
    """1 with probability p, as stochastic depth draws it: where a dropout keeps a 1. In evaluation
    a dropout does nothing, so it is p there: x / p times that is x."""
    if a.get("p") is None:
        return compare(w, "above", a.self, _drawn(w, "rand", shape))
    return kept_with(w, a.p, shape)


def kept_with(w, p, shape, node=None):
    if node is not None and (node, p) in w.drawn:
        return w.drawn[node, p]
    axes, dims = _own(w, shape)
    ones = w.constant(torch.ones([int(n) for n in axes[1:]] or [1]))
    ones = w.emit("expand", [ones], axes)
    kept = w.emit("dropout", [ones], axes, once=False, p=1 - p)
    y = w.drawn[node, p] = w.times(Value(kept, axes, shape, dims, dtype=torch.float32), p)
    return y


@lower(aten.native_dropout, aten.dropout)
def dropout(w, a, shape):
    x = a.get("input", a.get("self"))
    if a.train and a.p:
        x = w.dense(w.value(x))
        require(x.of_samples or x.shared,
                "dropout of a tensor without samples: each sample would draw its own")
        x = w.line("dropout", x, once=False, p=a.p)
    return [x, None] if "native" in w.op else x


@lower(aten.feature_dropout)
def _(w, a, shape):
    x = w.value(a.input)
    if not a.train or not a.p:
        return x
    require(x.rank > 2, "of what has no planes")
    name, x, count = w.rows(x)
    rows = [N(math.prod(count)), int(shape[1]), 1, math.prod(map(int, shape[2:]))]
    flat = w.emit("reshape", [name], rows)
    y = w.emit("dropout2d", [flat], rows, once=False, p=a.p)
    y = w.emit("reshape", [y], [rows[0], *map(int, shape[1:])])
    return w.of_rows(y, x, count, shape)


@lower(aten.floor)
def _(w, a, shape):
    """Of torch.rand() + p it is a draw, which is how some write stochastic depth."""
    node = w.given["self"]
    if name_of(node) == "add" and isinstance(a.self, Value):
        drawn = [x for x in node.args if name_of(x) == "rand"]
        p = [x for x in node.args if isinstance(x, float)]
        if drawn and p:
            first = w.drawn.setdefault(drawn[0], p[0])
            require(0 < p[0] < 1 and first == p[0], "of random numbers that another floor has "
                                                    "taken, plus another number")
            return kept_with(w, p[0], shape, drawn[0])
    return rounded(w, a, shape)
