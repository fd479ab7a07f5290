"""Duet's collectives as a backend of torch.distributed, for CPU tensors.

    import torch.distributed as dist
    import duet.torch
    dist.init_process_group("duet")

A collective works in place on the memory of PyTorch's tensors (duet_tensor_from_host). A call
without async_op runs in the calling thread; one with async_op runs in a thread of the library.
Operations that Duet's collectives lack are composed of those that exist: elements of 8 and 16 bits
are reduced as int32, and the bits of BAND, BOR and BXOR are gathered and combined here.

docs/torch_backend.md lists the differences from gloo, and the results of PyTorch's own tests.
"""

import atexit
import ctypes
import multiprocessing.util
import os
import threading
import uuid
import weakref
from ctypes import byref, c_int, c_void_p
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _library as lib
from ._moves import Moves
from ._reductions import Reductions
from ._spans import Spans
from ._tensors import MOVED, TYPES, named
from ._work import Call, DuetBackendError, Watcher

__all__ = ["ProcessGroupDuet"]

_NO_TIME = timedelta(0)
_GONE = "the process group was destroyed: create it again"
_MOST_TENSORS = 4096  # how many handles a group keeps


class ProcessGroupDuet(Reductions, Moves, dist.ProcessGroup):
    """The ranks of one group. Each group is a separate job (duet_group_join), so only its ranks
    need to join, and its failure does not affect other groups."""

    def __init__(self, store, rank, size, timeout, backend="duet"):
        """backend is the first part of the names of its spans in PyTorch's profiler."""
        super().__init__(rank, size)
        self.store, self.the_rank, self.the_size, self.backend = store, rank, size, backend
        self.timeout_s = max(timeout.total_seconds(), 1e-3)
        self.shared = _State.of_process()
        self.library, self.device = self.shared.library, self.shared.device
        self.lock = threading.Lock()
        self.tensors, self.aged = {}, {}  # handles by the address of tensors, and the previous ones
        self.under_way, self.watcher, self.splits = set(), Watcher(), 0
        self.handle = c_void_p()
        if rank == 0:
            store.set("duet", uuid.uuid4().hex)
        name = store.get("duet")
        lib.check(self.library, self.library.duet_group_join(
            byref(self.handle), name, rank, size, self.timeout_s), DuetBackendError)
        self.shared.groups.add(self)

    # ---- the methods that torch.distributed calls ----

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

    group_name = group_desc = ""  # PyTorch's own properties expect a C++ group

    def setGroupName(self, name):
        self.group_name = name

    def setGroupDesc(self, desc):
        self.group_desc = desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    def getGroupName(self):
        return self.group_name

    def getGroupDesc(self):
        return self.group_desc

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
                                 timeout or timedelta(seconds=self.timeout_s), self.backend)
        group._set_group_name(group_name or f"{self.group_name}:{prefix}")
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    splitGroup = split_group

    def shutdown(self):
        """Ends the calls in flight and leaves the group."""
        with self.lock:
            if not self.handle:
                return
            for work in list(self.under_way):
                work._end()
            self.watcher.stop()
            for tensor in (*self.aged.values(), *self.tensors.values()):
                self.library.duet_tensor_free(tensor)
            self.aged, self.tensors = {}, {}
            self.library.duet_group_destroy(byref(self.handle))
            self.handle = None

    abort = shutdown

    # ---- how a call is made ----

    def _tensor(self, tensor):
        """A handle of a tensor over the same memory. It holds only the address of the elements, so
        it stays valid whatever happens to that memory."""
        key = (tensor.data_ptr(), tensor.dtype, tensor.numel())
        return self.tensors.get(key) or self._new_tensor(key, tensor)

    def _new_tensor(self, key, tensor):
        at, dtype, count = key
        kind, each = (TYPES[dtype], 1) if dtype in TYPES else MOVED[tensor.element_size()]
        if len(self.tensors) > _MOST_TENSORS:
            self._forget_tensors()
        handle = c_void_p()
        self._check(self.library.duet_tensor_from_host(
            byref(handle), self.device, kind, 1, (c_int * 1)(count * each),
            at or ctypes.addressof(self.shared.nothing)))
        self.tensors[key] = handle
        return handle

    def _forget_tensors(self):
        """Frees the previous handles, and keeps the current ones until the next call, because
        another thread may have taken one for a call that it is about to make."""
        with self.lock:  # no call is in progress
            if self.under_way or len(self.tensors) <= _MOST_TENSORS:
                return
            for old in self.aged.values():
                self.library.duet_tensor_free(old)
            self.aged, self.tensors = self.tensors, {}

    def _check(self, code, tensors=()):
        """tensors are those that the call moves. Errors name the caller's own type."""
        if code:
            text = self.library.duet_error().decode(errors="replace")
            raise DuetBackendError(named(text, tensors), code)

    def _run(self, opts, call, arguments, result=(), keep=(), behind=None):
        """Makes the library's call(group, *arguments, work), followed by behind()."""
        brief = False
        if getattr(opts, "asyncOp", True):
            limit = None
        else:
            limit = opts.timeout
            brief = limit > _NO_TIME and limit.total_seconds() < self.timeout_s
            if not brief:
                with self.lock:
                    if not self.handle:
                        raise DuetBackendError(_GONE)
                    code = call(self.handle, *arguments, None)
                if code:
                    self._check(code, result)
                if behind:
                    behind()
                return Call.ended(result)
        work = self._begin(call, arguments, result, keep, behind)
        if brief:
            work.wait(limit)
        return work

    def _begin(self, call, arguments, result, keep, behind=None, source=-1):
        work = c_void_p()
        with self.lock:
            if not self.handle:
                raise DuetBackendError(_GONE)
            code = call(self.handle, *arguments, byref(work))
            if code:
                self._check(code, result)
            return Call.begun(self, work, result, keep, behind, source)


class _State:
    """The state that all groups of a process share: the library, and the groups to leave at its
    end. A forked child makes its own."""

    _of = {}  # one per process

    @classmethod
    def of_process(cls):
        if os.getpid() not in cls._of:
            cls._of = {os.getpid(): cls()}
        return cls._of[os.getpid()]

    def __init__(self):
        self.groups = weakref.WeakSet()
        self.spans = Spans()
        self.library = lib.load()
        self.device = lib.open_host_device(self.library)
        self.nothing = ctypes.create_string_buffer(64)  # the address given to empty tensors
        atexit.register(self.leave)
        # Forked processes of multiprocessing run these instead of atexit's functions.
        multiprocessing.util.Finalize(None, self.leave, exitpriority=0)

    def leave(self):
        """Called at the end of the process: tells the other ranks that this one has left normally.
        A call in flight would wait for them, so its group is not left."""
        for group in list(self.groups):
            if not group.under_way:
                group.shutdown()


if not hasattr(dist.Backend, "DUET"):
    dist.Backend.register_backend("duet", ProcessGroupDuet, devices=["cpu"])
    # PyTorch's flight recorder reads fields that a group written in Python lacks.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add("duet")
