"""Duet's backend of torch.distributed beside gloo, in one run: PYTHONPATH=python python
bench/torch_backend.py [RANKS]. Needs torch.

Both backends take turns, block by block, so that the noise of the machine meets both; the table has
the median of the blocks on the slowest rank. Last comes DistributedDataParallel as time per step:
over a small convolutional net, and over ResNet-18 where torchvision is installed.
"""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import duet.torch

BACKENDS, BLOCKS = ("duet", "gloo"), 7
SIZES = (1, 256, 16384, 262144, 4194304)


def medians_us(groups, calls, number):
    blocks = {name: [] for name in BACKENDS}
    for _ in range(BLOCKS):
        for name in BACKENDS:
            dist.barrier(groups[name])
            begin = time.perf_counter()
            for _ in range(number):
                calls[name]()
            blocks[name].append((time.perf_counter() - begin) / number * 1e6)
    slowest = torch.tensor([statistics.median(blocks[name]) for name in BACKENDS])
    dist.all_reduce(slowest, dist.ReduceOp.MAX, groups["gloo"])
    return dict(zip(BACKENDS, slowest.tolist()))


def calls_of(group, count, n, rank):
    x, many, part = torch.ones(count), torch.ones(n * count), torch.ones(count)
    yield "all_reduce", lambda: dist.all_reduce(x, group=group)
    yield "broadcast", lambda: dist.broadcast(x, 0, group=group)
    yield "all_gather", lambda: dist.all_gather_into_tensor(many, part, group=group)
    yield "reduce_scatter", lambda: dist.reduce_scatter_tensor(part, many, group=group)
    yield "all_to_all", lambda: dist.all_to_all_single(many, many.clone(), group=group)

    def there_and_back():
        for sender in (0, 1):
            if rank == sender:
                dist.send(x, 1 - sender, group=group)
            elif rank == 1 - sender:
                dist.recv(x, sender, group=group)
    yield "send, recv", there_and_back


def small_net():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1),
                        nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16 * 16, 256), nn.ReLU(),
                         nn.Linear(256, 10))


def step_of(group, net_of):
    torch.manual_seed(0)
    net = DistributedDataParallel(net_of(), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    x, y = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return step


def rank_of(rank, n, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=n)
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}

    def show(what, count, times):
        if rank == 0:
            print(f"{what:15}{4 * count:>10}{times['duet']:>12.1f}{times['gloo']:>12.1f}"
                  f"{times['gloo'] / times['duet']:>8.2f}", flush=True)
    if rank == 0:
        print(f"torch {torch.__version__}, {n} ranks on {os.cpu_count()} cores; us, median of "
              f"{BLOCKS} blocks\n{'call':15}{'bytes':>10}{'duet':>12}{'gloo':>12}{'times':>8}")
    for count in SIZES:
        number = max(3, min(200, 1000000 // count))
        calls = {name: dict(calls_of(groups[name], count, n, rank)) for name in BACKENDS}
        for what in calls["duet"]:
            show(what, count, medians_us(groups, {name: calls[name][what] for name in BACKENDS},
                                         number))
    nets = {"DDP step": small_net}
    try:
        from torchvision.models import resnet18
        nets["DDP resnet18"] = lambda: resnet18(num_classes=10)
    except ImportError:
        pass
    for what, net_of in nets.items():
        show(what, 0, medians_us(groups, {name: step_of(groups[name], net_of)
                                          for name in BACKENDS}, 5))
    for name in BACKENDS:
        dist.destroy_process_group(groups[name])
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_of, (ranks, os.path.join(folder, "store")), ranks)
