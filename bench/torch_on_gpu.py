#!/usr/bin/env python3
"""The time and the memory of PyTorch's eager training step on this machine's first GPU, beside what
`duet estimate` says of them.

    python3 bench/torch_on_gpu.py [--duet build/duet] [--gpu h200] [--machine dgx-h100]
                                  [--models resnet50,...] [--json FILE]
    python3 bench/torch_on_gpu.py --read FILE
    needs torch, torchvision, transformers and a GPU; with --read none of these

A step is what docs/clock.md calls one: zero_grad, the batch from pinned memory, forward, loss,
backward, SGD. Times are the median of single steps: in plain float32 (ieee), as PyTorch is by
default (TF32 in convolutions alone), and with TF32 in products too (high). Memory is
torch.cuda.max_memory_allocated of a step, and what is held between two steps. The workspaces that
cuDNN and cuBLAS take from PyTorch's allocator are among it; the estimate leaves them out.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

VISION = ["--dataset", "random", "--shape", "3x224x224", "--classes", "1000"]
TOKENS = ["--dataset", "random", "--shape", "1024x1x1"]
# name of torchvision or transformers, name in `duet estimate`, batch, words for it
ROWS = [
    ("resnet18", "torchvision-resnet18", 12, VISION),
    ("resnet18", "torchvision-resnet18", 128, VISION),
    ("resnet50", "resnet50", 12, VISION),
    ("resnet50", "resnet50", 64, VISION),
    ("vgg16", "vgg16", 12, VISION),
    ("gpt2", "gpt2-small", 4, TOKENS),
]
WARM, STEPS = 3, 10
MIB = 1 << 20


def net_and_batch(name, batch):
    import torch
    if name == "gpt2":
        import transformers
        config = transformers.GPT2Config(n_positions=1024, attn_implementation="eager")
        tokens = torch.randint(0, 50257, (batch, 1024))
        return transformers.GPT2LMHeadModel(config), tokens, tokens
    import torchvision
    return (getattr(torchvision.models, name)(), torch.randn(batch, 3, 224, 224),
            torch.randint(0, 1000, (batch,)))


def measure(name, batch):
    """One row's figures: bytes and milliseconds."""
    import torch
    from torch.nn import functional as F
    torch.manual_seed(0)
    net, x, y = net_and_batch(name, batch)
    net, x, y = net.cuda().train(), x.pin_memory(), y.pin_memory()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        inputs, labels = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        out = net(inputs)
        if name == "gpt2":
            loss = F.cross_entropy(out.logits.flatten(0, 1), labels.flatten())
        else:
            loss = F.cross_entropy(out, labels)
        loss.backward()
        optimizer.step()
        return loss

    figures = {"model": name, "batch": batch}
    for precision in ("ieee", "default", "high"):
        torch.backends.cudnn.allow_tf32 = precision != "ieee"
        torch.backends.cuda.matmul.allow_tf32 = precision == "high"
        for _ in range(WARM):
            loss = step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begin))
        figures[f"ms_{precision}"] = round(statistics.median(times), 3)
        figures[f"peak_{precision}"] = torch.cuda.max_memory_allocated()
        figures[f"held_{precision}"] = torch.cuda.memory_allocated()
    figures["params"] = sum(p.numel() for p in net.parameters())
    figures["loss"] = loss.item()
    return figures


def measure_all(names):
    import torch
    device = torch.cuda.get_device_properties(0)
    rows = []
    for name, _, batch, _ in ROWS:
        if names and name not in names:
            continue
        rows.append(measure(name, batch))
        print(json.dumps(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    return {"gpu": device.name, "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(), "rows": rows}


def estimate(duet, gpu, machine, row):
    """Milliseconds of a step and the bytes at its peak, as the command computes them."""
    words = next(r for r in ROWS if r[0] == row["model"] and r[2] == row["batch"])
    batch = str(row["batch"])
    line = [duet, "estimate", "--model", words[1], *words[3], "--devices", "1"]
    clock = subprocess.run([*line, "--gpu", gpu, "--machine", machine, "--batch-per-device", batch],
                           check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run.json")
        subprocess.run([*line, "--batch-size", batch, "--as", "pytorch", "--json", out],
                       check=True, capture_output=True)
        held = json.loads(out.read_text())["runs"][0]["as_pytorch"][0]["memory_peak"]
    return float(re.search(r"1 single +([\d.]+)", clock).group(1)), held


def show(duet, gpu, machine, result):
    print(f"# PyTorch {result['torch']} on {result['gpu']}, beside duet estimate --gpu {gpu} "
          f"--machine {machine}, --as pytorch")
    print("# model    batch  ms, its default  estimate   off   MiB at its peak  estimate   off")
    for row in result["rows"]:
        ms, held = estimate(duet, gpu, machine, row)
        took, peak = row["ms_default"], row["peak_default"]
        print(f"{row['model']:10} {row['batch']:5}"
              f" {took:16.2f} {ms:9.2f} {100 * (ms / took - 1):+5.0f}"
              f"  {peak / MIB:16.0f} {held / MIB:9.0f} {100 * (held / peak - 1):+5.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--duet", default="build/duet")
    parser.add_argument("--gpu", default="h200", help="of duet devices --gpus")
    parser.add_argument("--machine", default="dgx-h100")
    parser.add_argument("--models", default="")
    parser.add_argument("--json", help="writes what was measured")
    parser.add_argument("--read", help="a file of --json, in place of measuring")
    args = parser.parse_args()
    if args.read:
        result = json.loads(pathlib.Path(args.read).read_text())
    else:
        result = measure_all(args.models.split(",") if args.models else [])
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, indent=1))
    show(args.duet, args.gpu, args.machine, result)


if __name__ == "__main__":
    main()
