"""Models as users write them, at small widths, for tests of duet.export: results with other shapes
than [N, classes], masks computed from the samples, and the ops that such models use."""

import torch
from torch import nn
from torch.nn import functional as F


class LanguageModel(nn.Module):
    """The next word at each place; RMSNorm by hand, rotary positions, SwiGLU, grouped queries."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
        self.head.weight = self.words.weight
        self.norm, self.last = nn.Parameter(torch.ones(16)), nn.RMSNorm(16)
        self.q, self.kv, self.out = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.up, self.gate, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
        angles = torch.outer(torch.arange(12.0), torch.tensor([1.0, 0.01])).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def transposed(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, tokens):
        (n, length), x = tokens.shape, self.words(tokens)
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm
        q = self.transposed(self.q(h).view(n, length, 4, 4).transpose(1, 2))
        k, v = self.kv(h).view(n, length, 2, 2, 4).permute(2, 0, 3, 1, 4)
        k = self.transposed(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        k = k[:, :, None].expand(n, 2, 2, length, 4).reshape(n, 4, length, 4)
        y = y + F.scaled_dot_product_attention(q, k, v.repeat_interleave(2, 1), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, 16))
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return self.head(self.last(x)).transpose(1, 2)


class Detached(nn.Module):
    """Values without a gradient, by detach and by no_grad."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(18, 5)
        self.scale = nn.Parameter(torch.tensor([0.5]))

    def forward(self, x):
        y = self.a(x)
        with torch.no_grad():
            fixed = torch.tanh(y) * 2
        straight = y + ((y > 0).float() - y).detach()  # a step whose gradient is 1
        z = self.b(y * y.detach()) * self.scale / self.scale.detach()
        return self.head(torch.cat([z * fixed, straight, y.abs().detach()], 1))


class StepsFirst(nn.Module):
    """Recurrent layers with samples in the second dimension, PyTorch's default, and cells called in
    a loop."""

    def __init__(self):
        super().__init__()
        self.gru, self.lstm = nn.GRU(5, 6, bidirectional=True), nn.LSTM(12, 4)
        self.cell, self.long_cell = nn.GRUCell(4, 4), nn.LSTMCell(4, 3)
        self.head = nn.Linear(4 + 3 + 3 + 4, 5)
        self.register_buffer("turn", torch.linspace(-1, 1, 16).reshape(4, 4), persistent=False)

    def forward(self, x):
        y = self.gru(x.transpose(0, 1))[0]
        y, (last, _) = self.lstm(y)
        h, state = y.new_zeros(x.shape[0], 4), None
        for step in y.transpose(0, 1).unbind(1)[:3]:
            h = self.cell(step, h)
            state = self.long_cell(h, state)
        transposed = torch.addmm(last[-1], h, self.turn, beta=0.5)
        return self.head(torch.cat([transposed, *state, y[0]], 1))


class Picked(nn.Module):
    """Elements of a tensor taken in steps, backwards and by a list, as in Swin and others."""

    def __init__(self):
        super().__init__()
        self.rows, self.head = nn.Linear(5, 7), nn.LazyLinear(5)
        self.register_buffer("order", torch.tensor([4, 0, 1, 2, -1, 0]), persistent=False)
        self.eval()(torch.zeros(1, 6, 5))

    def forward(self, x):
        y = self.rows(x)
        y = torch.lerp(y, F.logsigmoid(y), 0.3) + 2 ** (0.1 * y)
        parts = [y[:, ::2], y[:, 1::4, ::3], y.flip(1, 2), y[:, self.order],
                 y.index_select(2, torch.tensor([6, 2, 3]))]
        parts.append(F.pad(y.unflatten(2, (1, 7)), (0, 0, 0, 1, 2, 0), value=0.5))
        flat = torch.cat([part.flatten(1) for part in parts], 1)
        return self.head(F.dropout(flat, 0.0, inplace=True))


