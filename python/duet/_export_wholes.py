"""Whole numbers that are computed of others, and how large they may be: float32, in which they are,
is exact to 2^24. See _export_ops.py."""

import math
import operator

from ._export_graph import Filled, Value
from ._export_ops import Bound, binary, detached, number_of, require, same

_EXACT = 1 << 24


def whole(w, y, low, high):
    """y is whole numbers from low to high, which an embedding may look up; they are of no input."""
    w.wholes.add(y.name)
    w.tokens[y.name], w.ranges[y.name] = set(), (low, high)


def _range_of(w, x):
    """The least and the largest of whole numbers; None where they are not known."""
    if isinstance(x, Filled) or number_of(w, x) is not None:
        return (int(x.number if isinstance(x, Filled) else x),) * 2
    if isinstance(x, w.torch.Tensor):
        return (int(x.min()), int(x.max())) if x.numel() else None
    if not isinstance(x, Value):
        return None
    ends, inputs = w.range_of(x.name), w.tokens.get(x.name, ())
    if not inputs:
        return ends
    if not w.known.keys() >= inputs:
        return None
    ends = [0, *(w.known[name] - 1 for name in inputs), *(ends or ())]
    return min(ends), max(ends)

# ---- how large they are: of each op the ends of its result, by those of its operands


def _both(how):
    """Of what only grows, or only falls, with each of two operands."""
    return lambda a, x, y: [how(i, j) for i in x for j in y]


def _each(how):
    return lambda a, x: [how(i) for i in x]


def _clamped(a, x):
    low, high = a.get("min"), a.get("max")
    x = [i if low is None else max(i, int(low)) for i in x]
    return [i if high is None else min(i, int(high)) for i in x]


def _to_zero(i, number):
    """i / number without what is behind the point."""
    size = abs(i) // abs(number)
    return size if (i < 0) == (number < 0) else -size


def _divided(a, x, y):
    how = _to_zero if a.get("rounding_mode") == "trunc" else operator.floordiv
    return [how(i, y[0]) for i in x]


def _remainder(a, x, y):
    return [0, y[0] - 1] if y[0] > 0 else [y[0] + 1, 0]


def _fmod(a, x, y):
    most = abs(y[0]) - 1
    return [max(min(x[0], 0), -most), min(max(x[1], 0), most)]


def _powers(a, x, y):
    most = max(map(abs, x)) ** y[0]
    return [-most if x[0] < 0 and y[0] % 2 else 0, most]


_CHOOSES = {  # of ops whose results are among their operands, or beside them: exact at any size
    "clamp": _clamped, "neg": _each(operator.neg), "relu": _each(lambda i: max(i, 0)),
    "sign": lambda a, x: [-1, 1], "abs": lambda a, x: [0, *map(abs, x)],
    "maximum": _both(max), "minimum": _both(min), "where": lambda a, x, y: [*x, *y],
    "masked_fill": lambda a, x, y: [*x, *y], "scatter": lambda a, x, y: [*x, *y]}
_CHOOSES["clip"] = _CHOOSES["clamp_min"] = _CHOOSES["clamp_max"] = _clamped
_COMPUTES = {
    "add": _both(operator.add), "sub": _both(operator.sub), "mul": _both(operator.mul),
    "rsub": _both(lambda i, j: j - i),
    "square": lambda a, x: _powers(a, x, [2]), "pow": _powers, "remainder": _remainder,
    "fmod": _fmod, "floor_divide": _divided, "div": _divided}
_COMPUTES["bitwise_and"] = _COMPUTES["__and__"] = lambda a, x, y: [0, y[0]]
_COMPUTES["__rshift__"] = _COMPUTES["bitwise_right_shift"] = _both(operator.rshift)
_COMPUTES["__lshift__"] = _COMPUTES["bitwise_left_shift"] = _both(operator.lshift)
_SPLITS = ("remainder", "fmod", "floor_divide", "div", "bitwise_and", "__and__", "__rshift__",
           "bitwise_right_shift")  # of rounded numbers they would have others
_TAKES = ("gather", "index_select", "index", "max", "min", "amax", "amin", "topk", "sort",
          "kthvalue", "median")
_ADDS = "cumsum", "sum", "prod"


def _of_many(w, name, a, x, y):
    """Of sums and products of several: all that a sum may have on its way is within its ends."""
    count = int(y.shape[a.dim % len(y.shape)]) if name == "cumsum" else \
        math.prod(map(int, a.self.shape)) // math.prod(map(int, y.shape))
    if name != "prod":
        return [end * times for end in x for times in (1, count)]
    most = max(map(abs, x)) ** count
    return [-most if x[0] < 0 else 0, most]


def _ends_of(w, name, a, y):
    other = next((a[key] for key in ("other", "value", "src", "exponent") if key in a), None)
    require(name != "pow" or number_of(w, other) is not None,
            "of whole numbers to a power that is computed, which float32 rounds")
    if name in ("max", "min") and other is not None:
        name += "imum"
    if name == "mul" and a.self is other:
        name, other = "square", None
    given = [_range_of(w, a.self), *([] if other is None else [_range_of(w, other)])]
    if not all(given) or a.get("alpha", 1) != 1:
        return None
    if name in _TAKES:
        return given[0]
    if name in _CHOOSES:
        return _CHOOSES[name](a, *given)
    require(all(abs(end) <= _EXACT for ends in given for end in ends), "of whole numbers that may "
            "pass 2^24, which float32 rounds: clamp says how large they are")
    return _of_many(w, name, a, given[0], y) if name in _ADDS else _COMPUTES[name](a, *given)


