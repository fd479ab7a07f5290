"""Nets in which a sample temporarily has several rows, like a video's images; nets whose weights
other ops compute; windows; and parts that are written in place."""

import torch
from torch import nn
from torch.nn import functional as F


class Frames(nn.Module):
    """The images of a video as a batch, and an LSTM over the results."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
            nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, stride=2, groups=2), nn.GroupNorm(2, 8), nn.SiLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.over, self.head = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x):
        n, frames = x.shape[:2]
        y = self.net(x.flatten(0, 1)).view(n, frames, -1)
        return self.head(self.over(y)[0][:, -1])


class Pairs(nn.Module):
    """Both sides of a pair go through one net as one batch, and triples through another."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),
                                 nn.AdaptiveMaxPool2d(2), nn.Flatten())
        self.out, self.head = nn.Linear(16, 8), nn.Linear(40, 10)
        self.token = nn.Parameter(torch.randn(1, 1, 4, 1))
        self.gain = nn.Parameter(torch.randn(16))

    def forward(self, x):
        n, (a, b) = x.shape[0], (x[:, :1], x[:, 1:])
        both = torch.cat([a, b])
        both = torch.cat([both, self.token.expand(2 * n, -1, -1, 8)], 2)
        both = self.net(both)
        transposed = both @ self.gain.diag().tanh() @ torch.eye(16, dtype=x.dtype).roll(1, 0)
        left, right = self.out(both + transposed).chunk(2)
        three = self.out(self.net(torch.cat((b, a * 2, a - b), 0))).softmax(1)
        joined = torch.stack([left, right], 0).mean(0)
        return self.head(torch.cat([left * right, joined, three[:n], three[n:2 * n],
                                    three[-n:]], 1))


class Repeats(nn.Module):
    """Each sample repeated several times, with trained queries."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(4, 6, 3, padding=1), nn.Linear(12, 10)
        self.queries, self.gain = nn.Parameter(torch.randn(1, 6, 5)), nn.Parameter(torch.ones(6, 1))

    def forward(self, x):
        n = x.shape[0]
        y = self.conv(x.repeat_interleave(3, 0)) + self.queries.expand(n * 3, -1, -1)
        y = y * (self.gain * 2) + torch.zeros(n * 3, 6, 1)
        y = y.reshape(n, 3, 6, 5).sum(1)
        z = self.conv(x.repeat(2, 1, 1)).view(2, n, 6, 5).mean(0)
        return self.head(torch.cat([y.mean(2), z.amax(2)], 1))


class SpaceAndTime(nn.Module):
    """Attention over the images, then within each; words of which each sample has several."""

    def __init__(self):
        super().__init__()
        self.over = nn.MultiheadAttention(8, 2, batch_first=True)
        self.within = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.words, self.of_words = nn.Embedding(9, 8), nn.GRU(8, 4, batch_first=True,
                                                               bidirectional=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        n, frames, places, c = x.shape
        y = x.transpose(1, 2).reshape(n * places, frames, c)
        y = y + self.over(y, y, y, need_weights=False)[0]
        y = y.view(n, places, frames, c).transpose(1, 2).reshape(n * frames, places, c)
        y = self.within(y).view(n, frames, places, c)
        tokens = (x[..., 0] > 0).long() + 2 * (x[..., 1] > 0).long()
        states, last = self.of_words(self.words(tokens.view(-1, places)))
        last = F.layer_norm(torch.cat((last[0], last[1]), 1), (8,)).view(n, frames, 8)
        return self.head(y.mean((1, 2)) + last.mean(1) + states.reshape(n, -1, 8).amax(1))


class ComputedWeights(nn.Module):
    """Convolutions with normed, standardised or scaled weights and with constants; positions that a
    convolution computes from a constant."""

    def __init__(self):
        super().__init__()
        normed = torch.nn.utils.parametrizations.weight_norm
        self.row = normed(nn.Conv1d(12, 6, 3, padding=2, dilation=2))
        self.grouped = normed(nn.Conv2d(4, 6, (3, 2), stride=2, groups=2))
        self.conv, self.gain = nn.Conv2d(3, 4, 3, padding=1), nn.Parameter(torch.rand(4, 1, 1, 1))
        self.places, self.head = nn.Conv2d(2, 4, 1), nn.Linear(10, 10)
        self.up = normed(nn.ConvTranspose2d(6, 4, (3, 2), stride=2, padding=1, groups=2))
        self.register_buffer("blur", torch.tensor([1.0, 2, 1]).outer(torch.tensor([1.0, 2, 1])) / 9)
        self.register_buffer("grid", torch.stack(torch.meshgrid(
            torch.linspace(-1, 1, 8), torch.linspace(0, 1, 8), indexing="ij"))[None])

    def forward(self, x):
        weight = self.conv.weight - self.conv.weight.mean((1, 2, 3), keepdim=True)
        weight = self.gain * weight / weight.square().mean((1, 2, 3), keepdim=True).sqrt()
        x = F.conv2d(x, weight, self.conv.bias, padding=1) + self.places(self.grid)
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.blur.expand(4, 1, 3, 3), groups=4)
        x = F.gelu(self.grouped(x))  # (N, 6, 3, 4)
        y = self.row(x.flatten(1, 2)[:, 3:15]).mean(2)
        return self.head(torch.cat([y, self.up(x).amax((2, 3))], 1))


class Written(nn.Module):
    """Parts of a tensor are written in place, and other parts read."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 10)
        self.scale = nn.Parameter(torch.randn(2))

    def forward(self, x):
        raw = x * 1
        part = raw[:, 1]
        raw[:, 1:3].multiply_(2)  # which PyTorch expresses by another op
        x = raw + part[:, None]
        y = self.first(x)
        y = F.mish(y * 1, inplace=True) + F.selu(y * 2, inplace=True) + F.celu(y, 0.5, inplace=True)
        y[:, 1].subtract_(self.scale[0])  # (N, 4, 8)
        left, right = y[:, :, :4], y[:, :, 4:]
        left.mul_(2).add_(right)
        y[:, 0] = 0.5
        y[:, 1:3, 2:4] = x[:, 1:3, :2] * self.scale
        y[:, 3, -1] += y[:, 2, 1]
        y.transpose(1, 2)[:, 5].clamp_(-1, 1)
        y[y > 2] = 2.0
        y[:, :, 6].zero_()
        with torch.autocast("cpu", enabled=False):
            z = right.tanh()
        return self.head(torch.cat([left.view(-1, 4, 2, 2).flatten(2), z], 2).mean(1))


