"""What the ops of PyTorch are in a graph of Duet: op_NAME(w, a, shape) writes the lines of
aten::NAME with the arguments `a`, whose result has this shape, and returns its value. Here are
those that compute element by element, and sums; others are in _export_choices.py,
_export_layers.py and the files beside it."""

import math

from . import _export_turned as turning
from ._export_graph import Filled, N, Refused, Stacked, Stored, Uniform, Value


class Bound(dict):
    """The arguments of a call, by the names of its schema."""

    __getattr__ = dict.__getitem__


def require(condition, why):
    if not condition:
        raise Refused(why)


def pair(x):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * 2 if len(x) == 1 else x


def triple(x):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * 3 if len(x) == 1 else x


def line_dim(x, dim):
    """A dimension of the value as its line has it."""
    return dim % len(x.shape) + (1 if x.lifted else 0)


def same(w, op, x, shape, **settings):
    if isinstance(x, turning.Turned):
        return turning.inside(lambda x: same(w, op, x, x.shape, **settings), x)
    x = w.value(x)
    return w.emit(op, [x], shape, x.lifted, **settings)


# ---- elementwise

def _elementwise(op):
    def run(w, a, shape):
        return same(w, op, a.self if "self" in a else a.input, shape)
    return run


op_relu, op_tanh, op_sigmoid = _elementwise("relu"), _elementwise("tanh"), _elementwise("sigmoid")
op_exp, op_log = _elementwise("exp"), _elementwise("log")
op_sqrt, op_reciprocal = _elementwise("sqrt"), _elementwise("reciprocal")
op_relu6 = _elementwise("relu6")


def op_leaky_relu(w, a, shape):
    return same(w, "leaky_relu", a.self, shape, slope=a.negative_slope)


def op_elu(w, a, shape):
    require(a.input_scale == 1, "a scaled input of ELU")
    return times(w, same(w, "elu", a.self, shape, alpha=a.alpha), a.scale)


def op_hardtanh(w, a, shape):
    return same(w, "hardtanh", a.self, shape, min=a.min_val, max=a.max_val)


def op_gelu(w, a, shape):
    return same(w, "gelu", a.self, shape, tanh=int(a.approximate == "tanh"))


def op_softplus(w, a, shape):
    require(a.threshold == 20 and a.beta > 0, "softplus with another threshold than 20")
    y = same(w, "softplus", times(w, a.self, a.beta), shape)
    return times(w, y, 1 / a.beta)


op_silu, op_hardswish = _elementwise("silu"), _elementwise("hardswish")
op_hardsigmoid, op_erf = _elementwise("hardsigmoid"), _elementwise("erf")
op_sin, op_cos = _elementwise("sin"), _elementwise("cos")


def op_round(w, a, shape):
    require(not a.get("decimals"), "to decimals, which float32 has not")
    return same(w, "round", a.self, shape)


def op_tan(w, a, shape):
    slope = same(w, "reciprocal", same(w, "cos", a.self, shape), shape)
    return binary(w, "multiply", same(w, "sin", a.self, shape), slope, shape)


def op_frac(w, a, shape):
    return binary(w, "subtract", a.self, same(w, "trunc", a.self, shape), shape)


def clamped(w, a, shape):
    """By numbers."""
    low, high = (x if x is None else number_of(w, x) for x in (a.get("min"), a.get("max")))
    require((low is None) == (a.get("min") is None) and (high is None) == (a.get("max") is None),
            "its bounds are no numbers")
    if low is not None and high is not None:
        low = min(low, high)
    return same(w, "clamp", a.self, shape, **({} if low is None else {"min": low}),
                **({} if high is None else {"max": high}))


def op_log_sigmoid(w, a, shape):
    minus = same(w, "multiply_number", a.self, shape, number=-1)
    return same(w, "multiply_number", same(w, "softplus", minus, shape), shape, number=-1)


def op_log1p(w, a, shape):
    return same(w, "log", same(w, "add_number", a.self, shape, number=1), shape)


def _logarithm(base):
    def run(w, a, shape):
        return times(w, same(w, "log", a.self, shape), 1 / math.log(base))
    return run


op_log2, op_log10 = _logarithm(2), _logarithm(10)


def op_expm1(w, a, shape):
    return same(w, "add_number", same(w, "exp", a.self, shape), shape, number=-1)


def op_prelu(w, a, shape):
    weight = a.weight
    if isinstance(weight, Stored) and len(weight.shape) == 1 and len(shape) > 1:
        weight = Stored(weight.name, [*weight.shape, *[1] * (len(shape) - 2)], weight.of)
    require(isinstance(weight, Stored) or len(shape) < 3 or weight.shape[-1] == 1,
            "its weight is computed, not a parameter as it is")
    below = binary(w, "multiply", a.self, weight, shape)  # at 0 the slope is the weight
    x = w.value(a.self)
    above = w.emit("above", [x], shape, x.lifted, number=0)
    return w.emit("where", [above, x, below], shape, x.lifted)


