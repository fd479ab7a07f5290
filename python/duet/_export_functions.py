"""Functions that are several lines each: of numbers, along a dimension, diagonals, and pictures
that are sampled at computed places. See _export_ops.py."""

from ._export_choices import _where as where, op_amax, op_amin, op_eq, op_maximum
from ._export_ops import Bound, binary, clamped, line_dim, op_sum, require, root, same, times
from ._export_pools import op_cumsum
from ._export_shapes import op_permute


def _half_of(sign):
    """(e^x + e^-x) / 2, or their difference."""
    def run(w, a, shape):
        up = same(w, "exp", a.self, shape)
        return times(w, binary(w, sign, up, same(w, "reciprocal", up, shape), shape), 0.5)
    return run


op_sinh, op_cosh = _half_of("subtract"), _half_of("add")


def op_hypot(w, a, shape):
    squares = [binary(w, "multiply", x, x, list(x.shape)) for x in (a.self, a.other)]
    return root(w, binary(w, "add", *squares, shape))


def op_logaddexp(w, a, shape):
    """Less than the larger of both, so that no exponential is too large; of two -inf it is -inf."""
    most = op_maximum(w, a, shape)
    none = op_eq(w, Bound(self=most, other=float("-inf")), shape)
    most = where(w, none, 0.0, most, shape)
    parts = [same(w, "exp", binary(w, "subtract", x, most, shape), shape)
             for x in (a.self, a.other)]
    total = where(w, none, 1.0, binary(w, "add", *parts, shape), shape)
    y = binary(w, "add", most, same(w, "log", total, shape), shape)
    return where(w, none, float("-inf"), y, shape)


def op_aminmax(w, a, shape):
    require(a.dim is not None, "it mixes samples: give dim")
    given = Bound(self=a.self, dim=[a.dim], keepdim=a.keepdim)
    return [op_amin(w, given, shape[0]), op_amax(w, given, shape[1])]


# ---- along a dimension

def op_cumprod(w, a, shape):
    """Each place times the one 1, 2, 4, .. in front of it, until there is none."""
    x, dim = w.value(a.self), a.dim % len(shape)
    require(dim or x.lifted, "of samples")
    length, step = shape[dim], 1
    while step < length:
        ones = w.torch.ones([step if d == dim else int(n) if d else 1 for d, n in enumerate(shape)])
        ones = w.value(ones) if x.lifted else w.aligned(ones, len(shape))
        rest = [length - step if d == dim else n for d, n in enumerate(shape)]
        before = w.emit("narrow", [x], rest, x.lifted, dim=line_dim(x, dim), start=0,
                        length=length - step)
        before = w.emit("cat", [ones, before], shape, x.lifted, dim=line_dim(x, dim))
        x, step = w.emit("multiply", [x, before], shape, x.lifted), 2 * step
    return x


def op_logcumsumexp(w, a, shape):
    x, dim = w.value(a.self), a.dim % len(shape)
    one = [1 if d == dim else n for d, n in enumerate(shape)]
    most = op_amax(w, Bound(self=x, dim=[dim], keepdim=True), one)
    most = w.emit("detach", [most], one, most.lifted)
    parts = same(w, "exp", binary(w, "subtract", x, most, shape), shape)
    total = op_cumsum(w, Bound(self=parts, dim=dim), shape)
    return binary(w, "add", same(w, "log", total, shape), most, shape)


def op_diagonal(w, a, shape):
    """All other places are 0 in a sum over the second dimension."""
    x, rank = w.value(a.self), len(a.self.shape)
    two = [d % rank for d in (a.dim1, a.dim2)]
    require(x.lifted or 0 not in two, "of samples")
    order = [d for d in range(rank) if d not in two] + two
    x = op_permute(w, Bound(self=x, dims=order), [x.shape[d] for d in order])
    rows, columns = (int(n) for n in x.shape[-2:])
    places = w.torch.arange(columns) - w.torch.arange(rows)[:, None] == a.offset
    x = binary(w, "multiply", x, places.float(), list(x.shape))
    y = op_sum(w, Bound(self=x, dim=[rank - 1]), [*shape[:-1], rows])
    if rows == int(shape[-1]):
        return y
    return w.emit("narrow", [y], shape, y.lifted, dim=line_dim(y, len(shape) - 1),
                  start=max(-a.offset, 0), length=int(shape[-1]))


