"""Writes optimizers.h: parameters after updates by PyTorch's optimizers, as facts for tests/nn/test_optimizer.c.

    python3 tests/golden/make_optimizers.py > tests/golden/optimizers.h

Needs torch. Float32 on the CPU, and the same in float64 from the same float32 numbers; given by their bits. Gradients of
very different sizes, some 0, and one element whose gradient is always 0.
"""
import struct
import torch

COUNT, UPDATES = 40, 5
CASES = [("OPTIMIZER_SGD", torch.optim.SGD, dict(lr=0.1, momentum=0.9)),
         ("OPTIMIZER_SGD", torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
         ("OPTIMIZER_ADADELTA", torch.optim.Adadelta, dict()),
         ("OPTIMIZER_ADADELTA", torch.optim.Adadelta, dict(lr=0.5, weight_decay=0.01)),
         ("OPTIMIZER_ADAM", torch.optim.Adam, dict()),
         ("OPTIMIZER_ADAM", torch.optim.Adam, dict(lr=0.05, weight_decay=0.01))]


def words(t):
    return ", ".join("0x%08x" % struct.unpack("<I", struct.pack("<f", v))[0] for v in t.tolist())


def doubles(t):
    return ", ".join(v.hex() for v in t.tolist())


torch.manual_seed(0)
torch.set_num_threads(1)
start = torch.randn(COUNT)
grads = torch.randn(UPDATES, COUNT) * torch.pow(10.0, torch.randint(-5, 2, (UPDATES, COUNT)))
grads[torch.rand(UPDATES, COUNT) < 0.1] = 0
grads[:, 7] = 0

print("/* Made by tests/golden/make_optimizers.py with torch %s - do not edit. */" % torch.__version__.split("+")[0])
print('#include <stdint.h>\n\n#include "nn/optimizer.h"\n')
print("enum { GOLDEN_COUNT = %d, GOLDEN_UPDATES = %d };" % (COUNT, UPDATES))
print("static const uint32_t golden_start[GOLDEN_COUNT] = {%s};" % words(start))
print("static const uint32_t golden_grads[GOLDEN_UPDATES][GOLDEN_COUNT] = {")
for g in grads:
    print("    {%s}," % words(g))
print("};\nstatic const struct {\n    struct optimizer_config config;\n    double learning_rate;")
print("    uint32_t single[GOLDEN_COUNT]; /* after all updates */\n    double exact[GOLDEN_COUNT];")
print("} golden_updates[] = {")
for kind, make, options in CASES:
    after = []
    for dtype in (torch.float32, torch.float64):
        p = torch.nn.Parameter(start.to(dtype, copy=True))
        optimizer = make([p], foreach=False, **options)
        for g in grads:
            p.grad = g.to(dtype)
            optimizer.step()
        after.append(p.detach())
    rate = optimizer.param_groups[0]["lr"]
    print("    {{%s, %s, %s}, %s," % (kind, options.get("momentum", 0), options.get("weight_decay", 0), rate))
    print("     {%s},\n     {%s}}," % (words(after[0]), doubles(after[1])))
print("};")
