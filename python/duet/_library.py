"""Loads libduet.so with ctypes: the functions of duet.h that this package calls, and its errors.

Every call releases the interpreter's lock while it runs. A code other than 0 becomes an exception
with Duet's one-line message.
"""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_uint64, c_void_p

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"  # in a source tree that make has built

OK, FAILED, USAGE, CHECK, MEMORY, TIMEOUT, PEER = range(7)
F32, I32, F64, F16, BF16, I64, U8 = range(7)
MEAN, SUM, NONE, PRODUCT, MIN, MAX = range(6)


class DuetError(RuntimeError):
    """The message is "what failed: which value: what to do". `code` is a code of enum duet_code, or
    the exit status of the command."""

    def __init__(self, text, code=FAILED):
        super().__init__(text)
        self.code = code


class WrongArgument(DuetError, ValueError, TypeError):
    """Also a ValueError and a TypeError, which Python's own functions raise for wrong arguments."""

    def __init__(self, text):
        super().__init__(text, USAGE)


class NoTorch(DuetError, ImportError):
    def __init__(self, what):
        super().__init__(f"duet.{what}: there is no torch: pip install torch")


class ExportError(DuetError, ValueError):
    """Why a model cannot be exported: a line for each op, and how to estimate it anyway."""


def find(name):
    """The path of `name`: next to this file, as pip installs it, or in the build folder."""
    given = os.environ.get("DUET_LIBRARY" if name.endswith(".so") else "DUET_COMMAND")
    places = [pathlib.Path(given)] if given else [HERE / name, BUILD / name]
    for place in places:
        if place.exists():
            return str(place)
    raise DuetError(f"{name}: not found: {', '.join(map(str, places))}: run `pip install ./python` "
                    "or `make`")


_calls = [c_void_p, c_void_p]  # a group and a tensor: the first arguments of most collectives
_pair = [c_void_p, c_void_p, c_void_p]
_sizes = POINTER(c_int)
_work = POINTER(c_void_p)
_signatures = {
    "duet_device_open": [POINTER(c_void_p), c_char_p, c_int, c_uint64],
    "duet_tensor_from_host": [POINTER(c_void_p), c_void_p, c_int, c_int, _sizes, c_void_p],
    "duet_group_join": [POINTER(c_void_p), c_char_p, c_int, c_int, c_double],
    "duet_barrier": [c_void_p, _work],
    "duet_broadcast": [*_calls, c_int, _work],
    "duet_reduce": [*_calls, c_int, c_int, _work],
    "duet_all_reduce": [*_calls, c_int, _work],
    "duet_gather": [*_pair, _sizes, c_int, _work],
    "duet_all_gather": [*_pair, _sizes, _work],
    "duet_scatter": [*_pair, _sizes, c_int, _work],
    "duet_reduce_scatter": [*_pair, _sizes, c_int, _work],
    "duet_all_to_all": [*_pair, _sizes, _sizes, _work],
    "duet_send": [*_calls, c_int, c_int, _work],
    "duet_recv": [*_calls, c_int, c_int, POINTER(c_int), _work],
    "duet_monitored_barrier": [c_void_p, c_double, c_int],
    "duet_work_wait": [c_void_p],
    "duet_work_done": [c_void_p],
    "duet_work_source": [c_void_p],
}


def load():
    library = ctypes.CDLL(find("libduet.so"))
    for name, arguments in _signatures.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int
    library.duet_error.restype = c_char_p
    for name in ("duet_work_free", "duet_tensor_free", "duet_group_destroy"):
        getattr(library, name).argtypes = [c_void_p]
        getattr(library, name).restype = None
    return library


def check(library, code, error=DuetError):
    if code:
        raise error(library.duet_error().decode(errors="replace"), code)


def open_host_device(library):
    """The device of tensors that use the caller's host memory."""
    device = c_void_p()
    check(library, library.duet_device_open(byref(device), b"cpu", 0, 1 << 21))
    return device
