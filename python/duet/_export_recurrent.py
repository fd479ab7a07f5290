"""nn.LSTM, nn.GRU and nn.RNN, a line for each layer and direction: see _export_ops.py."""

from . import _export_turned as turning
from ._export_graph import Filled, Stacked
from ._export_ops import require


def _first(w, given, at):
    """The state that layer and direction number `at` starts with; None: zeros."""
    if given is None or isinstance(given, Filled) and given.number == 0:
        return None
    if isinstance(given, turning.Turned):
        return w.value(turning.selected(w, given, 0, at))
    require(isinstance(given, Stacked), "a first state that is no torch.stack of each layer's")
    return w.value(given[at])


def _direction(w, op, x, weights, states, reverse):
    """One layer in one direction: x (N,L,I) to the outputs of each step, and the last states that
    are asked for."""
    asks_cell = 2 in w.asked
    weights = [w.parameter(p, "weight") for p in weights] + [None] * (4 - len(weights))
    length, width = x.shape[1], w.stored[weights[1]].shape[1]
    how = {"reverse": 1} if reverse else {}
    if asks_cell:
        how["cell"] = 1
    y = w.emit(op, [x, *weights, *states], [x.shape[0], length + asks_cell, width], **how)

    def row(at):
        one = w.emit("narrow", [y], [x.shape[0], 1, width], dim=1, start=at, length=1)
        return w.emit("reshape", [one], [x.shape[0], width])
    last = [row(0 if reverse else length - 1) if 1 in w.asked else None,
            row(length) if asks_cell else None]
    if asks_cell:
        y = w.emit("narrow", [y], [x.shape[0], length, width], dim=1, start=0, length=length)
    return y, last


def _recurrent(op, states):
    def run(w, a, shape):
        require("batch_first" in a, "packed sequences")
        before = a.input if a.batch_first else turning.permuted(w, a.input, [1, 0, 2])
        given = a.hx if isinstance(a.hx, (list, tuple)) and not isinstance(a.hx, Stacked) \
            else [a.hx]
        x, last, at = w.value(before), [Stacked() for _ in range(states)], 0
        ways, each = 2 if a.bidirectional else 1, 4 if a.has_biases else 2
        require(len(a.params) == ways * each * a.num_layers, "proj_size")
        for layer in range(a.num_layers):
            outputs = []
            for way in range(ways):
                first = [_first(w, g, at // each) for g in given]
                if any(first) and not all(first):
                    shape = next(s.shape for s in first if s)
                    first = [s or w.value(Filled(0.0, shape)) for s in first]
                y, behind = _direction(w, op, x, a.params[at:at + each], first, way == 1)
                at += each
                outputs.append(y)
                for kept, s in zip(last, behind):
                    kept.append(s)
            x = outputs[0] if ways == 1 else w.emit(
                "cat", outputs, [*outputs[0].shape[:2], 2 * outputs[0].shape[2]], dim=2)
            if a.dropout and a.train and layer + 1 < a.num_layers:
                x = w.emit("dropout", [x], x.shape, p=a.dropout)
        return [x if a.batch_first else turning.permuted(w, x, [1, 0, 2]), *last]
    return run


op_lstm, op_gru = _recurrent("lstm", 2), _recurrent("gru", 1)
op_rnn_tanh, op_rnn_relu = _recurrent("rnn_tanh", 1), _recurrent("rnn_relu", 1)


def _cell(w, a, op, states, **how):
    """One step, of a sequence of one: its outputs, and with cell=1 the last c behind them."""
    x = w.value(a.input)
    rows = x.shape[0]
    x = w.emit("reshape", [x], [rows, 1, x.shape[1]])
    weights = [w.parameter(p, "weight") for p in (a.w_ih, a.w_hh, a.b_ih, a.b_hh)]
    first = [None if isinstance(s, Filled) and s.number == 0 else w.value(s) for s in states]
    width = w.stored[weights[1]].shape[1]
    y = w.emit(op, [x, *weights, *first], [rows, 1 + len(how), width], **how)
    steps = [w.emit("narrow", [y], [rows, 1, width], dim=1, start=i, length=1) if how else y
             for i in range(1 + len(how))]
    return [w.emit("reshape", [step], [rows, width]) for step in steps]


def op_lstm_cell(w, a, shape):
    return _cell(w, a, "lstm", a.hx, cell=1)


def op_gru_cell(w, a, shape):
    return _cell(w, a, "gru", [a.hx])[0]
