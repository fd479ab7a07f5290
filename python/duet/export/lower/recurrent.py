"""nn.LSTM, nn.GRU and nn.RNN, a line for each layer and direction, and their cells."""

import math

import torch

from ..text import Const, N, Value, require
from . import lower
from .shapes import narrow

aten = torch.ops.aten


def _first(w, given, at):
    """The state that layer and direction number `at` starts with; None: zeros."""
    if given is None or isinstance(given, Const) and given.number == 0:
        return None
    x = narrow(w, w.value(given), 0, at, 1)
    x = x.but(shape=x.shape[1:], dims=x.dims[1:])
    return w.rows(w.lifted(x))[0]


def _direction(w, op, x, sizes, width, weights, states, reverse, asks_cell):
    length = sizes[1]
    how = {"reverse": 1} if reverse else {}
    how.update({"cell": 1} if asks_cell else {})
    rows = sizes[0]
    y = w.emit(op, [x, *weights, *states], [rows, length + asks_cell, width], **how)

    def row(at):
        one = w.emit("narrow", [y], [rows, 1, width], dim=1, start=at, length=1)
        return w.emit("reshape", [one], [rows, width])
    last = [row(0 if reverse else length - 1) if 1 in w.asked else None,
            row(length) if asks_cell else None]
    if asks_cell:
        y = w.emit("narrow", [y], [rows, length, width], dim=1, start=0, length=length)
    return y, last


def _recurrent(op, packet, states):
    def run(w, a, shape):
        require("batch_first" in a, "packed sequences")
        x, ways, each = w.value(a.input), 2 if a.bidirectional else 1, 4 if a.has_biases else 2
        require(len(a.params) == ways * each * a.num_layers, "proj_size")
        given = a.hx if isinstance(a.hx, (list, tuple)) else [a.hx]
        lstm, order = op == "lstm", [0, 1] if a.batch_first else [1, 0]
        name, turned, count = w.rows(x.permuted(*order, 2))
        rows = N(math.prod(count))
        sizes = [rows, int(turned.shape[1]), int(turned.shape[2])]
        last, asks_cell = [[] for _ in range(states)], int(lstm and 2 in w.asked)
        for layer in range(a.num_layers):
            outputs = []
            for way in range(ways):
                at = layer * ways + way
                params = [w.parameter(p, "weight") for p in a.params[at * each:(at + 1) * each]]
                width = int(a.params[at * each + 1].shape[1])
                params += [None] * (4 - len(params))
                first = [_first(w, g, at) for g in given]
                if any(first) and not all(first):
                    zero = w.constant(torch.zeros(width))
                    zero = w.emit("expand", [zero], [rows, width])
                    first = [s or zero for s in first]
                y, behind = _direction(w, op, name, sizes, width, params, first,
                                       way == 1, asks_cell)
                outputs.append(y)
                for kept, s in zip(last, behind):
                    kept.append(s)
            sizes = [rows, sizes[1], width * ways]
            name = outputs[0] if ways == 1 else w.emit("cat", outputs, sizes, dim=2)
            if a.dropout and a.train and layer + 1 < a.num_layers:
                name = w.emit("dropout", [name], sizes, once=False, p=a.dropout)
        y = w.of_rows(name, turned, count, [turned.shape[0], sizes[1], sizes[2]])
        results = [y.permuted(*order, 2)]
        for k, states_of in enumerate(last):
            results.append(None if None in states_of else _states(
                w, states_of, shape[1 + k], turned, count))
        return results
    lower(packet)(run)


def _states(w, states, shape, x, count):
    rows, width = N(math.prod(count)), int(shape[2])
    parts = [w.emit("reshape", [state], [rows, 1, width]) for state in states]
    name = parts[0] if len(parts) == 1 else w.emit("cat", parts, [rows, len(parts), width], dim=1)
    return w.of_rows(name, x, count, [x.shape[0], len(parts), width]).permuted(1, 0, 2)


_recurrent("lstm", aten.lstm, 2)
_recurrent("gru", aten.gru, 1)
_recurrent("rnn_tanh", aten.rnn_tanh, 1)
_recurrent("rnn_relu", aten.rnn_relu, 1)


