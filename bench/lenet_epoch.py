#!/usr/bin/env python3
"""Measures one epoch of d2l's LeNet on one core: Duet and PyTorch take turns in the same run.

    python3 bench/lenet_epoch.py [ROUNDS]
    needs torch and numpy, Fashion-MNIST and build/duet

PyTorch trains on tensors that are already in memory, without a DataLoader: its best case. It runs
eagerly, and also with the model and its loss compiled by torch.compile if that finds a C++
compiler; compile time does not count. Duet reads, prepares and trains. All start from the same
weights (0.01 x randn, seed 0) on the same unshuffled batches. The losses of the first steps are
compared before anything is timed.
"""
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy
import torch
import torch.nn.functional as F

FOLDER = "/usr/share/datasets/fashion-mnist"
DUET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "duet")
BATCH, LR, FIRST_STEPS = 256, 0.2, 5
LOSS_TOLERANCE = 1e-5  # two right programs agree to 1e-7 for the first steps


def read_idx(name):
    data = gzip.open(os.path.join(FOLDER, name)).read()
    rank = data[3]
    shape = struct.unpack(">%dI" % rank, data[4 : 4 + 4 * rank])
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * rank).reshape(shape)


def parameters():
    torch.manual_seed(0)
    shapes = [(20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10)]
    result = []
    for shape in shapes:
        bias = shape[0] if len(shape) == 4 else shape[1]
        result += [torch.randn(shape) * 0.01, torch.zeros(bias)]
    return [p.requires_grad_() for p in result]


def lenet(x, p):
    x = F.avg_pool2d(F.relu(F.conv2d(x, p[0], p[1])), 2)
    x = F.avg_pool2d(F.relu(F.conv2d(x, p[2], p[3])), 2)
    x = F.relu(x.reshape(x.shape[0], -1) @ p[4] + p[5])
    return x @ p[6] + p[7]


def loss_of(x, labels, p):
    return F.cross_entropy(lenet(x, p), labels)


def torch_epoch(images, labels, loss_of, steps=None):
    p, losses = parameters(), []
    start = time.perf_counter()
    for i in range(0, len(images), BATCH):
        if steps is not None and i >= steps * BATCH:
            break
        loss = loss_of(images[i : i + BATCH], labels[i : i + BATCH], p)
        loss.backward()
        with torch.no_grad():
            for q in p:
                q -= LR * q.grad
                q.grad = None
        if steps is not None:
            losses.append(loss.item())
    return time.perf_counter() - start, losses


def duet_epoch(steps=None):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.json")
        words = [DUET, "train", "--mode", "single", "--device", "cpu", "--epochs", "1"]
        words += ["--no-shuffle", "--quiet", "--workers", "0", "--json", out]
        subprocess.run(words + (["--steps", str(steps)] if steps else []), check=True)
        run = json.load(open(out))["runs"][0]
    return run["training_seconds"], run["losses"]


def compare_losses(ours, theirs, form):
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    if len(ours) != len(theirs) or apart > LOSS_TOLERANCE:
        words = "losses of the first %d steps differ by %g from those of %s: not the same training"
        sys.exit(words % (FIRST_STEPS, apart, form))
    words = "losses of the first %d steps agree to %.1e with PyTorch's, %s"
    print(words % (FIRST_STEPS, apart, form))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    torch.set_num_threads(1)
    pixels = read_idx("train-images-idx3-ubyte.gz").astype(numpy.float32) / 255
    images = torch.from_numpy(pixels).reshape(-1, 1, 28, 28)
    labels = torch.from_numpy(read_idx("train-labels-idx1-ubyte.gz").astype(numpy.int64))
    forms = {"eager": loss_of, "compiled": torch.compile(loss_of, dynamic=False)}
    ours = duet_epoch(FIRST_STEPS)[1]
    for form in list(forms):
        try:
            theirs = torch_epoch(images, labels, forms[form], FIRST_STEPS)[1]
        except torch._dynamo.exc.TorchDynamoException as error:
            print("PyTorch cannot compile here: %s" % str(error).splitlines()[0])
            del forms[form]
            continue
        compare_losses(ours, theirs, form)
        # the last batch is smaller and is compiled separately
        last = len(images) % BATCH
        torch_epoch(images[:last], labels[:last], forms[form])
    print("torch %s; epoch of %d images, 1 thread each" % (torch.__version__, len(images)))
    for _ in range(rounds):
        ours = duet_epoch()[0]
        line = "Duet %.2f s" % ours
        for form, function in forms.items():
            theirs = torch_epoch(images, labels, function)[0]
            line += "; PyTorch %s %.2f s: Duet takes %.3f of it" % (form, theirs, ours / theirs)
        print(line, flush=True)


main()
