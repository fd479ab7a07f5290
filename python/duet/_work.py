"""Calls of process groups that are under way, and their failures as PyTorch's exceptions."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from . import _library as lib


class DuetBackendError(dist.DistBackendError):
    """Duet's one line. Programs look for PyTorch's words of a timeout and of a lost peer."""

    WORDS = {lib.TIMEOUT: "Timed out waiting: ", lib.PEER: "Connection closed by peer: "}

    def __init__(self, text, code=lib.FAILED):
        super().__init__("duet: " + self.WORDS.get(code, "") + text)
        self.code = code


class Call(Work):
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


class Watcher:
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
