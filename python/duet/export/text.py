"""The model file under construction: values, lines, the tensors of the weights file, arithmetic.

A value is a PyTorch tensor together with the line that has its numbers: each sample's, in the
tensor's order. So a view writes no line, and a permutation writes one. `at` is the dimension of the
samples, or None if all samples are equal. It may hold several rows per sample, kN = front * N *
back rows, where `front` is the number of times that all samples follow each other.

    tensor (L, N, C) of nn.Transformer     line [N, L, C], at 1
    tensor (N * heads, L, D)               line [N, heads, L, D], at 0, front 1
    torch.cat([a, b]), of (N, C)           line [N, 2, C], at 0, front 2
    x.expand(N, 5, 8), a parameter's       line [8], repeats {0, 1}: no axis for what repeats
A `shared` value (a parameter, a buffer, a constant, or a value computed only from these) is not
copied for each sample: its type has no N."""

import collections
import itertools
import math

from .passes import Const, N, require

LEAST = -3.4028234663852886e+38  # of float32


class Value:
    def __init__(self, name, axes, shape, at=None, front=1, repeats=(), shared=False, dtype=None):
        self.name, self.axes, self.shape = name, list(axes), list(shape)
        self.at, self.front, self.shared, self.dtype = at, front, shared, dtype
        self.repeats = {d for d in repeats if self.shape[d] != 1}

    def but(self, **changes):
        return Value(**{**vars(self), **changes})

    rank = property(lambda self: len(self.shape))

    def size(self, d):
        """A dimension's size in the line, which has one sample's rows and repeated numbers once."""
        return 1 if d % self.rank in self.repeats else int(self.shape[d])

    def wide(self):
        """The dimensions of the line, and their sizes."""
        dims = [d for d in range(self.rank) if self.size(d) != 1]
        return dims, [self.size(d) for d in dims]

    def with_ones(self, shape):
        """The value with other dimensions of size 1."""
        others = iter([d for d, n in enumerate(shape) if n != 1])
        to = {d: next(others) for d, n in enumerate(self.shape) if n != 1}
        return self.but(shape=shape, at=to.get(self.at), repeats={to[d] for d in self.repeats})

    def unsqueezed(self, at):
        """The value with a dimension of size 1 at index `at` of the result."""
        at %= self.rank + 1
        return self.with_ones([*self.shape[:at], 1, *self.shape[at:]])

    def squeezed(self, dims):
        return self.with_ones([n for d, n in enumerate(self.shape) if d not in dims])

    def of_rank(self, rank):
        """The value with dimensions of size 1 in front."""
        return self.with_ones([1] * (rank - self.rank) + self.shape)

    def expanded(self, shape):
        x = self.of_rank(len(shape))
        more = {d for d, n in enumerate(x.shape) if n == 1}
        return x.but(shape=shape, repeats=x.repeats | more)


MIXES = "it mixes samples: give dim, without that of the samples"
PICKS = "it picks samples: pick along another dimension"
IN_FRONT = "it mixes samples: only the first dimension may be that of the samples"


def broadcast(*shapes):
    """The shape of an elementwise op on tensors of these shapes."""
    rank = max(map(len, shapes))
    shapes = [[1] * (rank - len(s)) + list(s) for s in shapes]
    return [next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes)]


def text_of(value):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(int(value)) if isinstance(value, bool) else str(value)


Line = collections.namedtuple("Line", "name begin words settings module")


