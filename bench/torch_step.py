#!/usr/bin/env python3
"""Measures the same training step in Duet and in PyTorch (eager and as a CUDA graph) in one run.

    python3 bench/torch_step.py --data-dir DIR [--device auto|cpu|cuda] [--duet build/duet]
                                [--models lenet,convnet] [--batch 256] [--rounds 3] [--epochs 3]
                                [--json FILE]
    needs only torch

PyTorch runs in its best case: float images are already on the device and are taken in order, as
slices; no loss is read. The graph holds forward, backward and SGD, and two copies fill its inputs.
Duet reads its data set, gathers by index, logs the losses and reads them, as `duet train` does.
Both train only full batches (--drop-last), in float32, with and without tf32. The figure is an
epoch's time divided by its steps, the median over epochs; the programs take turns, --rounds times.

The benchmark checks its results: with the same weights, on the same images, without dropout, the
losses of the first five steps must agree before anything is timed.
"""
import argparse
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LR, FIRST_STEPS = 0.02, 5
LOSS_TOLERANCE = 1e-5  # two right programs agree to 1e-7 for the first steps
EAGER_TARGET, GRAPH_TARGET = 10, 1.5  # times faster, for LeNet, batch 256, one GPU


# ---- the models, with Duet's names and shapes (models/lenet.c, models/convnet.c) ----


def lenet(x, p, dropout):
    x = F.avg_pool2d(F.relu(F.conv2d(x, p["W1"], p["b1"])), 2)
    x = F.avg_pool2d(F.relu(F.conv2d(x, p["W2"], p["b2"])), 2)
    x = F.relu(torch.addmm(p["b3"], x.flatten(1), p["W3"]))
    return torch.addmm(p["b4"], x, p["W4"])


def convnet(x, p, dropout):
    x = F.relu(F.conv2d(x, p["cn1.weight"], p["cn1.bias"]))
    x = F.max_pool2d(F.relu(F.conv2d(x, p["cn2.weight"], p["cn2.bias"])), 2)
    x = F.dropout2d(x, 0.10) if dropout else x
    x = F.relu(F.linear(x.flatten(1), p["fc1.weight"], p["fc1.bias"]))
    x = F.dropout(x, 0.25) if dropout else x
    return F.log_softmax(F.linear(x, p["fc2.weight"], p["fc2.bias"]), 1)


LENET = {
    "W1": (20, 1, 3, 3), "b1": (20,), "W2": (50, 20, 5, 5), "b2": (50,),
    "W3": (800, 128), "b3": (128,), "W4": (128, 10), "b4": (10,),
}  # fmt: skip
CONVNET = {
    "cn1.weight": (16, 1, 3, 3), "cn1.bias": (16,), "cn2.weight": (32, 16, 3, 3), "cn2.bias": (32,),
    "fc1.weight": (64, 4608), "fc1.bias": (64,), "fc2.weight": (10, 64), "fc2.bias": (10,),
}  # fmt: skip
MODELS = {  # name: forward, shapes, loss, mean and deviation of the pixels
    "lenet": (lenet, LENET, F.cross_entropy, 0.0, 1.0),
    "convnet": (convnet, CONVNET, F.nll_loss, 0.1302, 0.3069),
}


def weights(name):
    """Large weights: with LeNet's own, 0.01 x randn, the loss hardly changes for most of an epoch,
    which would hide mistakes."""
    torch.manual_seed(1)
    result = {}
    for key, shape in MODELS[name][1].items():
        in_out = name == "lenet" and len(shape) == 2  # LeNet's matrices are (in, out)
        inputs = shape[0] if in_out else math.prod(shape[1:])
        is_bias = len(shape) == 1
        result[key] = torch.zeros(shape) if is_bias else torch.randn(shape) * (2 / inputs) ** 0.5
    return result


def save_safetensors(path, tensors):
    header, at = {}, 0
    for key, t in tensors.items():
        end = at + 4 * t.numel()
        header[key] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(struct.pack("<%df" % t.numel(), *t.flatten().tolist()))


# ---- data ----


def read_idx(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        data = bytearray(f.read())
    rank = data[3]
    shape = struct.unpack(">%dI" % rank, data[4 : 4 + 4 * rank])
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * rank).reshape(shape)


def load(folder, name, device):
    mean, deviation = MODELS[name][3:]
    images = read_idx(folder, "train-images-idx3-ubyte").to(device).float().div_(255).unsqueeze(1)
    if deviation != 1:
        images = images.sub_(mean).div_(deviation)
    return images, read_idx(folder, "train-labels-idx1-ubyte").to(device).long()


# ---- PyTorch's steps ----


class Torch:
    def __init__(self, name, device, batch, images, labels, dropout=True):
        self.forward, _, self.loss = MODELS[name][:3]
        self.batch, self.images, self.labels, self.dropout = batch, images, labels, dropout
        self.p = {k: t.to(device).requires_grad_() for k, t in weights(name).items()}
        self.optimizer = torch.optim.SGD(self.p.values(), lr=LR, foreach=True)
        self.steps = len(images) // batch

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.forward(x, self.p, self.dropout), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def slices(self):
        for i in range(0, self.steps * self.batch, self.batch):
            yield self.images[i : i + self.batch], self.labels[i : i + self.batch]

    def capture(self):
        """Captures a whole step in one graph, after three on a side stream, as PyTorch requires."""
        self.x, self.y = self.images[: self.batch].clone(), self.labels[: self.batch].clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.captured_loss = self.step(self.x, self.y)

    def epoch(self, captured):
        """Trains an epoch; returns microseconds per step."""
        wait = torch.cuda.synchronize if self.images.is_cuda else lambda: None
        wait()
        start = time.perf_counter()
        for x, y in self.slices():
            if captured:
                self.x.copy_(x)
                self.y.copy_(y)
                self.graph.replay()
                loss = self.captured_loss
            else:
                loss = self.step(x, y)
        wait()
        microseconds = (time.perf_counter() - start) / self.steps * 1e6
        if not math.isfinite(loss.item()):
            sys.exit("PyTorch's loss is %g" % loss.item())
        return microseconds


