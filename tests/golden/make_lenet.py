#!/usr/bin/env python3
"""Makes the golden facts about d2l's LeNet and the MNIST ConvNet that Duet's tests compare against.

PyTorch is a black box here: the same model, weights and images go in, losses and gradients come
out, in float64, so that the golden side has no relevant rounding. Run it with the Fashion-MNIST
files of the Debian package dataset-fashion-mnist; it rewrites the files next to it:

    python3 tests/golden/make_lenet.py            needs torch and numpy, about a minute

    lenet.txt                   hashes of the initial weights, losses at two points and of five steps from each,
                                gradients of the first batch at both points
    lenet_300.safetensors       float32 weights after 300 steps (a point where the gradients are lively)
    convnet.txt                 hashes of the initial weights, loss, norms and samples of the gradients; and losses of
                                six steps

The text files have one fact per line, words separated by one space; '#' starts a comment.
"""
import hashlib
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

from formulas import as_line, bits, fact, fashion_mnist, fnv1a64

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 256  # LeNet's global batch, the chapter's
LR = 0.2
STEPS = 300  # the initial weights sit on a plateau (loss 2.3026) for most of the first epoch: gradients there are tiny


def save_safetensors(path, tensors):
    """8 bytes little-endian header length, JSON header padded with spaces to 8, then the data in header order."""
    header, data = {}, b""
    for name, t in tensors.items():
        piece = t.detach().to(torch.float32).contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def fact_init(name, t):
    sha256 = hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()
    first = " ".join(f"{w:08x}" for w in bits(t)[:4])
    return f"init {name} fnv1a64 {fnv1a64(bits(t)):016x} sha256 {sha256} first4 {first}"


# d2l 13.5 "Training on Multiple GPUs", from scratch

def lenet_init(seed):
    torch.manual_seed(seed)
    shapes = {"W1": (20, 1, 3, 3), "W2": (50, 20, 5, 5), "W3": (800, 128), "W4": (128, 10)}
    p = {}
    for i, (name, shape) in enumerate(shapes.items(), 1):
        p[name] = torch.randn(shape) * 0.01
        p[f"b{i}"] = torch.zeros(shape[0] if i <= 2 else shape[1])
    return p


def lenet(x, p):
    x = F.avg_pool2d(F.relu(F.conv2d(x, p["W1"], p["b1"])), 2)
    x = F.avg_pool2d(F.relu(F.conv2d(x, p["W2"], p["b2"])), 2)
    x = F.relu(x.reshape(x.shape[0], -1) @ p["W3"] + p["b3"])
    return x @ p["W4"] + p["b4"]


def lenet_loss_and_grads(p, x, y):
    p = {name: t.detach().clone().requires_grad_() for name, t in p.items()}
    loss = F.cross_entropy(lenet(x, p), y, reduction="none").sum() / len(y)
    loss.backward()
    return loss.item(), {name: t.grad for name, t in p.items()}


def lenet_train(p, images, labels, steps, dtype):
    """Plain SGD over the training set in its own order, the last batch of an epoch short. Returns weights and losses."""
    p = {name: t.detach().to(dtype) for name, t in p.items()}
    losses, at = [], 0
    for _ in range(steps):
        x, y = images[at:at + BATCH].to(dtype), labels[at:at + BATCH]
        loss, grads = lenet_loss_and_grads(p, x, y)
        losses.append(loss)
        p = {name: t - LR * grads[name] for name, t in p.items()}
        at = at + BATCH if at + BATCH < len(labels) else 0
    return p, losses


