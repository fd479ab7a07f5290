"""Writes a PyTorch model as a graph that `duet --model net.duet` trains: docs/models.md.

    duet.export(model, (torch.randn(8, 3, 32, 32),), "net.duet")

torch.export traces the model in training mode. _export_walk.py goes through its ops, of which each
becomes a line of the text, by the functions op_NAME (_export_ops.py and the files beside it). What
depends on no parameter and no input is computed here and becomes a constant. Parameters, buffers
and constants go into net.safetensors beside the text.
"""

import contextlib
import io
import logging
import pathlib
import re
import sys
import tempfile
import warnings

from ._export_graph import ExportError, text_of
from ._export_seen import refuse_guards, refuse_hooks, refuse_shared_memory
from ._export_walk import Walk
from ._files import write_tensors
from ._library import DuetError, NoTorch, WrongArgument
from ._verify import copied, verify as verified
from .command import estimate
from .model import describe, saved_bytes

_TRACED_WITH = 2  # samples at least: torch.export takes a batch of 1 for a constant


_WHY = {  # of words of PyTorch's what they mean
    "data-dependent": ": what a model does may not depend on the numbers in a tensor, as the size "
                      "of F.one_hot without num_classes does",
    "Constraints violated": ": it works for one number of samples alone, as len(x) and "
                            "torch.take_along_dim do: take x.shape[0], and gather"}


@contextlib.contextmanager
def _without_torchs_log():
    """What a tracer cannot do is told by its exception, in one line; PyTorch logs its stack, and
    prints what it has traced."""
    logs = [logging.getLogger(f"torch.{name}") for name in
            ("_subclasses.fake_tensor", "fx.experimental.symbolic_shapes")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        for log, level in zip(logs, levels):
            log.setLevel(level)


def _in_float32(torch, model, inputs):
    """Of a model in half precision a copy in float32, which holds each of its numbers."""
    halves = {x.dtype for x in (*model.parameters(), *model.buffers())
              if x.dtype in (torch.float16, torch.bfloat16)}
    if not halves:
        return model, inputs
    warnings.warn(f"duet.export: the model is in {', '.join(sorted(map(str, halves)))}: its "
                  "weights are taken as float32, in which Duet computes", stacklevel=3)
    return copied(torch, model).float(), tuple(
        x.float() if isinstance(x, torch.Tensor) and x.dtype in halves else x for x in inputs)


def _of_three_dimensions(module, given, result):
    """torch.export of PyTorch 2.11 says that the last states of nn.LSTM are (layers, 1, N, width),
    which they are nowhere else (pytorch/pytorch#151200)."""
    y, states = result
    return y, tuple(s.squeeze(1) if s.dim() == 4 else s for s in states)


def _without_unused(torch, program):
    """What _of_three_dimensions has made of states that no one takes goes."""
    for part in program.graph_module.modules():
        for node in reversed(part.graph.nodes if isinstance(part, torch.fx.GraphModule) else []):
            if node.target is torch.ops.aten.squeeze.dim and not node.users:
                part.graph.erase_node(node)
    return program


def _for_a_trace(torch, model):
    """What a trace needs of a copy of the model: training mode; of transformers no cache beside the
    result, and experts as matrices that are looked up, as which they are the same numbers."""
    for config in {id(c): c for m in model.modules() if (c := getattr(m, "config", None))}.values():
        for name, found, wanted in (("use_cache", True, False), (
                "_experts_implementation_internal", "grouped_mm", "batched_mm")):
            if getattr(config, name, None) == found:
                setattr(config, name, wanted)
    for module in model.modules():
        # The mean of all batches needs their number, which a trace has not: Duet's word is -1.
        if getattr(module, "momentum", 0) is None and \
                isinstance(module, torch.nn.modules.batchnorm._NormBase):
            module.momentum = -1.0
        if isinstance(module, torch.nn.LSTM) and type(module).forward is torch.nn.LSTM.forward:
            module.register_forward_hook(_of_three_dimensions, prepend=True)
    if not model.training:  # else its layers stay as they are: what is frozen is seen
        model.train()


@_without_torchs_log()
def _trace(torch, model, inputs):
    """torch.export of a copy of the model, whose first dimensions are the samples."""
    pairs = [torch.cat([x] * _TRACED_WITH) if isinstance(x, torch.Tensor) and x.dim() and
             x.shape[0] < _TRACED_WITH else x for x in inputs]
    pairs = [x.clone() if any(x is other for other in pairs[:i]) and isinstance(x, torch.Tensor)
             else x for i, x in enumerate(pairs)]  # a tensor given twice is two inputs
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} if isinstance(x, torch.Tensor) and x.dim()
                    else None for x in pairs)
    refuse_hooks(model)
    refuse_shared_memory(torch, model)
    traced = copied(torch, model)
    kept = {name: b.clone() for name, b in traced.named_buffers()}
    _for_a_trace(torch, traced)
    program = _without_unused(torch, torch.export.export(
        traced, tuple(pairs), strict=False,
        dynamic_shapes=(dynamic,) if _takes_varargs(model) else dynamic))
    refuse_guards(torch, program)
    for name, b in traced.named_buffers():
        b.data.copy_(kept[name])
    return traced, program


