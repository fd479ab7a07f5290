"""Nets of functions that single models have: waves and roundings, computed places, products."""

import torch
from torch import nn
from torch.nn import functional as F


class Waves(nn.Module):
    """Fourier features and sines as activations, far from 0 too; roundings, whose gradient is 0 but
    for the one that is passed by."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 12), nn.Linear(24, 12), nn.Linear(12, 5)
        self.register_buffer("rates", torch.logspace(0, 2, 12))

    def forward(self, x):
        x = self.first(x)
        y = torch.cat((torch.sin(30 * x), torch.cos(x * self.rates)), 1)
        y = self.second(y)
        y = y + (torch.round(4 * y) / 4 - y).detach() * 0.5 + torch.tan(0.3 * y)
        y = y * torch.frac(3 * x) + torch.floor(2 * x) * x - torch.ceil(y).sin()
        return self.head(y + torch.trunc(5 * y) / 5 + y * torch.sign(x))


class Chosen(nn.Module):
    """What the tokens, a maximum or the largest few say is taken out of values, as Q-learning and
    mixtures of experts do it."""

    def __init__(self):
        super().__init__()
        self.words, self.values = nn.Embedding(20, 8), nn.Linear(8, 20)
        self.gate, self.experts = nn.Linear(8, 6), nn.Linear(8, 24)
        self.table, self.head = nn.Parameter(torch.randn(1, 20)), nn.Linear(17, 10)

    def forward(self, tokens):
        x = self.words(tokens)
        q = self.values(x)  # (N, 12, 20)
        of_token = q.gather(2, tokens.unsqueeze(2)).squeeze(2)
        of_words = q[:, 0].gather(1, tokens[:, :4]) * self.table.expand(q.shape[0], -1).gather(
            1, tokens[:, 4:8])
        best = q.gather(2, q.argmax(2, keepdim=True)).squeeze(2).mean(1, True)
        low, place = q.mean(1).min(1, keepdim=True)
        last = q[:, :, 1].gather(1, (place > 9).long() * 11)
        h = x.mean(1)
        weights, chosen = self.gate(h).topk(2, dim=1)
        outputs = self.experts(h).view(-1, 6, 4)
        mixed = outputs.gather(1, chosen.unsqueeze(2).expand(-1, -1, 4))
        mixed = (mixed * weights.softmax(1).unsqueeze(2)).sum(1)
        least = outputs.topk(3, dim=1, largest=False).values.mean(1)
        y = torch.cat((of_words, best, low, last, mixed, F.one_hot(chosen, 6).sum(1)), 1)
        return self.head(y) + of_token[:, :10] * least.prod(1, keepdim=True) + (1 + 0.1 * x).prod(
            1)[:, :1]


NETS = {"waves": (Waves, (6,)), "chosen": (Chosen, (12,))}
