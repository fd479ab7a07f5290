"""Nets with functions that few models use: waves and roundings, computed indices, products."""

import torch
from torch import nn
from torch.nn import functional as F


class Waves(nn.Module):
    """Fourier features and sines as activations, also far from 0; roundings, whose gradient is 0
    except for one that bypasses them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 12), nn.Linear(24, 12), nn.Linear(12, 5)
        self.register_buffer("rates", torch.logspace(0, 2, 12))

    def forward(self, x):
        x = self.first(x)
        y = torch.cat((torch.sin(30 * x), torch.cos(x * self.rates)), 1)
        y = self.second(y)
        y = y + (torch.round(4 * y) / 4 - y).detach() * 0.5 + torch.sin(0.3 * y)
        y = y * (F.softplus(y) > 0.4) * torch.frac(3 * x)
        y = y + torch.floor(2 * x) * x - torch.ceil(y).sin()
        y = y + torch.remainder(3 * x, -0.75) * torch.fmod(x, 0.5)
        y = y + torch.div(4 * x, 1.5, rounding_mode="floor")
        return self.head(y + torch.trunc(5 * y) / 5 + y * torch.sign(x))


class Chosen(nn.Module):
    """Values selected by tokens, by a maximum or by the largest few, as in Q-learning and mixtures
    of experts."""

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
        board = torch.cat((tokens % 6, tokens.ne(3).cumsum(1) // 3), 1)
        h = x.mean(1) + self.words(board).mean(1)
        hidden = self.gate(h).masked_fill(torch.tensor([[0, 1, 1, 1, 1, 0]]).bool(), -torch.inf)
        ranks = hidden.topk(3, dim=1)[0]  # two are left; the third is empty
        all_hidden = hidden.masked_fill(h[:, :1] < torch.inf, -torch.inf)
        again = F.one_hot(torch.cat((hidden.argmax(1, keepdim=True), all_hidden.argmax(
            1, keepdim=True)), 1), 6).sum(1) + (all_hidden == all_hidden.amax(1, True))
        low = low + (ranks.softmax(1) * again[:, :3]).sum(1, True)
        weights, chosen = self.gate(h).topk(2, dim=1)
        outputs = self.experts(h).view(-1, 6, 4)
        mixed = outputs.gather(1, chosen.unsqueeze(2).expand(-1, -1, 4))
        mixed = (mixed * weights.softmax(1).unsqueeze(2)).sum(1)
        least = outputs.topk(3, dim=1, largest=False).values.mean(1)
        y = torch.cat((of_words, best, low, last, mixed, F.one_hot(chosen, 6).sum(1)), 1)
        return self.head(y) + of_token[:, :10] * least.cumprod(1)[:, -1:] + (1 + 0.1 * x).cumprod(
            1)[:, -1, :1] + (x * (x > 0)).cumprod(1).mean((1, 2))[:, None]


class Computed(nn.Module):
    """Tokens and indices computed from integers, also below 0."""

    def __init__(self):
        super().__init__()
        self.words, self.after = nn.Embedding(20, 8), nn.Embedding(21, 8)
        self.scale, self.head = nn.Parameter(torch.randn(12 * 16, 1)), nn.Linear(8, 10)

    def forward(self, tokens):
        x, y, less = self.words(tokens).mean(1), tokens.flip(1), tokens - 9
        parts = [less.div(n, rounding_mode="trunc") for n in (4, -4)]
        places = torch.cat((
            tokens.clamp(2, 9), torch.where(tokens > 3, tokens, 0), tokens // 5, less // 4 + 3,
            torch.maximum(tokens, y), torch.min(tokens + 3, y), (tokens * 31 + y) % 20, less % 5,
            less % -5 + 4, torch.fmod(less, 4) + 3, parts[0] + 2, parts[1].abs(), less.relu(),
            (less * less).clamp(max=19),
            tokens.masked_fill(y == 3, 7), tokens.sort(1, descending=True)[0]), 1)
        x = x + (self.words(places) * self.scale).mean(1) + self.after(tokens + 1).mean(1)
        x = x + self.words(tokens.amax(1)) * self.words(tokens.min(1)[0])
        ends = tokens.ge(3).long() * 9 + tokens.ge(9) * 9
        return self.head(x + x.gather(1, (x.argmax(1, keepdim=True) + 1) % 8) * self.words(
            ends.scatter(1, tokens.gather(1, y[:, :2] * 2 % 12) % 12, 19)).mean(1))


class Buckets(nn.Module):
    """Numbers that become tokens, sorted rows, and choices that pass on their gradient."""

    def __init__(self):
        super().__init__()
        self.words, self.first, self.head = nn.Embedding(10, 6), nn.Linear(9, 6), nn.Linear(6, 5)

    def forward(self, x):
        y = self.first(x)
        y = y + (self.words((4 * x).long().clamp(-5, 4) + 5) + self.words(
            (x / 2).floor().long().clamp(-2, 1) + 4) * torch.div(
                9 * x, 2, rounding_mode="trunc").unsqueeze(2)).mean(1)
        y = y + y.sort(1)[0] * torch.arange(6)
        y = y + 0.1 * self.words(x.argsort(1, descending=True))[:, 2]
        soft = y.softmax(1)
        hard = torch.zeros_like(soft).scatter_(1, soft.max(1, keepdim=True)[1], 1.0)
        some = torch.zeros_like(y).scatter(1, y.topk(3)[1], 1.0)
        last = y.scatter(1, y.argmin(1, keepdim=True), soft[:, :1])
        return self.head((hard - soft.detach() + soft) * y + some * y.tanh() + last)


class Norms(nn.Module):
    """BatchNorm without weights, without running statistics, and with the mean of all batches."""

    def __init__(self):
        super().__init__()
        self.conv, self.first, self.head = nn.Conv2d(3, 6, 3, 2), nn.Linear(6, 8), nn.Linear(8, 5)
        self.bare, self.still = nn.BatchNorm2d(6, affine=False), nn.BatchNorm2d(
            6, affine=False, track_running_stats=False)
        self.mean = nn.BatchNorm1d(8, momentum=None)
        self.last = nn.BatchNorm1d(8, affine=False, momentum=None)

    def forward(self, x):
        x = self.still(torch.relu(self.bare(self.conv(x)))).mean((2, 3))
        return self.head(self.last(torch.tanh(self.mean(self.first(x)))))


class Distances(nn.Module):
    """Layers that compare two tensors, and vector lengths."""

    def __init__(self):
        super().__init__()
        self.first, self.centres = nn.Linear(5, 6), nn.Parameter(torch.randn(7, 6))
        self.cosine, self.apart = nn.CosineSimilarity(2), nn.PairwiseDistance(1)
        self.head = nn.Linear(7 + 4 + 4 + 4, 10)

    def forward(self, x):
        y = F.normalize(self.first(x), dim=2)  # (N, 4, 6)
        parts = [torch.cdist(y[:, 0], self.centres), torch.cdist(y, y.sin()).mean(1),
                 self.cosine(y, x[..., :1]), self.apart(y, y.flip(1))]
        return self.head(torch.cat(parts, 1))


class StatesAside(nn.Module):
    """Last states that a decoder starts with and that have no gradient: one by no_grad, one by
    detach."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = (nn.LSTM(6, 5, batch_first=True) for _ in range(2))
        self.head = nn.Linear(5, 10)

    def forward(self, x):
        with torch.no_grad():
            h = self.encoder(x)[1][0]
        y, (_, c) = self.encoder(x)
        return self.head((y + self.decoder(x, (h, c.detach()))[0])[:, -1])


