"""The values of the text, and the one dimension that is of the samples.

A value is a tensor of PyTorch's and the line that has its numbers: for each sample those of the
tensor, in their order. So a view writes no line, and a permutation writes one. `at` is the
dimension of the samples, None where all are alike. It may hold several rows of each, kN = front *
N * back of them, and `front` says how many times all samples follow each other in it.

    tensor (L, N, C) of nn.Transformer     line [N, L, C], at 1
    tensor (N * heads, L, D)               line [N, heads, L, D], at 0, front 1
    torch.cat([a, b]), of (N, C)           line [N, 2, C], at 0, front 2
    x.expand(N, 5, 8), a parameter's       line [8], repeats {0, 1}: no axis for what repeats
A `shared` value (a parameter, a buffer, a constant, and what is computed of them alone) is not even
copied for each sample: its type has no N."""

import math

from .._library import DuetError

LEAST = -3.4028234663852886e+38  # of float32


class ExportError(DuetError, ValueError):
    """Why a model cannot be exported: a line for each op, and how to estimate it anyway."""


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
    def __init__(self, name, axes, shape, at=None, front=1, repeats=(), shared=False, dtype=None):
        self.name, self.axes, self.shape = name, list(axes), list(shape)
        self.at, self.front, self.shared, self.dtype = at, front, shared, dtype
        self.repeats = {d for d in repeats if self.shape[d] != 1}

    def but(self, **changes):
        return Value(**{**vars(self), **changes})

    rank = property(lambda self: len(self.shape))

    def size(self, d):
        """Of a dimension of the line, which has a sample's rows, and once what repeats."""
        return 1 if d % self.rank in self.repeats else int(self.shape[d])

    def wide(self):
        """The dimensions that the line has, and their sizes."""
        dims = [d for d in range(self.rank) if self.size(d) != 1]
        return dims, [self.size(d) for d in dims]

    def with_ones(self, shape):
        """With other dimensions of size 1."""
        others = iter([d for d, n in enumerate(shape) if n != 1])
        to = {d: next(others) for d, n in enumerate(self.shape) if n != 1}
        return self.but(shape=shape, at=to.get(self.at), repeats={to[d] for d in self.repeats})

    def unsqueezed(self, at):
        """With a dimension of size 1 there, counted in the result."""
        at %= self.rank + 1
        return self.with_ones([*self.shape[:at], 1, *self.shape[at:]])

    def squeezed(self, dims):
        return self.with_ones([n for d, n in enumerate(self.shape) if d not in dims])

    def of_rank(self, rank):
        """With dimensions of size 1 in front."""
        return self.with_ones([1] * (rank - self.rank) + self.shape)

    def expanded(self, shape):
        x = self.of_rank(len(shape))
        more = {d for d, n in enumerate(x.shape) if n == 1}
        return x.but(shape=shape, repeats=x.repeats | more)


class Const:
    """A value that depends on no input and no parameter: a tensor, or, if it depends on the number
    of samples, its values for two of them and for three. `shape` has N."""

    def __init__(self, of, shape):
        self.of, self.shape = of, list(shape)

    tensor = property(lambda self: self.of[0])
    rank = property(lambda self: len(self.shape))
    dtype = property(lambda self: self.tensor.dtype)

    @property
    def number(self):
        """The number that all elements equal; None if they differ."""
        if not self.tensor.numel():
            return None
        one = self.tensor.flatten()[0]
        return one.item() if all((t == one).all() for t in self.of) else None

    def is_place(self):
        """Is it for each sample its number among them?"""
        return len(self.of) == 2 and self.rank > 0 and self.shape[0] == N(1) and all(
            bool(part.eq(i).all()) for t in self.of for i, part in enumerate(t))

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


_MIXES = "it mixes samples: "
_IN_FRONT = _MIXES + "the first dimension alone may be that of the samples"


