"""Writes optimizers.txt: parameters after updates with PyTorch's optimizers, learning rates of its schedules, and
gradients clipped by clip_grad_norm_, as facts for test_optimizer.c and test_parts.c of tests/core/nn.

    python3 tests/golden/make_optimizers.py            needs torch

It computes in float32 on the CPU, and in float64 from the same float32 numbers. Gradients have very different sizes,
some are 0, and one element's gradient is always 0. Clipped gradients are torch.randn of three shapes, in this order,
after manual_seed(3), times a scale; the first elements of each are kept. PyTorch takes the norm in float; the second
norm is of the same gradients in float64.
"""
import torch

from formulas import as_line, write

COUNT, UPDATES, EPOCHS = 40, 5, 24
OPTIM, RATES = torch.optim, torch.optim.lr_scheduler
CASES = [(OPTIM.SGD, dict(lr=0.1, momentum=0.9)),
         (OPTIM.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01)),
         (OPTIM.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)),
         (OPTIM.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)),
         (OPTIM.SGD, dict(lr=0.1, momentum=0.9, dampening=0.3)),
         (OPTIM.SGD, dict(lr=0.1, momentum=0.7, dampening=0.9, weight_decay=0.01)),
         (OPTIM.Adadelta, dict()),
         (OPTIM.Adadelta, dict(lr=0.5, weight_decay=0.01)),
         (OPTIM.Adadelta, dict(lr=0.5, rho=0.7, eps=1e-4)),
         (OPTIM.Adam, dict()),
         (OPTIM.Adam, dict(lr=0.05, weight_decay=0.01)),
         (OPTIM.Adam, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-5)),
         (OPTIM.AdamW, dict()),
         (OPTIM.AdamW, dict(lr=0.05, weight_decay=0.1)),
         (OPTIM.AdamW, dict(lr=0.01, betas=(0.8, 0.95), eps=1e-5, weight_decay=0))]
SCHEDULES = [(1.0, lambda o: RATES.StepLR(o, 1, 0.7)),
             (0.2, lambda o: RATES.StepLR(o, 5)),
             (0.1, lambda o: RATES.CosineAnnealingLR(o, 24)),
             (0.37, lambda o: RATES.CosineAnnealingLR(o, 7)),
             (0.1, lambda o: RATES.CosineAnnealingLR(o, 10, 0.01))]
CLIPS = (1, 1), (1, 0.25), (1, 1000), (1, 0), (1e-4, 0.001), (0, 1), (1024, 5), (1e-8, 1e-8)  # scale, max_norm
lines = []


def line(name, numbers):
    lines.append(as_line(name, numbers, repr))


torch.manual_seed(0)
torch.set_num_threads(1)
start = torch.randn(COUNT)
grads = torch.randn(UPDATES, COUNT) * torch.pow(10.0, torch.randint(-5, 2, (UPDATES, COUNT)))
grads[torch.rand(UPDATES, COUNT) < 0.1] = 0
grads[:, 7] = 0
line("start", start.tolist())
for u, g in enumerate(grads):
    line(f"grads_{u}", g.tolist())
for k, (make, options) in enumerate(CASES):
    for dtype, name in (torch.float32, "float"), (torch.float64, "double"):
        p = torch.nn.Parameter(start.to(dtype, copy=True))
        optimizer = make([p], foreach=False, **options)
        for g in grads:
            p.grad = g.to(dtype)
            optimizer.step()
        line(f"update_{k}_{name}", p.tolist())
for k, (base, make) in enumerate(SCHEDULES):
    optimizer = OPTIM.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    schedule, rates = make(optimizer), []
    for epoch in range(EPOCHS):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    line(f"schedule_{k}", rates)
for k, (scale, max_norm) in enumerate(CLIPS):
    torch.manual_seed(3)
    params = [torch.nn.Parameter(torch.zeros(s)) for s in ((4, 3), (33,), (2, 5, 7))]
    for p in params:
        p.grad = torch.randn(p.shape) * scale
    wide = torch.cat([p.grad.double().flatten() for p in params]).norm().item()
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm).item()
    line(f"clip_{k}", [scale, max_norm, norm, wide])
    line(f"clipped_{k}", torch.stack([p.grad.flatten()[:4] for p in params]))
write(__file__, "SGD, Adadelta, Adam and AdamW, StepLR and CosineAnnealingLR, clip_grad_norm_", lines)
