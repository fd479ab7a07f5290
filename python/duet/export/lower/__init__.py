"""Translates PyTorch's ops to a graph of Duet. A function under `@lower(aten.NAME)` writes the
lines of aten::NAME. It gets the writer, the arguments under the schema's names, and the shape of
the result, and returns a value or a list of values. trace.py does not decompose ops that have a
function here, so a new op needs only a new function. The Interpreter visits the nodes of the
program and calls the function for each."""

import contextlib
import re
from operator import getitem

import torch

from ..passes import N, Ranges, Refused, Sizes, bounds, folded, require, results
from ..text import Value, Writer, text_of

LOWERINGS = {}


def lower(*packets):
    def note(function):
        for packet in packets:
            LOWERINGS[packet._qualified_op_name] = function
        return function
    return note


class Arguments(dict):
    """The arguments of a call, under the names of its schema."""

    __getattr__ = dict.__getitem__


_NAME = re.compile(r"[^\s,:=()\[\]#%][^\s,:=()\[\]#]*")
_OF_NORM = re.compile(r"(^|\.)(running_mean|running_var|num_batches_tracked)$")
_INSTEAD = {"asinh": "torch.log(x + torch.sqrt(x * x + 1))",
            "atanh": "0.5 * torch.log((1 + x) / (1 - x))", "erfc": "1 - torch.erf(x)"}
_TYPES = torch.float32, torch.int64, torch.int32, torch.bool


def _require_known(op):
    instead = _INSTEAD.get(op.split("::")[1])
    require(op in LOWERINGS, "Duet has no such op" + (f": write {instead}" if instead else ""))


