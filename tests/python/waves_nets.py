"""Nets that compute with Fourier transforms and complex numbers."""

import torch
from torch import nn
from torch.nn import functional as F


class Fourier(nn.Module):
    """Words mixed by transforms, by a filter of their waves, and by how they agree with others."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 10), nn.Linear(10, 10)
        self.filter = nn.Parameter(0.3 * torch.randn(7, 10, 2))
        self.length = nn.Parameter(torch.randn(10, 12))

    def forward(self, x):
        x = self.first(x)  # (N, 12, 10)
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real + torch.fft.fft2(x).imag
        waves = torch.fft.rfft(x, dim=1, norm="ortho")
        kept = torch.fft.irfft(waves * torch.view_as_complex(self.filter), n=12, dim=1,
                               norm="ortho")
        agree = torch.fft.irfft(waves * torch.conj(torch.fft.rfft(x.tanh(), dim=1)), n=12, dim=1)
        long = torch.fft.rfft(x.transpose(1, 2), n=24) * torch.fft.rfft(self.length, n=24)
        long = torch.fft.irfft(long, n=24)[..., :12].transpose(1, 2)
        turned = torch.fft.ifft(torch.fft.fft(x) * torch.exp(1j * torch.arange(10) / 5) + x).real
        odd = torch.fft.irfft(F.pad(torch.fft.rfft(x[:, :11], dim=1)[:, :4], (0, 0, 0, 2)), n=11,
                              dim=1).mean(1, True)
        sizes = torch.fft.fftshift(waves / 3, dim=1).abs().mean(1, True)
        return self.head((0.1 * mixed + kept + agree + long + turned + odd + sizes).mean(1))


class Spectrogram(nn.Module):
    """A waveform as its spectrum over time, with windows as torchaudio takes them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16), persistent=False)
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 10)

    def forward(self, x):
        waves = torch.stft(x, 16, 4, window=self.window.to(x.dtype), return_complex=True)
        x = torch.log1p(waves.abs().square()).unsqueeze(1)
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class SpectralConv(nn.Module):
    """A layer of a Fourier neural operator. Its weights are complex numbers, or with `pairs` their
    parts."""

    def __init__(self, width, rows, columns, pairs):
        super().__init__()
        self.rows, self.columns, self.pairs = rows, columns, pairs
        low, high = (0.2 * torch.rand(width, width, rows, columns, 2) for _ in range(2))
        self.low, self.high = (nn.Parameter(w if pairs else torch.view_as_complex(w))
                               for w in (low, high))

    def times(self, x, weight):
        return torch.einsum("bixy,ioxy->boxy", x,
                            torch.view_as_complex(weight) if self.pairs else weight)

    def forward(self, x):
        waves = torch.fft.rfft2(x)
        out = torch.zeros(x.shape[0], x.shape[1], x.shape[2], x.shape[3] // 2 + 1,
                          dtype=waves.dtype)
        rows, columns = self.rows, self.columns
        out[:, :, :rows, :columns] = self.times(waves[:, :, :rows, :columns], self.low)
        out[:, :, -rows:, :columns] = self.times(waves[:, :, -rows:, :columns], self.high)
        return torch.fft.irfft2(out, s=(x.shape[2], x.shape[3]))


class Operator(nn.Module):
    def __init__(self, pairs=True):
        super().__init__()
        self.first, self.head = nn.Conv2d(2, 4, 1), nn.Linear(4, 10)
        self.waves = nn.ModuleList(SpectralConv(4, 3, 4, pairs) for _ in range(2))
        self.beside = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(2))

    def forward(self, x):
        x = self.first(x)
        for waves, beside in zip(self.waves, self.beside):
            x = F.gelu(waves(x) + beside(x))
        return self.head(x.mean((2, 3)))


NETS = {"fourier": (Fourier, (12, 6)), "spectrogram": (Spectrogram, (40,)),
        "operator": (Operator, (2, 9, 10))}
