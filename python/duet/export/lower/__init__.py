"""Translates PyTorch's ops to a graph of Duet. A function under `@lower(aten.NAME)` writes the
lines of aten::NAME. It gets the writer, the arguments under the schema's names, and the shape of
the result, and returns a value or a list of values. trace.py does not decompose ops that have a
function here, so a new op needs only a new function. The Interpreter visits the nodes of the
program and calls the function for each."""

import contextlib
import re
from operator import getitem

import torch

from ...command import Record
from ..passes import N, Ranges, Refused, Sizes, bounds, folded, require, results
from ..text import Value, Writer, text_of

LOWERINGS = {}


def lower(*packets):
    def note(function):
        for packet in packets:
            LOWERINGS[packet._qualified_op_name] = function
        return function
    return note


_NAME = re.compile(r"[^\s,:=()\[\]#%][^\s,:=()\[\]#]*")
_OF_NORM = re.compile(r"(^|\.)(running_mean|running_var|num_batches_tracked)$")
_INSTEAD = {"asinh": "torch.log(x + torch.sqrt(x * x + 1))",
            "atanh": "0.5 * torch.log((1 + x) / (1 - x))", "erfc": "1 - torch.erf(x)",
            "prod": "x.cumprod(dim).select(dim, -1)", "uniform": "torch.rand_like(x)"}
_TYPES = torch.float32, torch.int64, torch.int32, torch.bool


def _require_known(op):
    instead = _INSTEAD.get(op.split("::")[1])
    require(op in LOWERINGS, "Duet has no such op" + (f": write {instead}" if instead else ""))


class Interpreter(Writer):
    def __init__(self, model, program, examples):
        self.model, self.program = model, program
        self.of = {id(x): name for name, x in (*model.named_parameters(), *model.named_buffers())}
        super().__init__(torch, self.of.values())
        self.env, self.refusals, self.inputs, self.buffers, self.updates = {}, [], [], set(), []
        self.shown = {}  # lines that hold an op's value: the node, at, front, and a description
        self.measure = Sizes(program)
        self.op, self.asked, self.given = "", set(), {}
        self.specs = dict(zip(program.graph.find_nodes(op="placeholder"),
                              program.graph_signature.input_specs))
        self.examples = dict(zip((n for n, spec in self.specs.items()
                                  if spec.kind.name == "USER_INPUT" and isinstance(
                                      n.meta.get("val"), torch.Tensor)), examples))

    def _placeholder(self, node):
        spec, x = self.specs[node], node.meta.get("val")
        if spec.kind.name == "USER_INPUT":
            if not isinstance(x, torch.Tensor):
                return x
            require(x.dtype in _TYPES[:3], f"the input is {x.dtype}: give float32 or integers")
            shape = self.measure.shape(x)
            value = Value(f"%{node.name}", shape, shape, 0, dtype=x.dtype)
            self.inputs.append((value, node))
            return value
        is_buffer = spec.kind.name != "PARAMETER"
        tensor = (self.model.get_buffer if is_buffer else self.model.get_parameter)(spec.target)
        name = self.of[id(tensor)]
        require(_NAME.fullmatch(name) and name != "none",
                f"'{name}' is not a valid name in the exported file: rename its module")
        if is_buffer or tensor.requires_grad:
            (self.buffers if is_buffer else self.trained).add(name)
        return self.stored(name, tensor)

    def _told(self, node):
        """The op, its module, and the line of the user's source."""
        stack = [(path, kind) for path, kind in
                 (node.meta.get("nn_module_stack") or {}).values() if isinstance(kind, str)]
        path, kind = stack[-1] if stack else ("", "")
        kind = f" ({kind.rsplit('.', 1)[-1]})" if kind else ""
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        own = [f", {file}:{line}" for file, line in lines if "/torch/" not in file and
               not file.startswith(("torch/", "<"))]
        name = str(node.target if node.op == "call_function" else node.name)
        source = node.meta.get("from_node")  # the op before it was decomposed
        source = re.sub(r"_\d+$", "", source[-1].name) if source else ""
        if node.op == "call_function" and source and (
                source.rstrip("_") not in name or name.startswith("prims.")):
            name = f"aten.{source}"
        return f"{name} of {path or 'the model'}{kind}{''.join(own[-1:])}"

    @contextlib.contextmanager
    def _refusing(self, node):
        """Records why the block cannot write the node."""
        try:
            yield
        except Exception as error:
            unknown = f"it cannot be written: {type(error).__name__}: "
            why = "" if isinstance(error, Refused) else unknown
            self.refusals.append(f"{self._told(node)}: {why}{error}")

    def _call(self, node):
        target, val = node.target, node.meta.get("val")
        if target is getitem:
            return self.env[node.args[0]][node.args[1]]
        if isinstance(val, (torch.SymInt, int, float, bool)):
            with contextlib.suppress(Refused):
                val = self.measure.of(val)
            return val
        require(isinstance(target, torch._ops.OpOverload), "Duet has no such op")
        if val is None:  # assertions have no result
            return None
        self.op = target._schema.name
        _require_known(self.op)
        several = isinstance(val, (list, tuple))
        for x in val if several else [val]:
            require(not isinstance(x, torch.Tensor) or x.dtype in _TYPES,
                    f"it makes {getattr(x, 'dtype', None)}: cast to torch.float32 instead")
        require(node not in self.ranges.rounded, "its integers may exceed 2^24, which float32 "
                                                 "rounds: use clamp to bound them")
        schema = target._schema.arguments
        self.given = {**dict(zip((x.name for x in schema), node.args)), **node.kwargs}
        a = Record({x.name: torch.fx.node.map_arg(self.given[x.name], self.env.__getitem__)
                    if x.name in self.given else x.default_value
                    for x in schema if x.name in self.given or x.has_default_value()})
        self.asked = {u.args[1] for u in node.users if u.target is getitem and u.users}
        made = LOWERINGS[self.op](self, a, self.measure.shape(val))
        for one, fake in zip(made, val) if several else [(made, val)]:
            if isinstance(one, Value):
                one.dtype = fake.dtype
        return made

    def run(self):
        """The value of the result; None if something is refused."""
        returned, self.written = results(self.program)
        result = returned[0] if len(returned) == 1 else None
        whole = {node: x for node, x in self.examples.items() if not x.is_floating_point()}
        self.below = bounds(self.program, whole)
        table = self.program.constants | self.program.state_dict
        constants = folded(self.program, self.measure, {
            node: table[spec.target].detach() for node, spec in self.specs.items()
            if spec.kind.name == "CONSTANT_TENSOR" or spec.kind.name == "BUFFER" and
            spec.target not in self.written and not _OF_NORM.search(spec.target)})
        self.ranges = Ranges(self.program, self.measure, constants, self.below)
        for node in self.program.graph.nodes:
            if node.op == "output" or not node.users and node not in self.examples:
                continue
            paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
            self.module = paths[-1] if paths and "_empty_nn" not in paths[-1] else ""
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
                f"it writes into {name}, a tensor of the model: compute a new tensor")
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


from . import elements, layers, reductions, shapes  # noqa: E402, F401
