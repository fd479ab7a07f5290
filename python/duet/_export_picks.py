"""Places that are computed, and what is taken from there or put there: gather, scatter, one_hot,
sort and what is made of it; the product over a dimension. See _export_ops.py."""

import math

from ._export_choices import _dims_of, _where, op_eq, op_ge, op_gt
from ._export_graph import Filled, N, Stored, Value
from ._export_ops import Bound, binary, line_dim, number_of, op_sum, require, same, times
from ._export_shapes import op_expand
from ._export_wholes import whole


def check_places(w, index, count, what, of, is_table=False):
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
        if is_table and index.name in w.parts:  # rows that a table has not are NaN
            w.columns[name] = max(count, w.columns.get(name, 0))
            w.drawn[name] = min(count, w.drawn.get(name, count))
        else:
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


def _once(index, dim):
    """Where one place stands for all that is behind it, that place alone."""
    one = index.once
    return one if one and len(one.shape) == len(index.shape) and all(
        int(n) == (1 if d > dim else int(index.shape[d]))
        for d, n in enumerate(one.shape)) else index


def taken(w, x, index, dim, shape):
    return w.emit("gather", [x, _once(index, dim)], shape, x.lifted, dim=line_dim(x, dim))


def op_gather(w, a, shape):
    """A tensor with one number everywhere has it whatever the indices are."""
    x, index, dim = a.self, a.index, a.dim % len(shape)
    if len(shape) == 1 and isinstance(x, (Stored, w.torch.Tensor)) and isinstance(index, Value):
        return rows_at(w, x, index, shape)
    if isinstance(x, Filled):
        return Filled(x.number, shape)
    if isinstance(x, w.torch.Tensor) and x.numel() and bool(x.eq(x.flatten()[0]).all()):
        return Filled(x.flatten()[0].item(), shape)
    require(dim, "it picks samples")
    check_places(w, index, int(x.shape[dim]), "indices", "places")
    x, index = (w.aligned(v, len(shape)) for v in (x, index))
    return taken(w, _cut_to(w, x, shape, dim), index, dim, shape)


def place_of_each(w, x, index, shape):
    """x[torch.arange(N), index]: of each sample one place of dimension 1, or several."""
    require(index[0].is_number and index[0].one.dim() == len(index[1].shape) and
            all(n in (1, int(k)) for n, k in zip(index[0].one.shape, index[1].shape)),
            "its places depend on the number of samples")
    x, index = w.value(x), w.value(index[1])
    index = _from_the_end(w, index, int(x.shape[1]))
    check_places(w, index, int(x.shape[1]), "indices", "places")
    require(not x.lifted and not index.lifted, "of tensors without samples")
    count, rest = math.prod(map(int, index.shape[1:])), x.shape[2:]
    index = w.emit("reshape", [index], [N(1), count, *[1] * len(rest)])
    return w.emit("reshape", [taken(w, x, index, 1, [N(1), count, *rest])], shape)


def _from_the_end(w, index, count):
    """An index below 0 counts from the end, as PyTorch's operator [] has it."""
    low, high = w.range_of(index.name) or (0, 0)
    if low >= 0 or low < -count or high >= count:
        return index
    index = same(w, "remainder", index, index.shape, number=count)
    whole(w, index, 0, count - 1)
    return index


def place_of_rows(w, table, index, shape):
    """table[i, j], of a parameter and computed places."""
    rows, columns = map(int, table.shape)
    check_places(w, index[1], columns, "indices", "columns")
    x = rows_at(w, table, index[0], [*index[0].shape, columns])
    j = w.emit("reshape", [index[1]], [*index[1].shape, 1], index[1].lifted)
    last = len(shape)
    y = taken(w, x, j, last, [*index[1].shape, 1])
    return w.emit("reshape", [y], shape, y.lifted)


