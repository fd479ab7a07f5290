"""The text of a graph under way, and what its lines are made of: see export.py."""

import itertools

from ._library import DuetError


class ExportError(DuetError, ValueError):
    """What of a model cannot be exported: a line for each op, and how to estimate it anyway."""


class Refused(Exception):
    """One op cannot be written; the text says why."""


class N(int):
    """A dimension that grows with the samples: N(8) is 8N."""

    def __str__(self):
        return "N" if int(self) == 1 else f"{int(self)}N"


class Value:
    """What a line makes. Of a `lifted` one each sample has the whole tensor that PyTorch has, so
    its shape here is [N, *shape]."""

    def __init__(self, name, shape, lifted=False):
        self.name, self.shape, self.lifted = name, shape, lifted
        self.once = None  # what it has copies of


class Stored:
    """A tensor of the file of weights, which no line has used as a value yet. Its shape may have
    been changed by a view; `transposed`: it stands for its transpose."""

    def __init__(self, name, shape, of, transposed=False):
        self.name, self.shape, self.of, self.transposed = name, list(shape), of, transposed

    @property
    def whole(self):
        return self.shape == list(self.of.shape) and not self.transposed


class Filled:
    """A tensor with one number everywhere and the samples somewhere among its dimensions."""

    def __init__(self, number, shape):
        self.number, self.shape = number, shape


class Uniform:
    """Random numbers from `low` up to `low` + 1, as torch.rand draws them from 0 on. `drawn` has
    the one line that draws them, by None, or of their floor by `low`."""

    lifted = False

    def __init__(self, shape, low=0.0, drawn=None):
        self.shape, self.low, self.drawn = shape, low, {} if drawn is None else drawn


COUNTS = 1, 2, 3, 5, 7, 17, 33, 65, 257  # numbers of samples for which a Counted is computed
MOST = 1 << 22  # elements of it, beyond the first five


class Counted:
    """A tensor that depends on the samples by their number alone: what it is for COUNTS of them."""

    def __init__(self, of):
        self.of, self.one, self.two = of, of[1], of[2]

    @property
    def alike(self):
        """Is it in front the samples, all of which have the same?"""
        return self.one.dim() > 0 and self.one.shape[0] == 1 and self.of_rows

    @property
    def of_rows(self):
        """Has each sample several rows in front, one behind the other, which are alike for all?"""
        one = self.one
        return one.dim() > 0 and all(
            y.equal(one.repeat(n, *[1] * (one.dim() - 1))) for n, y in self.of.items())

    @property
    def is_number(self):
        """Is it for each sample its number among them, be it several times?"""
        return self.one.dim() > 0 and all(
            y.shape[0] == n and all(bool(part.eq(i).all()) for i, part in enumerate(y))
            for n, y in self.of.items())



class Stacked(list):
    """Values of which PyTorch has one tensor, with a dimension in front that counts them."""


_MOVES = "reshape", "narrow", "cat", "transpose", "permute", "gather"
_KEEPS_SHORT = {*_MOVES, "expand", "pad2d", "floor", "ceil", "trunc", "round", "clamp", "abs",
                "relu", "add_number", "multiply_number", "add", "subtract", "multiply", "where"}


def text_of(value):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(int(value)) if isinstance(value, bool) else str(value)


