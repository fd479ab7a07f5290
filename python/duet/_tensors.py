"""Translates from PyTorch to Duet: operations, element types, and the memory of tensors."""

import torch
import torch.distributed as dist

from . import _library as lib

ANY_SOURCE = -1
STRIDED = torch.strided
RedOp = dist.ReduceOp.RedOpType
OPS = {RedOp.SUM: lib.SUM, RedOp.AVG: lib.MEAN, RedOp.PRODUCT: lib.PRODUCT,
        RedOp.MIN: lib.MIN, RedOp.MAX: lib.MAX}
BITS = {RedOp.BAND: torch.bitwise_and, RedOp.BOR: torch.bitwise_or,
         RedOp.BXOR: torch.bitwise_xor}
TYPES = {torch.float32: lib.F32, torch.float64: lib.F64, torch.float16: lib.F16,
          torch.bfloat16: lib.BF16, torch.int32: lib.I32, torch.int64: lib.I64,
          torch.uint8: lib.U8}
# Elements of types that Duet lacks are moved as integers of the same width.
MOVED = {8: (lib.I64, 1), 4: (lib.I32, 1), 2: (lib.F16, 1), 1: (lib.U8, 1), 16: (lib.I64, 2)}


def one(tensors):
    if isinstance(tensors, list) and len(tensors) == 1:
        return tensors[0]
    if isinstance(tensors, torch.Tensor):
        return tensors
    raise ValueError(f"duet: {len(tensors)} tensors: give one")


def reduction(opts):
    op = getattr(opts, "reduceOp", opts)
    return getattr(op, "op", op)


def dense(tensor):
    if tensor.is_cpu and tensor.layout is STRIDED and tensor.is_contiguous():
        return tensor
    if not tensor.is_cpu:
        raise RuntimeError(f"duet: a tensor on {tensor.device}: the backend moves CPU tensors: use "
                           "tensor.cpu()")
    if tensor.layout is not STRIDED:
        raise RuntimeError(f"duet: a tensor of layout {tensor.layout}: use tensor.to_dense()")
    raise RuntimeError("duet: Tensors must be contiguous: use tensor.contiguous()")


def in_a_row(tensors):
    """The memory of consecutive tensors as one tensor, or None if they are not consecutive."""
    first = tensors[0]
    at = first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != at or not tensor.is_contiguous() or tensor.shape != first.shape:
            return None
        at += tensor.nbytes
    try:
        return first.as_strided((len(tensors) * first.numel(),), (1,))
    except RuntimeError:
        return None


def dealer(whole, tensors):
    """A step, to run after a call, that copies each part of `whole` to a tensor of the list."""
    def deal():
        for tensor, part in zip(tensors, whole.split([t.numel() for t in tensors])):
            tensor.copy_(part.view(tensor.shape))
    return deal


def named(text, tensors):
    """Restores the caller's type in an error, where a type that Duet lacks shows as another one."""
    types = {str(t.dtype)[6:] for t in tensors if t is not None and t.dtype not in TYPES}
    return f"{text} (of {', '.join(types)} here, which travels as that)" if types else text
