"""Models at small widths for tests of duet.export; each has the structure that its name says."""

import torch
from torch import nn
from torch.nn import functional as F

import function_nets
import places_nets
import rows_nets
import transposed_nets
import user_nets


class Bottleneck(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or into != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(into, 4 * width, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * width))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def resnet50():
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), Bottleneck(8, 4, 1), Bottleneck(16, 4, 1), Bottleneck(16, 8, 2),
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(32, 10))


def vgg16_bn():
    layers, into = [], 3
    for width in (4, 4, 0, 8, 8, 0):
        if not width:
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(into, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True)]
        into = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((7, 7)), nn.Flatten(),
                         nn.Linear(8 * 49, 16), nn.ReLU(True), nn.Dropout(0.0), nn.Linear(16, 10))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1, bias=False)
                                   for i in range(3))
        self.transition = nn.Conv2d(20, 10, 1, bias=False)
        self.norm = nn.BatchNorm2d(10)
        self.head = nn.Linear(10, 10)

    def forward(self, x):
        features = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs):
            features.append(conv(F.relu(norm(torch.cat(features, 1)), inplace=True)))
        x = F.avg_pool2d(self.transition(torch.cat(features, 1)), 2, 2)
        x = F.relu(self.norm(x), inplace=True)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class TiedPerceptron(nn.Module):
    """A layer used three times under two names, and a learned scale."""

    def __init__(self):
        super().__init__()
        self.a, self.mix = nn.Linear(48, 10), nn.Linear(10, 10)
        self.again = self.mix
        self.scale = nn.Parameter(torch.full((10,), 0.5))

    def forward(self, x):
        x = torch.tanh(self.a(x.flatten(1)))
        x = x + self.scale * torch.tanh(self.mix(x))
        return self.again(torch.tanh(self.mix(x)))


class ResidualNet(nn.Module):
    """Residuals, a norm used twice, a mask that is a buffer, a view and an operation in place."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.scale = nn.Parameter(torch.ones(1, 4, 1, 1))
        self.register_buffer("mask", torch.linspace(0, 1, 16))
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        y = self.norm(self.norm(self.conv(x)))
        y += x.mean(1, keepdim=True) * self.scale
        y = torch.relu(y)
        y = y * self.mask.view(1, 1, 1, 16) + torch.arange(4).view(4, 1, 1) / 4
        return self.head(y.mean((2, 3)).view(x.shape[0], -1))


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.ReLU6(inplace=True))
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(inplace=True),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False), nn.BatchNorm2d(24),
            nn.ReLU6(inplace=True), nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Sequential(nn.Dropout(0.0), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block(x)
        return self.head(F.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1))


class EfficientNet(nn.Module):
    """Squeeze and excitation between depthwise convolutions, SiLU."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8),
                                  nn.SiLU(inplace=True))
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
                                   nn.BatchNorm2d(8), nn.SiLU(inplace=True))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.stem(x)
        y = self.depth(x)
        y = y * torch.sigmoid(self.fc2(F.silu(self.fc1(self.pool(y)))))
        return self.head((x + y).mean([2, 3]))


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.depth = nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm = nn.LayerNorm(8, eps=1e-6)
        self.wide, self.narrow = nn.Linear(8, 32), nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.1))
        self.head = nn.Sequential(nn.LayerNorm(8, eps=1e-6), nn.Linear(8, 10))

    def forward(self, x):
        x = self.stem(x)
        y = self.depth(x).permute(0, 2, 3, 1)
        y = self.narrow(F.gelu(self.wide(self.norm(y)))).permute(0, 3, 1, 2)
        return self.head((x + self.scale * y).mean([-2, -1]))


class ShuffleNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.branch = nn.Sequential(
            nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3, 1, 1, groups=4, bias=False), nn.BatchNorm2d(4),
            nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        a, b = x.chunk(2, dim=1)
        x = torch.cat((a, self.branch(b)), dim=1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h * w).transpose(1, 2).contiguous().view(n, c, h, w)
        return self.head(x.mean([2, 3]))


class Convolutions(nn.Module):
    """Windows of two sizes, dilation, strides and padding that differ by side, and sequences."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Conv2d(3, 4, (1, 3), padding=(0, 1), bias=False)
        self.columns = nn.Conv2d(4, 6, (3, 2), (2, 1), dilation=(2, 3), groups=2)
        self.even = nn.Conv2d(6, 6, 4, padding="same", groups=3)
        self.wide = nn.Conv1d(6, 4, 3, padding="same", dilation=2)
        self.narrow = nn.Conv1d(4, 8, 2, 3, 1, groups=4, bias=False)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = torch.tanh(self.columns(torch.tanh(self.rows(x))))
        x = torch.tanh(self.even(x)).flatten(2)
        return self.head(torch.tanh(self.narrow(torch.tanh(self.wide(x)))).mean(2))


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        q, k, v = (y.view(n, length, self.heads, -1).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, causal=False, gelu="none"):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(gelu),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 17, 16) * 0.02)
        self.block, self.norm, self.head = Block(16, 2), nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.norm(self.block(x))[:, 0])


class GPT2(nn.Module):
    """Predicts the next token with the token embedding's own table."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.block, self.norm = Block(16, 2, True, "tanh"), nn.LayerNorm(16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.block(self.wte(tokens) + self.wpe(places)))
        return self.head(x[:, -1])