class RelativePlaces(nn.Module):
    """Attention whose scores have terms for a query's row and column, as in MViT."""

    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(6, 12), nn.Linear(4, 10)
        self.rows, self.columns = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5, 4))
        side = torch.arange(3)
        self.register_buffer("far", side[:, None] - side + 2)

    def forward(self, x):
        n = x.shape[0]
        q, k, v = self.qkv(x).reshape(n, 10, 3, 2, 2).permute(2, 0, 3, 1, 4).flatten(3).flatten(
            2, 3).unflatten(2, (10, 4))
        q, k, v = q[:, None], k[:, None], v[:, None]
        scores = q @ k.transpose(-2, -1)
        grid = q[:, :, 1:].reshape(n, 1, 3, 3, 4)
        of_rows = torch.einsum("bnhwc,hkc->bnhwk", grid, self.rows[self.far])
        by_column = grid.permute(3, 0, 1, 2, 4).reshape(3, n * 3, 4)
        of_columns = torch.matmul(by_column, self.columns[self.far].transpose(1, 2)).reshape(
            3, n, 1, 3, 3).permute(1, 2, 3, 0, 4)
        places = scores[:, :, 1:, 1:].view(n, -1, 3, 3, 3, 3) + of_rows[..., :, None]
        scores[:, :, 1:, 1:] = (places + of_columns[..., None, :]).view(n, -1, 9, 9)
        return self.head((scores.softmax(-1) @ v).mean((1, 2)))


class LastWords(nn.Module):
    """Attention with biases by head and distance, a row for each head; and of each sample the words
    at places that are computed."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv = nn.Embedding(20, 8), nn.Linear(8, 24)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        n, length = x.shape
        q, k, v = self.qkv(self.words(x)).view(n, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q, k, v = (y.reshape(n * 2, length, 4) for y in (q, k, v))
        slopes = torch.tensor([0.5, 0.25], dtype=q.dtype)[None, :, None]
        far = (torch.ones(n, length, dtype=q.dtype).cumsum(-1) - 1)[:, None] * slopes
        scores = far.reshape(n * 2, 1, length).baddbmm(q, k.transpose(1, 2), beta=1.0, alpha=0.5)
        y = torch.bmm(scores.softmax(-1), v).view(n, 2, length, 4).transpose(1, 2).flatten(2)
        last = (torch.arange(length) * (x > 4)).argmax(-1)
        two = torch.stack([last // 2, last], 1)
        each = torch.arange(n)
        return self.head(torch.cat([y[each, last], y[each[:, None], two].mean(1)], 1))


class Experts(nn.Module):
    """Words that each go to two of four experts, whose weights are rows of a parameter; norms with
    computed weights."""

    def __init__(self):
        super().__init__()
        self.words, self.route, self.norm = nn.Embedding(20, 8), nn.Linear(8, 4), nn.LayerNorm(8)
        self.up, self.down = nn.Parameter(torch.randn(4, 6, 8)), nn.Parameter(torch.randn(4, 8, 6))
        self.gate, self.head = nn.Linear(8, 1), nn.Linear(8, 10)
        self.register_buffer("table", torch.randn(4, 8))

    def forward(self, x):
        y = self.words(x)
        y = F.layer_norm(y, (8,), 1 + self.norm.weight, self.norm.bias)
        rows = y.reshape(-1, 8)
        share, chosen = self.route(rows).softmax(-1).topk(2)
        chosen, each = chosen.reshape(-1), rows.repeat_interleave(2, 0)
        hidden = torch.bmm(self.up[chosen], each.unsqueeze(-1)).squeeze(-1).relu()
        hidden = torch.bmm(self.down[chosen], hidden.unsqueeze(-1)).squeeze(-1)
        hidden = (hidden + self.table[chosen]) * share.reshape(-1, 1)
        mixed = hidden.view(-1, 2, 8).sum(1) + torch.sigmoid(self.gate(rows)) * rows
        mixed = F.batch_norm(mixed.view(*x.shape, 8).transpose(1, 2), None, None,
                             self.norm.weight * 2, training=True)
        return self.head(F.group_norm(mixed, 2, self.norm.weight.exp()).mean(2))


NETS = {"last_words": (LastWords, (12,)), "experts": (Experts, (12,)),
        "frames": (Frames, (3, 2, 12, 12)), "pairs": (Pairs, (2, 8, 8)),
        "repeats": (Repeats, (4, 5)), "space_and_time": (SpaceAndTime, (3, 4, 8)),
        "computed_weights": (ComputedWeights, (3, 8, 8)),
        "written": (Written, (4, 6)), "relative_places": (RelativePlaces, (10, 6))}
