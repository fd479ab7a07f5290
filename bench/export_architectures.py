"""Prints a table of the architectures that duet.export writes: small, with random weights.

    PYTHONPATH=python python bench/export_architectures.py [NAME...]

Needs torch, torchvision, timm and transformers; NAME is a part of a row's name, as timm/ or bert.
Each is written, compared with PyTorch's float64 (difference is relative to the bound, so 1 is the
most), and trained with single, DP and DDP on two devices, whose bits are compared. The exit status
is 1 if a row is neither equal nor refused in one line.
"""

import math
import pathlib
import sys
import tempfile
import time
import unittest.mock
import warnings

import torch
from torch import nn
from torch.nn import functional as F

import duet

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/python"))
import nets  # noqa: E402
from duet.export.verify import verify

ROWS = {}


def row(name, build, *inputs):
    ROWS[name] = build, inputs


def picture(size=64, channels=3):
    return lambda: torch.randn(4, channels, size, size)


def numbers(*shape):
    return lambda: torch.randn(4, *shape)


def words(*shape, below=64):
    return lambda: torch.randint(2, below, (4, *shape))


def padding(length=12):
    """The attention_mask of sequences of different lengths."""
    def made():
        lengths = torch.tensor([[length], [9], [7], [length - 1]])
        return (torch.arange(length)[None] < lengths).long()
    return made


class Called(nn.Module):
    """A model called with keywords; one of its outputs is the result."""

    def __init__(self, model, names, result, fixed=None):
        super().__init__()
        self.model, self.names, self.result, self.fixed = model, names, result, fixed or {}

    def forward(self, *given):
        return self.result(self.model(**dict(zip(self.names, given)), **self.fixed))


def torchvision_rows():
    def model(name, size=64, result=None, **settings):
        def build():
            import torchvision
            net = torchvision.models.get_model(name, weights=None, num_classes=10, **settings)
            for part in net.modules():
                if isinstance(part, torchvision.ops.StochasticDepth):
                    part.p = 0.0  # random values cannot be compared
            return Called(net, ["x"], result) if result else net
        row(f"torchvision/{name}", build, picture(size))
    for name in ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x0_5",
                 "squeezenet1_1", "mnasnet0_5", "efficientnet_b0", "regnet_x_400mf", "densenet121",
                 "convnext_tiny", "swin_t"):
        model(name)
    model("vit_b_16", 32, image_size=32)
    model("googlenet", 64, aux_logits=False, init_weights=False)
    for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large"):
        model(name, 32, lambda y: y["out"], weights_backbone=None)


def timm_rows():
    def model(name, size=64, **settings):
        def build():
            import timm
            return timm.create_model(name, pretrained=False, num_classes=10, **settings)
        row(f"timm/{name}", build, picture(size))
    for name in ("resnet18", "resnet26d", "regnetx_002", "regnety_002", "efficientnet_b0",
                 "tf_efficientnetv2_b0", "mobilenetv2_050", "mobilenetv3_small_050",
                 "convnext_atto", "convnextv2_atto", "poolformer_s12"):
        model(name)
    small = dict(img_size=64, embed_dim=48, depth=2, num_heads=3)
    for name in ("vit_tiny_patch16_224", "deit_tiny_patch16_224",
                 "deit_tiny_distilled_patch16_224", "beit_base_patch16_224",
                 "xcit_nano_12_p16_224"):
        model(name, **small)
    model("swin_tiny_patch4_window7_224", img_size=64, window_size=4, embed_dim=24,
          depths=(2, 2), num_heads=(2, 4), drop_path_rate=0.0)
    model("maxvit_rmlp_pico_rw_256", 64, img_size=64)
    model("mixer_s32_224", 64, img_size=64)
    model("levit_128s", 224)


# transformers: class, configuration and its settings, the arguments of a call, and the result.
_TINY = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
             intermediate_size=48)
_SHARED = dict(_TINY, num_key_value_heads=2, head_dim=8, pad_token_id=0)
_ENCODERS = {"Bert": _TINY, "Roberta": dict(_TINY, pad_token_id=1), "Electra": dict(
    _TINY, embedding_size=16), "Albert": dict(_TINY, embedding_size=16),
    "DistilBert": dict(vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=48)}
_DECODERS = {
    "GPT2LMHead GPT2": dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    "OPTForCausalLM OPT": dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, ffn_dim=48,
                               num_attention_heads=4, word_embed_proj_dim=32,
                               max_position_embeddings=32),
    "GPTNeoXForCausalLM GPTNeoX": _TINY, "LlamaForCausalLM Llama": _SHARED,
    "MistralForCausalLM Mistral": dict(_SHARED, sliding_window=8),
    "Qwen2ForCausalLM Qwen2": _SHARED, "Qwen3ForCausalLM Qwen3": _SHARED,
    "PhiForCausalLM Phi": dict(_TINY, pad_token_id=0),
    "GemmaForCausalLM Gemma": _SHARED}


