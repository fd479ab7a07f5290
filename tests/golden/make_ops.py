#!/usr/bin/env python3
"""Writes ops.txt: PyTorch's results for the functions in tests/core/nn/test_ops.c, in float64.

    python3 tests/golden/make_ops.py            needs torch, a second

Each line is NAME DIMS : numbers. x = value(i, 7919), dy = value(i, 3571), parameter k = value(i, 6007 + 202 k) / 2, a constant
value(i, 2003), where value(i, a) = ((i a + 13) mod 1000) / 500 - 1; indices are (7 i) mod 5. Rows with numbers of
their own keep them as NAME_x. Wide parameters are value(i, WIDE[k]). A further root is NAME_y1, NAME_y2, with the
gradient value(i, 1741), the gradient of a further input NAME_b0, NAME_b1."""
import torch
import torch.nn.functional as F
from torch import nn

from formulas import as_line, values, write

lines = []


def line(name, t):
    lines.append(as_line(name, t))


def tokens(shape):
    return (torch.arange(torch.Size(shape).numel()) * 7 % 5).reshape(shape)


WIDE = 6131, 4001, 5003, 8009


def fact(name, shape, params, function, constant=None, own=None, scale=1, wide=False, inputs=()):
    """function(x, *inputs, *params) of x of this shape, or of indices where it is ("tokens", shape); inputs: shape and
    factor of each."""
    is_index = shape[0] == "tokens"
    x = tokens(shape[1]) if is_index else (scale * values(shape, 7919)).requires_grad_()
    if own:
        x = torch.tensor(own, dtype=torch.float64).reshape(shape).requires_grad_()
        line(f"{name}_x", x)
    b = [values(s, a).requires_grad_() for s, a in inputs]
    p = [(values(s, WIDE[k]) if wide else values(s, 6007 + 202 * k) / 2).requires_grad_() for k, s in enumerate(params)]
    roots = function(x, *([] if constant is None else [constant]), *b, *p)
    roots = roots if isinstance(roots, list) else [roots]
    torch.autograd.backward(roots, [values(tuple(r.shape), 1741 if k else 3571) for k, r in enumerate(roots)])
    for k, y in enumerate(roots):
        line(f"{name}_y{k or ''}", y)
    if not is_index:
        line(f"{name}_dx", x.grad)
    for k, w in enumerate(b):
        line(f"{name}_b{k}", w.grad)
    for k, w in enumerate(p):
        line(f"{name}_d{k}", w.grad)


attention = F.scaled_dot_product_attention
own = [(4,), (4, 3)]
fact("attention", (3, 2, 5, 4), own, lambda x, a, b: attention(x, x * a, x @ b))
fact("attention_causal", (3, 5, 4), own,
     lambda x, a, b: attention(x, x * a, x @ b, is_causal=True, scale=3))
fact("attention_mask", (3, 2, 5, 4), own,
     lambda x, c, a, b: attention(x, x * a, x @ b, attn_mask=(9 * c).expand(2, 5, 5)),
     values((2, 1, 5), 2003))
fact("attention_learned", (3, 5, 4), [(6, 4)], lambda x, a: attention(a.expand(3, 6, 4), x, x))
fact("where", (3, 4, 5), [(5,)], lambda x, a: torch.where(x > 0, x * x, a))
fact("taken", (3, 6, 4), [], lambda x, c: x.gather(1, c.expand(3, 9, 4)), tokens((9, 4)))
fact("taken_rows", (3, 6, 4), [], lambda x, c: x.take_along_dim(c[None], 1), tokens((3, 1)))
fact("taken_of_table", ("tokens", (3, 4)), [(6,)], lambda x, a: a.expand(3, 6).gather(1, x))
fact("added", (3, 4, 6), [],
     lambda x, c: x.new_zeros(3, 4, 5).scatter_add(2, c.expand(3, 4, 6), x), tokens((6,)))
