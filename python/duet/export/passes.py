"""Analyses the program before a line is written: which nodes the result needs, which of them depend
on no input and no parameter, and how large integers are."""

import itertools
import math

import torch

_EXACT = 1 << 24  # float32 has every integer up to this one
_PER_COUNT = "its values depend on the number of samples: compute them from an input"


class Refused(Exception):
    """An op cannot be written; the message says why."""


def require(condition, why):
    if not condition:
        raise Refused(why)


class N(int):
    """A size that grows with the samples: N(8) is 8N."""

    def __str__(self):
        return "N" if int(self) == 1 else f"{int(self)}N"

    __eq__ = lambda self, other: isinstance(other, N) and int(self) == int(other)  # noqa: E731
    __ne__ = lambda self, other: not self == other  # noqa: E731
    __hash__ = int.__hash__


class Const:
    """A value that depends on no input and no parameter: a tensor, or, if it depends on the number
    of samples, its values for two and for three samples. `shape` has N."""

    def __init__(self, of, shape):
        self.of, self.shape = of, list(shape)

    tensor = property(lambda self: self.of[0])
    rank = property(lambda self: len(self.shape))
    dtype = property(lambda self: self.tensor.dtype)

    @property
    def number(self):
        """The value that all elements have; None if they differ."""
        if not self.tensor.numel():
            return None
        one = self.tensor.flatten()[0]
        return one.item() if all((t == one).all() for t in self.of) else None

    def is_index(self):
        """True if the value is each sample's index."""
        return len(self.of) == 2 and self.rank > 0 and self.shape[0] == N(1) and all(
            bool(part.eq(i).all()) for t in self.of for i, part in enumerate(t))

    def alike(self):
        """The tensor of one sample, with size k where the shape has kN."""
        one = []
        for t, count in zip(self.of, (2, 3)):
            for d, size in enumerate(self.shape):
                if isinstance(size, N):
                    parts = t.unflatten(d, (count, int(size)))
                    t = parts.select(d, 0)
                    require(parts.eq(t.unsqueeze(d)).all(), _PER_COUNT)
            one.append(t)
        require(all(t.equal(one[0]) for t in one), _PER_COUNT)
        return one[0]


class Sizes:
    """Sizes of torch.export: integers, and multiples of the number of samples."""

    def __init__(self, program):
        shapes = [getattr(node.meta.get("val"), "shape", None) for node in
                  program.graph.find_nodes(op="placeholder")]
        counts = [shape[0].node for shape in shapes if shape and
                  isinstance(shape[0], torch.SymInt) and shape[0].node.expr.is_Symbol]
        self.samples = counts[0].expr if counts else None
        self.same = {n.expr: self.samples for n in counts  # inputs have equally many samples, even
                     if n.hint == counts[0].hint}          # if the model does not say so

    def of(self, n):
        if not isinstance(n, torch.SymInt):
            return n
        expression = n.node.expr.xreplace(self.same)
        if expression.is_Integer:
            return int(expression)
        factor = expression / self.samples
        require(factor.is_Integer, f"it has a size of {expression}, not a multiple of the samples "
                                   "of the first input: no size may depend on more")
        return N(int(factor))

    def at(self, n, samples):
        """The size for this number of samples."""
        if not isinstance(n, torch.SymInt):
            return n
        return int(n.node.expr.xreplace(self.same).subs(self.samples, samples))

    def shape(self, value):
        if isinstance(value, (list, tuple)):
            return [self.shape(v) for v in value]
        return [self.of(n) for n in value.shape] if isinstance(value, torch.Tensor) else value


def results(program):
    """The nodes that the user's forward returns, and {name of a buffer: the node that forward
    writes into it}, except those of batch norms. Erases what neither these nor batch norms, which
    keep statistics, need."""
    by_name = {node.name: node for node in program.graph.nodes}
    returned, written, norms = [], {}, []
    for spec in program.graph_signature.output_specs:
        node, kind = by_name.get(getattr(spec.arg, "name", None)), spec.kind.name
        if kind == "USER_OUTPUT" and node:
            returned.append(node)
        elif name_of(node) == "getitem" and "batch_norm" in str(node.args[0]):
            norms.append(node)
        elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION") and \
                not spec.target.endswith("num_batches_tracked"):
            written[spec.target] = node
    needed = *(returned if len(returned) == 1 else ()), *written.values(), *norms
    program.graph.output_node().args = (needed,)
    program.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    return returned, written


def _evaluated(node, operand):
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), operand)
    return node.target(*args, **kwargs)


def folded(program, sizes, tensors):
    """{node: Const} for nodes that depend on no input and no parameter; `tensors` has those of
    buffers and lifted constants, by node."""
    constants = {node: Const([x], list(x.shape)) for node, x in tensors.items()}

    def operand(x, samples):
        if x not in constants:
            return sizes.at(x.meta["val"], samples)
        return constants[x].of[min(samples - 2, len(constants[x].of) - 1)]
    for node in program.graph.nodes:
        val, inputs = node.meta.get("val"), node.all_input_nodes
        if node.op != "call_function" or not isinstance(val, torch.Tensor) or any(
                x not in constants and not isinstance(
                    x.meta.get("val"), (torch.SymInt, int, float, bool)) for x in inputs) or \
                torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or \
                "empty" in name_of(node):
            continue
        grows = any(isinstance(n, torch.SymInt) for n in val.shape) or any(
            x not in constants or len(constants[x].of) > 1 for x in inputs)
        try:
            of = [_evaluated(node, lambda x, s=samples: operand(x, s))
                  for samples in ((2, 3) if grows else (2,))]
        except Exception:
            continue
        if len(of) == 2 and of[0].shape == of[1].shape and of[0].equal(of[1]):
            of = of[:1]
        constants[node] = Const(of, sizes.shape(val))
    return constants


