"""Writes a PyTorch model as a graph that `duet --model net.duet` trains: docs/models.md.

    duet.export(model, (torch.randn(8, 3, 32, 32),), "net.duet")

torch.export traces the model in training mode; each of its ops becomes a line of the text, by the
functions of _export_ops.py. What depends on no parameter and no input is computed here and becomes
a constant. Parameters, buffers and constants go into net.safetensors beside the text.
"""

import json
import pathlib
import re
import struct

from .model import describe, saved_bytes

_KEEPS = {  # ops that change no value
    "alias", "clone", "contiguous", "lift_fresh_copy", "_assert_tensor_metadata", "to",
    "_to_copy", "type_as"}
_TRACED_WITH = 2  # samples at least: torch.export takes a batch of 1 for a constant


class ExportError(ValueError):
    """What of a model cannot be exported: a line for each op, and how to estimate it anyway."""


class Refused(Exception):
    """One op cannot be written; the text says why."""


class N(int):
    """A dimension that grows with the samples: N(8) is 8N."""

    def __str__(self):
        return "N" if int(self) == 1 else f"{int(self)}N"


class Value:
    """What a line makes. Of a `lifted` one each sample has the whole tensor that PyTorch has, so
    its shape here is [N, *shape]."""

    def __init__(self, name, shape, lifted=False):
        self.name, self.shape, self.lifted = name, shape, lifted


class Stored:
    """A tensor of the file of weights, which no line has used as a value yet. Its shape may have
    been changed by a view; `transposed`: it stands for its transpose."""

    def __init__(self, name, shape, of, transposed=False):
        self.name, self.shape, self.of, self.transposed = name, list(shape), of, transposed

    @property
    def whole(self):
        return self.shape == list(self.of.shape) and not self.transposed


class Filled:
    """A tensor with one number everywhere and the samples somewhere among its dimensions."""

    def __init__(self, number, shape):
        self.number, self.shape = number, shape


class Stacked(list):
    """Values of which PyTorch has one tensor, with a dimension in front that counts them."""


def _text(value):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(int(value)) if isinstance(value, bool) else str(value)


class Writer:
    """The text under way, and what the functions of _export_ops.py write it with."""

    def __init__(self, torch):
        self.torch = torch
        self.lines, self.stored, self.constants = [], {}, {}
        self.expanded = {}
        self.below = {}  # of inputs of whole numbers, by name
        self.module = ""

    def emit(self, op, operands, shape, lifted=False, /, **settings):
        words = ["none" if x is None else x if isinstance(x, str) else x.name for x in operands]
        words += [f"{key}={_text(value)}" for key, value in settings.items()]
        dims = [N(1), *shape] if lifted else list(shape)
        if not dims or not isinstance(dims[0], N):
            raise Refused("its result has no dimension of samples in front")
        if any(isinstance(d, N) for d in dims[1:]) or dims[0] != 1:
            raise Refused("its result mixes samples: the first dimension alone may be that of the "
                          "samples")
        name = f"%{len(self.lines) + 1}"
        comment = f"  # {self.module}" if self.module else ""
        self.lines.append(f"{name}: f32{_text(dims)} = {op}({', '.join(words)}){comment}")
        return Value(name, list(shape), lifted)

    def constant(self, tensor):
        """A tensor of this run as one of the file."""
        tensor = tensor.detach().to(self.torch.float32).contiguous()
        if self.torch.isnan(tensor).any():
            raise Refused("a constant of the model has NaN")
        for name, other in self.constants.items():
            if other.shape == tensor.shape and self.torch.equal(other, tensor):
                return Stored(name, tensor.shape, other)
        name = f"constant.{len(self.constants)}"
        self.constants[name] = tensor
        return Stored(name, tensor.shape, tensor)

    def expand(self, stored, shape, lifted):
        """A stored tensor as a value, with this shape as PyTorch sees it."""
        if stored.transposed:
            shape, original = list(stored.of.shape), stored
            value = self.expand(Stored(stored.name, shape, stored.of), shape, True)
            return self.emit("transpose", [value], original.shape, True, dim0=1, dim1=2)
        key = stored.name, tuple(map(str, shape)), lifted
        if key not in self.expanded:
            self.expanded[key] = self.emit("expand", [stored.name], shape, lifted)
        return self.expanded[key]

    def value(self, x):
        """An operand that must be a value: a stored tensor and a constant are lifted."""
        if isinstance(x, self.torch.Tensor):
            if x.dim() == 0:
                x = x.reshape(1)
            x = self.constant(x)
        if isinstance(x, Stored):
            return self.expand(x, x.shape, True)
        if not isinstance(x, Value):
            raise Refused("it takes a tensor in which the samples are not in front"
                          if hasattr(x, "dims") else "it takes what is no tensor of the samples")
        return x

    def aligned(self, x, rank):
        """The same beside a value of the samples with `rank` dimensions."""
        if isinstance(x, Value) and not x.lifted:
            if len(x.shape) == rank:
                return x
            raise Refused("two values of the samples have different numbers of dimensions")
        if isinstance(x, self.torch.Tensor):
            x = self.constant(x if x.dim() else x.reshape(1))
        shape = [1] * (rank - len(x.shape)) + list(x.shape)
        if len(shape) > rank or shape[0] != 1:
            raise Refused("a tensor without samples is broadcast against the samples' dimension")
        if isinstance(x, Stored) and not x.transposed:
            return self.expand(x, [N(1), *shape[1:]], False)
        return self.emit("reshape", [self.value(x)], [N(1), *shape[1:]])

    def parameter(self, x, what):
        """An operand that must be a parameter as it is; None stays None."""
        if x is None:
            return None
        if isinstance(x, Stored) and x.whole and x.name in self.stored:
            return x.name
        raise Refused(f"its {what} is computed, not a parameter as it is")


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


