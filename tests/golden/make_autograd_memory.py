"""Writes autograd_memory.txt: the bytes that PyTorch holds during one training step, per device.

    python3 make_autograd_memory.py > autograd_memory.txt

PyTorch itself counts. The models run on the CPU. A dispatch mode sees every op, and every storage
that an op makes is counted until Python and autograd have released it. A storage's device follows
from its operands. `saved` is what saved_tensors_hooks see, without parameters, buffers and the
batch.

Without a GPU nn.DataParallel runs nothing in parallel, so this script imitates its known steps:
scatter copies each chunk from the host directly to its device; replicate copies parameters,
coalesced in buffers of 10 MiB, and its backward waits for the gradients of all replicas; gather
joins outputs on device 0; reduce_add_coalesced joins each 10 MiB of gradients on their devices and
leaves the sum on device 0, where it becomes .grad. DDP holds its buckets in addition to .grad. The
ranks of fully_shard, around each layer with parameters, use a fake process group.

A line has model, way, device, what, bytes; `peak` is the most at one moment of the step. Or it has
"op", its name, and the bytes that a single op saves (autograd_ops.py).
"""
import contextlib
import weakref

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from autograd_ops import OPS, saved_by_op

BUFFER = 10 << 20
DEVICES = 4
SHARDED = {"fsdp": True, "fsdp-keep": False}  # reshard_after_forward


class Memory(TorchDispatchMode):
    """Storages alive, by device."""

    def __init__(self):
        super().__init__()
        self.here = 0
        self.device = {}  # size of each live storage
        self.copies = []  # storages of parameters, buffers and the batch on other devices
        self.now, self.peak = {}, {}

    @contextlib.contextmanager
    def on(self, device):
        before, self.here = self.here, device
        try:
            yield
        finally:
            self.here = before

    def add(self, tensor, device):
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.device or not size:
            return
        self.device[key] = device
        self.now[device] = self.now.get(device, 0) + size
        self.peak[device] = max(self.peak.get(device, 0), self.now[device])

        def gone():
            self.now[device] -= size
            del self.device[key]

        weakref.finalize(storage, gone)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [self.device[x.untyped_storage()._cdata]
                 for x in _pytree.tree_leaves((args, kwargs))
                 if isinstance(x, torch.Tensor) and x.untyped_storage()._cdata in self.device]
        out = function(*args, **(kwargs or {}))
        for x in _pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.add(x, given[0] if given else self.here)
        return out


class Resized(Memory):
    """FSDP empties storages and fills them again: each is asked its current size."""

    def __init__(self):
        super().__init__()
        self.alive = {}

    def add(self, tensor, device):
        storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
        if device != "host" and storage._cdata not in self.alive:
            self.alive[storage._cdata] = weakref.ref(storage)
            weakref.finalize(storage, self.alive.pop, storage._cdata, None)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(function, types, args, kwargs)
        storages = [x() for x in self.alive.values()]
        held = sum(x.nbytes() for x in storages if x is not None)
        self.peak[0] = max(self.peak.get(0, 0), held)
        return out


# ---- the models ----

class Lenet(nn.Module):
    """The LeNet of "Dive into Deep Learning" 13.5."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 20, 3), nn.Conv2d(20, 50, 5)
        self.l1, self.l2 = nn.Linear(800, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.c1(x)), 2)
        x = F.avg_pool2d(F.relu(self.c2(x)), 2)
        return self.l2(F.relu(self.l1(x.flatten(1))))


class Residual(nn.Module):
    """The ResNet block of "Dive into Deep Learning" 8.6."""

    def __init__(self, into, out, halves):
        super().__init__()
        stride = 2 if halves else 1
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1)
        self.conv3 = nn.Conv2d(into, out, 1, stride) if halves else None
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.conv3(x) if self.conv3 else x))


def resnet18():
    """The ResNet-18 of 13.6."""
    blocks = []
    for into, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        blocks += [Residual(into, out, into != out), Residual(out, out, False)]
    return nn.Sequential(nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(512, 10))


class Bottleneck(nn.Module):
    """The bottleneck of torchvision's ResNet-50."""

    def __init__(self, into, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.beside = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False),
                                    nn.BatchNorm2d(out)) if into != out else None

    def forward(self, x):
        y = self.body(x)
        y += self.beside(x) if self.beside else x
        return F.relu(y, inplace=True)


