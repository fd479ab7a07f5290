"""The calls that move elements of any type without changing them: broadcast, gathers, scatter,
all_to_all, and messages from rank to rank. Also barriers, and several calls as one."""

from ctypes import c_int

import torch

from . import _library as lib
from ._spans import spanned
from ._tensors import ANY_SOURCE, MOVED, RedOp, dealer, dense, in_a_row, one
from ._work import ANYBODY, DuetBackendError


class Moves:
    @spanned("broadcast")
    def broadcast(self, tensors, opts, timeout=None):
        tensor = dense(one(tensors))
        root, memory = getattr(opts, "rootRank", opts), self._tensor(tensor)
        return self._run(opts, self.library.duet_broadcast, (memory, root), [tensor], (tensor,))

    @spanned("all_gather", 1)
    def all_gather_single(self, output, part, opts=None):
        dense(output), dense(part)
        if output.dtype != part.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if output.numel() != part.numel() * self.the_size:
            raise ValueError("output tensor size must be equal to world_size times input tensor "
                             "size")
        target, source = self._tensor(output), self._tensor(part)
        return self._run(opts, self.library.duet_all_gather, (target, source, None), [output],
                         (output, part))

    _allgather_base = all_gather_single

    @spanned("all_gather", 1)
    def allgather(self, outputs, inputs, opts=None, timeout=None):
        part = one(inputs).contiguous()
        parts = outputs if isinstance(outputs[0], torch.Tensor) else outputs[0]
        if len(parts) != self.the_size:
            raise ValueError(f"duet: {len(parts)} output tensors: give one for each rank")
        if any(p.dtype != part.dtype for p in parts):
            raise RuntimeError("duet: Tensor list must have the same type as the input tensor: "
                               "convert it")
        row = in_a_row(parts)
        if row is not None:
            return self.all_gather_single(row, part, opts)
        sizes = [p.numel() for p in parts]
        whole = part.new_empty(sum(sizes))
        target, source = self._tensor(whole), self._tensor(part)
        each, counts = MOVED[part.element_size()][1], None
        if len(set(sizes)) > 1 or sizes[0] != part.numel():
            counts = (c_int * len(sizes))(*[s * each for s in sizes])
        return self._run(opts, self.library.duet_all_gather, (target, source, counts),
                         list(parts), (whole, part, counts), dealer(whole, parts))

    @spanned("gather", 1)
    def gather(self, outputs, inputs, opts, timeout=None):
        part, whole, deal, parts = dense(one(inputs)), None, None, []
        if getattr(opts, "rootRank", opts) == self.the_rank:
            parts = outputs if isinstance(outputs[0], torch.Tensor) else outputs[0]
            whole = in_a_row(parts)
            if whole is None:
                whole = part.new_empty(self.the_size * part.numel())
                deal = dealer(whole, parts)
        return self.gather_single(whole, part, opts, list(parts), deal)

    @spanned("gather", 1)
    def gather_single(self, output, part, opts, result=None, behind=None):
        source, target, root = self._tensor(dense(part)), None, getattr(opts, "rootRank", opts)
        if root == self.the_rank:
            target, result = self._tensor(dense(output)), result or [output]
        return self._run(opts, self.library.duet_gather, (target, source, None, root),
                         result or [], (output, part), behind)

    gather_into_tensor = gather_single

    @spanned("scatter", 1)
    def scatter(self, outputs, inputs, opts, timeout=None):
        output = dense(one(outputs))
        root = getattr(opts, "rootRank", opts)
        target, source, whole = self._tensor(output), None, None
        if root == self.the_rank:
            parts = inputs if isinstance(inputs[0], torch.Tensor) else inputs[0]
            whole = in_a_row(parts)
            if whole is None:
                whole = torch.cat([part.reshape(-1) for part in parts])
            source = self._tensor(whole)
        return self._run(opts, self.library.duet_scatter, (target, source, None, root), [output],
                         (output, whole))

    @spanned("all_to_all", 1)
    def all_to_all_single(self, output, whole, output_sizes, input_sizes, opts=None, result=None,
                          behind=None):
        result = result or [output]
        dense(output), dense(whole)
        target, source = self._tensor(output), self._tensor(whole)
        if not output_sizes and not input_sizes and output.numel() == whole.numel():
            if whole.shape[:1] and whole.shape[0] % self.the_size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            return self._run(opts, self.library.duet_all_to_all, (target, source, None, None),
                             result, (output, whole), behind)

        def elements(tensor, sizes):
            rows = tensor.shape[0]
            if not sizes and rows % self.the_size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            sizes = sizes or [rows // self.the_size] * self.the_size
            if sum(sizes) != rows:
                raise RuntimeError("Split sizes doesn't match total dim 0 size")
            each = tensor.numel() // rows if rows else 0
            each *= MOVED[tensor.element_size()][1]
            return (c_int * len(sizes))(*[size * each for size in sizes])
        to, of = elements(output, output_sizes), elements(whole, input_sizes)
        return self._run(opts, self.library.duet_all_to_all, (target, source, to, of),
                         result, (output, whole, to, of), behind)

    alltoall_base = all_to_all_single

    @spanned("all_to_all", 1)
    def alltoall(self, outputs, inputs, opts=None, timeout=None):
        whole = torch.cat([t.reshape(-1) for t in inputs])
        sizes = [t.numel() for t in outputs]
        got = whole.new_empty(sum(sizes))
        return self.all_to_all_single(got, whole, sizes, [t.numel() for t in inputs], opts,
                                      list(outputs), dealer(got, outputs))

    # ---- messages ----

    @spanned("send")
    def send(self, tensors, to, tag=0):
        tensor = dense(one(tensors))
        return self._begin(self.library.duet_send, (self._tensor(tensor), to, tag), [tensor],
                           tensor)

    @spanned("recv")
    def recv(self, tensors, source, tag=0):
        tensor = dense(one(tensors))
        return self._begin(self.library.duet_recv,
                           (self._tensor(tensor), source, tag, None), [tensor], tensor, None,
                           source if source >= 0 else ANYBODY)

    @spanned("recvAnySource")
    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, ANY_SOURCE, tag)

    recvAnysource = recv_anysource

    # ---- barriers ----

    @spanned("barrier", None)
    def barrier(self, opts=None, timeout=None):
        return self._run(opts, self.library.duet_barrier, ())

    @spanned("monitored_barrier", None)
    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        seconds = self.timeout_s if timeout is None else max(timeout.total_seconds(), 1e-3)
        with self.lock:
            code = self.library.duet_monitored_barrier(self.handle, seconds, int(wait_all_ranks))
        try:
            lib.check(self.library, code)
        except lib.DuetError as error:  # in PyTorch's words
            words = ("timed out in monitoredBarrier" if self.the_rank == 0 else
                     "successfully reached monitoredBarrier, but received errors while waiting for "
                     "send/recv from rank 0")
            raise DuetBackendError(f"Rank {self.the_rank} {words}: {error}", code) from None

    # ---- several at once ----

    def _all(self, calls):
        calls = list(calls)
        last = calls[-1]
        for call in calls[:-1]:
            call.wait()
        last.value = [tensor for call in calls for tensor in call.value]
        return last

    @spanned("all_reduce")
    def allreduce_coalesced(self, tensors, opts=RedOp.SUM):
        return self._all(self.allreduce(tensor, opts) for tensor in tensors)

    @spanned("all_gather", 1)
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._all(self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @spanned("reduce_scatter", 1)
    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=RedOp.SUM):
        return self._all(self.reduce_scatter_single(o, i, opts)
                         for o, i in zip(outputs, inputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @spanned("all_gather", 1)
    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i] becomes rank r's inputs[i]."""
        return self._all(self.allgather([row[i] for row in outputs], part, opts)
                         for i, part in enumerate(inputs))
