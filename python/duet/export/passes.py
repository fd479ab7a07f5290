"""What is found out of the program before a line is written: which nodes the result is made of,
what depends on no input and no parameter, and how large integers are."""

import math
import operator

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
_TABLES = {"embedding": (1, 0, 0), "one_hot": (0, None, None), "gather": (2, 0, None)}


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
        if name in ("embedding", "_embedding_bag"):
            index, rows = node.args[1], int(node.args[0].meta["val"].shape[0])
        elif name == "one_hot":
            index, rows = node.args[0], node.args[1]
        elif name in ("gather", "scatter_add", "scatter"):
            index = node.args[2]
            rows = node.args[0].meta["val"].shape[node.args[1]]
        else:
            continue
        if isinstance(rows, int):
            _follow(index, rows, False, found, "embedding" in name)
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


def _both(how):
    return lambda a, x, y: [how(i, j) for i in x for j in y]


def _to_zero(i, number):
    size = abs(i) // abs(number)
    return size if (i < 0) == (number < 0) else -size


def _divided(a, x, y):
    how = _to_zero if a.get("rounding_mode") == "trunc" else operator.floordiv
    require(y[0] == y[-1] != 0, "by what is no number other than 0")
    return [how(i, y[0]) for i in x]


def _remainder(a, x, y):
    return [0, y[0] - 1] if y[0] > 0 else [y[0] + 1, 0]


def _fmod(a, x, y):
    most = abs(y[0]) - 1
    return [max(min(x[0], 0), -most), min(max(x[1], 0), most)]


def _powers(a, x, y):
    most = max(map(abs, x)) ** y[0]
    return [-most if x[0] < 0 and y[0] % 2 else 0, most]


def _clamped(a, x, *_):
    low, high = a.get("min"), a.get("max")
    x = [i if not isinstance(low, (int, float)) else max(i, int(low)) for i in x]
    return [i if not isinstance(high, (int, float)) else min(i, int(high)) for i in x]


def _many(a, x, *_):
    return [end * times for end in x for times in (1, a["count"])]


def _prod(a, x, *_):
    most = max(map(abs, x)) ** a["count"]
    return [-most if x[0] < 0 else 0, most]


_RANGES = {
    "add": _both(operator.add), "sub": _both(operator.sub), "mul": _both(operator.mul),
    "rsub": _both(lambda i, j: j - i), "maximum": _both(max), "minimum": _both(min),
    "neg": lambda a, x: [-i for i in x], "relu": lambda a, x: [max(i, 0) for i in x],
    "abs": lambda a, x: [0, *map(abs, x)], "sign": lambda a, x: [-1, 1],
    "pow": _powers, "remainder": _remainder, "fmod": _fmod, "floor_divide": _divided,
    "div": _divided, "bitwise_and": lambda a, x, y: [0, y[0]], "clamp": _clamped,
    "__and__": lambda a, x, y: [0, y[0]],
    "clamp_min": _clamped, "clamp_max": _clamped, "cumsum": _many, "sum": _many, "prod": _prod,
    "bitwise_right_shift": _both(operator.rshift), "__rshift__": _both(operator.rshift),
    "bitwise_left_shift": _both(operator.lshift), "__lshift__": _both(operator.lshift)}
_ROUNDS = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}
_OF_ALL = _MOVES | {"amax", "amin", "max", "min", "topk", "sort", "scatter", "index_put",
                    "masked_fill", "slice_scatter"}


