"""Finds out about the program before a line is written: which nodes the result needs, which of them
depend on no input and no parameter, and how large integers are."""

import itertools
import math

import torch

from .text import Const, N, Refused, require

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
                if count.hint == first.hint:  # inputs have as many samples, where no op says so
                    self.same[count.expr] = first.expr
        self.samples = first.expr if first else None

    def of(self, n):
        if not isinstance(n, torch.SymInt):
            return n
        expression = n.node.expr.xreplace(self.same)
        if expression.is_Integer:
            return int(expression)
        factor = expression / self.samples
        require(factor.is_Integer, f"its shape has {expression}, no multiple of the samples of "
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


def result_of(program):
    """The node that the user's forward returns, or None where it returns several."""
    names = [spec.arg.name for spec in program.graph_signature.output_specs
             if spec.kind.name == "USER_OUTPUT" and hasattr(spec.arg, "name")]
    by_name = {node.name: node for node in program.graph.nodes}
    return by_name[names[0]] if len(names) == 1 else None, names


def mutations(program):
    """{name of a buffer: the node that forward writes into it}, but for what batch norms keep."""
    by_name, out = {node.name: node for node in program.graph.nodes}, {}
    for spec in program.graph_signature.output_specs:
        node = by_name.get(getattr(spec.arg, "name", None))
        norm = node is not None and node.op == "call_function" and (
            "batch_norm" in str(node.args[0]) and name_of(node) == "getitem" or
            (spec.target or "").endswith("num_batches_tracked"))
        if spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION") and not norm:
            out[spec.target] = node
    return out


def needed(program, result, written):
    """What the result is made of, what is written into buffers, and batch norms, which keep
    statistics."""
    wanted = {*written} if result is None else {result, *written}
    for node in reversed(program.graph.nodes):
        if node in wanted or "_native_batch_norm_legit_functional" in str(node.target):
            wanted |= {node, *node.all_input_nodes}
    return wanted


def folded(program, sizes, wanted, tensors):
    """{node: Const} of what depends on no input and no parameter; `tensors` are those of buffers
    and lifted constants, by node."""
    constants, random = dict(tensors), torch.Tag.nondeterministic_seeded
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


# An op of one element is largest and least at the ends of what it is given, or at 0.
_ELEMENTS = {"add", "sub", "mul", "neg", "abs", "sign", "relu", "pow", "floor_divide", "div",
             "maximum", "minimum", "clamp", "clamp_min", "clamp_max"}
_SMALLER = {"neg", "abs", "sign", "relu", "maximum", "minimum", "clamp", "clamp_min", "clamp_max"}
_SUMS = {"sum", "cumsum", "prod"}
_OF_ALL = _MOVES | {"amax", "amin", "max", "min", "topk", "sort", "scatter", "index_put",
                    "full_like"}
_DATA = "self", "tensors", "src", "other", "value", "values", "fill_value"  # of _OF_ALL


def ranges(program, wanted, constants, inputs):
    """{node: (least, largest)} of integers, as far as they are known; Refused where float32
    does not have them."""
    out = {node: (0, most - 1) for node, (_, most) in inputs.items()}

    def ends(x):
        if not isinstance(x, torch.fx.Node):
            return (int(x), int(x)) if isinstance(x, (bool, int)) else None
        val = x.meta.get("val")
        if isinstance(val, torch.Tensor) and val.dtype is torch.bool:
            return 0, 1
        if x in constants and constants[x].tensor.numel():
            t = constants[x].tensor
            return None if t.is_floating_point() else (int(t.min()), int(t.max()))
        return out.get(x)
    for node in program.graph.nodes:
        val = node.meta.get("val")
        first = val[0] if isinstance(val, (list, tuple)) and val else val
        if node.op != "call_function" or node not in wanted or node in constants or \
                not isinstance(first, torch.Tensor) or first.is_floating_point() and first is val:
            continue
        try:
            found = _range(node, ends, constants)
        except Refused as why:
            node.meta["refused"] = str(why)
            continue
        if found:
            out[node] = min(found), max(found)
    return out


def _range(node, ends, constants):
    name, args = name_of(node), node.args
    if name == "getitem":
        source = args[0]
        if name_of(source) in ("topk", "sort", "max", "min") and args[1] == 1:
            a = arguments_of(source)
            return 0, int(a["self"].meta["val"].shape[a.get("dim", -1)]) - 1
        return ends(source)
    if name in ("argmax", "argmin"):
        return 0, int(args[0].meta["val"].shape[args[1]]) - 1
    if name == "one_hot":
        return 0, 1
    a = arguments_of(node)
    if name == "clamp" and isinstance(a.get("min"), int) and isinstance(a.get("max"), int) and \
            ends(a["self"]) is None:
        return a["min"], a["max"]
    if name in _OF_ALL:
        if name in ("max", "min") and "other" in a:
            return _checked(_at_corners(node, ends), [], True)
        if name == "constant_pad_nd":
            a.setdefault("value", 0)
        data = [x for key in _DATA if key in a and (key, name) != ("self", "full_like")
                for x in torch.utils._pytree.tree_leaves(a[key])]
        given = [ends(int(x) if isinstance(x, float) else x) for x in data]
        return None if None in given else [end for pair in given for end in pair]
    if name == "add" and any(x in constants and constants[x].is_place(1) for x in args):
        return next(ends(x) for x in args if x not in constants)
    given = [ends(x) for x in [*node.all_input_nodes, *args] if isinstance(x, (torch.fx.Node, int))]
    if None in given:
        return None
    given = [end for pair in given for end in pair]
    if name in _ELEMENTS:
        return _checked(_at_corners(node, ends), given, name in _SMALLER)
    if name in _SUMS:
        shape, own = args[0].meta["val"].shape, node.meta["val"].shape
        count = int(shape[a["dim"]]) if name == "cumsum" else math.prod(
            n for n in shape if isinstance(n, int)) // math.prod(
            n for n in own if isinstance(n, int))
        most = max(map(abs, given))
        return _checked([-most ** count if given[0] < 0 else 0, most ** count] if name == "prod"
                        else [end * times for end in given for times in (1, count)], given)
    if name in ("remainder", "fmod"):
        number = (ends(a["other"]) or [0])[0]
        most, negative = abs(number) - 1, given[0] < 0 if name == "fmod" else number < 0
        positive = given[1] > 0 if name == "fmod" else number > 0
        return _checked([-most * negative, most * positive], [*given, number])
    return given if name == "_to_copy" else None


def arguments_of(node):
    return dict(zip((x.name for x in node.target._schema.arguments), node.args)) | node.kwargs


def _at_corners(node, ends):
    nodes = node.all_input_nodes
    values = [{*ends(x), *([0] if ends(x)[0] < 0 < ends(x)[1] else [])} for x in nodes]
    found = []
    for chosen in itertools.product(*values):
        at = {x: torch.tensor(float(y)).double() for x, y in zip(nodes, chosen)}
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), at.get)
        found.append(node.target(*args, **kwargs).item())
    require(all(map(math.isfinite, found)), "by what is no number other than 0")
    return list(map(int, found))


def _checked(found, given, smaller=False):
    """What is larger than float32 has is refused, unless the op makes nothing larger."""
    require(smaller or all(abs(end) <= _EXACT for end in given),
            "of integers that may pass 2^24, which float32 rounds: clamp says how large they are")
    require(smaller or all(abs(end) <= _EXACT for end in found),
            "its integers pass 2^24, which float32 rounds")
    return found
