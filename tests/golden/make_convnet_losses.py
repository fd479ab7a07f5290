"""Writes convnet_losses.h: the losses of the ConvNet's first six steps, for tests/examples/test_scripts.c.

    python3 tests/golden/make_convnet_losses.py > tests/golden/convnet_losses.h

The script that it stands for trains the ConvNet of models/convnet.c on pictures of Fashion-MNIST
((x/255 - 0.1302) / 0.3069), in the order of the files, in batches of 128, with Adadelta at rate 0.5,
after manual_seed(0), without dropout. PyTorch does it in several ways: in float32 on one and on two
threads, in float64, and with each batch cut among 2, 4 and 8 ranks, whose gradients are averaged as
DDP does. `spread` is the largest distance of any of these from the first, step by step.
"""
import gzip

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = "/usr/share/datasets/fashion-mnist/"
STEPS, BATCH = 6, 128


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.cn1 = nn.Conv2d(1, 16, 3)
        self.cn2 = nn.Conv2d(16, 32, 3)
        self.fc1 = nn.Linear(4608, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.cn2(F.relu(self.cn1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


def read(name, skip):
    return numpy.frombuffer(gzip.open(FOLDER + name + "-ubyte.gz").read(), numpy.uint8, offset=skip)


def losses(threads=1, dtype=torch.float32, ranks=1):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = ConvNet().to(dtype)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.5)
    result = []
    for step in range(STEPS):
        at = slice(step * BATCH, (step + 1) * BATCH)
        x = ((pictures[at].float() / 255 - 0.1302) / 0.3069).to(dtype)
        optimizer.zero_grad()
        mean = 0.0
        for rank in range(ranks):  # rank r has the samples r, r + ranks, ...
            loss = F.nll_loss(model(x[rank::ranks]), labels[at][rank::ranks]) / ranks
            loss.backward()
            mean += loss.item()
        optimizer.step()
        result.append(mean)
    return result


pictures = torch.tensor(read("train-images-idx3", 16).copy()).reshape(-1, 1, 28, 28)
labels = torch.tensor(read("train-labels-idx1", 8).astype("int64"))
first = losses()
others = [losses(threads=2), losses(dtype=torch.float64)] + [losses(ranks=n) for n in (2, 4, 8)]
spread = [max(abs(other[i] - first[i]) for other in others) for i in range(STEPS)]
print("/* Made by tests/golden/make_convnet_losses.py with torch",
      torch.__version__.split("+")[0], "- do not edit. */")
print("enum { CONVNET_STEPS = %d };" % STEPS)
print("static const struct { double loss, spread; } golden_convnet[CONVNET_STEPS] = {")
for loss, apart in zip(first, spread):
    print(f"    {{{loss:.7f}, {apart:.1e}}},")
print("};")
