"""Analyses the program before a line is written: which nodes the result needs, which of them depend
on no input and no parameter, and how large integers are."""

import math

import torch

from .text import Const, N, require

_EXACT = 1 << 24  # up to which float32 has every integer


class Sizes:
    """Sizes of torch.export: integers, and multiples of the number of samples."""

    def __init__(self, program):
        self.symbols, self.same = [], {}
        first = None
        for node in program.graph.nodes:
            x = node.meta.get("val")
            if node.op == "placeholder" and isinstance(x, torch.Tensor) and x.dim() and \
                    isinstance(x.shape[0], torch.SymInt) and x.shape[0].node.expr.is_Symbol:
                count = x.shape[0].node
                first = first or count
                if count.hint == first.hint:  # inputs have as many samples, although no op says so
                    self.same[count.expr] = first.expr
        self.samples = first.expr if first else None

    def of(self, n):
        if not isinstance(n, torch.SymInt):
            return n
        expression = n.node.expr.xreplace(self.same)
        if expression.is_Integer:
            return int(expression)
        factor = expression / self.samples
        require(factor.is_Integer, f"its shape has {expression}, not a multiple of the samples of "
                                   "the first input")
        return N(int(factor))

    def at(self, n, samples):
        """The size for so many samples."""
        if not isinstance(n, torch.SymInt):
            return n
        return int(n.node.expr.xreplace(self.same).subs(self.samples, samples))

    def shape(self, value):
        if isinstance(value, (list, tuple)):
            return [self.shape(v) for v in value]
        return [self.of(n) for n in value.shape] if isinstance(value, torch.Tensor) else value


def results(program):
    """The nodes that the user's forward returns, and {name of a buffer: the node that forward
    writes into it}, except those of batch norms."""
    by_name, returned, written = {node.name: node for node in program.graph.nodes}, [], {}
    for spec in program.graph_signature.output_specs:
        node, kind = by_name.get(getattr(spec.arg, "name", None)), spec.kind.name
        if kind == "USER_OUTPUT" and node:
            returned.append(node)
        elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION") and not (
                node.op == "call_function" and "batch_norm" in str(node.args[0]) and
                name_of(node) == "getitem" or spec.target.endswith("num_batches_tracked")):
            written[spec.target] = node
    return returned, written


def needed(program, result, written):
    """The nodes that the result needs, those written into buffers, and batch norms, which keep
    statistics."""
    wanted = {*written} if result is None else {result, *written}
    for node in reversed(program.graph.nodes):
        if node in wanted or "_native_batch_norm_legit_functional" in str(node.target):
            wanted |= {node, *node.all_input_nodes}
    return wanted


def folded(program, sizes, wanted, tensors):
    """{node: Const} of nodes that depend on no input and no parameter; `tensors`: those of buffers
    and lifted constants, by node."""
    random = torch.Tag.nondeterministic_seeded
    constants = {node: Const([x], list(x.shape)) for node, x in tensors.items()}

    def at(x, samples):
        if isinstance(x, torch.fx.Node):
            if x in constants:
                of = constants[x].of
                return of[min(samples - 2, len(of) - 1)]
            return sizes.at(x.meta["val"], samples)
        return x
    for node in program.graph.nodes:
        val = node.meta.get("val")
        if node.op != "call_function" or node not in wanted or not isinstance(
                val, torch.Tensor) or any(not (x in constants or isinstance(
                    x.meta.get("val"), (torch.SymInt, int, float, bool)))
                    for x in node.all_input_nodes):
            continue
        if random in getattr(node.target, "tags", ()) or "empty" in name_of(node):
            continue
        grows = any(isinstance(n, torch.SymInt) for n in val.shape) or any(
            x not in constants or len(constants[x].of) > 1 for x in node.all_input_nodes)
        try:
            of = [node.target(*torch.fx.node.map_arg(node.args, lambda x, s=s: at(x, s)),
                              **torch.fx.node.map_arg(node.kwargs, lambda x, s=s: at(x, s)))
                  for s in ((2, 3) if grows else (2,))]
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


