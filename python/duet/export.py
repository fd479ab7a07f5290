"""Writes a PyTorch model as a graph that `duet --model net.duet` trains: docs/models.md.

    duet.export(model, (torch.randn(8, 3, 32, 32),), "net.duet")

torch.export traces the model in training mode; each of its ops becomes a line of the text, by the
functions op_NAME (_export_ops.py). What depends on no parameter and no input is computed here and
becomes a constant. Parameters, buffers and constants go into net.safetensors beside the text.
"""

import json
import pathlib
import struct

from ._export_graph import ExportError, text_of
from ._export_walk import Walk
from .model import describe, saved_bytes

_TRACED_WITH = 2  # samples at least: torch.export takes a batch of 1 for a constant


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
            lines.append(f"input {value.name}: f32{text_of(value.shape)}")
        else:
            lines.append(f"input {value.name}: i64{text_of(value.shape)} below "
                         f"{writer.below.get(value.name, 2)}")
    tensors = {}
    for name, parameter in walk.model.named_parameters():
        lines.append(f"parameter {name}: f32{text_of(list(parameter.shape))}")
        tensors[name] = parameter.to(torch.float32)
    for name, buffer in walk.model.named_buffers():
        if name in walk.buffers:
            wide = not buffer.dtype.is_floating_point
            lines.append(f"buffer {name}: {'i64' if wide else 'f32'}{text_of(list(buffer.shape))}")
            tensors[name] = buffer.to(torch.int64 if wide else torch.float32)
    for name, tensor in writer.constants.items():
        lines.append(f"constant {name}: f32{text_of(list(tensor.shape))}")
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
    walk = Walk(torch, model, program)
    result = walk.run()
    if walk.refusals:
        raise ExportError("duet.export: " + "\n".join(dict.fromkeys(walk.refusals)) +
                          _otherwise(model, example_inputs))
    text, stored = _text_of(walk, result, _saves(torch, model, example_inputs))
    _write_tensors(path.with_suffix(".safetensors"), stored)
    path.write_text(text)
    return path
