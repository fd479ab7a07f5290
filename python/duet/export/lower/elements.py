"""Elementwise ops: functions, arithmetic, comparisons, choices, random numbers.
PyTorch's bool is a value of 1 and 0."""

import math

import torch

from ..passes import Const, N, name_of, require
from ..text import LEAST, Value
from . import lower

aten = torch.ops.aten
UNSAMPLED = "it draws numbers that belong to no sample: give it x.shape[0] rows"

# ---- functions of one number

lower(aten.relu, aten.tanh, aten.sigmoid, aten.exp, aten.log, aten.sqrt, aten.reciprocal, aten.abs,
      aten.silu, aten.hardswish, aten.hardsigmoid, aten.erf, aten.sin, aten.cos, aten.relu6)(
    lambda w, a, shape: w.line(w.op[6:], a.self))
for _op, _formula in {
    aten.rsqrt: lambda w, x: w.line("reciprocal", w.line("sqrt", x)),
    aten.neg: lambda w, x: w.times(x, -1),
    aten.expm1: lambda w, x: w.mul(  # accurate near 0, too
        w.line("tanh", w.times(x, 0.5)), w.plus(w.line("exp", x), 1)),
    aten.log2: lambda w, x: w.times(w.line("log", x), 1 / math.log(2)),
    aten.log10: lambda w, x: w.times(w.line("log", x), 1 / math.log(10)),
    aten.exp2: lambda w, x: w.line("exp", w.times(x, math.log(2))),
    aten.sign: lambda w, x: w.sub(w.line("above", x, number=0),
                                  w.line("above", w.times(x, -1), number=0)),
    aten.log_sigmoid: lambda w, x: w.times(w.line("softplus", w.times(x, -1)), -1),
    aten.alias: lambda w, x: x, aten.detach: lambda w, x: w.detach(x),
}.items():
    lower(_op)(lambda w, a, shape, formula=_formula: formula(w, w.value(a.self)))
lower(aten.leaky_relu)(lambda w, a, shape: w.line("leaky_relu", a.self, slope=a.negative_slope))
lower(aten.gelu)(lambda w, a, shape: w.line("gelu", a.self, tanh=int(a.approximate == "tanh")))
lower(aten.elu)(lambda w, a, shape: w.times(w.line("elu", a.self, alpha=a.alpha), a.scale))


@lower(aten.log1p)
def _(w, a, shape):
    """log(1 + x). Near 0 it adds the rounding error of 1 + x, divided by 1 + x."""
    u = w.plus(w.value(a.self), 1)
    off = w.mul(w.sub(a.self, w.plus(u, -1)), w.line("reciprocal", u))
    small = w.line("above", w.times(w.line("abs", a.self), -1), number=-0.5)
    return w.add(w.line("log", u), w.detach(w.where(small, off, 0.0)))


@lower(aten.softplus)
def _(w, a, shape):
    require(a.threshold == 20 and a.beta > 0, "its threshold is not 20: leave threshold out")
    return w.times(w.line("softplus", w.times(a.self, a.beta)), 1 / a.beta)


@lower(aten.round)
def _(w, a, shape):
    require(not a.get("decimals"), "it rounds to decimals: write (x * 100).round() / 100")
    return w.line("round", a.self)


# ---- arithmetic

def _scaled(w, x, alpha):
    return x if alpha == 1 else x * alpha if isinstance(x, (int, float)) else w.times(x, alpha)


lower(aten.add)(lambda w, a, shape: w.add(a.self, _scaled(w, a.other, a.get("alpha", 1))))
lower(aten.sub)(lambda w, a, shape: w.sub(a.self, _scaled(w, a.other, a.get("alpha", 1))))
lower(aten.mul)(lambda w, a, shape: w.mul(a.self, a.other))


def is_whole(x):
    return isinstance(x, int) or not x.dtype.is_floating_point


@lower(aten.div)
def div(w, a, shape):
    """Division by a number multiplies by its inverse, unless its result is then rounded."""
    number, mode = w.number(a.other), a.get("rounding_mode")
    if mode:
        require(number, "its divisor is not a nonzero number: write torch.floor(x / y)")
        x = a.self
        if mode == "trunc":
            require(number.is_integer(), "its divisor is no integer: write torch.trunc(x / y)")
            x = w.sub(x, w.line("fmod", x, number=number))
        return w.line("floor_divide", x, number=number)
    if number is not None:
        return w.times(a.self, 1 / number)
    return w.mul(a.self, Const([1 / t for t in a.other.of], a.other.shape) if isinstance(
        a.other, Const) else w.line("reciprocal", a.other))


@lower(aten.ceil, aten.floor, aten.trunc)
def rounded(w, a, shape):
    node = w.given["self"]
    require(name_of(node) != "div" or not is_whole(node.args[0].meta["val"]),
            "it rounds a quotient of integers, which may be below an integer: write x // n")
    require(name_of(node) != "add" or not any(name_of(x) == "rand" for x in node.args),
            "it rounds random numbers, which are drawn in evaluation too: write torch.bernoulli")
    return w.line("trunc" if "copy" in w.op else w.op[6:], a.self)


@lower(aten.remainder, aten.fmod)
def _(w, a, shape):
    number = w.number(a.other)
    require(number and math.isfinite(number), "it divides by something other than a nonzero "
            "number: write x - y * torch.floor(x / y)")
    return w.line(w.op[6:], a.self, number=number)


