"""Convolutions, the windows that they see, and those whose weights other ops compute: see
_export_ops.py."""

import math

from ._export_graph import N, Stored, Value
from ._export_ops import Bound, binary, pair, require
from ._export_shapes import _view


def without_samples(w, x, shape, run):
    """run(x, shape) of what no sample is part of: PyTorch's batch of it are rows of each sample."""
    x = w.value(x)
    before, w.rows = w.rows, int(x.shape[0])
    y = run(w.emit("reshape", [x], [N(w.rows), *x.shape[1:]]), [N(w.rows), *shape[1:]])
    w.rows = before
    return w.emit("reshape", [y], shape, True)


def _is_common(w, x):
    return isinstance(x, (Stored, w.torch.Tensor)) or isinstance(x, Value) and x.lifted


def is_computed(w, weight):
    """Is it a weight that other ops make, or a view of one, and no parameter as it is?"""
    return isinstance(weight, Value) or isinstance(weight, Stored) and not (
        weight.whole and weight.name in w.stored)


def _sides_of(a, count, *names):
    """Settings of windows of one side or two."""
    settings = {name: pair(a[name])[:count] for name in names}
    return {name: y[0] if len(set(y)) == 1 else y for name, y in settings.items()}


def op_conv2d(w, a, shape):
    """conv1d too, whose windows have one side."""
    require(len(a.input.shape) == len(a.weight.shape), "of an input without samples")
    if _is_common(w, a.input):
        return without_samples(w, a.input, shape,
                               lambda x, shape: op_conv2d(w, Bound(a, input=x), shape))
    kernel = list(a.weight.shape[2:])
    x, padding = w.value(a.input), a.padding
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same")
                 for k, d in zip(kernel, pair(a.dilation)[:len(kernel)])]
        padding = [t // 2 for t in total]
        odd = [t % 2 for t in total]
        if any(odd):
            n, c, h, v = [*x.shape, 1][:4]
            odd.append(0)  # of a sequence as a picture of one column
            x = w.emit("pad2d", [w.emit("reshape", [x], [n, c, h, v])],
                       [n, c, h + odd[0], v + odd[1]], sides=[0, odd[1], 0, odd[0]])
            x = w.emit("reshape", [x], [n, c, h + odd[0], v + odd[1]][:len(shape)])
    a = Bound(a, padding=padding)
    if is_computed(w, a.weight):
        return _conv_of_computed(w, a, x, kernel, shape)
    settings = _sides_of(a, len(kernel), "stride", "padding", "dilation")
    operands = [x, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")]
    is_square = len(kernel) == 2 and len(set(kernel)) == 1 and all(
        isinstance(y, int) for y in settings.values())
    if is_square and a.groups == settings["dilation"] == 1:
        return w.emit("conv2d", operands, shape, stride=settings["stride"],
                      padding=settings["padding"])
    return w.emit("conv", operands, shape, **settings, groups=a.groups)


def windows_of(w, channels, kernel):
    """The weight of a convolution by channels whose outputs are the numbers of a window."""
    places = math.prod(kernel)
    return w.frozen(w.torch.eye(places).reshape(places, 1, *kernel).repeat(
        channels, *[1] * (1 + len(kernel))), "_".join(map(str, ("windows", channels, *kernel))))


def _unfolded(w, x, kernel, to, settings):
    """The numbers of each window, (N, channels * places, ..)."""
    channels = int(x.shape[1])
    return w.emit("conv", [x, windows_of(w, channels, kernel), None],
                  [x.shape[0], channels * math.prod(kernel), *to], **settings, groups=channels)


def _over(w, weight):
    """(1, ..) of a weight, which goes with samples of one dimension more."""
    return _view(w, Bound(self=weight), [1, *weight.shape])


def _conv_of_computed(w, a, x, kernel, shape):
    """By a weight that other ops compute, as weight norms do: each sample has a copy, and
    multiplies its windows by it."""
    settings = _sides_of(a, len(kernel), "stride", "padding", "dilation")
    places = math.prod(shape[2:])
    columns = int(a.weight.shape[1]) * math.prod(kernel)
    matrix = [a.groups, shape[1] // a.groups, columns]
    windows = _unfolded(w, x, kernel, shape[2:], settings)
    windows = w.emit("reshape", [windows], [x.shape[0], a.groups, columns, places])
    weight = _view(w, Bound(self=a.weight), matrix)
    y = w.emit("matmul", [w.aligned(_over(w, weight), 4), windows],
               [x.shape[0], *matrix[:2], places])
    return with_bias(w, w.emit("reshape", [y], shape), a.bias)


def with_bias(w, y, bias):
    if bias is None:
        return y
    return binary(w, "add", y, _view(w, Bound(self=bias), [y.shape[1], *[1] * (len(y.shape) - 2)]),
                  y.shape)


def _transposed_of_computed(w, a, shape, settings):
    """The products of each place are added where its window lies."""
    x, (into, _, *kernel) = w.value(a.input), a.weight.shape
    each, places = into // a.groups, math.prod(x.shape[2:])
    outputs = int(a.weight.shape[1]) * math.prod(kernel)
    weight = w.aligned(_over(w, _view(w, Bound(self=a.weight), [a.groups, each, outputs])), 4)
    turned = w.emit("transpose", [weight], [x.shape[0], a.groups, outputs, each], dim0=2, dim1=3)
    rows = w.emit("reshape", [x], [x.shape[0], a.groups, each, places])
    y = w.emit("matmul", [turned, rows], [x.shape[0], a.groups, outputs, places])
    y = w.emit("reshape", [y], [x.shape[0], a.groups * outputs, *x.shape[2:]])
    y = w.emit("conv_transpose", [y, windows_of(w, int(shape[1]), kernel), None], shape, **settings,
               groups=int(shape[1]))
    return with_bias(w, y, a.bias)


def op_im2col(w, a, shape):
    x = w.value(a.self)
    kernel = pair(a.kernel_size)
    settings = _sides_of(a, 2, "stride", "padding", "dilation")
    to = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in zip(
        x.shape[2:], pair(a.padding), pair(a.dilation), kernel, pair(a.stride))]
    return w.emit("reshape", [_unfolded(w, x, kernel, to, settings)], shape)


def op_col2im(w, a, shape):
    """Each number of a window is added where it came from."""
    x, kernel, channels = w.value(a.self), pair(a.kernel_size), int(shape[1])
    sizes = list(zip(shape[2:], pair(a.padding), pair(a.dilation), kernel, pair(a.stride)))
    blocks = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in sizes]
    more = [n + 2 * p - d * (k - 1) - 1 - (b - 1) * s for (n, p, d, k, s), b in zip(sizes, blocks)]
    settings = _sides_of(Bound(a, output_padding=more), 2, "stride", "padding", "dilation",
                         "output_padding")
    x = w.emit("reshape", [x], [x.shape[0], x.shape[1], *blocks])
    return w.emit("conv_transpose", [x, windows_of(w, channels, kernel), None], shape, **settings,
                  groups=channels)


op_conv1d = op_conv2d


def op_conv_transpose2d(w, a, shape):
    settings = _sides_of(a, len(a.weight.shape) - 2, "stride", "padding", "dilation",
                         "output_padding")
    if is_computed(w, a.weight):
        return _transposed_of_computed(w, a, shape, settings)
    return w.emit("conv_transpose", [w.value(a.input), w.parameter(a.weight, "weight"),
                                     w.parameter(a.bias, "bias")], shape, **settings,
                  groups=a.groups)


op_conv_transpose1d = op_conv_transpose2d
