"""Values of which each sample has several rows in front, (N * T, C, H, W): the pictures of a video,
windows, the two sides of a pair. A line has them as they are, f32[5N, 3, 16, 16]; reshape makes
them of [N, 5, 3, 16, 16] and back. An op that treats each sample alike takes them as if their rows
were samples."""

from ._export_graph import Refused, Stacked, Value
from ._export_turned import AWARE, Turned, _alike, _ordered, _product, settled

# Ops that would take a Turned value, but are better written with rows where it has them.
_BY_ROWS = {"lstm", "gru", "rnn_tanh", "rnn_relu", "cat", "stack", "repeat", "repeat_interleave",
            "chunk", "split", "split_with_sizes", "tensor_split", "slice", "embedding"}


class Folded(Turned):
    """`value` has the rows; `sizes` says what they are made of, the samples first, and `order` in
    which order PyTorch counts these."""

    def __init__(self, w, value, sizes, order):
        self.w, self.value, self.sizes, self.order, self.cut = w, value, sizes, order, None

    @property
    def base(self):
        """The line in which the samples stand alone in front, where an op asks for it."""
        if self.cut is None:
            self.cut = self.w.emit("reshape", [self.value], [*self.sizes, *self.value.shape[1:]])
        return self.cut

    @property
    def dims(self):
        own = len(self.sizes)
        return [self.order, *([own + i] for i in range(len(self.value.shape) - 1))]

    @property
    def shape(self):
        return self.value.shape


def _is_of_rows(x):
    return isinstance(x, Turned) and len(x.dims) > 0 and 0 in x.dims[0] and \
        (len(x.dims[0]) > 1 or isinstance(x, Folded))


def _how(x):
    """What its rows are made of: the samples, and what PyTorch counts in front of them and behind.
    """
    if isinstance(x, Folded):
        return x.sizes, x.order
    at = x.dims[0].index(0)
    front, behind = ([_product(x.base.shape[i] for i in part)] if part else []
                     for part in (x.dims[0][:at], x.dims[0][at + 1:]))
    sizes = [x.base.shape[0], *front, *behind]
    return sizes, [*range(1, 1 + len(front)), 0, *range(1 + len(front), len(sizes))]


def folded(w, x):
    """The same, with its rows in one dimension of a line."""
    if isinstance(x, Folded):
        return x
    if x.as_rows:
        return x.as_rows
    sizes, order = _how(x)
    inner = [i for i in x.dims[0] if i]
    behind = [i for group in x.dims[1:] for i in group]
    all_dims = [0, *inner, *behind]
    if sorted(all_dims) != list(range(len(x.base.shape))):
        raise Refused("its dimensions cannot be followed")
    base = _ordered(w, x.base, all_dims)
    rows = [_product(sizes), *(_product(x.base.shape[i] for i in group) for group in x.dims[1:])]
    w.rows = int(rows[0])
    value = w.emit("reshape", [base], rows)
    x.as_rows = y = Folded(w, value, sizes, order)
    y.cut = base if _alike(base.shape, [*sizes, *rows[1:]]) else None
    return y


def rows_of(name, tensors, shapes):
    """How many rows of each sample an op is written with; 1: as of samples."""
    of_rows = [x for x in tensors if isinstance(x, Turned)]
    if not of_rows or not all(map(_is_of_rows, of_rows)):
        return 1
    one_shape = len({str(x.shape) for x in of_rows}) == 1  # else one is broadcast
    if name in AWARE - _BY_ROWS and one_shape and not any(isinstance(x, Folded) for x in of_rows):
        return 1
    of_rows.sort(key=lambda x: x.alike)
    sizes, order = _how(of_rows[0])
    if any(x.alike and str(x.shape[0]) != str(of_rows[0].shape[0]) for x in of_rows):
        return 1
    if any(not x.alike and (not _alike(_how(x)[0], sizes) or _how(x)[1] != order)
           for x in of_rows[1:]) or \
            any(isinstance(x, Value) and not x.lifted for x in tensors):
        return 1
    rows = of_rows[0].shape[0]
    first = shapes[0] if shapes and isinstance(shapes[0], list) else shapes
    return int(rows) if first and str(first[0]) == str(rows) else 1


def as_rows(w, result, like):
    """A result, or several, of an op that was written with the rows of `like`."""
    if isinstance(result, Stacked):
        return Stacked(as_rows(w, x, like) for x in result)
    if isinstance(result, (list, tuple)):
        return [as_rows(w, x, like) for x in result]
    if isinstance(result, Turned):
        raise Refused("its rows are moved in a way that cannot be followed")
    if isinstance(result, Value) and not result.lifted:
        return Folded(w, result, like.sizes, like.order)
    return result


# ---- samples that are joined, repeated and parted

def beside(w, parts, order):
    """Values of as many samples as one with several rows of each; order [1, 0]: PyTorch has all
    samples of the first one in front."""
    wide = [w.emit("reshape", [x], [x.shape[0], 1, *x.shape[1:]]) for x in parts]
    shape = [wide[0].shape[0], len(parts), *wide[0].shape[2:]]
    base = wide[0] if len(wide) == 1 else w.emit("cat", wide, shape, dim=1)
    return Turned(base, [order, *([i] for i in range(2, len(shape)))])


def stacked(w, parts):
    """Values of the samples one behind the other, with a dimension in front that counts them."""
    wide = beside(w, parts, [1, 0])
    return Turned(wide.base, [[1], [0], *wide.dims[1:]])


def repeated(w, x, times, order):
    """Each sample `times` times."""
    if times == 1:
        return x
    wide = w.emit("reshape", [x], [x.shape[0], 1, *x.shape[1:]])
    shape = [x.shape[0], times, *x.shape[1:]]
    return Turned(w.emit("expand", [wide], shape), [order, *([i] for i in range(2, len(shape)))])


def is_of_sets(x):
    """Do its rows lie one set of all samples behind the other, as torch.cat puts them?"""
    return isinstance(x, Turned) and len(x.dims) > 0 and len(x.dims[0]) == 2 and x.dims[0][1] == 0


def set_of(w, x, start, count):
    """Of such a one `count` sets from `start` on."""
    if not is_of_sets(x):
        raise Refused("it cuts the samples")
    place, shape = x.dims[0][0], list(x.base.shape)
    shape[place] = count
    base = x.base if count == x.base.shape[place] else \
        w.emit("narrow", [x.base], shape, dim=place, start=start, length=count)
    if count > 1:
        return Turned(base, x.dims)
    base = w.emit("reshape", [base], shape[:place] + shape[place + 1:])
    return settled(w, Turned(base, [[0], *([i - (i > place) for i in g] for g in x.dims[1:])]))
