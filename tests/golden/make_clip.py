"""Writes clip.h: torch.nn.utils.clip_grad_norm_ of float32 gradients, as facts for tests/core/nn/test_parts.c.

    python3 tests/golden/make_clip.py > tests/golden/clip.h

The gradients are torch.randn of the three shapes, in this order, after manual_seed(3), times `scale`.
PyTorch takes the norm in float; norm64 is that of the same gradients in float64.
"""
import torch

SHAPES = ((4, 3), (33,), (2, 5, 7))
PICKS = 4

print("/* Made by tests/golden/make_clip.py with torch", torch.__version__.split("+")[0], "- do not edit. */")
print("enum { CLIP_SHAPES = 3, CLIP_PICKS = %d };" % PICKS)
print("/* clipped: of each gradient the first elements, afterwards. */")
print("static const struct { double scale, max_norm, norm, norm64; double clipped[3][%d]; } golden_clips[] = {" % PICKS)
for scale, max_norm in ((1, 1), (1, 0.25), (1, 1000), (1, 0), (1e-4, 0.001), (0, 1), (1024, 5), (1e-8, 1e-8)):
    torch.manual_seed(3)
    params = [torch.nn.Parameter(torch.zeros(s)) for s in SHAPES]
    for p in params:
        p.grad = torch.randn(p.shape) * scale
    wide = torch.cat([p.grad.double().flatten() for p in params]).norm().item()
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm).item()
    picks = ", ".join("{" + ", ".join(repr(v) for v in p.grad.flatten()[:PICKS].tolist()) + "}" for p in params)
    print(f"    {{{scale!r}, {max_norm!r}, {norm!r}, {wide!r}, {{{picks}}}}},")
print("};")
