"""Nets that sort, and that read from and add to indices that they compute."""

import torch
from torch import nn
from torch.nn import functional as F


class Points(nn.Module):
    """A graph of each point's 18 nearest neighbours, as nets for point clouds build in each layer,
    in the two usual ways of taking neighbours."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(16, 12), nn.Linear(12, 10)

    def edges(self, x):
        nearest = torch.cdist(x, x).topk(18, dim=2, largest=False)[1]  # (N, 24, 18)
        n, points, width = x.shape
        beside = x.gather(1, nearest.reshape(n, -1, 1).expand(-1, -1, width))
        beside = beside.view(n, points, 18, width)
        same = x[torch.arange(n).view(-1, 1, 1), nearest]
        own = x.unsqueeze(2).expand_as(beside)
        return torch.cat(((beside + 2 * same) / 3 - own, own), 3)

    def forward(self, x):
        x = torch.relu(self.first(self.edges(x))).amax(2)
        return self.head(torch.relu(self.second(self.edges(x))).mean(2).amax(1))


class MaskedPatches(nn.Module):
    """A masked autoencoder on words: the first in a random order are kept, the others become one
    token, and all go back to their places."""

    def __init__(self):
        super().__init__()
        self.words, self.score = nn.Linear(6, 8), nn.Linear(6, 1)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.mask, self.head = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 10)

    def forward(self, x):
        n, length, _ = x.shape
        score = self.score(x)
        order = torch.argsort(score.squeeze(2), dim=1)
        back = torch.argsort(order, dim=1)
        kept = (self.words(x) * score).gather(1, order[:, :17].unsqueeze(-1).repeat(1, 1, 8))
        kept = self.block(kept)
        y = torch.cat((kept, self.mask.repeat(n, length - 17, 1)), 1)
        y = y.gather(1, back.unsqueeze(-1).repeat(1, 1, 8))
        return self.head((y * back.lt(17).unsqueeze(2) + y).mean(1))


class Messages(nn.Module):
    """Messages from tokens to the nodes that they name; constants name some, too."""

    def __init__(self):
        super().__init__()
        self.words, self.send, self.head = nn.Embedding(20, 8), nn.Linear(8, 6), nn.Linear(6, 10)
        self.register_buffer("place", torch.tensor([3, 1, 3, 0, 19, 3, 2, 2, 0, 7, 8, 3]))

    def forward(self, tokens):
        x = self.send(self.words(tokens))
        to = tokens.unsqueeze(2).expand_as(x)
        nodes = x.new_zeros(x.shape[0], 20, 6).scatter_add(1, to, x)
        count = x.new_zeros(x.shape[0], 20).scatter_add_(1, tokens, torch.ones_like(x[:, :, 0]))
        nodes = nodes / count.clamp(min=1).unsqueeze(2)
        nodes = nodes.scatter_add(1, self.place[:, None].expand_as(x), x.tanh())
        seen = x.new_zeros(x.shape[0], 20).scatter(1, tokens[:, 2:9], 1.0)
        return self.head((nodes * (1 + seen.unsqueeze(2))).gather(1, to.flip(1)).mean(1))


class Ranks(nn.Module):
    """Order statistics of rows of 25, and sparsemax of them."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 25), nn.Linear(25, 10)

    def forward(self, x):
        y = self.first(x)
        down, at = y.sort(dim=1, descending=True)
        number = torch.arange(1, 26)
        sums = down.cumsum(1) - 1
        size = (number * down > sums).sum(1, keepdim=True).clamp(min=1)
        sparse = (y - sums.gather(1, size - 1) / size).clamp(min=0)
        z = y * sparse + y.sort(1)[0][:, 12:13]
        z = z + y.topk(20)[0].mean(1, True)
        return self.head(z + 0.1 * at * y)


class Translator(nn.Module):
    """Sequence to sequence with time first, whose results go one by one into a tensor of zeros;
    every second word is the net's own output."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(20, 6), nn.LSTM(6, 8, 2)
        self.decoder, self.head = nn.LSTM(6, 8, 2), nn.Linear(8, 20)

    def forward(self, tokens):
        source, target = tokens[:, :7].t(), tokens[:, 7:].t()
        _, (h, c) = self.encoder(self.words(source))
        length, n = target.shape
        out = torch.zeros(length, n, 20, dtype=h.dtype)
        said = target[0]
        for t in range(1, length):
            y, (h, c) = self.decoder(self.words(said).unsqueeze(0), (h, c))
            out[t] = self.head(y.squeeze(0))
            said = target[t] if t % 2 else out[t].argmax(1)
        return out[1:].permute(1, 2, 0)


class Gates(nn.Module):
    """Choices that are scattered back: the largest gates, the most probable words, parts at
    constant indices; and the products of all pairs below the diagonal."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8 + 15, 10)
        self.down, self.up = nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(2, 8))
        self.score = nn.Parameter(torch.randn(8))
        self.places = torch.tril_indices(6, 6, -1)

    def forward(self, x):  # (N, 6, 5)
        y = self.first(x) + F.linear(x, (self.down @ self.up).t() * 0.5)
        value, place = y.topk(3, dim=-1)
        gates = torch.full_like(y, -torch.inf).scatter(-1, place, value).softmax(-1)
        share, order = y.softmax(-1).sort(-1, descending=True)
        share = share.masked_fill(share.cumsum(-1) - share > 0.6, 0.0)
        kept = torch.zeros_like(y).scatter(-1, order, share)
        z = (gates + kept) * (y @ self.score).softmax(1).unsqueeze(2)
        z[:, 1:3] = z[:, 1::2][:, :2] * 0.5
        z[z > 2] = 0.3
        pairs = torch.bmm(y, y.transpose(1, 2))[:, self.places[0], self.places[1]]
        return self.head(torch.cat((z.mean(1), 0.1 * pairs), 1))