fact("added_rows", (3, 7, 4), [],
     lambda x, c: x.new_zeros(3, 5, 4).scatter_add(1, c.expand(3, 7, 4), x), tokens((7, 1)))
fact("argsort", (3, 6, 4), [], lambda x: x * x.argsort(dim=1, stable=True))
fact("argsort_last", (2, 7), [], lambda x: x * x.argsort(dim=-1, descending=True, stable=True),
     own=[3, -0.0, 7, 3, 0, -2, 3, 1, 1, 1, -1, 1e30, -1e30, 1])
fact("sorted", (3, 4, 37), [], lambda x: x.sort(dim=2, descending=True, stable=True)[0])
fact("masked_fill", (3, 4), [], lambda x, c: x.masked_fill(c != 0, -2.5), tokens((4,)))
fact("erf", (3, 4, 5), [], lambda x: torch.erf(2 * x))
fact("sin", (3, 4, 5), [], lambda x: torch.sin(4 * x))
fact("cos", (3, 4, 5), [], lambda x: torch.cos(4 * x))
far, halves = [355, -355, 1e5, -1e5, 2**40, -2**70, 2**127, 2**-40], [0.5, 1.5, -0.5, 2.5, -2.5, 0.25, -7.75, 1e9]
fact("sin_far", (2, 4), [], torch.sin, own=far)
fact("cos_far", (2, 4), [], torch.cos, own=far)
fact("round", (2, 4), [], torch.round, own=halves)
fact("floor", (2, 4), [], torch.floor, own=halves)
fact("ceil", (2, 4), [], torch.ceil, own=halves)
parts = [7.5, -7.5, 1e9, -1e9, 0.25, -0.25, 6, 2**100]
for number in (3, -2.5):
    name = "by_3" if number == 3 else "by_minus"
    fact("remainder_" + name, (2, 4), [], lambda x: torch.remainder(x, number), own=parts)
    fact("fmod_" + name, (2, 4), [], lambda x: torch.fmod(x, number), own=parts)
    fact("divide_" + name, (2, 4), [], lambda x: torch.div(x, number, rounding_mode="floor"), own=parts)
