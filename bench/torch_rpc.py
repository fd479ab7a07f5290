"""Times the calls of bench/rpc.c in torch.distributed.rpc: python3 bench/torch_rpc.py
bench/rpc_beside_torch.py runs both."""
import os
import statistics
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

MOST, IN_FLIGHT = 2000, 64


def nothing():
    return None


def count(tensor):
    return tensor.numel()


def show(name, call, n):
    times = []
    for _ in range(n):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
    print(f"{name:<24} {min(times):12.1f} {statistics.median(times):12.1f}")


def measure():
    print(f"{'us':<24} {'fastest':>12} {'median':>12}")
    show("empty function", lambda: rpc.rpc_sync("there", nothing), MOST)
    sizes = (("4 floats", 4, MOST), ("1 MiB", 1 << 18, 400), ("64 MiB", 1 << 24, 20))
    for name, floats, n in sizes:
        tensor = torch.zeros(floats)
        assert rpc.rpc_sync("there", count, (tensor,)) == floats
        show(name, lambda t=tensor: rpc.rpc_sync("there", count, (t,)), n)
    began, futures = time.perf_counter(), []
    for _ in range(5 * MOST):
        if len(futures) == IN_FLIGHT:
            futures.pop(0).wait()
        futures.append(rpc.rpc_async("there", nothing))
    torch.futures.wait_all(futures)
    print(f"{'64 calls in flight':<24} {5 * MOST / (time.perf_counter() - began):12.0f} calls/s")
    show("remote and to_here", lambda: rpc.remote("there", nothing).to_here(), MOST)


def work(rank):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29511"))
    rpc.init_rpc("there" if rank else "here", rank=rank, world_size=2)
    if rank == 0:
        measure()
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