# ---- integers

_MOVES = {"view", "_unsafe_view", "reshape", "clone", "_to_copy", "unsqueeze", "squeeze", "expand",
          "permute", "transpose", "alias", "cat", "repeat", "flip", "roll", "select", "slice",
          "split_with_sizes", "index_select", "index", "gather", "constant_pad_nd", "slice_scatter",
          "getitem", "where", "copy", "lift_fresh_copy"}
_PARTS = {"select", "slice", "split_with_sizes", "index_select", "index", "gather"}


def name_of(node):
    target = getattr(node, "target", "")
    return target._schema.name.split("::")[1] if hasattr(target, "_schema") else \
        getattr(target, "__name__", str(target))


def bounds(program, examples):
    """{input: (smallest of its tables, largest)} for inputs of integers, by node; the example's
    values if no table uses the input."""
    found, out = {}, {}
    for node in program.graph.nodes:
        name, args = name_of(node) if node.op == "call_function" else "", node.args
        index = rows = None
        if name == "embedding":
            index, rows = args[1], args[0].meta["val"].shape[0]
        elif name == "one_hot":
            index, rows = args
        elif name in ("gather", "scatter_add", "scatter"):
            index, rows = args[2], args[0].meta["val"].shape[args[1]]
        if isinstance(rows, int):
            _follow(index, rows, False, found, name == "embedding")
    for node, example in examples.items():
        whole, parts = found.get(node, ([], []))
        most = min(whole) if whole else max(parts) if parts else int(example.max()) + 1
        out[node] = (min([most, *parts]), most)
    return out


def _follow(node, rows, part, found, table):
    """Records a table with this many rows for the inputs that contain the elements of `node`."""
    if getattr(node, "op", "") == "placeholder":
        found.setdefault(node, ([], []))[part and table].append(rows)
    elif getattr(node, "op", "") == "call_function" and name_of(node) in _MOVES:
        name, args = name_of(node), node.args
        args = args[1:] if name == "where" else args[:1]
        for x in torch.utils._pytree.tree_leaves(args):
            _follow(x, rows, part or name in _PARTS, found, table)


class Ranges(dict):
    """{node of integers: its smallest and its largest}, if known. `rounded`: nodes with integers
    too large for float32. If the range is unknown, verify.py checks the example's integers."""

    def __init__(self, program, sizes, constants, inputs):
        super().__init__({node: (0, below - 1) for node, (_, below) in inputs.items()})
        self.rounded = set()
        for node in program.graph.nodes:
            kind = getattr(node.meta.get("val"), "dtype", None)
            if node in constants and kind in (torch.int64, torch.int32, torch.bool):
                t = constants[node].tensor
                self[node] = (int(t.min()), int(t.max())) if t.numel() else (0, 0)
            elif kind is torch.bool:
                self[node] = 0, 1
            elif kind in (torch.int64, torch.int32) and node not in self:
                self._add(node, name_of(node), sizes)

    def _add(self, node, name, sizes):
        operands = node.args[1:] if name == "where" else node.all_input_nodes
        given = [(x, x) if isinstance(x, int) else self.get(x) for x in operands]
        made, known = [], given and None not in given
        if name in ("argmax", "argmin") or name == "getitem" and node.args[1]:  # of topk and others
            x = node.args[0] if name != "getitem" else node.args[0].args[0]
            made = [torch.tensor([1, *(n for n in x.meta["val"].shape if isinstance(n, int))]) - 1]
        elif name in ("remainder", "fmod") and isinstance(node.args[1], int):
            made = [torch.tensor(abs(node.args[1]) - 1).mul(sign) for sign in (-1, 1)]
        elif known and name in _MOVES:
            made = [torch.tensor(ends) for ends in given]
        elif known:  # the extremes are at the operands' extremes, or at 0
            made = [_at(node, of, sizes) for of in itertools.product(*(
                {*ends, min(max(ends[0], 0), ends[1])} for ends in given))]
        if made and None not in made:
            self[node] = min(y.min().item() for y in made), max(y.max().item() for y in made)
        numbers = [n for ends in (*given, self.get(node)) for n in ends or ()]
        if name not in _MOVES | {"clamp"} and any(
                abs(n) > _EXACT for n in (*numbers, *node.args) if isinstance(n, (int, float))):
            self.rounded.add(node)


def _at(node, numbers, sizes):
    """The op's result if each operand has only this number; None if it takes no such operands."""
    of = {x: torch.full([sizes.at(n, 2) for n in x.meta["val"].shape], float(number),
                        dtype=torch.float64) for x, number in zip(node.all_input_nodes, numbers)}
    try:
        return _evaluated(node, of.get)
    except Exception:
        return None