def resnet50():
    layers, into = [], 64
    for i, count in enumerate((3, 4, 6, 3)):
        for block in range(count):
            layers.append(Bottleneck(into, 64 << i, 2 if i and not block else 1))
            into = 4 * (64 << i)
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
                         nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), *layers,
                         nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(2048, 1000))


def mlp(*hidden):
    layers, into = [nn.Flatten()], 784
    for width in hidden:
        layers += [nn.Linear(into, width), nn.ReLU()]
        into = width
    return nn.Sequential(*layers, nn.Linear(into, 10))


# ---- DataParallel's steps ----

def groups(tensors):
    """The tensors that go into one buffer."""
    group, size = [], 0
    for x in tensors:
        if size and size + x.nbytes > BUFFER:
            yield group
            group, size = [], 0
        group.append(x)
        size += x.nbytes
    yield group


def joined(group):
    return group[0].flatten() if len(group) == 1 else torch.cat([x.flatten() for x in group])


def pieces(flat, group):
    at, out = 0, []
    for x in group:
        out.append(flat[at:at + x.numel()].view(x.shape))
        at += x.numel()
    return out


def copies(memory, tensors, device):
    """broadcast_coalesced to one device."""
    out = []
    with memory.on(device):
        for group in groups(tensors):
            flat = torch.empty(sum(x.numel() for x in group))
            memory.copies.append(flat.untyped_storage()._cdata)
            out += [x.data for x in pieces(flat, group)]
    return out


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, memory, *params):
        ctx.memory, ctx.count = memory, len(params)
        out = list(params)
        for device in range(1, DEVICES):
            out += copies(memory, [p.detach() for p in params], device)
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        n, memory, sums = ctx.count, ctx.memory, []
        each = [list(groups(grads[d * n:(d + 1) * n])) for d in range(DEVICES)]
        for chunks in zip(*each):
            flat = [joined(chunk) for chunk in chunks]
            with memory.on(0):
                result = torch.empty(flat[0].shape)
            sums += [x.data for x in pieces(result, chunks[0])]
        return (None, *sums)


class To(torch.autograd.Function):
    """A copy on another device; backward copies the gradient back."""

    @staticmethod
    def forward(ctx, memory, x, source, target):
        ctx.memory, ctx.source = memory, source
        with memory.on(target):
            return torch.empty(x.shape)

    @staticmethod
    def backward(ctx, grad):
        with ctx.memory.on(ctx.source):
            return None, torch.empty(grad.shape), None, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, memory, *parts):
        ctx.memory, ctx.sizes = memory, [len(x) for x in parts]
        with memory.on(0):
            return torch.empty(sum(ctx.sizes), *parts[0].shape[1:])

    @staticmethod
    def backward(ctx, grad):
        out = []
        for device, part in enumerate(grad.split(ctx.sizes)):
            with ctx.memory.on(device):
                out.append(part if device == 0 else torch.empty(part.shape))
        return (None, *out)


def data_parallel(memory, net, x):
    names, params = zip(*net.named_parameters())
    buffers = dict(net.named_buffers())
    chunks = []
    for device, chunk in enumerate(x.chunk(DEVICES)):
        with memory.on(device):
            chunks.append(torch.empty(chunk.shape))
            memory.copies.append(chunks[-1].untyped_storage()._cdata)
    replicas = Broadcast.apply(memory, *params)
    n, outputs, own = len(params), [], []
    for device, chunk in enumerate(chunks):
        state = dict(zip(names, replicas[device * n:(device + 1) * n]))
        state.update(buffers if not device else
                     dict(zip(buffers, copies(memory, buffers.values(), device)))
                     if buffers else {})
        own.append(state)
        with memory.on(device):
            outputs.append(torch.func.functional_call(net, state, (chunk,)))
    return Gather.apply(memory, *outputs)


