"""Nets that sort, and that take from and add to places that they compute."""

import torch
from torch import nn


class Points(nn.Module):
    """A graph of each point's 18 nearest, as nets of point clouds make it in each layer, in the
    three ways in which they take neighbours."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(16, 12), nn.Linear(12, 10)

    def edges(self, x):
        nearest = torch.cdist(x, x).topk(18, dim=2, largest=False)[1]  # (N, 24, 18)
        n, points, width = x.shape
        beside = x.gather(1, nearest.reshape(n, -1, 1).expand(-1, -1, width))
        beside = beside.view(n, points, 18, width)
        same = x[torch.arange(n).view(-1, 1, 1), nearest]
        rows = (nearest + torch.arange(n).view(-1, 1, 1) * points).view(-1)
        again = x.reshape(n * points, width)[rows, :].view(n, points, 18, width)
        own = x.unsqueeze(2).expand_as(beside)
        return torch.cat(((beside + 2 * same + again) / 4 - own, own), 3)

    def forward(self, x):
        x = torch.relu(self.first(self.edges(x))).amax(2)
        return self.head(torch.relu(self.second(self.edges(x))).mean(2).amax(1))


class MaskedPatches(nn.Module):
    """A masked autoencoder's way of words: the first in an order are kept, the others are one
    token, and all are put back where they were."""

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
    """What tokens send to the nodes that they name; constants name some too."""

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
        nodes = nodes.index_add(1, self.place, x.tanh(), alpha=0.5)
        nodes = nodes.scatter_reduce(1, to[:, :5], x[:, 7:].sigmoid(), "sum")
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
        z = y * sparse + y.median(1, keepdim=True)[0] + y.kthvalue(21, 1)[0].unsqueeze(1)
        z = z + y.topk(20)[0].mean(1, True)
        return self.head(z + 0.1 * at * y)


class Translator(nn.Module):
    """Sequence to sequence with time in front, whose results go one by one into a tensor of zeros;
    each second word is the one that the net has said."""

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


NETS = {"points": (Points, (24, 3)), "masked_patches": (MaskedPatches, (30, 6)),
        "messages": (Messages, (12,)), "ranks": (Ranks, (6,)),
        "translator": (Translator, (12,))}
