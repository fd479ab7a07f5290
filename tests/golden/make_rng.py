"""Writes rng.h: what PyTorch draws, as facts for tests/base/test_random.c and
tests/data/test_sampler.c.

    python3 tests/golden/make_rng.py > tests/golden/rng.h

Needs torch on a CPU with AVX2 or better. Float values are given by their bits; long results by the 64-bit
FNV-1a hash of their 32-bit words, lowest byte first.
"""
import struct
import torch
from torch.utils.data import DistributedSampler


def bits(t):
    return [struct.unpack("<I", struct.pack("<f", v))[0] for v in t.detach().flatten().tolist()]


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words:
        for b in struct.pack("<I", w & 0xFFFFFFFF):
            h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def row(*cells):
    print("    {" + ", ".join(str(c) for c in cells) + "},")


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


print("/* Made by tests/golden/make_rng.py with torch", torch.__version__.split("+")[0], "- do not edit. */")
print("#include <stdint.h>\n")
print("/* 64-bit FNV-1a over 32-bit words, lowest byte first: what the hashes below were made with. */")
print("static inline uint64_t fnv_words(uint64_t h, const void *words, int n) {")
print("    const uint32_t *w = words;")
print("    for (int i = 0; i < 4 * n; i++) h = (h ^ (w[i / 4] >> 8 * (i % 4) & 255u)) * 0x100000001b3u;")
print("    return h;\n}")
print("#define FNV_START 0xcbf29ce484222325u\n")
print("enum draw_kind { UNIFORM, NORMAL, NORMAL_TWICE };")
print("static const struct { enum draw_kind kind; uint64_t seed; int count; double a, b; uint32_t first, last; "
      "uint64_t hash; } golden_draws[] = {")
for seed in (0, 2**32 + 5, 2**63 - 1):
    for kind, a, b in (("UNIFORM", 0, 1), ("UNIFORM", -0.1, 0.30000000000000004), ("NORMAL", 0, 1),
                       ("NORMAL", 0.5, 0.01), ("NORMAL_TWICE", 0, 2)):
        for count in (1, 2, 15, 16, 17, 33, 4099):
            v = draw(kind, seed, count, a, b)
            row(kind, f"{seed}u", count, repr(float(a)), repr(float(b)), hex(v[0]), hex(v[-1]), hex(fnv(v)) + "u")
print("};")

print("static const struct { uint64_t seed; int n; uint64_t hash; } golden_permutations[] = {")
for seed in (0, 1234, 2**40 + 7):
    for n in (0, 1, 2, 10, 20, 1000, 60000):
        g = torch.Generator()
        g.manual_seed(seed)
        row(f"{seed}u", n, hex(fnv(torch.randperm(n, generator=g).tolist())) + "u")
print("};")

print("/* randint(low, high, (count,)), and the rand(1) that follows; high_less_1 is high - 1. The hash is over 64-bit words. */")
print("static const struct { uint64_t seed; int wide, count; int64_t low, high_less_1, first, last; uint64_t hash; "
      "uint32_t next; } golden_integers[] = {")


def c_int64(v):
    return f"{v}" if v != -2**63 else "INT64_MIN"


for seed in (0, 2**40 + 7):
    for wide, low, high in ((0, 0, 1), (0, 0, 10), (0, -5, 6), (0, 0, 2**28 - 1), (0, 0, 2**28), (0, 0, 2**31 - 1),
                            (0, -2**31, 2**31), (1, 0, 10), (1, -7, 2**28 - 8), (1, -7, 2**28 - 7),
                            (1, 2**40, 2**40 + 1000), (1, 0, 2**32), (1, -2**62, 2**62), (1, -2**63, 2**63 - 1)):
        for count in (1, 1001):
            torch.manual_seed(seed)
            v = torch.randint(low, high, (count,), dtype=torch.int64 if wide else torch.int32).tolist()
            words = [w for x in v for w in (x & 0xFFFFFFFF, x >> 32 & 0xFFFFFFFF)]
            row(f"{seed}u", wide, count, c_int64(low), c_int64(high - 1), c_int64(v[0]), c_int64(v[-1]),
                hex(fnv(words)) + "u", hex(bits(torch.rand(1))[0]))
print("};")

print("enum layer_kind { LINEAR, CONV2D };")
print("/* Layers in the order they were made after one manual_seed(seed). */")
print("static const struct { int seed; enum layer_kind kind; int out, in, groups, k; uint64_t weight, bias; } "
      "golden_layers[] = {")
for seed in (0, 1):
    torch.manual_seed(seed)
    for kind, out, inp, groups, k in (("CONV2D", 32, 1, 1, 3), ("CONV2D", 64, 32, 1, 3), ("CONV2D", 6, 4, 2, 5),
                                      ("LINEAR", 128, 9216, 1, 1), ("LINEAR", 10, 128, 1, 1), ("LINEAR", 2, 4, 1, 1)):
        m = torch.nn.Linear(inp, out) if kind == "LINEAR" else torch.nn.Conv2d(inp, out, k, groups=groups)
        row(seed, kind, out, inp, groups, k, hex(fnv(bits(m.weight))) + "u", hex(fnv(bits(m.bias))) + "u")
print("};")

print("/* randn(count) * scale: the chapter's weights. */")
print("static const struct { uint64_t seed; int count; float scale; uint64_t hash; } golden_scaled[] = {")
for count in (5, 180, 1001):
    torch.manual_seed(9)
    row(9, count, "0.01f", hex(fnv(bits(torch.randn(count) * 0.01))) + "u")
print("};")

print("/* All ranks' lists, rank 0 first, hashed as one. */")
print("static const struct { int n, replicas, drop_last, shuffle, seed, epoch, per_rank; uint64_t hash; } "
      "golden_samplers[] = {")
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
                row(n, r, drop, shuffle, seed, epoch, length, hex(fnv(words)) + "u")
print("};")
