"""Values whose samples are not in front, as nn.MultiheadAttention makes them on its way: (L, N, E),
and (N * heads, L, D). No line of a graph has such a shape. A Turned value keeps the line's value,
and says for each of PyTorch's dimensions which of the line's dimensions it is made of, in order; so
transpose, view and the like write nothing, until an op brings the samples to the front again."""

from ._export_graph import N, Refused, Value


def _product(sizes):
    out, batch = 1, False
    for size in sizes:
        out, batch = out * int(size), batch or isinstance(size, N)
    return N(out) if batch else out


def _alike(a, b):
    """Are the sizes the same, and of the samples where those are?"""
    return list(map(str, a)) == list(map(str, b))


class Turned:
    as_rows = None  # the same with the rows of a sample in one dimension: _export_folded.py
    alike = False  # are all its rows the same, in whichever order?

    def __init__(self, base, dims):
        self.base, self.dims = base, dims

    @property
    def shape(self):
        return [_product(self.base.shape[i] for i in group) for group in self.dims]

    @property
    def lifted(self):
        return False


_MOST_DIMS = 8  # of a line


def turned(x):
    return x if isinstance(x, Turned) else Turned(x, [[i] for i in range(len(x.shape))])


def _ordered(w, x, order):
    """The line's dimensions in this order."""
    if order == list(range(len(order))):
        return x
    return w.emit("permute", [x], [x.shape[i] for i in order], order=order)


def settled(w, x):
    """A plain value where the samples are in front; else x, to be turned further."""
    if not isinstance(x, Turned) or not x.dims or x.dims[0] != [0]:
        return x
    order = [i for group in x.dims for i in group]
    if sorted(order) != list(range(len(x.base.shape))):
        raise Refused("its dimensions cannot be followed")
    y = _ordered(w, x.base, order)
    if _alike(y.shape, x.shape):
        return y
    return w.emit("reshape", [y], x.shape)