# ---- a step ----

def saved_by(memory, kept, wanted):
    """Hooks that note the bytes saved on each device, without `kept`."""
    seen = {}
    known = {x.untyped_storage()._cdata for x in kept}

    def pack(x):
        key = x.untyped_storage()._cdata
        if key not in known and key not in seen and key not in memory.copies:
            seen[key] = True
            device = memory.device.get(key, memory.here)
            wanted[device] = wanted.get(device, 0) + x.untyped_storage().nbytes()
        return x

    return torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x)


def step(make, batch, shape, way, half=False):
    """[saved], [peak] of each device in the second step. half: under autocast."""
    torch.manual_seed(0)
    net, memory = make(), Resized() if way in SHARDED else Memory()
    for layer in [*net.modules()][::-1] if way in SHARDED else ():
        if layer is net or [*layer.parameters(recurse=False)]:
            fully_shard(layer, mesh=dist.init_device_mesh("cpu", (DEVICES,)),
                        reshard_after_forward=SHARDED[way])
    update = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    n = batch if way in ("single", "dp") else batch // DEVICES
    saved = {}
    for turn in range(2):
        for x in (*net.parameters(), *net.buffers()):
            memory.add(x, 0)
        pixels = torch.rand(n, *shape)
        memory.add(pixels, "host")
        memory.copies.clear()
        with memory:
            buckets = torch.empty(sum(p.numel() for p in net.parameters())) if way == "ddp" else None
            labels = torch.zeros(n, dtype=torch.int64)
            update.zero_grad()
            memory.peak = dict(memory.now)
            saved = {}
            x = pixels if way == "dp" else torch.empty(pixels.shape)
            kept = [*net.parameters(), *net.buffers(), labels, x]
            with (saved_by(memory, kept, saved),
                  torch.autocast("cpu", dtype=torch.bfloat16, enabled=half)):
                output = data_parallel(memory, net, x) if way == "dp" else net(x)
                loss = F.cross_entropy(output, labels)
            loss.backward()
            update.step()
            del output, loss, labels, buckets, x, kept
    return saved, memory.peak


CASES = [  # the name, the model, the global batch, the shape of a sample
    ("mlp", lambda: mlp(256, 128), 256, (1, 28, 28)),
    ("mlp-wide", lambda: mlp(4096, 1024), 256, (1, 28, 28)),
    ("wide-head", lambda: nn.Linear(10, 20000), 64, (10,)),
    ("lenet", Lenet, 256, (1, 28, 28)),
    ("resnet18", resnet18, 32, (1, 28, 28)),
    ("resnet50", resnet50, 8, (3, 64, 64)),
]


def main():
    dist.init_process_group("fake", rank=0, world_size=DEVICES, store=FakeStore())
    print("# what PyTorch", torch.__version__, "holds, in bytes; written by",
          "make_autograd_memory.py\n# model way device what bytes; op name bytes")
    for name in OPS:
        print("op", name, saved_by_op(name))
    for name, make, batch, shape in CASES:
        for way in ("single", "dp", "ddp"):
            saved, peak = step(make, batch, shape, way)
            for device in (0, 1) if way == "dp" else (0,):
                for what, counts in (("saved", saved), ("peak", peak)):
                    print(name, way, device, what, counts.get(device, 0))
        for what, counts in zip(("saved", "peak"), step(make, batch, shape, "single", True)):
            print(name, "autocast 0", what, counts.get(0, 0))
        for way in SHARDED:
            print(name, way, "0 peak", step(make, batch, shape, way)[1][0])


main()