class Layout:
    """The part of a Writer (text.py) that brings values into the form that an op takes."""

    def lay(self, x, sizes, shared=False):
        """The name of a line of x with these sizes behind the samples. shared: with none, where x
        has none; a list of sizes may begin with that of the rows, as 5N."""
        axes = [*([] if sizes and isinstance(sizes[0], N) else [N(1)]), *sizes]
        if x.shared and not shared:
            padded = [N(1)] + [1] * (len(axes) - len(x.axes)) + x.axes[1:]
            if padded == axes:
                return self.emit("expand", [x], axes)
            x = self.lifted(x)
        return x.name if x.axes == axes else self.emit("reshape", [x], axes, shared=x.shared)

    def permuted(self, x, *order):
        """A line, unless what moves has size 1, or moves back."""
        order, (dims, sizes) = [d % x.rank for d in order], x.wide()
        y = x.but(shape=[x.shape[d] for d in order], repeats={order.index(d) for d in x.repeats},
                  at=None if x.at is None else order.index(x.at))
        to = [1 + dims.index(d) for d in order if d in dims]
        if to == sorted(to):
            return y
        name, axes, to = self.lay(x, sizes, shared=True), [N(1), *sizes], [0, *to]
        if name in self.moved:
            name, axes, before = self.moved[name]
            to = [before[i] for i in to]
        y.axes, wrong = [axes[i] for i in to], [i for i, j in enumerate(to) if i != j]
        y.name = name
        if len(wrong) == 2:
            y.name = self.emit("transpose", [name], y.axes, shared=x.shared, dim0=wrong[0],
                               dim1=wrong[1])
        elif wrong:
            y.name = self.emit("permute", [name], y.axes, shared=x.shared, order=to)
        if wrong:
            self.moved[y.name] = name, axes, to
        return y

    def dense(self, x, only=None, like=None):
        """x with an axis for each dimension in which its numbers repeat; rows of the samples are
        in the order that they have in `like`."""
        repeats = {d for d in x.repeats if only is None or d in only}
        if not repeats:
            return x
        rows = [d for d in repeats if isinstance(x.shape[d], N)]
        require(len(rows) + (x.at is not None) < 2, _IN_FRONT)
        x, wide = self.lifted(x), [d for d in range(x.rank) if x.size(d) != 1 or
                                   d in repeats and int(x.shape[d]) != 1]
        y = x.but(repeats=x.repeats - repeats)
        if rows:
            y.at, y.front = rows[0], like.front if like and like.at == rows[0] else 1
        y.axes = [N(1), *(y.size(d) for d in wide)]
        if math.prod(y.axes) != math.prod(x.axes):
            y.name = self.emit("expand", [self.lay(x, [x.size(d) for d in wide])], y.axes)
        else:
            y.axes = x.axes
        return y

    def view(self, x, shape):
        """x.reshape(shape)"""
        if [n for n in shape if n != 1] == [n for n in x.shape if n != 1]:
            return x.with_ones(shape)
        x = self.dense(x)
        if x.at is None:
            return x.but(shape=shape)
        before = math.prod(map(int, x.shape[:x.at])) * x.front
        at = next(d for d, n in enumerate(shape) if isinstance(n, N))
        front, rest = divmod(before, math.prod(map(int, shape[:at])))
        require(front and not rest and int(shape[at]) % front == 0, _IN_FRONT)
        return x.but(shape=shape, at=at, front=front)

    def beside(self, values, shape, skip=(), direct=False):
        """The names of lines of values with the same dimensions, in which they have their size or
        1; what an op makes of them, without a name; and where its axes of the dimensions in `skip`
        are, in which the values differ. direct: shared values may be beside others."""
        values, skip = [x.of_rank(len(shape)) for x in values], [d % len(shape) for d in skip]
        of = {(x.at, x.at in skip or x.front): x for x in values if x.at is not None}
        require(len(of) < 2, _MIXES + "they lie in other orders")
        like, shared = next(iter(of.values()), values[0]), all(x.shared for x in values)
        keys = [d for d in range(len(shape)) if d in skip or any(x.size(d) != 1 for x in values)]
        names = []
        for x in values:
            sizes = [x.size(d) for d in keys] or [1]
            if x.shared and direct:
                while len(sizes) > len(x.axes) - 1 and sizes[0] == 1:
                    sizes = sizes[1:]
            names.append(self.lay(x, sizes, shared=shared or direct))
        y = Value("", [N(1)], shape, like.at, like.front, {*range(len(shape))} - {*keys, like.at},
                  shared, values[0].dtype)
        y.axes += [int(shape[d]) if d in skip else max(x.size(d) for x in values)
                   for d in keys] or [1]
        return names, y, [1 + keys.index(d) for d in skip]

    def together(self, op, values, shape, **settings):
        """A line that computes element by element of several values; None is not an operand."""
        given = [self.value(x) for x in values if x is not None]
        names, y, _ = self.beside(given, shape, direct=op in ("add", "subtract", "multiply"))
        rest = iter(names)
        y.name = self.emit(op, [x if x is None else next(rest) for x in values], y.axes,
                           shared=y.shared, **settings)
        return y

    def over(self, x, dims, to, write, flat=False):
        """What `write` makes of x with these dimensions behind all others, in which it has the
        sizes `to`: it is given the name of a line, and the sizes of the others. flat: these are
        one."""
        dims = [d % x.rank for d in dims]
        require(x.at not in dims, _MIXES + "give dim, without that of the samples")
        x = self.lifted(self.dense(x, only=dims))
        order = [*(d for d in range(x.rank) if d not in dims), *dims]
        y = self.permuted(x, *order)
        before = [y.size(d) for d in range(x.rank - len(dims)) if y.size(d) != 1]
        before = [math.prod(before)] if flat else before
        name = self.lay(y, [*before, *map(int, y.shape[x.rank - len(dims):])])
        name = write(name, [N(1), *before])
        y = y.but(name=name, axes=self.axes[name], shape=[*y.shape[:x.rank - len(dims)], *to])
        return self.permuted(y, *(order.index(d) for d in range(x.rank)))

    def rows(self, x):
        """The name of a line as the tensor is, whose first dimension may have several rows of each
        sample, and how many."""
        require(x.at in (None, 0), "it takes a tensor in which the samples are not in front")
        x = self.lifted(self.dense(x, only=range(1, x.rank)))
        return self.lay(x, [N(x.size(0)), *map(int, x.shape[1:])]), x, x.size(0)

    def of_rows(self, name, x, count, shape):
        """The value of a line that came of `rows`."""
        axes = [N(1), *([count] if count > 1 else []), *map(int, shape[1:])]
        if count > 1:
            name = self.emit("reshape", [name], axes)
        return Value(name, axes, shape, x.at, x.front, x.repeats & {0})