def make_lenet(images, labels, top):
    images = images.div(255)
    start = lenet_init(0)
    lines = [top, "# init: parameter, hashes of its little-endian float32 bytes, its first 4 elements as bits",
             "# loss: steps done before, step from there, mean loss in float64 at lr 0.2, batch 256, no shuffle",
             "# grad: steps done before, parameter, L2 norm in float64, 16 sums with signs (formulas.py)"]
    lines += [fact_init(name, t) for name, t in start.items()]
    lively, _ = lenet_train(start, images, labels, STEPS, torch.float32)
    save_safetensors(HERE / f"lenet_{STEPS}.safetensors", lively)
    for point, p in ((0, start), (STEPS, lively)):
        # Every point takes the same batches: those at the start of the training set.
        _, losses = lenet_train(p, images, labels, 5, torch.float64)
        lines += [f"loss {point} {step} {loss:.17g}" for step, loss in enumerate(losses)]
        p64 = {name: t.double() for name, t in p.items()}
        _, grads = lenet_loss_and_grads(p64, images[:BATCH].double(), labels[:BATCH])
        lines += [fact(f"grad {point} {name}", g) for name, g in grads.items()]
    (HERE / "lenet.txt").write_text("\n".join(lines) + "\n")


class ConvNet(torch.nn.Module):
    """PyTorch's MNIST example with half the channels; dropout left out: its masks are Duet's own."""

    def __init__(self):
        super().__init__()
        self.cn1 = torch.nn.Conv2d(1, 16, 3)
        self.cn2 = torch.nn.Conv2d(16, 32, 3)
        self.fc1 = torch.nn.Linear(4608, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.cn2(F.relu(self.cn1(x)))), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), 1)


def normalised(images):
    return images.div(255).sub(0.1302).div(0.3069)


def convnet_steps(images, labels, threads=1, dtype=torch.float32, ranks=1, batch=128):
    """Losses of the first six steps from seed 0, Adadelta at 0.5, images in the order of the files. Gradients of ranks
    are averaged as DDP does; rank r has the samples r, r + ranks, ..."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net, losses = ConvNet().to(dtype), []
    optimizer = torch.optim.Adadelta(net.parameters(), lr=0.5)
    for at in range(0, 6 * batch, batch):
        x, y = normalised(images[at:at + batch]).to(dtype), labels[at:at + batch]
        optimizer.zero_grad()
        parts = [F.nll_loss(net(x[r::ranks]), y[r::ranks]) / ranks for r in range(ranks)]
        for part in parts:
            part.backward()
        optimizer.step()
        losses.append(sum(part.item() for part in parts))
    torch.set_num_threads(1)
    return losses


def make_convnet(images, labels, top, batch=64):
    x = normalised(images[:batch])
    torch.manual_seed(1)
    net = ConvNet()
    lines = [top, "# init: as in lenet.txt, torch.manual_seed(1), default initialisation in order cn1 cn2 fc1 fc2",
             f"# loss: mean nll over the first {batch} training images, (x/255 - 0.1302) / 0.3069, no dropout, float64",
             "# grad: parameter, L2 norm;  at: parameter, flat index, that gradient",
             "# steps: losses of convnet_steps; apart: how far PyTorch's other ways are from them"]
    lines += [fact_init(name, p) for name, p in net.named_parameters()]
    net.double()
    loss = F.nll_loss(net(x.double()), labels[:batch])
    loss.backward()
    lines.append(f"loss {loss.item():.17g}")
    for name, p in net.named_parameters():
        g = p.grad.flatten()
        lines.append(f"grad {name} {g.norm().item():.17g}")
        for i in sorted({0, 1, len(g) // 3, len(g) // 2, len(g) - 1, int(g.abs().argmax())}):
            lines.append(f"at {name} {i} {g[i].item():.17g}")
    first = convnet_steps(images, labels)
    others = [convnet_steps(images, labels, threads=2), convnet_steps(images, labels, dtype=torch.float64)]
    others += [convnet_steps(images, labels, ranks=n) for n in (2, 4, 8)]
    apart = [max(abs(a - b) for a in row) for b, *row in zip(first, *others)]
    steps = as_line("steps", first, "{:.7f}".format) + as_line("apart", apart, "{:.1e}".format)
    (HERE / "convnet.txt").write_text("\n".join(lines) + "\n" + steps)


def main():
    torch.set_num_threads(1)  # the order of float32 sums must not depend on the machine's cores
    images, labels = fashion_mnist()
    top = f"# made by make_lenet.py with torch {torch.__version__}, CPU {torch.backends.cpu.get_cpu_capability()}, 1 thread"
    make_lenet(images, labels, top)
    make_convnet(images, labels, top)


if __name__ == "__main__":
    main()