def transformers_rows():
    def build(kind, config, settings, names, result, fixed):
        import transformers
        made = getattr(transformers, kind)(getattr(transformers, f"{config}Config")(**settings))
        return Called(made, names, result, fixed)

    def model(kind, config, settings, names, result, *inputs, fixed=None):
        row(f"transformers/{kind}", lambda: build(kind, config, settings, names, result, fixed),
            *inputs)
    both = ["input_ids", "attention_mask"]
    for name, settings in _ENCODERS.items():
        model(f"{name}ForSequenceClassification", name, settings, both, lambda y: y.logits,
              words(12), padding())
    for kind, settings in _DECODERS.items():
        kind, config = kind.split()
        model(kind + ("Model" if config == "GPT2" else ""), config, settings, both,
              lambda y: y.logits.transpose(1, 2), words(12), padding(), fixed={"use_cache": False})
    names = [*both, "decoder_input_ids"]
    for kind, config, settings in (
            ("T5ForConditionalGeneration", "T5", dict(vocab_size=64, d_model=32, d_kv=8, d_ff=48,
                                                      num_layers=2, num_heads=4)),
            ("BartForConditionalGeneration", "Bart", dict(
                vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=48,
                decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4,
                max_position_embeddings=32))):
        model(kind, config, settings, names, lambda y: y.logits.transpose(1, 2), words(12),
              padding(), words(7), fixed={"use_cache": False})
    sight = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                 image_size=32, patch_size=8)
    model("ViTForImageClassification", "ViT", sight, ["pixel_values"], lambda y: y.logits,
          picture(32))
    text = dict(_TINY, max_position_embeddings=16, bos_token_id=0, eos_token_id=1)
    model("CLIPModel", "CLIP", dict(text_config=text, vision_config=sight, projection_dim=16),
          [*both, "pixel_values"], lambda y: y.text_embeds * y.image_embeds, words(12), padding(),
          picture(32))


def own(parts, *inputs):
    """A row for a net whose forward is the function below, called with layers m and inputs."""
    class Net(nn.Module):
        def __init__(self, forward):
            super().__init__()
            self.function = forward
            for name, part in parts().items():
                setattr(self, name, part)

        def forward(self, *x):
            return self.function(self, *x)
    return lambda forward: row(f"own/{forward.__name__}", lambda: Net(forward), *inputs)


@own(lambda: dict(mean=nn.Linear(48, 8), spread=nn.Linear(48, 8), back=nn.Linear(8, 48)),
     picture(4))
def vae(m, x):  # decodes the mean, because a random code could not be compared
    x = x.flatten(1)
    return torch.sigmoid(m.back(m.mean(x) * torch.exp(0.5 * m.spread(x))))


@own(lambda: dict(words=nn.Embedding(64, 16), head=nn.Linear(16, 64),
                  net=nn.Transformer(16, 2, 1, 1, 32, batch_first=True)), words(9), words(7))
def translator(m, source, target):
    causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
    y = m.net(m.words(source), m.words(target), tgt_mask=causal, tgt_is_causal=True,
              src_key_padding_mask=source == 2, memory_key_padding_mask=source == 2)
    return m.head(y).transpose(1, 2)


@own(lambda: dict(tables=nn.ModuleList(nn.Embedding(n, 8) for n in (20, 30, 40)),
                  low=nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8)),
                  high=nn.Linear(14, 1)), numbers(5), words(3, below=20))
def dlrm(m, dense, kinds):
    x = m.low(dense)
    rows = torch.stack([x, *(t(kinds[:, i]) for i, t in enumerate(m.tables))], 1)
    i, j = torch.tril_indices(4, 4, -1)
    return m.high(torch.cat([x, torch.bmm(rows, rows.transpose(1, 2))[:, i, j]], 1))


@own(lambda: dict(one=nn.Embedding(60, 1), two=nn.Embedding(60, 8), deep=nn.Sequential(
    nn.Linear(24, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))), words(3, below=20))
def deepfm(m, kinds):
    kinds = kinds + torch.tensor([0, 20, 40])
    rows = m.two(kinds)
    pairs = 0.5 * (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True)
    return m.one(kinds).sum(1) + pairs + m.deep(rows.flatten(1))


@own(lambda: dict(each=nn.Sequential(
    nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1),
    nn.BatchNorm1d(32)), head=nn.Linear(32, 5)), numbers(20, 3))
def pointnet(m, points):
    return m.head(m.each(points.transpose(1, 2)).max(2)[0])


