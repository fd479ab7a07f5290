"""Pools, pads and changes of size: see _export_ops.py."""

from . import _export_turned as turning
from ._export_graph import N, Value
from ._export_ops import Bound, binary, pair, require, same
from ._export_shapes import swapped, along


_LEAST = -3.4028234663852886e+38  # of float32: no maximum is below it


def _pictures(w, x, rank):
    """The operand of a pool; PyTorch takes others, whose first dimension is channels."""
    require(len(x.shape) == rank, "of what has no dimension of samples beside its channels")
    x = w.value(x)
    require(not x.lifted, "of a tensor without samples")
    return x


def op_max_pool2d(w, a, shape):
    x, stride = _pictures(w, a.self, 4), a.stride or a.kernel_size
    if set(pair(a.dilation)) != {1}:
        return _dilated(w, x, shape, a.kernel_size, stride, a.padding, a.dilation)
    return same(w, "max_pool2d", x, shape, size=_sides(a.kernel_size), stride=_sides(stride),
                padding=_sides(a.padding), ceil_mode=int(a.ceil_mode))


def _sides(setting):
    """Of rows and of columns; one number for both."""
    rows, columns = pair(setting)
    return rows if rows == columns else [rows, columns]


def _dilated(w, x, shape, size, stride, padding, dilation):
    """Each row by itself, and of that each column. The first of equal maxima is the same, row by
    row, as PyTorch looks for it."""
    n, c, height, width = x.shape
    settings = list(zip(pair(size), pair(stride), pair(padding), pair(dilation)))
    to_height, to_width = shape[-2:]
    x = w.emit("reshape", [x], [n, c * height, width])
    x = _dilated_rows(w, x, to_width, *settings[1])
    x = w.emit("reshape", [x], [n, c, height, to_width])
    x = w.emit("transpose", [x], [n, c, to_width, height], dim0=2, dim1=3)
    x = w.emit("reshape", [x], [n, c * to_width, height])
    x = _dilated_rows(w, x, to_height, *settings[0])
    x = w.emit("reshape", [x], [n, c, to_width, to_height])
    return w.emit("transpose", [x], shape, dim0=2, dim1=3)


def _dilated_rows(w, x, to, size, stride, padding, dilation):
    """The places of the windows lie as rows one below the other."""
    n, c, length = x.shape
    span = (to - 1) * stride + 1
    short = max(span + dilation * (size - 1) - padding - length, 0)
    x = w.emit("reshape", [x], [n, c, 1, length])
    if padding or short:
        x = w.emit("pad2d", [x], [n, c, 1, length + padding + short],
                   sides=[padding, short, 0, 0], value=_LEAST)
    rows = [w.emit("narrow", [x], [n, c, 1, span], dim=3, start=i * dilation, length=span)
            for i in range(size)]
    x = w.emit("cat", rows, [n, c, size, span], dim=2)
    x = w.emit("max_pool2d", [x], [n, c, 1, to], size=[size, 1], stride=[1, stride])
    return w.emit("reshape", [x], [n, c, to])


def op_max_pool1d(w, a, shape):
    size, padding, dilation = (pair(x)[0] for x in (a.kernel_size, a.padding, a.dilation))
    stride = pair(a.stride)[0] if a.stride else size
    if dilation != 1:
        return _dilated_rows(w, _pictures(w, a.self, 3), shape[-1], size, stride, padding, dilation)
    return _of_sequence(w, "max_pool2d", a.self, shape, size, stride, padding,
                        ceil_mode=int(a.ceil_mode))


def _of_sequence(w, op, x, shape, size, stride, padding, **more):
    x = _pictures(w, x, 3)
    n, c, length = x.shape
    x = w.emit("reshape", [x], [n, c, 1, length])
    x = w.emit(op, [x], [n, c, 1, shape[-1]], size=[1, size], stride=[1, stride],
               padding=[0, padding], **more)
    return w.emit("reshape", [x], shape)


