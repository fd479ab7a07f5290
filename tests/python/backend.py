"""Tests Duet as a backend of torch.distributed: compares every call on three ranks with what
PyTorch computes in one process, and tests failures and DistributedDataParallel. Needs torch.

    python tests/python/backend.py          the tests, in processes of mp.spawn
    torchrun ... or duet run ... this file  one rank of a job that a launcher started
"""

import os
import shutil
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import (default_hooks, powerSGD_hook,
                                                         quantization_hooks)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import duet.torch
from duet._work import DuetBackendError

N = 3
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
Op = dist.ReduceOp


def of_rank(rank, shape=(4,), dtype=torch.float32):
    """Small integers, whose sums and products are exact in every type."""
    values = (torch.arange(torch.Size(shape).numel()) + rank) % 3 + 1
    return values.to(dtype).reshape(shape)


def all_ranks(shape=(4,), dtype=torch.float32, n=N):
    return torch.stack([of_rank(rank, shape, dtype) for rank in range(n)])


def same(a, b):
    assert a.dtype == b.dtype and torch.equal(a, b), (a, b)


def fails(call, *words):
    try:
        call()
    except RuntimeError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no error of {words}")


def since_2_15(call):
    """Whether call() was made. PyTorch before 2.15 may itself refuse it for any such backend."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        if torch.__version__ >= "2.15" or isinstance(error, DuetBackendError):
            raise
        return False
    return True


def reductions(rank):
    for dtype in FLOATS + INTEGERS:
        every = all_ranks(dtype=dtype)
        want = {Op.SUM: every.sum(0), Op.PRODUCT: every.prod(0), Op.MIN: every.amin(0),
                Op.MAX: every.amax(0)}
        if dtype in INTEGERS:
            want.update({Op.BAND: every[0] & every[1] & every[2],
                         Op.BOR: every[0] | every[1] | every[2],
                         Op.BXOR: every[0] ^ every[1] ^ every[2]})
        for op, result in want.items():
            x = of_rank(rank, dtype=dtype)
            dist.all_reduce(x, op)
            same(x, result.to(dtype))
            x = of_rank(rank, dtype=dtype)
            dist.reduce(x, 1, op)
            same(x, result.to(dtype) if rank == 1 else of_rank(rank, dtype=dtype))
    x = of_rank(rank, (6,))
    dist.all_reduce(x, Op.AVG)
    assert torch.allclose(x, all_ranks((6,)).mean(0))
    x = torch.tensor([rank == 1, False])
    dist.all_reduce(x, Op.MAX)
    same(x, torch.tensor([True, False]))
    x = torch.complex(of_rank(rank), of_rank(rank + 1))
    dist.all_reduce(x)
    same(x, torch.complex(all_ranks().sum(0), sum(of_rank(r + 1) for r in range(N))))
    whole, part = of_rank(rank, (N, 2)), torch.empty(2)
    dist.reduce_scatter_tensor(part, whole)
    same(part, all_ranks((N, 2)).sum(0)[rank])
    part = torch.empty(rank + 1)
    dist.reduce_scatter(part, [of_rank(rank, (r + 1,)) for r in range(N)])
    same(part, all_ranks((rank + 1,)).sum(0))


def moves(rank):
    for dtype in FLOATS + INTEGERS + [torch.bool, torch.complex64, torch.complex128]:
        x = of_rank(rank, dtype=dtype)
        dist.broadcast(x, 2)
        same(x, of_rank(2, dtype=dtype))
        parts = [torch.empty(4, dtype=dtype) for _ in range(N)]
        dist.all_gather(parts, of_rank(rank, dtype=dtype))
        same(torch.stack(parts), all_ranks(dtype=dtype))
    parts = [torch.empty(r + 1) for r in range(N)]
    dist.all_gather(parts, of_rank(rank, (rank + 1,)))
    for r in range(N):
        same(parts[r], of_rank(r, (r + 1,)))
    whole = torch.empty(N, 4)
    dist.all_gather_into_tensor(whole, of_rank(rank))
    same(whole, all_ranks())
    rows = list(whole.zero_())  # they are contiguous, so they are gathered in place
    dist.gather(of_rank(rank), rows if rank == 1 else None, dst=1)
    same(whole, all_ranks() if rank == 1 else torch.zeros(N, 4))
    x = torch.empty(4)
    dist.scatter(x, [of_rank(r) for r in range(N)] if rank == 0 else None, src=0)
    same(x, of_rank(rank))
    dist.all_to_all_single(whole, of_rank(rank, (N, 4)))
    same(whole, all_ranks((N, 4))[:, rank])
    sizes = [r + 1 for r in range(N)]
    out = torch.empty(N * (rank + 1))
    dist.all_to_all_single(out, of_rank(rank, (6,)), [rank + 1] * N, sizes)
    want = [of_rank(r, (6,)).split(sizes)[rank] for r in range(N)]
    same(out, torch.cat(want))
    parts = [torch.empty(rank + 1) for _ in range(N)]
    dist.all_to_all(parts, list(of_rank(rank, (6,)).split(sizes)))
    same(torch.cat(parts), torch.cat(want))
    everything = [None] * N
    dist.all_gather_object(everything, {"rank": rank})
    assert everything == [{"rank": r} for r in range(N)]
    x = torch.empty(0)
    dist.all_reduce(x)


def messages(rank):
    if rank == 0:
        for tag in (7, 5):
            dist.send(torch.full((3,), float(tag)), 1, tag=tag)
    if rank == 1:
        x = torch.empty(3)
        for tag in (5, 7):
            dist.recv(x, 0, tag=tag)
            same(x, torch.full((3,), float(tag)))
    x = torch.empty(2)
    if rank == 2:
        assert {dist.recv(x), dist.recv(x)} == {0, 1}
    else:
        dist.send(torch.ones(2), 2)
    far, got = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)  # longer than a mailbox
    calls = [dist.P2POp(dist.isend, far, (rank + 1) % N),
             dist.P2POp(dist.irecv, got, (rank - 1) % N)]
    for call in dist.batch_isend_irecv(calls):
        call.wait()
    assert got[-1] == (rank - 1) % N


def handles(rank):
    x = [of_rank(rank, (1000,)) for _ in range(20)]
    calls = [dist.all_reduce(t, async_op=True) for t in x]
    futures = [call.get_future() for call in calls]
    for t, call, future in zip(x, calls, futures):
        assert future.wait()[0] is t and call.wait() and call.is_completed()
        same(t, all_ranks((1000,)).sum(0))
    doubled = dist.all_reduce(of_rank(rank), async_op=True).get_future().then(
        lambda f: f.value()[0] * 2).wait()
    same(doubled, all_ranks().sum(0) * 2)
    with dist._coalescing_manager():
        for t in x[:2]:
            dist.all_reduce(t)
    same(x[1], all_ranks((1000,)).sum(0) * N)
    dist.barrier(async_op=True).wait()
    since_2_15(lambda: dist.monitored_barrier(timeout=timedelta(seconds=20)))


def groups(rank):
    some = dist.new_group([2, 0])
    if rank != 1:
        assert dist.get_rank(some) == {0: 0, 2: 1}[rank]
        x = of_rank(rank)
        dist.all_reduce(x, group=some)
        same(x, of_rank(0) + of_rank(2))
        dist.destroy_process_group(some)

    def split():
        part = dist.split_group(split_ranks=[[0, 1], [2]])
        x = torch.ones(1)
        dist.all_reduce(x, group=part)
        assert x.item() == (1 if rank == 2 else 2)
    since_2_15(split)
    nested, _ = dist.new_subgroups_by_enumeration([[0], [1, 2]])
    x = torch.ones(1)
    dist.all_reduce(x, group=nested)
    assert x.item() == (1 if rank == 0 else 2)


def a_net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def train(net, optimizer, rank, steps=4):
    """Each rank has four samples; rank None: one process has those of all, in the mean. Returns
    the loss of each step."""
    torch.manual_seed(2)
    x, y = torch.randn(N, 4, 8), torch.randint(3, (N, 4))
    ranks = range(N) if rank is None else [rank]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum(torch.nn.functional.cross_entropy(net(x[r]), y[r]) for r in ranks)
        (loss / len(ranks)).backward()
        optimizer.step()
        losses.append(loss.detach() / len(ranks))
    return torch.stack(losses)


def train_alone():
    alone = a_net()
    train(alone, torch.optim.Adam(alone.parameters(), 0.01), None)
    return [p.detach() for p in alone.parameters()]


def close(parameters, want):
    for a, b in zip(parameters, want):
        assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


def training(rank):
    net = DistributedDataParallel(a_net(), bucket_cap_mb=1e-4)  # several buckets
    train(net, torch.optim.Adam(net.parameters(), 0.01), rank)
    close(net.parameters(), train_alone())
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    every = [torch.empty_like(weights) for _ in range(N)]
    dist.all_gather(every, weights)  # every rank has the same bits
    assert torch.equal(every[0], every[1]) and torch.equal(every[0], every[2])
    rounded = DistributedDataParallel(a_net())
    rounded.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(rounded, torch.optim.SGD(rounded.parameters(), 0.1), rank)
    exact = DistributedDataParallel(a_net())
    train(exact, torch.optim.SGD(exact.parameters(), 0.1), rank)
    for a, b in zip(rounded.parameters(), exact.parameters()):
        assert torch.allclose(a, b, atol=1e-3)


def sharded(rank):
    """What PyTorch builds on process groups: each ends with the weights of one process."""
    want = train_alone()
    net = DistributedDataParallel(a_net())
    train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01), rank)
    close(net.parameters(), want)
    of_gloo, mesh = dist.new_group(backend="gloo"), init_device_mesh("cpu", (N,))
    losses = []
    for of in DeviceMesh.from_group(of_gloo, "cpu"), mesh:
        net = a_net()
        for layer in net:
            if list(layer.parameters()):
                fully_shard(layer, mesh=of)
        fully_shard(net, mesh=of)
        losses.append(train(net, torch.optim.Adam(net.parameters(), 0.01), rank))
        close([p.full_tensor() for p in net.parameters()], want)
    assert torch.allclose(*losses, rtol=2e-6, atol=0), losses
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    checkpoint.save(net.state_dict(), checkpoint_id=folder[0])
    other = fully_shard(a_net(), mesh=mesh)
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=folder[0])
    other.load_state_dict(state)
    close([p.full_tensor() for p in other.parameters()], want)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])


def every_call(rank, group, lists=True):
    """Calls for which gloo and Duet must leave the same spans in PyTorch's profiler."""
    x, parts, whole = torch.ones(2, 3), [torch.ones(2, 3) for _ in range(N)], torch.ones(2 * N, 3)
    dist.all_reduce(x, group=group)
    dist.all_reduce(x, async_op=True, group=group).wait()
    dist.all_reduce(torch.ones(3, dtype=torch.int32), Op.BAND, group=group)
    dist.all_reduce(torch.ones(3, dtype=torch.complex64), group=group)
    dist.all_reduce(torch.eye(2).to_sparse(), group=group)
    dist.all_reduce_coalesced([x, torch.ones(4)], group=group)
    dist.reduce(x, 0, group=group)
    dist.broadcast(x, 0, group=group)
    dist.all_gather(parts, x, group=group)
    dist.all_gather_into_tensor(whole, x, group=group)
    dist.gather(x, parts if rank == 0 else None, group=group)
    dist.scatter(x, parts if rank == 0 else None, group=group)
    if lists:
        dist.all_to_all(parts, [part.clone() for part in parts], group=group)
    dist.all_to_all_single(whole, whole.clone(), group=group)
    dist.barrier(group)
    if rank == 0:
        dist.send(x, 1, group=group)
        dist.isend(x, 1, group=group, tag=5).wait()
    if rank == 1:
        dist.recv(x, group=group)
        dist.irecv(x, 0, group=group, tag=5).wait()