@own(lambda: dict(a=nn.Linear(6, 16), b=nn.Linear(16, 3)), numbers(7, 6), numbers(7, 7))
def gcn(m, nodes, edges):
    edges = torch.softmax(edges, 2)
    return m.b(edges @ torch.relu(m.a(edges @ nodes))).mean(1)


@own(lambda: dict(body=nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()),
                  density=nn.Linear(32, 1), color=nn.Linear(32, 3)), numbers(6, 3))
def nerf(m, points):
    waves = [f(2.0 ** i * math.pi * points) for i in range(4) for f in (torch.sin, torch.cos)]
    x = m.body(torch.cat([points, *waves], -1))
    alpha = 1 - torch.exp(-F.softplus(m.density(x)))
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-6], 1), 1)
    return (alpha * through[:, :-1] * torch.sigmoid(m.color(x))).sum(1)


@own(lambda: dict(side=nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                     nn.Flatten(), nn.Linear(8, 8))), picture(12), picture(12))
def siamese(m, a, b):
    a, b = m.side(a), m.side(b)
    return torch.stack([F.cosine_similarity(a, b), F.pairwise_distance(a, b)], 1)


@own(lambda: dict(body=nn.Sequential(nn.Conv2d(4, 8, 4, 2), nn.ReLU(), nn.Flatten(),
                                     nn.Linear(392, 16), nn.ReLU()),
                  value=nn.Linear(16, 1), advantage=nn.Linear(16, 5)),
     picture(16, 4), words(below=5))
def dqn(m, state, action):
    x = m.body(state)
    a = m.advantage(x)
    return (m.value(x) + a - a.mean(1, keepdim=True)).gather(1, action[:, None])


@own(lambda: dict(gate=nn.Linear(8, 4), experts=nn.ModuleList(nn.Linear(8, 6) for _ in range(4))),
     numbers(8))
def mixture(m, x):  # each expert sees all tokens; only the best two count
    best, which = m.gate(x).topk(2, 1)
    gates = torch.zeros(x.shape[0], 4).scatter(1, which, torch.softmax(best, 1))
    return (torch.stack([e(x) for e in m.experts], 1) * gates[:, :, None]).sum(1)


def gan_rows():
    norm = nn.utils.parametrizations.spectral_norm
    row("own/gan_critic", lambda: nn.Sequential(
        norm(nn.Conv2d(3, 8, 4, 2, 1)), nn.LeakyReLU(0.2), norm(nn.Conv2d(8, 8, 4, 2, 1)),
        nn.Flatten(), norm(nn.Linear(128, 1))), picture(16))
    row("own/gan_generator", lambda: nn.Sequential(
        nn.Linear(8, 64), nn.Unflatten(1, (16, 2, 2)), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()), numbers(8))
    for name in ("lstm", "gru", "u_net", "encoder_decoder"):
        row(f"own/{name}", nets.NETS[name][0], lambda name=name: nets.samples(name, 4))


def tried(name, folder):
    """The row of the table: its outcome, and whether that is acceptable."""
    build, inputs = ROWS[name]
    torch.manual_seed(1)
    net, inputs, path = build(), tuple(made() for made in inputs), folder / "net.duet"
    checked, begin = [], time.time()

    def timed(*given):
        checked.append(time.time())
        checked.append(verify(*given))
    try:
        with unittest.mock.patch("duet.export.verify.verify", timed):
            duet.export(net, inputs, path, quiet=True)
    except duet.DuetError as error:
        seconds, told = f"{time.time() - begin:6.1f} s", str(error)
        if checked:
            return f"{seconds}  DIFFERS: {told[:400]}", False
        return f"{seconds}  refused: {told.splitlines()[0][:150]}", True
    at, most = checked
    facts = f"{at - begin:6.1f} s  " + (f"{time.time() - at:5.1f} s verified  {most:.3f}" if most
                                        else "not verified: it is random")
    try:
        run = duet.compare(model=path, dataset="random", loss="mse", samples=8, batch_size=4,
                           steps=2, devices=2, lr=1e-3, progress=False, find_unused_parameters=True)
        equal = "identical to the bit" in run.output
        return f"{facts}  {'equal bits' if equal else 'BITS DIFFER'}", equal
    except duet.DuetError as error:
        return f"{facts}  FAILS: {str(error)[:150]}", False


def main(names):
    warnings.simplefilter("ignore")
    torchvision_rows(), timm_rows(), transformers_rows(), gan_rows()
    chosen = [name for name in ROWS if not names or any(part.lower() in name.lower()
                                                        for part in names)]
    counts = {"written": 0, "refused": 0, "wrong": 0}
    for name in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                text, fine = tried(name, pathlib.Path(folder))
            except Exception as error:
                text, fine = f"FAILS: {type(error).__name__}: {str(error)[:200]}", False
        counts["wrong" if not fine else "refused" if "refused" in text else "written"] += 1
        print(f"{name:48s} {text}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
