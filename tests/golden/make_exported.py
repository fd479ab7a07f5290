#!/usr/bin/env python3
"""Makes the golden facts for tests/app/cli/test_exported.c: seventeen models of tests/python/nets.py as duet.export
writes them, and PyTorch's numbers for one training step of each. weight_norms.duet is written by hand, with
parametrizations, which are values computed from parameters.

exported/NAME.duet is the text. Its weights are no files: the parameters are those of formulas.weights, buffers have their
initial values, those of a spectral_norm ones, and element i of a constant is i, as the texts' constants are lists of places (checked here). The batch is
that of --dataset random with seed 0. exported/facts.txt has one fact a line, words separated by one space:

    loss NAME L                the loss, float64
    float32 NAME.PARAMETER D   how far PyTorch's float32 gradient is from its float64 one, as an L2 norm
    grad NAME.PARAMETER ...    the float64 gradient: its norm and four sums (formulas.fact)

    make && python3 tests/golden/make_exported.py         needs torch and numpy, some seconds
"""
import copy
import pathlib
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

from formulas import fact, weights

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "python")]
import duet  # noqa: E402
import nets  # noqa: E402
from export import SAMPLES, read_tensors  # noqa: E402

NETS = ("resnet50", "mobilenet_v2", "vit_b_16", "densenet121", "convnext_tiny", "efficientnet_b0", "vgg16_bn",
        "shufflenet_v2", "transformer", "gpt2", "bert", "lstm", "frames", "space_and_time",
        "points", "masked_patches")
SUMS, DIGITS = 4, 10


class WeightNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.mix = nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(8, 8))
        self.left, self.right = nn.Parameter(torch.ones(8, 3)), nn.Parameter(torch.ones(3, 10))
        self.shift = nn.Parameter(torch.ones(8))
        self.conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(2, 6, 3))
        self.first = nn.utils.parametrizations.weight_norm(nn.Linear(96, 8))
        for buffer in self.buffers():
            buffer.fill_(1)

    def forward(self, x):
        x = F.batch_norm(self.conv(x), None, None, self.scale.exp(), self.scale, training=True)
        x = torch.tanh(self.first(x.relu().flatten(1))) @ self.mix.softmax(1).t()
        return (torch.tanh(x) @ self.mix.softmax(1).t() * self.shift) @ (self.left @ self.right)


nets.NETS["weight_norms"] = WeightNorms, (2, 6, 6)


def loss_and_gradients(name, net, dtype):
    """The samples of --dataset random, drawn as docs/models.md says."""
    net = net.to(dtype).train()
    torch.manual_seed(0)
    x = nets.samples(name, SAMPLES)
    x = x.to(dtype) if x.is_floating_point() else x
    net.zero_grad()
    state = torch.get_rng_state()
    y = net(x)
    torch.set_rng_state(state)
    kind = nets.loss_of(name)
    if kind == "cross-entropy":
        loss = F.cross_entropy(y, torch.randint(0, y.shape[1], (SAMPLES, *y.shape[2:])))
    else:
        targets = torch.randn(y.shape)
        targets = (targets > 0 if kind == "bce-with-logits" else targets).to(dtype)
        loss = {"mse": F.mse_loss, "smooth-l1": F.smooth_l1_loss,
                "bce-with-logits": F.binary_cross_entropy_with_logits}[kind](y, targets)
    loss.backward()
    return loss.item(), {name: (torch.zeros_like(p) if p.grad is None else p.grad).double().numpy()
                         for name, p in net.named_parameters()}


def make(name):
    """The net, with its weights by formula."""
    net = nets.NETS[name][0]()
    with torch.no_grad():
        for number, (key, parameter) in enumerate(net.named_parameters()):
            parameter.copy_(weights(number, key, list(parameter.shape)))
    return net


def text_of(name, net, folder):
    path = duet.export(net, nets.samples(name, 2), folder / f"{name}.duet")
    for key, tensor in read_tensors(path.with_suffix(".safetensors")).items():
        if key.startswith("constant."):
            assert tensor.reshape(-1).tolist() == list(range(tensor.size)), f"{name}: {key}"
    return path.read_text()


def main():
    out = HERE / "exported"
    out.mkdir(exist_ok=True)
    lines = [f"# Made by make_exported.py with torch {torch.__version__}"]
    for name in (*NETS, "weight_norms"):
        net = make(name)
        with tempfile.TemporaryDirectory() as folder:
            if name in NETS:
                (out / f"{name}.duet").write_text(text_of(name, net, pathlib.Path(folder)))
        _, single = loss_and_gradients(name, copy.deepcopy(net), torch.float32)
        loss, double = loss_and_gradients(name, net, torch.float64)
        lines.append(f"loss {name} {loss:.12g}")
        for key, gradient in double.items():
            gradient = torch.from_numpy(gradient)
            off = (torch.from_numpy(single[key]) - gradient).norm().item()
            lines += [f"float32 {name}.{key} {off:.2g}", fact(f"grad {name}.{key}", gradient, SUMS, DIGITS)]
    (out / "facts.txt").write_text("\n".join(lines) + "\n")


main()