# ---- Duet's ----


def duet(arguments, words, folder):
    out = os.path.join(folder, "run.json")
    command = [arguments.duet, "train", "--mode", "single", "--device", arguments.device]
    command += ["--data-dir", arguments.data_dir, "--batch-size", str(arguments.batch)]
    command += ["--lr", str(LR), "--no-shuffle", "--drop-last", "--quiet", "--json", out]
    done = subprocess.run(command + words, timeout=120, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("duet: status %d: %s" % (done.returncode, done.stderr.strip()))
    with open(out) as f:
        return json.load(f)["runs"][0]


def check_first_steps(arguments, name, images, labels, folder):
    """The largest difference of the first losses. Neither program uses tf32 here."""
    path = os.path.join(folder, name + ".safetensors")
    save_safetensors(path, weights(name))
    words = ["--model", name, "--init-from", path, "--steps", str(FIRST_STEPS)]
    words += ["--dropout", "0"] if name == "convnet" else []
    ours = duet(arguments, words, folder)["losses"]
    peer = Torch(name, images.device, arguments.batch, images, labels, dropout=False)
    theirs = [peer.step(x, y).item() for _, (x, y) in zip(range(FIRST_STEPS), peer.slices())]
    apart = max(abs(a - b) for a, b in zip(ours, theirs))
    if len(ours) != len(theirs) or not apart <= LOSS_TOLERANCE:
        words = "%s: losses of the first steps: Duet %s, PyTorch %s: not the same training\n"
        sys.stderr.write(words % (name, ours, theirs))
        sys.exit(3)
    return apart


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def measure(arguments, name, tf32, images, labels, folder):
    """The median microseconds per step of each program."""
    allow_tf32(tf32)
    peer = {"eager": Torch(name, images.device, arguments.batch, images, labels)}
    if images.is_cuda:
        peer["graph"] = Torch(name, images.device, arguments.batch, images, labels)
        peer["graph"].capture()
    times = {key: [] for key in ["duet", *peer]}
    for key in peer:
        peer[key].epoch(key == "graph")  # warm-up, as Duet's first epoch
    for _ in range(arguments.rounds):
        words = ["--model", name, "--epochs", str(arguments.epochs + 1)]
        words += ["--tf32"] if tf32 else []
        run = duet(arguments, words, folder)
        steps = run["steps"] // len(run["epoch_seconds"])
        times["duet"] += [s / steps * 1e6 for s in run["epoch_seconds"][1:]]
        for key in peer:
            times[key] += [peer[key].epoch(key == "graph") for _ in range(arguments.epochs)]
    return {key: statistics.median(t) for key, t in times.items()}


# ---- the whole ----


def target(what, least, ratio):
    reached = "reached" if ratio >= least else "not reached"
    print("target: %s | at least %g times | %.2f times | %s" % (what, least, ratio, reached))


def show(arguments, name, tf32, us, on_gpu):
    precision = "tf32" if tf32 else "fp32"
    facts = (name, arguments.batch, precision, us["duet"])
    words = "%-8s batch %4d %s: Duet %9.1f us a step" % facts
    for key in [k for k in us if k != "duet"]:
        words += ", PyTorch %s %9.1f us (%.2f times)" % (key, us[key], us[key] / us["duet"])
    print(words, flush=True)
    if on_gpu and name == "lenet" and arguments.batch == 256 and not tf32:
        what = "LeNet, batch 256, fp32, one device: faster than PyTorch "
        target(what + "eager", EAGER_TARGET, us["eager"] / us["duet"])
        target(what + "as a graph", GRAPH_TARGET, us["graph"] / us["duet"])


def main():
    about = "Training steps of Duet and PyTorch in the same run"
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--duet", default=os.path.join(ROOT, "build", "duet"))
    files = "unpacked IDX files; bench/make_data writes some"
    parser.add_argument("--data-dir", required=True, help=files)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="timed in a round")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.device == "auto":
        arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    on_gpu = arguments.device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)  # an emulated device computes on one core
    where = torch.cuda.get_device_name() if on_gpu else "one thread of the CPU"
    print("# PyTorch %s on %s" % (torch.__version__, where))
    runs = []
    for name in arguments.models.split(","):
        images, labels = load(arguments.data_dir, name, arguments.device)
        with tempfile.TemporaryDirectory() as folder:
            allow_tf32(False)
            apart = check_first_steps(arguments, name, images, labels, folder)
            print("%-8s losses of the first %d steps agree to %.1e" % (name, FIRST_STEPS, apart))
            for tf32 in [False, True] if on_gpu else [False]:
                us = measure(arguments, name, tf32, images, labels, folder)
                show(arguments, name, tf32, us, on_gpu)
                facts = {"model": name, "batch_size": arguments.batch, "tf32": tf32}
                runs.append({**facts, "us_per_step": us, "losses_apart": apart})
    if arguments.json:
        text = {"torch": torch.__version__, "device": where, "runs": runs}
        with open(arguments.json + ".new", "w") as f:
            json.dump(text, f)
        os.replace(arguments.json + ".new", arguments.json)


main()