def rows_at(w, table, index, shape):
    """Rows of a parameter, which may have dimensions of their own, or of a constant."""
    index = _from_the_end(w, index, int(table.shape[0])) if isinstance(index, Value) else index
    check_places(w, index, int(table.shape[0]), "indices", "rows")
    flat = [*index.shape, math.prod(map(int, table.shape[1:]))]
    if isinstance(table, w.torch.Tensor):
        ones = w.emit("reshape", [index], [*index.shape, 1], index.lifted)
        ones = op_eq(w, Bound(self=ones, other=w.torch.arange(table.shape[0])),
                     [*index.shape, int(table.shape[0])])
        table = w.constant(table.reshape(table.shape[0], -1))
        y = w.emit("matmul", [ones, table], flat, index.lifted)
    elif len(table.shape) == 1:  # each number beside its place, which is another's or not
        wide = [*index.shape, int(table.shape[0])]
        ones = w.emit("reshape", [index], [*index.shape, 1], index.lifted)
        ones = op_eq(w, Bound(self=ones, other=w.torch.arange(wide[-1])), wide)
        return op_sum(w, Bound(self=binary(w, "multiply", ones, table, wide),
                               dim=[len(index.shape)]), shape)
    else:
        name = w.parameter(table, "table")
        y = w.emit("embedding", [index, name], flat, index.lifted)
    return w.emit("reshape", [y], shape, index.lifted)


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
    if number_of(w, value) is None:
        require(w.distinct.get(index.name) == dim,
                "of several values in a row, of which places may be the same")
        require(list(map(int, index.shape)) == list(map(int, value.shape)),
                "of more values than indices")
    ones = w.emit("multiply_number", [index], index.shape, number=0)
    ones = w.emit("add_number", [ones], index.shape, number=1)
    some = w.emit("scatter_add", [index, ones], shape, dim=dim, size=count)
    if number_of(w, value) is None:
        value = w.emit("scatter_add", [index, w.aligned(value, len(shape))], shape, dim=dim,
                       size=count)
    return _where(w, w.emit("above", [some], shape, number=0), value, a.self, shape)


def _is_zero(w, x):
    return isinstance(x, Filled) and x.number == 0 or \
        isinstance(x, w.torch.Tensor) and not x.any()


def _added(w, x, index, src, dim, shape):
    """x with what src has for each place added to it."""
    sums = w.emit("scatter_add", [_once(index, dim), src], shape, dim=dim, size=int(shape[dim]))
    return sums if _is_zero(w, x) else binary(w, "add", x, sums, shape)


def op_scatter_add(w, a, shape):
    dim = a.dim % len(shape)
    require(dim, "it adds to other samples")
    require([int(n) for d, n in enumerate(a.index.shape) if d != dim] ==
            [int(n) for d, n in enumerate(shape) if d != dim], "into a part of other dimensions")
    require(list(map(int, a.index.shape)) == list(map(int, a.src.shape)),
            "of more numbers than indices, of which PyTorch has no gradient")
    check_places(w, a.index, int(shape[dim]), "indices", "places")
    index, src = (w.aligned(v, len(shape)) for v in (a.index, a.src))
    return _added(w, a.self, index, src, dim, shape)


def op_scatter_reduce(w, a, shape):
    require(a.reduce == "sum" and a.get("include_self", True),
            f"of {a.reduce}: sum alone is served")
    return op_scatter_add(w, a, shape)


def put_at(w, x, dim, index, value, shape):
    """x with a value at the places of dimension dim that a constant names."""
    count = int(shape[dim])
    index = index.flatten() % count
    require(dim, "it writes into some of the samples")
    require(len(index.unique()) == len(index), "of several values for one place")
    there = w.torch.zeros(count, dtype=w.torch.bool).index_fill(0, index, True)
    there = there.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    if number_of(w, value) is None:
        part = [len(index) if d == dim else n for d, n in enumerate(shape)]
        if list(map(str, value.shape)) != list(map(str, part)):
            value = op_expand(w, Bound(self=value), part)
        places = index.reshape([-1 if d == dim else 1 for d in range(len(shape))])
        value = w.emit("scatter_add", [w.aligned(v, len(shape)) for v in (places, value)], shape,
                       dim=dim, size=count)
    return _where(w, there, value, x, shape)