fact("trunc", (2, 4), [], torch.trunc, own=halves)
fact("padded", ("tokens", (3, 4)), [(5, 6)], lambda x, a: F.embedding(x, a, padding_idx=2))
fact("windows", (3, 4, 12), [], lambda x: x.reshape(3, 2, 2, 3, 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(3, 6, 2, 4))
fact("transposed", (3, 4, 3, 2), [(4, 2, 3, 3), (2,)], lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1))
fact("transposed_groups", (3, 4, 3, 2), [(4, 3, 2, 3)], lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), (0, 1), (1, 0), 2, (1, 2)))
fact("transposed_1d", (3, 4, 3), [(4, 2, 4), (2,)], lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2))
fact("depthwise", (3, 4, 6, 5), [(4, 1, 3, 3), (4,)], lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 4))
fact("grouped", (3, 4, 6, 5), [(6, 2, 3, 2)], lambda x, w: F.conv2d(x, w, None, (1, 2), (2, 0), (2, 1), 2))
fact("conv1d", (3, 4, 9), [(5, 4, 3), (5,)], lambda x, w, b: F.conv1d(x, w, b, 2, 2, 2))
fact("square", (3, 4, 6, 5), [(2, 4, 3, 3), (2,)], lambda x, w, b: F.conv2d(x, w, b, 2, 1))
fact("token", (3, 4, 5), [(1, 1, 5), (1, 5, 5)], lambda x, a, b: torch.cat((a.expand(3, -1, -1), x), 1) + b)
fact("scale", (3, 4, 2, 3), [(4, 1, 1)], lambda x, a: x * a - a)
fact("scale_1d", (3, 4, 5), [(5,)], lambda x, a: a * x * a.reshape(1, 5))
fact("weight", (3, 4, 5), [(5, 2)], lambda x, a: x @ a)
fact("vector", (3, 4, 5), [(5,)], lambda x, a: x @ a)
fact("vector_2d", (5, 5), [(5,)], lambda x, a: x @ a)
fact("vector_4d", (3, 2, 4, 5), [(5,)], lambda x, a: x @ a)
fact("left_vector", (3, 4, 5), [(4,)], lambda x, a: a @ x)
fact("left_vector_4d", (3, 2, 4, 5), [(4,)], lambda x, a: a @ x)
fact("view", (3, 4, 5), [(10,)], lambda x, a: x @ a.reshape(5, 2))
fact("view_2d", (5, 5), [(10,)], lambda x, a: x @ a.reshape(5, 2))
fact("constant_left", (3, 4, 5), [], lambda x, c: c @ x, values((4,), 2003))
fact("constant_right", (5, 5), [], lambda x, c: x @ c, values((5,), 2003))
fact("mask", (3, 4, 5), [], lambda x, c: (x + c) @ c.reshape(5, 4), values((4, 5), 2003))
fact("words", ("tokens", (3, 4)), [(5, 6), (5, 6)], lambda x, c, a, b: F.embedding(x, a) + F.embedding(c, b), tokens((4,)))
fact("word", ("tokens", (3, 1)), [(5, 6), (5, 6)], lambda x, c, a, b: F.embedding(x, a) + F.embedding(c, b), tokens((1,)))
fact("word_row", ("tokens", (3, 4)), [(5, 6), (5, 6)], lambda x, c, a, b: F.embedding(x, a) + F.embedding(c, b), tokens((1, 4)))
fact("tied", ("tokens", (3, 4)), [(5, 6)], lambda x, a: F.linear(F.embedding(x, a), a))
fact("silu", (3, 4, 5), [], lambda x: F.silu(4 * x))
fact("hardswish", (3, 4, 5), [], lambda x: F.hardswish(4 * x))
fact("hardsigmoid", (3, 4, 5), [], lambda x: F.hardsigmoid(4 * x))
fact("clamp", (3, 4, 5), [], lambda x: torch.clamp(x, -0.3, 0.7))
fact("pow", (3, 4, 5), [], lambda x: x ** 3)

inf = float("inf")
bounds = [-0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1e30]
fact("clamp_below", (2, 4), [], lambda x: torch.clamp(x, -0.5, inf), own=bounds)
fact("clamp_above", (2, 4), [], lambda x: torch.clamp(x, -inf, 0.5), own=bounds)
signs, roots = [0, -2, 3, 4097, -4097, 0.5, -0.5, -1], [0.25, 1, 2, 9, 4097, 0.0625, 1e-8, 1e8]
fact("pow_minus_1", (2, 4), [], lambda x: x ** -1, own=[8] + signs[1:])
fact("pow_minus_2", (2, 4), [], lambda x: x ** -2, own=[8] + signs[1:])
fact("pow_0", (2, 4), [], lambda x: x ** 0, own=signs)
fact("pow_1", (2, 4), [], lambda x: x ** 1, own=signs)
fact("pow_2", (2, 4), [], lambda x: x ** 2, own=signs)
fact("pow_3", (2, 4), [], lambda x: x ** 3, own=signs)
fact("pow_half", (2, 4), [], lambda x: x ** 0.5, own=roots)
fact("pow_three_halves", (2, 4), [], lambda x: x ** 1.5, own=[0] + roots[1:])
fact("pow_65", (2, 4), [], lambda x: x ** 65, own=[0, 1, -1, 1.25, -1.25, 0.75, -0.75, 2])
# products, terms and sums
MATMULS = [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)),
           ((2, 3, 4), (4,)), ((2, 2, 3, 4), (2, 2, 4, 2)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)),
           ((1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 3, 4, 2)), ((3, 3, 4), (2, 1, 4, 2)), ((2, 3, 4), (2, 2, 4, 2)),
           ((4,), (2, 2, 4, 3)), ((1, 1, 3, 4), (2, 3, 4, 2))]
