"""duet.convert turns a torch.save file into safetensors, the only format that Duet reads.

torch.load reads the file with weights_only=True, so no code in it runs. Names lose the prefixes of
wrappers, "module." and "_orig_mod."; numbers of other types become float32."""

import collections.abc
import pathlib
import re
import sys
import warnings

from ._files import write_tensors
from ._library import DuetError

_WRAPPERS = re.compile(r"^(module\.|_orig_mod\.)+")
_INSIDE = ("state_dict", "model_state_dict", "model")  # where training scripts keep the state_dict


def _load(source):
    import torch
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DuetError(f"convert: {source}: {error.strerror or error}") from None
    except Exception as error:  # for another format torch.load may raise any exception
        what = " ".join(str(error).split())
        why = ("it holds more than tensors: save model.state_dict()"
               if "Unsupported global" in what or "GLOBAL" in what else
               "its pickle protocol cannot be read without running code: save it again in Python"
               if "Unsupported operand" in what else
               f"torch.load: {what[:120]}: give a file of torch.save")
        raise DuetError(f"convert: {source}: {why}") from None


def _find(source, given):
    """The dict of tensors: the whole file, or the dict in it under a usual name."""
    import torch
    if isinstance(given, torch.Tensor) or not isinstance(given, collections.abc.Mapping):
        raise DuetError(f"convert: {source}: a {type(given).__name__}, not a dict of tensors: save "
                        "model.state_dict()")
    for key in _INSIDE:
        if isinstance(given.get(key), collections.abc.Mapping):
            return _find(source, given[key])
    tensors = {str(key): value for key, value in given.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise DuetError(f"convert: {source}: no tensors in it, only "
                        f"{', '.join(map(str, list(given)[:6])) or 'no names'}")
    return tensors, [str(key) for key in given if str(key) not in tensors]


def _named(tensors):
    """Removes the prefixes of wrappers, unless two names would become equal."""
    short = {_WRAPPERS.sub("", name): tensor for name, tensor in tensors.items()}
    return short if len(short) == len(tensors) else tensors


def _array(source, name, tensor):
    import torch
    kinds = {torch.bool: torch.uint8, torch.int8: torch.int32, torch.int16: torch.int32}
    if tensor.is_complex() or tensor.is_quantized:
        raise DuetError(f"convert: {source}: {name}: {tensor.dtype}: give real numbers")
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    kind = torch.float32 if tensor.is_floating_point() else kinds.get(tensor.dtype, tensor.dtype)
    return tensor.detach().to(kind).contiguous().numpy()


def convert(source, target=None):
    """Writes the tensors of SOURCE, a torch.save file, as safetensors, and returns the path.

    SOURCE has a dict of tensors, such as a state_dict or a data set of x and y, or such a dict
    under "state_dict", "model_state_dict" or "model". Default target: SOURCE with .safetensors."""
    source = pathlib.Path(source)
    target = pathlib.Path(target) if target else source.with_suffix(".safetensors")
    if target == source or (target.exists() and target.samefile(source)):
        raise DuetError(f"convert: {target}: is the file being read: give another one")
    tensors, left_out = _find(source, _load(source))
    arrays = {name: _array(source, name, tensor) for name, tensor in _named(tensors).items()}
    if left_out:
        print(f"duet: convert: {source}: no tensors, left out: {', '.join(left_out[:6])}"
              f"{' and more' if len(left_out) > 6 else ''}", file=sys.stderr)
    try:
        write_tensors(target, arrays)
    except OSError as error:
        raise DuetError(f"convert: {target}: {error.strerror or error}") from None
    return target


def main(words):
    """python -m duet convert OLD [NEW]"""
    if not 1 <= len(words) <= 2 or words[0].startswith("-"):
        print("usage: python -m duet convert OLD [NEW.safetensors]\n\n"
              "Writes the tensors of a file of torch.save as safetensors.")
        return 0 if words in (["--help"], ["-h"]) else 2
    try:
        print(f"wrote {convert(*words)}")
    except DuetError as error:
        print(f"duet: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"duet: convert: {error}: pip install torch", file=sys.stderr)
        return 1
    return 0
