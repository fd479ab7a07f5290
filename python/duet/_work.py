"""Pending calls of process groups; their failures become PyTorch's exceptions."""

import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from . import _library as lib

ANYBODY = -2


class DuetBackendError(dist.DistBackendError, lib.DuetError):
    """Duet's one line. Programs look for PyTorch's words on a timeout or a lost peer."""

    def __init__(self, text, code=lib.FAILED):
        where, peer, cause = text.partition(": a peer failed first: ")
        if code == lib.TIMEOUT:
            text = "Timed out waiting: " + text
        elif code == lib.PEER:  # the cause first
            text = f"{cause or where} (Connection closed by peer{': ' + where if peer else ''})"
        lib.DuetError.__init__(self, "duet: " + text, code)


class Call(Work):
    """A pending call, or, without a handle, a call that has ended."""

    # Slots and no __init__, because this work is most of the cost of a short message.
    __slots__ = ("group", "handle", "value", "keep", "behind", "source", "error", "future",
                 "promise", "span", "lock")

    @classmethod
    def ended(cls, result):
        call = cls()
        call.value, call.source = result, -1
        call.handle = call.error = call.future = None
        return call

    @classmethod
    def begun(cls, group, handle, result, keep, behind=None, source=-1):
        """source is the sender of a message, or ANYBODY if only the end of the call reveals it."""
        call = cls()
        call.group, call.handle, call.value, call.keep = group, handle, result, keep
        call.behind, call.source, call.lock = behind, source, threading.Lock()
        call.error = call.future = call.span = None
        group.under_way.add(call)
        return call

    def _end(self):
        """Waits for the end only once; later callers get the same result."""
        with self.lock:
            if self.handle is None:
                return
            library, handle = self.group.library, self.handle
            try:
                code = library.duet_work_wait(handle)
                if code:
                    self.group._check(code, self.value)
                if self.source == ANYBODY:
                    self.source = library.duet_work_source(handle)
                if self.behind:
                    self.behind()
            except Exception as error:
                self.error = error
            self.keep, self.behind = (), None
            if self.span:
                self.span.end()
            self.handle = None
            library.duet_work_free(handle)
            self.group.under_way.discard(self)

    def ends_with(self, span):
        """Ends the span of PyTorch's profiler with the call; False: the call has ended."""
        if self.handle is None:
            return False
        with self.lock:
            if self.handle is not None:
                self.span = span
        return self.span is span

    def wait(self, timeout=None):
        if self.handle is not None:
            limit = timeout.total_seconds() if timeout else 0
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
        """A wait in _end frees the handle, so it is read only while no thread waits."""
        if self.handle is None:
            return True
        if not self.lock.acquire(blocking=False):
            return False
        try:
            return self.handle is None or self.group.library.duet_work_done(self.handle) == 1
        finally:
            self.lock.release()

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def exception(self):
        if self.handle is not None and self.is_completed():
            self._end()
        return self.error

    def result(self):
        return self.value

    def synchronize(self):
        self.wait()

    def source_rank(self):
        return self.source

    _source_rank = source_rank

    def get_future(self):
        """The promise is resolved at the end of the call. `then` makes a future from it that also
        fails in C++; after Future.set_exception PyTorch's reducer would read the value."""
        if self.future is None:
            self.promise = torch.futures.Future()
            self.future = self.promise.then(self._outcome)
            if self.handle is None:
                self.promise.set_result(None)
            else:
                self.group.watcher.add(self)
        return self.future

    def _outcome(self, promise):
        if self.error:
            raise self.error
        return self.value


class Watcher:
    """A thread that waits for works with a future, in the order of their calls. Callbacks of a
    future run in it. If a callback waits for another call, a further thread takes over."""

    def __init__(self):
        self.changed = threading.Condition()
        self.works = []
        self.threads, self.settling = set(), 0

    def add(self, work):
        with self.changed:
            self.works.append(work)
            self._see_to_it()

    def _see_to_it(self):
        if self.works and self.settling == len(self.threads):
            thread = threading.Thread(target=self._run, daemon=True, name="duet-futures")
            self.threads.add(thread)
            thread.start()
        self.changed.notify()

    def _run(self):
        while True:
            with self.changed:
                while not self.works:
                    self.changed.wait()
                if self.works[0] is None:
                    return
                work = self.works.pop(0)
            work._end()
            with self.changed:
                self.settling += 1
                self._see_to_it()
            work.promise.set_result(None)
            with self.changed:
                self.settling -= 1

    def stop(self):
        with self.changed:
            self.works.append(None)
            self.changed.notify_all()
        for thread in list(self.threads):
            if thread is not threading.current_thread():
                thread.join()
