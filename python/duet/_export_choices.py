"""Comparisons, choices and maxima: see _export_ops.py. PyTorch's bool is a value of 1 and 0."""

from ._export_graph import Filled, N, Value
from ._export_ops import Bound, binary, clamped, number_of, op_sum, pair_of, require, same
from ._export_wholes import whole


# ---- comparisons

def _not(w, x):
    return w.emit("equal", [x], x.shape, x.lifted, number=0)


_LARGEST = 3.4028234663852886e+38  # of float32


def _finite(w, x):
    """Of infinities the difference would be none."""
    if isinstance(x, w.torch.Tensor):
        return x.clamp(-_LARGEST, _LARGEST) if x.is_floating_point() else x
    if isinstance(x, Filled) or isinstance(x, Value) and (x.name in w.truths or
                                                          x.name in w.wholes):
        return x
    return same(w, "clamp", x, x.shape, min=-_LARGEST, max=_LARGEST)


def _difference(w, a, b, shape):
    """a - b, and the number with which it is compared: b where that is a number."""
    number = number_of(w, b)
    if number is not None:
        return w.value(a), number
    if number_of(w, a) is not None:
        return w.emit("multiply_number", [w.value(b)], shape, w.value(b).lifted, number=-1), \
            -number_of(w, a)
    return binary(w, "subtract", _finite(w, a), _finite(w, b), shape), 0


def _compare(op, turned, negated):
    """turned: -x in place of x, for what is below; negated: not, for what is no such thing."""
    def run(w, a, shape):
        x, number = _difference(w, a.self, a.other, shape)
        if turned:
            x, number = w.emit("multiply_number", [x], shape, x.lifted, number=-1), -number
        y = w.emit(op, [x], shape, x.lifted, number=number)
        return _not(w, y) if negated else y
    return run


op_eq, op_ne = _compare("equal", False, False), _compare("equal", False, True)
op_gt, op_lt = _compare("above", False, False), _compare("above", True, False)
op_ge, op_le = _compare("above", True, True), _compare("above", False, True)


def op_logical_not(w, a, shape):
    return _not(w, w.value(a.self))


def _truths(w, a, *names):
    """Operands that are bool, of which some may be constants."""
    for name in names:
        x = a[name]
        require(isinstance(x, w.torch.Tensor) and x.dtype is w.torch.bool or name in w.bools and
                isinstance(x, Value) and x.name in w.truths, "it works on bits, not on bool")


def op_bitwise_not(w, a, shape):
    _truths(w, a, "self")
    return op_logical_not(w, a, shape)


def op_bitwise_and(w, a, shape):
    """Of whole numbers & 2^n - 1 is what the division by 2^n leaves."""
    number = number_of(w, a.other)
    if w.makes_whole and number is not None and (number + 1).hex().startswith("0x1.0000000000000p"):
        return same(w, "remainder", a.self, shape, number=number + 1)
    _truths(w, a, "self", "other")
    y = binary(w, "multiply", a.self, a.other, shape)
    w.truths.add(y.name)
    return y


def op_bitwise_or(w, a, shape):
    _truths(w, a, "self", "other")
    y = binary(w, "add", a.self, a.other, shape)
    return w.emit("above", [y], shape, y.lifted, number=0)


op_logical_and = op___and__ = op_bitwise_and
op_logical_or = op___or__ = op_bitwise_or


def op_sign(w, a, shape):
    x = w.value(a.self)
    minus = w.emit("multiply_number", [x], shape, x.lifted, number=-1)
    above, below = (w.emit("above", [y], shape, x.lifted, number=0) for y in (x, minus))
    return w.emit("subtract", [above, below], shape, x.lifted)

# ---- choices


