#!/usr/bin/env python3
"""Makes safetensors files for Duet's tests, named after the tutorials' models.

    python3 tests/golden/make_torch_files.py      needs torch and safetensors

All numbers are eighths that count up from 0, tensor by tensor, so the tests know them without a
second file. The files are in torch_files/ next to this script, which was run with torch 2.15.0 and
safetensors 0.8.0.

    simple.safetensors     SimpleModel of the DataParallel tutorial: fc.weight, fc.bias
    complex.safetensors    ComplexModel's first layer: conv1.weight, conv1.bias
"""
import pathlib

import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent / "torch_files"


def save(name, module):
    n = 0
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_((torch.arange(n, n + tensor.numel()) / 8).reshape(tensor.shape))
            n += tensor.numel()
    save_file({f"{name}.{key}": tensor for key, tensor in module.state_dict().items()},
              FOLDER / f"{'simple' if name == 'fc' else 'complex'}.safetensors")


save("fc", torch.nn.Linear(10, 10))
save("conv1", torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1))
