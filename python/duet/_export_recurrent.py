"""Recurrent layers, a line for each operation of each step: see _export_ops.py."""

from ._export_graph import Filled, N, Stacked
from ._export_ops import require


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
        require("batch_first" in a and a.batch_first, "batch_first=False: give True")
        given = a.hx if isinstance(a.hx, (list, tuple)) else [a.hx]
        require(all(isinstance(h, Filled) and h.number == 0 for h in given),
                 "a first state that is not zero")
        x, last, at = w.value(a.input), [Stacked() for _ in range(states)], 0
        ways, each = 2 if a.bidirectional else 1, 4 if a.has_biases else 2
        require(len(a.params) == ways * each * a.num_layers, "proj_size")
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
