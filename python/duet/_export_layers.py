"""Layers with parameters, and products of matrices: see _export_ops.py."""

import math

from . import _export_turned as turning
from ._export_choices import _largest
from ._export_convolutions import is_computed, without_samples
from ._export_graph import Counted, N, Stored, Value
from ._export_ops import Bound, binary, line_dim, op_linalg_vector_norm, \
    op_sum, pair_of, require, times
from ._export_picks import check_places
from ._export_shapes import _view

# ---- layers with parameters

def op_linear(w, a, shape):
    if isinstance(a.input, turning.Turned):
        return turning.linear(w, a.input, lambda x: op_linear(
            w, Bound(a, input=x), [*x.shape[:-1], shape[-1]]))
    x, weight = w.value(a.input), a.weight
    if isinstance(weight, Value):
        turned = w.emit("transpose", [weight], weight.shape[::-1], True, dim0=1, dim1=2)
        y = op_matmul(w, Bound(self=x, other=turned), shape)
        return y if a.bias is None else binary(w, "add", y, a.bias, shape)
    if isinstance(a.bias, Value):
        return binary(w, "add", op_linear(w, Bound(a, bias=None), shape), a.bias, shape)
    op = "linear"
    if isinstance(weight, Stored) and weight.transposed:
        op, weight = "matmul_add", Stored(weight.name, weight.of.shape, weight.of)
    return w.emit(op, [x, w.parameter(weight, "weight"), w.parameter(a.bias, "bias")], shape,
                  x.lifted)


def op_batch_norm(w, a, shape):
    buffers = [None] * 3
    if a.running_mean is not None:
        base = getattr(a.running_mean, "name", None) or ""
        base = base.removesuffix("running_mean")
        buffers = [base + "running_mean", base + "running_var", base + "num_batches_tracked"]
        require(isinstance(a.running_mean, Stored) and isinstance(a.running_var, Stored) and
                a.running_var.name == buffers[1] and w.names.issuperset(buffers),
                "its statistics are no buffers running_mean, running_var and num_batches_tracked "
                "of one module, as nn.BatchNorm has them")
    x, of_sequences = w.value(a.input), len(shape) == 3
    if not x.lifted and (is_computed(w, a.weight) or is_computed(w, a.bias)):
        y = op_batch_norm(w, Bound(a, weight=None, bias=None), shape)
        return _scaled(w, y, a.weight, a.bias, [shape[1], *[1] * (len(shape) - 2)])
    if x.lifted:  # as the weights of a convolution are standardised
        require(a.training and shape[0] == 1 and a.running_mean is None,
                "of a tensor without samples")
        y = without_samples(w, x, shape, lambda x, shape: op_group_norm(
            w, Bound(a, input=x, weight=None, bias=None, num_groups=int(shape[1])), shape))
        return _scaled(w, y, a.weight, a.bias, [shape[1], *[1] * (len(shape) - 2)])
    if of_sequences:  # as pictures of one column
        x = w.emit("reshape", [x], [*shape, 1])
    if len(shape) == 5:
        x = w.emit("reshape", [x], [*shape[:3], shape[3] * shape[4]])
    how = {"momentum": a.momentum} if a.training else {"training": 0}
    weight, bias = (w.frozen(w.torch.full([shape[1]], float(number)), f"{number}.{shape[1]}")
                    if p is None else w.parameter(p, what)
                    for p, what, number in ((a.weight, "weight", 1), (a.bias, "bias", 0)))
    y = w.emit("batch_norm", [x, weight, bias, *buffers], x.shape, eps=a.eps, **how)
    return y if len(shape) in (2, 4) else w.emit("reshape", [y], shape)


