"""Nets that move the samples' dimension: merged with windows, or not in front, and einsum."""

import torch
from torch import nn
from torch.nn import functional as F


class FoldedWindows(nn.Module):
    """Windows that are folded into the samples, as torchvision's Swin has them: attention with a
    bias by places, in windows that are shifted and masked."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 2, 2), nn.LayerNorm(16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 10)
        self.bias = nn.Parameter(torch.randn(2, 16, 16))
        apart = torch.zeros(8, 8).index_fill(0, torch.tensor([6, 7]), 1.0)
        apart = apart.view(2, 4, 2, 4).permute(0, 2, 1, 3).reshape(4, 16)
        self.register_buffer("mask", -100.0 * (apart[:, None] != apart[:, :, None]))

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(self.norm(y)).reshape(-1, 16, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = (q * 8 ** -0.5) @ k.transpose(-2, -1) + self.bias
        scores = scores.view(n, 4, 2, 16, 16) + self.mask[:, None]
        scores = F.softmax(scores.view(-1, 2, 16, 16), -1)
        y = y + F.gelu(self.out((scores @ v).transpose(1, 2).reshape(-1, 16, c)))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return self.head((x + y).mean((1, 2)))


class CosineWindows(nn.Module):
    """Attention by cosines in folded windows, as torchvision's Swin V2 has it: keys without a bias,
    which is cleared in place, and a bias by places that layers compute; then windows of one place.
    """

    def __init__(self):
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 16, 2, 2), nn.Linear(2, 2, bias=False)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 10)
        self.scale = nn.Parameter(torch.full((2, 1, 1), 2.0))
        side = torch.arange(4)
        place = torch.cartesian_prod(side, side)
        apart = (place[:, None] - place[None] + 3).flatten(0, 1)
        self.register_buffer("index", apart[:, 0] * 7 + apart[:, 1])
        far = torch.arange(-3.0, 4)
        self.register_buffer("table", torch.cartesian_prod(far, far))

    def attention(self, x, bias=None):
        cleared = self.qkv.bias.clone()
        cleared[16:32].zero_()
        q, k, v = F.linear(x, self.qkv.weight, cleared).reshape(
            x.size(0), x.size(1), 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.scale, max=4.6).exp()
        scores = scores if bias is None else scores + bias
        return self.out((F.softmax(scores / 1.5, -1) @ v).transpose(1, 2).reshape(x.shape))

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        bias = self.places(self.table)[self.index].view(16, 16, 2).permute(2, 0, 1)
        y = y + self.attention(y, 16 * torch.sigmoid(bias).unsqueeze(0))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n * h * w, 1, c)
        for _ in range(2):
            y = y + self.attention(y)
        return self.head((x + y.reshape(n, h, w, c)).mean((1, 2)))


class NormedRows(nn.Module):
    """BatchNorm over the rows of all samples, and a bias that a constant picks for each head, as in
    LeViT and PointNet, with dropout; a layer named like one of torch.fx's."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 10)
        self.biases = nn.Parameter(torch.randn(2, 9))
        self.register_buffer("index", (torch.arange(7)[:, None] * 3 + torch.arange(7)) % 9)

    def forward(self, x):
        n, length, _ = x.shape
        x = self.first(x)
        x = self.norm(x.flatten(0, 1)).reshape_as(x)
        q = x.view(n, length, 2, 3).transpose(1, 2)
        scores = q @ q.transpose(-2, -1) + F.dropout(self.biases, 0.3)[:, self.index]
        return self.head((scores.softmax(-1) @ q).transpose(1, 2).reshape(n, length, 6).mean(1))


class PlacesFirst(nn.Module):
    """nn.TransformerEncoder with its defaults, after embeddings and positions (L, 1, E); the rows
    of all samples as a matrix; a mask per sample, as in transformers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Linear(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.places = nn.Parameter(torch.randn(12, 1, 8))
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))
        self.head = nn.Linear(8, 10)

    def forward(self, tokens):
        n, length = tokens.shape
        x = self.words(F.one_hot(tokens, 20).to(self.bias.dtype)).transpose(0, 1)
        x = self.encoder(F.softplus(x, beta=2) + self.places).transpose(0, 1)
        x = torch.addmm(self.bias, x.reshape(-1, 8), self.weight).view(n, length, 8)
        kept = torch.ones(1, length).expand(n, -1).cumsum(1) < 10
        rows, places = torch.arange(n)[:, None, None], torch.arange(length)
        mask = kept[rows, places] & (places[None, :] <= places[:, None])
        x = F.scaled_dot_product_attention(x, torch.log2(1 + x * x), x, attn_mask=mask)
        return self.head(x.mean(1))


class Einsums(nn.Module):
    """Attention written with einsum, also of parameters, on samples scaled by var_mean."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.randn(8, 2, 3))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        var, mean = torch.var_mean(x, 2, keepdim=True, correction=0)
        x = (x - mean) / (var + 1e-5).sqrt()
        q = torch.einsum("nld,de->nle", x, self.query).unflatten(2, (2, 3))
        scores = torch.einsum("nqhe,nkhe->nhqk", q, torch.einsum("nld,dhe->nlhe", x, self.key))
        return self.head(torch.einsum("nhqk,nkd->nqd", scores.softmax(3), x).mean(1))


NETS = {"folded_windows": (FoldedWindows, (3, 16, 16)),
        "cosine_windows": (CosineWindows, (3, 16, 16)), "places_first": (PlacesFirst, (12,)),
        "einsums": (Einsums, (5, 8)), "normed_rows": (NormedRows, (7, 5))}
