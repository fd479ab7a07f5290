#!/usr/bin/env python3
"""Writes recurrent.txt: what PyTorch's nn.LSTM, nn.GRU and nn.RNN compute in float64, for tests/api/test_recurrent.c.

    python3 tests/golden/make_recurrent.py            needs torch, a second

Inputs are made by formulas that the C test repeats exactly: value(i, a) = ((i * a + 13) mod 1000) / 500 - 1; x = value(i,
7919), the first h = value(i, 2113), the first c = value(i, 1409), the weights in PyTorch's order = value(i, 6131), value(i,
4001), value(i, 5003), value(i, 8009), the gradient of y = value(i, 3571), those of the last h and c = value(i, 1741). With
`reverse` the layer is the second direction of a bidirectional one."""
import torch
from torch import nn

from formulas import as_line, values, write

SAMPLES, STEPS, INPUT, HIDDEN = 2, 4, 3, 5
KINDS = [(nn.LSTM, {}), (nn.GRU, {}), (nn.RNN, {}), (nn.RNN, {"nonlinearity": "relu"})]
FACTORS = 6131, 4001, 5003, 8009


def case(kind, how, reverse, bias, given):
    layer = kind(INPUT, HIDDEN, batch_first=True, bidirectional=reverse, bias=bias, **how).double()
    names = [name for name, _ in layer.named_parameters() if name.endswith("_reverse") == reverse]
    params = [getattr(layer, name) for name in names]
    with torch.no_grad():
        for p, a in zip(params, FACTORS):
            p.copy_(values(tuple(p.shape), a))
    x = values((SAMPLES, STEPS, INPUT), 7919).requires_grad_()
    states = [values((SAMPLES, HIDDEN), a).requires_grad_() for a in (2113, 1409)[:1 + (kind is nn.LSTM)]]
    at, ways = int(reverse), 1 + reverse

    def full(s):  # the other direction starts with zeros
        return torch.stack([s if i == at else torch.zeros_like(s) for i in range(ways)])
    first = [full(s) for s in states]
    hx = None if not given else tuple(first) if kind is nn.LSTM else first[0]
    y, last = layer(x, hx)
    y, last = y[..., at * HIDDEN:][..., :HIDDEN], [s[at] for s in (last if kind is nn.LSTM else [last])]
    roots = [(y, values(tuple(y.shape), 3571))] + [(s, values(tuple(s.shape), 1741)) for s in last]
    torch.autograd.backward([r for r, _ in roots], [g for _, g in roots])
    facts = {"y": y, "dx": x.grad}
    facts.update({f"last{i}": s for i, s in enumerate(last)})
    if given:
        facts.update({f"dfirst{i}": s.grad for i, s in enumerate(states)})
    facts.update({f"dp{i}": p.grad for i, p in enumerate(params)})
    return facts


text = ""
for k, (kind, how) in enumerate(KINDS):
    for reverse in (False, True):
        # with all that there may be, and with as little as there can be
        for full in (True, False):
            for key, value in case(kind, how, reverse, full, full).items():
                text += as_line(f"recurrent_{k}_{int(reverse)}_{int(full)}_{key}", value)
write(__file__, "recurrent layers, float64", text)
