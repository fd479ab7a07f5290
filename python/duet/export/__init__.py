"""Writes a PyTorch model as a graph that `duet --model net.duet` trains: docs/models.md.

    duet.export(model, (torch.randn(8, 3, 32, 32),), "net.duet")

Parameters, buffers and constants go into net.safetensors next to the model file. docs/python.md
lists the files of this package."""

import pathlib
import re
import shutil
import sys
import tempfile
import traceback

from .._files import write_tensors
from .._library import DuetError, ExportError, NoTorch, WrongArgument
from ..command import estimate
from ..model import describe, saved_per_sample

_WHY = {  # explains some of PyTorch's messages
    "data-dependent": ": a model must not depend on the numbers in a tensor, as `if x.sum() > 0` "
                      "and F.one_hot without num_classes do",
    "Constraints violated": ": it works for only one number of samples, as len(x) and "
                            "torch.take_along_dim do: use x.shape[0], and gather"}


def _otherwise(model, inputs):
    """How to estimate a model that cannot be exported."""
    from .trace import without_torchs_log
    try:
        with without_torchs_log():
            return f"\nestimate it by its numbers: duet estimate {describe(model, *inputs)}"
    except Exception:
        return ""


def _run_once(torch, model, inputs):
    """If PyTorch itself cannot run the model on these inputs, its error includes their sizes."""
    from .trace import copied, first_line
    try:
        trial = copied(model)
        with torch.no_grad():
            trial(*inputs)
    except ExportError:  # the trace reports that there is no copy
        pass
    except Exception as error:
        names = {id(module): name for name, module in trial.named_modules()}
        within = [names.get(id(frame.f_locals.get("self")))
                  for frame, _ in traceback.walk_tb(error.__traceback__)]
        last = [f", in its module {name}" for name in within if name][-1:]
        raise ExportError(f"duet.export: {type(model).__name__} fails on these inputs in PyTorch, "
                          f"too{''.join(last)}: {first_line(error)}") from error


def _weights_of(path):
    """The path at which the command looks for the weights of an exported model."""
    return path.with_name(path.name.removesuffix(".duet") + ".safetensors")


def _write(path, text, stored, loss, verify):
    """Before the file gets its name, the command runs it, next to the model."""
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
        shutil.move(_weights_of(trial), _weights_of(path))
        path.write_text(text, encoding="utf-8")


def _used(run, result):
    """The lines that the result needs, renumbered, and those of batch norms, which keep statistics;
    all lines if only others use an input. Also the ops of these lines."""
    wanted, kept = {result.name, *(value for _, value in run.updates)}, []
    for line in reversed(run.lines):
        if line.name in wanted or line.begin.endswith("= batch_norm"):
            wanted.update(line.words)
            kept.append(line)
    kept = kept[::-1] if wanted.issuperset(x.name for x, _ in run.inputs) else run.lines
    numbers = {line.name: f"%{i}" for i, line in enumerate(kept, 1)}

    def of(word):
        return numbers.get(word, word)
    return [*(f"{of(name)}: {begin}({', '.join([*map(of, words), *settings])})" +
              (f"  # {module}" if module else "") for name, begin, words, settings, module in kept),
            *(f"update {name} = {of(value)}" for name, value in run.updates),
            f"return {of(result.name)}"], {numbers[line.name]: run.shown[line.name]
                                           for line in kept if line.name in run.shown}


