#!/usr/bin/env python3
"""Writes models/nets/*.duet: the nets that `duet estimate` knows by name, as graphs.

    python3 scripts/make_nets.py [NAME...]

Needs torch and torchvision. Nothing is computed: the nets are traced on meta tensors. The graphs
are those of duet.export, but with symbols for sizes: C is the number of classes, D, H and W are the
three sizes of a sample, and ? is a size that the op infers. """
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision
from torch import fx, nn

NETS = pathlib.Path(__file__).parent.parent / "models" / "nets"
SAMPLES, CLASSES, TOKENS = 3, 1013, 131  # primes: no other size of a net is one of them


# ---- transformers ----

class Block(nn.Module):
    def __init__(self, width, heads, norm_first):
        super().__init__()
        self.width, self.heads, self.norm_first = width, heads, norm_first
        self.norm1 = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        d, h = self.width, self.heads
        x = self.qkv(x).split(d, 2)
        q, k, v = (x[i].reshape(SAMPLES, TOKENS, h, d // h).transpose(1, 2) for i in range(3))
        s = torch.matmul(q, k.transpose(2, 3)) * math.sqrt(h / d)
        s = F.softmax(s + 0, -1)  # moves as many bytes as a mask
        x = torch.matmul(F.dropout(s, 0.1), v)
        return self.out(x.transpose(1, 2).reshape(SAMPLES, TOKENS, d))

    def mlp(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        for norm, part in (self.norm1, self.attention), (self.norm2, self.mlp):
            h = F.dropout(part(norm(x) if self.norm_first else x), 0.1)
            x = x + h if self.norm_first else norm(x + h)
        return x


class Transformer(nn.Module):
    """GPT-2, which predicts each token; BERT, which predicts `masked` tokens. BERT lacks the pooler
    and the sentence pairs, 0.5 % of its parameters. A causal mask counts as one more pass over the
    scores. One row per sample: the loss moves as many bytes as one over T rows of V."""

    def __init__(self, layers, width, heads, vocabulary, positions, masked=0):
        super().__init__()
        self.masked = masked
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.norm = nn.LayerNorm(width)
        self.block = nn.ModuleList(Block(width, heads, not masked) for _ in range(layers))
        if masked:
            self.head = nn.Module()
            self.head.dense, self.head.norm = nn.Linear(width, width), nn.LayerNorm(width)
            self.head.bias = nn.Parameter(torch.empty(vocabulary))

    def forward(self, tokens):
        indices = self.positions(tokens)
        x = self.words(tokens) + indices
        x = F.dropout(self.norm(x) if self.masked else x, 0.1)
        for block in self.block:
            x = block(x)
        if not self.masked:
            return F.linear(self.norm(x), self.words.weight).flatten(1)
        x = self.head.norm(F.gelu(self.head.dense(torch.narrow(x, 1, 0, self.masked))))
        return F.linear(x, self.words.weight, self.head.bias).flatten(1)


def vision(name):
    return lambda: torchvision.models.get_model(name, weights=None, num_classes=CLASSES)


MODELS = {
    "torchvision-resnet18": vision("resnet18"), **{name: vision(name) for name in (
        "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
        "wide_resnet50_2", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "densenet121",
        "squeezenet1_0", "mobilenet_v2", "efficientnet_b0")},
    "resnext101_32x4d": lambda: torchvision.models.ResNet( # the net of NVIDIA; torchvision has none
        torchvision.models.resnet.Bottleneck, [3, 4, 23, 3], CLASSES, groups=32, width_per_group=4),
    "gpt2-small": lambda: Transformer(12, 768, 12, 50257, 1024),
    "gpt2-medium": lambda: Transformer(24, 1024, 16, 50257, 1024),
    "gpt2-large": lambda: Transformer(36, 1280, 20, 50257, 1024),
    "gpt2-xl": lambda: Transformer(48, 1600, 25, 50257, 1024),
    "gpt-18.9m": lambda: Transformer(6, 512, 8, 28, 128),
    "bert-base": lambda: Transformer(12, 768, 12, 30522, 512, masked=20),
    "bert-large": lambda: Transformer(24, 1024, 16, 30522, 512, masked=20),
}


# ---- sizes ----

def size_of(n):
    """A size of one net, as in a graph for all sizes."""
    if n == CLASSES:
        return "C"
    return f"{n // TOKENS if n != TOKENS else ''}D" if n % TOKENS == 0 else str(n)


def type_of(shape):
    """The shape of a value; the sides of its planes follow from the sample's."""
    sizes = ["N", *map(size_of, shape[1:])]
    planes = len(shape) == 4 and shape[2] != TOKENS and shape[3] != TOKENS and TOKENS not in shape
    if planes:
        sizes[2:] = "??"
    return f"f32[{', '.join(sizes)}]"


def pair(x):
    if not isinstance(x, tuple):
        return x
    return x[0] if len(set(x)) == 1 else list(x)


# ---- ops ----

def of_module(m, name):
    """The op of a layer: its name, its parameters and its settings."""
    weight = f"{name}.weight"
    bias = f"{name}.bias" if getattr(m, "bias", None) is not None else "none"
    if isinstance(m, nn.Conv2d):
        stride = {} if m.stride == (1, 1) else dict(stride=pair(m.stride))
        return "conv2d", [weight, bias], stride | dict(padding=pair(m.padding), groups=m.groups)
    if isinstance(m, nn.BatchNorm2d):
        buffers = [f"{name}.{b}" for b, _ in m.named_buffers()]
        return "batch_norm", [weight, bias, *buffers], dict(eps=m.eps, momentum=m.momentum)
    if isinstance(m, nn.LayerNorm):
        return "layer_norm", [weight, bias], dict(shape=list(m.normalized_shape), eps=m.eps)
    if isinstance(m, nn.Linear):
        return "linear", [weight, bias], {}
    if isinstance(m, nn.Embedding):
        return "embedding", [weight], {}
    if isinstance(m, nn.MaxPool2d):
        return "max_pool2d", [], dict(size=m.kernel_size, stride=m.stride, padding=m.padding,
                                      ceil_mode=int(m.ceil_mode))
    if isinstance(m, nn.AvgPool2d):
        return "avg_pool2d", [], dict(size=m.kernel_size, stride=m.stride)
    if isinstance(m, nn.AdaptiveAvgPool2d):
        return "adaptive_avg_pool2d", [], dict(size=pair(m.output_size))
    if isinstance(m, nn.Dropout):
        return "dropout", [], dict(p=m.p)
    in_place = isinstance(m, (nn.ReLU6, nn.SiLU)) and m.inplace
    return type(m).__name__.lower(), [], dict(inplace=1) if in_place else {}  # also ReLU, Sigmoid


DEFAULTS = dict(padding=0, groups=1, ceil_mode=0, eps=1e-5, momentum=0.1, p=0.5)
FUNCTIONS = {"relu": (), "gelu": (), "flatten": (), "reshape": (), "add": (), "iadd": (), "cat": (),
             "matmul": (), "linear": (), "softmax": (), "dropout": ("p",),
             "narrow": ("dim", "start", "length"), "transpose": ("dim0", "dim1"),
             "adaptive_avg_pool2d": ("size",), "mul": ("number",)}


def of_function(node):
    """The op of a function, with its operands and its settings."""
    name = node.target if isinstance(node.target, str) else node.target.__name__
    vars = [x for x in node.all_input_nodes]
    rest = [x for x in node.args if not isinstance(x, (fx.Node, list, tuple))]
    rest += [x for x in node.args if isinstance(x, tuple)]
    if name == "cat":
        return "cat", vars, dict(dim=1)
    if name == "mul" and len(vars) == 2:
        return "multiply", vars, {}
    if name == "getitem":  # one part of a split
        split, size, dim = vars[0].args
        return "narrow", [split], dict(dim=dim, start=node.args[1] * size, length=size)
    if name in ("add", "iadd") and len(vars) == 1:
        return "add_number", vars, dict(number=rest[0])
    settings = dict(zip(FUNCTIONS[name], map(pair, [*rest, *(node.kwargs.get(key) for key in
                                                           FUNCTIONS[name][len(rest):])])))
    return {"iadd": "add", "mul": "multiply_number"}.get(name, name), vars, settings


def beside_their_sum(nodes):
    """Moves a norm that is the first term of a sum right before it: Duet does both in one pass."""
    nodes = list(nodes)
    for add in [x for x in nodes if "add" in str(x.target)]:
        norm = add.args[0]
        if isinstance(norm, fx.Node) and "bn" in norm.name and len(norm.users) == 1:
            nodes.remove(norm)
            nodes.insert(nodes.index(add), norm)
    return nodes


def text_of(net, example):
    traced = fx.symbolic_trace(net.train())
    values, seen = {}, {}

    class Shapes(fx.Interpreter):
        def run_node(self, node):
            out = super().run_node(node)
            values[node.name] = getattr(out, "shape", None)
            return out

    Shapes(traced).run(example)
    lines = ["duet 1", f"input %x: f32[{', '.join(['N', *'DHW'[:example.dim() - 1]])}]"]
    first = next(iter(net.parameters()))
    for name, p in net.named_parameters():
        sizes = ["D" if p is first and p.dim() == 4 and i == 1 else size_of(n)
                 for i, n in enumerate(p.shape)]
        lines.append(f"parameter {name}: f32[{', '.join(sizes)}]")
    for name, b in net.named_buffers():
        lines.append(f"buffer {name}: {f'f32[{len(b)}]' if b.dim() else 'i64[]'}")
    modules = dict(net.named_modules())
    for node in beside_their_sum(traced.graph.nodes):
        if node.op == "placeholder":
            seen[node] = "%x"
        elif node.op == "get_attr":
            seen[node] = node.target
        elif node.target == "split":
            continue
        elif "stochastic_depth" in str(node.target):  # timm and NVIDIA train without it
            seen[node] = seen[node.args[0]]
        elif node.op == "output":
            lines.append(f"return {seen[node.args[0]]}")
        else:
            if node.op == "call_module":
                op, tensors, settings = of_module(modules[node.target], node.target)
                operands = [seen[node.args[0]], *tensors]
            else:
                op, vars, settings = of_function(node)
                operands = [seen[x] for x in vars] + ["none"] * (op == "linear" and len(vars) < 3)
            seen[node] = f"%{len(seen)}"
            given = operands + [f"{k}={v}" for k, v in settings.items() if DEFAULTS.get(k) != v]
            lines.append(f"{seen[node]}: {type_of(values[node.name])} = {op}({', '.join(given)})")
    return "\n".join([*lines, ""])


def main():
    for name in sys.argv[1:] or MODELS:
        with torch.device("meta"):
            net = MODELS[name]()
            tokens = isinstance(net, Transformer)
            example = torch.zeros(SAMPLES, TOKENS, dtype=torch.int64) if tokens else \
                torch.zeros(SAMPLES, 3, 224, 224)
            (NETS / f"{name}.duet").write_text(text_of(net, example))


if __name__ == "__main__":
    main()