def detached(w, x):
    """What has no gradient anyway stays what it is."""
    if isinstance(x, Stacked):
        return Stacked(detached(w, one) for one in x)
    if not isinstance(x, (Value, Stored, turning.Turned)) or \
            isinstance(x, Value) and x.name not in w.trained:
        return x
    if isinstance(x, turning.Turned):
        return turning.inside(lambda x: detached(w, x), x)
    x = w.value(x)
    return w.emit("detach", [x], x.shape, x.lifted)


def op_detach(w, a, shape):
    return detached(w, a.self)


def op_rsqrt(w, a, shape):
    return same(w, "reciprocal", same(w, "sqrt", a.self, shape), shape)


def op_neg(w, a, shape):
    return same(w, "multiply_number", a.self, shape, number=-1)


def op_pow(w, a, shape):
    power, base = number_of(w, a.exponent), number_of(w, a.self)
    if base is not None and base > 0:
        return same(w, "exp", times(w, a.exponent, math.log(base)), shape)
    require(power is not None and base is None, "to a power that is no number")
    if power == 0.5:
        return same(w, "sqrt", a.self, shape)
    if power == 2:
        return op_square(w, a, shape)
    return same(w, "pow", a.self, shape, exponent=power)


def _dropout(op):
    def run(w, a, shape):
        given = a.self if "self" in a else a.input  # dropout_ names it otherwise
        if not a.train or not a.p:
            return given
        x = given if isinstance(given, turning.Turned) else w.value(given)
        require(not x.lifted, "dropout of a tensor without samples: each sample would draw its own")
        return same(w, op, x, shape, p=a.p)
    return run


op_dropout, _dropout_of_planes = _dropout("dropout"), _dropout("dropout2d")


def op_feature_dropout(w, a, shape):
    """Of sequences and of volumes as of planes of one row."""
    x = a.self if "self" in a else a.input
    if len(shape) == 4 or not a.train or not a.p:
        return _dropout_of_planes(w, a, shape)
    require(len(shape) > 2, "of what has no planes")
    n, channels, *places = shape
    x = same(w, "reshape", x, [n, channels, 1, math.prod(places)])
    y = _dropout_of_planes(w, Bound(a, self=x), x.shape)
    return w.emit("reshape", [y], shape)

# ---- arithmetic

def number_of(w, x):
    """A number, or a constant of one number; else None."""
    require(not isinstance(x, N), "it computes with the number of samples")
    if isinstance(x, (int, float)) and not isinstance(x, N):
        return float(x)
    if isinstance(x, w.torch.Tensor) and x.numel() == 1 and x.dim() == 0:
        return float(x)
    return None


def pair_of(w, a, b):
    """Two operands with as many dimensions."""
    a, b = (w.value(x) if isinstance(x, Filled) else x for x in (a, b))

    def rank(x):
        return len(x.shape)
    lifted = [not isinstance(x, Value) or x.lifted for x in (a, b)]
    if all(lifted):
        a, b = w.value(a), w.value(b)
        most = max(rank(a), rank(b))
        return [x if rank(x) == most else
                w.emit("reshape", [x], [1] * (most - rank(x)) + x.shape, True) for x in (a, b)]
    most = max(rank(x) for x, up in zip((a, b), lifted) if not up)
    return [w.aligned(x, most) for x in (a, b)]


def binary(w, op, a, b, shape):
    a, b = (w.value(x) if isinstance(x, Uniform) else x for x in (a, b))
    if isinstance(a, turning.Turned) or isinstance(b, turning.Turned):
        return turning.binary(w, op, a, b)
    a, b = pair_of(w, a, b)
    return w.emit(op, [a, b], shape, a.lifted)


def times(w, x, number):
    return x if number == 1 else same(w, "multiply_number", x, x.shape, number=number)


def op_add(w, a, shape, sign=1):
    number = number_of(w, a.other)
    if isinstance(a.self, Uniform) and number is not None:
        return Uniform(shape, a.self.low + sign * a.alpha * number, a.self.drawn)
    if number is not None:
        return same(w, "add_number", a.self, shape, number=sign * a.alpha * number)
    if number_of(w, a.self) is not None:
        return same(w, "add_number", times(w, a.other, sign * a.alpha), shape,
                     number=number_of(w, a.self))
    if a.alpha == 1:
        return binary(w, "add" if sign == 1 else "subtract", a.self, a.other, shape)
    return binary(w, "add", a.self, times(w, a.other, sign * a.alpha), shape)


def op_sub(w, a, shape):
    return op_add(w, a, shape, -1)


