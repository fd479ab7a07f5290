#!/usr/bin/env python3
"""Writes losses.txt: F.cross_entropy and F.nll_loss with class weights, ignored labels and
smoothing, for tests/core/nn/test_losses.c.

    python3 tests/golden/make_losses.py            needs torch, a second

Scores are float32; losses and gradients are computed in float64. nll_loss gets the scores as if
they were log-probabilities. All labels of "none" are ignored."""
import torch
import torch.nn.functional as F

from formulas import as_line, write

LABELS = {"inside": [0, 4, 2, 3, 1, 1, 3, 2, 3, 0, 2, 4], "outside": [0, 4, 2, -100, 1, 1, 3, 2, -100, 0, 2, 4], "none": [2] * 12}
CASES = [("weights", "inside", True, None), ("ignored", "outside", False, -100), ("ignored_class", "inside", False, 2),
         ("both", "outside", True, -100), ("ignored_of_weights", "inside", True, 4), ("all_ignored", "none", True, 2)]
classes = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.25])
lines = []


def line(name, t):
    lines.append(as_line(name, t, repr))


def case(name, loss, scores, labels, **options):
    x = scores.double().requires_grad_()
    mean = loss(x, torch.tensor(labels), **options)
    mean.backward()
    line(f"{name}_mean", mean)
    line(f"{name}_dx", x.grad)


torch.manual_seed(11)
scores = torch.randn(12, 5)
line("scores", scores)
line("classes", classes)
for name, labels in LABELS.items():
    line(name, torch.tensor(labels))
for kind, loss, more in (("cross_entropy", F.cross_entropy, {}), ("smoothed", F.cross_entropy, {"label_smoothing": 0.3}),
                         ("nll", F.nll_loss, {})):
    for name, labels, weighted, ignored in CASES:
        options = dict(more, **({"weight": classes.double()} if weighted else {}),
                       **({} if ignored is None else {"ignore_index": ignored}))
        case(f"{kind}_{name}", loss, scores, LABELS[labels], **options)
rows = torch.randn(6, 7) * torch.tensor([1.0, 3, 10, 0.1, 30, 1])[:, None]
labels = [1, 0, 5, 2, 5, 4]
line("rows_scores", rows)
line("rows", torch.tensor(labels))
for k, smoothing in enumerate((0.0, 0.1, 0.5, 1.0)):
    case(f"rows_{k}", F.cross_entropy, rows, labels, label_smoothing=smoothing)
write(__file__, "cross entropy and nll_loss with weights, ignored labels and smoothing, float64", lines)
