"""Operations of a training step as PyTorch's profiler counts them, for tests/golden/operations.txt.

Forward: operators that no other operator calls, cross entropy among them, without views; and the
copies that a reshape or a product makes of what lies otherwise.
Backward: nodes that the engine evaluates, without views, and its additions of gradients to others.
The transformers are those of scripts/make_nets.py.
"""
import pathlib
import sys

import torch
import torchvision
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))
import make_nets  # noqa: E402

MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d", "wide_resnet50_2",
          "vgg16", "vgg16_bn", "densenet121", "squeezenet1_0")
TRANSFORMERS = ("gpt-18.9m", "gpt2-small", "gpt2-medium", "bert-base", "bert-large")
VIEWS = {"aten::view", "aten::flatten", "aten::reshape", "aten::t", "aten::narrow",
         "aten::transpose"}
VIEW_NODES = {"TBackward0", "ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0",
              "ExpandBackward0", "TransposeBackward0"}
ENGINE = "autograd::engine::evaluate_function: "


def is_called_by(event, prefix):
    return event.cpu_parent is not None and event.cpu_parent.name.startswith(prefix)


def count(model, x):
    labels = torch.tensor([0, 1])
    with profile(activities=[ProfilerActivity.CPU]) as forward:
        loss = torch.nn.functional.cross_entropy(model(x), labels)
    with profile(activities=[ProfilerActivity.CPU]) as backward:
        loss.backward()
    operators = [e for e in forward.events() if e.name.startswith("aten::")
                 and e.name not in VIEWS and not is_called_by(e, "aten::")
                 or e.name == "aten::clone"]
    nodes = [e for e in backward.events() if e.name.startswith(ENGINE)
             and e.name[len(ENGINE):] not in VIEW_NODES]
    additions = [e for e in backward.events() if e.name.startswith("aten::add")
                 and is_called_by(e, ENGINE)]
    return len(operators), len(nodes) + len(additions)


make_nets.SAMPLES, make_nets.TOKENS = 2, 32
print(f"# PyTorch {torch.__version__.split('+')[0]}, torchvision "
      f"{torchvision.__version__.split('+')[0]}: model, forward, backward")
for name in MODELS:
    print(name, *count(getattr(torchvision.models, name)(), torch.randn(2, 3, 64, 64)))
for name in TRANSFORMERS:
    print(name, *count(make_nets.MODELS[name](), torch.randint(0, 28, (2, make_nets.TOKENS))))
