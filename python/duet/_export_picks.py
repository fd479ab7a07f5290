"""Places that are computed, and what is taken from there or put there: gather, scatter, one_hot,
topk, sort; the product over a dimension. See _export_ops.py."""

import math

from ._export_choices import _dims_of, _where, op_argmax, op_eq, op_ge, op_gt
from ._export_graph import Filled, N, Value
from ._export_ops import Bound, binary, line_dim, number_of, op_sum, require, same, times
from ._export_wholes import whole

_MOST = 2.0 ** 127
_MOST_PICKED = 16  # of topk and sort, which have some ten lines for each


def check_places(w, index, count, what, of):
    """That the whole numbers `index` are from 0 to count - 1: an input's as they are then have to
    be, which the command looks after. Of computed ones the ends are known, or will be in the next
    walk."""
    if isinstance(index, w.torch.Tensor):
        low, high = (int(index.min()), int(index.max())) if index.numel() else (0, 0)
    else:
        require(isinstance(index, Value), f"its {what} are no tensor of the samples")
        require(index.name in w.tokens or index.name in w.truths,
                f"its {what} are computed in a way that does not say how large they are: "
                f"clamp(0, {count - 1}) says it")
        low, high = w.range_of(index.name) or (0, count - 1)
        require(high < math.inf, f"its {what} are of any size: clamp(0, {count - 1}) says it")
    require(low >= 0 and high < count, f"its {what} are {low} to {high}, of {count} {of}")
    for name in w.tokens.get(getattr(index, "name", None), ()):
        w.below[name] = min(count, w.below.get(name, count))


def op_one_hot(w, a, shape):
    require(a.num_classes > 0, "without the number of classes")
    x = w.value(a.self)
    check_places(w, x, a.num_classes, "numbers", "classes")
    x = w.emit("reshape", [x], [*x.shape, 1], x.lifted)
    y = op_eq(w, Bound(self=x, other=w.torch.arange(a.num_classes)), shape)
    w.wholes.add(y.name)
    return y


def _cut_to(w, x, shape, dim):
    """x without what lies behind `shape` in other dimensions than dim."""
    for d in range(1, len(shape)):
        if d != dim and int(x.shape[d]) != int(shape[d]):
            kept = [shape[i] if i == d else n for i, n in enumerate(x.shape)]
            x = w.emit("narrow", [x], kept, x.lifted, dim=line_dim(x, d), start=0, length=shape[d])
    return x


def _picked(w, x, index, dim, shape):
    """Each index beside all places of x, of which the sum has the one that it names."""
    count, before, after = x.shape[dim], list(shape[:dim]), list(shape[dim + 1:])
    places = w.torch.arange(count).reshape([count, *[1] * len(after)])
    index = w.emit("reshape", [index], [*before, shape[dim], 1, *after], index.lifted)
    x = w.emit("reshape", [x], [*before, 1, count, *after], x.lifted)
    wide = [*before, shape[dim], count, *after]
    chosen = op_eq(w, Bound(self=index, other=places), wide)
    return op_sum(w, Bound(self=_where(w, chosen, x, 0.0, wide), dim=[dim + 1]), shape)


def op_gather(w, a, shape):
    """A tensor with one number everywhere has it whatever the indices are."""
    x, index, dim = a.self, a.index, a.dim % len(shape)
    if isinstance(x, Filled):
        return Filled(x.number, shape)
    if isinstance(x, w.torch.Tensor) and x.numel() and bool(x.eq(x.flatten()[0]).all()):
        return Filled(x.flatten()[0].item(), shape)
    require(dim, "it picks samples")
    check_places(w, index, int(x.shape[dim]), "indices", "places")
    x, index = (w.aligned(v, len(shape)) for v in (x, index))
    return _picked(w, _cut_to(w, x, shape, dim), index, dim, shape)


def place_of_each(w, x, index, shape):
    """x[torch.arange(N), index]: of each sample one place of dimension 1, or several."""
    require(index[0].is_number and index[0].one.dim() == len(index[1].shape),
            "its places depend on the number of samples")
    x, index = w.value(x), w.value(index[1])
    check_places(w, index, int(x.shape[1]), "indices", "places")
    require(not x.lifted and not index.lifted, "of tensors without samples")
    count, rest = math.prod(map(int, index.shape[1:])), x.shape[2:]
    index = w.emit("reshape", [index], [N(1), count])
    picked = _picked_whole(w, x, index, [N(1), count, *rest])
    return w.emit("reshape", [picked], shape)


def rows_at(w, table, index, shape):
    """Rows of a parameter, which may have dimensions of their own, or of a constant."""
    check_places(w, index, int(table.shape[0]), "indices", "rows")
    flat = [*index.shape, math.prod(map(int, table.shape[1:]))]
    if isinstance(table, w.torch.Tensor):
        ones = w.emit("reshape", [index], [*index.shape, 1], index.lifted)
        ones = op_eq(w, Bound(self=ones, other=w.torch.arange(table.shape[0])),
                     [*index.shape, int(table.shape[0])])
        table = w.constant(table.reshape(table.shape[0], -1))
        y = w.emit("matmul", [ones, table], flat, index.lifted)
    else:
        name = w.parameter(table, "table")
        require(len(table.shape) > 1, "of a parameter of one dimension")
        y = w.emit("embedding", [index, name], flat, index.lifted)
    return w.emit("reshape", [y], shape, index.lifted)


