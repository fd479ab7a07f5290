"""Goes through the nodes of an exported program, and writes the lines of each: see export.py."""

import re
from operator import getitem

from . import _export_folded, _export_ops, _export_wholes
from ._export_graph import (COUNTS, MOST, Counted, Filled, N, Refused, Stacked, Stored,
                            Uniform, Value, Writer, text_of)
from ._export_in_place import InPlace
from ._export_inner import Inner
from ._export_offsets import MAKE_OFFSETS, Offset, with_offsets
from ._export_table import KEEPS, writer_of, written_by
from ._export_turned import AWARE, INSIDE, Turned, inside

_TAKE_COUNTED = "embedding_bag", "index"  # what depends on the number of samples
_TAKE_CONSTANTS = "scaled_dot_product_attention", "gather"  # alike for all samples, as they are

KNOW_LAYERS = {"lstm", "gru", "rnn_tanh", "rnn_relu", "select", "view", "reshape", "_unsafe_view",
               "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "detach"}

_OF_NORM = re.compile(r"(^|\.)(running_mean|running_var|num_batches_tracked)$")
_NAME = re.compile(r"[^\s,:=()\[\]#%][^\s,:=()\[\]#]*")


class Walk(InPlace, Inner):
    """Goes through the nodes of an exported program."""

    def __init__(self, torch, model, program):
        self.torch, self.model, self.program = torch, model, program
        # What is tied has one name, which named_parameters and named_buffers give it.
        self.names = {id(x): name for name, x in (*model.named_parameters(),
                                                  *model.named_buffers())}
        self.writer, self.env, self.refusals = Writer(torch, self.names.values()), {}, []
        self.inputs, self.buffers, self.samples = [], set(), None
        self.first, self.same = None, {}  # the number of samples; others that are the same
        self.owned = set()  # where the model's own tensors lie that are constants here

    # -- tensors that are there from the start

    def placeholder(self, node, spec):
        kind = spec.kind.name
        if kind == "USER_INPUT":
            return self.input(node)
        if kind == "PARAMETER":
            return self.parameter(self.model.get_parameter(spec.target))
        if kind == "BUFFER" and _OF_NORM.search(spec.target):
            tensor = self.model.get_buffer(spec.target)
            name = self.name_of(tensor)
            self.buffers.add(name)
            return Stored(name, tensor.shape, tensor)
        tables = self.program.state_dict, self.program.constants
        tensor = next(table[spec.target] for table in tables if spec.target in table)
        if isinstance(tensor, self.torch.Tensor):
            tensor = tensor.detach().clone()  # nothing of the model changes
            self.owned.add(tensor.untyped_storage().data_ptr())
        return tensor

    def name_of(self, tensor):
        name = self.names[id(tensor)]
        if not _NAME.fullmatch(name) or name == "none":
            raise Refused(f"'{name}' is no name in the text: rename what it is of")
        return name

    def parameter(self, parameter):
        name = self.name_of(parameter)
        if parameter.dtype != self.torch.float32:
            raise Refused(f"parameter {name} is {parameter.dtype}: Duet computes in float32: "
                          "model.float() makes it so")
        self.writer.stored[name] = parameter
        return Stored(name, parameter.shape, parameter)

    def input(self, node):
        torch, fake = self.torch, node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return fake
        if fake.dtype not in (torch.float32, torch.int32, torch.int64):
            raise Refused(f"an input of {fake.dtype}: Duet takes float32 and whole numbers")
        self.as_the_first(fake)
        value = Value(f"%{node.name}", self.sizes(fake.shape))
        self.inputs.append(value)
        if not fake.dtype.is_floating_point:
            self.writer.tokens[value.name] = {value.name}
        return value

    def as_the_first(self, fake):
        """Where no op says that two inputs have as many samples, the examples do."""
        count = fake.shape[0] if fake.dim() else None
        if isinstance(count, self.torch.SymInt) and count.node.expr.is_Symbol:
            self.first = self.first or count.node
            if count.node.hint == self.first.hint:
                self.same[count.node.expr] = self.first.expr

    def sizes(self, dims):
        """Sizes of torch.export: whole numbers, and multiples of the number of samples."""
        out = []
        for d in dims:
            if not isinstance(d, self.torch.SymInt):
                out.append(int(d))
                continue
            expression = d.node.expr.xreplace(self.same)
            self.samples = self.samples or list(expression.free_symbols)[0]
            factor = expression / self.samples
            if not factor.is_Integer:
                raise Refused(f"its shape has {expression}, no multiple of the samples of the "
                              "first input")
            out.append(N(int(factor)))
        return out

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
            args, is_leaf=lambda x: isinstance(x, (*self.kinds, Counted)))
        return (any(isinstance(x, self.kinds) for x in flat),
                any(isinstance(x, (self.torch.SymInt, N, Counted)) for x in flat))

    def fold(self, target, args, kwargs):
        """What depends on no value: a tensor, or one for each number of samples."""
        torch, tree_map = self.torch, self.torch.utils._pytree.tree_map
        if target._schema.name == "aten::rand":
            return Uniform(list(args[0]))
        if target._schema.name == "aten::randn":
            return self.writer.random("randn", list(args[0]))
        if target._schema.name == "aten::dropout" and not (args[1] and args[2]):
            return args[0]
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise Refused("it draws numbers in a way that Duet has not")
        counts = self.depends((args, kwargs))[1]
        changes = written_by(target) and target._schema.name != "aten::detach_"
        if changes and not isinstance(args[0], Counted) and (
                counts or args[0].untyped_storage().data_ptr() in self.owned):
            raise Refused("it writes into a tensor of the model, which would change in each step")
        if not counts:
            return target(*args, **kwargs)
        if target._schema.name == "aten::empty":
            return Filled(0.0, list(args[0]))

        def of(samples):
            def number(x):
                if isinstance(x, Counted):
                    return x.of[samples]
                return int(x) * samples if isinstance(x, N) else x
            return target(*tree_map(number, args), **tree_map(number, kwargs))
        made, given = {}, [x for x in torch.utils._pytree.tree_leaves((args, kwargs))
                           if isinstance(x, Counted)]
        for samples in COUNTS:
            if samples > 7 and (any(samples not in x.of for x in given) or sum(
                    x.numel() for x in torch.utils._pytree.tree_leaves(made[7])
                    if isinstance(x, torch.Tensor)) * samples > 7 * MOST):
                break
            made[samples] = of(samples)
        if isinstance(made[1], (list, tuple)):
            return [Counted(dict(zip(made, row))) for row in zip(*made.values())]
        if not isinstance(made[1], torch.Tensor):
            raise Refused("it computes with the number of samples")
        return Counted(made)

    def settled(self, x, as_it_is):
        """Of what depends on the number of samples a value, which must be alike for each of them.
        as_it_is: a tensor, where one of size 1 in front does."""
        if not isinstance(x, Counted):
            return x
        if x.alike and as_it_is:
            return x.one
        one, writer = x.one, self.writer
        if x.of_rows and not x.alike:
            rows = writer.expand(writer.constant(one), [N(1), *one.shape], False)
            return Turned(rows, [[0, 1], *([d + 1] for d in range(1, one.dim()))])
        if x.alike:
            value = writer.expand(writer.constant(one), [N(1), *one.shape[1:]], False)
            writer.tokens[value.name] = set()  # what an embedding may look up, of no input
            if one.dtype is self.torch.bool:
                writer.truths.add(value.name)
            return value
        if one.numel() and all(y.eq(one.flatten()[0]).all() for y in x.of.values()):
            return Filled(one.flatten()[0].item(), [a if a == b else N(a) for a, b in zip(
                one.shape, x.two.shape)])
        raise Refused("its values depend on the number of samples")

    def call(self, node):
        torch, target = self.torch, node.target
        self.kinds = Value, Stored, Filled, Stacked, Turned, Uniform, Offset
        if target is getitem:
            return self.look_up(node.args[0])[node.args[1]]
        if isinstance(node.meta.get("val"), (torch.SymInt, int, bool, float)) and \
                not isinstance(node.meta.get("val"), torch.Tensor):
            value = node.meta["val"]
            return self.sizes([value])[0] if isinstance(value, torch.SymInt) else value
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self.block(target, *self.look_up(node.args))
        if not isinstance(target, torch._ops.OpOverload):
            raise Refused("Duet has no such op")
        name = target._schema.name.split("::")[-1]
        args, kwargs = self.look_up(node.args), self.look_up(node.kwargs)
        if name in ("sym_size", "_assert_scalar", "_assert_tensor_metadata",
                    "sym_constrain_range_for_size"):
            return None
        if name == "add_" and isinstance(args[0], Stored) and \
                args[0].name.endswith("num_batches_tracked"):
            return args[0]  # batch_norm counts by itself
        written = written_by(target)
        if written not in ([], [target._schema.arguments[0].name]):
            raise Refused(f"it writes into {', '.join(written)}")
        if not self.depends((args, kwargs))[0]:
            return self.fold(target, args, kwargs)
        name = name.rstrip("_") if written else name
        if name == "zero":
            return self.zero(node)
        if name in KEEPS:
            return self.kept(node, args[0])
        if name in MAKE_OFFSETS and (name == "index" or self.is_whole(node.meta["val"])):
            result = with_offsets(self.writer, name, args, kwargs,
                                  self.sizes(node.meta["val"].shape))
            if result:
                return result
        run = writer_of(name)
        if not run:
            result = self.walk_into(node, self.of_new(target) if written else target)
            if written:
                self.overwrite(node, result)
            return result
        args, kwargs = torch.utils._pytree.tree_map(
            lambda x: x if name in _TAKE_COUNTED else self.settled(x, name in _TAKE_CONSTANTS),
            (args, kwargs),
            is_leaf=lambda x: isinstance(x, (*self.kinds, Counted)))
        val = node.meta["val"]
        many = isinstance(val, (list, tuple))
        if name not in KNOW_LAYERS:
            args, kwargs = torch.utils._pytree.tree_map(
                lambda x: _export_folded.stacked(self.writer, x) if isinstance(x, Stacked) else x,
                (args, kwargs), is_leaf=lambda x: isinstance(x, self.kinds))
        if name == "index" and isinstance(args[1][0], Counted):  # that may number the samples
            args = args[0], [args[1][0], *(self.settled(x, False) for x in args[1][1:])]
        shape = [self.sizes(v.shape) for v in val] if many else self.sizes(val.shape)
        like = self.like(name, (args, kwargs), shape)
        try:
            return self.write(node, name, run, args, kwargs, shape, like)
        finally:
            self.writer.rows = 1

    def like(self, name, given, shape):
        """What has several rows of each sample that the op is written with; None: it takes samples.
        """
        flat = self.torch.utils._pytree.tree_leaves(
            given, is_leaf=lambda x: isinstance(x, self.kinds))
        if _export_folded.rows_of(name, flat, shape) == 1:
            return None
        like = min((x for x in flat if isinstance(x, Turned)), key=lambda x: x.alike)
        self.writer.rows = int(like.shape[0])
        return _export_folded.folded(self.writer, like)

    def write(self, node, name, run, args, kwargs, shape, like):
        torch, target, val = self.torch, node.target, node.meta["val"]
        many, written = isinstance(val, (list, tuple)), written_by(target)
        plain = (*([] if name in AWARE else [Turned]), *([] if name in ("add", "sub", "floor") else
                                                         [Uniform]))

        def operand(x):
            if like and isinstance(x, Turned):
                return _export_folded.folded(self.writer, x).value
            return self.writer.value(x) if isinstance(x, plain) else x
        args, kwargs = torch.utils._pytree.tree_map(
            operand, (args, kwargs), is_leaf=lambda x: isinstance(x, self.kinds))
        bound = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
        bound.update(zip((a.name for a in target._schema.arguments), args))
        bound.update(kwargs)
        given = dict(zip((a.name for a in target._schema.arguments), node.args)) | node.kwargs
        self.writer.bools = {key for key, x in given.items() if isinstance(x, torch.fx.Node) and
                             getattr(x.meta.get("val"), "dtype", None) is torch.bool}
        self.writer.asked = {user.args[1] for user in node.users
                             if user.target is getitem and user.users}
        self.writer.makes_whole = not many and self.is_whole(val)
        x = bound.get("self")
        if name in INSIDE and isinstance(x, Turned):
            other = bound.get("other")
            if other is not None and _export_ops.number_of(self.writer, other) is None:
                raise Refused("it takes a tensor in which the samples are not in front")
            result = inside(lambda x: run(self.writer, _export_ops.Bound(bound | {"self": x}),
                                          x.shape), x)
        else:
            result = run(self.writer, _export_ops.Bound(bound), shape)
        for made, fake in zip(result, val) if many else [(result, val)]:
            if self.is_whole(fake):
                _export_wholes.note_range(self.writer, name, _export_ops.Bound(bound), made)
        self.check_types(node, result)
        if like:
            result = _export_folded.as_rows(self.writer, result, like)
        if written:
            self.overwrite(node, result)
        return result

    def is_whole(self, fake):
        return fake.dtype in (self.torch.int32, self.torch.int64)

    def kept(self, node, x):
        """What changes no value, unless it makes whole numbers of others, or a bool."""
        before = node.args[0].meta["val"]
        if isinstance(x, (Value, Turned)) and node.meta["val"].dtype is self.torch.bool and \
                before.dtype is not self.torch.bool:
            return inside(lambda x: writer_of("ne")(
                self.writer, _export_ops.Bound(self=x, other=0), x.shape), x)
        if isinstance(x, Value) and self.is_whole(node.meta["val"]) and \
                before.dtype.is_floating_point:
            return _export_wholes.as_whole(self.writer, x)
        self.check_types(node, x)
        return x

    def check_types(self, node, result):
        """Values are float32, whole numbers too; what other types would round is refused."""
        torch, val = self.torch, node.meta["val"]
        many = isinstance(val, (list, tuple))
        shape_of = node.args[1:] if str(node.target).split(".")[1].endswith("_as") else ()
        given = [x.meta["val"].dtype for x in node.all_input_nodes
                 if x not in shape_of and isinstance(self.env[x], self.kinds) and
                 isinstance(x.meta.get("val"), torch.Tensor)]
        allowed = [torch.float32]
        if not any(kind.is_floating_point for kind in given):
            allowed += [torch.int32, torch.int64]
        for made, fake in zip(result, val) if many else [(result, val)]:
            line = getattr(made, "value", None) or getattr(made, "base", made)
            name = line.name if isinstance(line, Value) else None
            exact = torch.bool if name in self.writer.truths else \
                torch.int64 if name in self.writer.wholes else torch.float32
            if made is None:
                continue
            if fake.dtype not in (*allowed, exact):
                raise Refused(f"it makes {fake.dtype}: Duet computes in float32")

    def needed(self):
        """What the result is made of, and all that is written; not what is only asserted."""
        out = set()
        for node in reversed(self.program.graph.nodes):
            writes = isinstance(node.target, self.torch._ops.OpOverload) and written_by(node.target)
            block = isinstance(node.target, self.torch._ops.HigherOrderOperator)  # may write too
            if node.op == "output" or node in out or writes or block:
                out |= {node, *node.all_input_nodes}
        return out

    def run(self):
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs}
        result, needed = None, self.needed()
        for node in self.program.graph.nodes:
            self.writer.module = ([path for path, _ in (node.meta.get("nn_module_stack") or
                                                        {}).values()] or [""])[-1]
            if "_empty_nn" in self.writer.module:
                self.writer.module = ""
            if node.op == "output":
                result = node.args[0]
                continue
            made = Refused  # as is what takes something that has been refused
            try:
                if node.op == "placeholder":
                    made = self.placeholder(node, specs[node.name])
                elif node.op == "get_attr":
                    made = getattr(self.program.graph_module, node.target)
                elif not any(self.env[x] is Refused for x in node.all_input_nodes):
                    made = self.call(node)
                elif self.is_unknown(node.target):
                    self.refuse(node, "Duet has no such op")
            except Refused as why:
                if node in needed:
                    self.refuse(node, why)
            except Exception as error:  # of an op given what its function does not expect
                self.refuse(node, f"it cannot be written: {type(error).__name__}: {error}")
            self.env[node] = made
        return self.result(result)

    def result(self, result):
        outputs = [x for x in self.torch.utils._pytree.tree_leaves(result)
                   if isinstance(x, self.torch.fx.Node)]
        value = self.env[outputs[0]] if len(outputs) == 1 else None
        if value is Refused:
            return None
        if not isinstance(value, Value) or value.lifted:
            shape = text_of(value.shape) if isinstance(value, Value) else f"{len(outputs)} tensors"
            self.refusals.append(f"the result is {shape}: Duet's losses take one tensor, "
                                 "[N, classes], [N, classes, places] or, with targets, any of N")
            return None
        return value
