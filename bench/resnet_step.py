#!/usr/bin/env python3
"""Measures a training step of ResNet-18 on one core: Duet and PyTorch take turns in the same run.

    python3 bench/resnet_step.py [ROUNDS [STEPS]]
    needs torch and numpy, Fashion-MNIST and build/duet

The model is that of "Dive into Deep Learning" 13.6, on 28 x 28 images, 32 at a time, SGD 0.01.
PyTorch trains eagerly on tensors that are already in memory; Duet reads and prepares its batches.
Both start from the same weights on the same batches, and the losses of the first steps are compared
before anything is timed.

A step's time is the difference between a long and a short run, divided by the additional steps, so
start and evaluation do not count. The table has wall time, and CPU time, which other programs on
the machine disturb less; each is the minimum of all rounds."""
import gzip
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy
import torch
from torch import nn

FOLDER = "/usr/share/datasets/fashion-mnist"
DUET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "duet")
BATCH, LR, SEED, FIRST_STEPS, WARM_STEPS = 32, 0.01, 0, 2, 2
LOSS_TOLERANCE = 1e-3  # right programs agree to 1e-6 at first; each step multiplies it


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.conv3 = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.conv3(x))


def resnet18():
    torch.manual_seed(SEED)
    layers = [nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU()]
    for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
        stride = 1 if inputs == outputs else 2
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(512, 10))


def torch_steps(images, labels, steps):
    """Wall time and CPU time of all but two steps, and the losses."""
    net, losses = resnet18(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    for i in range(steps):
        if i == WARM_STEPS:
            start = time.perf_counter(), time.process_time()
        x, y = images[i * BATCH : (i + 1) * BATCH], labels[i * BATCH : (i + 1) * BATCH]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return time.perf_counter() - start[0], time.process_time() - start[1], losses


def duet_run(folder, steps):
    out = os.path.join(folder, "run.json")
    words = [DUET, "train", "--mode", "single", "--device", "cpu", "--model", "resnet18"]
    words += ["--batch-size", str(BATCH), "--lr", str(LR), "--seed", str(SEED), "--epochs", "1"]
    words += ["--no-shuffle", "--quiet", "--workers", "0", "--steps", str(steps)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(words + ["--data-dir", folder, "--json", out], check=True)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, busy, json.load(open(out))["runs"][0]["losses"]


def duet_steps(folder, steps):
    short, long = duet_run(folder, WARM_STEPS), duet_run(folder, steps)
    return long[0] - short[0], long[1] - short[1], long[2]


def read_idx(name):
    data = gzip.open(os.path.join(FOLDER, name)).read()
    rank = data[3]
    shape = struct.unpack(">%dI" % rank, data[4 : 4 + 4 * rank])
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * rank).reshape(shape)


def write_idx(folder, name, array):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(bytes([0, 0, 8, array.ndim]) + struct.pack(">%dI" % array.ndim, *array.shape))
        f.write(numpy.ascontiguousarray(array).tobytes())


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    steps = WARM_STEPS + (int(sys.argv[2]) if len(sys.argv) > 2 else 10)
    torch.set_num_threads(1)
    pictures = read_idx("train-images-idx3-ubyte.gz")[: steps * BATCH]
    classes = read_idx("train-labels-idx1-ubyte.gz")[: steps * BATCH]
    images = torch.from_numpy(pictures.astype(numpy.float32) / 255).reshape(-1, 1, 28, 28)
    labels = torch.from_numpy(classes.astype(numpy.int64))
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for kind, count in (("train", steps * BATCH), ("t10k", BATCH)):
            write_idx(folder, kind + "-images-idx3-ubyte", pictures[:count])
            write_idx(folder, kind + "-labels-idx1-ubyte", classes[:count])
        for i in range(rounds):
            theirs.append(torch_steps(images, labels, steps))
            ours.append(duet_steps(folder, steps))
            if i:
                continue
            pairs = list(zip(ours[0][2], theirs[0][2]))
            apart = max(abs(a - b) for a, b in pairs[:FIRST_STEPS])
            if len(pairs) != steps or apart > LOSS_TOLERANCE:
                words = "losses of the first %d steps differ by %g: not the same training"
                sys.exit(words % (FIRST_STEPS, apart))
            words = "losses of the first %d steps agree to %.1e; torch %s, 1 thread each"
            print(words % (FIRST_STEPS, apart, torch.__version__))
    for i, what in enumerate(("on the clock", "on the processor")):
        t, d = (1e3 * min(run[i] for run in runs) / (steps - WARM_STEPS) for runs in (theirs, ours))
        words = "a step of %d, %s: PyTorch %.0f ms, Duet %.0f ms: %.2f times"
        print(words % (BATCH, what, t, d, t / d))


main()