def op_avg_pool1d(w, a, shape):
    x = _pictures(w, a.self, 3)
    n, c, length = x.shape
    size, padding = pair(a.kernel_size)[0], pair(a.padding)[0]
    stride = pair(a.stride)[0] if a.stride else size
    x = w.emit("reshape", [x], [n, c, 1, length])
    row = Bound(self=x, kernel_size=[1, size], stride=[1, stride], padding=[0, padding],
                ceil_mode=a.ceil_mode, count_include_pad=a.count_include_pad, divisor_override=None)
    return w.emit("reshape", [op_avg_pool2d(w, row, [n, c, 1, shape[-1]])], shape)


def op_adaptive_avg_pool1d(w, a, shape):
    x = _pictures(w, a.self, 3)
    n, c, length = x.shape
    x = w.emit("reshape", [x], [n, c, 1, length])
    x = w.emit("adaptive_avg_pool2d", [x], [n, c, 1, shape[-1]], size=[1, shape[-1]])
    return w.emit("reshape", [x], shape)


def op_adaptive_max_pool1d(w, a, shape):
    x = _pictures(w, a.self, 3)
    n, c, length = x.shape
    x = w.emit("reshape", [x], [n, c, 1, length])
    x = w.emit("adaptive_max_pool2d", [x], [n, c, 1, shape[0][-1]], size=[1, shape[0][-1]])
    return [w.emit("reshape", [x], shape[0]), None]


def op_avg_pool2d(w, a, shape):
    """The line knows whole windows and divides by their size. What a last one lacks are zeros, and
    the rest a factor of each place: what PyTorch makes of ones, through what the line does."""
    pool, x = w.torch.nn.functional.avg_pool2d, _pictures(w, a.self, 4)
    size, padding = pair(a.kernel_size), pair(a.padding)
    stride = pair(a.stride) if a.stride else size
    lacks = [max(0, (to - 1) * s + k - p - n) for to, s, k, p, n in
             zip(shape[-2:], stride, size, padding, x.shape[-2:])]
    sides = [padding[1], lacks[1], padding[0], lacks[0]]
    ones = w.torch.ones(1, 1, *x.shape[-2:])
    share = pool(ones, size, stride, padding, a.ceil_mode, a.count_include_pad, a.divisor_override)
    of_line = pool(w.torch.nn.functional.pad(ones, sides), size, stride)
    of_line = of_line[:, :, :shape[-2], :shape[-1]]
    if any(lack > p for lack, p in zip(lacks, padding)):
        wide = [*x.shape[:2], x.shape[2] + padding[0] + lacks[0],
                x.shape[3] + padding[1] + lacks[1]]
        x, padding = w.emit("pad2d", [x], wide, sides=sides), 0
    y = w.emit("avg_pool2d", [x], shape, size=_sides(size), stride=_sides(stride),
               padding=_sides(padding))
    factor = share / of_line
    return y if (factor == 1).all() else binary(w, "multiply", y, factor[0], shape)


def op_adaptive_avg_pool2d(w, a, shape):
    return same(w, "adaptive_avg_pool2d", _pictures(w, a.self, 4), shape, size=list(shape[-2:]))


def op_adaptive_max_pool2d(w, a, shape):
    return [same(w, "adaptive_max_pool2d", _pictures(w, a.self, 4), shape[0],
                 size=list(shape[0][-2:])), None]


def op_constant_pad_nd(w, a, shape):
    sides, x = [*a.pad, 0, 0, 0, 0], w.value(a.self)
    if not any(sides):
        return x
    if x.lifted:
        y = op_constant_pad_nd(w, Bound(a, self=Value(x.name, [N(1), *x.shape])), [N(1), *shape])
        return Value(y.name, y.shape[1:], True)
    if any(sides[4:]):  # those in front first, one by one
        return _padded_in_front(w, x, a, shape)
    require(not x.lifted and len(x.shape) > 1 + (any(sides[2:])), "padding of the samples")
    four, to = ([s[0], _count(s[1:-2]), *([1] * (len(s) == 2)), *s[-2:][len(s) == 2:]]
                for s in (x.shape, shape))
    if list(four) != list(x.shape):
        x = w.emit("reshape", [x], four)
    y = w.emit("pad2d", [x], to, sides=sides[:4],
               value=min(max(a.value or 0, _LEAST), -_LEAST))
    return y if list(to) == list(shape) else w.emit("reshape", [y], shape)