def _takes_varargs(model):
    import inspect
    return any(p.kind is p.VAR_POSITIONAL
               for p in inspect.signature(model.forward).parameters.values())


@_without_torchs_log()
def _otherwise(model, inputs):
    """How to estimate a model that cannot be exported."""
    try:
        return f"\nestimate it by its numbers: duet estimate {describe(model, *inputs)}"
    except Exception:
        return ""


def _saves(torch, model, inputs):
    """The line that says what autograd keeps, in bytes: of each sample, and of all together. None
    where it cannot be told, as of a model that deepcopy does not take."""
    samples = next(x.shape[0] for x in inputs if isinstance(x, torch.Tensor))
    twice = [torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for x in inputs]
    four = [torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for x in twice]
    try:
        two, more = (saved_bytes(model, tuple(x), {})[0] for x in (twice, four))
    except Exception:
        return []
    each = (more - two) // (2 * samples)
    return [f"saves {each} {max(0, two - 2 * samples * each)}"]


def _weights_of(path):
    """Where the command looks for the weights of a text."""
    return path.with_name(path.name.removesuffix(".duet") + ".safetensors")


def _check(path, text, stored, loss, verify):
    """Before anything is written where it was asked for, the command reads the text, and it is run
    beside the model."""
    with tempfile.TemporaryDirectory() as folder:
        trial = pathlib.Path(folder, "net.duet")
        trial.write_text(text, encoding="utf-8")
        write_tensors(_weights_of(trial), stored)
        try:
            estimate(model=trial, devices=1, batch_size=2, loss=loss, find_unused_parameters=True)
        except DuetError as error:
            why = str(error).replace(str(trial), str(path))
            raise ExportError(f"duet.export: {why}") from None
        verify(trial)


_NUMBER = re.compile(r"(?:^|(?<=[ (]))%\d+(?=[,):])")


def _used(lines, result, inputs):
    """The lines that the result is made of, numbered anew, and its name; and those of batch norms,
    which keep statistics. All of them where an input is used by others alone."""
    needed, kept = {result.name}, []
    for line in reversed(lines):
        name, rest = line.split(":", 1)
        if name in needed or "= batch_norm(" in rest:
            needed.update(_NUMBER.findall(rest.split("  # ")[0]))
            kept.append(line)
    if not all(re.search(re.escape(x.name) + r"[,)]", " ".join(kept)) for x in inputs):
        kept = lines[::-1]
    numbers = {line.split(":", 1)[0]: f"%{i}" for i, line in enumerate(reversed(kept), 1)}

    def anew(line):
        text, *comment = line.split("  # ", 1)
        return "  # ".join((_NUMBER.sub(lambda name: numbers[name[0]], text), *comment))
    return [*map(anew, reversed(kept)), f"return {numbers.get(result.name, result.name)}"]


def _bounds(writer, name, x):
    """Below what the whole numbers of an input are drawn, and below what those of data may be.
    Where tables look up columns of it, these are the smallest table and the largest."""
    most = writer.below.get(name, writer.columns.get(name, int(x.max()) + 1))
    return min(most, writer.drawn.get(name, most)), most