class UNet(nn.Module):
    """A class for each pixel, with two ways of upsampling."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(True))
        self.low = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(True))
        self.up, self.wide = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Upsample(
            scale_factor=2, mode="bilinear", align_corners=True)
        self.nearest, self.out = nn.Upsample(scale_factor=2), nn.Conv2d(24, 5, 1)

    def forward(self, x):
        x = self.down(x)
        y = self.low(x)
        y = torch.cat([x, self.up(y), self.wide(y), self.nearest(y)], 1)
        return F.log_softmax(self.out(y), dim=1)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.GELU(), nn.Conv2d(4, 6, 3, 2, 1))
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(6, 4, 3, 2, 1, 1), nn.Mish(),
            nn.ConvTranspose2d(4, 4, 4, 2, 1, bias=False, groups=2), nn.PReLU(4),
            nn.Conv2d(4, 3, 1))

    def forward(self, x):
        return torch.sigmoid(self.decode(self.encode(x)))


class Regressor(nn.Module):
    """One number per sample, from standardised features."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(48, 16), nn.Linear(18, 1)

    def forward(self, x):
        x = self.first(x.flatten(1))
        z = (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)
        more = x.var(1, keepdim=True), x.norm(dim=1, keepdim=True)
        return self.last(torch.cat((z, *more), 1)).squeeze(-1)


class PaddedBERT(nn.Module):
    """Word 0 is padding: hidden from attention, left out of the mean, not trained."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.q, self.k, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.words(tokens)
        x = self.encoder(x, src_key_padding_mask=padding)
        scores = self.q(x) @ self.k(x).transpose(-2, -1) / 4
        x = scores.masked_fill(padding[:, None, :], float("-inf")).softmax(-1) @ x
        keep = (~padding).unsqueeze(-1).float()
        return self.head((x * keep).sum(1) / keep.sum(1).clamp(min=1))


class CountedPlaces(nn.Module):
    """A word's position is the number of words up to it that are not padding, as in RoBERTa; it
    selects the segment, in a table of zeros."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, padding_idx=1)
        self.places = nn.Embedding(14, 8, padding_idx=1)
        self.segments, self.head = nn.Embedding(2, 8), nn.Linear(8, 10)
        self.register_buffer("segment", torch.zeros(1, 14, dtype=torch.long), persistent=False)

    def forward(self, tokens):
        mask = tokens.ne(1).int()
        places = (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + 1
        segment = torch.gather(self.segment.expand(places.shape[0], -1), dim=1, index=places)
        x = self.words(tokens) + self.segments(segment.expand(tokens.shape)) + self.places(places)
        x = x + tokens.cumsum(1).unsqueeze(2) / 100
        before = torch.cat([tokens.new_full((tokens.shape[0], 1), 2), tokens[:, :-1]], 1)
        x = x + self.words(before) + self.words(F.pad(tokens, (0, 2), value=3)[:, 2:])
        x = x + self.segments(tokens.ne(4).long())
        seen = F.pad(tokens.ne(1).long(), (1, 0), value=1).cumsum(1)[:, :-1] - 1
        x = x + self.places(torch.cat([torch.full_like(seen[:, :1], 3), seen[:, 1:]], 1) + 1)
        return self.head(torch.tanh(x).mean(1))


class Tagger(nn.Module):
    """A class for each word, after convolutions over the sequence."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.convs = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=d) for d in (1, 2))
        self.head = nn.Linear(8, 6)

    def forward(self, tokens):
        x = self.words(tokens).transpose(1, 2)
        for d, conv in zip((1, 2), self.convs):
            x = x + F.glu(conv(F.pad(x, (d, 0))), dim=1)
        return self.head(x.transpose(1, 2)).permute(0, 2, 1)


class TextCNN(nn.Module):
    """Maxima over places, in windows and over all; means of windows; attention over places."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.convs = nn.ModuleList(nn.Conv1d(8, 6, k) for k in (2, 3))
        self.weigh, self.head = nn.Linear(8, 1), nn.Linear(45, 10)

    def forward(self, tokens):
        x = self.words(tokens)
        share = torch.softmax(self.weigh(torch.tanh(x)), dim=1)
        y = [F.relu(conv(x.transpose(1, 2))) for conv in self.convs]
        pooled = [F.max_pool1d(y[0], 3, 2, 1).amax(2), F.max_pool1d(y[1], 2)[:, :, 0],
                  F.avg_pool1d(y[0], 4)[:, :, 1], F.adaptive_avg_pool1d(y[1], 1)[:, :, 0]]
        more = y[0].max(dim=2)[0], y[1].min(dim=2).values, (share * x).sum(1)
        return self.head(torch.cat((*pooled, *more, x.logsumexp(2)[:, :1]), 1))


class Choices(nn.Module):
    """Comparisons, functions that PyTorch composes; a learned temperature; experts."""

    def __init__(self):
        super().__init__()
        self.first, self.classes = nn.Linear(48, 16), nn.Parameter(torch.randn(10, 16))
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.gate, self.experts = nn.Linear(16, 3), nn.ModuleList(
            nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        x = self.first(x.flatten(1))
        x = torch.where(x > 0, x, 0.1 * torch.expm1(x)) * torch.erf(x)
        x = torch.maximum(x, 0.5 * x) + torch.minimum(x, torch.zeros_like(x)) + F.selu(x)
        x = torch.sign(x) * torch.sqrt(x.abs() + 1e-3)
        x = x.masked_fill((x < -1) | ~(x >= -1.5), 0.25) + torch.cumsum(x, 1) / 16
        y = torch.stack([expert(x) for expert in self.experts], dim=1)
        x = torch.einsum("ne,nec->nc", F.softmax(self.gate(x), dim=-1), y)
        x = F.normalize(x, dim=-1) @ F.normalize(self.classes, dim=-1).t()
        return x * self.temperature.exp()


class Swin(nn.Module):
    """Windows of a rolled image; biases by relative position; pixels made from channels."""

    def __init__(self):
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 16, 2, 2), nn.LayerNorm(16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(4, 10)
        self.bias = nn.Parameter(torch.linspace(-1, 1, 98).view(49, 2))
        at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + 3
        self.register_buffer("places", apart[..., 0] * 7 + apart[..., 1])

    def forward(self, x):
        x = self.patches(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-2, -2), (1, 2))
        y = y.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, -1, 16, c)
        q, k, v = self.qkv(y).reshape(n, -1, 16, 3, 2, 8).permute(3, 0, 1, 4, 2, 5)
        bias = self.bias[self.places.view(-1)].view(16, 16, 2).permute(2, 0, 1).unsqueeze(0)
        y = (q * 8 ** -0.5 @ k.transpose(-2, -1) + bias).softmax(-1) @ v
        y = self.out(y.transpose(2, 3).reshape(n, -1, 16, c)).view(n, h // 4, w // 4, 4, 4, c)
        y = torch.roll(y.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c), (2, 2), (1, 2))
        y = F.pixel_shuffle((x + y).permute(0, 3, 1, 2), 2)
        y = F.avg_pool2d(F.pad(y, (1, 1, 1, 1), mode="circular"), 3, 2, 1, count_include_pad=False)
        return self.head(F.instance_norm(y).abs().mean((2, 3)) + y.mean((2, 3)))


