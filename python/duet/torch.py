"""Duet's collectives as a backend of torch.distributed, for CPU tensors.

    import torch.distributed as dist
    import duet.torch
    dist.init_process_group("duet")

A collective works on the memory of PyTorch's tensors where it lies (duet_tensor_from_host). A call
without async_op runs in the thread that makes it; one with async_op runs in a thread of the
library. What Duet's collectives do not know is put together from what they do: elements of 8 and 16
bits are reduced as int32, and the bits of BAND, BOR and BXOR are gathered and combined here.

docs/torch_backend.md says what differs from gloo, and how PyTorch's own tests fare.
"""

import atexit
import ctypes
import multiprocessing.util
import os
import threading
import time
import uuid
import weakref
from ctypes import byref, c_int, c_void_p
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work as _Work

from . import _library as lib

__all__ = ["ProcessGroupDuet"]

_ANY_SOURCE = -1
_RedOp = dist.ReduceOp.RedOpType
_OPS = {_RedOp.SUM: lib.SUM, _RedOp.AVG: lib.MEAN, _RedOp.PRODUCT: lib.PRODUCT,
        _RedOp.MIN: lib.MIN, _RedOp.MAX: lib.MAX}
_BITS = {_RedOp.BAND: torch.bitwise_and, _RedOp.BOR: torch.bitwise_or,
         _RedOp.BXOR: torch.bitwise_xor}
_TYPES = {torch.float32: lib.F32, torch.float64: lib.F64, torch.float16: lib.F16,
          torch.bfloat16: lib.BF16, torch.int32: lib.I32, torch.int64: lib.I64,
          torch.uint8: lib.U8}
# What a call only moves is moved as integers as wide as its elements.
_MOVED = {8: (lib.I64, 1), 4: (lib.I32, 1), 2: (lib.F16, 1), 1: (lib.U8, 1), 16: (lib.I64, 2)}
_NO_TIMEOUT = timedelta(milliseconds=-1)
_MOST_TENSORS = 4096  # handles that a group keeps


class DuetBackendError(dist.DistBackendError):
    """Duet's one line. Programs look for PyTorch's words of a timeout and of a lost peer."""

    WORDS = {lib.TIMEOUT: "Timed out waiting: ", lib.PEER: "Connection closed by peer: "}

    def __init__(self, text, code=lib.FAILED):
        super().__init__("duet: " + self.WORDS.get(code, "") + text)
        self.code = code


class _Call(_Work):
    """A call under way, or one that has ended (handle None)."""

    def __init__(self, group=None, handle=None, result=(), behind=None, keep=(), source=-1):
        super().__init__()
        self.group, self.handle, self.behind, self.keep = group, handle, behind, keep
        self.value = list(result)
        self.source, self.error, self.future = source, None, None
        self.lock = threading.Lock()

    def _end(self):
        """Waits for the end, once; whoever comes second gets the same answer."""
        with self.lock:
            if self.handle is None:
                return
            library = self.group.library
            try:
                lib.check(library, library.duet_work_wait(self.handle), DuetBackendError)
                self.source = library.duet_work_source(self.handle)
                if self.behind:
                    self.behind()
            except Exception as error:
                self.error = error
            handle, self.handle, self.keep, self.behind = self.handle, None, (), None
            library.duet_work_free(handle)
            self.group.forget(self)

    def wait(self, timeout=timedelta(0)):
        limit = timeout.total_seconds() if timeout is not None else 0
        if limit > 0 and not self._ends_within(limit):
            raise DuetBackendError(f"the operation was not complete after {limit * 1e3:.0f} ms",
                                   lib.TIMEOUT)
        self._end()
        if self.error:
            raise self.error
        return True

    def _ends_within(self, limit):
        deadline, pause = time.monotonic() + limit, 2e-5
        while not self.is_completed():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 2e-3)
        return True

    def is_completed(self):
        handle = self.handle
        return handle is None or self.group.library.duet_work_done(handle) == 1

    def is_success(self):
        return self.is_completed() and self.error is None

    def exception(self):
        return self.error

    def result(self):
        return self.value

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return self.source

    _source_rank = source_rank

    def get_future(self):
        if self.future is None:
            self.future = torch.futures.Future()
            if self.handle is None:
                self._settle()
            else:
                self.group.watch(self)
        return self.future

    def _settle(self):
        if self.error:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class _Watcher:
    """A thread that waits for works whose future somebody holds, in the order of their calls."""

    def __init__(self):
        self.changed = threading.Condition()
        self.works = []
        self.thread = None

    def add(self, work):
        with self.changed:
            self.works.append(work)
            if not self.thread:
                self.thread = threading.Thread(target=self._run, daemon=True, name="duet-futures")
                self.thread.start()
            self.changed.notify()

    def _run(self):
        while True:
            with self.changed:
                while not self.works:
                    self.changed.wait()
                work = self.works.pop(0)
            if work is None:
                return
            work._end()
            work._settle()

    def stop(self):
        if self.thread:
            with self.changed:
                self.works.append(None)
                self.changed.notify()
            if self.thread is not threading.current_thread():
                self.thread.join()


