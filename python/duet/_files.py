"""Writes and reads safetensors files of named tensors: the weights of a model, and data sets."""

import json
import os
import struct

from ._library import WrongArgument

_TYPES = {"float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8"}


def write_tensors(path, arrays):
    """Writes the length of the header, the header, and the data, with 8-byte elements first. The
    file is written whole or not at all."""
    header, at = {}, 0
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    for name, array in arrays.items():
        header[name] = {"dtype": _TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    beside = f"{path}.{os.getpid()}"
    try:
        with open(beside, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in arrays.values():
                array.tofile(file)  # in C order
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.remove(beside)
        raise


def read_tensors(path):
    """The float32 tensors of a file, which is mapped, not read."""
    import numpy
    blob = numpy.memmap(path, "u1", "r")
    size = 8 + struct.unpack("<Q", blob[:8])[0]
    return {name: blob[size + begin:size + end].view("<f4").reshape(item["shape"])
            for name, item in json.loads(bytes(blob[8:size])).items()
            if name != "__metadata__" and item["dtype"] == "F32"
            for begin, end in [item["data_offsets"]]}


def _array(given):
    import numpy
    return numpy.asarray(given.detach().cpu() if hasattr(given, "detach") else given)


def _joined(inputs):
    """Joins the inputs of each sample."""
    import numpy
    rows = [row.reshape(len(row), -1) for row in map(_array, inputs)]
    kind = "float32" if any(row.dtype.kind == "f" for row in rows) else "int64"
    x = numpy.concatenate([row.astype(kind) for row in rows], 1)
    if kind == "float32" and any(row.dtype.kind != "f" and abs(row).max(initial=0) > 1 << 24
                                 for row in rows):
        raise WrongArgument("duet: an integer above 2^24 mixed with numbers of float32, which "
                            "cannot hold it")
    return x


def save_dataset(path, x, y, x_test=None, y_test=None):
    """Writes samples and answers, tensors or arrays, as a file for dataset=path.

    x has a sample in each row: float32, uint8 for images, or int32 or int64 for tokens. y has the
    labels, int32 or int64, one or several per sample, or float32 targets for loss="mse",
    "smooth-l1" and "bce-with-logits". For a model with several inputs x is a tuple of them.
    """
    x, x_test = (_joined(one) if isinstance(one, tuple) else one for one in (x, x_test))
    for one, other in ((x, y), (x_test, y_test)):
        if one is not None and other is not None and len(one) != len(other):
            raise WrongArgument(f"duet: {len(one)} samples and {len(other)} answers: give an "
                                "answer for each sample")
    given = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
    arrays = {name: _array(one) for name, one in given.items() if one is not None}
    for name, array in arrays.items():
        if str(array.dtype) not in _TYPES:
            raise WrongArgument(f"duet: {name}: {array.dtype}: give float32, uint8, int32 or int64")
    write_tensors(path, arrays)
