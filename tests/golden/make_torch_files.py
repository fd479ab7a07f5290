#!/usr/bin/env python3
"""Makes files of torch.save, and one of safetensors, that Duet's tests read.

    python3 tests/golden/make_torch_files.py      needs torch and safetensors

All numbers are eighths that count up from 0, tensor by tensor, so the tests know them without a
second file. They lie in torch_files/ beside this script. It was run with torch 2.15.0 and
safetensors 0.8.0.

    simple.pth, simple.safetensors    SimpleModel of the text on DataParallel: fc.weight, fc.bias
    complex.safetensors               ComplexModel's first layer: conv1.weight, conv1.bias
    module.pth                        the same as simple.pth, of a model inside nn.DataParallel
    parameters.pth                    the same, as a dict of nn.Parameter
    batch_norm.pth                    a layer with buffers, one of them int64
    views.pth                         two tensors that share a storage, one of them from its middle
    types.pth                         a tensor of each type
    refused/...                       what Duet refuses: see test_torch_file.c
"""
import collections
import pathlib
import zipfile

import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent / "torch_files"


class SimpleModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(10, 10)


class ComplexModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1)


def counted(module):
    n = 0
    with torch.no_grad():
        for tensor in module.state_dict().values():
            flat = torch.arange(n, n + tensor.numel()) / (1 if tensor.dtype == torch.int64 else 8)
            tensor.copy_(flat.reshape(tensor.shape))
            n += tensor.numel()
    return module


def save(what, name, **options):
    torch.save(what, FOLDER / name, **options)


def compressed(source, name):
    with zipfile.ZipFile(FOLDER / source) as old, \
            zipfile.ZipFile(FOLDER / name, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            new.writestr(item.filename, old.read(item.filename))


def main():
    (FOLDER / "refused").mkdir(parents=True, exist_ok=True)
    simple = counted(SimpleModel())
    save(simple.state_dict(), "simple.pth")
    save_file(simple.state_dict(), FOLDER / "simple.safetensors")
    save_file(counted(ComplexModel()).state_dict(), FOLDER / "complex.safetensors")
    save(torch.nn.DataParallel(simple).state_dict(), "module.pth")
    save(dict(simple.named_parameters()), "parameters.pth")
    save(counted(torch.nn.BatchNorm1d(3)).state_dict(), "batch_norm.pth")
    storage = torch.arange(8) / 8
    save({"all": storage.reshape(2, 4), "middle": storage[3:6]}, "views.pth")
    save({str(t).split(".")[1]: torch.arange(3).to(t) for t in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool)}, "types.pth")
    save(simple, "refused/model.pth")
    save({"model": simple.state_dict(), "epoch": 3, "loss": 0.5}, "refused/checkpoint.pth")
    save(torch.optim.SGD(simple.parameters(), 0.1).state_dict(), "refused/optimizer.pth")
    save(simple.state_dict(), "refused/legacy.pth", _use_new_zipfile_serialization=False)
    save(simple.state_dict(), "refused/protocol.pth", pickle_protocol=4)
    save({"fc.weight": torch.arange(6.).reshape(2, 3).t()}, "refused/strided.pth")
    save({"fc.weight": torch.arange(6.).to_sparse()}, "refused/sparse.pth")
    save(torch.arange(3.), "refused/tensor.pth")
    compressed("simple.pth", "refused/compressed.pth")


main()
