"""What the ops of PyTorch are in a graph of Duet: op_NAME(w, a, shape) writes the lines of
aten::NAME with the arguments `a`, whose result has this shape, and returns its value."""

from operator import getitem  # the nodes of torch.export name it  # noqa: F401

from . import _export_turned as turning
from .export import Filled, N, Refused, Stacked, Stored, Value


class Bound(dict):
    """The arguments of a call, by the names of its schema."""

    __getattr__ = dict.__getitem__


def _require(condition, why):
    if not condition:
        raise Refused(why)


def _pair(x):
    x = list(x) if isinstance(x, (list, tuple)) else [x]
    return x * 2 if len(x) == 1 else x


def _square(x, what):
    a, b = _pair(x)
    _require(a == b, f"{what} {a} x {b}: Duet's are square")
    return a


def _dim(x, dim, of=None):
    """A dimension of the value as its line has it."""
    rank = len(x.shape) if of is None else of
    return dim % rank + (1 if x.lifted else 0)


def _same(w, op, x, shape, **settings):
    if isinstance(x, turning.Turned):
        return turning.elementwise(w, x, op, settings)
    x = w.value(x)
    return w.emit(op, [x], shape, x.lifted, **settings)


# ---- layers with parameters

def op_conv2d(w, a, shape):
    x = w.value(a.input)
    if isinstance(a.padding, str):
        _require(a.padding == "valid" or all(s == 1 for s in _pair(a.stride)), "padding=same")
        kernel, dilation = a.weight.of.shape[2:], _pair(a.dilation)
        total = [d * (k - 1) for k, d in zip(kernel, dilation)] if a.padding == "same" else [0, 0]
        sides = [total[1] // 2, total[1] - total[1] // 2, total[0] // 2, total[0] - total[0] // 2]
    else:
        p, q = _pair(a.padding)
        sides = [q, q, p, p]
    _require(a.groups == 1, f"groups={a.groups}: Duet's conv2d has 1")
    _require(all(d == 1 for d in _pair(a.dilation)), "dilation: Duet's conv2d has 1")
    _square(a.weight.of.shape[2:], "a kernel of")
    padding = sides[0]
    if len(set(sides)) > 1:
        h, v = x.shape[-2:]
        x = w.emit("pad2d", [x], [*x.shape[:2], h + sides[2] + sides[3], v + sides[0] + sides[1]],
                   sides=sides)
        padding = 0
    return w.emit("conv2d", [x, w.parameter(a.weight, "weight"), w.parameter(a.bias, "bias")],
                  shape, stride=_square(a.stride, "a stride of"), padding=padding)


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
    _require(a.training, "it is in eval mode: Duet trains BatchNorm with the batch's statistics")
    _require(a.weight is not None and a.bias is not None, "affine=False: Duet's has weights")
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
    _require(not a.scale_grad_by_freq and not a.sparse, "scale_grad_by_freq or sparse")
    _require(a.get("padding_idx", -1) < 0, "padding_idx: Duet's trains every row: leave it out")
    rows = a.weight.of.shape[0] if isinstance(a.weight, Stored) else 0
    if isinstance(a.indices, Value):
        w.below[a.indices.name] = min(rows, w.below.get(a.indices.name, rows))
    index = w.value(a.indices)
    return w.emit("embedding", [index, w.parameter(a.weight, "weight")], shape, index.lifted)


# ---- recurrent layers, a line for each operation of each step

def _part(w, x, i, width):
    return w.emit("narrow", [x], [N(1), width], dim=1, start=i * width, length=width)


def _times_two(w, op, a, b):
    return w.emit(op, [a, b], a.shape)


def _lstm_cell(w, x, gates, state):
    """PyTorch's order of gates: input, forget, cell, output."""
    h, c = state
    width = h.shape[1]
    both = _times_two(w, "add", x, gates(h))
    i, f, g, o = (w.emit("tanh" if k == 2 else "sigmoid", [_part(w, both, k, width)], h.shape)
                  for k in range(4))
    c = _times_two(w, "add", _times_two(w, "multiply", f, c), _times_two(w, "multiply", i, g))
    return _times_two(w, "multiply", o, w.emit("tanh", [c], h.shape)), c


def _gru_cell(w, x, gates, state):
    """PyTorch's order of gates: reset, update, new."""
    h, = state
    width, hidden = h.shape[1], gates(h)
    r, z = (w.emit("sigmoid", [_times_two(w, "add", _part(w, x, k, width),
                                          _part(w, hidden, k, width))], h.shape) for k in range(2))
    new = _times_two(w, "add", _part(w, x, 2, width),
                     _times_two(w, "multiply", r, _part(w, hidden, 2, width)))
    new = w.emit("tanh", [new], h.shape)
    return _times_two(w, "add", new,
                      _times_two(w, "multiply", z, _times_two(w, "subtract", h, new))),


def _rnn_cell(function):
    def cell(w, x, gates, state):
        return w.emit(function, [_times_two(w, "add", x, gates(state[0]))], state[0].shape),
    return cell


def _direction(w, x, weights, cell, states, backward):
    """One layer in one direction: x (N,L,I) to the outputs of each step, and the last states."""
    into, again, *biases = [w.parameter(p, "weight") for p in weights]
    length, gates = x.shape[1], weights[0].of.shape[0]
    width = weights[1].of.shape[1]
    x = w.emit("linear", [x, into, biases[0] if biases else None], [N(1), length, gates])
    zero = w.constant(w.torch.zeros(width))
    state = tuple(w.expand(zero, [N(1), width], False) for _ in range(states))
    outputs = [None] * length
    for t in range(length - 1, -1, -1) if backward else range(length):
        now = w.emit("narrow", [x], [N(1), 1, gates], dim=1, start=t, length=1)
        now = w.emit("reshape", [now], [N(1), gates])
        state = cell(w, now, lambda h: w.emit(
            "linear", [h, again, biases[1] if biases else None], [N(1), gates]), state)
        outputs[t] = w.emit("reshape", [state[0]], [N(1), 1, width])
    return outputs, state


def _join(w, parts, dim):
    """cat takes 64 at most."""
    while len(parts) > 1:
        next_parts = []
        for at in range(0, len(parts), 64):
            some = parts[at:at + 64]
            shape = list(some[0].shape)
            shape[dim] = sum(p.shape[dim] for p in some)
            next_parts.append(some[0] if len(some) == 1 else w.emit("cat", some, shape, dim=dim))
        parts = next_parts
    return parts[0]


def _recurrent(cell, states):
    def run(w, a, shape):
        _require("batch_first" in a and a.batch_first, "batch_first=False: give True")
        given = a.hx if isinstance(a.hx, (list, tuple)) else [a.hx]
        _require(all(isinstance(h, Filled) and h.number == 0 for h in given),
                 "a first state that is not zero")
        x, last, at = w.value(a.input), [Stacked() for _ in range(states)], 0
        ways, each = 2 if a.bidirectional else 1, 4 if a.has_biases else 2
        _require(len(a.params) == ways * each * a.num_layers, "proj_size")
        for layer in range(a.num_layers):
            outputs = []
            for way in range(ways):
                steps, state = _direction(w, x, a.params[at:at + each], cell, states, way == 1)
                at += each
                outputs.append(_join(w, steps, 1))
                for s, kept in zip(state, last):
                    kept.append(s)
            x = _join(w, outputs, 2)
            if a.dropout and a.train and layer + 1 < a.num_layers:
                x = w.emit("dropout", [x], x.shape, p=a.dropout)
        return [x, *last]
    return run


op_lstm, op_gru = _recurrent(_lstm_cell, 2), _recurrent(_gru_cell, 1)
op_rnn_tanh, op_rnn_relu = _recurrent(_rnn_cell("tanh"), 1), _recurrent(_rnn_cell("relu"), 1)


# ---- elementwise

def _elementwise(op):
    def run(w, a, shape):
        return _same(w, op, a.self if "self" in a else a.input, shape)
    return run


op_relu, op_tanh, op_sigmoid = _elementwise("relu"), _elementwise("tanh"), _elementwise("sigmoid")
op_abs, op_exp, op_log = _elementwise("abs"), _elementwise("exp"), _elementwise("log")
op_sqrt, op_reciprocal = _elementwise("sqrt"), _elementwise("reciprocal")
op_relu6 = _elementwise("relu6")


def op_leaky_relu(w, a, shape):
    return _same(w, "leaky_relu", a.self, shape, slope=a.negative_slope)


def op_elu(w, a, shape):
    _require(a.scale == 1 and a.input_scale == 1, "a scaled ELU")
    return _same(w, "elu", a.self, shape, alpha=a.alpha)


def op_hardtanh(w, a, shape):
    return _same(w, "hardtanh", a.self, shape, min=a.min_val, max=a.max_val)


def op_gelu(w, a, shape):
    return _same(w, "gelu", a.self, shape, tanh=int(a.approximate == "tanh"))


def op_softplus(w, a, shape):
    _require(a.beta == 1 and a.threshold == 20, "softplus with other numbers than the defaults")
    return _same(w, "softplus", a.self, shape)


def op_silu(w, a, shape):
    x = w.value(a.self)
    gate = w.emit("sigmoid", [x], shape, x.lifted)
    return w.emit("multiply", [x, gate], shape, x.lifted)


def _hardsigmoid(w, x):
    y = w.emit("relu6", [w.emit("add_number", [x], x.shape, x.lifted, number=3)], x.shape, x.lifted)
    return w.emit("multiply_number", [y], x.shape, x.lifted, number=1 / 6)


def op_hardsigmoid(w, a, shape):
    return _hardsigmoid(w, w.value(a.self))


def op_hardswish(w, a, shape):
    x = w.value(a.self)
    return w.emit("multiply", [x, _hardsigmoid(w, x)], shape, x.lifted)


def op_rsqrt(w, a, shape):
    return _same(w, "reciprocal", _same(w, "sqrt", a.self, shape), shape)


def op_neg(w, a, shape):
    return _same(w, "multiply_number", a.self, shape, number=-1)


def op_pow(w, a, shape):
    x, power = w.value(a.self), _number(w, a.exponent)
    _require(power in (0.5, 1, 2, 3), f"to the power of {power}: Duet has 0.5, 1, 2, 3")
    if power == 0.5:
        return w.emit("sqrt", [x], shape, x.lifted)
    y = x
    for _ in range(int(power) - 1):
        y = w.emit("multiply", [y, x], shape, x.lifted)
    return y


def _dropout(op):
    def run(w, a, shape):
        _require(a.train, "dropout that does nothing in training")
        return _same(w, op, a.input, shape, p=a.p) if a.p else w.value(a.input)
    return run


op_dropout, op_feature_dropout = _dropout("dropout"), _dropout("dropout2d")


# ---- arithmetic

def _number(w, x):
    """A number, or a constant of one number; else None."""
    if isinstance(x, (int, float)) and not isinstance(x, N):
        return float(x)
    if isinstance(x, w.torch.Tensor) and x.numel() == 1 and x.dim() == 0:
        return float(x)
    return None


def _pair_of(w, a, b):
    """Two operands with as many dimensions."""
    def rank(x):
        return len(x.shape)
    lifted = [not isinstance(x, Value) or x.lifted for x in (a, b)]
    if all(lifted):
        a, b = w.value(a), w.value(b)
        most = max(rank(a), rank(b))
        return [x if rank(x) == most else
                w.emit("reshape", [x], [1] * (most - rank(x)) + x.shape, True) for x in (a, b)]
    most = max(rank(x) for x, up in zip((a, b), lifted) if not up)
    return [w.aligned(x, most) for x in (a, b)]


def _binary(w, op, a, b, shape):
    a, b = _pair_of(w, a, b)
    return w.emit(op, [a, b], shape, a.lifted)


def _times(w, x, number):
    if number == 1:
        return x
    x = w.value(x)
    return w.emit("multiply_number", [x], x.shape, x.lifted, number=number)


def op_add(w, a, shape, sign=1):
    number = _number(w, a.other)
    if number is not None:
        return _same(w, "add_number", a.self, shape, number=sign * a.alpha * number)
    if _number(w, a.self) is not None:
        return _same(w, "add_number", _times(w, a.other, sign * a.alpha), shape,
                     number=_number(w, a.self))
    if a.alpha == 1:
        return _binary(w, "add" if sign == 1 else "subtract", a.self, a.other, shape)
    return _binary(w, "add", a.self, _times(w, a.other, sign * a.alpha), shape)


def op_sub(w, a, shape):
    return op_add(w, a, shape, -1)


def op_rsub(w, a, shape):
    return op_add(w, Bound(self=a.other, other=a.self, alpha=a.alpha), shape, -1)


def op_mul(w, a, shape):
    for x, other in ((a.self, a.other), (a.other, a.self)):
        number = _number(w, other)
        if number is not None:
            return _same(w, "multiply_number", x, shape, number=number)
    return _binary(w, "multiply", a.self, a.other, shape)


def op_div(w, a, shape):
    _require(a.get("rounding_mode") is None, "division that rounds")
    number = _number(w, a.other)
    if number is not None:
        return _same(w, "multiply_number", a.self, shape, number=1 / number)
    if isinstance(a.other, w.torch.Tensor):
        below = a.other.reciprocal()
    else:
        below = w.value(a.other)
        below = w.emit("reciprocal", [below], below.shape, below.lifted)
    number = _number(w, a.self)
    if number is not None:
        return _same(w, "multiply_number", below, shape, number=number)
    return _binary(w, "multiply", a.self, below, shape)


def op_square(w, a, shape):
    x = w.value(a.self)
    return w.emit("multiply", [x, x], shape, x.lifted)


def op_masked_fill(w, a, shape):
    _require(isinstance(a.mask, w.torch.Tensor), "its mask is computed from the samples")
    value = _number(w, a.value)
    _require(value is not None, "its value is no number")
    fill = w.torch.zeros(a.mask.shape).masked_fill(a.mask, value)
    kept = _binary(w, "multiply", a.self, (~a.mask).float(), shape)
    return _binary(w, "add", kept, fill, shape)


def op_matmul(w, a, shape):
    x, y = a.self if "self" in a else a.input, a.other if "other" in a else a.mat2
    if isinstance(y, Stored) and len(y.of.shape) == 2 and y.name in w.stored and \
            (y.whole or y.transposed):
        return op_linear(w, Bound(input=x, bias=None, weight=Stored(
            y.name, reversed(y.shape), y.of, not y.transposed)), shape) if y.transposed else \
            w.emit("matmul_add", [w.value(x), y.name, None], shape)
    x, y = w.value(x), w.value(y)
    if x.lifted != y.lifted:
        x, y = _pair_of(w, x, y)
    _require(len(x.shape) == len(y.shape) or x.lifted, "operands with other numbers of dimensions")
    return w.emit("matmul", [x, y], shape, x.lifted)


op_bmm = op_mm = op_matmul


def op_addmm(w, a, shape):
    y = a.mat2
    _require(a.alpha == 1 and a.beta == 1, "addmm with factors")
    _require(isinstance(y, Stored) and isinstance(a.self, Stored), "addmm of what is no parameter")
    op = "linear" if y.transposed else "matmul_add"
    return w.emit(op, [w.value(a.mat1), y.name, w.parameter(a.self, "bias")], shape)


def op_baddbmm(w, a, shape):
    product = op_matmul(w, Bound(self=a.batch1, other=a.batch2), shape)
    scaled = _times(w, product, a.alpha)
    return scaled if a.beta == 0 else _binary(w, "add", scaled, _times(w, a.self, a.beta), shape)


def op_scaled_dot_product_attention(w, a, shape):
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
        scores = _binary(w, "add", scores, mask, rows)
    weights = w.emit("softmax", [scores], rows)
    if a.dropout_p:
        weights = w.emit("dropout", [weights], rows, p=a.dropout_p)
    return w.emit("matmul", [weights, v], shape)


# ---- sums

def _reduce(op):
    def run(w, a, shape):
        x = w.value(a.self)
        dims = a.get("dim")
        _require(dims is not None or x.lifted, "it mixes samples: give dim, without 0")
        dims = range(len(x.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
        dims = sorted(_dim(x, d) for d in dims)
        _require(0 not in dims, "it mixes samples: dim has 0")
        return w.emit(op, [x], shape, x.lifted, dims=dims, keepdim=int(a.get("keepdim", False)))
    return run


op_mean, op_sum = _reduce("mean"), _reduce("sum")


def _variance(w, a, shape):
    x = w.value(a.self)
    dims = [d % len(x.shape) for d in ([a.dim] if isinstance(a.dim, int) else a.dim)]
    count = 1
    for d in dims:
        count *= x.shape[d]
    one = [1 if d in dims else n for d, n in enumerate(x.shape)]
    mean = op_mean(w, Bound(self=x, dim=dims, keepdim=True), one)
    off = _binary(w, "subtract", x, mean, x.shape)
    squares = w.emit("multiply", [off, off], x.shape, x.lifted)
    total = op_sum(w, Bound(self=squares, dim=dims, keepdim=a.keepdim), shape)
    correction = a.get("correction")
    if correction is None:
        correction = int(a.get("unbiased", True))
    return _times(w, total, 1 / (count - correction))


op_var = _variance


def _softmax(op):
    def run(w, a, shape):
        x, rank = w.value(a.self), len(a.self.shape)
        d = a.dim % rank
        _require(d or x.lifted, "it mixes samples: dim is 0")
        if d == rank - 1:
            return w.emit(op, [x], shape, x.lifted)
        turned = list(shape)
        turned[d], turned[-1] = turned[-1], turned[d]
        places = {"dim0": _dim(x, d), "dim1": _dim(x, -1)}
        y = w.emit(op, [w.emit("transpose", [x], turned, x.lifted, **places)], turned, x.lifted)
        return w.emit("transpose", [y], shape, x.lifted, **places)
    return run


op_softmax, op_log_softmax = _softmax("softmax"), _softmax("log_softmax")


# ---- pools

def op_max_pool2d(w, a, shape):
    size = _square(a.kernel_size, "windows of")
    _require(all(d == 1 for d in _pair(a.dilation)), "dilation: Duet's pool has 1")
    return _same(w, "max_pool2d", a.self, shape, size=size,
                 stride=_square(a.stride or a.kernel_size, "a stride of"),
                 padding=_square(a.padding, "a padding of"), ceil_mode=int(a.ceil_mode))


def op_avg_pool2d(w, a, shape):
    padding = _square(a.padding, "a padding of")
    _require(a.count_include_pad or not padding, "count_include_pad=False")
    _require(not a.ceil_mode and a.divisor_override is None, "ceil_mode or divisor_override")
    return _same(w, "avg_pool2d", a.self, shape, size=_square(a.kernel_size, "windows of"),
                 stride=_square(a.stride or a.kernel_size, "a stride of"), padding=padding)


def op_adaptive_avg_pool2d(w, a, shape):
    return _same(w, "adaptive_avg_pool2d", a.self, shape, size=list(shape[-2:]))


def op_adaptive_max_pool2d(w, a, shape):
    return [_same(w, "adaptive_max_pool2d", a.self, shape[0], size=list(shape[0][-2:])), None]


def op_constant_pad_nd(w, a, shape):
    sides = [*a.pad, 0, 0, 0, 0]
    _require(len(a.self.shape) == 4 and not any(sides[4:]), "padding of other than pictures")
    return _same(w, "pad2d", a.self, shape, sides=sides[:4], value=a.value or 0)


def op_pad(w, a, shape):
    _require(a.mode == "constant", f"mode={a.mode}")
    return op_constant_pad_nd(w, a, shape)


# ---- shapes

def _in_front(x, shape):
    """Are the samples the first dimension, and alone?"""
    return not isinstance(x, Value) or x.lifted or (
        len(shape) > 0 and isinstance(shape[0], N) and shape[0] == 1)


def _view(w, a, shape):
    x = a.self if "self" in a else a.input
    if isinstance(x, Stored) and not x.transposed and not any(isinstance(d, N) for d in shape):
        return Stored(x.name, shape, x.of)
    if isinstance(x, turning.Turned) or not _in_front(x, shape):
        return turning.viewed(w, x, shape)
    x = w.value(x)
    if [str(d) for d in x.shape] == [str(d) for d in shape]:
        return x
    if x.lifted and shape and isinstance(shape[0], N):
        return w.emit("reshape", [x], shape)
    return w.emit("reshape", [x], shape, x.lifted)


op_view = op_reshape = op_flatten = op_unflatten = op__unsafe_view = op_squeeze = _view
op_unsqueeze = op_view_as = op_reshape_as = _view


def op_expand(w, a, shape):
    x = a.self
    if isinstance(x, (Stored, w.torch.Tensor)) or x.lifted:
        if shape and isinstance(shape[0], N):
            missing = len(shape) - len(x.shape)
            own = [1] * missing + list(x.shape)
            _require(own[1:] == list(shape[1:]) and own[0] == 1, "expand of other dimensions")
            return w.aligned(x, len(shape))
    x = w.value(x)
    _require([str(d) for d in x.shape] == [str(d) for d in shape], "expand of other dimensions")
    return x


op_expand_as = op_expand


def _swap(w, x, d0, d1, shape):
    rank = len(x.shape)
    d0, d1 = d0 % rank, d1 % rank
    if d0 == d1:
        return x
    if isinstance(x, Stored) and rank == 2 and x.shape == list(x.of.shape)[::-1 if x.transposed
                                                                          else 1]:
        return Stored(x.name, x.shape[::-1], x.of, not x.transposed)
    if isinstance(x, turning.Turned) or not _in_front(x, shape):
        order = list(range(rank))
        order[d0], order[d1] = d1, d0
        return turning.permuted(w, x, order)
    x = w.value(x)
    return w.emit("transpose", [x], shape, x.lifted, dim0=_dim(x, d0), dim1=_dim(x, d1))


def op_t(w, a, shape):
    return _swap(w, a.self, 0, 1, shape) if len(a.self.shape) == 2 else a.self


def op_transpose(w, a, shape):
    return _swap(w, a.self, a.dim0, a.dim1, shape)


def op_numpy_T(w, a, shape):
    return op_t(w, a, shape)


def op_permute(w, a, shape):
    if isinstance(a.self, turning.Turned) or not _in_front(a.self, shape):
        return turning.permuted(w, a.self, [d % len(shape) for d in a.dims])
    x = w.value(a.self)
    order = [_dim(x, d) for d in a.dims]
    return w.emit("permute", [x], shape, x.lifted, order=[0, *order] if x.lifted else order)


def _narrow(w, x, dim, start, length):
    shape = list(x.shape)
    if shape[dim] == length:
        return x
    shape[dim] = length
    return w.emit("narrow", [x], shape, x.lifted, dim=_dim(x, dim), start=start, length=length)


def op_slice(w, a, shape):
    x = w.value(a.self)
    dim = a.dim % len(x.shape)
    if str(shape[dim]) == str(x.shape[dim]):
        return x
    start = a.start or 0
    _require(a.step == 1, f"a step of {a.step}")
    _require(dim or x.lifted, "it cuts the samples")
    start = max(0, start + x.shape[dim] if start < 0 else start)
    return _narrow(w, x, dim, start, shape[dim])


def op_narrow(w, a, shape):
    x = w.value(a.self)
    return _narrow(w, x, a.dim % len(x.shape), a.start, a.length)


def op_select(w, a, shape):
    if isinstance(a.self, Stacked):
        _require(a.dim == 0, "of the last states it takes other than a layer")
        return a.self[a.index]
    if isinstance(a.self, turning.Turned):
        return turning.selected(w, a.self, a.dim % len(a.self.dims), a.index)
    x = w.value(a.self)
    dim = a.dim % len(x.shape)
    _require(dim or x.lifted, "it picks a sample")
    x = _narrow(w, x, dim, a.index % x.shape[dim], 1)
    return w.emit("reshape", [x], shape, x.lifted)


def _pieces(w, x, dim, lengths):
    x, at, out = w.value(x), 0, []
    dim %= len(x.shape)
    _require(dim or x.lifted, "it cuts the samples")
    for length in lengths:
        out.append(_narrow(w, x, dim, at, length))
        at += length
    return out


def op_split(w, a, shape):
    return _pieces(w, a.self, a.dim, [s[a.dim % len(s)] for s in shape])


op_chunk = op_split_with_sizes = op_tensor_split = op_split


def op_unbind(w, a, shape):
    x = w.value(a.self)
    parts = _pieces(w, x, a.dim, [1] * len(shape))
    return [w.emit("reshape", [p], s, p.lifted) for p, s in zip(parts, shape)]


def op_cat(w, a, shape):
    parts = list(a.tensors)
    lifted = all(not isinstance(x, Value) or x.lifted for x in parts)
    parts = [w.value(x) if lifted else w.aligned(x, len(shape)) for x in parts]
    dim = a.dim % len(shape)
    _require(dim or lifted, "it joins samples")
    return w.emit("cat", parts, shape, lifted, dim=_dim(parts[0], dim))


def op_stack(w, a, shape):
    dim = a.dim % len(shape)
    one = [1 if i == dim else d for i, d in enumerate(shape)]
    parts = [w.value(x) for x in a.tensors]
    parts = [w.emit("reshape", [x], one, x.lifted) for x in parts]
    return op_cat(w, Bound(tensors=parts, dim=dim), shape)
