"""Writes class_weights.h: F.cross_entropy and F.nll_loss with weights of the classes and ignored labels, for
tests/api/test_class_weights.c.

    python3 tests/golden/make_class_weights.py > tests/golden/class_weights.h

The scores are randn(ROWS, CLASSES) after manual_seed(11), exact in float32; the labels are written out. Losses and
gradients are float64's. nll_loss is given the scores as they are, as if they were log-probabilities.
"""
import torch
import torch.nn.functional as F

ROWS, CLASSES = 12, 5
LABELS = [0, 4, 2, -100, 1, 1, 3, 2, -100, 0, 2, 4]
WEIGHTS = [0.5, 2.0, 1.0, 0.0, 3.25]

torch.manual_seed(11)
scores = torch.randn(ROWS, CLASSES)
inside = torch.tensor([3 if y < 0 else y for y in LABELS])  # no label but those of classes
outside = torch.tensor(LABELS)
none = torch.full((ROWS,), 2)


def words(values):
    return ", ".join(repr(v) for v in values)


def case(loss, labels, weighted, ignored, smoothing):
    x = scores.double().requires_grad_()
    more = {"label_smoothing": smoothing} if loss is F.cross_entropy else {}
    if ignored is not None:
        more["ignore_index"] = ignored
    if weighted:
        more["weight"] = torch.tensor(WEIGHTS).double()
    mean = loss(x, labels, **more)
    mean.backward()
    value = "NAN" if mean.isnan() else repr(mean.item())
    print(f"    {{{int(loss is F.nll_loss)}, {int(weighted)}, {int(ignored is not None)}, {ignored or 0}, {smoothing}, {value},")
    print(f"     {{{words(labels.tolist())}}},\n     {{{words(x.grad.flatten().tolist())}}}}},")


print("/* Made by tests/golden/make_class_weights.py with torch", torch.__version__.split("+")[0], "- do not edit. */")
print("// clang-format off")
print(f"enum {{ WEIGHTED_ROWS = {ROWS}, WEIGHTED_CLASSES = {CLASSES} }};")
print(f"static const float weighted_scores[] = {{{words(scores.flatten().tolist())}}};")
print(f"static const float weighted_classes[] = {{{words(WEIGHTS)}}};")
print("static const struct {\n    int nll, weighted, ignores, ignore_index;\n    double smoothing, mean;")
print("    int labels[WEIGHTED_ROWS];\n    double gradient[WEIGHTED_ROWS * WEIGHTED_CLASSES];\n} golden_weighted[] = {")
for loss in (F.cross_entropy, F.nll_loss):
    for smoothing in (0.0, 0.3) if loss is F.cross_entropy else (0.0,):
        case(loss, inside, True, None, smoothing)
        case(loss, outside, False, -100, smoothing)
        case(loss, inside, False, 2, smoothing)
        case(loss, outside, True, -100, smoothing)
        case(loss, inside, True, 4, smoothing)
        case(loss, none, True, 2, smoothing)
print("};")
