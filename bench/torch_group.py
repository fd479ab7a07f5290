"""The calls of bench/group_perf.c by PyTorch's gloo, in the same columns:
torch_group.py [-n RANKS] [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS]"""
import argparse
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def call_of(name, rank, n, count):
    """A function that makes the call once; `count` floats in the larger tensor."""
    one, many = torch.ones(max(count // n, 1)), torch.ones(max(count // n, 1) * n)
    x = torch.ones(count)
    parts = list(many.chunk(n))

    def send_recv():
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)

    return {
        "all_reduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "reduce": lambda: dist.reduce(x, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(many, one),
        "all_to_all": lambda: dist.all_to_all_single(many, many.clone()),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, many),
        "gather": lambda: dist.gather(one, parts if rank == 0 else None),
        "scatter": lambda: dist.scatter(one, parts if rank == 0 else None),
        "send_recv": send_recv,
        "barrier": dist.barrier,
    }[name]


CALLS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all",
         "gather", "scatter", "send_recv", "barrier"]


def run(rank, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29613", rank=rank,
                            world_size=options.n)
    for name in CALLS:
        size = options.b
        while size <= options.e and options.c in (None, name):
            call = call_of(name, rank, options.n, size // 4)
            try:
                call()
            except RuntimeError as error:
                if rank == 0:
                    print(f"{name}: {error}")
                break
            start = time.perf_counter()
            call()  # says how many there is time for
            once = torch.tensor(time.perf_counter() - start)
            dist.all_reduce(once, dist.ReduceOp.MAX)
            times = []
            for _ in range(max(5, min(2000, int(options.t / once.item())))):
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            worst = torch.tensor(sorted(times)[len(times) // 2] * 1e6)
            dist.all_reduce(worst, dist.ReduceOp.MAX)
            if name == "send_recv":
                worst /= 2
            if rank == 0:
                print(f"{name:15} {options.n:3} {size:12} {worst.item():12.2f}", flush=True)
            if name == "barrier":
                break
            size *= 4
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("-b", type=int, default=4)
    parser.add_argument("-e", type=int, default=16 << 20)
    parser.add_argument("-c")
    parser.add_argument("-t", type=float, default=0.2)
    arguments = parser.parse_args()
    mp.spawn(run, (arguments,), arguments.n)
