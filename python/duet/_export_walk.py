"""Goes through the nodes of an exported program, and writes the lines of each: see export.py."""

import re
from operator import getitem

from . import _export_layers, _export_ops, _export_recurrent, _export_shapes
from ._export_graph import Filled, N, Refused, Stacked, Stored, Value, Writer, text_of
from ._export_turned import AWARE, Turned

_KEEPS = {  # ops that change no value
    "alias", "clone", "contiguous", "lift_fresh_copy", "_assert_tensor_metadata", "to",
    "_to_copy", "type_as"}
_OPS = _export_ops, _export_layers, _export_recurrent, _export_shapes


def _symbols(torch, dims):
    """Sizes of torch.export: whole numbers, and multiples of the number of samples."""
    out = []
    for d in dims:
        if isinstance(d, torch.SymInt):
            symbols = list(d.node.expr.free_symbols)
            factor = d.node.expr / symbols[0] if len(symbols) == 1 else None
            if factor is None or not factor.is_Integer:
                raise Refused(f"its shape is {d.node.expr}, no multiple of the samples")
            out.append(N(int(factor)))
        else:
            out.append(int(d))
    return out


class Walk:
    """Goes through the nodes of an exported program."""

    def __init__(self, torch, model, program):
        self.torch, self.model, self.program = torch, model, program
        self.writer, self.env, self.refusals = Writer(torch), {}, []
        # Tied parameters are one; they have the name that named_parameters gives them.
        self.names = {id(p): name for name, p in model.named_parameters()}
        self.inputs, self.buffers = [], {}

    # -- tensors that are there from the start

    def _tensor(self, target):
        for table in (self.program.state_dict, self.program.constants):
            if target in table:
                return table[target]
        raise KeyError(target)

    def placeholder(self, node, spec):
        kind = spec.kind.name
        if kind == "USER_INPUT":
            self.input(node)
        elif kind == "PARAMETER":
            parameter = self.model.get_parameter(spec.target)
            name = self.names[id(parameter)]
            if not parameter.requires_grad:
                self.refuse(node, f"parameter {name}: requires_grad is False: Duet trains all")
            self.env[node] = Stored(name, parameter.shape, parameter)
            self.writer.stored[name] = parameter
        elif kind == "BUFFER" and re.search(r"(^|\.)(running_mean|running_var|"
                                            r"num_batches_tracked)$", spec.target):
            tensor = self._tensor(spec.target)
            self.env[node] = Stored(spec.target, tensor.shape, tensor)
            self.buffers[spec.target] = tensor
        else:
            self.env[node] = self._tensor(spec.target)

    def input(self, node):
        torch, fake = self.torch, node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            self.env[node] = fake
            return
        value = Value(f"%{node.name}", _symbols(torch, fake.shape))
        self.env[node] = value
        self.inputs.append((value, fake.dtype))

    # -- nodes

    def refuse(self, node, why):
        stack = [(path, kind) for path, kind in
                 (node.meta.get("nn_module_stack") or {}).values() if isinstance(kind, str)]
        path, kind = stack[-1] if stack else ("", "")
        if not path and not kind:
            where = "the model"
        else:
            where = f"{path or 'the model'} ({kind.rsplit('.', 1)[-1]})"
        lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        own = [f"{file}:{line}" for file, line in lines
               if "/torch/" not in file and not file.startswith("torch/")]
        self.refusals.append(f"{node.target if node.op == 'call_function' else node.name} of "
                             f"{where}{', ' + own[-1] if own else ''}: {why}")

    def look_up(self, x):
        torch = self.torch
        return torch.fx.node.map_arg(x, lambda node: self.env[node])

    def depends(self, args):
        """Does a value or a parameter take part? And does a multiple of the samples?"""
        flat = self.torch.utils._pytree.tree_leaves(
            args, is_leaf=lambda x: isinstance(x, self.kinds))
        return (any(isinstance(x, self.kinds) for x in flat),
                any(isinstance(x, (self.torch.SymInt, N)) for x in flat))

    def fold(self, target, args, kwargs):
        """What depends on the samples only by their number must be alike for each of them."""
        torch, tree_map = self.torch, self.torch.utils._pytree.tree_map
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise Refused("it draws numbers: only dropout may")
        if not self.depends((args, kwargs))[1]:
            return target(*args, **kwargs)

        def of(samples):
            def number(x):
                return int(x) * samples if isinstance(x, N) else x
            return target(*tree_map(number, args), **tree_map(number, kwargs))
        one, two = of(1), of(2)
        if not isinstance(one, torch.Tensor):
            raise Refused("it computes with the number of samples")
        if one.dim() and one.shape[0] == 1 and two.shape[0] == 2 and \
                torch.equal(two[:1], one) and torch.equal(two[1:], one):
            stored = self.writer.constant(one)
            return self.writer.expand(stored, [N(1), *one.shape[1:]], False)
        if one.numel() and two.eq(one.flatten()[0]).all():
            return Filled(one.flatten()[0].item(), list(one.shape))
        raise Refused("its values depend on the number of samples")

    def call(self, node):
        torch, target = self.torch, node.target
        self.kinds = Value, Stored, Filled, Stacked, Turned
        if target is getitem:
            return self.look_up(node.args[0])[node.args[1]]
        if isinstance(node.meta.get("val"), (torch.SymInt, int, bool, float)) and \
                not isinstance(node.meta.get("val"), torch.Tensor):
            value = node.meta["val"]
            return _symbols(torch, [value])[0] if isinstance(value, torch.SymInt) else value
        if not isinstance(target, torch._ops.OpOverload):
            raise Refused("Duet has no such op")
        name = target._schema.name.split("::")[-1]
        args, kwargs = self.look_up(node.args), self.look_up(node.kwargs)
        if name in ("sym_size", "_assert_scalar", "sym_constrain_range_for_size") or \
                (name == "add_" and isinstance(args[0], Stored) and
                 args[0].name.endswith("num_batches_tracked")):
            return None  # batch_norm counts by itself
        if not self.depends((args, kwargs))[0]:
            return self.fold(target, args, kwargs)
        inplace = name.endswith("_") and not name.endswith("__")
        name = name.rstrip("_") if inplace else name
        if name in _KEEPS:
            return self.keep(args[0], node)
        run = next((getattr(m, f"op_{name}") for m in _OPS if hasattr(m, f"op_{name}")), None)
        if not run:
            raise Refused("Duet has no such op")
        if name not in AWARE:
            args, kwargs = torch.utils._pytree.tree_map(
                lambda x: self.writer.value(x) if isinstance(x, Turned) else x, (args, kwargs),
                is_leaf=lambda x: isinstance(x, self.kinds))
        bound = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
        bound.update(zip((a.name for a in target._schema.arguments), args))
        bound.update(kwargs)
        val = node.meta["val"]
        many = isinstance(val, (list, tuple))
        shape = [_symbols(torch, v.shape) for v in val] if many else _symbols(torch, val.shape)
        result = run(self.writer, _export_ops.Bound(bound), shape)
        if inplace:
            self.overwrite(node, result)
        return result

    def keep(self, x, node):
        kind = node.meta["val"].dtype if "val" in node.meta and hasattr(
            node.meta["val"], "dtype") else self.torch.float32
        if isinstance(x, Value) and not (kind.is_floating_point or kind == self.torch.int64):
            raise Refused(f"it makes {kind} of a value: Duet computes in float32")
        return x

    def overwrite(self, node, result):
        """What was written in place has the new value from now on. A view of it would too, which
        no line can say."""
        target = node.args[0]
        storage = target.meta["val"].untyped_storage()._cdata
        for other in list(self.env):
            fake = other.meta.get("val")
            if not isinstance(fake, self.torch.Tensor) or \
                    fake.untyped_storage()._cdata != storage:
                continue
            if not isinstance(self.env[other], Value):
                raise Refused("it writes into a tensor that is no value")
            if tuple(map(str, fake.shape)) == tuple(map(str, target.meta["val"].shape)) and \
                    fake.stride() == target.meta["val"].stride():
                self.env[other] = result
            elif any(user not in self.env and user is not node for user in other.users):
                raise Refused("it writes in place into a tensor of which there are views")

    def run(self):
        torch = self.torch
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        result = None
        for node in self.program.graph.nodes:
            self.writer.module = ([path for path, _ in (node.meta.get("nn_module_stack") or
                                                        {}).values()] or [""])[-1]
            if "_empty_nn" in self.writer.module:
                self.writer.module = ""
            if node.op == "placeholder":
                self.placeholder(node, specs[node.name])
            elif node.op == "output":
                result = node.args[0]
            elif any(self.env.get(x, 0) is Refused for x in node.all_input_nodes):
                self.env[node] = Refused  # what it takes has been refused already
            else:
                try:
                    self.env[node] = self.call(node)
                except Refused as why:
                    self.refuse(node, why)
                    self.env[node] = Refused
        return self.result(result)

    def result(self, result):
        outputs = [x for x in self.torch.utils._pytree.tree_leaves(result)
                   if isinstance(x, self.torch.fx.Node)]
        value = self.env[outputs[0]] if len(outputs) == 1 else None
        if value is Refused:
            return None
        if not isinstance(value, Value) or value.lifted or len(value.shape) != 2:
            shape = text_of(value.shape) if isinstance(value, Value) else f"{len(outputs)} tensors"
            self.refusals.append(f"the result is {shape}: Duet's losses take one number for each "
                                 "class, [N, classes]")
            return None
        return value