def bounds(program, wanted, examples):
    """{input: (least of its tables, largest)} of inputs of integers, by node: those of an
    example where no table looks it up."""
    found = {}
    for node in wanted:
        if node.op != "call_function":
            continue
        name = name_of(node)
        if name == "embedding":
            index, rows = node.args[1], int(node.args[0].meta["val"].shape[0])
        elif name == "one_hot":
            index, rows = node.args[0], node.args[1]
        elif name in ("gather", "scatter_add", "scatter"):
            index = node.args[2]
            rows = node.args[0].meta["val"].shape[node.args[1]]
        else:
            continue
        if isinstance(rows, int):
            _follow(index, rows, False, found, name == "embedding")
    out = {}
    for node, example in examples.items():
        whole, parts = found.get(node, ([], []))
        most = min(whole) if whole else max(parts) if parts else int(example.max()) + 1
        out[node] = (min([most, *parts]), most)
    return out


def _follow(node, rows, part, found, table):
    """Notes a table of so many rows for the inputs that `node` has its elements from."""
    if not isinstance(node, torch.fx.Node):
        return
    if node.op == "placeholder":
        found.setdefault(node, ([], []))[part and table].append(rows)
    elif node.op == "call_function" and name_of(node) in _MOVES:
        name, args = name_of(node), node.args
        args = args[1:] if name == "where" else args[:1]
        for x in torch.utils._pytree.tree_leaves(args):
            _follow(x, rows, part or name in _PARTS, found, table)


_PLACES = {"topk", "sort", "max", "min"}  # whose second result are places


def counts_from_0(node):
    """Are these integers those of an input, or of an op that says places, or made of such?"""
    name = name_of(node)
    if name in ("add", "mul", "floor_divide", "div"):
        return all(counts_from_0(x) if isinstance(x, torch.fx.Node) else x >= 0 for x in node.args)
    return node.op == "placeholder" or name in ("argmax", "argmin", "remainder", "iota") or \
        name == "getitem" and name_of(node.args[0]) in _PLACES or \
        name in _MOVES and all(map(counts_from_0, node.all_input_nodes))


_SUMS = {"sum", "cumsum", "prod"}
_ARITHMETIC = _SUMS | {"add", "sub", "mul", "pow", "remainder", "fmod", "floor_divide", "div"}
_AS_LARGE = _MOVES | {"neg", "abs", "sign", "relu", "maximum", "minimum", "amax", "amin", "max",
                      "min", "clamp_min", "clamp_max", "topk", "sort", "scatter", "index_put"}


def refuse_rounded_integers(program, wanted, constants, inputs):
    """Notes at an op of integers why it is refused, where they may be larger than float32 has them.
    Of some it is not known how large they are: verify.py looks at those of the example."""
    most = {node: below - 1 for node, (_, below) in inputs.items()}

    def of(x):
        if not isinstance(x, torch.fx.Node):
            return abs(x) if isinstance(x, (bool, int)) else 0
        if getattr(x.meta.get("val"), "dtype", None) is torch.bool:
            return 1
        t = constants[x].tensor if x in constants else None
        return most.get(x, 0) if t is None or not t.numel() or t.is_floating_point() else \
            int(t.abs().max())
    for node in program.graph.nodes:
        val, name = node.meta.get("val"), name_of(node)
        if node.op != "call_function" or node not in wanted or node in constants or isinstance(
                val, torch.Tensor) and val.is_floating_point():
            continue
        given = [*map(of, node.args[:1] if name in _SUMS else node.args[:2] if name in _ARITHMETIC
                      else node.args[1:] if name == "where" else node.all_input_nodes), 0]
        most[node] = _largest(node, name, given)
        if name in _ARITHMETIC and max(most[node], *given) > _EXACT:
            node.meta["refused"] = ("its integers may exceed 2^24, which float32 rounds: use "
                                    "clamp to bound them")


def _largest(node, name, given):
    first, second = given[:2]
    if name in ("add", "sub"):
        return first + second
    if name == "mul":
        return first * second
    if name == "pow":
        return first ** min(second, 64)
    if name in ("remainder", "fmod"):
        return second
    if name in ("sum", "prod", "cumsum"):
        shape, own = node.args[0].meta["val"].shape, node.meta["val"].shape
        count = int(shape[node.args[1]]) if name == "cumsum" else math.prod(
            n for n in shape if isinstance(n, int)) // math.prod(
                n for n in own if isinstance(n, int))
        return first ** min(count, 64) if name == "prod" else first * count
    if name == "clamp" and all(isinstance(x, int) for x in node.args[1:3]) and node.args[2:]:
        bound = max(map(abs, node.args[1:3]))
        return min(first, bound) if first else bound
    return max(given) if name in _AS_LARGE | {"clamp", "floor_divide", "div", "where"} else 0