def _where(w, condition, a, b, shape):
    """a and b may be numbers, of which the line has room for one."""
    a, b = (x.number if isinstance(x, Filled) else x for x in (a, b))
    if number_of(w, a) is not None and number_of(w, b) is not None:
        b = w.torch.full([1], number_of(w, b))
    operands = [condition, a, b]
    terms = [x for x in operands if number_of(w, x) is None]
    ranks = [len(x.shape) for x in terms if isinstance(x, Value) and not x.lifted]
    if ranks:
        terms = [w.aligned(x, max(ranks)) for x in terms]
    else:
        most = max(len(x.shape) for x in terms)
        terms = [w.value(x) for x in terms]
        terms = [x if len(x.shape) == most else
                 w.emit("reshape", [x], [1] * (most - len(x.shape)) + x.shape, True) for x in terms]
    rest, numbers = iter(terms), [number_of(w, x) for x in operands]
    lines = [next(rest) if n is None else None for n in numbers]
    value = next((n for n in numbers if n is not None), None)
    y = w.emit("where", lines, shape, terms[0].lifted, **({} if value is None else
                                                           {"value": value}))
    if all(isinstance(x, Value) and x.name in w.truths for x in terms) and value in (None, 0, 1):
        w.truths.add(y.name)
    return y


def op_where(w, a, shape):
    require("self" in a, "without two operands to choose from")
    return _where(w, a.condition, a.self, a.other, shape)


def op_clamp(w, a, shape):
    """The least first, then the largest. What is equal to a tensor shares its gradient with it, as
    PyTorch has it since 2.12."""
    bounds = {name: a[name] for name in ("min", "max") if a.get(name) is not None}
    if not any(hasattr(bound, "shape") for bound in bounds.values()):
        return clamped(w, a, shape)
    x = a.self
    for name, bound in bounds.items():
        x = (op_maximum if name == "min" else op_minimum)(w, Bound(self=x, other=bound), shape)
    return x


op_clip = op_clamp_min = op_clamp_max = op_clamp


def op_masked_fill(w, a, shape):
    value = number_of(w, a.value)
    require(value is not None, "its value is no number")
    return _where(w, a.mask, value, a.self, shape)


def op_fill(w, a, shape):
    value = number_of(w, a.value)
    require(value is not None, "its value is no number")
    return Filled(value, shape) if any(isinstance(d, N) for d in shape) else \
        w.torch.full(shape, value)


def _filled(number):
    def run(w, a, shape):
        what = float(a.fill_value if number is None else number)
        if any(isinstance(d, N) for d in shape):
            return Filled(what, shape)
        return w.torch.full(shape, what, dtype=a.get("dtype") or (
            w.torch.int64 if w.makes_whole else w.torch.float32))
    return run


op_new_empty = op_empty_like = op_zeros_like = op_new_zeros = _filled(0)
op_ones_like, op_new_ones, op_full_like, op_new_full = (
    _filled(1), _filled(1), _filled(None), _filled(None))


def op_maximum(w, a, shape):
    """Of equal operands each gets half of the gradient."""
    x, y = pair_of(w, a.self, a.other)
    above = op_gt(w, Bound(self=x, other=y), shape)
    equal = op_eq(w, Bound(self=x, other=y), shape)
    total = binary(w, "add", x, y, shape)
    half = w.emit("multiply_number", [total], shape, x.lifted, number=0.5)
    return _where(w, equal, half, _where(w, above, x, y, shape), shape)


def op_minimum(w, a, shape):
    x, y = (same(w, "multiply_number", v, v.shape, number=-1) for v in pair_of(w, a.self, a.other))
    most = op_maximum(w, Bound(self=x, other=y), shape)
    return same(w, "multiply_number", most, shape, number=-1)

# ---- maxima


def _largest(w, x, dims):
    """With the dimensions kept; the first of equal maxima has the gradient."""
    rank = len(x.shape)
    order = [d for d in range(rank) if d not in dims] + dims
    turned = [x.shape[d] for d in order]
    kept, count = turned[:rank - len(dims)], 1
    for size in turned[rank - len(dims):]:
        count *= size
    if order != list(range(rank)):
        lines = [0, *(d + 1 for d in order)] if x.lifted else order
        x = w.emit("permute", [x], turned, x.lifted, order=lines)
    rows = 1
    for size in (kept if x.lifted else kept[1:]):
        rows *= size
    lead = [] if x.lifted else [kept[0]]
    y = w.emit("reshape", [x], [*lead, rows, 1, count], x.lifted)
    y = w.emit("adaptive_max_pool2d", [y], [*lead, rows, 1, 1], x.lifted, size=[1, 1])
    return w.emit("reshape", [y], kept, x.lifted)