def op_layer_norm(w, a, shape):
    if isinstance(a.input, turning.Turned):
        require(len(a.normalized_shape) == 1, "of samples that are not in front")
        return turning.linear(w, a.input,
                              lambda x: op_layer_norm(w, Bound(a, input=x), list(x.shape)))
    if is_computed(w, a.weight) or is_computed(w, a.bias):
        y = op_layer_norm(w, Bound(a, weight=None, bias=None), shape)
        return _scaled(w, y, a.weight, a.bias, a.normalized_shape)
    x = w.value(a.input)
    return w.emit("layer_norm", [x, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")],
                  shape, x.lifted, shape=list(a.normalized_shape), eps=a.eps)


def _scaled(w, y, weight, bias, sizes):
    """y times a weight plus a bias, which are seen with these sizes."""
    for op, p in (("multiply", weight), ("add", bias)):
        y = y if p is None else binary(w, op, y, _view(w, Bound(self=p), list(sizes)), y.shape)
    return y


def op_instance_norm(w, a, shape):
    require(a.use_input_stats and a.running_mean is None, "running statistics of instances")
    return op_group_norm(w, Bound(a, num_groups=a.input.shape[1]), shape)


def op_rms_norm(w, a, shape):
    x = w.value(a.input)
    dims = [line_dim(x, d - len(a.normalized_shape)) for d in range(len(a.normalized_shape))]
    one = [1 if d >= len(shape) - len(dims) else n for d, n in enumerate(shape)]
    mean = w.emit("mean", [w.emit("multiply", [x, x], shape, x.lifted)], one, x.lifted, dims=dims,
                  keepdim=1)
    eps = w.torch.finfo(w.torch.float32).eps if a.eps is None else a.eps
    root = w.emit("sqrt", [w.emit("add_number", [mean], one, x.lifted, number=eps)], one, x.lifted)
    y = binary(w, "multiply", x, w.emit("reciprocal", [root], one, x.lifted), shape)
    return y if a.weight is None else binary(w, "multiply", y, a.weight, shape)


def op_group_norm(w, a, shape):
    if is_computed(w, a.weight) or is_computed(w, a.bias):
        y = op_group_norm(w, Bound(a, weight=None, bias=None), shape)
        return _scaled(w, y, a.weight, a.bias, [shape[1], *[1] * (len(shape) - 2)])
    return w.emit("group_norm", [w.value(a.input), w.parameter(a.weight, "weight"),
                                 w.parameter(a.bias, "bias")], shape, groups=a.num_groups,
                  eps=a.eps)


def op_embedding(w, a, shape):
    require(not a.scale_grad_by_freq and not a.sparse, "scale_grad_by_freq or sparse")
    rows, index = int(a.weight.shape[0]), a.indices
    if isinstance(index, turning.Turned):
        own = index.base.shape
        y = op_embedding(w, Bound(a, indices=index.base), [*own, shape[-1]])
        return turning.Turned(y, [*index.dims, [len(own)]])
    w.parameter(a.weight, "weight")
    if isinstance(a.indices, Value):
        check_places(w, a.indices, rows, "tokens", "rows", True)
    index = w.value(a.indices)
    left_out = {} if a.get("padding_idx", -1) < 0 else {"padding_idx": a.padding_idx}
    return w.emit("embedding", [index, w.parameter(a.weight, "weight")], shape, index.lifted,
                  **left_out)


def op_embedding_bag(w, a, shape):
    """Of bags of one size, as a matrix of tokens has them: its rows are joined, and offsets begin
    one in each."""
    starts, joined = a.offsets, a.indices
    size = int(starts.two[1]) if isinstance(starts, Counted) and len(starts.two) == 2 else 0
    if isinstance(joined, Value) and size == 1:  # a token of each sample, as they are
        joined = turning.Turned(w.emit("reshape", [joined], [*joined.shape, 1]), [[0, 1]])
    require(size and starts.one.tolist() == [0] and isinstance(joined, turning.Turned) and
            joined.dims == [[0, 1]] and joined.base.shape[1] == size, "of bags of other sizes")
    require(a.per_sample_weights is None and a.get("padding_idx", -1) in (None, -1),
            "with weights for each token, or a token that is left out")
    require(not a.include_last_offset, "include_last_offset")
    tokens = joined.base
    rows = op_embedding(w, Bound(weight=a.weight, indices=tokens, sparse=a.sparse,
                                 scale_grad_by_freq=a.scale_grad_by_freq),
                        [*tokens.shape, shape[0][1]])
    if a.mode == 2:
        y = _largest(w, rows, [1])
    else:
        y = w.emit("mean" if a.mode else "sum", [rows], shape[0], dims=[1], keepdim=0)
    return [y, None, None, None]


def op_bilinear(w, a, shape):
    """A convolution whose window is all products of an x1 with an x2."""
    x1, x2 = w.value(a.input1), w.value(a.input2)
    require(not x1.lifted and not x2.lifted, "of tensors without samples")
    (n, *rows, out), i, j = shape, int(x1.shape[-1]), int(x2.shape[-1])
    places = math.prod(rows)
    x1 = w.emit("reshape", [x1], [n, places, i])
    x1 = w.emit("reshape", [w.emit("transpose", [x1], [n, i, places], dim0=1, dim1=2)],
                [n, i, places, 1])
    x2 = w.emit("reshape", [x2], [n, 1, places, j])
    products = w.emit("reshape", [binary(w, "multiply", x1, x2, [n, i, places, j])],
                      [n, i, places * j])
    y = w.emit("conv", [products, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")],
               [n, out, places], stride=j)
    y = w.emit("transpose", [y], [n, places, out], dim0=1, dim1=2)
    return w.emit("reshape", [y], shape)

# ---- products of matrices

def op_matmul(w, a, shape):
    x, y = a.self if "self" in a else a.input, a.other if "other" in a else a.mat2
    if len(y.shape) == 1 and isinstance(x, turning.Turned):
        column = w.value(_view(w, Bound(self=y), [int(y.shape[0]), 1]))
        z = op_matmul(w, Bound(self=x, other=column), [*shape, 1])
        return _view(w, Bound(self=z), shape)
    if len(y.shape) == 1:
        x = w.value(x)
        return op_sum(w, Bound(self=binary(w, "multiply", x, y, x.shape),
                               dim=[len(x.shape) - 1]), shape)
    if len(x.shape) == 1 and not isinstance(y, turning.Turned):
        y = w.value(y)
        column = _view(w, Bound(self=x), [int(x.shape[0]), 1])
        return op_sum(w, Bound(self=binary(w, "multiply", column, y, y.shape),
                               dim=[len(y.shape) - 2]), shape)
    if isinstance(y, turning.Turned):
        return turning.matmul(w, x, y)
    if isinstance(x, turning.Turned):
        if len(y.shape) > 2:
            return _by_matrices(w, x, y)
        return turning.linear(w, x, lambda x: op_matmul(
            w, Bound(self=x, other=y), [*x.shape[:-1], shape[-1]]))
    if isinstance(y, Stored) and len(y.of.shape) == 2 and y.name in w.stored and \
            (y.whole or y.transposed):
        return op_linear(w, Bound(input=x, bias=None, weight=Stored(
            y.name, reversed(y.shape), y.of, not y.transposed)), shape) if y.transposed else \
            w.emit("matmul_add", [x := w.value(x), y.name, None], shape, x.lifted)
    x, y = w.value(x), w.value(y)

    def for_rows(x):  # a copy for each row, where a sample has several
        return x if w.rows == 1 else w.aligned(_view(w, Bound(self=x), [1, *x.shape]), 3)
    if y.lifted and not x.lifted and len(y.shape) == 2:  # each sample has a copy of y
        rows = 1
        for size in x.shape[1:-1]:
            rows *= size
        n, inner = x.shape[0], x.shape[-1]
        z = x if len(x.shape) == 3 else w.emit("reshape", [x], [n, rows, inner])
        z = w.emit("matmul", [z, for_rows(y)], [n, rows, shape[-1]])
        return z if len(x.shape) == 3 else w.emit("reshape", [z], shape)
    if x.lifted and not y.lifted and len(x.shape) == 2 and len(y.shape) == 3:
        return w.emit("matmul", [for_rows(x), y], shape)
    if x.lifted != y.lifted:
        x, y = pair_of(w, x, y)
    require(len(x.shape) == len(y.shape) or x.lifted, "operands with other numbers of dimensions")
    return w.emit("matmul", [x, y], shape, x.lifted)


op_mm = op_matmul


def op_bmm(w, a, shape):
    x, y = a.self, a.mat2
    if isinstance(x, turning.Turned) and not x.dims[0] and not isinstance(y, turning.Turned):
        return _rows_times(w, x, w.value(y))
    if isinstance(x, turning.Turned) and 0 in x.dims[1] and not isinstance(y, turning.Turned):
        return _by_matrices(w, x, y)
    if any(isinstance(x, turning.Turned) for x in (x, y)):
        return turning.matmul(w, x, y)
    return op_matmul(w, a, shape)


def _by_matrices(w, x, y):
    """Matrices (H, rows of all samples, K) times others, (H, K, M), which are of no samples."""
    require(len(x.dims) == len(y.shape) == 3 and 0 in x.dims[1] and (
        isinstance(y, (Stored, w.torch.Tensor)) or isinstance(y, Value) and y.lifted),
        "it takes matrices that are not of samples")
    y = w.aligned(_view(w, Bound(self=y), [1, *y.shape]), 4)
    heads, rows, depth = x.dims
    inner = [i for i in rows if i]
    order, shape = [0, *heads, *inner, *depth], x.base.shape
    require(sorted(order) == list(range(len(shape))), "its dimensions cannot be followed")
    base = w.emit("permute", [x.base], [shape[i] for i in order], order=order)
    sizes = [shape[i] for i in inner]
    base = w.emit("reshape", [base], [N(1), x.shape[0], math.prod(sizes), x.shape[2]])
    z = w.emit("matmul", [base, y], [*base.shape[:3], y.shape[3]])
    z = w.emit("reshape", [z], [N(1), x.shape[0], *sizes, y.shape[3]])
    return turning.Turned(z, [[1], [0 if i == 0 else 2 + inner.index(i) for i in rows],
                              [2 + len(inner)]])


def _rows_times(w, x, y):
    """As einsum writes it: one matrix (1, rows of all samples, K) times one (1, K, M)."""
    y = w.emit("reshape", [y], y.shape[1:], y.lifted)
    z = turning.turned(turning.linear(
        w, turning.Turned(x.base, x.dims[1:]),
        lambda x: op_matmul(w, Bound(self=x, other=y), [*x.shape[:-1], y.shape[-1]])))
    return turning.Turned(z.base, [[], *z.dims])


def op_cdist(w, a, shape):
    """Distances of the rows of two matrices, in a dimension of their own."""
    require(a.p in (1, 2), f"the norm of order {a.p}")

    def beside(x, place):
        x = x if isinstance(x, (Value, Stored)) else w.value(x)
        size = list(x.shape)
        return _view(w, Bound(self=x), size[:len(size) + place] + [1] + size[len(size) + place:])
    wide = [*shape, a.x1.shape[-1]]
    off = binary(w, "subtract", beside(a.x1, -1), beside(a.x2, -2), wide)
    return op_linalg_vector_norm(w, Bound(self=off, ord=a.p, dim=[-1]), shape)


def op_addmm(w, a, shape):
    if isinstance(a.mat1, turning.Turned):  # rows of all samples, as view makes them
        return turning.linear(w, a.mat1, lambda x: op_addmm(
            w, Bound(a, mat1=x), [*x.shape[:-1], shape[-1]]))
    y = a.mat2
    if a.alpha != 1 or a.beta != 1 or not (isinstance(y, Stored) and y.name in w.stored and
                                           (y.whole or y.transposed)):
        return _sum_of(w, a, a.mat1, y, shape)
    op = "linear" if y.transposed else "matmul_add"
    return w.emit(op, [w.value(a.mat1), y.name, w.parameter(a.self, "bias")], shape)


def _sum_of(w, a, x, y, shape):
    product = times(w, op_matmul(w, Bound(self=x, other=y), shape), a.alpha)
    return product if a.beta == 0 else binary(w, "add", product, times(w, a.self, a.beta), shape)


def op_baddbmm(w, a, shape):
    if any(isinstance(x, turning.Turned) for x in (a.self, a.batch1, a.batch2)):
        product = times(w, turning.matmul(w, a.batch1, a.batch2), a.alpha)
        mask = a.self * a.beta if isinstance(a.self, w.torch.Tensor) else times(w, a.self, a.beta)
        return product if a.beta == 0 else turning.added(w, product, mask, binary)
    return _sum_of(w, a, a.batch1, a.batch2, shape)