class Schedule(nn.Module):
    """Table entries at each sample's own indices, like the steps of a diffusion or the transitions
    of a random field; the last word of each sample; points far from each other."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rates", torch.linspace(0.5, 1.5, 20))
        self.start, self.moves = nn.Parameter(torch.randn(20)), nn.Parameter(torch.randn(20, 20))
        self.words, self.head = nn.Embedding(20, 6), nn.Linear(6, 10)

    def forward(self, tokens):
        n = tokens.shape[0]
        x = self.words(tokens)
        last = x[torch.arange(n), tokens[:, 0].clamp(max=9) - 1]
        rate = self.rates.gather(-1, tokens[:, 1]).reshape(n, 1)
        rate = rate * self.rates[tokens[:, 2] - 9].unsqueeze(1)
        moves = self.moves.flatten()
        score = self.start[tokens[:, 0]] + moves[tokens[:, :-1] * 20 + tokens[:, 1:]].sum(1)
        for i in range(3):
            score = score + moves[tokens[:, i] * 20 + tokens[:, i + 1]]
        apart, farthest = x.new_full((n, 12), 1e10), torch.zeros(n, dtype=torch.long)
        chosen = torch.zeros(n, 4, dtype=torch.long)
        for i in range(4):
            chosen[:, i] = farthest
            centre = x[torch.arange(n), farthest, :].unsqueeze(1)
            apart = torch.min(apart, ((x - centre) ** 2).sum(-1))
            farthest = apart.max(-1)[1]
        far = x[torch.arange(n)[:, None], chosen].mean(1)
        return self.head(last * rate + far) + 0.1 * score.unsqueeze(1)


class TimeInFront(nn.Module):
    """Words with time in front: masks, a decoder that looks back, its states, and queries."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder = nn.Embedding(20, 6), nn.GRU(6, 4, 2, bidirectional=True)
        self.decoder, self.first = nn.GRU(14, 8), nn.Parameter(torch.randn(2, 1, 4))
        self.query = nn.Parameter(torch.randn(3, 8))
        self.last, self.look = nn.LSTM(8, 4, 2), nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8 + 8 + 4 + 8, 10)

    def forward(self, tokens):
        source = tokens.t()
        mask = source.ne(3).permute(1, 0)
        y, h = self.encoder(self.words(source))
        h = h.view(2, 2, -1, 4)[-1].permute(1, 0, 2).flatten(1)
        for t in range(3):
            word = self.words(source[t].unsqueeze(0))
            share = (y.permute(1, 0, 2) @ h.unsqueeze(2)).squeeze(2)
            share = share.masked_fill(~mask, -1e10).softmax(1).unsqueeze(1)
            back = torch.bmm(share, y.permute(1, 0, 2)).permute(1, 0, 2)
            z, state = self.decoder(torch.cat((word, back), 2), h.unsqueeze(0))
            h = state.squeeze(0)
        n = tokens.shape[0]
        zeros = torch.zeros(2, n, 4, dtype=y.dtype)
        last = self.last(y, (self.first.expand(-1, n, -1).contiguous(), zeros))[1][1]
        seen = self.look(self.query.unsqueeze(1).repeat(1, n, 1), y, y, need_weights=False)[0]
        parts = h, z.squeeze(0) - y.detach()[0], last.mean(0), seen.mean(0)
        return self.head(torch.cat(parts, 1))


class Masks(nn.Module):
    """Attention with a positional mask and a word mask; and the nearest entry of a codebook, with a
    straight-through gradient."""

    def __init__(self):
        super().__init__()
        self.words, self.codes = nn.Embedding(20, 8), nn.Parameter(torch.randn(7, 4))
        self.look = nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=first)
                                  for first in (True, False))
        self.head = nn.Linear(8, 10)

    def forward(self, tokens):
        x = self.words(tokens)
        causal = torch.ones(12, 12, dtype=torch.bool).triu(1)
        given = {"key_padding_mask": tokens == 3, "attn_mask": causal}
        y = self.look[0](x, x, x, need_weights=False, **given)[0]
        last = x.transpose(0, 1)
        y = y + self.look[1](last, last, last, **given)[0].transpose(0, 1)
        flat = y.reshape(-1, 4)
        apart = (flat ** 2).sum(1, keepdim=True) + (self.codes ** 2).sum(1) - \
            2 * flat @ self.codes.t()
        code = self.codes[apart.argmin(1)].view(y.shape)
        return self.head((y + (code - y).detach() + 0.1 * code).mean(1))


NETS = {"points": (Points, (24, 3)), "masked_patches": (MaskedPatches, (30, 6)),
        "messages": (Messages, (12,)), "ranks": (Ranks, (6,)),
        "translator": (Translator, (12,)), "gates": (Gates, (6, 5)), "both_masks": (Masks, (12,)),
        "schedule": (Schedule, (12,)), "time_in_front": (TimeInFront, (12,))}