def _dims_of(w, a):
    x = w.value(a.self)
    dims = a.get("dim")
    dims = range(len(x.shape)) if dims is None or dims == [] else \
        [dims] if isinstance(dims, int) else dims
    dims = sorted(d % len(x.shape) for d in dims)
    require(x.lifted or 0 not in dims, "it mixes samples: dim has 0")
    return x, dims


def op_max(w, a, shape):
    """The values, and if they are asked for the indices."""
    if "other" in a:
        return op_maximum(w, a, shape)
    require("dim" in a, "it mixes samples: give dim")
    x, dims = _dims_of(w, a)
    y = _largest(w, x, dims)
    return [w.emit("reshape", [y], shape[0], y.lifted) if a.get("keepdim") else y,
            op_argmax(w, a, shape[1]) if 1 in w.asked else None]


def op_min(w, a, shape):
    if "other" in a:
        return op_minimum(w, a, shape)
    require("dim" in a, "it mixes samples: give dim")
    minus = same(w, "multiply_number", a.self, a.self.shape, number=-1)
    y, index = op_max(w, Bound(a, self=minus), shape)
    return [same(w, "multiply_number", y, shape[0], number=-1), index]


def op_amax(w, a, shape):
    """All that are equal to the maximum share its gradient, which whole numbers have not."""
    x, dims = _dims_of(w, a)
    if w.makes_whole:
        y = _largest(w, x, dims)
        return w.emit("reshape", [y], shape, y.lifted) if a.keepdim else y
    one = [1 if d in dims else n for d, n in enumerate(x.shape)]
    most = w.emit("reshape", [_largest(w, x, dims)], one, x.lifted)
    equal = op_eq(w, Bound(self=x, other=most), x.shape)
    chosen = w.emit("where", [equal, x, None], x.shape, x.lifted, value=0)
    total, count = (op_sum(w, Bound(self=v, dim=dims, keepdim=a.keepdim), shape)
                    for v in (chosen, equal))
    return binary(w, "multiply", total, w.emit("reciprocal", [count], shape, count.lifted), shape)


def op_argmax(w, a, shape):
    """The first of equal maxima: of the places that hold it the one with the most behind it. It has
    no gradient."""
    require(a.get("dim") is not None, "it mixes samples: give dim")
    x, (dim,) = _dims_of(w, a)
    count, rank = x.shape[dim], len(x.shape)
    one = [1 if d == dim else n for d, n in enumerate(x.shape)]
    most = w.emit("reshape", [_largest(w, x, [dim])], one, x.lifted)
    equal = op_eq(w, Bound(self=x, other=most), x.shape)
    behind = w.torch.arange(count, 0, -1.0)
    behind = behind.reshape([count if d == dim else 1 for d in range(rank)])
    y = _largest(w, binary(w, "multiply", equal, behind, x.shape), [dim])
    y = w.emit("multiply_number", [y], y.shape, y.lifted, number=-1)
    y = w.emit("add_number", [y], y.shape, y.lifted, number=count)
    if a.get("keepdim"):
        y = w.emit("reshape", [y], shape, y.lifted)
    whole(w, y, 0, count - 1)
    return y


def op_argmin(w, a, shape):
    minus = same(w, "multiply_number", a.self, a.self.shape, number=-1)
    return op_argmax(w, Bound(a, self=minus), shape)


def op_amin(w, a, shape):
    minus = same(w, "multiply_number", a.self, a.self.shape, number=-1)
    return same(w, "multiply_number", op_amax(w, Bound(a, self=minus), shape), shape, number=-1)