# ---- pictures at computed places

def _places(w, grid, axis, size, a):
    """(N, places): where on a side of `size` pixels, in the order of PyTorch's roundings."""
    n, rows, columns, _ = grid.shape
    x = w.emit("narrow", [grid], [n, rows, columns, 1], dim=3, start=axis, length=1)
    x = w.emit("reshape", [x], [n, rows * columns])
    x = w.emit("add_number", [x], x.shape, number=1)
    if a.align_corners:
        x = times(w, times(w, x, 0.5), size - 1)
    else:
        x = times(w, w.emit("add_number", [times(w, x, size)], x.shape, number=-1), 0.5)
    if a.padding_mode == 1:  # at the border and outside there is no gradient
        x = times(w, w.emit("relu", [x], x.shape), -1)
        x = w.emit("relu", [w.emit("add_number", [x], x.shape, number=size - 1)], x.shape)
        x = w.emit("add_number", [times(w, x, -1)], x.shape, number=size - 1)
    return x


def _shares(w, x, size, mode):
    """(N, places, size): how much each pixel of a side counts."""
    n, count = x.shape
    wide = [n, count, size]

    def of(x):
        return w.emit("reshape", [x], [n, count, 1])

    def at(x):
        return op_eq(w, Bound(self=of(x), other=w.torch.arange(size)), wide)
    if mode == 1:
        return at(w.emit("round", [x], x.shape))
    first = w.emit("floor", [x], x.shape)
    part = w.emit("subtract", [x, first], x.shape)
    rest = w.emit("add_number", [times(w, part, -1)], x.shape, number=1)
    behind = w.emit("add_number", [first], x.shape, number=1)
    shares = [binary(w, "multiply", at(places), of(share), wide)
              for places, share in ((first, rest), (behind, part))]
    return w.emit("add", shares, wide)


def op_grid_sampler(w, a, shape):
    """The rows of pixels that a place lies between, by those that it lies between in them."""
    require(len(shape) == 4, "of volumes")
    require(a.interpolation_mode < 2, "mode='bicubic'")
    require(a.padding_mode < 2, "padding_mode='reflection'")
    x, grid = (w.aligned(v, 4) for v in (w.value(a.input), w.value(a.grid)))
    n, channels, height, width = x.shape
    across, down = (_shares(w, _places(w, grid, axis, size, a), size, a.interpolation_mode)
                    for axis, size in ((0, int(width)), (1, int(height))))
    count = down.shape[1]
    across = w.emit("transpose", [across], [n, width, count], dim0=1, dim1=2)
    down = w.emit("transpose", [down], [n, height, count], dim0=1, dim1=2)
    rows = w.emit("reshape", [x], [n, channels * height, width])
    rows = w.emit("matmul", [rows, across], [n, channels * height, count])
    rows = w.emit("reshape", [rows], [n, channels, height, count])
    down = w.emit("reshape", [down], [n, 1, height, count])
    y = op_sum(w, Bound(self=binary(w, "multiply", rows, down, rows.shape), dim=[2]),
               [n, channels, count])
    return w.emit("reshape", [y], shape)


def op_binary_cross_entropy(w, a, shape):
    """A logarithm is -100 at least, as PyTorch has it; there it has no gradient."""
    require(a.get("reduction", 1) == 0, "it mixes samples: reduction='none' does not")

    def less(x):
        return same(w, "add_number", times(w, x, -1), shape, number=1)

    def log(x):
        x = same(w, "log", clamped(w, Bound(self=x, min=1e-44), shape), shape)
        return clamped(w, Bound(self=x, min=-100.0), shape)
    x, t = w.value(a.self), w.value(a.target)
    y = binary(w, "add", binary(w, "multiply", log(x), t, shape),
               binary(w, "multiply", log(less(x)), less(t), shape), shape)
    weight = a.get("weight")
    return times(w, y if weight is None else binary(w, "multiply", y, weight, shape), -1)