def _text_of(run, result, saved):
    from .text import text_of
    lines, tensors = ["duet 1"], {}

    def declare(what, name, tensor, more=""):
        kind = "f32" if tensor.dtype.is_floating_point else "i64"
        lines.append(f"{what} {name}: {kind}{text_of(list(tensor.shape))}{more}")
        tensors[name] = tensor
    for value, node in run.inputs:
        kind = "f32{}"
        if not value.dtype.is_floating_point:
            least, most = run.below[node]
            kind = f"i64{{}} below {least}" + (f" to {most}" if most > least else "")
        lines.append(f"input {value.name}: {kind.format(text_of(value.shape))}")
    for name, p in run.model.named_parameters():
        declare("parameter", name, p.reshape(tuple(p.shape) or 1),
                "" if p.requires_grad else " frozen")
    for name, buffer in run.model.named_buffers():
        base = name.removesuffix("num_batches_tracked") + "running_mean"
        if name in run.buffers or base in run.buffers:
            declare("buffer", name, buffer.float() if buffer.is_floating_point() else buffer.long())
    body, ops = _used(run, result)
    words = set(re.findall(r"constant\.\d+", "\n".join(body)))
    for name in filter(words.__contains__, run.constants):
        declare("constant", name, run.constants[name])
    lines += [f"saves {saved[0]} {saved[1]}"] if saved else []
    return "\n".join([*lines, *body, ""]), tensors, ops


def _progress(quiet, text):
    """Shows a line on a terminal that the next output overwrites: tracing may take minutes."""
    if not quiet and sys.stderr.isatty():
        print(f"{text:<72}\r", end="", file=sys.stderr, flush=True)


def export(model, example_inputs, path, quiet=False, verify=True):
    """Writes `path`, a model file, and next to it the weights, with .safetensors for .duet.
    A model in eval mode is traced in training mode. In a model in training mode, layers in eval
    mode stay in it: a BatchNorm keeps its statistics. Parameters with requires_grad=False stay
    frozen. example_inputs is a tensor or a tuple of tensors, whose first dimension is the samples.
    ExportError names every op that Duet lacks, with its module and the line of your source. Returns
    `path`. The model does not change. quiet: no line of progress on a terminal. verify: compares
    the file's loss and gradients with the model's."""
    try:
        import torch
    except ImportError:
        raise NoTorch("export") from None
    if not isinstance(model, torch.nn.Module):
        raise WrongArgument(f"duet.export: {getattr(model, '__name__', model)}: not a torch.nn."
                            "Module: give an instance of a class whose forward computes this")
    from .lower import Interpreter
    from .trace import first_line, trace, without_torchs_log
    from .verify import verify as verified
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise WrongArgument(f"duet.export: {path}: there is no folder {path.parent}: make it first")
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor)]
    if not tensors or any(not x.dim() or not x.shape[0] for x in tensors) or \
            len({x.shape[0] for x in tensors}) > 1:
        raise WrongArgument("duet.export: the inputs have no samples: give tensors whose first "
                            "dimension counts them, the same number in each")
    for name, p in model.named_parameters():
        if p.dtype is not torch.float32:
            raise ExportError(f"duet.export: parameter {name} is {p.dtype}: Duet computes in "
                              "float32: model.float() makes it so")
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise ExportError(f"duet.export: {name} has a hook on its backward, so its gradients "
                              "are not those of what forward computes: remove it first")
    _progress(quiet, f"duet.export: tracing {type(model).__name__} ...")
    try:
        traced, program = trace(model, example_inputs)
    except Exception as error:
        _run_once(torch, model, example_inputs)
        told = first_line(error)
        told += "".join(why for words, why in _WHY.items() if words in told)
        if not isinstance(error, ExportError):
            told = f"torch.export cannot trace {type(model).__name__}: {told}"
        raise ExportError(f"duet.export: {told}{_otherwise(model, example_inputs)}") from error
    run = Interpreter(traced, program, tensors)
    result = run.run()
    if run.refusals:
        told = "\n".join(dict.fromkeys(run.refusals))
        raise ExportError(f"duet.export: {told}{_otherwise(model, example_inputs)}")
    with without_torchs_log():
        saved = saved_per_sample(model, example_inputs)
    text, stored, ops = _text_of(run, result, saved)
    stored = {name: tensor.detach().cpu().numpy() for name, tensor in stored.items()}

    def run_beside(trial):
        if verify:
            _progress(quiet, "duet.export: verifying ...")
            verified(model, example_inputs, result.shape, trial, program, ops)
    _write(path, text, stored, "cross-entropy" if len(result.shape) > 1 else "mse", run_beside)
    _progress(quiet, "")
    return path