class _Walk:
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
        from . import _export_ops
        from ._export_turned import AWARE, Turned
        torch, target = self.torch, node.target
        self.kinds = Value, Stored, Filled, Stacked, Turned
        if target is _export_ops.getitem:
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
        run = getattr(_export_ops, f"op_{name}", None)
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
            shape = _text(value.shape) if isinstance(value, Value) else f"{len(outputs)} tensors"
            self.refusals.append(f"the result is {shape}: Duet's losses take one number for each "
                                 "class, [N, classes]")
            return None
        return value


def _write_tensors(path, tensors):
    """safetensors: the length of the header, the header, the numbers."""
    header, blobs, at = {}, [], 0
    wide = sorted(tensors.items(), key=lambda item: item[1].dtype.itemsize != 8)
    for name, tensor in wide:
        blob = tensor.detach().cpu().contiguous().numpy().tobytes()
        header[name] = {"dtype": "I64" if tensor.dtype.itemsize == 8 else "F32",
                        "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            file.write(blob)


def _trace(torch, model, inputs):
    """torch.export of the model in training mode, whose first dimensions are the samples."""
    pairs = [torch.cat([x] * _TRACED_WITH) if isinstance(x, torch.Tensor) and x.dim() and
             x.shape[0] < _TRACED_WITH else x for x in inputs]
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} if isinstance(x, torch.Tensor) and x.dim()
                    else None for x in pairs)
    modes = {module: module.training for module in model.modules()}
    kept = {name: b.clone() for name, b in model.named_buffers()}
    model.train()
    try:
        return torch.export.export(model, tuple(pairs), dynamic_shapes=(dynamic,) if
                                   _takes_varargs(model) else dynamic, strict=False)
    finally:
        for module, mode in modes.items():
            module.training = mode
        for name, b in model.named_buffers():
            b.data.copy_(kept[name])


def _takes_varargs(model):
    import inspect
    return any(p.kind is p.VAR_POSITIONAL
               for p in inspect.signature(model.forward).parameters.values())


def _otherwise(model, inputs):
    """How to estimate a model that cannot be exported."""
    try:
        return f"\nestimate it by its numbers: duet estimate {describe(model, *inputs)}"
    except Exception:
        return ""


def _saves(torch, model, inputs):
    """What autograd keeps, in bytes: of each sample, and of all together."""
    samples = next(x.shape[0] for x in inputs if isinstance(x, torch.Tensor))
    twice = [torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for x in inputs]
    four = [torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for x in twice]
    two, more = (saved_bytes(model, tuple(x), {})[0] for x in (twice, four))
    each = (more - two) // (2 * samples)
    return each, max(0, two - 2 * samples * each)


def _text_of(walk, result, saves):
    torch, writer = walk.torch, walk.writer
    lines = ["duet 1"]
    for value, dtype in walk.inputs:
        if dtype.is_floating_point:
            lines.append(f"input {value.name}: f32{_text(value.shape)}")
        else:
            lines.append(f"input {value.name}: i64{_text(value.shape)} below "
                         f"{writer.below.get(value.name, 2)}")
    tensors = {}
    for name, parameter in walk.model.named_parameters():
        lines.append(f"parameter {name}: f32{_text(list(parameter.shape))}")
        tensors[name] = parameter.to(torch.float32)
    for name, buffer in walk.model.named_buffers():
        if name in walk.buffers:
            wide = not buffer.dtype.is_floating_point
            lines.append(f"buffer {name}: {'i64' if wide else 'f32'}{_text(list(buffer.shape))}")
            tensors[name] = buffer.to(torch.int64 if wide else torch.float32)
    for name, tensor in writer.constants.items():
        lines.append(f"constant {name}: f32{_text(list(tensor.shape))}")
        tensors[name] = tensor
    lines.append(f"saves {saves[0]} {saves[1]}")
    return "\n".join([*lines, *writer.lines, f"return {result.name}", ""]), tensors


def export(model, example_inputs, path):
    """Writes `path`, a text, and beside it the weights, path with .safetensors in place of .duet.
    example_inputs: a tensor or a tuple of them, whose first dimension is the samples. ExportError
    names every op that Duet has not, with its module and the line of your source. Returns `path`.
    Nothing of the model changes."""
    try:
        import torch
    except ImportError:
        raise ImportError("duet.export: there is no torch: pip install torch") from None
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    if not tensors or any(not x.dim() or not x.shape[0] for x in tensors):
        raise ValueError("duet.export: the inputs have no samples: give tensors whose first "
                         "dimension counts them")
    path = pathlib.Path(path)
    try:
        program = _trace(torch, model, example_inputs)
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"duet.export: torch.export cannot trace {type(model).__name__}: "
                          f"{first[0]}{_otherwise(model, example_inputs)}") from error
    walk = _Walk(torch, model, program)
    result = walk.run()
    if walk.refusals:
        raise ExportError("duet.export: " + "\n".join(dict.fromkeys(walk.refusals)) +
                          _otherwise(model, example_inputs))
    text, stored = _text_of(walk, result, _saves(torch, model, example_inputs))
    _write_tensors(path.with_suffix(".safetensors"), stored)
    path.write_text(text)
    return path