class Interpreter(Writer):
    def __init__(self, model, program, examples):
        self.model, self.program = model, program
        self.of = {id(x): name for name, x in (*model.named_parameters(), *model.named_buffers())}
        super().__init__(torch, self.of.values())
        self.env, self.refusals, self.inputs, self.buffers = {}, [], [], set()
        self.updates, self.written = [], {}
        self.shown = {}  # lines that hold an op's value: the node, at, front, and a description
        self.below = {}
        self.measure = Sizes(program)
        self.op, self.asked, self.given = "", set(), {}
        self.specs = dict(zip(program.graph.find_nodes(op="placeholder"),
                              program.graph_signature.input_specs))
        self.examples = dict(zip((n for n, spec in self.specs.items()
                                  if spec.kind.name == "USER_INPUT" and isinstance(
                                      n.meta.get("val"), torch.Tensor)), examples))

    # ---- tensors that exist from the start

    def _tensors(self):
        """The node of each tensor of the model, except parameters and the buffers of norms."""
        tables, out = (self.program.state_dict, self.program.constants), {}
        for node, spec in self.specs.items():
            if spec.kind.name in ("BUFFER", "CONSTANT_TENSOR") and not (
                    spec.kind.name == "BUFFER" and (spec.target in self.written or
                                                    _OF_NORM.search(spec.target))):
                x = next(t[spec.target] for t in tables if spec.target in t)
                out[node] = x.detach()
        return out

    def _placeholder(self, node):
        spec, x = self.specs[node], node.meta.get("val")
        if spec.kind.name == "USER_INPUT":
            if not isinstance(x, torch.Tensor):
                return x
            require(x.dtype in _TYPES[:3], f"an input of {x.dtype}: Duet takes float32 and whole "
                                           "numbers")
            shape = self.measure.shape(x)
            require(shape and shape[0] == N(1), "an input without samples")
            value = Value(f"%{node.name}", shape, shape, 0, dtype=x.dtype)
            self.inputs.append((value, node))
            return value
        tensor = self.model.get_parameter(spec.target) if spec.kind.name == "PARAMETER" else \
            self.model.get_buffer(spec.target)
        name = self.of[id(tensor)]
        require(_NAME.fullmatch(name) and name != "none",
                f"'{name}' is not a valid name in the exported file: rename its module")
        if spec.kind.name == "PARAMETER":
            if tensor.requires_grad:
                self.trained.add(name)
        else:
            self.buffers.add(name)
        return self.stored(name, tensor)

    # ---- nodes

    def _told(self, node):
        """The op, its module, and the line of the user's source."""
        stack = [(path, kind) for path, kind in
                 (node.meta.get("nn_module_stack") or {}).values() if isinstance(kind, str)]
        path, kind = stack[-1] if stack else ("", "")
        where = f"{path or 'the model'} ({kind.rsplit('.', 1)[-1]})" if path or kind else \
            "the model"
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        own = [f"{file}:{line}" for file, line in lines if "/torch/" not in file and
               not file.startswith(("torch/", "<"))]
        name = node.target if node.op == "call_function" else node.name
        source = node.meta.get("from_node")  # the op before it was decomposed
        source = re.sub(r"_\d+$", "", source[-1].name) if source else ""
        if node.op == "call_function" and source and (
                source.rstrip("_") not in str(name) or str(name).startswith("prims.")):
            name = f"aten.{source}"
        return f"{name} of {where}{', ' + own[-1] if own else ''}"

    @contextlib.contextmanager
    def _refusing(self, node):
        """Records why the block cannot write the node."""
        try:
            yield
        except Exception as error:
            why = str(error) if isinstance(error, Refused) else (
                f"it cannot be written: {type(error).__name__}: {error}")
            self.refusals.append(f"{self._told(node)}: {why}")

    def _call(self, node):
        target, val = node.target, node.meta.get("val")
        if target is getitem:
            return self.env[node.args[0]][node.args[1]]
        if isinstance(val, (torch.SymInt, int, float, bool)) and not isinstance(val, torch.Tensor):
            try:
                return self.measure.of(val)
            except Refused:
                return val
        if not isinstance(target, torch._ops.OpOverload):
            raise Refused("Duet has no such op")
        if val is None:  # assertions have no result
            return None
        self.op = target._schema.name
        _require_known(self.op)
        for x in val if isinstance(val, (list, tuple)) else [val]:
            require(not isinstance(x, torch.Tensor) or x.dtype in _TYPES,
                    f"it makes {getattr(x, 'dtype', None)}: Duet computes in float32")
        require(node not in self.ranges.rounded, "its integers may exceed 2^24, which float32 "
                                                 "rounds: use clamp to bound them")
        self.given = dict(zip((x.name for x in target._schema.arguments), node.args))
        self.given.update(node.kwargs)
        a = Arguments({x.name: torch.fx.node.map_arg(self.given[x.name], lambda n: self.env[n])
                       if x.name in self.given else x.default_value
                       for x in target._schema.arguments
                       if x.name in self.given or x.has_default_value()})
        self.asked = {u.args[1] for u in node.users if u.target is getitem and u.users}
        made = LOWERINGS[self.op](self, a, self.measure.shape(val))
        for one, fake in zip(made, val) if isinstance(val, (list, tuple)) else [(made, val)]:
            if isinstance(one, Value):
                one.dtype = fake.dtype
        return made

    def run(self):
        """The value of the result; None if something is refused."""
        returned, self.written = results(self.program)
        result = returned[0] if len(returned) == 1 else None
        whole = {n: x for n, x in self.examples.items() if not x.is_floating_point()}
        self.below = bounds(self.program, whole)
        constants = folded(self.program, self.measure, self._tensors())
        self.ranges = Ranges(self.program, self.measure, constants, self.below)
        for node in self.program.graph.nodes:
            if node.op == "output" or not node.users and node not in self.examples:
                continue
            self.module = ([path for path, _ in (node.meta.get("nn_module_stack") or
                                                 {}).values()] or [""])[-1]
            if "_empty_nn" in self.module:
                self.module = ""
            self.env[node] = Refused  # likewise refused, since an operand was
            with self._refusing(node):
                if node in constants:
                    self.env[node] = constants[node]
                elif node.op == "placeholder":
                    self.env[node] = self._placeholder(node)
                elif not any(self.env.get(x) is Refused for x in node.all_input_nodes):
                    y = self.env[node] = self._call(node)
                    if isinstance(y, Value) and y.at is not None and not y.repeats:
                        self.shown.setdefault(y.name, (node, y.at, y.front, self._told(node)))
                elif isinstance(node.target, torch._ops.OpOverload):
                    _require_known(node.target._schema.name)
        for name, node in self.written.items():
            with self._refusing(node):
                self._update(name, self.env.get(node))
        return self._result(self.env.get(result), len(returned))

    def _update(self, name, value):
        """Each step assigns to a buffer a value computed from parameters and buffers."""
        if value is Refused:
            return
        require(isinstance(value, Value) and value.shared and value.dtype.is_floating_point and
                name in dict(self.model.named_buffers()),
                f"it writes into {name}, a tensor of the model, which would change in each step")
        self.buffers.add(name)
        value = self.dense(value)
        self.updates.append((name, self.lay(value, value.shape, shared=True)))

    def _result(self, value, count):
        if value is Refused:
            return None
        if isinstance(value, Value) and value.rank and value.shape[0] == N(1) and \
                value.dtype.is_floating_point:
            value = self.dense(value)
            if value.at == 0:
                return Value(self.lay(value, value.shape[1:]), value.shape, value.shape)
        shape = text_of(value.shape) if hasattr(value, "shape") else f"{count} tensors"
        self.refusals.append(f"the result is {shape}: return one tensor, [N, classes] or [N, "
                             "classes, positions]; with a loss such as mse, any shape [N, ..]")
        return None


from . import elements, layers, reductions, shapes  # noqa: E402, F401
