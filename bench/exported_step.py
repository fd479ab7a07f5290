#!/usr/bin/env python3
"""Measures a training step of ten PyTorch nets on one core: Duet and PyTorch take turns in one run.

    PYTHONPATH=python python3 bench/exported_step.py [-r ROUNDS] [-s STEPS] [-b BATCH,...] [NAME...]
    needs torch, torchvision, transformers and build/duet

Each net is exported, which compares its loss and gradients with PyTorch's float64, and then trained
with SGD on random samples, in batches of the given sizes or of the net's own. PyTorch trains
eagerly with one thread, on tensors that are already in memory. A step's time is the smallest median
of all rounds. The last column is Duet's time divided by PyTorch's. The table also has the seconds
of the export."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"
import torch
from torch import nn

import duet

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
DUET = os.path.join(ROOT, "build", "duet")
WARM_STEPS, LR = 2, 0.01


class Logits(nn.Module):
    """A transformer of Hugging Face whose only output is the logits."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids):
        return self.net(ids, use_cache=False).logits.transpose(1, 2)  # [N, classes, tokens]


class Recurrent(nn.Module):
    """A sequence of 32 vectors, classified from the state after the last."""

    def __init__(self, layer, width=512):
        super().__init__()
        self.layer, self.head = layer(width, width, batch_first=True), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class UNet(nn.Module):
    """Two levels down and two up, 32 to 128 wide; the output is a class for each pixel."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = Block(3, 32), Block(32, 64), Block(64, 128)
        self.up2, self.up1 = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
        self.join2, self.join1, self.head = Block(128, 64), Block(64, 32), nn.Conv2d(32, 4, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(nn.functional.max_pool2d(a, 2))
        y = self.up2(self.middle(nn.functional.max_pool2d(b, 2)))
        y = self.up1(self.join2(torch.cat([b, y], 1)))
        return self.head(self.join1(torch.cat([a, y], 1)))


def vision(name, **settings):
    import torchvision
    return torchvision.models.get_model(name, weights=None, num_classes=10, **settings)


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=1024, n_positions=128, n_embd=256, n_layer=4, n_head=4,
                        bos_token_id=0, eos_token_id=0,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return Logits(GPT2LMHeadModel(config))


def pictures(batch, size):
    return lambda: torch.randn(batch, 3, size, size)


NETS = {  # name: model, inputs
    "resnet18": (lambda: vision("resnet18"), pictures(16, 64)),
    "densenet121": (lambda: vision("densenet121"), pictures(8, 64)),
    "mobilenet_v2": (lambda: vision("mobilenet_v2", dropout=0.0), pictures(16, 64)),
    "efficientnet_b0": (lambda: vision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0),
                        pictures(8, 64)),
    "convnext_tiny": (lambda: vision("convnext_tiny", stochastic_depth_prob=0.0), pictures(4, 64)),
    "unet": (UNet, pictures(4, 64)),
    "vit_b_16": (lambda: vision("vit_b_16", image_size=64), pictures(8, 64)),
    "gpt": (gpt, lambda: torch.randint(0, 1024, (8, 128))),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(32, 32, 512)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(32, 32, 512)),
}


def torch_step(net, x, y, steps):
    """Seconds of a step: the median."""
    optimizer, seconds = torch.optim.SGD(net.parameters(), lr=LR), []
    for step in range(steps + WARM_STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[WARM_STEPS:])


def duet_step(folder, batch, steps):
    record = os.path.join(folder, "run.json")
    words = [DUET, "train", "--mode", "single", "--device", "cpu", "--quiet", "--json", record]
    words += ["--model", os.path.join(folder, "net.duet"), "--workers", "0", "--no-shuffle"]
    words += ["--dataset", os.path.join(folder, "data.safetensors"), "--batch-size", str(batch)]
    words += ["--lr", str(LR), "--epochs", str(steps + WARM_STEPS)]
    subprocess.run(words, check=True)
    with open(record) as file:
        run = json.load(file)["runs"][0]
    return statistics.median(run["epoch_seconds"][WARM_STEPS:])


def measure(name, folder, options):
    build, inputs = NETS[name]
    torch.manual_seed(0)
    net, x = build().train(), inputs()
    start = time.perf_counter()
    duet.export(net, (x[:4],), os.path.join(folder, "net.duet"))
    export = time.perf_counter() - start
    for batch in options.batch or [len(x)]:
        while len(x) < batch:
            x = torch.cat([x, inputs()])
        measure_batch(name, folder, net, x[:batch], export, options)


def measure_batch(name, folder, net, x, export, options):
    shape = net(x).shape
    y = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64)
    # An epoch is one step: all samples are one batch.
    duet.save_dataset(os.path.join(folder, "data.safetensors"), x, y, x[:1], y[:1])
    theirs, ours = [], []
    for _ in range(options.rounds):
        theirs.append(torch_step(net, x, y, options.steps))
        ours.append(duet_step(folder, len(x), options.steps))
    t, d = min(theirs), min(ours)
    print(f"{name:<16} {len(x):5} {export:9.1f} {1e3 * t:12.1f} {1e3 * d:9.1f} {d / t:8.2f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-s", "--steps", type=int, default=5)
    parser.add_argument("-b", "--batch", type=lambda text: [int(b) for b in text.split(",")])
    parser.add_argument("names", nargs="*", default=list(NETS), metavar="NAME")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NETS]
    if unknown:
        sys.exit(f"exported_step: {unknown[0]}: no such net: there are {', '.join(NETS)}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread each, milliseconds of a step")
    print(f"{'net':<16} batch  export s   PyTorch ms   Duet ms    of it")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names:
            measure(name, folder, options)


main()