class Writer:
    """The text under way, and what the functions of _export_ops.py write it with."""

    def __init__(self, torch, names):
        self.torch, self.names = torch, set(names)
        self.lines, self.stored, self.constants = [], {}, {}
        self.expanded = {}
        self.frozen_ones = {}  # parameters that the model has not: of norms without their own
        self.tokens = {}  # the inputs that a value has its elements from as they are, by names
        self.below = {}  # of inputs of whole numbers, by name
        self.parts = set()  # the names of values that are a part of one, as a column
        self.columns, self.drawn = {}, {}  # of inputs of which tables look up parts, the largest
        # table and the smallest
        self.known = {}  # the same, of all of them, where a walk before this one has found them
        self.guesses = False  # a walk will follow that knows them
        self.wholes = set()  # the names of whole numbers that come of others, as indices
        self.ranges = {}  # the least and the largest of computed whole numbers, by name
        self.distinct = {}  # of places by name a dimension along which no two are the same
        self.quotients = {}  # what is divided by a whole number, and that, by the quotient's name
        self.fallen_short = set()  # quotients that may be off by a rounding, what comes of them
        self.makes_whole = False  # has the result of the op under way PyTorch's int64 or int32?
        self.asked = set()  # which results of an op that has several are used
        self.bools = set()  # which arguments of an op are PyTorch's bool
        self.rows = 1  # of each sample that the op under way sees; see _export_folded.py
        self.trained = set()  # the names of values that may need a gradient
        self.truths = set()  # the names of values that are 1 or 0, PyTorch's bool
        self.module = ""

    def emit(self, op, operands, shape, lifted=False, /, **settings):
        words = ["none" if x is None else x if isinstance(x, str) else x.name for x in operands]
        words += [f"{key}={text_of(value)}" for key, value in settings.items()]
        if any(isinstance(x, float) and x != x for x in settings.values()):
            raise Refused("one of its numbers is NaN")
        dims = [N(1), *shape] if lifted else list(shape)
        if 0 in dims:
            raise Refused("its result is empty")
        if not dims or not isinstance(dims[0], N):
            raise Refused("its result has no dimension of samples in front")
        if any(isinstance(d, N) for d in dims[1:]) or dims[0] not in (1, self.rows):
            raise Refused("its result mixes samples: the first dimension alone may be that of the "
                          "samples")
        name = f"%{len(self.lines) + 1}"
        comment = f"  # {' '.join(self.module.split())}" if self.module else ""
        self.lines.append(f"{name}: f32{text_of(dims)} = {op}({', '.join(words)}){comment}")
        given = [x for x in words if x.startswith("%")]
        given = given[:1] if op == "gather" else given
        if given and op in (*_MOVES, "pad2d", "expand") and \
                float(settings.get("value", 0)).is_integer() and \
                all(x in self.tokens or x in self.truths for x in given):
            self.tokens[name] = set().union(*(self.tokens.get(x, ()) for x in given))
            ranges = [r for x in given if (r := self.range_of(x))]
            if settings.get("value"):
                ranges.append((int(settings["value"]),) * 2)
            if ranges:
                self.ranges[name] = min(r[0] for r in ranges), max(r[1] for r in ranges)
        if op in ("narrow", "gather") or op in _MOVES and not self.parts.isdisjoint(given):
            self.parts.add(name)
        if op in _KEEPS_SHORT and not self.fallen_short.isdisjoint(given):
            self.fallen_short.add(name)
        if op in ("above", "equal") or (op in (*_MOVES, "expand") and
                                        self.truths.issuperset(given or words)):
            self.truths.add(name)
        if op not in ("above", "equal", "argsort", "detach") and \
                not self.trained.union(self.stored).isdisjoint(words):
            self.trained.add(name)
        made = Value(name, list(shape), lifted)
        made.once = operands[0] if op == "expand" and isinstance(operands[0], Value) else None
        return made

    def range_of(self, name):
        """The least and the largest of those whole numbers of a value that are of no input; None
        where they are not known."""
        return (0, 1) if name in self.truths else self.ranges.get(name)

    def frozen(self, tensor, name):
        """A parameter with these numbers that is not trained, where a line takes no constant."""
        name = f"constant.of_{name}"
        tensor = tensor.detach().to(self.torch.float32).contiguous()
        while name in self.names or not tensor.equal(self.frozen_ones.get(name, tensor)):
            name += "_"
        self.frozen_ones[name] = tensor
        return Stored(name, tensor.shape, tensor)

    def constant(self, tensor):
        """A tensor of this run as one of the file."""
        if tensor.is_complex():
            raise Refused("it takes a complex constant")
        tensor = tensor.detach().to(self.torch.float32, copy=True).contiguous()
        if self.torch.isnan(tensor).any():
            raise Refused("a constant of the model has NaN")
        for name, other in self.constants.items():
            if other.shape == tensor.shape and self.torch.equal(other, tensor):
                return Stored(name, tensor.shape, other)
        name = next(name for i in itertools.count()
                    if (name := f"constant.{i}") not in self.names | self.constants.keys())
        self.constants[name] = tensor
        return Stored(name, tensor.shape, tensor)

    def expand(self, stored, shape, lifted):
        """A stored tensor as a value, with this shape as PyTorch sees it."""
        if stored.transposed:
            shape, original = list(stored.of.shape), stored
            value = self.expand(Stored(stored.name, shape, stored.of), shape, True)
            return self.emit("transpose", [value], original.shape, True, dim0=1, dim1=2)
        key = stored.name, tuple(map(str, shape)), lifted
        if key not in self.expanded:
            value = self.expanded[key] = self.emit("expand", [stored.name], shape, lifted)
            constant = self.constants.get(stored.name)
            if constant is not None and constant.numel() and constant.isfinite().all() and \
                    constant.equal(constant.floor()):
                self.tokens[value.name] = set()  # what an embedding may look up, of no input
                self.ranges[value.name] = int(constant.min()), int(constant.max())
        return self.expanded[key]

    def random(self, op, shape):
        if not shape or not isinstance(shape[0], N) or shape[0] != self.rows:
            raise Refused("it draws numbers that are of no sample")
        return self.emit(op, [], shape)

    def even(self, x):
        """Of a Uniform its value."""
        if not x.drawn:
            x.drawn[None] = self.random("rand", x.shape)
        if None not in x.drawn:
            raise Refused("of random numbers of which a floor has been taken")
        y = x.drawn[None]
        return self.emit("add_number", [y], x.shape, number=x.low) if x.low else y

    def value(self, x):
        """An operand that must be a value: a stored tensor and a constant are lifted."""
        if isinstance(x, Uniform):
            return self.even(x)
        if isinstance(x, self.torch.Tensor):
            if x.dim() == 0:
                x = x.reshape(1)
            x = self.constant(x)
        if isinstance(x, Stored):
            return self.expand(x, x.shape, True)
        if isinstance(x, Filled) and 0 in x.shape:
            raise Refused("it takes an empty tensor")
        if isinstance(x, Filled) and x.shape and isinstance(x.shape[0], N) and \
                x.shape[0] == self.rows:
            one = self.torch.full([1, *map(int, x.shape[1:])], float(x.number))
            return self.expand(self.constant(one), x.shape, False)
        if not isinstance(x, Value):
            raise Refused("it takes a tensor in which the samples are not in front"
                          if hasattr(x, "dims") else
                          getattr(x, "refused", "it takes what is no tensor of the samples"))
        return x

    def aligned(self, x, rank):
        """The same beside a value of the samples with `rank` dimensions."""
        if isinstance(x, Value) and not x.lifted:
            if len(x.shape) == rank:
                return x
            raise Refused("two values of the samples have different numbers of dimensions")
        if isinstance(x, self.torch.Tensor):
            x = self.constant(x if x.dim() else x.reshape(1))
        shape = [1] * (rank - len(x.shape)) + list(x.shape)
        if len(shape) > rank or shape[0] != 1:
            raise Refused("a tensor without samples is broadcast against the samples' dimension")
        if isinstance(x, Stored) and not x.transposed:
            return self.expand(x, [N(self.rows), *shape[1:]], False)
        if self.rows == 1:
            return self.emit("reshape", [self.value(x)], [N(1), *shape[1:]])
        one = self.emit("reshape", [self.value(x)], [N(1), *shape])
        each = self.emit("expand", [one], [N(1), self.rows, *shape[1:]])
        return self.emit("reshape", [each], [N(self.rows), *shape[1:]])

    def parameter(self, x, what):
        """An operand that must be a parameter as it is; None stays None."""
        if x is None:
            return None
        if isinstance(x, self.torch.Tensor):
            known = (name for name, other in self.frozen_ones.items() if x.equal(other))
            return next(known, None) or self.frozen(x, f"{what}.{len(self.frozen_ones)}").name
        if isinstance(x, Stored) and x.whole and x.name in (*self.stored, *self.frozen_ones):
            return x.name
        raise Refused(f"its {what} is computed, not a parameter as it is")