def op_index_put(w, a, shape):
    """Of a mask, where it is true a number; or at places of a dimension that a constant names."""
    mask, value = next(i for i in a.indices if i is not None), a["values"]
    if len([i for i in a.indices if i is not None]) == 1 and not a.accumulate and \
            isinstance(mask, w.torch.Tensor) and mask.dim() == 1 and \
            mask.dtype is not w.torch.bool:
        dim = next(i for i, one in enumerate(a.indices) if one is not None)
        return put_at(w, a.self, dim, mask, value, shape)
    require(len(a.indices) == 1 and mask is not None and not a.accumulate and (
        isinstance(mask, Value) and mask.name in w.truths or
        isinstance(mask, w.torch.Tensor) and mask.dtype is w.torch.bool),
        "at places that are computed")
    value = float(value) if isinstance(value, w.torch.Tensor) and value.numel() == 1 else None
    require(value is not None, "its values are no number")
    missing = len(shape) - len(mask.shape)
    mask = mask.reshape(*mask.shape, *[1] * missing) if isinstance(mask, w.torch.Tensor) else \
        w.emit("reshape", [mask], [*mask.shape, *[1] * missing], mask.lifted) if missing else mask
    return _where(w, mask, value, a.self, shape)


def op_index_copy(w, a, shape):
    require(isinstance(a.index, w.torch.Tensor), "at places that are computed")
    return put_at(w, a.self, a.dim % len(shape), a.index, a.source, shape)


def op_index_fill(w, a, shape):
    require(isinstance(a.index, w.torch.Tensor), "at places that are computed")
    return put_at(w, a.self, a.dim % len(shape), a.index, a.value, shape)


def op_index_add(w, a, shape):
    dim = a.dim % len(shape)
    require(dim, "it adds to other samples")
    require(isinstance(a.index, w.torch.Tensor), "at places that are computed")
    check_places(w, a.index, int(shape[dim]), "indices", "places")
    index = a.index.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    src = w.aligned(a.source, len(shape))
    if a.get("alpha", 1) != 1:
        src = times(w, src, a.alpha)
    return _added(w, a.self, w.aligned(index, len(shape)), src, dim, shape)


def _order(w, a):
    """The places of x in its order; of what is equal the first stays in front."""
    x, (dim,) = _dims_of(w, a)
    require(isinstance(x.shape[0], N), "of a tensor without samples")
    index = w.emit("argsort", [x], x.shape, dim=dim, descending=bool(a.get("descending")))
    whole(w, index, 0, x.shape[dim] - 1)
    w.distinct[index.name] = dim
    return index


def op_argsort(w, a, shape):
    return _order(w, a)


def op_sort(w, a, shape):
    index = _order(w, a)
    return [taken(w, w.value(a.self), index, a.dim % len(shape[0]), shape[0])
            if 0 in w.asked else None, index]


def _at(w, a, shape, first, count, descending=False):
    """Of the order of x so many places, and the numbers there."""
    x, (dim,) = _dims_of(w, Bound(self=a.self, dim=a.dim))
    kept = [count if d == dim else n for d, n in enumerate(x.shape)]
    index = _order(w, Bound(self=x, dim=dim, descending=descending))
    index = w.emit("narrow", [index], kept, dim=dim, start=first, length=count)
    pair = [taken(w, x, index, dim, kept) if 0 in w.asked else None, index]
    pair = [y and (y if len(y.shape) == len(to) else w.emit("reshape", [y], to))
            for y, to in zip(pair, shape)]
    whole(w, pair[1], 0, x.shape[dim] - 1)
    if pair[1] is index:
        w.distinct[index.name] = dim
    return pair


def op_topk(w, a, shape):
    return _at(w, a, shape, 0, a.k, a.largest)


def op_kthvalue(w, a, shape):
    return _at(w, a, shape, a.k - 1, 1)


def op_median(w, a, shape):
    require(a.get("dim") is not None, "it mixes samples: give dim")
    return _at(w, a, shape, (int(a.self.shape[a.dim]) - 1) // 2, 1)


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