def _picked_whole(w, x, index, shape):
    """Of dimension 1 the places, with all that stands behind them."""
    n, count, *rest = shape
    length, ones = x.shape[1], [1] * len(rest)
    index = w.emit("reshape", [index], [n, count, 1])
    chosen = op_eq(w, Bound(self=index, other=w.torch.arange(length)), [n, count, length])
    chosen = w.emit("reshape", [chosen], [n, count, length, *ones])
    wide = [n, count, length, *rest]
    x = w.emit("reshape", [x], [n, 1, length, *rest])
    terms = (w.emit("expand", [v], wide) if list(v.shape) != wide else v for v in (chosen, x))
    return op_sum(w, Bound(self=_where(w, *terms, 0.0, wide), dim=[2]), shape)


def op_scatter(w, a, shape):
    """Each place beside all indices: where it is one of them it has the value."""
    value, dim = a.get("value", a.get("src")), a.dim % len(shape)
    require(dim, "it puts samples in other places")
    require(a.get("reduce") is None, "with a reduce")
    require([int(n) for d, n in enumerate(a.index.shape) if d != dim] ==
            [int(n) for d, n in enumerate(shape) if d != dim], "into a part of other dimensions")
    check_places(w, a.index, int(shape[dim]), "indices", "places")
    index, count = w.aligned(a.index, len(shape)), int(shape[dim])
    behind = [1] * (len(shape) - dim - 1)
    if index.shape[dim] == 1:
        require(number_of(w, value) is not None or int(value.shape[dim]) == 1,
                "of more values than indices")
        places = w.torch.arange(count).reshape([count, *behind])
        chosen = op_eq(w, Bound(self=index, other=places), shape)
        return _where(w, chosen, value, a.self, shape)
    require(number_of(w, value) is not None, "of several values in a row, of which places may be "
                                             "the same")
    places = w.torch.arange(count).reshape([1, count, *behind])
    before, after = index.shape[:dim + 1], index.shape[dim + 1:]
    index = w.emit("reshape", [index], [*before, 1, *after], index.lifted)
    each = op_eq(w, Bound(self=index, other=places), [*before, count, *after])
    some = op_sum(w, Bound(self=each, dim=[dim]), shape)
    some = w.emit("above", [some], shape, some.lifted, number=0)
    return _where(w, some, value, a.self, shape)


def _largest_places(w, a, shape):
    """The places of the largest, one after the other: each is taken out before the next is looked
    for."""
    require(a.k <= _MOST_PICKED, f"the largest {a.k}: Duet finds {_MOST_PICKED} at most")
    x, (dim,) = _dims_of(w, Bound(self=a.self, dim=a.dim))
    require(isinstance(shape[0], N), "of a tensor without samples")
    # What is taken becomes less than the least that can be left.
    left = same(w, "clamp", x if a.largest else times(w, x, -1), x.shape, min=-_MOST, max=_MOST)
    one = [1 if d == dim else n for d, n in enumerate(x.shape)]
    column = w.torch.arange(x.shape[dim]).reshape([-1, *[1] * (len(x.shape) - dim - 1)])
    found = []
    for _ in range(a.k):
        found.append(op_argmax(w, Bound(self=left, dim=dim, keepdim=True), one))
        if len(found) < a.k:
            out = op_eq(w, Bound(self=found[-1], other=column), x.shape)
            left = _where(w, out, float("-inf"), left, x.shape)
    index = found[0] if a.k == 1 else w.emit("cat", found, shape, dim=dim)
    whole(w, index, 0, x.shape[dim] - 1)
    return index


def op_topk(w, a, shape):
    index, dim = _largest_places(w, a, shape[1]), a.dim % len(shape[0])
    return [_picked(w, w.value(a.self), index, dim, shape[0]) if 0 in w.asked else None, index]


def _all_of(a):
    """sort and argsort as the topk of all; of what is equal the first stays in front."""
    count = int(a.self.shape[a.dim])
    require(count <= _MOST_PICKED, f"of rows of {count}: Duet sorts {_MOST_PICKED} at most")
    return Bound(self=a.self, dim=a.dim, k=count, largest=a.descending)


def op_sort(w, a, shape):
    return op_topk(w, _all_of(a), shape)


def op_argsort(w, a, shape):
    return _largest_places(w, _all_of(a), shape)


def op_bucketize(w, a, shape):
    """How many of the boundaries, which are a constant, lie below."""
    require(isinstance(a.boundaries, w.torch.Tensor), "of boundaries that are computed")
    x = w.value(a.self)
    x = w.emit("reshape", [x], [*x.shape, 1], x.lifted)
    wide = [*shape, len(a.boundaries)]
    below = (op_ge if a.right else op_gt)(w, Bound(self=x, other=a.boundaries), wide)
    y = op_sum(w, Bound(self=below, dim=[len(shape)]), shape)
    whole(w, y, 0, len(a.boundaries))
    return y


def op_prod(w, a, shape):
    """Half of the dimension times the other half, again and again."""
    require(a.get("dim") is not None, "it mixes samples: give dim")
    x, (dim,) = _dims_of(w, a)

    def part(x, start, length):
        kept = [length if d == dim else n for d, n in enumerate(x.shape)]
        return x if length == x.shape[dim] else w.emit(
            "narrow", [x], kept, x.lifted, dim=line_dim(x, dim), start=start, length=length)
    odd = []
    while x.shape[dim] > 1:
        half = x.shape[dim] // 2
        if x.shape[dim] % 2:
            odd.append(part(x, 2 * half, 1))
        x = w.emit("multiply", [part(x, 0, half), part(x, half, half)],
                   [half if d == dim else n for d, n in enumerate(x.shape)], x.lifted)
    for one in odd:
        x = binary(w, "multiply", x, one, x.shape)
    return x if a.get("keepdim") else w.emit("reshape", [x], shape, x.lifted)
