#!/usr/bin/env python3
"""Makes random.txt: Duet's random data sets, and the models simple and complex trained on them.

PyTorch is a black box here: its draws are exact, and its losses are float64, so that the golden
side has no relevant rounding.

    python3 tests/golden/make_random.py           needs torch and numpy, a few seconds
"""
import torch

from formulas import bits, fnv1a64, write

STEPS, BATCH, SAMPLES = 5, 16, 80

# name, model, shape of a sample, outputs, loss, learning rate, seed
CASES = [
    ("simple", lambda: Simple(10, 10), (10,), 10, "mse", 0.1, 0),
    ("complex", None, (3, 32, 32), 10, "cross-entropy", 0.001, 3),
    ("narrow", lambda: Simple(3, 2), (3,), 2, "mse", 0.1, 7),
]


class Simple(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = torch.nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.fc(x)


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.fc = torch.nn.Linear(64 * 32 * 32, 10)

    def forward(self, x):
        return self.fc(torch.flatten(torch.relu(self.conv1(x)), 1))


def known(tensor):
    """Its hash and its first two words."""
    return " ".join([f"{fnv1a64(bits(tensor)):016x}", *(f"{w:08x}" for w in bits(tensor)[:2])])


def tiny():
    """So few numbers that the targets begin with a normal that the samples have left over."""
    torch.manual_seed(1)
    x = torch.randn(3, 3)
    y = torch.randn(3, 1)
    return [f"samples tiny {known(x)}", f"answers tiny {known(y)}"]


def make(name, build, shape, outputs, loss, lr, seed):
    torch.manual_seed(seed)
    x = torch.randn(SAMPLES, *shape)
    y = torch.randn(SAMPLES, outputs) if loss == "mse" else torch.randint(0, outputs, (SAMPLES,))
    torch.manual_seed(seed)
    net = build() if build else Complex()
    stored = y if loss == "mse" else y.to(torch.int32)
    lines = [f"samples {name} {known(x)}", f"answers {name} {known(stored)}"]
    for parameter, value in net.named_parameters():
        lines.append(f"init {name} {parameter} {known(value)}")
    net.double()
    criterion = torch.nn.MSELoss() if loss == "mse" else torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        answers = y[rows].double() if loss == "mse" else y[rows]
        value = criterion(net(x[rows].double()), answers)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        lines.append(f"loss {name} {step} {value.item():.17g}")
    return lines


def main():
    torch.set_num_threads(1)
    lines = [
        f"# {SAMPLES} samples, batches of {BATCH} in order; after torch.manual_seed: randn of the samples, then randint",
        "# of the labels (int32) or randn of the targets; after torch.manual_seed again: the model.",
        "# samples, answers, init: FNV-1a of the little-endian bytes, and the first two words; loss: step, mean in float64",
    ]
    for case in CASES:
        lines += make(*case)
    lines += tiny()
    write(__file__, "random data sets, and the models simple and complex trained on them, 1 thread", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