class FineTuned(nn.Module):
    """A backbone whose stem and first block are frozen, their norms in eval mode; of the last norm
    only the bias is trained; a new head."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

        def forward(self, x):
            return torch.relu(x + self.norm(self.conv(x)))

    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, 8, 3), nn.Sequential(self.Block(), self.Block())
        self.head = nn.Linear(8, 10)
        for norm in self.blocks[0].norm, self.blocks[1].norm:
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
            nn.init.normal_(norm.weight)
        for frozen in self.stem, self.blocks[0], self.blocks[1].norm.weight:
            frozen.requires_grad_(False)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.blocks[0].eval()
        return self

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class TrainedBehindEval(FineTuned):
    """The same norms in eval mode, but all is trained: gradients go through them."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(True)


class Windows(nn.Module):
    """Pools whose windows are not square; the nearest entry of a codebook."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 10)
        self.most = nn.MaxPool2d((2, 3), (1, 2), (1, 0), ceil_mode=True)
        self.apart = nn.MaxPool2d(3, 1, 1)
        self.means = nn.AvgPool2d((3, 2), (2, 1), (1, 1))
        self.inside = nn.AvgPool2d((2, 3), (1, 2), (0, 1), count_include_pad=False)
        self.book = nn.Embedding(6, 8)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = self.inside(self.means(self.apart(self.most(x)))).flatten(2).transpose(1, 2)
        nearest = (x @ self.book.weight.t()).argmax(-1)
        farthest = (x @ self.book.weight.t()).argmin(2, keepdim=True)
        return self.head((x + self.book(nearest) - self.book(farthest[:, :, 0])).mean(1))


class Attending(nn.Module):
    """nn.MultiheadAttention as scripts call it: with its weights, which it returns unless told not
    to; samples first or second; masks of both kinds; a query that is learned."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.first = nn.MultiheadAttention(16, 2, batch_first=True)
        self.second, self.third = (nn.MultiheadAttention(16, 4) for _ in range(2))
        self.query, self.head = nn.Parameter(torch.randn(3, 16)), nn.Linear(16 + 12, 10)

    def forward(self, tokens):
        x, places = self.words(tokens), tokens.shape[1]
        later = torch.triu(torch.full((places, places), float("-inf"), dtype=x.dtype), 1)
        x = x + self.first(x, x, x, attn_mask=later)[0]
        x = x.transpose(0, 1)  # (places, samples, 16) from here on
        y, weights = self.second(x, x, x, key_padding_mask=tokens == 0)
        query = self.query.unsqueeze(1).expand(-1, tokens.shape[0], -1)
        z, _ = self.third(query, y, y, need_weights=False)
        return self.head(torch.cat((z.mean(0) + y.mean(0), weights.mean(1)), 1))