def _text_of(walk, result, examples, saves):
    torch, writer = walk.torch, walk.writer
    lines = ["duet 1"]
    for value, x in zip(walk.inputs, examples):
        if x.is_floating_point():
            lines.append(f"input {value.name}: f32{text_of(value.shape)}")
        else:  # what no embedding looks up is as large as in the example
            below, most = _bounds(writer, value.name, x)
            lines.append(f"input {value.name}: i64{text_of(value.shape)} below {below}" +
                         (f" to {most}" if most > below else ""))
    tensors = {}
    for name, parameter in walk.model.named_parameters():  # a number is a list of one here
        tensors[name] = parameter.reshape(tuple(parameter.shape) or 1)
        frozen = "" if parameter.requires_grad else " frozen"
        lines.append(f"parameter {name}: f32{text_of(list(tensors[name].shape))}{frozen}")
    for name, tensor in writer.frozen_ones.items():
        tensors[name] = tensor
        lines.append(f"parameter {name}: f32{text_of(list(tensor.shape))} frozen")
    for name, buffer in walk.model.named_buffers():
        if name in walk.buffers:
            wide = not buffer.dtype.is_floating_point
            lines.append(f"buffer {name}: {'i64' if wide else 'f32'}{text_of(list(buffer.shape))}")
            tensors[name] = buffer.to(torch.int64 if wide else torch.float32)
    for name, tensor in writer.constants.items():
        lines.append(f"constant {name}: f32{text_of(list(tensor.shape))}")
        tensors[name] = tensor
    return "\n".join([*lines, *saves, *_used(writer.lines, result, walk.inputs), ""]), tensors


def _result_of(output):
    from torch.utils import _pytree
    return next(x for x in _pytree.tree_leaves(output) if hasattr(x, "dim"))


def _progress(quiet, text):
    """A line on a terminal that whatever comes next overwrites: tracing takes up to minutes."""
    if not quiet and sys.stderr.isatty():
        print(f"{text:<72}\r", end="", file=sys.stderr, flush=True)


def export(model, example_inputs, path, quiet=False, verify=True):
    """Writes `path`, a text, and beside it the weights, path with .safetensors in place of .duet.
    A model in eval mode is traced in training mode; of one in training mode the layers in eval
    mode stay so: a BatchNorm keeps its statistics. A model in half precision becomes float32, with
    a warning. What has requires_grad=False stays frozen.
    example_inputs: a tensor or a tuple of them, whose first dimension is the samples. ExportError
    names every op that Duet has not, with its module and the line of your source. Returns `path`.
    Nothing of the model changes. quiet: no line of progress on a terminal. verify: runs the text
    beside the model, whose loss and gradients it must have."""
    try:
        import torch
    except ImportError:
        raise NoTorch("export") from None
    if isinstance(example_inputs, torch.Tensor):
        example_inputs = (example_inputs,)
    if not isinstance(model, torch.nn.Module):
        raise WrongArgument(f"duet.export: {model!r} is no model: give a torch.nn.Module")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        model = model.module
    model, example_inputs = _in_float32(torch, model, example_inputs)
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    if not tensors or any(not x.dim() or not x.shape[0] for x in tensors) or \
            len({x.shape[0] for x in tensors}) > 1:
        raise WrongArgument("duet.export: the inputs have no samples: give tensors whose first "
                            "dimension counts them, the same number in each")
    path = pathlib.Path(path)
    _progress(quiet, f"duet.export: tracing {type(model).__name__} ...")
    try:
        traced, program = _trace(torch, model, example_inputs)
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        why = next((why for words, why in _WHY.items() if words in first[0]), "")
        raise ExportError(f"duet.export: torch.export cannot trace {type(model).__name__}: "
                          f"{first[0]}{why}{_otherwise(model, example_inputs)}") from error
    _progress(quiet, "duet.export: writing its ops ...")
    walk = Walk(torch, traced, program)
    tokens = [x for x in tensors if not x.is_floating_point()]
    walk.writer.guesses = bool(tokens)
    result = walk.run()
    if tokens and not walk.refusals:  # now it is known how large those of the inputs may be
        known = {value.name: _bounds(walk.writer, value.name, x)[1]
                 for value, x in zip(walk.inputs, tensors) if not x.is_floating_point()}
        walk = Walk(torch, traced, program)
        walk.writer.known = known
        result = walk.run()
    if walk.refusals:
        raise ExportError("duet.export: " + "\n".join(dict.fromkeys(walk.refusals)) +
                          _otherwise(model, example_inputs))
    _progress(quiet, "duet.export: computing it once, for what PyTorch saves ...")
    text, stored = _text_of(walk, result, tensors, _saves(torch, model, example_inputs))
    stored = {name: tensor.detach().cpu().numpy() for name, tensor in stored.items()}

    def run_beside(trial):
        if verify:
            _progress(quiet, "duet.export: verifying ...")
            verified(torch, model, _result_of, example_inputs, trial)
    _check(path, text, stored, "cross-entropy" if len(result.shape) > 1 else "mse", run_beside)
    write_tensors(_weights_of(path), stored)
    path.write_text(text, encoding="utf-8")
    _progress(quiet, "")
    return path