def ranges(program, wanted, constants, inputs):
    """{node: (least, largest)} of integers, as far as they are known; Refused where float32
    does not have them."""
    out = {node: (0, most - 1) for node, (_, most) in inputs.items()}

    def ends(x):
        if isinstance(x, (bool, int)):
            return int(x), int(x)
        if isinstance(x, torch.fx.Node):
            val = x.meta.get("val")
            if isinstance(val, torch.Tensor) and val.dtype is torch.bool:
                return 0, 1
            if x in constants and constants[x].tensor.numel():
                t = constants[x].tensor
                return None if t.is_floating_point() else (int(t.min()), int(t.max()))
            return out.get(x)
        return None
    for node in program.graph.nodes:
        val = node.meta.get("val")
        if node.op != "call_function" or node not in wanted or node in constants:
            continue
        first = val[0] if isinstance(val, (list, tuple)) and val else val
        if not isinstance(first, torch.Tensor) or first.dtype not in (torch.int64, torch.int32):
            if not (isinstance(val, (list, tuple)) or name_of(node) in ("floor", "trunc", "div",
                                                                        "ceil", "round")):
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
    name, val = name_of(node), node.meta["val"]
    schema = getattr(node.target, "_schema", None)
    a = dict(zip((x.name for x in schema.arguments), node.args)) | dict(node.kwargs) if schema \
        else {}
    if name == "getitem":
        source = node.args[0]
        if name_of(source) in ("topk", "sort", "max", "min") and node.args[1] == 1:
            at = 2 if name_of(source) == "topk" else 1
            dim = source.args[at] if len(source.args) > at else -1
            return 0, int(source.args[0].meta["val"].shape[dim]) - 1
        return ends(source)
    if name in ("argmax", "argmin"):
        return 0, int(node.args[0].meta["val"].shape[node.args[1]]) - 1
    if name == "one_hot":
        return 0, 1
    if name in ("full_like", "fill", "new_full", "full"):
        return ends(node.args[2 if name == "new_full" else 1])
    if name.startswith(("zeros", "ones", "new_zeros", "new_ones")):
        return 0, 1
    if name == "bucketize":
        return 0, int(node.args[1].meta["val"].shape[0])
    given = [ends(x) for x in torch.utils._pytree.tree_leaves(
        [x for key, x in a.items() if key not in ("dim", "size", "dims", "min", "max", "pad",
                                                  "dtype", "index", "indices", "mask", "start",
                                                  "end", "step", "k", "condition", "shifts",
                                                  "rounding_mode", "keepdim", "dim0", "dim1",
                                                  "repeats", "largest", "sorted", "descending",
                                                  "memory_format", "split_sizes", "accumulate")])
             if isinstance(x, (torch.fx.Node, int, bool))]
    if name == "clamp" and None in given and isinstance(a.get("min"), int) and \
            isinstance(a.get("max"), int):
        return a["min"], a["max"]
    if name == "constant_pad_nd":
        given.append([int(a.get("value") or 0)] * 2)
    if not given or None in given:
        return None
    if name == "add" and any(x in constants and constants[x].is_place(1)
                             for x in node.args if isinstance(x, torch.fx.Node)):
        return next(pair for x, pair in zip(node.args, given) if x not in constants)
    if name in ("max", "min") and len(given) == 2:
        name += "imum"
    if name in _ROUNDS or name == "_to_copy" and not val.dtype.is_floating_point:
        return list(map(_ROUNDS.get(name, math.trunc), given[0]))
    if name in _OF_ALL:
        return [end for pair in given for end in pair]
    if name == "div" and not a.get("rounding_mode"):
        require(given[1][0] == given[1][-1] != 0, "by what is no number other than 0")
        return [i / given[1][0] for i in given[0]]
    if name not in _RANGES:
        return None
    source = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
    if name in ("cumsum", "sum", "prod"):
        total = [n for n in source.shape if isinstance(n, int)]
        own = [n for n in val.shape if isinstance(n, int)]
        a["count"] = int(source.shape[a["dim"]]) if name == "cumsum" else \
            max(1, math.prod(total) // max(1, math.prod(own)))
    square = name == "mul" and node.args[0] is node.args[1]
    found = _powers(a, given[0], [2]) if square else _RANGES[name](a, *given)
    if val.dtype in (torch.int64, torch.int32) and name not in (
            "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "neg", "relu", "abs", "sign"):
        require(all(abs(end) <= _EXACT for pair in given for end in pair),
                "of integers that may pass 2^24, which float32 rounds: clamp says how large "
                "they are")
        require(all(abs(end) <= _EXACT for end in found),
                "its integers pass 2^24, which float32 rounds")
    return found
