"""Writes rng.txt: PyTorch's random draws, as facts for tests/core/base/test_random.c and
tests/core/data/test_sampler.c.

    python3 tests/golden/make_rng.py

Needs torch on a CPU with AVX2 or better. Float values are written as their bits, and long results
as the 64-bit FNV-1a hash of their 32-bit words, lowest byte first.
"""
import torch
from torch.utils.data import DistributedSampler

from formulas import bits, fnv1a64, write


lines, rows = [], {}


def row(table, *cells):
    rows[table] = rows.get(table, -1) + 1
    lines.append(" ".join(map(str, (f"{table}_{rows[table]}", *cells))) + "\n")


def draw(kind, seed, count, a, b):
    torch.manual_seed(seed)
    t = torch.empty(count)
    if kind == "UNIFORM":
        t.uniform_(a, b)
    elif kind == "NORMAL":
        t.normal_(a, b)
    else:  # two normals of this size, one after another: what is kept between calls shows in the second
        t.normal_(a, b)
        t.normal_(a, b)
    return bits(t)


for seed in (0, 2**32 + 5, 2**63 - 1):
    for kind, a, b in (("UNIFORM", 0, 1), ("UNIFORM", -0.1, 0.30000000000000004), ("NORMAL", 0, 1),
                       ("NORMAL", 0.5, 0.01), ("NORMAL_TWICE", 0, 2)):
        for count in (1, 2, 15, 16, 17, 33, 4099):
            v = draw(kind, seed, count, a, b)
            row("draw", kind, seed, count, repr(float(a)), repr(float(b)), hex(v[0]), hex(v[-1]), hex(fnv1a64(v)))

for seed in (0, 1234, 2**40 + 7):
    for n in (0, 1, 2, 10, 20, 1000, 60000):
        g = torch.Generator()
        g.manual_seed(seed)
        row("permutation", seed, n, hex(fnv1a64(torch.randperm(n, generator=g).tolist())))


for seed in (0, 2**40 + 7):
    for wide, low, high in ((0, 0, 1), (0, 0, 10), (0, -5, 6), (0, 0, 2**28 - 1), (0, 0, 2**28), (0, 0, 2**31 - 1),
                            (0, -2**31, 2**31), (1, 0, 10), (1, -7, 2**28 - 8), (1, -7, 2**28 - 7),
                            (1, 2**40, 2**40 + 1000), (1, 0, 2**32), (1, -2**62, 2**62), (1, -2**63, 2**63 - 1)):
        for count in (1, 1001):
            torch.manual_seed(seed)
            v = torch.randint(low, high, (count,), dtype=torch.int64 if wide else torch.int32).tolist()
            words = [w for x in v for w in (x & 0xFFFFFFFF, x >> 32 & 0xFFFFFFFF)]
            row("integers", seed, wide, count, low, high - 1, v[0], v[-1],
                hex(fnv1a64(words)), hex(bits(torch.rand(1))[0]))

for seed in (0, 1):
    torch.manual_seed(seed)
    for kind, out, inp, groups, k in (("CONV2D", 32, 1, 1, 3), ("CONV2D", 64, 32, 1, 3), ("CONV2D", 6, 4, 2, 5),
                                      ("LINEAR", 128, 9216, 1, 1), ("LINEAR", 10, 128, 1, 1), ("LINEAR", 2, 4, 1, 1)):
        m = torch.nn.Linear(inp, out) if kind == "LINEAR" else torch.nn.Conv2d(inp, out, k, groups=groups)
        row("layer", seed, kind, out, inp, groups, k, hex(fnv1a64(bits(m.weight))), hex(fnv1a64(bits(m.bias))))

for count in (5, 180, 1001):
    torch.manual_seed(9)
    row("scaled", 9, count, 0.01, hex(fnv1a64(bits(torch.randn(count) * 0.01))))

for n in (0, 2, 5, 97, 256):
    for r in (1, 3, 4, 8):
        for drop in (0, 1):
            for shuffle, seed, epoch in ((0, 0, 0), (1, 0, 0), (1, 7, 2)):
                data = range(n)
                words, length = [], 0
                for rank in range(r):
                    s = DistributedSampler(data, r, rank, shuffle=bool(shuffle), seed=seed, drop_last=bool(drop))
                    s.set_epoch(epoch)
                    one = list(s)
                    length = len(one)
                    words += one
                row("sampler", n, r, drop, shuffle, seed, epoch, length, hex(fnv1a64(words)))
write(__file__, "random numbers, integers, permutations, layers and samplers", lines)
