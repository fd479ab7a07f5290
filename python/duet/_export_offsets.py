"""Places among the rows of all samples: of rows that lie one behind the other, (N * P, C), sample n
has those from n P on, so `places + torch.arange(N) * P` names rows of its own. Nets of point clouds
take each point's neighbours so. See export.py."""

import math

from . import _export_shapes
from ._export_graph import Counted, N, Refused, Value
from ._export_ops import Bound
from ._export_picks import check_places, taken
from ._export_turned import Turned


MAKE_OFFSETS = "add", "view", "reshape", "flatten", "index"


class Offset:
    """`places` of each sample, beside which PyTorch has `step` for each sample before it."""

    lifted, refused = False, "its values depend on the number of samples"

    def __init__(self, places, step):
        self.places, self.step = places, step

    @property
    def shape(self):
        return self.places.shape


def _step(x):
    """Of what is for each sample its number times a step, that step; else None."""
    if not isinstance(x, Counted) or x.one.dim() == 0 or x.one.is_floating_point():
        return None
    step = int(x.two.flatten()[-1]) if x.two.numel() else 0
    return step if step > 0 and all(
        y.shape[0] == n and all(bool(part.eq(i * step).all()) for i, part in enumerate(y))
        for n, y in x.of.items()) else None


def _sum(a, b):
    """An Offset, where a and b are the places and what is added to them."""
    for places, number in ((a, b), (b, a)):
        step = _step(number)
        if step and isinstance(places, (Value, Turned)) and \
                len(places.shape) == number.one.dim() and \
                all(n in (1, int(m)) for n, m in zip(number.one.shape, places.shape)):
            return Offset(places, step)
    return None


def _rows(w, x, offset, shape):
    """x[offset], of the rows of each sample."""
    rows = int(x.shape[0])
    if not isinstance(x, Turned) or rows != offset.step:
        raise Refused(f"its places are {offset.step} for each sample, of {rows} rows")
    rest = x.shape[1:]
    count = math.prod(map(int, offset.shape))

    def viewed(x, shape):
        return w.value(_export_shapes.op_view(w, Bound(self=x), shape))
    index = viewed(offset.places, [N(1), count])
    check_places(w, index, rows, "places", "rows")
    index = w.emit("reshape", [index], [N(1), count, *[1] * len(rest)])
    x = viewed(x, [N(1), rows, *rest])
    return _export_shapes.op_view(
        w, Bound(self=taken(w, x, index, 1, [N(1), count, *rest])), shape)


def with_offsets(w, name, args, kwargs, shape):
    """What an op makes of an Offset, or an Offset that it makes; None: there is none."""
    if name == "add" and not kwargs and len(args) == 2:
        return _sum(*args)
    if name in ("view", "reshape", "flatten") and isinstance(args[0], Offset):
        return Offset(_export_shapes.op_view(w, Bound(self=args[0].places), shape), args[0].step)
    if name == "index" and len(args) == 2 and len(args[1]) == 1 and isinstance(args[1][0], Offset):
        return _rows(w, args[0], args[1][0], shape)
    return None