TERMS = [((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((4,), (2, 3, 4)), ((2, 1, 3, 1), (2, 1, 4)), ((2, 3, 1, 4), (2, 3, 1, 1))]
for i, (a, b) in enumerate(MATMULS):
    fact(f"matmul_{i}", a, [], torch.matmul, inputs=[(b, 6131)])
for name in "add", "sub", "mul":
    for i, (a, b) in enumerate(TERMS):
        fact(f"{name}_{i}", a, [], getattr(torch, name), inputs=[(b, 6131)])
for name in "sum", "mean":
    for i, (shape, dim) in enumerate([((3, 4), ()), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((2, 3, 2, 3), 3), ((5,), 0)]):
        fact(f"{name}_{i}", shape, [], lambda x: getattr(torch, name)(x, dim))
    for i, (shape, dims, keep) in enumerate([((2, 3, 4), (0, 2), False), ((2, 3, 4), (1, 2), True), ((2, 3, 2, 3), (1, -1), True),
                                             ((2, 3, 4), (), False), ((2, 3, 4), (-1,), True),
                                             ((2, 3, 2, 3), (3, 0, 2, 1), True)]):
        fact(f"{name}s_{i}", shape, [], lambda x: getattr(torch, name)(x, dims, keepdim=keep))

# pools and parts
for i, (shape, size) in enumerate([((2, 3, 7, 5), (1, 1)), ((1, 2, 7, 5), (3, 4)), ((1, 1, 2, 3), (5, 3)), ((2, 1, 6, 8), (3, 2))]):
    fact(f"adaptive_{i}", shape, [], lambda x: F.adaptive_avg_pool2d(x, size))
fact("pad", (2, 2, 4, 3), [], lambda x: F.pad(x, (2, 1, -1, 3), value=0.75))
for i, (shape, how) in enumerate([((1, 2, 7, 6), (3, 2, 1)), ((1, 1, 8, 6), (3, 2, 0)), ((2, 1, 5, 9), (4, 3, 2)),
                                  ((1, 1, 6, 5), (2, 3, 1)), ((1, 1, 2, 5), (3, 2, 0))]):
    fact(f"max_pool_{i}", shape, [], lambda x: F.max_pool2d(x, *how, ceil_mode=i > 0))
fact("avg_pool", (1, 2, 7, 6), [], lambda x: F.avg_pool2d(x, 3, 2, 1))
fact("max_pool_sides", (2, 2, 6, 5), [], lambda x: F.max_pool2d(x, (2, 3), (3, 1), (0, 1), ceil_mode=True))
fact("avg_pool_sides", (2, 2, 5, 7), [], lambda x: F.avg_pool2d(x, (3, 2), (1, 2), (1, 0)))
fact("narrow", (2, 3, 4, 2), [], lambda x: x.narrow(2, 1, 2))
fact("narrow_last", (2, 3, 6), [], lambda x: x.narrow(-1, 2, 3))
fact("cat", (2, 3, 2, 2), [], lambda x: torch.cat((x, x.narrow(1, 1, 2), x[:, :1], x), 1))
fact("cat_last", (2, 3, 4), [], lambda x: torch.cat((x.narrow(-1, 3, 1), x), -1))
for i, (shape, order) in enumerate([((2, 3), (1, 0)), ((2, 3, 4), (0, 2, 1)), ((2, 3, 4), (2, 0, 1)), ((2, 3, 2, 4), (0, 2, 1, 3)),
                                    ((2, 3, 2, 4), (3, 1, -4, 2))]):
    fact(f"permute_{i}", shape, [], lambda x: x.permute(order))
fact("detach", (2, 3), [], lambda x: x * (x * x).detach())

# activations, norms, linear and recurrent layers
for i, f in enumerate([lambda x: F.leaky_relu(x), lambda x: F.leaky_relu(x, 0.2), lambda x: F.elu(x), lambda x: F.elu(x, 0.7),
                       lambda x: F.hardtanh(x), lambda x: F.hardtanh(x, -0.5, 2.0), lambda x: F.relu6(x), lambda x: F.gelu(x),
                       lambda x: F.gelu(x, approximate="tanh"), lambda x: 0.25 * x - 3, lambda x: torch.log(x.abs() + 0.5),
                       lambda x: 1 / torch.sqrt(torch.exp(x)), lambda x: F.softplus(x) - x * torch.sigmoid(x)]):
    fact(f"activation_{i}", (6, 4), [], f, scale=8)
fact("softmax", (3, 7), [], lambda x: torch.softmax(x, 1), scale=8)
fact("softmax_4d", (2, 3, 2, 4), [], lambda x: torch.softmax(x, -1), scale=8)
fact("log_softmax_3d", (2, 3, 4), [], lambda x: torch.log_softmax(x, -1), scale=8)
for i, (shape, normalized, eps, count) in enumerate([((3, 5), (5,), 1e-5, 2), ((2, 3, 4), (4,), 1e-5, 2), ((2, 3, 4), (3, 4), 1e-3, 2),
                                                     ((2, 2, 3, 4), (2, 3, 4), 1e-5, 1), ((2, 3, 4), (4,), 1e-5, 0)]):
    fact(f"layer_norm_{i}", shape, [normalized] * count,
         lambda x, w=None, b=None: F.layer_norm(x, normalized, w, b, eps), wide=True)
for i, (shape, groups, eps, count) in enumerate([((3, 4), 2, 1e-5, 2), ((2, 6, 3), 3, 1e-5, 2), ((2, 4, 3, 2), 1, 1e-2, 2),
                                                 ((2, 4, 3, 2), 4, 1e-5, 1), ((2, 4, 3, 2), 2, 1e-5, 0)]):
    fact(f"group_norm_{i}", shape, [shape[1:2]] * count, lambda x, w=None, b=None: F.group_norm(x, groups, w, b, eps), wide=True)
fact("linear_0", (2, 3, 4), [(5, 4), (5,)], F.linear, wide=True)
fact("linear_1", (2, 2, 3, 4), [(3, 4)], F.linear, wide=True)


def recurrent(kind, how, reverse, full):
    """The first direction, or, with `reverse`, the second of a bidirectional layer whose first starts with zeros."""
    def run(x, *given):
        states, p = (given[:-4], given[-4:]) if full else ((), given)
        layer = kind(3, 5, batch_first=True, bidirectional=reverse, bias=full, **how).double()
        names = [name for name, _ in layer.named_parameters() if name.endswith("_reverse") == reverse]
        at, ways = int(reverse), 1 + reverse
        first = tuple(torch.stack([s if i == at else torch.zeros_like(s) for i in range(ways)]) for s in states)
        hx = None if not full else first if kind is nn.LSTM else first[0]
        y, last = torch.func.functional_call(layer, dict(zip(names, p)), (x, hx))
        return [y[..., at * 5:][..., :5]] + [s[at] for s in (last if kind is nn.LSTM else [last])]
    return run


for k, (kind, how, gates) in enumerate([(nn.LSTM, {}, 4), (nn.GRU, {}, 3), (nn.RNN, {}, 1), (nn.RNN, {"nonlinearity": "relu"}, 1)]):
    for reverse in (False, True):
        for full in (True, False):
            fact(f"recurrent_{k}_{int(reverse)}_{int(full)}", (2, 4, 3), [(5 * gates, 3), (5 * gates, 5), (5 * gates,), (5 * gates,)][:4 if full else 2],
                 recurrent(kind, how, reverse, full), wide=True,
                 inputs=[((2, 5), 2113), ((2, 5), 1409)][:(1 + (kind is nn.LSTM)) * full])
write(__file__, "the functions and layers of the tape, float64", "".join(lines))
