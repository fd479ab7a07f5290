"""Layers with parameters, products of matrices, attention and pools: see _export_ops.py."""

from . import _export_turned as turning
from ._export_graph import Stored, Value
from ._export_ops import Bound, binary, number_of, pair, pair_of, require, same, square, times


# ---- layers with parameters

def op_conv2d(w, a, shape):
    """conv1d too, whose windows have one side."""
    kernel = list(a.weight.of.shape[2:])
    stride, dilation = pair(a.stride)[:len(kernel)], pair(a.dilation)[:len(kernel)]
    x, padding = w.value(a.input), a.padding
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for k, d in zip(kernel, dilation)]
        padding = [t // 2 for t in total]
        odd = [t % 2 for t in total]
        if any(odd):
            require(len(kernel) == 2, "padding=same of sequences to an odd number of zeros")
            h, v = x.shape[-2:]
            x = w.emit("pad2d", [x], [*x.shape[:2], h + odd[0], v + odd[1]],
                       sides=[0, odd[1], 0, odd[0]])
    operands = [x, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")]
    settings = {"stride": stride, "padding": pair(padding)[:len(kernel)], "dilation": dilation}
    settings = {key: y[0] if len(set(y)) == 1 else y for key, y in settings.items()}
    is_square = len(kernel) == 2 and len(set(kernel)) == 1 and all(
        isinstance(y, int) for y in settings.values())
    if is_square and a.groups == settings["dilation"] == 1:
        return w.emit("conv2d", operands, shape, stride=settings["stride"],
                      padding=settings["padding"])
    return w.emit("conv", operands, shape, **settings, groups=a.groups)


op_conv1d = op_conv2d


def op_linear(w, a, shape):
    if isinstance(a.input, turning.Turned):
        return turning.linear(w, a.input, lambda x: op_linear(
            w, Bound(a, input=x), [*x.shape[:-1], shape[-1]]))
    x, weight = w.value(a.input), a.weight
    op = "linear"
    if isinstance(weight, Stored) and weight.transposed:
        op, weight = "matmul_add", Stored(weight.name, weight.of.shape, weight.of)
    return w.emit(op, [x, w.parameter(weight, "weight"), w.parameter(a.bias, "bias")], shape,
                  x.lifted)


def op_batch_norm(w, a, shape):
    require(a.training, "it is in eval mode: Duet trains BatchNorm with the batch's statistics")
    require(a.weight is not None and a.bias is not None, "affine=False: Duet's has weights")
    buffers = [None] * 3
    if a.running_mean is not None:
        base = a.running_mean.name[:-len("running_mean")]
        buffers = [base + "running_mean", base + "running_var", base + "num_batches_tracked"]
    return w.emit("batch_norm", [w.value(a.input), w.parameter(a.weight, "weight"),
                                 w.parameter(a.bias, "bias"), *buffers], shape, eps=a.eps,
                  momentum=a.momentum)


def op_layer_norm(w, a, shape):
    x = w.value(a.input)
    return w.emit("layer_norm", [x, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")],
                  shape, x.lifted, shape=list(a.normalized_shape), eps=a.eps)


def op_group_norm(w, a, shape):
    return w.emit("group_norm", [w.value(a.input), w.parameter(a.weight, "weight"),
                                 w.parameter(a.bias, "bias")], shape, groups=a.num_groups,
                  eps=a.eps)


def op_embedding(w, a, shape):
    require(not a.scale_grad_by_freq and not a.sparse, "scale_grad_by_freq or sparse")
    require(a.get("padding_idx", -1) < 0, "padding_idx: Duet's trains every row: leave it out")
    rows = a.weight.of.shape[0] if isinstance(a.weight, Stored) else 0
    if isinstance(a.indices, Value):
        require(a.indices.name in w.tokens, "its tokens are computed, not an input's as they are")
        for name in w.tokens[a.indices.name]:
            w.below[name] = min(rows, w.below.get(name, rows))
    index = w.value(a.indices)
    return w.emit("embedding", [index, w.parameter(a.weight, "weight")], shape, index.lifted)

# ---- products of matrices

def op_matmul(w, a, shape):
    x, y = a.self if "self" in a else a.input, a.other if "other" in a else a.mat2
    if isinstance(y, Stored) and len(y.of.shape) == 2 and y.name in w.stored and \
            (y.whole or y.transposed):
        return op_linear(w, Bound(input=x, bias=None, weight=Stored(
            y.name, reversed(y.shape), y.of, not y.transposed)), shape) if y.transposed else \
            w.emit("matmul_add", [w.value(x), y.name, None], shape)
    x, y = w.value(x), w.value(y)
    if x.lifted != y.lifted:
        x, y = pair_of(w, x, y)
    require(len(x.shape) == len(y.shape) or x.lifted, "operands with other numbers of dimensions")
    return w.emit("matmul", [x, y], shape, x.lifted)


op_bmm = op_mm = op_matmul


def op_addmm(w, a, shape):
    y = a.mat2
    require(a.alpha == 1 and a.beta == 1, "addmm with factors")
    require(isinstance(y, Stored) and y.name in w.stored and (y.whole or y.transposed),
            "addmm of what is no parameter")
    op = "linear" if y.transposed else "matmul_add"
    return w.emit(op, [w.value(a.mat1), y.name, w.parameter(a.self, "bias")], shape)


def op_baddbmm(w, a, shape):
    product = op_matmul(w, Bound(self=a.batch1, other=a.batch2), shape)
    scaled = times(w, product, a.alpha)
    return scaled if a.beta == 0 else binary(w, "add", scaled, times(w, a.self, a.beta), shape)


def op_scaled_dot_product_attention(w, a, shape):
    require(not a.get("enable_gqa"), "enable_gqa")
    q, k, v = (w.value(x) for x in (a.query, a.key, a.value))
    width, keys = q.shape[-1], k.shape[-2]
    scale = a.scale if a.scale is not None else width ** -0.5
    lead = list(q.shape[:-2])
    order = [*lead, width, keys]
    kt = w.emit("transpose", [k], order, dim0=len(order) - 2, dim1=len(order) - 1)
    rows = [*lead, q.shape[-2], keys]
    scores = w.emit("matmul", [w.emit("multiply_number", [q], q.shape, number=scale), kt], rows)
    mask = a.attn_mask
    if a.is_causal:
        mask = w.torch.ones(q.shape[-2], keys, dtype=w.torch.bool).tril()
    if isinstance(mask, w.torch.Tensor) and mask.dtype == w.torch.bool:
        mask = w.torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    if mask is not None:
        scores = binary(w, "add", scores, mask, rows)
    weights = w.emit("softmax", [scores], rows)
    if a.dropout_p:
        weights = w.emit("dropout", [weights], rows, p=a.dropout_p)
    return w.emit("matmul", [weights, v], shape)

# ---- pools

def op_max_pool2d(w, a, shape):
    size = square(a.kernel_size, "windows of")
    require(all(d == 1 for d in pair(a.dilation)), "dilation: Duet's pool has 1")
    return same(w, "max_pool2d", a.self, shape, size=size,
                 stride=square(a.stride or a.kernel_size, "a stride of"),
                 padding=square(a.padding, "a padding of"), ceil_mode=int(a.ceil_mode))


def op_avg_pool2d(w, a, shape):
    padding = square(a.padding, "a padding of")
    require(a.count_include_pad or not padding, "count_include_pad=False")
    require(not a.ceil_mode and a.divisor_override is None, "ceil_mode or divisor_override")
    return same(w, "avg_pool2d", a.self, shape, size=square(a.kernel_size, "windows of"),
                 stride=square(a.stride or a.kernel_size, "a stride of"), padding=padding)


def op_adaptive_avg_pool2d(w, a, shape):
    return same(w, "adaptive_avg_pool2d", a.self, shape, size=list(shape[-2:]))


def op_adaptive_max_pool2d(w, a, shape):
    return [same(w, "adaptive_max_pool2d", a.self, shape[0], size=list(shape[0][-2:])), None]


def op_constant_pad_nd(w, a, shape):
    sides = [*a.pad, 0, 0, 0, 0]
    require(len(a.self.shape) == 4 and not any(sides[4:]), "padding of other than pictures")
    return same(w, "pad2d", a.self, shape, sides=sides[:4], value=a.value or 0)


def op_pad(w, a, shape):
    require(a.mode == "constant", f"mode={a.mode}")
    return op_constant_pad_nd(w, a, shape)
