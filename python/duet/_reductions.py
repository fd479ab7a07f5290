"""The collectives that compute: all_reduce, reduce, reduce_scatter. Operations that Duet lacks are
composed of those that it has."""

import functools

import torch
import torch.distributed as dist

from . import _library as lib
from ._spans import spanned
from ._tensors import BITS, OPS, TYPES, RedOp, dense, in_a_row, one, reduction
from ._work import Call


# In-place reductions without other steps: the operation, and the element types.
PLAIN = {(op, dtype): how for op, how in OPS.items() for dtype in TYPES
         if op != RedOp.AVG or dtype.is_floating_point}


class Reductions:
    def _prepare(self, tensor, op):
        """Returns the tensor to reduce instead, the operation, and the step after it."""
        dense(tensor)
        if tensor.is_complex():
            if op not in (RedOp.SUM, RedOp.AVG):
                raise ValueError(f"duet: {op} of complex numbers: expected SUM or AVG")
            return torch.view_as_real(tensor), OPS[op], None
        if op not in OPS:
            raise ValueError(f"duet: {op}: expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or "
                             "BXOR")
        if tensor.dtype is torch.bool:
            return (tensor.view(torch.uint8),
                    {lib.SUM: lib.MAX, lib.PRODUCT: lib.MIN}.get(OPS[op], OPS[op]), None)
        if op == RedOp.AVG and not tensor.is_floating_point():
            return tensor, lib.SUM, lambda: tensor.copy_(
                torch.div(tensor, self.the_size, rounding_mode="trunc"))
        if (op, tensor.dtype) in PLAIN:
            return tensor, OPS[op], None
        if tensor.dtype not in (torch.int8, torch.int16, torch.uint16):
            raise RuntimeError(f"duet: {tensor.dtype}: no reduction takes it: convert it first")
        wide = tensor.to(torch.int32)
        return wide, OPS[op], lambda: tensor.copy_(wide)

    def _bitwise(self, tensor, op, opts, want):
        """Gathers the tensors of all ranks and combines them on the ranks that need the result."""
        whole = torch.empty((self.the_size, *tensor.shape), dtype=tensor.dtype)

        def combine():
            if want:
                tensor.copy_(functools.reduce(BITS[op], whole))
        source, target = self._tensor(dense(tensor)), self._tensor(whole)
        return self._run(opts, self.library.duet_all_gather, (target, source, None), [tensor],
                         (whole, tensor), combine)

    @spanned(lambda tensors: "sparse_all_reduce" if tensors[0].is_sparse else "all_reduce")
    def allreduce(self, tensors, opts=RedOp.SUM, timeout=None):
        tensor, op = one(tensors), reduction(opts)
        how = PLAIN.get((op, tensor.dtype))
        if how is not None and not tensor.is_sparse:
            return self._run(opts, self.library.duet_all_reduce,
                             (self._tensor(dense(tensor)), how), [tensor], tensor)
        if tensor.is_sparse:
            return self._sparse(tensor, op, opts)
        if op in BITS:
            return self._bitwise(tensor, op, opts, True)
        reduced, how, behind = self._prepare(tensor, op)
        memory = self._tensor(reduced)
        return self._run(opts, self.library.duet_all_reduce, (memory, how), [tensor],
                         (tensor, reduced), behind)

    def _sparse(self, tensor, op, opts):
        if op != RedOp.SUM:
            raise RuntimeError("duet: sparse tensors can only be summed: give ReduceOp.SUM")
        total = torch.zeros_like(tensor)
        mine = tensor.coalesce()
        sizes = torch.zeros(self.the_size, dtype=torch.int64)
        self.all_gather_single(sizes, torch.tensor([mine._nnz()])).wait()
        indices, values = mine.indices().t().contiguous(), mine.values().contiguous()
        for rank, count in enumerate(sizes.tolist()):
            there = indices.new_empty((count, indices.shape[1]))
            what = values.new_empty((count, *values.shape[1:]))
            if rank == self.the_rank:
                there.copy_(indices), what.copy_(values)
            self.broadcast(there, rank).wait(), self.broadcast(what, rank).wait()
            total = total + torch.sparse_coo_tensor(there.t(), what, tensor.shape)
        tensor.copy_(total)
        return Call.ended([tensor])

    @spanned("reduce")
    def reduce(self, tensors, opts, op=None, timeout=None):
        tensor = one(tensors)
        root = getattr(opts, "rootRank", opts)
        op = reduction(opts if op is None else op)
        if op in BITS:
            return self._bitwise(tensor, op, opts, root == self.the_rank)
        reduced, how, behind = self._prepare(tensor, op)
        memory = self._tensor(reduced)
        return self._run(opts, self.library.duet_reduce, (memory, root, how), [tensor],
                         (tensor, reduced), behind if root == self.the_rank else None)

    @spanned("reduce_scatter", 1)
    def reduce_scatter_single(self, output, whole, opts=RedOp.SUM):
        op = reduction(opts)
        if op in BITS:
            copy = whole.clone()
            self._bitwise(copy, op, None, True).wait()
            output.copy_(copy.view(self.the_size, *output.shape)[self.the_rank])
            return Call.ended([output])
        if output.numel() * self.the_size != whole.numel():
            raise ValueError("input tensor must be the same size as output size times world size")
        if output.dtype != whole.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        how, reduced, part, behind = PLAIN.get((op, whole.dtype)), whole, output, None
        if how is None:
            reduced, how, _ = self._prepare(whole, op)
            part, _, behind = self._prepare(output, op)
        else:
            dense(whole), dense(output)
        target, source = self._tensor(part), self._tensor(reduced)
        return self._run(opts, self.library.duet_reduce_scatter, (target, source, None, how),
                         [output], (part, reduced, whole), behind)

    _reduce_scatter_base = reduce_scatter_single

    @spanned("reduce_scatter", 1)
    def reduce_scatter(self, outputs, inputs, opts=RedOp.SUM, timeout=None):
        output, parts = one(outputs), inputs if isinstance(inputs[0], torch.Tensor) else inputs[0]
        if any(part.numel() != output.numel() for part in parts):
            return self._reduce_uneven(output, parts, opts)
        whole = in_a_row(parts)
        if whole is None:
            whole = torch.cat([part.reshape(-1) for part in parts])
        return self.reduce_scatter_single(output, whole, opts)

    def _reduce_uneven(self, output, parts, opts):
        """Makes one reduction for each part, to the rank that gets it."""
        reduce = dist.ReduceOptions()
        reduce.reduceOp = reduction(opts)
        for rank, part in enumerate(parts):
            reduce.rootRank, copy = rank, part.clone()
            self.reduce(copy, reduce).wait()
            if rank == self.the_rank:
                output.copy_(copy.view_as(output))
        return Call.ended([output])