def op_rsub(w, a, shape):
    return op_add(w, Bound(self=a.other, other=a.self, alpha=a.alpha), shape, -1)


def op_mul(w, a, shape):
    for x, other in ((a.self, a.other), (a.other, a.self)):
        number = number_of(w, other)
        if number is not None:
            return same(w, "multiply_number", x, shape, number=number)
    return binary(w, "multiply", a.self, a.other, shape)


def op_lerp(w, a, shape):
    off = binary(w, "subtract", a.end, a.self, shape)
    number = number_of(w, a.weight)
    part = times(w, off, number) if number is not None else binary(w, "multiply", off, a.weight,
                                                                    shape)
    return binary(w, "add", a.self, part, shape)


def op_square(w, a, shape):
    x = a.self if isinstance(a.self, turning.Turned) else w.value(a.self)
    return turning.inside(lambda x: w.emit("multiply", [x, x], x.shape, x.lifted), x)

# ---- sums

def _reduce(op):
    def run(w, a, shape):
        dims = a.get("dim")
        if isinstance(a.self, turning.Turned) and dims is not None:
            dims = [dims] if isinstance(dims, int) else dims
            return turning.reduced(w, a.self, op, {d % len(a.self.dims) for d in dims},
                                   a.get("keepdim", False))
        x = w.value(a.self)
        require(dims is not None or x.lifted, "it mixes samples: give dim, without 0")
        dims = range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
        dims = sorted(line_dim(x, d) for d in dims)
        require(0 not in dims, "it mixes samples: dim has 0")
        return w.emit(op, [x], shape, x.lifted, dims=dims, keepdim=int(a.get("keepdim", False)))
    return run


op_mean, op_sum = _reduce("mean"), _reduce("sum")


def _variance(w, a, shape):
    x = w.value(a.self)
    dims = [d % len(x.shape) for d in ([a.dim] if isinstance(a.dim, int) else a.dim)]
    count = 1
    for d in dims:
        count *= x.shape[d]
    one = [1 if d in dims else n for d, n in enumerate(x.shape)]
    mean = op_mean(w, Bound(self=x, dim=dims, keepdim=True), one)
    off = binary(w, "subtract", x, mean, x.shape)
    squares = w.emit("multiply", [off, off], x.shape, x.lifted)
    total = op_sum(w, Bound(self=squares, dim=dims, keepdim=a.keepdim), shape)
    correction = a.get("correction")
    if correction is None:
        correction = int(a.get("unbiased", True))
    return times(w, total, 1 / (count - correction))


op_var = _variance


def root(w, x):
    """The square root, whose gradient at 0 is 0, as PyTorch has it for norms."""
    if isinstance(x, turning.Turned):
        return turning.inside(lambda x: root(w, x), x)
    zero = w.emit("equal", [x], x.shape, x.lifted, number=0)
    safe = w.emit("sqrt", [w.emit("where", [zero, None, x], x.shape, x.lifted, value=1)], x.shape,
                  x.lifted)
    return w.emit("where", [zero, None, safe], x.shape, x.lifted, value=0)


def op_abs(w, a, shape):
    return same(w, "abs", a.self, shape)


def op_std(w, a, shape):
    return root(w, _variance(w, a, shape))


def op_var_mean(w, a, shape):
    return [op_var(w, a, shape[0]),
            op_mean(w, Bound(self=a.self, dim=a.dim, keepdim=a.keepdim), shape[1])]


def op_std_mean(w, a, shape):
    variance, mean = op_var_mean(w, a, shape)
    return [root(w, variance), mean]


def op_linalg_vector_norm(w, a, shape):
    require(number_of(w, a.ord) in (1, 2), f"the norm of order {a.ord}")
    if a.ord == 1:
        return op_sum(w, Bound(a, self=same(w, "abs", a.self, a.self.shape)), shape)
    return root(w, op_sum(w, Bound(a, self=op_square(w, a, a.self.shape)), shape))


def _softmax(op):
    def run(w, a, shape):
        rank = len(a.self.shape)
        d = a.dim % rank
        if isinstance(a.self, turning.Turned):
            return turning.softmax(w, a.self, op, d)
        x = w.value(a.self)
        require(d or x.lifted, "it mixes samples: dim is 0")
        if d == rank - 1:
            return w.emit(op, [x], shape, x.lifted)
        turned = list(shape)
        turned[d], turned[-1] = turned[-1], turned[d]
        places = {"dim0": line_dim(x, d), "dim1": line_dim(x, -1)}
        y = w.emit(op, [w.emit("transpose", [x], turned, x.lifted, **places)], turned, x.lifted)
        return w.emit("transpose", [y], shape, x.lifted, **places)
    return run


op_softmax, op_log_softmax = _softmax("softmax"), _softmax("log_softmax")
op__softmax, op__log_softmax = op_softmax, op_log_softmax
