#!/usr/bin/env python3
"""BatchNorm three ways on the same batches: by device, synchronised, and over the full batch.

    python3 bench/sync_bn.py [DEVICES [BATCH [STEPS]]]        needs build/duet and Fashion-MNIST

ResNet-18 trains as DDP with a BatchNorm for each rank, as DDP with SyncBatchNorm, and on a single
device that normalises the whole batch. Shown are losses, how far running statistics are from those
of the full batch (relative L2 distance over all layers), and what a step costs. SyncBatchNorm must
reach the full batch: the first loss to 1e-6, or the run fails. (With `--virtual-devices` it has
the very bits of a single device: `duet compare --model resnet18 --sync-bn`.)"""
import glob
import gzip
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

FOLDER = "/usr/share/datasets/fashion-mnist"
DUET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "duet")
LOSS_TOLERANCE = 1e-6  # sums in another order: 2e-7 was seen


def few_pictures(folder, train, test):
    """The first pictures of each file: an evaluation of all 10,000 would take minutes."""
    for part, count in (("train", train), ("t10k", test)):
        for kind, size in (("images-idx3", 784), ("labels-idx1", 1)):
            path = glob.glob(f"{FOLDER}/{part}-{kind}-ubyte*")[0]
            data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read()
            header = 4 + 4 * data[3]
            with open(f"{folder}/{part}-{kind}-ubyte", "wb") as out:
                out.write(data[:4] + struct.pack(">I", count) + data[8:header])
                out.write(data[header:header + count * size])


def train(folder, flags, batch, steps):
    subprocess.run([DUET, "train", "--model", "resnet18", "--data-dir", folder, "--quiet",
                    "--batch-size", str(batch), "--steps", str(steps), "--lr", "0.001",
                    "--json", f"{folder}/run.json", "--save", f"{folder}/weights"] + flags,
                   check=True)
    with open(f"{folder}/run.json") as file:
        return json.load(file)["runs"][0], statistics(f"{folder}/weights")


def statistics(path):
    """All running means and variances of a safetensors file, one list each."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    found = {"running_mean": [], "running_var": []}
    for name, entry in sorted(json.loads(data[8:8 + length]).items()):
        kind = name.rsplit(".", 1)[-1]
        if kind in found:
            begin, end = (8 + length + at for at in entry["data_offsets"])
            found[kind] += struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))


def main():
    numbers = [int(word) for word in sys.argv[1:]] + [4, 32, 5][len(sys.argv) - 1:]
    devices, batch, steps = numbers[:3]
    ddp = ["--mode", "ddp", "--devices", str(devices)]
    ways = {f"BatchNorm, {devices} ranks": ddp,
            f"SyncBatchNorm, {devices} ranks": ddp + ["--sync-bn"],
            "full batch, 1 device": ["--mode", "single"]}
    with tempfile.TemporaryDirectory() as folder:
        few_pictures(folder, batch * steps, 2)
        runs = {name: train(folder, flags, batch, steps) for name, flags in ways.items()}
    full, full_statistics = runs["full batch, 1 device"]
    print(f"ResNet-18, {batch} pictures a step, {steps} steps")
    print(f"{'':24}{'first loss':>12}{'last loss':>12}{'mean off':>10}{'var off':>10}"
          f"{'s a step':>10}")
    for name, (run, found) in runs.items():
        off = [distance(found[k], full_statistics[k]) for k in ("running_mean", "running_var")]
        print(f"{name:24}{run['losses'][0]:12.6f}{run['losses'][-1]:12.6f}{off[0]:10.1e}"
              f"{off[1]:10.1e}{run['training_seconds'] / run['steps']:10.2f}")
    apart = abs(runs[f"SyncBatchNorm, {devices} ranks"][0]["losses"][0] - full["losses"][0])
    if apart > LOSS_TOLERANCE:
        sys.exit(f"SyncBatchNorm's first loss is {apart:g} away from the full batch's")


main()