def spans(rank):
    ones, of_gloo = [torch.ones(1) for _ in range(2 * N)], dist.new_group(backend="gloo")
    lists = since_2_15(lambda: dist.all_to_all(ones[:N], ones[N:], group=of_gloo))

    def left_by(backend):
        group = dist.new_group(backend=backend)
        with torch.autograd.profiler.profile(record_shapes=True) as profile:
            every_call(rank, group, lists)
        return sorted((event.name.removeprefix(backend), event.input_shapes, event.is_async,
                       event.count) for event in profile.function_events
                      if event.name.startswith(f"{backend}:"))
    got, want = left_by("duet"), left_by("gloo")
    assert got == want and len(got) >= 15, (got, want)
    left = dist.new_group(timeout=timedelta(seconds=0.5))
    with torch.autograd.profiler.profile() as profile:
        if rank == 0:  # a failed call also has a span
            fails(lambda: dist.all_reduce(torch.ones(1), group=left), "Timed out")
    names = [event.name for event in profile.function_events]
    assert names.count("duet:all_reduce") == (rank == 0), names
    every_call(rank, dist.group.WORLD)
    dist.barrier()


def misuse(rank):
    fails(lambda: dist.all_reduce(torch.ones(4, 4).t()[1:]), "contiguous")
    fails(lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn)), "float8")
    fails(lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4)), "divide equally")
    alone = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
    if rank == 0:
        fails(lambda: dist.all_reduce(torch.ones(1), group=alone), "Timed out", "rank 1")
        fails(lambda: dist.all_reduce(torch.ones(1), group=alone), "duet: ")
    dist.barrier()  # a group's failure does not affect other groups


