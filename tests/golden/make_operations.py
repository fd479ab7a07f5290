"""Operations of a training step as PyTorch's profiler counts them, for tests/golden/operations.txt.

Forward: operators that no other operator calls, cross entropy among them, without views.
Backward: nodes that the engine evaluates, without views, and its additions of gradients to others.
"""
import torch
import torchvision
from torch.profiler import ProfilerActivity, profile

MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d", "wide_resnet50_2",
          "vgg16", "vgg16_bn", "densenet121", "squeezenet1_0")
VIEWS = {"aten::view", "aten::flatten", "aten::reshape", "aten::t"}
VIEW_NODES = {"TBackward0", "ViewBackward0"}
ENGINE = "autograd::engine::evaluate_function: "


def is_called_by(event, prefix):
    return event.cpu_parent is not None and event.cpu_parent.name.startswith(prefix)


def count(model):
    x, labels = torch.randn(2, 3, 64, 64), torch.tensor([0, 1])
    with profile(activities=[ProfilerActivity.CPU]) as forward:
        loss = torch.nn.functional.cross_entropy(model(x), labels)
    with profile(activities=[ProfilerActivity.CPU]) as backward:
        loss.backward()
    operators = [e for e in forward.events() if e.name.startswith("aten::")
                 and e.name not in VIEWS and not is_called_by(e, "aten::")]
    nodes = [e for e in backward.events() if e.name.startswith(ENGINE)
             and e.name[len(ENGINE):] not in VIEW_NODES]
    additions = [e for e in backward.events() if e.name.startswith("aten::add")
                 and is_called_by(e, ENGINE)]
    return len(operators), len(nodes) + len(additions)


print(f"# PyTorch {torch.__version__.split('+')[0]}, torchvision "
      f"{torchvision.__version__.split('+')[0]}: model, forward, backward")
for name in MODELS:
    print(name, *count(getattr(torchvision.models, name)()))