class Writer:
    def __init__(self, torch, names):
        self.torch, self.names = torch, set(names)
        self.lines, self.known, self.axes, self.constants, self.module = [], {}, {}, {}, ""
        self.moved = {}  # lines that permute: their operand, axes and order
        self.trained = set()  # names of lines and parameters that may need a gradient

    # ---- lines

    def emit(self, op, operands, axes, once=True, shared=False, **settings):
        """The name of a line; equal lines are written once, unless they draw numbers."""
        words = ["none" if x is None else x if isinstance(x, str) else x.name for x in operands]
        require(not any(isinstance(x, float) and x != x for x in settings.values()),
                "one of its numbers is NaN: give it a number")
        require(0 not in [int(n) for n in axes], "its result is empty: leave it out")
        require(len(axes) <= 8, "its result has more than 8 dimensions: flatten some of them")
        if shared:  # its dimensions do not count that of the samples
            settings |= {key: settings[key] - 1 for key in ("dim", "dim0", "dim1")
                         if key in settings}
            settings |= {key: [i - 1 for i in settings[key] if i] for key in ("dims", "order")
                         if key in settings}
        settings = [f"{key}={text_of(value)}" for key, value in settings.items()]
        alike = f"f32{text_of(axes[shared:])} = {op}", *words, *settings
        if once and alike in self.known:
            return self.known[alike]
        name = self.known[alike] = f"%{len(self.lines) + 1}"
        self.axes[name] = axes
        self.lines.append(Line(name, alike[0], words, settings, " ".join(self.module.split())))
        if op not in ("above", "equal", "argsort", "detach") and \
                not self.trained.isdisjoint(words):
            self.trained.add(name)
        return name

    def line(self, op, x, **settings):
        """A line with one operand, in the operand's layout."""
        x = self.value(x)
        return x.but(name=self.emit(op, [x], x.axes, shared=x.shared, **settings))

    # ---- tensors that exist from the start

    def stored(self, name, tensor):
        """A parameter, buffer or constant: its sizes of 1 are not dimensions of others."""
        shape = list(tensor.shape)
        return Value(name, [N(1), *(shape or [1])], shape, shared=True, dtype=tensor.dtype)

    def constant(self, tensor):
        torch = self.torch
        require(not tensor.is_complex(), "it takes a complex constant: give two real ones")
        kind, tensor = tensor.dtype, tensor.detach().to(torch.float32, copy=True).contiguous()
        require(not torch.isnan(tensor).any(), "it takes a constant with NaN: give it numbers")
        equal = (name for name, other in self.constants.items() if torch.equal(other, tensor))
        fresh = (name for i in itertools.count() if (name := f"constant.{i}") not in
                 self.names | self.constants.keys())
        name = next(itertools.chain(equal, fresh))
        self.constants[name] = tensor if tensor.dim() else tensor.reshape(1)
        return self.stored(name, tensor).but(dtype=kind)

    def value(self, x):
        """A constant as a value; numbers that are all equal are stored once."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (bool, int, float)):
            x = Const([self.torch.tensor(float(x))], [])
        require(isinstance(x, Const), "it takes a value that is no tensor: give a tensor")
        require(0 not in x.shape, "its operand is empty: leave it out")
        if x.number is not None:
            return self.constant(self.torch.tensor([x.number], dtype=x.dtype)).but(
                shape=x.shape, repeats=range(x.rank))
        y, rows = self.constant(x.alike()), {d for d, n in enumerate(x.shape) if isinstance(n, N)}
        more = {d for d in rows if int(x.shape[d]) > 1}
        require(len(more) < 2, "the samples are in two of its dimensions: keep one")
        y = y.but(shape=x.shape, repeats=rows - more)
        return self.lifted(y).but(at=more.pop()) if more else y

    def lifted(self, x):
        """A value that each sample has as a copy."""
        x = self.value(x)
        if not x.shared:
            return x
        return x.but(name=self.emit("expand", [x], x.axes), shared=False)

    def parameter(self, x, what):
        """The name of an operand that is a parameter, or a value of such; None stays None."""
        if x is None:
            return None
        x = x if isinstance(x, Value) else self.constant(x.alike())
        require(self.is_parameter(x), f"its {what} is computed: give a parameter")
        name = self.lay(x, x.shape, shared=True)
        return name if name not in self.constants else self.emit(
            "reshape", [name], [N(1), *x.shape], shared=True)

    def is_parameter(self, x):
        """Can the value stand where a line takes a parameter?"""
        return isinstance(x, Const) or x.shared and not x.repeats

    # ---- values in the form that an op expects

    def lay(self, x, sizes, shared=False):
        """The name of a line of x with these sizes after the samples; with `shared` without samples
        if x has none. A list of sizes may begin with the rows, as 5N."""
        axes = [*([] if sizes and isinstance(sizes[0], N) else [N(1)]), *sizes]
        if x.shared and not shared:
            padded = [N(1)] + [1] * (len(axes) - len(x.axes)) + x.axes[1:]
            if padded == axes:
                return self.emit("expand", [x], axes)
            x = self.lifted(x)
        return x.name if x.axes == axes else self.emit("reshape", [x], axes, shared=x.shared)

    def permuted(self, x, *order):
        """Writes a line, unless only dimensions of size 1 move, or it undoes another move."""
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
        y.name, y.axes = name, [axes[i] for i in to]
        wrong = [i for i, j in enumerate(to) if i != j]
        if wrong:
            op, how = ("transpose", dict(zip(("dim0", "dim1"), wrong))) if len(wrong) == 2 else \
                ("permute", {"order": to})
            y.name = self.emit(op, [name], y.axes, shared=x.shared, **how)
            self.moved[y.name] = name, axes, to
        return y

    def dense(self, x, only=None, like=None):
        """x with an axis for each dimension in which its numbers repeat; the samples' rows are in
        the order of `like`."""
        repeats = {d for d in x.repeats if only is None or d in only}
        if not repeats:
            return x
        rows = [d for d in repeats if isinstance(x.shape[d], N)]
        require(len(rows) + (x.at is not None) < 2, IN_FRONT)
        x, wide = self.lifted(x), [d for d in range(x.rank) if x.size(d) != 1 or
                                   d in repeats and int(x.shape[d]) != 1]
        y = x.but(repeats=x.repeats - repeats)
        if rows:
            y.at, y.front = rows[0], like.front if like and like.at == rows[0] else 1
        y.axes = [N(1), *(y.size(d) for d in wide)]
        if math.prod(y.axes) == math.prod(x.axes):
            return y.but(axes=x.axes)
        return y.but(name=self.emit("expand", [self.lay(x, [x.size(d) for d in wide])], y.axes))

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
        require(front and not rest and int(shape[at]) % front == 0, IN_FRONT)
        return x.but(shape=shape, at=at, front=front)

    def beside(self, values, shape, skip=(), direct=False):
        """The names of lines of values with the same dimensions, in which they have their size or
        1; what an op makes of them, without a name; and where its axes of the dimensions in `skip`
        are, in which the values differ. direct: shared values may be beside others."""
        values, skip = [x.of_rank(len(shape)) for x in values], [d % len(shape) for d in skip]
        of = {(x.at, x.at in skip or x.front): x for x in values if x.at is not None}
        require(len(of) < 2, "it mixes samples: permute them to one dimension first")
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
        """A line that computes elementwise on several values; None is skipped."""
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
        require(x.at not in dims, MIXES)
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
        require(x.at in (None, 0), "its samples are not in front: permute them there first")
        x = self.lifted(self.dense(x, only=range(1, x.rank)))
        return self.lay(x, [N(x.size(0)), *map(int, x.shape[1:])]), x, x.size(0)

    def of_rows(self, name, x, count, shape):
        """The value of a line made from `rows`."""
        axes = [N(1), *([count] if count > 1 else []), *map(int, shape[1:])]
        name = self.emit("reshape", [name], axes) if count > 1 else name
        return Value(name, axes, shape, x.at, x.front, x.repeats & {0})

    # ---- arithmetic, of values, constants and numbers

    def number(self, x):
        """A number, or a constant that is one and has no dimension; else None."""
        if isinstance(x, (bool, int, float)) and not isinstance(x, N):
            return float(x)
        require(not isinstance(x, N), "it computes with the number of samples: write a number")
        return float(x.number) if isinstance(x, Const) and not x.rank else None

    def constant_number(self, x):
        """The number that all elements of a constant are; else None."""
        return x.number if isinstance(x, Const) else self.number(x)

    def times(self, x, number):
        return x if number == 1 else self.line("multiply_number", x, number=number)

    def plus(self, x, number):
        return x if number == 0 else self.line("add_number", x, number=number)

    def both(self, op, a, b):
        return self.together(op, [a, b], broadcast(a.shape, b.shape))

    def add(self, a, b):
        for x, other in ((a, b), (b, a)):
            if self.number(other) is not None:
                return self.plus(x, self.number(other))
        return self.both("add", a, b)

    def mul(self, a, b):
        for x, other in ((a, b), (b, a)):
            if self.number(other) is not None:
                return self.times(x, self.number(other))
        return self.both("multiply", a, b)

    def sub(self, a, b):
        if self.number(b) is not None:
            return self.plus(a, -self.number(b))
        return self.add(self.times(b, -1), a) if self.number(a) is not None else \
            self.both("subtract", a, b)

    def where(self, condition, a, b):
        """The line takes only one number."""
        numbers = [self.constant_number(a), self.constant_number(b)]
        if None not in numbers:
            b, numbers[1] = self.value(b), None
        terms = [x if n is None else None for n, x in zip(numbers, (a, b))]
        shape = broadcast(*(x.shape for x in (condition, a, b) if hasattr(x, "shape")))
        return self.together("where", [condition, *terms], shape,
                             **{"value": n for n in numbers if n is not None})

    def detach(self, x):
        return self.line("detach", x) if getattr(x, "name", None) in self.trained else x
