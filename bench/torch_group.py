"""Times the calls of bench/group_perf.c in PyTorch's gloo, in the same columns:
torch_group.py [-n RANKS] [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS]"""
import argparse
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def values(rank, first, count):
    """Elements of a rank's input, as in bench/group_perf.c."""
    return repeated(period(rank, first), count)


def period(rank, first):
    return (1 + (3 * rank + torch.arange(first, first + 16)) % 16).float()


def repeated(elements, count):
    return elements.repeat(count // 16 + 1)[:count].clone()


def summed(n, first, count):
    return repeated(sum(period(r, first) for r in range(n)), count)


class Call:
    """A call to repeat, and its expected result the first time."""

    def __init__(self, name, rank, n, count):
        self.name, self.rank, self.n, self.count = name, rank, n, count
        self.block = count // n
        wide = self.block * n
        self.x, self.y = values(rank, 0, count), torch.zeros(count)
        self.one, self.many = values(rank, 0, self.block), torch.zeros(wide)
        self.got, self.input = torch.zeros(self.block), values(rank, 0, wide)
        self.parts = list(self.many.split(self.block)) if self.block else [self.many] * n
        self.inputs = list(self.input.split(self.block)) if self.block else [self.input] * n

    def send_recv(self):
        if self.rank == 0:
            dist.send(self.x, 1)
            dist.recv(self.y, 1)
        elif self.rank == 1:
            dist.recv(self.y, 0)
            dist.send(self.x, 0)

    def make(self):
        root = self.rank == 0
        {
            "all_reduce": lambda: dist.all_reduce(self.x),
            "broadcast": lambda: dist.broadcast(self.x, 0),
            "reduce": lambda: dist.reduce(self.x, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(self.many, self.one),
            "all_to_all": lambda: dist.all_to_all_single(self.many, self.input),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(self.got, self.input),
            "gather": lambda: dist.gather(self.one, self.parts if root else None),
            "scatter": lambda: dist.scatter(self.got, self.inputs if root else None),
            "send_recv": self.send_recv,
            "barrier": dist.barrier,
        }[self.name]()

    def check(self):
        n, rank, block, count = self.n, self.rank, self.block, self.count
        blocks = range(n) if block else []
        pairs = {
            "all_reduce": lambda: (self.x, summed(n, 0, count)),
            "broadcast": lambda: (self.x, values(0, 0, count)),
            "reduce": lambda: (self.x, summed(n, 0, count)) if rank == 0 else None,
            "all_gather": lambda: (self.many, [values(b, 0, block) for b in blocks]),
            "all_to_all": lambda: (self.many, [values(b, rank * block, block) for b in blocks]),
            "reduce_scatter": lambda: (self.got, summed(n, rank * block, block)),
            "gather": lambda: (self.many, [values(b, 0, block) for b in blocks])
            if rank == 0 else None,
            "scatter": lambda: (self.got, values(0, rank * block, block)),
            "send_recv": lambda: (self.y, values(1 - rank, 0, count)) if rank < 2 else None,
            "barrier": lambda: None,
        }[self.name]()
        if not pairs:
            return
        got, want = pairs
        if isinstance(want, list):
            want = torch.cat(want) if want else torch.zeros(0)
        if not torch.equal(got, want):
            raise SystemExit(f"{self.name} of {count}: rank {rank}: a wrong answer")


CALLS = ["all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all",
         "gather", "scatter", "send_recv", "barrier"]


def time_call(call, seconds):
    """The median time of a call in microseconds, on the slowest rank."""
    start = time.perf_counter()
    call.make()  # decides how many calls there is time for
    once = torch.tensor(time.perf_counter() - start)
    dist.all_reduce(once, dist.ReduceOp.MAX)
    times = []
    for _ in range(max(5, min(2000, int(seconds / once.item())))):
        start = time.perf_counter()
        call.make()
        times.append(time.perf_counter() - start)
    worst = torch.tensor(sorted(times)[len(times) // 2] * 1e6)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return worst.item() / (2 if call.name == "send_recv" else 1)


def run(rank, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29613", rank=rank,
                            world_size=options.n)
    time_call(Call("barrier", rank, options.n, 1), options.t)  # until the ranks have settled
    for name in CALLS:
        size = options.b
        while size <= options.e and options.c in (None, name):
            call = Call(name, rank, options.n, size // 4)
            try:
                call.make()
            except RuntimeError as error:
                if rank == 0:
                    print(f"{name}: {error}")
                break
            call.check()
            us = time_call(call, options.t)
            if rank == 0:
                print(f"{name:15} {options.n:3} {size:12} {us:12.2f}", flush=True)
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