def _padded_in_front(w, x, a, shape):
    """Each such dimension changes places with the last one, which pad2d knows."""
    last = len(shape) - 1
    require(not x.lifted and not any(a.pad[2 * last:]), "padding of the samples")
    for i in range(2, len(a.pad) // 2):
        dim, sides = last - i, a.pad[2 * i:2 * i + 2]
        if any(sides):
            places = {"dim0": dim, "dim1": last}
            y = w.emit("transpose", [x], swapped(x.shape, dim), **places)
            longer = [*y.shape[:-1], shape[dim]]
            y = op_constant_pad_nd(w, Bound(a, self=y, pad=sides), longer)
            x = w.emit("transpose", [y], swapped(longer, dim), **places)
    return op_constant_pad_nd(w, Bound(a, self=x, pad=a.pad[:4]), shape)


def _count(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


def op_pad(w, a, shape):
    if isinstance(a.self, turning.Turned):
        return turning.in_front(
            w, a.self, lambda x, shape, _: op_pad(w, Bound(a, self=x), shape), shape,
            len(shape) - len(a.pad) // 2)
    if a.mode == "constant":
        return op_constant_pad_nd(w, a, shape)
    x = w.value(a.self)
    kept = list(x.shape)
    for i in range(len(a.pad) // 2):
        dim, before, behind = len(kept) - 1 - i, a.pad[2 * i], a.pad[2 * i + 1]
        row = w.torch.eye(kept[dim]).unsqueeze(1)
        map_of = w.torch.nn.functional.pad(row, (before, behind), mode=a.mode)[:, 0]
        kept[dim] += before + behind
        x = along(w, x, dim, map_of, list(kept))
    return x


# ---- linear maps of a side

def op_cumsum(w, a, shape):
    x, dim = w.value(a.self), a.dim % len(shape)
    require(dim or x.lifted, "of samples")
    return along(w, x, dim, w.torch.ones(shape[dim], shape[dim]).triu(), shape)


def _resized(mode, antialias=False):
    """Each side by itself, by the weights that PyTorch gives to a row of unit vectors."""
    def run(w, a, shape):
        x = w.value(a.input)
        kept, sides = list(x.shape), len(shape) - 2
        scales = a.get("scale_factors")
        for i in range(sides):
            dim, eye = len(kept) - 1 - i, w.torch.eye(kept[len(kept) - 1 - i]).double()
            scale = scales[sides - 1 - i] if scales else None
            options = {"mode": "bicubic" if mode == "cubic" else mode}
            if "nearest" not in mode:
                options["align_corners"] = a.align_corners
            if antialias:
                options.update(mode="bicubic" if mode == "cubic" else "bilinear", antialias=True)
            if mode == "cubic" or antialias:
                eye = eye.unsqueeze(1).repeat(1, 4, 1)
            size = {"size": shape[dim]} if scale is None else {"scale_factor": scale}
            if mode == "cubic" or antialias:
                size = {"size": (4, shape[dim])} if scale is None else {"scale_factor": (1., scale)}
            map_of = w.torch.nn.functional.interpolate(eye.unsqueeze(1), **size, **options)
            map_of = map_of[:, 0, 1] if mode == "cubic" or antialias else map_of[:, 0]
            kept[dim] = shape[dim]
            x = along(w, x, dim, map_of, list(kept))
        return x
    return run


op_upsample_nearest1d = op_upsample_nearest2d = op_upsample_nearest3d = _resized("nearest")
op__upsample_nearest_exact1d = op__upsample_nearest_exact2d = op__upsample_nearest_exact3d = \
    _resized("nearest-exact")
op_upsample_linear1d = op_upsample_bilinear2d = op_upsample_trilinear3d = _resized("linear")
op_upsample_bicubic2d = _resized("cubic")
op__upsample_bilinear2d_aa, op__upsample_bicubic2d_aa = _resized("linear", True), \
    _resized("cubic", True)
