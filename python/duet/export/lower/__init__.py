"""What the ops of PyTorch are in a graph of Duet. A function under `@lower(aten.NAME)` writes the
lines of aten::NAME: it is given the writer, the arguments by the names of the schema, and the
shape of the result, and returns a value, or a list of them. What is here stays whole when
trace.py has the program taken apart; to serve one more op is to write one more function."""

LOWERINGS = {}


def lower(*packets):
    def note(function):
        for packet in packets:
            LOWERINGS[packet._qualified_op_name] = function
        return function
    return note


class Arguments(dict):
    """The arguments of a call, by the names of its schema."""

    __getattr__ = dict.__getitem__


from . import elements, indices, layers, products, reductions, shapes  # noqa: E402, F401