def note_range(w, name, a, y):
    """y, of whole numbers, is what the op `name` makes of others: how large are they?"""
    if not isinstance(y, Value) or y.name in w.tokens or y.name in w.truths:
        return
    ends = None
    if name in (*_CHOOSES, *_COMPUTES, *_TAKES, *_ADDS):
        ends = _ends_of(w, name, a, y)
        require(ends or w.guesses or name not in _SPLITS,
                "of whole numbers whose size is not known: float32 is exact to 2^24 alone")
    if ends:
        require(name in _CHOOSES or name in _TAKES or max(map(abs, ends)) <= _EXACT,
                "its whole numbers pass 2^24, which float32 rounds")
        whole(w, y, min(ends), max(ends))
    elif w.guesses:
        w.tokens[y.name] = set()

# ---- division


def _modulo(op):
    def run(w, a, shape):
        number = number_of(w, a.other)
        require(number and math.isfinite(number), "by what is no number other than 0")
        return same(w, op, a.self, shape, number=number)
    return run


op_remainder, op_fmod = _modulo("remainder"), _modulo("fmod")
op_floor_divide = _modulo("floor_divide")


def _divided_to_zero(w, x, number):
    """What fmod leaves is taken off first, so that nothing is rounded."""
    off = binary(w, "subtract", x, same(w, "fmod", x, x.shape, number=number), x.shape)
    return same(w, "floor_divide", off, x.shape, number=number)


def op_div(w, a, shape):
    number, mode = number_of(w, a.other), a.get("rounding_mode")
    if mode == "floor":
        return op_floor_divide(w, a, shape)
    if mode == "trunc":
        require(number and number.is_integer(), "division that rounds towards 0, by other than a "
                                                "whole number")
        return _divided_to_zero(w, w.value(a.self), number)
    y = _quotient(w, a, number, shape)
    if number and number.is_integer() and isinstance(a.self, Value):
        w.quotients[y.name] = a.self, number
    if isinstance(y, Value) and (not number or abs(math.frexp(number)[0]) != 0.5):
        w.fallen_short.add(y.name)
    return y


def _quotient(w, a, number, shape):
    if number is not None:
        return same(w, "multiply_number", a.self, shape, number=1 / number)
    if isinstance(a.other, w.torch.Tensor):
        below = a.other.reciprocal()
    else:
        below = same(w, "reciprocal", a.other, a.other.shape)
    number = number_of(w, a.self)
    if number is not None:
        return same(w, "multiply_number", below, shape, number=number)
    return binary(w, "multiply", a.self, below, shape)


def quotient_of(w, x):
    """Of x / number, with a whole number, the two: rounded down or towards 0 it is computed of
    them, since the product with the inverse may fall short of a whole number by a rounding."""
    return w.quotients.get(getattr(x, "name", None))


def _divided_up(w, x, number):
    y = same(w, "floor_divide", x, x.shape, number=-number)
    return same(w, "multiply_number", y, x.shape, number=-1)


def _divided_down(w, x, number):
    return same(w, "floor_divide", x, x.shape, number=number)


_ROUNDS = {"floor": (_divided_down, operator.floordiv), "trunc": (_divided_to_zero, _to_zero),
           "ceil": (_divided_up, lambda i, number: -(i // -number))}


def rounded(w, quotient, op):
    """A quotient of those two rounded in this way: a whole number where x is one."""
    (x, number), (divide, how) = quotient, _ROUNDS[op]
    y, ends = divide(w, x, number), _range_of(w, x)
    if is_whole(w, x) and ends and max(map(abs, ends)) <= _EXACT:
        whole(w, y, *sorted(how(end, int(number)) for end in ends))
    elif is_whole(w, x) and not ends and w.guesses:
        w.tokens[y.name] = set()
    return y


def _rounds(op):
    def run(w, a, shape):
        quotient = quotient_of(w, a.self)
        return rounded(w, quotient, op) if quotient else same(w, op, a.self, shape)
    return run


op_trunc, op_ceil = _rounds("trunc"), _rounds("ceil")  # floor: _export_random.py
op_fix = op_trunc


def as_whole(w, x):
    """x.long(), of a value of any size: towards 0, without a gradient."""
    if is_whole(w, x):
        return x
    require(quotient_of(w, x) or x.name not in w.fallen_short, "of a quotient that Duet rounds "
            "otherwise: divide by //, or multiply by the inverse")
    y = detached(w, op_trunc(w, Bound(self=x), x.shape))
    if not is_whole(w, y):
        whole(w, y, -math.inf, math.inf)
    return y


def is_whole(w, x):
    return x.name in w.tokens or x.name in w.truths

# ---- bits


def _power_of_two(op):
    """x >> n and x << n, as // and * of 2^n."""
    def run(w, a, shape):
        number = number_of(w, a.other)
        require(number is not None and 0 <= number <= 24, "by what is no number from 0 to 24")
        return same(w, op, a.self, shape, number=2 ** int(number))
    return run


op___rshift__ = op_bitwise_right_shift = _power_of_two("floor_divide")
op___lshift__ = op_bitwise_left_shift = _power_of_two("multiply_number")
