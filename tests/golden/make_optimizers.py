"""Writes optimizers.h: parameters after updates by PyTorch's optimizers and learning rates of its schedules, as facts for
tests/nn/test_optimizer.c and test_schedule.c.

    python3 tests/golden/make_optimizers.py > tests/golden/optimizers.h

Needs torch. Float32 on the CPU, and the same in float64 from the same float32 numbers; given by their bits. Gradients of
very different sizes, some 0, and one element whose gradient is always 0.
"""
import struct
import torch

COUNT, UPDATES, EPOCHS = 40, 5, 24
OPTIM, RATES = torch.optim, torch.optim.lr_scheduler
CASES = [("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.9)),
         ("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
         ("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
         ("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
         ("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3)),
         ("SGD", OPTIM.SGD, dict(lr=0.1, momentum=0.7, dampening=0.9, weight_decay=0.01)),
         ("ADADELTA", OPTIM.Adadelta, dict()),
         ("ADADELTA", OPTIM.Adadelta, dict(lr=0.5, weight_decay=0.01)),
         ("ADADELTA", OPTIM.Adadelta, dict(lr=0.5, rho=0.7, eps=1e-4)),
         ("ADAM", OPTIM.Adam, dict()),
         ("ADAM", OPTIM.Adam, dict(lr=0.05, weight_decay=0.01)),
         ("ADAM", OPTIM.Adam, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-5)),
         ("ADAMW", OPTIM.AdamW, dict()),
         ("ADAMW", OPTIM.AdamW, dict(lr=0.05, weight_decay=0.1)),
         ("ADAMW", OPTIM.AdamW, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-5, weight_decay=0))]
SCHEDULES = [("STEP, .step_size = 1, .gamma = 0.7", 1.0, lambda o: RATES.StepLR(o, 1, 0.7)),
             ("STEP, .step_size = 5, .gamma = 0.1", 0.2, lambda o: RATES.StepLR(o, 5)),
             ("COSINE, .t_max = 24", 0.1, lambda o: RATES.CosineAnnealingLR(o, 24)),
             ("COSINE, .t_max = 7", 0.37, lambda o: RATES.CosineAnnealingLR(o, 7)),
             ("COSINE, .t_max = 10, .eta_min = 0.01", 0.1, lambda o: RATES.CosineAnnealingLR(o, 10, 0.01))]


def words(t):
    return ", ".join("0x%08x" % struct.unpack("<I", struct.pack("<f", v))[0] for v in t.flatten().tolist())


def doubles(t):
    return ", ".join(v.hex() for v in (t if isinstance(t, list) else t.flatten().tolist()))


torch.manual_seed(0)
torch.set_num_threads(1)
start = torch.randn(COUNT)
grads = torch.randn(UPDATES, COUNT) * torch.pow(10.0, torch.randint(-5, 2, (UPDATES, COUNT)))
grads[torch.rand(UPDATES, COUNT) < 0.1] = 0
grads[:, 7] = 0

print("/* Made by tests/golden/make_optimizers.py with torch %s - do not edit. */" % torch.__version__.split("+")[0])
print('#include <stdint.h>\n\n#include "nn/optimizer/optimizer.h"\n#include "nn/optimizer/schedule.h"\n')
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
    group = optimizer.param_groups[0]
    config = {"kind": "OPTIMIZER_" + kind, "weight_decay": group["weight_decay"]}
    for name in ("momentum", "dampening", "rho"):
        config[name] = group.get(name, 0)
    config["nesterov"] = int(group.get("nesterov", False))
    config["beta1"], config["beta2"] = group.get("betas", (0, 0))
    config["epsilon"] = group.get("eps", 0)
    print("    {{%s}, %s," % (", ".join(".%s = %s" % pair for pair in config.items() if pair[1]), group["lr"]))
    print("     {%s},\n     {%s}}," % (words(after[0]), doubles(after[1])))
print("};\n")

print("enum { GOLDEN_EPOCHS = %d };" % EPOCHS)
print("static const struct {\n    struct schedule schedule;\n    double base, rates[GOLDEN_EPOCHS];")
print("} golden_schedules[] = {")
for text, base, make in SCHEDULES:
    optimizer = OPTIM.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule, rates = make(optimizer), []
    for epoch in range(EPOCHS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    print("    {{SCHEDULE_%s}, %s,\n     {%s}}," % (text, base, doubles(rates)))
print("};\n")