class BERT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.norm = nn.LayerNorm(16, eps=1e-12)
        self.block, self.pool = Block(16, 2), nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)
        self.register_buffer("position_ids", torch.arange(12).expand(1, -1), persistent=False)

    def forward(self, tokens):
        x = self.norm(self.words(tokens) + self.places(self.position_ids[:, :tokens.shape[1]]))
        return self.head(torch.tanh(self.pool(self.block(x)[:, 0])))


class TransformerEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 10)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0][:, -1])


class GRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(16, 12, batch_first=True), nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.gru(x)[1][-1])


class BothWays(nn.Module):
    """Two layers of an LSTM, each in both directions."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0].mean(1))


class LastStates(nn.Module):
    """The last states of several layers, and layers without biases."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 6, 2, bias=False, batch_first=True, bidirectional=True)
        self.rnn = nn.RNN(16, 5, batch_first=True, nonlinearity="relu")
        self.head = nn.Linear(17, 10)

    def forward(self, x):
        h, c = self.lstm(x)[1]
        return self.head(torch.cat((c[1] + h[0] + h[2], c[-1], self.rnn(x)[1].squeeze(0)), 1))


class EncoderDecoder(nn.Module):
    """A decoder that starts with the last states of an encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTM(16, 6, batch_first=True)
        self.decoder = nn.LSTM(16, 6, batch_first=True)
        self.head = nn.Linear(6, 10)

    def forward(self, x):
        return self.head(self.decoder(x, self.encoder(x)[1])[0][:, -1])


class Masked(nn.Module):
    """Scores hidden by two masks; tokens that are cut and transposed before they are looked up."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 16), nn.Linear(16, 10)
        self.register_buffer("short", torch.arange(6) > 3)

    def forward(self, tokens):
        x = self.words(tokens.to(torch.int32)[:, 3:9].reshape(-1, 2, 3).transpose(1, 2).flatten(1))
        scores = (x @ x.transpose(1, 2)).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
        scores = scores.masked_fill(self.short, -torch.inf)
        return self.head((scores.softmax(2).masked_fill(self.short, 0.0) @ x).mean(1))


class Tensors(nn.Module):
    """A constant written in place between its uses, a name that a constant might have, a number as
    a parameter, a norm under two names, and casts."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(48, 12), nn.Linear(12, 10)
        self.norm = nn.BatchNorm1d(12)
        self.again = self.norm
        self.scale, self.constant = nn.Parameter(torch.tensor(1.5)), nn.ParameterList([
            nn.Parameter(torch.linspace(0, 1, 12))])
        self.twice = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x.flatten(1))) + self.constant[0])
        shift = torch.zeros(12)
        shift[3:] = 0.25
        y = self.again(x) + shift
        shift.mul_(2)
        y = y * (self.scale * self.twice) - shift * x.float().type_as(y)
        part = y[:, :6]
        part = part.clone()
        part.mul_(torch.arange(6).long() / 4)
        return self.head(torch.cat((part, y[:, 6:]), 1))


PICTURE, WORDS, ROWS = (3, 16, 16), (12,), (12, 16)
NETS = {  # its constructor, and a sample
    "residual": (ResidualNet, PICTURE), "tied": (TiedPerceptron, (3, 4, 4)),
    "resnet50": (resnet50, (3, 32, 32)), "vgg16_bn": (vgg16_bn, PICTURE),
    "densenet121": (DenseNet, PICTURE), "mobilenet_v2": (MobileNetV2, PICTURE),
    "efficientnet_b0": (EfficientNet, PICTURE), "convnext_tiny": (ConvNeXt, PICTURE),
    "shufflenet_v2": (ShuffleNetV2, PICTURE), "vit_b_16": (ViT, PICTURE),
    "convolutions": (Convolutions, PICTURE),
    "gpt2": (GPT2, WORDS), "bert": (BERT, WORDS), "transformer": (TransformerEncoder, ROWS),
    "lstm": (LSTM, WORDS), "gru": (GRU, ROWS), "both_ways": (BothWays, ROWS),
    "last_states": (LastStates, ROWS), "encoder_decoder": (EncoderDecoder, ROWS),
    "masked": (Masked, WORDS), "tensors": (Tensors, (3, 4, 4))}

for _more in (user_nets.NETS, transposed_nets.NETS, rows_nets.NETS, places_nets.NETS,
              function_nets.NETS, function_nets.RANDOM):
    assert NETS.keys().isdisjoint(_more), "two nets have one name"
    NETS.update(_more)


VOCABULARY = 20


def is_words(name):
    return NETS[name][1] == WORDS


def loss_of(name):
    return NETS[name][2] if len(NETS[name]) > 2 else "cross-entropy"


def samples(name, count):
    shape = NETS[name][1]
    if is_words(name):
        return torch.randint(0, VOCABULARY, (count, *shape))
    return torch.randn(count, *shape)