def _one(tensors):
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"duet: {len(tensors)} tensors: give one")
    return tensors[0]


def _is_async(opts):
    return getattr(opts, "asyncOp", True)


def _reduction(opts):
    op = getattr(opts, "reduceOp", opts)
    return getattr(op, "op", op)


def _dense(tensor):
    if tensor.device.type != "cpu":
        raise RuntimeError(f"duet: a tensor on {tensor.device}: the backend moves CPU tensors: use "
                           "tensor.cpu()")
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"duet: a tensor of layout {tensor.layout}: use tensor.to_dense()")
    if not tensor.is_contiguous():
        raise RuntimeError("duet: Tensors must be contiguous: use tensor.contiguous()")
    return tensor


def _row(tensors):
    """The memory of tensors that lie one behind the other, as one tensor; None: they do not."""
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


class ProcessGroupDuet(dist.ProcessGroup):
    """The ranks of one group. Each group is a job of its own (duet_group_join), so that its ranks
    alone have to come, and its failure leaves the other groups as they are."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.store, self.the_rank, self.the_size = store, rank, size
        self.timeout_s = max(timeout.total_seconds(), 1e-3)
        self.shared = _State.of_process()
        self.library, self.device = self.shared.library, self.shared.device
        self.lock = threading.Lock()
        self.tensors, self.under_way, self.watcher = {}, set(), _Watcher()
        self.coalesced, self.splits = None, 0
        self.handle = c_void_p()
        if rank == 0:
            store.set("duet", uuid.uuid4().hex)
        name = store.get("duet")
        lib.check(self.library, self.library.duet_group_join(
            byref(self.handle), name, rank, size, self.timeout_s), DuetBackendError)
        self.shared.groups.add(self)

    # ---- what torch.distributed asks a group ----

    def rank(self):
        return self.the_rank

    def size(self):
        return self.the_size

    getRank, getSize = rank, size

    def getBackendName(self):
        return "duet"

    name = _get_backend_name = getBackendName
    supports_splitting = True
    _device_types = property(lambda self: [torch.device("cpu")])

    def setGroupName(self, name):
        self.names = (name, getattr(self, "names", ("", ""))[1])

    def setGroupDesc(self, desc):
        self.names = (getattr(self, "names", ("", ""))[0], desc)

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    def getGroupName(self):
        return getattr(self, "names", ("", ""))[0]

    def getGroupDesc(self):
        return getattr(self, "names", ("", ""))[1]

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self):
        return self.store

    def set_timeout(self, timeout):
        self.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def get_backend(self, device=None):
        return self

    _get_backend = get_backend

    def split_group(self, new_ranks, timeout=None, opts=None, group_name=None, group_desc=None,
                    device_types=None):
        self.splits += 1
        if self.the_rank not in new_ranks:
            return None
        prefix = f"split {self.splits} {new_ranks}"
        group = ProcessGroupDuet(dist.PrefixStore(prefix, self.store),
                                 new_ranks.index(self.the_rank), len(new_ranks),
                                 timeout or timedelta(seconds=self.timeout_s))
        group._set_group_name(group_name or f"{self.group_name}:{prefix}")
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    splitGroup = split_group

    def shutdown(self):
        """Ends the calls under way and leaves the group."""
        with self.lock:
            if not self.handle:
                return
            for work in list(self.under_way):
                work._end()
            self.watcher.stop()
            for tensor in self.tensors.values():
                self.library.duet_tensor_free(tensor)
            self.tensors.clear()
            self.library.duet_group_destroy(byref(self.handle))
            self.handle = None

    abort = shutdown

    def watch(self, work):
        self.watcher.add(work)

    def forget(self, work):
        self.under_way.discard(work)

    # ---- how a call is made ----

    def _tensor(self, tensor, moved=False):
        """The handle of a tensor over the same memory. It says where the elements lie, so it stays
        right whatever becomes of that memory."""
        if not moved and tensor.dtype in _TYPES:
            kind, count = _TYPES[tensor.dtype], tensor.numel()
        else:
            kind, each = _MOVED[tensor.element_size()]
            count = tensor.numel() * each
        key = (tensor.data_ptr(), kind, count)
        handle = self.tensors.get(key)
        if handle is None:
            if len(self.tensors) > _MOST_TENSORS and not self.under_way:
                for old in self.tensors.values():
                    self.library.duet_tensor_free(old)
                self.tensors.clear()
            handle = c_void_p()
            code = self.library.duet_tensor_from_host(
                byref(handle), self.device, kind, 1, (c_int * 1)(count),
                key[0] or ctypes.addressof(self.shared.nothing))
            lib.check(self.library, code, DuetBackendError)
            self.tensors[key] = handle
        return handle

    def _run(self, opts, begin, result=(), keep=(), behind=None):
        """begin(handle) makes the call; handle NULL: to its end. behind() follows it."""
        if not self.handle:
            raise DuetBackendError("the process group was destroyed: create it again")
        limit = getattr(opts, "timeout", _NO_TIMEOUT)
        limit = limit.total_seconds() if limit > timedelta(0) else 0
        brief = 0 < limit < self.timeout_s
        if not _is_async(opts) and not brief:
            with self.lock:
                code = begin(None)
            lib.check(self.library, code, DuetBackendError)
            if behind:
                behind()
            return _Call(result=result)
        work = c_void_p()
        with self.lock:
            lib.check(self.library, begin(byref(work)), DuetBackendError)
            call = _Call(self, work, result, behind, keep)
            self.under_way.add(call)
        if not _is_async(opts):
            call.wait(timedelta(seconds=limit))
        return call

    # ---- reductions ----

    def _prepare(self, tensor, op):
        """What is reduced in the tensor's place, how, and what follows: (tensor, op, behind)."""
        _dense(tensor)
        if tensor.is_complex():
            if op not in (_RedOp.SUM, _RedOp.AVG):
                raise ValueError(f"duet: {op} of complex numbers: there are SUM and AVG")
            return torch.view_as_real(tensor), _OPS[op], None
        if op not in _OPS:
            raise ValueError(f"duet: {op}: there are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and "
                             "BXOR")
        if tensor.dtype is torch.bool:
            return (tensor.view(torch.uint8),
                    {lib.SUM: lib.MAX, lib.PRODUCT: lib.MIN}.get(_OPS[op], _OPS[op]), None)
        if op == _RedOp.AVG and not tensor.is_floating_point():
            return tensor, lib.SUM, lambda: tensor.copy_(
                torch.div(tensor, self.the_size, rounding_mode="trunc"))
        if tensor.dtype in _TYPES:
            return tensor, _OPS[op], None
        if tensor.dtype not in (torch.int8, torch.int16, torch.uint16):
            raise RuntimeError(f"duet: {tensor.dtype}: no reduction takes it: convert it first")
        wide = tensor.to(torch.int32)
        return wide, _OPS[op], lambda: tensor.copy_(wide)

    def _bitwise(self, tensor, op, opts, want):
        """Gathers what all ranks have and combines it where it is wanted."""
        whole = torch.empty((self.the_size, *tensor.shape), dtype=tensor.dtype)

        def combine():
            if want:
                total = whole[0].clone()
                for part in whole[1:]:
                    total = _BITS[op](total, part)
                tensor.copy_(total)
        source, target = self._tensor(_dense(tensor), True), self._tensor(whole, True)
        return self._run(opts, lambda w: self.library.duet_all_gather(
            self.handle, target, source, w), [tensor], (whole, tensor), combine)

    def allreduce(self, tensors, opts=_RedOp.SUM, timeout=None):
        tensor, op = _one(tensors), _reduction(opts)
        if tensor.is_sparse:
            return self._sparse(tensor, op, opts)
        if op in _BITS:
            return self._bitwise(tensor, op, opts, True)
        reduced, how, behind = self._prepare(tensor, op)
        memory = self._tensor(reduced)
        return self._run(opts, lambda w: self.library.duet_all_reduce(
            self.handle, memory, how, w), [tensor], (tensor, reduced), behind)

    def _sparse(self, tensor, op, opts):
        if op != _RedOp.SUM:
            raise RuntimeError("duet: sparse tensors are added up: give ReduceOp.SUM")
        parts = [None] * self.the_size
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
            parts[rank] = torch.sparse_coo_tensor(there.t(), what, tensor.shape)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        tensor.copy_(total)
        return _Call(result=[tensor])

    def reduce(self, tensors, opts, op=None, timeout=None):
        tensor = _one(tensors)
        root = getattr(opts, "rootRank", opts)
        op = _reduction(opts if op is None else op)
        if op in _BITS:
            return self._bitwise(tensor, op, opts, root == self.the_rank)
        reduced, how, behind = self._prepare(tensor, op)
        memory = self._tensor(reduced)
        return self._run(opts, lambda w: self.library.duet_reduce(
            self.handle, memory, root, how, w), [tensor], (tensor, reduced),
            behind if root == self.the_rank else None)

    def reduce_scatter_single(self, output, whole, opts=_RedOp.SUM):
        op = _reduction(opts)
        if op in _BITS:
            copy = whole.clone()
            self._bitwise(copy, op, None, True).wait()
            output.copy_(copy.view(self.the_size, *output.shape)[self.the_rank])
            return _Call(result=[output])
        if output.numel() * self.the_size != whole.numel():
            raise ValueError("input tensor must be the same size as output size times world size")
        if output.dtype != whole.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        reduced, how, _ = self._prepare(whole, op)
        part, _, behind = self._prepare(output, op)
        target, source = self._tensor(part), self._tensor(reduced)
        return self._run(opts, lambda w: self.library.duet_reduce_scatter(
            self.handle, target, source, how, w), [output], (part, reduced, whole), behind)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs, inputs, opts=_RedOp.SUM, timeout=None):
        output, parts = _one(outputs), inputs if isinstance(inputs[0], torch.Tensor) else inputs[0]
        if any(part.numel() != output.numel() for part in parts):
            return self._reduce_uneven(output, parts, opts)
        whole = _row(parts)
        if whole is None:
            whole = torch.cat([part.reshape(-1) for part in parts])
        return self.reduce_scatter_single(output, whole, opts)

    def _reduce_uneven(self, output, parts, opts):
        """One reduction for each part, to the rank that gets it."""
        copies = [part.clone() for part in parts]
        reduce = dist.ReduceOptions()
        reduce.reduceOp = _reduction(opts)
        for rank, copy in enumerate(copies):
            reduce.rootRank = rank
            self.reduce(copy, reduce).wait()
        output.copy_(copies[self.the_rank].view_as(output))
        return _Call(result=[output])

    # ---- moves ----

    def broadcast(self, tensors, opts, timeout=None):
        tensor = _dense(_one(tensors))
        root, memory = getattr(opts, "rootRank", opts), self._tensor(tensor, True)
        return self._run(opts, lambda w: self.library.duet_broadcast(
            self.handle, memory, root, w), [tensor], (tensor,))

    def all_gather_single(self, output, part, opts=None):
        _dense(output), _dense(part)
        if output.dtype != part.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if output.numel() != part.numel() * self.the_size:
            raise ValueError("output tensor size must be equal to world_size times input tensor "
                             "size")
        target, source = self._tensor(output, True), self._tensor(part, True)
        return self._run(opts, lambda w: self.library.duet_all_gather(
            self.handle, target, source, w), [output], (output, part))

    _allgather_base = all_gather_single

    def allgather(self, outputs, inputs, opts=None, timeout=None):
        part = _one(inputs)
        parts = outputs if isinstance(outputs[0], torch.Tensor) else outputs[0]
        part = part.contiguous()
        if len(parts) != self.the_size:
            raise ValueError(f"duet: {len(parts)} output tensors: give one for each rank")
        if any(p.dtype != part.dtype for p in parts):
            raise RuntimeError("duet: Tensor list must have the same type as the input tensor: "
                               "convert it")
        row = _row(parts)
        if row is not None:
            return self.all_gather_single(row, part, opts)
        sizes = [p.numel() for p in parts]
        whole = part.new_empty(sum(sizes))

        def deal():
            for p, piece in zip(parts, whole.split(sizes)):
                p.copy_(piece.view(p.shape))
        target, source = self._tensor(whole, True), self._tensor(part, True)
        if len(set(sizes)) == 1 and sizes[0] == part.numel():
            return self._run(opts, lambda w: self.library.duet_all_gather(
                self.handle, target, source, w), parts, (whole, part), deal)
        each = _MOVED[part.element_size()][1]
        counts = (c_int * len(sizes))(*[s * each for s in sizes])
        return self._run(opts, lambda w: self.library.duet_all_gather_uneven(
            self.handle, target, source, counts, w), parts, (whole, part, counts), deal)

    def gather(self, outputs, inputs, opts, timeout=None):
        part = _dense(_one(inputs))
        root = getattr(opts, "rootRank", opts)
        source, target, whole, deal, parts = self._tensor(part, True), None, None, None, []
        if root == self.the_rank:
            parts = outputs if isinstance(outputs[0], torch.Tensor) else outputs[0]
            whole = _row(parts)
            if whole is None:
                whole = part.new_empty((self.the_size, *part.shape))

                def deal():
                    for p, piece in zip(parts, whole):
                        p.copy_(piece.view(p.shape))
            target = self._tensor(whole, True)
        return self._run(opts, lambda w: self.library.duet_gather(
            self.handle, target, source, root, w), parts, (whole, part), deal)

    def gather_single(self, output, part, opts):
        source = self._tensor(_dense(part), True)
        root = getattr(opts, "rootRank", opts)
        here = root == self.the_rank
        target = self._tensor(_dense(output), True) if here else None
        return self._run(opts, lambda w: self.library.duet_gather(
            self.handle, target, source, root, w), [output] if here else [], (output, part))

    gather_into_tensor = gather_single

    def scatter(self, outputs, inputs, opts, timeout=None):
        output = _dense(_one(outputs))
        root = getattr(opts, "rootRank", opts)
        target, source, whole = self._tensor(output, True), None, None
        if root == self.the_rank:
            parts = inputs if isinstance(inputs[0], torch.Tensor) else inputs[0]
            whole = _row(parts)
            if whole is None:
                whole = torch.cat([part.reshape(-1) for part in parts])
            source = self._tensor(whole, True)
        return self._run(opts, lambda w: self.library.duet_scatter(
            self.handle, target, source, root, w), [output], (output, whole))

    def all_to_all_single(self, output, whole, output_sizes, input_sizes, opts=None):
        return self._exchange(output, whole, output_sizes, input_sizes, opts, [output], None)

    alltoall_base = all_to_all_single

    def _exchange(self, output, whole, output_sizes, input_sizes, opts, result, behind):
        _dense(output), _dense(whole)
        target, source = self._tensor(output, True), self._tensor(whole, True)
        if not output_sizes and not input_sizes and output.numel() == whole.numel():
            if whole.shape[:1] and whole.shape[0] % self.the_size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            return self._run(opts, lambda w: self.library.duet_all_to_all(
                self.handle, target, source, w), result, (output, whole), behind)

        def elements(tensor, sizes):
            rows = tensor.shape[0]
            if not sizes and rows % self.the_size:
                raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
            sizes = sizes or [rows // self.the_size] * self.the_size
            if sum(sizes) != rows:
                raise RuntimeError("Split sizes doesn't match total dim 0 size")
            each = tensor.numel() // rows if rows else 0
            each *= _MOVED[tensor.element_size()][1]
            return (c_int * len(sizes))(*[size * each for size in sizes])
        to, of = elements(output, output_sizes), elements(whole, input_sizes)
        return self._run(opts, lambda w: self.library.duet_all_to_all_uneven(
            self.handle, target, source, to, of, w), result, (output, whole, to, of), behind)

    def alltoall(self, outputs, inputs, opts=None, timeout=None):
        whole = torch.cat([t.reshape(-1) for t in inputs])
        sizes = [t.numel() for t in outputs]
        got = whole.new_empty(sum(sizes))

        def deal():
            for t, piece in zip(outputs, got.split(sizes)):
                t.copy_(piece.view(t.shape))
        return self._exchange(got, whole, sizes, [t.numel() for t in inputs], opts,
                              list(outputs), deal)

    # ---- messages ----

    def send(self, tensors, to, tag=0):
        tensor = _dense(_one(tensors))
        memory = self._tensor(tensor, True)
        return self._run(None, lambda w: self.library.duet_send(
            self.handle, memory, to, tag, w), [tensor], (tensor,))

    def recv(self, tensors, source, tag=0):
        tensor = _dense(_one(tensors))
        memory = self._tensor(tensor, True)
        return self._run(None, lambda w: self.library.duet_recv(
            self.handle, memory, source, tag, None, w), [tensor], (tensor,))

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, _ANY_SOURCE, tag)

    recvAnysource = recv_anysource

    # ---- barriers ----

    def barrier(self, opts=None, timeout=None):
        return self._run(opts, lambda w: self.library.duet_barrier(self.handle, w))

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

    def allreduce_coalesced(self, tensors, opts=_RedOp.SUM):
        return self._all(self.allreduce(tensor, opts) for tensor in tensors)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._all(self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=_RedOp.SUM):
        return self._all(self.reduce_scatter_single(o, i, opts)
                         for o, i in zip(outputs, inputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i]: what rank r brings as inputs[i]."""
        return self._all(self.allgather([row[i] for row in outputs], part, opts)
                         for i, part in enumerate(inputs))


class _State:
    """What all groups of a process share: the library, and what is to be left at its end. A child
    of fork makes its own."""

    _of = {}  # by process

    @classmethod
    def of_process(cls):
        if os.getpid() not in cls._of:
            cls._of = {os.getpid(): cls()}
        return cls._of[os.getpid()]

    def __init__(self):
        self.groups = weakref.WeakSet()
        self.library = lib.load()
        self.device = lib.open_host_device(self.library)
        self.nothing = ctypes.create_string_buffer(64)  # where tensors without elements lie
        atexit.register(self.leave)
        # Processes of multiprocessing that were forked run these and not those of atexit.
        multiprocessing.util.Finalize(None, self.leave, exitpriority=0)

    def leave(self):
        """At the end of the process: the other ranks are told that this one has left in good
        order. A call that is still under way would wait for them, so its group is not left."""
        for group in list(self.groups):
            if not group.under_way:
                group.shutdown()


def _create(store, rank, size, timeout):
    return ProcessGroupDuet(store, rank, size, timeout)


if not hasattr(dist.Backend, "DUET"):
    dist.Backend.register_backend("duet", _create, devices=["cpu"])
    # PyTorch's flight recorder reads what a group written in Python does not have.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("duet")