def viewed(w, x, shape):
    """view: dimensions are joined, and cut where a new one ends within an old one. Those that are
    joined already are one of the line's first where a line could not have as many."""
    x = turned(x)
    if len(x.base.shape) + len(shape) - len(x.dims) > _MOST_DIMS:
        x = _joined(w, x)
    rest = [(i, x.base.shape[i]) for group in x.dims for i in group]
    pieces = {i: [] for i, _ in rest}  # the sizes that each of the line's dimensions is cut into
    groups = []
    for want in shape:
        group, have = [], 1
        while have != int(want) or (isinstance(want, N) and not any(s for s in group if s[2])):
            if not rest:
                raise Refused("its view cannot be followed")
            i, size = rest.pop(0)
            batch, left = isinstance(size, N), int(want) // have
            if not batch and int(size) > left:
                if left < 2 or int(size) % left:
                    raise Refused("its view mixes samples, or cuts dimensions unevenly")
                rest.insert(0, (i, int(size) // left))
                size = left
            pieces[i].append(size)
            if batch or int(size) > 1:  # ones are left out, and stand again where a view has them
                group.append((i, len(pieces[i]) - 1, batch))
            have *= int(size)
        groups.append(group)
    for i, size in rest:  # ones at the end
        pieces[i].append(size)
    whole = [size for i in range(len(x.base.shape)) for size in pieces[i] or [x.base.shape[i]]]
    at, starts = 0, {}
    for i in range(len(x.base.shape)):
        starts[i] = at
        at += len(pieces[i]) or 1
    base = x.base
    if len(whole) != len(base.shape):
        base = w.emit("reshape", [base], whole)
    dims = [[starts[i] + k for i, k, _ in group] for group in groups]
    named = {i for group in dims for i in group}
    if any(i not in named and int(base.shape[i]) != 1 for i in range(len(base.shape))):
        raise Refused("its view cannot be followed")
    ones = [i for i in range(len(base.shape)) if i not in named]
    if ones:
        base = w.emit("reshape", [base], [d for i, d in enumerate(base.shape) if i not in ones])
        places = {i: k for k, i in enumerate(i for i in range(len(whole)) if i not in ones)}
        dims = [[places[i] for i in group] for group in dims]
    return settled(w, Turned(base, dims))


def permuted(w, x, order):
    x = turned(x)
    return settled(w, Turned(x.base, [x.dims[i] for i in order]))


def selected(w, x, dim, index):
    group = x.dims[dim]
    if not group:
        return settled(w, Turned(x.base, x.dims[:dim] + x.dims[dim + 1:]))
    if len(group) != 1 or group == [0]:
        raise Refused("it picks from the samples")
    place, shape = group[0], list(x.base.shape)
    shape[place] = 1
    base = w.emit("narrow", [x.base], shape, dim=place, start=index % x.base.shape[place], length=1)
    base = w.emit("reshape", [base], shape[:place] + shape[place + 1:])
    dims = [[i - (i > place) for i in g] for k, g in enumerate(x.dims) if k != dim]
    return settled(w, Turned(base, dims))


def linear(w, x, run):
    """run makes of a value (N, ..., K) one of (N, ..., M)."""
    front = [i for group in x.dims[:-1] for i in group if i]
    order = [0, *front, *x.dims[-1]]
    if sorted(order) != list(range(len(x.base.shape))):
        raise Refused("its dimensions cannot be followed")
    base = _ordered(w, x.base, order)
    shape = [x.base.shape[i] for i in [0, *front]] + [x.shape[-1]]
    if not _alike(shape, base.shape):
        base = w.emit("reshape", [base], shape)
    y = run(base)
    dims = [[order.index(i) for i in group] for group in x.dims[:-1]]
    return settled(w, Turned(y, [*dims, [len(y.shape) - 1]]))


def _of_matrices(w, x):
    """The line of matrices (N, ..., rows, columns), of a value (N * ..., .., rows, columns)."""
    x = turned(x)
    if len(x.dims) < 3 or x.dims[0][:1] != [0]:
        raise Refused("it takes matrices that are not of samples")
    return _joined(w, x)


def matmul(w, x, y):
    x, y = _of_matrices(w, x), _of_matrices(w, y)
    a, b = x.base, y.base
    if x.dims != y.dims or not _alike(a.shape[:-2], b.shape[:-2]):
        raise Refused("the samples of its operands cannot be followed")
    return settled(w, Turned(w.emit("matmul", [a, b], [*a.shape[:-1], b.shape[-1]]), x.dims))


def added(w, x, mask, add):
    """x + mask, of matrices as _of_matrices takes them, or one for all."""
    if isinstance(mask, w.torch.Tensor):
        if mask.dim() == 3 and mask.shape[0] != 1:
            raise Refused("its mask has matrices that are not of samples")
        mask = mask.reshape(mask.shape[-2:])
    else:
        mask = _of_matrices(w, mask).base
    return Turned(add(w, "add", x.base, mask, x.base.shape), x.dims)


def softmax(w, x, op, dim):
    """Over one of the line's dimensions, which goes to the end for it."""
    group, rank = x.dims[dim], len(x.base.shape)
    if not group:  # of size 1, of which the line has nothing
        base = w.emit("reshape", [x.base], [*x.base.shape, 1])
        y = w.emit("reshape", [w.emit(op, [base], base.shape)], x.base.shape)
        return settled(w, Turned(y, x.dims))
    if len(group) != 1 or group == [0]:
        raise Refused("it mixes samples, or its dimension cannot be followed")
    order = [i for i in range(rank) if i != group[0]] + group
    base = _ordered(w, x.base, order)
    y = w.emit(op, [base], base.shape)
    return Turned(y, [[order.index(i) for i in g] for g in x.dims])


def reduced(w, x, op, dims, keepdim):
    """mean and sum over some of the line's dimensions."""
    gone = sorted(i for d in dims for i in x.dims[d])
    if 0 in gone:
        raise Refused("it mixes samples: dim has theirs")
    shape = [1 if i in gone else d for i, d in enumerate(x.base.shape)]
    groups = x.dims
    if not keepdim:
        shape = [d for i, d in enumerate(shape) if i not in gone]
        groups = [[i - sum(g < i for g in gone) for i in group]
                  for d, group in enumerate(x.dims) if d not in dims]
    y = w.emit(op, [x.base], shape, dims=gone, keepdim=int(keepdim)) if gone else x.base
    return settled(w, Turned(y, groups))


def expanded(w, x, shape):
    sizes = list(x.base.shape)
    if len(shape) != len(x.dims):
        raise Refused("it is expanded to more dimensions, which cannot be followed")
    base, dims = x.base, []
    for group, have, want in zip(x.dims, x.shape, shape):
        if str(have) != str(want):
            if len(group) > 1 or 0 in group or isinstance(want, N):
                raise Refused("it is expanded in a way that cannot be followed")
            if not group:  # a 1 of which the line has nothing
                group, sizes = [len(sizes)], [*sizes, 1]
                base = w.emit("reshape", [base], sizes)
            sizes[group[0]] = want
        dims.append(group)
    return x if _alike(sizes, base.shape) else Turned(w.emit("expand", [base], sizes), dims)


def repeated(w, x, times, in_front):
    """The first of PyTorch's dimensions several times: all of it, or each place of it."""
    wide = [*x.base.shape, times]
    base = w.emit("expand", [w.emit("reshape", [x.base], [*x.base.shape, 1])], wide)
    more, first = [len(wide) - 1], x.dims[0]
    return Turned(base, [more + first if in_front else first + more, *x.dims[1:]])


def inside(run, x):
    """run(x), where it makes of a value one of the same shape, element by element."""
    return Turned(run(x.base), x.dims) if isinstance(x, Turned) else run(x)


def in_front(w, x, run, shape, most):
    """run(x, shape, order), with the samples in front and the others behind in their order, where
    the samples stand before dimension `most`."""
    place = next((i for i, group in enumerate(x.dims) if group == [0]), most)
    if place >= most:
        raise Refused("it takes a tensor in which the samples are not in front")
    order = [place, *(i for i in range(len(x.dims)) if i != place)]
    y = run(w.value(permuted(w, x, order)), [shape[i] for i in order], order)
    return permuted(w, y, [order.index(i) for i in range(len(order))])


def _as_wide(w, x, other):
    """x with copies where it has size 1 and a tensor without samples more."""
    own = list(getattr(other, "shape", ()))
    if len(own) > len(x.dims):
        return x
    own = [1] * (len(x.dims) - len(own)) + own
    to = [d if isinstance(d, N) or int(d) != 1 else n for d, n in zip(x.shape, own)]
    return x if _alike(to, x.shape) else expanded(w, x, to)


def _beside(w, x, other):
    """A tensor without samples as a value beside the line of x, with which it is broadcast."""
    other = w.value(other)
    if len(other.shape) > len(x.dims):
        raise Refused("it is broadcast in a way that cannot be followed")
    own = [1] * (len(x.dims) - len(other.shape)) + list(other.shape)
    sizes = {}
    for group, size in zip(x.dims, own):
        whole = [x.base.shape[i] for i in group]
        if size != 1 and (0 in group or size != _product(whole)):
            raise Refused("it is broadcast in a way that cannot be followed")
        sizes.update(zip(group, whole if size != 1 else [1] * len(group)))
    flat = [i for i in sizes if i]
    y = w.emit("reshape", [other], [N(1), *(sizes[i] for i in flat)])
    return _ordered(w, y, [0, *(flat.index(i) + 1 for i in sorted(flat))])


def _joined(w, x):
    """Each dimension one of the line's, in order, but for what is joined with the samples: what
    stands in front of them is one, and what stands behind them."""
    order = [0, *(i for group in x.dims for i in group if i)]
    if sorted(order) != list(range(len(x.base.shape))):
        raise Refused("its dimensions cannot be followed")
    base, sizes, dims = _ordered(w, x.base, order), [x.base.shape[0]], []
    for group in x.dims:
        parts = [group]
        if 0 in group:
            at = group.index(0)
            parts = [part for part in (group[:at], group[at + 1:]) if part]
        own = list(range(len(sizes), len(sizes) + len(parts)))
        sizes += [_product(x.base.shape[i] for i in part) for part in parts]
        if 0 in group:
            own.insert(at > 0, 0)
        dims.append(own)
    if not _alike(sizes, base.shape):
        base = w.emit("reshape", [base], sizes)
    return Turned(base, dims)


def binary(w, op, x, y):
    """Of two values whose samples are at the same place, or of one and a tensor without them."""
    for one, other in ((x, y), (y, x)):
        if isinstance(one, Turned) and not (isinstance(other, Turned) or
                                            isinstance(other, Value) and not other.lifted):
            turn, one = one is x, _as_wide(w, one, other)
            of_samples, beside = one.base, _beside(w, one, other)
            operands = [of_samples, beside] if turn else [beside, of_samples]
            return settled(w, Turned(w.emit(op, operands, one.base.shape), one.dims))
    x, y = _joined(w, turned(x)), _joined(w, turned(y))
    if x.dims != y.dims or not _alike(x.base.shape, y.base.shape):
        raise Refused("the samples of its operands cannot be followed")
    return settled(w, Turned(w.emit(op, [x.base, y.base], x.base.shape), x.dims))


INSIDE = {"eq", "ne", "gt", "ge", "lt", "le", "logical_not", "detach"}  # as it lies, of one value
AWARE = INSIDE | {"linear", "layer_norm", "embedding_bag", "view", "reshape", "view_as",
         "reshape_as", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose",
         "permute", "t", "select", "unbind", "add", "sub", "mul", "div", "square", "pow", "rsqrt",
         "reciprocal", "linalg_vector_norm", "expand", "expand_as", "dropout", "relu", "relu6",
         "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "hardswish", "softplus", "exp",
         "log", "abs", "sqrt", "neg", "clamp", "clamp_min", "addmm", "sin", "cos", "round", "ceil",
         "trunc", "floor", "remainder", "fmod", "mm", "matmul", "bmm", "baddbmm", "softmax",
         "_softmax", "mean", "sum", "lstm", "gru", "rnn_tanh", "rnn_relu", "new_zeros", "new_ones",
         "new_full", "copy", "cat", "stack", "repeat", "repeat_interleave", "chunk", "split",
         "split_with_sizes", "tensor_split", "slice", "pad", "embedding"}
