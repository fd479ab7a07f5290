"""Random numbers, of which each sample has its own: see _export_ops.py. In an evaluation they are
drawn too, but for stochastic depth, which is a dropout."""

from ._export_choices import op_gt
from ._export_graph import Filled, N, Uniform
from ._export_ops import Bound, require, same, times
from ._export_wholes import quotient_of, rounded


def op_randn_like(w, a, shape):
    return w.random("randn", shape)


def op_rand_like(w, a, shape):
    return Uniform(shape)


def op_normal(w, a, shape):
    """Of normal_, which writes over what is there."""
    require(all(isinstance(x, (int, float)) for x in (a.mean, a.std)),
            "of a mean or a deviation that is a tensor: write mean + std * torch.randn_like(mean)")
    y = times(w, w.random("randn", shape), a.std)
    return y if a.mean == 0 else same(w, "add_number", y, shape, number=a.mean)


def op_uniform(w, a, shape):
    y = times(w, w.random("rand", shape), a.to - a["from"])
    return y if a["from"] == 0 else same(w, "add_number", y, shape, number=a["from"])


def op_exponential(w, a, shape):
    """Of exponential_, as Gumbel's softmax takes it, which is never 0 or infinite."""
    y = same(w, "clamp", w.random("rand", shape), shape, min=2.0 ** -25)
    return times(w, same(w, "log", y, shape), -1 / a.lambd)


def op_bernoulli(w, a, shape):
    """1 with probability p, as stochastic depth draws it: where a dropout keeps a 1."""
    if a.get("p") is None:  # of the probabilities `self`
        return op_gt(w, Bound(self=a.self, other=w.random("rand", shape)), shape)
    require(isinstance(a.self, Filled) and isinstance(shape[0], N), "of other than samples")
    return _drawn(w, a.p, shape)


def _drawn(w, p, shape):
    """Where dropout does nothing, as in evaluation, it is p: x / p times that is x, as the modules
    of stochastic depth have it there."""
    ones = w.expand(w.constant(w.torch.ones([1, *map(int, shape[1:])])), shape, False)
    kept = w.emit("dropout", [ones], shape, p=1 - p)
    return w.emit("multiply_number", [kept], shape, number=p)


def op_floor(w, a, shape):
    """Of torch.rand() + p it is a draw, which is how others write stochastic depth."""
    if quotient_of(w, a.self):
        return rounded(w, quotient_of(w, a.self), "floor")
    if not isinstance(a.self, Uniform):
        return same(w, "floor", a.self, shape)
    require(shape and isinstance(shape[0], N), "it draws numbers that are of no sample")
    require(0 < a.self.low < 1, "of random numbers plus no probability")
    low, drawn = a.self.low, a.self.drawn
    if low not in drawn:
        require(not drawn, "of random numbers that another floor has taken, plus another number")
        drawn[low] = _drawn(w, low, shape)
    return drawn[low]