def many_tensors(rank):
    """Handles of other memory are dropped while another thread sends messages."""
    duet.torch._MOST_TENSORS = 3
    rows = torch.arange(400.0).view(200, 2) + rank
    group = dist.group.WORLD._get_backend(torch.device("cpu"))
    free, freed = group.library.duet_tensor_free, []
    group.library.duet_tensor_free = lambda handle: (freed.append(handle.value), free(handle))
    taken = group._tensor(rows[0])  # a thread may be about to call with it
    for i in range(1, 6):
        group._tensor(rows[i])
    assert len(group.tensors) < 5 and taken.value not in freed
    for i in range(6, 12):
        group._tensor(rows[i])
    assert taken.value in freed and len(group.tensors) + len(group.aged) < 10

    def messages():
        for i in range(100):
            x = rows[i] if rank == 0 else torch.zeros(2)
            dist.send(x, 1, tag=7) if rank == 0 else dist.recv(x, 0, tag=7)
            assert torch.equal(x, torch.tensor([2.0 * i, 2.0 * i + 1])), (i, x)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(messages) if rank < 2 else None
        sums = dist.new_group()
        for i in range(100, 200):
            dist.all_reduce(rows[i], group=sums)
            same(rows[i], torch.tensor([2.0 * i, 2.0 * i + 1]) * N + 3)
            dist.isend(rows[i], (rank + 1) % N, tag=i).wait() if rank == 0 else None
            if rank == 1:
                got = torch.zeros(2)
                dist.irecv(got, 0, tag=i).wait()
                same(got, rows[i])
        if other:
            other.result()