@lower(aten.pow)
def _(w, a, shape):
    power, base = w.number(a.exponent), w.number(a.self)
    if base is not None and base > 0:
        require(not is_whole(a.exponent), "its power is a computed integer: write 2.0 ** y.float()")
        return w.line("exp", w.times(a.exponent, math.log(base)))
    require(power is not None and base is None,
            "its power is not a number: write torch.exp(y * torch.log(x)), for x above 0")
    simple = {0.5: lambda x: w.line("sqrt", x), 1: lambda x: x, 2: lambda x: w.mul(x, x)}
    return simple.get(power, lambda x: w.line("pow", x, exponent=power))(a.self)


# ---- comparisons

def _finite(w, x):
    """Clamps to finite numbers, because infinities have no difference."""
    if isinstance(x, Const):
        return Const([t.clamp(LEAST, -LEAST) if t.is_floating_point() else t for t in x.of],
                     x.shape)
    return w.line("clamp", x, min=LEAST, max=-LEAST) if x.dtype.is_floating_point else x


def compare(w, op, a, b, swap=False, negate=False):
    """a OP b: equal, or above. swap: b OP a; negate: not."""
    number, first = w.number(b), w.number(a)
    if number is not None or first is not None:
        x = w.value(a if number is not None else b)
        number, swap = (number, swap) if number is not None else (first, not swap)
        if swap and op == "above":
            x, number = w.times(x, -1), -number
    else:
        a, b = (b, a) if swap else (a, b)
        x, number = w.both("subtract", _finite(w, a), _finite(w, b)), 0
    y = w.line(op, x, number=number)
    return w.line("equal", y, number=0) if negate else y


for _name, _how in {"eq": ("equal",), "ne": ("equal", False, True), "gt": ("above",),
                    "lt": ("above", True), "ge": ("above", True, True),
                    "le": ("above", False, True)}.items():
    lower(getattr(aten, _name))(
        lambda w, a, shape, how=_how: compare(w, how[0], a.self, a.other, *how[1:]))


for _op, _formula in {
    aten.bitwise_not: lambda w, x: w.line("equal", x, number=0),
    aten.bitwise_and: lambda w, x, y: w.mul(x, y),
    aten.bitwise_or: lambda w, x, y: w.line("above", w.add(x, y), number=0),
    aten.bitwise_xor: lambda w, x, y: w.line("equal", w.add(x, y), number=1),
}.items():
    @lower(_op)
    def _(w, a, shape, formula=_formula):
        require(a.self.dtype is torch.bool, "it works on bits: compare first, as x != 0")
        return formula(w, *a.values())


# ---- choices

lower(aten.where)(lambda w, a, shape: w.where(a.condition, a.self, a.other))
lower(aten.maximum)(lambda w, a, shape: maximum(w, a.self, a.other))
lower(aten.minimum)(lambda w, a, shape: minimum(w, a.self, a.other))


def maximum(w, x, y):
    """Each of two equal operands gets half of the gradient."""
    half = w.times(w.add(x, y), 0.5)
    return w.where(compare(w, "equal", x, y), half, w.where(compare(w, "above", x, y), x, y))


def minimum(w, x, y):
    return w.times(maximum(w, w.times(x, -1), w.times(y, -1)), -1)


@lower(aten.clamp)
def _(w, a, shape):
    bounds = {name: a[name] for name in ("min", "max") if a[name] is not None}
    if all(isinstance(bound, (int, float)) for bound in bounds.values()):
        bounds |= {"min": min(bounds.values())} if "min" in bounds else {}
        return w.line("clamp", a.self, **bounds)
    x = maximum(w, a.self, bounds["min"]) if "min" in bounds else a.self
    return minimum(w, x, bounds["max"]) if "max" in bounds else x


# ---- random numbers, separate for each sample; also drawn in evaluation

def _drawn(w, op, shape, **settings):
    """Dropout keeps some of the ones."""
    require(shape and isinstance(shape[0], N), UNSAMPLED)
    axes = [N(1), *([int(shape[0])] if int(shape[0]) > 1 else []), *map(int, shape[1:])]
    ones = [w.emit("expand", [w.constant(torch.ones([*map(int, axes[1:])] or [1]))], axes)
            ] if op == "dropout" else []
    name = w.emit(op, ones, axes, once=False, **settings)
    return Value(name, axes, shape, 0, dtype=torch.float32)


lower(aten.rand, aten.rand_like)(lambda w, a, shape: _drawn(w, "rand", shape))
lower(aten.randn, aten.randn_like)(lambda w, a, shape: _drawn(w, "randn", shape))
lower(aten.normal_functional)(
    lambda w, a, shape: w.plus(w.times(_drawn(w, "randn", shape), a.std), a.mean))


@lower(aten.bernoulli)
def _(w, a, shape):
    """1 with probability p, where a dropout keeps a 1, as in F.dropout2d and stochastic depth. In
    evaluation dropout does nothing, so the value is p, and x / p times p is x."""
    if a.get("p") is None:
        return compare(w, "above", a.self, _drawn(w, "rand", shape))
    return w.times(_drawn(w, "dropout", shape, p=1 - a.p), a.p)


@lower(aten.native_dropout)
def _(w, a, shape):
    if not a.train or not a.p:
        return [a.input, None]
    x = w.dense(w.value(a.input))
    require(x.at is not None or x.shared, UNSAMPLED)
    return [w.line("dropout", x, once=False, p=a.p), None]
