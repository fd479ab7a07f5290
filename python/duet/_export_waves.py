"""Fourier transforms, and the complex numbers that they make. A transform along one dimension is a
product with a matrix of cosines and sines, a constant of the text:

    real to complex     re = cos x,             im = -sin x
    complex to complex  re = cos re + sin im,   im = cos im - sin re;  back: with -sin for sin
    complex to real     x = w (cos re - sin im), where w is 1 for the first wave and for the last of
                        an even length, else 2: each other wave stands for its mirror image too

It has n^2 products where a fast transform has n log n. See _export_ops.py."""

import math

from ._export_graph import Complex, Filled
from ._export_ops import Bound, binary, line_dim, require
from ._export_shapes import along

# What is done with the real parts and the imaginary parts alike.
BY_PARTS = {"view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze",
            "transpose", "permute", "select", "slice", "narrow", "split", "split_with_sizes",
            "chunk", "unbind", "expand", "repeat", "roll", "flip", "cat", "stack",
            "constant_pad_nd", "pad", "neg", "index", "index_select", "copy", "where", "add",
            "sub", "sum", "mean", "cumsum", "div"}
MULTIPLY = {"matmul", "mm", "bmm"}


def of_complex(run, name):
    """The function of an op for operands of which some are complex."""
    return by_products(run) if name in MULTIPLY else by_parts(run, name) if name in BY_PARTS else \
        run


def _is_complex(w, x):
    return isinstance(x, (Complex, complex)) or isinstance(x, w.torch.Tensor) and x.is_complex()


def by_parts(run, name):
    """Of two that are added, or of which one is chosen, one may be real: its other part is 0."""
    def both(w, a, shape):
        def of(x, i):
            if _is_complex(w, x):
                return x.imag if i else x.real
            return [of(y, i) for y in x] if isinstance(x, list) else x

        def made(i):
            parts = {key: of(x, i) for key, x in a.items()}
            zero = {"add": ("self", "other"), "sub": ("self", "other"), "where": ("self", "other"),
                    "constant_pad_nd": ("value",), "pad": ("value",)}.get(name, ()) if i else ()
            parts.update({key: 0.0 for key in zero if not _is_complex(w, a.get(key))})
            return run(w, Bound(parts), shape)
        require(name != "div" or not isinstance(a.other, Complex), "by a complex number")
        values = a.tensors if name in ("cat", "stack") else [a.src] if name == "copy" else []
        require(all(_is_complex(w, x) for x in values), "of complex numbers and real ones")
        real, imag = made(0), made(1)
        return [Complex(*pair) for pair in zip(real, imag)] if isinstance(real, list) else \
            Complex(real, imag)
    return both


def by_products(run):
    """Of an op that multiplies two: each part of the one with each of the other."""
    def both(w, a, shape):
        keys = [key for key in ("self", "input", "other", "mat2") if key in a]
        x, y = a[keys[0]], a[keys[1]]

        def product(x, y):
            return run(w, Bound(a, **{keys[0]: x, keys[1]: y}), shape)
        require(isinstance(x, Complex) and isinstance(y, Complex),
                "of a complex number and a real one")
        return Complex(binary(w, "subtract", product(x.real, y.real), product(x.imag, y.imag),
                              shape),
                       binary(w, "add", product(x.real, y.imag), product(x.imag, y.real), shape))
    return both


def _waves(w, count, length):
    """The cosines and sines of wave k at place j, of so many waves."""
    angle = w.torch.outer(w.torch.arange(count), w.torch.arange(length)) % length
    angle = angle.double() * (2 * math.pi / length)
    return angle.cos(), angle.sin()


def _transformed(w, parts, blocks, dim):
    """The matrix of `blocks`, rows of it for each part of the result, times the parts along dim.
    Imaginary parts of 0 have none."""
    blocks = [[block for block, x in zip(row, parts) if not isinstance(x, Filled)]
              for row in blocks]
    parts = [w.value(x) for x in parts if not isinstance(x, Filled)]
    require(parts[0].lifted or dim, "it mixes samples: dim has 0")

    def long(length):
        return [length if d == dim else n for d, n in enumerate(parts[0].shape)]
    x, at = parts[0], line_dim(parts[0], dim)
    if len(parts) == 2:
        x = w.emit("cat", parts, long(2 * x.shape[dim]), x.lifted, dim=at)
    count, outs = blocks[0][0].shape[0], len(blocks)
    matrix = w.torch.cat([w.torch.cat(row, 1) for row in blocks]).float()
    y = along(w, x, dim, matrix.t(), long(outs * count))
    if outs == 1:
        return y
    return Complex(*(w.emit("narrow", [y], long(count), y.lifted, dim=at, start=i * count,
                            length=count) for i in range(outs)))


def _scale(normalization, dims, shape):
    count = math.prod(int(shape[d]) for d in dims)
    return (1, 1 / math.sqrt(count), 1 / count)[normalization]


def _to_complex(w, x, dim, forward, scale):
    cos, sin = (scale * wave for wave in _waves(w, int(x.shape[dim]), int(x.shape[dim])))
    sin = sin if forward else -sin
    return _transformed(w, [x.real, x.imag], [[cos, sin], [-sin, cos]], dim)


def op__fft_c2c(w, a, shape):
    require(isinstance(a.self, Complex), "of a tensor that depends on no sample")
    dims, x = [d % len(shape) for d in a.dim], a.self
    for d in dims:
        x = _to_complex(w, x, d, a.forward, _scale(a.normalization, [d], shape))
    return x


def op__fft_r2c(w, a, shape):
    dims, x = [d % len(shape) for d in a.dim], w.value(a.self)
    length = int(x.shape[dims[-1]])
    cos, sin = (_scale(a.normalization, dims, x.shape) * wave
                for wave in _waves(w, int(shape[dims[-1]]), length))
    x = _transformed(w, [x], [[cos], [-sin]], dims[-1])
    for d in dims[:-1]:
        x = _to_complex(w, x, d, True, 1)
    return x


def op__fft_c2r(w, a, shape):
    require(isinstance(a.self, Complex), "of a tensor that depends on no sample")
    dims, x = [d % len(shape) for d in a.dim], a.self
    for d in dims[:-1]:
        x = _to_complex(w, x, d, False, 1)
    last = dims[-1]
    length, count = int(shape[last]), int(x.shape[last])
    cos, sin = _waves(w, count, length)
    twice = w.torch.full((count, 1), 2 * _scale(a.normalization, dims, shape),
                         dtype=w.torch.float64)
    twice[0] /= 2
    if length % 2 == 0:
        twice[length // 2] /= 2
    return _transformed(w, [x.real, x.imag], [[(twice * cos).t(), -(twice * sin).t()]], last)


def op_complex(w, a, shape):
    return Complex(*(binary(w, "add", x, w.torch.zeros(1), shape)
                     if list(map(str, x.shape)) != list(map(str, shape)) else x
                     for x in (a.real, a.imag)))


def op__conj(w, a, shape):
    require(isinstance(a.self, Complex), "of a tensor that depends on no sample")
    imag = w.value(a.self.imag)
    return Complex(a.self.real, w.emit("multiply_number", [imag], imag.shape, imag.lifted,
                                       number=-1))


op_conj_physical = op__conj


def op_resolve_conj(w, a, shape):
    return a.self




def op_real(w, a, shape):
    return a.self.real if isinstance(a.self, Complex) else a.self


def op_imag(w, a, shape):
    require(isinstance(a.self, Complex), "of a tensor that is not complex")
    return a.self.imag