class Masks(nn.Module):
    """Attention with each kind of mask: a trained bias and a fixed one, words hidden from all
    queries, and a mask made from a sample's own words."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 12), nn.Linear(16, 10)
        self.trained = nn.Parameter(torch.randn(2, 12, 12))
        self.keys = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))
        self.values = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))
        self.last = nn.Linear(12, 16)
        self.query = nn.Parameter(torch.randn(3, 12))

    def forward(self, tokens):
        x, places = self.words(tokens), torch.arange(12, device=tokens.device)
        slopes = torch.tensor([0.5, 0.125]).view(2, 1, 1)
        own = tokens[:, :, None] != tokens[:, None, :] + 1
        masks = self.trained, -slopes * (places[:, None] - places).abs(), own[:, None]
        for mask, key, value in zip(masks, self.keys, self.values):
            q, k, v = (y.unflatten(2, (2, 6)).transpose(1, 2) for y in (x, key(x), value(x)))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
            x = x + y.transpose(1, 2).flatten(2)
        first = F.scaled_dot_product_attention(self.query, self.query, self.query, is_causal=True)
        query = first.expand(tokens.shape[0], -1, -1)
        y = F.scaled_dot_product_attention(query, self.keys[3](x), self.last(x),
                                           attn_mask=(places > 2)[None])
        return self.head(y.mean(1))


class Cached(nn.Module):
    """Keys and values join a cache that is empty at first, as those of Hugging Face's models do."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.head = nn.Embedding(20, 8), nn.Linear(8, 24), nn.Linear(8, 10)

    def forward(self, tokens):
        q, k, v = (y.unflatten(2, (2, 4)).transpose(1, 2)
                   for y in self.qkv(self.words(tokens)).chunk(3, 2))
        cache = torch.tensor([], dtype=q.dtype, device=q.device)
        k, v = torch.cat([cache, k], -2), torch.cat([cache, v], -2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(y.transpose(1, 2).flatten(2).mean(1))


class SharedStatistics(nn.Module):
    """Two modules have the same buffers. Only roundings reach the bias of the first norm."""

    def __init__(self):
        super().__init__()
        self.norm, self.last, self.head = nn.BatchNorm1d(6), nn.BatchNorm1d(6), nn.Linear(6, 10)
        self.last.running_mean = self.norm.running_mean
        self.last.running_var = self.norm.running_var

    def forward(self, x):
        return self.head(self.last(self.norm(x)))


PICTURE, WORDS, SMALL = (3, 16, 16), (12,), (3, 4, 4)
NETS = {"language_model": (LanguageModel, WORDS), "u_net": (UNet, PICTURE),
        "autoencoder": (Autoencoder, PICTURE, "mse"), "regressor": (Regressor, SMALL, "mse"),
        "padded_bert": (PaddedBERT, WORDS), "tagger": (Tagger, WORDS),
        "counted_places": (CountedPlaces, WORDS), "text_cnn": (TextCNN, WORDS),
        "choices": (Choices, SMALL), "windows": (Windows, PICTURE), "swin": (Swin, PICTURE),
        "cached": (Cached, WORDS),
        "attending": (Attending, WORDS), "fine_tuned": (FineTuned, PICTURE),
        "masks": (Masks, WORDS), "behind_eval": (TrainedBehindEval, PICTURE),
        "detached": (Detached, (6,)), "picked": (Picked, (6, 5)),
        "shared_statistics": (SharedStatistics, (6,)),
        "steps_first": (StepsFirst, (4, 5)),
        "far_off": (Regressor, SMALL, "smooth-l1"),
        "several_labels": (Autoencoder, PICTURE, "bce-with-logits")}