class WholeRotary(nn.Module):
    """Rotary positions over a whole head, so that the rest is empty, as in GPT-J; and a selection
    of one after samples were folded."""

    def __init__(self):
        super().__init__()
        self.words, self.qk, self.head = nn.Embedding(20, 8), nn.Linear(8, 16), nn.Linear(8, 10)
        angles = torch.outer(torch.arange(12.0), torch.tensor([1.0, 0.01])).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def transposed(self, x):
        front, rest = x[..., :4], x[..., 4:]
        a, b = front.chunk(2, -1)
        front = front * self.cos + torch.cat((-b, a), -1) * self.sin
        return torch.cat((front, rest), -1)

    def forward(self, tokens):
        x = self.words(tokens)
        q, k = (self.transposed(y.unflatten(2, (2, 4)).transpose(1, 2))
                for y in self.qk(x).chunk(2, 2))
        v = x.unflatten(2, (2, 4)).transpose(1, 2)
        y = ((q @ k.transpose(2, 3)).softmax(3) @ v).transpose(1, 2).reshape(-1, 1, 8)
        return self.head((y * y.softmax(1)).reshape(x.shape).mean(1))


class Variational(nn.Module):
    """A variational autoencoder, which decodes a random draw around the code."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(48, 12), nn.Linear(6, 48)

    def forward(self, x):
        mean, log_var = self.encoder(x.flatten(1)).chunk(2, 1)
        z = mean + torch.exp(0.5 * log_var) * torch.randn_like(log_var)
        return torch.sigmoid(self.decoder(z)).view_as(x)


class Noisy(nn.Module):
    """Random numbers of every kind that models draw."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        n = x.shape[0]
        x = self.first(x) + 0.1 * torch.randn(n, 8)
        x = x * (torch.rand(n, 8) < 0.75) / 0.75 + 0.1 * torch.rand_like(x)
        x = x + torch.distributions.Normal(x, F.softplus(x), validate_args=False).rsample()
        x = x * F.gumbel_softmax(self.second(x)) * F.gumbel_softmax(x, hard=True)
        return self.head(x + torch.bernoulli(torch.sigmoid(x)))


class Draws(nn.Module):
    """Numbers whose squares have a mean of 9."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return self.scale * torch.randn_like(x) + 0 * x


RANDOM = {"variational": (Variational, (3, 4, 4), "mse"), "noisy": (Noisy, (6,)),
          "draws": (Draws, (4096,), "mse")}  # for which PyTorch draws other numbers
class Corners(nn.Module):
    """Values at corners: branches that begin at 0, bounds that are reached, losses inside them."""

    def __init__(self):
        super().__init__()
        self.first, self.slopes = nn.Linear(6, 4), nn.PReLU(4)
        self.branch, self.bound = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        y = self.first(x)
        zero = y * 0 + self.branch
        y = y + self.slopes(zero) + zero.clamp(min=self.bound) + zero.clamp(max=torch.tensor(0.0))
        y = y + torch.clamp(zero, self.bound, self.bound + 1) + zero.clamp(0.0, 1.0)
        share = F.binary_cross_entropy(torch.sigmoid(y), torch.sigmoid(x[:, :4]), reduction="none",
                                       weight=torch.arange(4.0, dtype=y.dtype))
        return self.head(y) + share.mean(1, True)


NETS = {"waves": (Waves, (6,)), "chosen": (Chosen, (12,)),
        "computed": (Computed, (12,)), "buckets": (Buckets, (9,)),
        "norms": (Norms, (3, 8, 8)), "distances": (Distances, (4, 5)),
        "states_aside": (StatesAside, (4, 6)), "whole_rotary": (WholeRotary, (12,))}
if torch.__version__ >= "2.12":  # before, a value equal to a bound got the whole gradient
    NETS["corners"] = Corners, (6,)
