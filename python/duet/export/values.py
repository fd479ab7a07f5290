"""The values of the text.

A value is a tensor of PyTorch's, of `shape`, and the line that has its numbers, whose axes are
others: the samples are axis 0 of every line. `dims` says of each dimension of the tensor which
axes it is made of, the slowest first. So moving a dimension writes no line; where an op needs its
operand in an order, `arranged` writes the permute and the reshape.

    tensor (L, N, C) of nn.Transformer     line [N, L, C], dims [[1], [0], [2]]
    tensor (N * heads, L, D)               line [N, heads, L, D], dims [[0, 1], [2], [3]]
    (8, 1, 1), a parameter                 dims [[1], [], []]: no axis is needed for a size of 1
    x.expand(N, 5, 8)                      dims [[], [], [1]]: nor for numbers that repeat
A value whose dims lack axis 0 is alike for all samples; a `shared` one (a parameter, a buffer, a
constant, and what is computed of them alone) is not even copied for each: its type has no N."""

from .._library import DuetError

LEAST = -3.4028234663852886e+38  # of float32


class ExportError(DuetError, ValueError):
    """What of a model cannot be exported: a line for each op, and how to estimate it anyway."""


class Refused(Exception):
    """One op cannot be written; the text says why."""


def require(condition, why):
    if not condition:
        raise Refused(why)


class N(int):
    """A size that grows with the samples: N(8) is 8N."""

    def __str__(self):
        return "N" if int(self) == 1 else f"{int(self)}N"

    __eq__ = lambda self, other: isinstance(other, N) and int(self) == int(other)  # noqa: E731
    __ne__ = lambda self, other: not self == other  # noqa: E731
    __hash__ = int.__hash__


class Value:
    def __init__(self, name, axes, shape, dims, shared=False, dtype=None, offset=None):
        self.name, self.axes, self.shape = name, list(axes), list(shape)
        self.dims = dims and [[i for i in group if axes[i] != 1] for group in dims]
        self.shared, self.dtype = shared, dtype
        self.offset = offset  # places of rows of all samples: so many rows are of each

    def but(self, **changes):
        return Value(**{**vars(self), **changes})

    def permuted(self, *order):
        return self.but(shape=[self.shape[d] for d in order], dims=[self.dims[d] for d in order])

    def unsqueezed(self, at):
        """With a dimension of size 1 there, counted in the result."""
        at %= self.rank + 1
        return self.but(shape=[*self.shape[:at], 1, *self.shape[at:]],
                        dims=[*self.dims[:at], [], *self.dims[at:]])

    def squeezed(self, dims):
        return self.permuted(*(d for d in range(self.rank) if d not in dims))

    def of_rank(self, rank):
        """With dimensions of size 1 in front."""
        return self if self.rank >= rank else self.unsqueezed(0).of_rank(rank)

    @property
    def rank(self):
        return len(self.shape)

    @property
    def of_samples(self):
        return any(0 in axes for axes in self.dims)

    def sizes(self, d):
        return [self.axes[i] for i in self.dims[d]]


class Const:
    """What depends on no input and no parameter: a tensor, or, where it depends on the number of
    samples, what it is for two of them and for three. `shape` has N."""

    def __init__(self, of, shape):
        self.of, self.shape = of, list(shape)

    tensor = property(lambda self: self.of[0])
    rank = property(lambda self: len(self.shape))
    dtype = property(lambda self: self.tensor.dtype)

    @property
    def number(self):
        """The number that all of its elements are; None where they differ."""
        if not self.tensor.numel():
            return None
        one = self.tensor.flatten()[0]
        return one.item() if all((t == one).all() for t in self.of) else None

    def rows_apart(self):
        """What it is for the second sample, of which the others have multiples; else None."""
        if len(self.of) < 2 or not self.rank or self.shape[0] != N(1):
            return None
        each = int(self.of[0][1].flatten()[0])
        return each if all(bool(part.eq(i * each).all()) for t in self.of
                           for i, part in enumerate(t)) else None

    def is_place(self, more=0):
        """Is it for each sample its number among them? more 1: or several times that?"""
        return (self.rows_apart() or 0) > more or not more and self.rows_apart() == 1

    def alike(self):
        """The tensor of one sample, with size k where the shape has kN."""
        one = []
        for t, count in zip(self.of, (2, 3)):
            for d, size in enumerate(self.shape):
                if isinstance(size, N):
                    parts = t.unflatten(d, (count, int(size)))
                    t = parts.select(d, 0)
                    require(parts.eq(t.unsqueeze(d)).all(),
                            "its values depend on the number of samples")
            one.append(t)
        require(all(t.equal(one[0]) for t in one), "its values depend on the number of samples")
        return one[0]