def nested(rank):
    """A callback of a future waits for another call, as PowerSGD's hook does."""
    x, y = torch.ones(4), torch.ones(4)

    def then(_):
        return dist.all_reduce(y, async_op=True).get_future().wait()[0]
    for _ in range(3):
        got = dist.all_reduce(x, async_op=True).get_future().then(then).wait()
        same(got, y)


def compressed(rank):
    """Hooks that compress gradients leave all ranks with the same parameters."""
    for hook, state in ((powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2)),
            (quantization_hooks.quantization_pertensor_hook, dist.group.WORLD)):
        torch.manual_seed(0)
        net = DistributedDataParallel(torch.nn.Linear(32, 32))
        net.register_comm_hook(state, hook)
        for step in range(4):
            torch.manual_seed(N * step + rank)
            net(torch.randn(2, 32)).square().mean().backward()
        gradient = net.module.weight.grad
        every = [torch.empty_like(gradient) for _ in range(N)]
        dist.all_gather(every, gradient)
        [same(one, gradient) for one in every]
        assert gradient.abs().max() > 0


def failing(what, rank):
    """A separate job that ends in an error; `what` selects it."""
    file = f"{what}-{os.getppid()}"
    dist.init_process_group("duet", f"file://{os.path.join(tempfile.gettempdir(), file)}",
                            timedelta(seconds=30), 2, rank)
    if what == "types":
        x, words = torch.ones(4, dtype=(torch.bfloat16, torch.float32)[rank]), ("bfloat16 sum",)
    else:
        x, words = torch.ones(4 + rank), ("sizes differ",)
    if what != "death":
        return fails(lambda: dist.all_reduce(x), *words)
    net = DistributedDataParallel(torch.nn.Linear(8, 2))

    def steps():
        for i in range(6):
            if rank and i == 3:
                net.module.weight.register_hook(lambda _: os._exit(7))  # within its backward
            net(torch.ones(4, 8)).sum().backward()
    fails(steps, "rank 1")


CHECKS = [nested, compressed, reductions, moves, messages, handles, many_tensors, groups,
          training, sharded, spans, misuse]


def rank_of(rank, n, file, name):
    torch.set_num_threads(1)
    dist.init_process_group("duet", init_method=f"file://{file}", rank=rank, world_size=n,
                            timeout=timedelta(seconds=60))
    assert dist.get_backend() == "duet"
    {check.__name__: check for check in CHECKS}[name](rank)
    dist.barrier()
    dist.destroy_process_group()


class Backend(unittest.TestCase):
    def test_failures(self):
        for what, ends in (("types", [0, 0]), ("sizes", [0, 0]), ("death", [0, 7])):
            ranks = [mp.get_context("fork").Process(target=failing, args=(what, rank))
                     for rank in range(2)]
            [rank.start() for rank in ranks]
            [rank.join(60) for rank in ranks]
            self.assertEqual([rank.exitcode for rank in ranks], ends, what)


def add(check):
    def test(self):
        file = os.path.join(tempfile.gettempdir(), f"duet-{os.getpid()}-{check.__name__}")
        try:
            mp.start_processes(rank_of, (N, file, check.__name__), N, start_method="fork")
        finally:
            if os.path.exists(file):
                os.remove(file)
    setattr(Backend, f"test_{check.__name__}", test)


for check in CHECKS:
    add(check)


def one_rank():
    dist.init_process_group("duet", timeout=timedelta(seconds=60))
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x[0] == dist.get_world_size()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {x[0]:g}")
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(one_rank()) if "WORLD_SIZE" in os.environ else unittest.main()
