"""The text while it is written: its lines, the tensors of the file of weights, and arithmetic."""

import collections
import itertools

from .values import (LEAST, Const, ExportError, Layout, N, Refused, Value,  # noqa: F401
                     require)


def broadcast(*shapes):
    """The shape of an op on tensors of these."""
    rank = max(map(len, shapes))
    shapes = [[1] * (rank - len(s)) + list(s) for s in shapes]
    return [next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes)]


def text_of(value):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(int(value)) if isinstance(value, bool) else str(value)


Line = collections.namedtuple("Line", "name begin words settings module")


class Writer(Layout):
    def __init__(self, torch, names):
        self.torch, self.names = torch, set(names)
        self.lines, self.known, self.axes = [], {}, {}
        self.moved = {}  # lines that permute: of which line, its axes, and their order
        self.constants = {}
        self.trained = set()  # names of lines and parameters that may need a gradient
        self.module = ""

    # ---- lines

    def emit(self, op, operands, axes, once=True, shared=False, **settings):
        """The name of a line; of two that are alike there is one, unless it draws numbers."""
        words = ["none" if x is None else x if isinstance(x, str) else x.name for x in operands]
        require(not any(isinstance(x, float) and x != x for x in settings.values()),
                "one of its numbers is NaN")
        require(0 not in [int(n) for n in axes], "its result is empty")
        require(len(axes) <= 8, "its result has more than 8 dimensions")
        if shared:
            settings = {key: _less_one(key, value) for key, value in settings.items()}
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
        """A line of one operand as it lies."""
        x = self.value(x)
        return x.but(name=self.emit(op, [x], x.axes, shared=x.shared, **settings))

    # ---- tensors that are there from the start

    def stored(self, name, tensor):
        """A parameter, buffer or constant: its sizes of 1 are not dimensions of others."""
        shape = list(tensor.shape)
        return Value(name, [N(1), *(shape or [1])], shape, shared=True, dtype=tensor.dtype)

    def constant(self, tensor):
        torch = self.torch
        require(not tensor.is_complex(), "it takes a complex constant")
        kind, tensor = tensor.dtype, tensor.detach().to(torch.float32, copy=True).contiguous()
        require(not torch.isnan(tensor).any(), "a constant of the model has NaN")
        name = next((n for n, other in self.constants.items() if other.shape == tensor.shape and
                     torch.equal(other, tensor)), None) or next(
                         n for i in itertools.count() if
                         (n := f"constant.{i}") not in self.names | self.constants.keys())
        self.constants[name] = tensor if tensor.dim() else tensor.reshape(1)
        return self.stored(name, tensor).but(dtype=kind)

    def value(self, x):
        """A constant as a value, of which one number stands for all that are equal."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (bool, int, float)):
            x = Const([self.torch.tensor(float(x))], [])
        require(isinstance(x, Const), "it takes a value that is not a tensor of the samples")
        number = x.number
        if number is not None:
            return self.constant(self.torch.tensor([number], dtype=x.dtype)).but(
                shape=x.shape, repeats=range(x.rank))
        y, rows = self.constant(x.alike()), {d for d, n in enumerate(x.shape) if isinstance(n, N)}
        more = {d for d in rows if int(x.shape[d]) > 1}
        require(len(more) < 2, "it grows with the samples in two dimensions")
        y = y.but(shape=x.shape, repeats=rows - more)
        return self.lifted(y).but(at=more.pop()) if more else y

    def lifted(self, x):
        """A value of which each sample has its copy."""
        x = self.value(x)
        if not x.shared:
            return x
        return x.but(name=self.emit("expand", [x], x.axes), shared=False)

    def parameter(self, x, what):
        """The name of an operand that is a parameter, or a value of such; None stays None."""
        if x is None:
            return None
        x = x if isinstance(x, Value) else self.constant(x.alike())
        require(self.is_parameter(x), f"its {what} is computed, not a parameter as it is")
        name = self.lay(x, x.shape, shared=True)
        return name if name not in self.constants else self.emit(
            "reshape", [name], [N(1), *x.shape], shared=True)

    def is_parameter(self, x):
        """Can it be given where a line takes a parameter?"""
        return isinstance(x, Const) or x.shared and not x.repeats

    # ---- arithmetic, of values, constants and numbers

    def number(self, x):
        """A number, or a constant that is one and has no dimension; else None."""
        if isinstance(x, (bool, int, float)) and not isinstance(x, N):
            return float(x)
        require(not isinstance(x, N), "it computes with the number of samples")
        return float(x.number) if isinstance(x, Const) and not x.rank else None

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
        """The line has room for one number."""
        shapes = [x.shape for x in (condition, a, b) if hasattr(x, "shape")]
        numbers = [self.number(a) if not isinstance(a, Const) else a.number,
                   self.number(b) if not isinstance(b, Const) else b.number]
        if None not in numbers:
            b, numbers[1] = self.value(b), None
        value = next((n for n in numbers if n is not None), None)
        terms = [None if n is not None else x for n, x in zip(numbers, (a, b))]
        shape = broadcast(*shapes)
        return self.together("where", [condition, *terms], shape,
                             **({} if value is None else {"value": value}))

    def detach(self, x):
        if not isinstance(x, Value) or x.name not in self.trained:
            return x
        return self.line("detach", x)


def _less_one(key, value):
    """A setting that counts dimensions, of a line without that of the samples."""
    if key in ("dim", "dim0", "dim1"):
        return value - 1
    return [i - 1 for i in value if i] if key in ("dims", "order") else value
