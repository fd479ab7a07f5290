"""Counts the operations of a training step with PyTorch's profiler, for
tests/golden/operations.txt.

Forward counts operators that no other operator calls, including cross entropy, without views and
without dropout of p = 0, which returns its input; and the copies that a reshape or a product makes
of another layout. Backward counts nodes that the engine evaluates, without views, and its additions
of gradients to others. The first transformers are those of scripts/make_nets.py. Those of Hugging
Face are as deep as the originals, but narrow, and exported to tests/golden/exported/. Their
attention has no dropout: with dropout it is one operation on a GPU, but not on a CPU. Casts are the
copies to another type that autocast makes in forward, and their nodes in backward, on GPU tensors
without memory.
"""
import pathlib
import sys

import torch
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import transformers

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "python")]
import duet  # noqa: E402
import make_nets  # noqa: E402

MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d", "wide_resnet50_2",
          "vgg16", "vgg16_bn", "densenet121", "squeezenet1_0", "mobilenet_v2", "efficientnet_b0")
TRANSFORMERS = ("gpt-18.9m", "gpt2-small", "gpt2-medium", "bert-base", "bert-large")
VIEWS = {"aten::" + name for name in (
    "alias", "chunk", "contiguous", "detach", "expand", "flatten", "lift_fresh", "narrow",
    "permute", "reshape", "select", "slice", "split", "t", "to", "transpose", "unsqueeze", "view")}
VIEW_NODES = {name + "Backward0" for name in (
    "Expand", "Permute", "ReshapeAlias", "T", "Transpose", "UnsafeView", "Unsqueeze", "View")}
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
                 and (e.name != "aten::dropout" or e.cpu_children) or e.name == "aten::clone"]
    nodes = [e for e in backward.events() if e.name.startswith(ENGINE)
             and e.name[len(ENGINE):] not in VIEW_NODES]
    additions = [e for e in backward.events() if e.name.startswith("aten::add")
                 and is_called_by(e, ENGINE)]
    return len(operators), len(nodes) + len(additions)


class Copies(TorchDispatchMode):
    forward = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.forward += func is torch.ops.aten._to_copy.default
        return func(*args, **(kwargs or {}))


def casts(make, example):
    with FakeTensorMode(), torch.device("cuda"):
        net, x, labels = make(), example(), torch.zeros(2, dtype=torch.long)
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        torch.autocast_increment_nesting()  # weights are copied once
        with Copies() as copies:
            loss = torch.nn.functional.cross_entropy(net(x), labels)
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled("cuda", False)
        nodes, left = set(), [loss.grad_fn]
        while left:
            node = left.pop()
            if node is not None and node not in nodes:
                nodes.add(node)
                left += [before for before, _ in node.next_functions]
    return copies.forward, sum("ToCopy" in node.name() for node in nodes)


class Logits(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).logits.flatten(1)


def hugging_face():
    hf = transformers
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "attention_probs_dropout_prob": 0.0}
    ids = torch.randint(3, 100, (2, 16))
    yield "hf-bert", hf.BertForSequenceClassification(
        hf.BertConfig(vocab_size=100, intermediate_size=256, **sizes)), ids
    yield "hf-gpt2", hf.GPT2LMHeadModel(hf.GPT2Config(
        vocab_size=100, n_embd=64, n_head=4, n_positions=64, use_cache=False, attn_pdrop=0.0)), ids
    yield "hf-distilbert", hf.DistilBertForSequenceClassification(hf.DistilBertConfig(
        vocab_size=100, dim=64, n_heads=4, hidden_dim=256, attention_dropout=0.0)), ids
    yield "hf-opt", hf.OPTForSequenceClassification(hf.OPTConfig(
        vocab_size=100, hidden_size=64, num_attention_heads=4, ffn_dim=256, use_cache=False,
        word_embed_proj_dim=64, max_position_embeddings=64, attention_dropout=0.0)), ids
    yield "hf-vit", hf.ViTForImageClassification(hf.ViTConfig(
        intermediate_size=256, image_size=32, patch_size=8, **sizes)), torch.randn(2, 3, 32, 32)


make_nets.SAMPLES, make_nets.TOKENS = 2, 32
print(f"# PyTorch {torch.__version__.split('+')[0]}, torchvision "
      f"{torchvision.__version__.split('+')[0]}: model, forward, backward")
for name in MODELS:
    drop = {"stochastic_depth_prob": 0.0} if name == "efficientnet_b0" else {}
    print(name, *count(torchvision.models.get_model(name, **drop), torch.randn(2, 3, 64, 64)))
for name in TRANSFORMERS:
    print(name, *count(make_nets.MODELS[name](), torch.randint(0, 28, (2, make_nets.TOKENS))))
for name, net, x in hugging_face():
    net = Logits(net).train()
    path = ROOT / "tests/golden/exported" / f"{name}.duet"
    print(name, *count(net, x))
    duet.export(net, x, path, verify=False)
    path.with_suffix(".safetensors").unlink()
print("resnet18", *casts(torchvision.models.resnet18, lambda: torch.randn(2, 3, 64, 64)), "casts")
for name in "gpt2-small", "bert-base":
    print(name, *casts(make_nets.MODELS[name],
                       lambda: torch.randint(0, 28, (2, make_nets.TOKENS))), "casts")
