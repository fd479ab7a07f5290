"""Spans for PyTorch's profiler: while a profiler is on, every call of a group has one,
`duet:all_reduce` and so on, with the shapes of the rank's inputs. Names and shapes are those of
gloo.

A span lasts from the start of the call to its end, which with async_op may be after spans that
began later. PyTorch's profiler accepts such a span only if it ends in another thread than it began.
So a thread of this module ends all spans, even of calls without async_op, as gloo's threads do.
"""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.autograd import _record_function_with_args_enter, _record_function_with_args_exit

is_profiled = torch.autograd._profiler_enabled


class Spans:
    """The thread that ends the spans of a process. It starts with the first one."""

    def __init__(self):
        self.thread = ThreadPoolExecutor(1, "duet-spans")
        self.inside = threading.local()  # per thread: a span also covers the calls inside it

    def cover(self, name, tensors, make):
        """Calls make() inside a span that ends with the call."""
        if getattr(self.inside, "is_covered", False):
            return make()
        span = Span(self.thread, name, tensors)
        self.inside.is_covered = True
        try:
            call = make()
        except Exception:
            span.end()
            raise
        finally:
            self.inside.is_covered = False
        if call is None or not call.ends_with(span):
            span.end()
        return call


class Span:
    def __init__(self, thread, name, tensors):
        self.thread = thread
        self.record = _record_function_with_args_enter(name, *tensors)

    def end(self):
        self.thread.submit(_record_function_with_args_exit, self.record).result()


def _flat(tensors):
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for some in tensors for tensor in _flat(some)]


def spanned(name, brings=0):
    """Wraps a method of a group as a call named `name`. brings is the argument with the rank's
    input tensors, or None. name may be a function of the arguments."""
    def wrap(method):
        @functools.wraps(method)
        def call(self, *arguments, **more):
            if not is_profiled():
                return method(self, *arguments, **more)
            tensors = [] if brings is None else _flat(arguments[brings])
            what = name(tensors) if callable(name) else name
            return self.shared.spans.cover(f"{self.backend}:{what}", tensors,
                                           lambda: method(self, *arguments, **more))
        return call
    return wrap
