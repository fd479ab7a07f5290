"""Layers of volumes, (N, C, T, H, W): their pictures are rows of each sample, and a window over T
becomes channels of one of them. See _export_ops.py."""

import math

from ._export_convolutions import is_computed, op_conv2d, windows_of, with_bias
from ._export_graph import N
from ._export_ops import Bound, require, triple
from ._export_pools import op_adaptive_avg_pool2d, op_adaptive_max_pool2d, op_avg_pool2d, \
    op_max_pool2d
from ._export_shapes import _view


def _ordered(w, x, order):
    return w.emit("permute", [x], [x.shape[i] for i in order], order=order)


def _by_pictures(w, x, run):
    """x (N, T, channels, H, W); run makes of pictures (NT, channels, H, W) such of other sizes."""
    before, w.rows = w.rows, int(x.shape[0]) * int(x.shape[1])
    y = run(w.emit("reshape", [x], [N(w.rows), *x.shape[2:]]))
    w.rows = before
    return w.emit("reshape", [y], [*x.shape[:2], *y.shape[1:]])


def _along(w, x, run):
    """run makes of pictures (N, C, T, HW), of which each is a volume, others of other C and T."""
    n, c, t, *sides = x.shape
    y = run(w.emit("reshape", [x], [n, c, t, math.prod(sides)]))
    return w.emit("reshape", [y], [*y.shape[:3], *sides])


def _taps(w, x, to, taps, stride, padding, dilation):
    """(N, T', C taps, H, W): beside each picture the others of its window."""
    n, c, length, height, width = x.shape
    need = (taps - 1) * dilation + to * stride  # each slice has whole strides
    behind = need - padding - length
    x = w.emit("reshape", [x], [n, c, length, height * width])
    if padding or behind:
        x = w.emit("pad2d", [x], [n, c, need, height * width], sides=[0, 0, padding, behind])
    parts = []
    for i in range(taps):
        part = w.emit("narrow", [x], [n, c, to * stride, height * width], dim=2,
                      start=i * dilation, length=to * stride)
        part = w.emit("reshape", [part], [n, c, to, stride, height * width])
        if stride > 1:
            part = w.emit("narrow", [part], [n, c, to, 1, height * width], dim=3, start=0, length=1)
        parts.append(part)
    x = parts[0] if taps == 1 else \
        w.emit("cat", parts, [n, c, to, taps, height * width], dim=3)
    return w.emit("reshape", [_ordered(w, x, [0, 2, 1, 3, 4])], [n, to, c * taps, height, width])


def op_conv3d(w, a, shape):
    require(a.padding != "same", "padding=same of volumes")
    kernel, stride, dilation = a.weight.shape[2:], triple(a.stride), triple(a.dilation)
    padding = [0] * 3 if isinstance(a.padding, str) else triple(a.padding)
    x = _taps(w, w.value(a.input), shape[2], kernel[0], stride[0], padding[0], dilation[0])
    settings = {"stride": stride[1:], "padding": padding[1:], "dilation": dilation[1:],
                "groups": a.groups}

    def run(x):
        to = [x.shape[0], shape[1], *shape[3:]]
        if not is_computed(w, a.weight):
            return w.emit("conv", [x, w.parameter(a.weight, "weight"),
                                   w.parameter(a.bias, "bias")], to, **settings)
        filters = _view(w, Bound(self=a.weight), [shape[1], int(a.weight.shape[1]) * kernel[0],
                                                  *kernel[1:]])
        return op_conv2d(w, Bound(settings, input=x, weight=filters, bias=a.bias), to)
    return _ordered(w, _by_pictures(w, x, run), [0, 2, 1, 3, 4])


def op_conv_transpose3d(w, a, shape):
    """What each picture gives to those of its window, which are then added up along T."""
    weight, taps = w.parameter(a.weight, "weight"), int(a.weight.shape[2])
    x = w.value(a.input)
    how = {name: triple(a[name]) for name in ("stride", "padding", "dilation", "output_padding")}
    y = _by_pictures(w, _ordered(w, x, [0, 2, 1, 3, 4]), lambda x: w.emit(
        "conv_transpose", [x, weight, None], [x.shape[0], shape[1] * taps, *shape[3:]],
        **{name: sides[1:] for name, sides in how.items()}, groups=a.groups))
    y = _ordered(w, y, [0, 2, 1, 3, 4])
    settings = {name: [sides[0], {"stride": 1, "dilation": 1}.get(name, 0)]
                for name, sides in how.items()}
    y = _along(w, y, lambda y: w.emit(
        "conv_transpose", [y, windows_of(w, shape[1], [taps, 1]), None],
        [y.shape[0], shape[1], shape[2], y.shape[3]], **settings, groups=int(shape[1])))
    return with_bias(w, y, a.bias)


def _pooled(w, a, shape, pool, settings):
    """Each picture by itself first, as PyTorch looks for the first of equal maxima."""
    given = {name: triple(a[name] or a["kernel_size"]) for name in settings}
    x = w.value(a.self)
    require(len(shape) == 5 and not x.lifted, "of volumes without channels or samples")

    def run(x, to, first, last):
        return pool(w, Bound(a, self=x, **{k: v[first:last] for k, v in given.items()}), to)
    x = _ordered(w, x, [0, 2, 1, 3, 4])
    x = _by_pictures(w, x, lambda x: run(x, [*x.shape[:2], *shape[3:]], 1, 3))
    x = _ordered(w, x, [0, 2, 1, 3, 4])
    of_rows = {k: [v[0], {"padding": 0}.get(k, 1)] for k, v in given.items()}
    return _along(w, x, lambda x: pool(w, Bound(a, self=x, **of_rows),
                                       [*x.shape[:2], shape[2], x.shape[3]]))


def op_max_pool3d(w, a, shape):
    require(set(triple(a.dilation)) == {1}, "dilation")
    return _pooled(w, Bound(a, dilation=1), shape, op_max_pool2d,
                   ("kernel_size", "stride", "padding"))


def op_avg_pool3d(w, a, shape):
    require(a.divisor_override is None, "divisor_override")
    return _pooled(w, a, shape, op_avg_pool2d, ("kernel_size", "stride", "padding"))


def _adaptive(w, a, shape, pool):
    x = w.value(a.self)
    require(len(shape) == 5 and not x.lifted, "of volumes without channels or samples")
    x = _ordered(w, x, [0, 2, 1, 3, 4])
    x = _by_pictures(w, x, lambda x: pool(x, [*x.shape[:2], *shape[3:]]))
    x = _ordered(w, x, [0, 2, 1, 3, 4])
    return _along(w, x, lambda x: pool(x, [*x.shape[:2], shape[2], x.shape[3]]))


def op_adaptive_avg_pool3d(w, a, shape):
    return _adaptive(w, a, shape, lambda x, to: op_adaptive_avg_pool2d(w, Bound(self=x), to))


def op_adaptive_max_pool3d(w, a, shape):
    return [_adaptive(w, a, shape[0], lambda x, to: op_adaptive_max_pool2d(
        w, Bound(self=x), [to])[0]), None]
