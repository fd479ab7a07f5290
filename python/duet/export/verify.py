"""Checks that the text computes the same as the model. duet.export runs the text by Duet, and
compares its loss and gradients with the model's in float64.

Three batches are compared: the example inputs; other numbers right after them, which finds state
that forward keeps; and another number of samples. If something differs by more than FLOOR,
PyTorch's own float32 tells how close a right answer comes. This finds what torch.export does not
see: state, hooks on gradients, an autograd.Function with its own backward, reentrant checkpoints.
"""

import bisect
import contextlib
import copy
import json
import random
import re
import struct
import warnings

import numpy
import torch
from torch.nn import functional as F

from .._files import save_dataset
from .._library import DuetError
from ..command import train
from .text import ExportError

TIMES = 4  # as far from float64 as PyTorch's own float32
# Where PyTorch's float32 is exact by chance, Duet may be off by the roundings of long sums: of the
# parameter's own gradient; and of all gradients, for one that is nothing but roundings.
FLOOR, NOTHING = 1e-5, 1e-6
ROUNDED = 2.0 ** -21  # of parameters, relative: some roundings of float32
APART = 3e-5  # of a line's numbers, which differ by more than float32 rounds
RATE = 2.0 ** 40  # a step with it says the gradient: (before - after) / RATE
LARGE = 1 << 14  # numbers of a sample: of such, two are enough

_UNSEEN = ("torch.export does not see a custom backward (autograd.Function, hooks), "
           "inference_mode, .data and checkpoint(use_reentrant=True): write it as forward")
_OUTSIDE = ("forward keeps something outside the model, in a global, a class or a default "
            "argument: Duet's forward has no state")
_WHY = {"the example inputs": "forward does more than the trace shows: it changes a .data, draws "
                              "by Python's or numpy's generator, or keeps something between calls",
        "a second batch": "forward keeps something from one batch to the next, as a count in a dict"
                          ": Duet's forward has no state",
        "another number of samples": "what forward does depends on the number of samples"}


def copied(model):
    """A copy, on which forward may leave what it likes. A tensor that forward has computed and kept
    is copied as a number; what cannot be copied is an ExportError."""
    kept = {id(x): x.detach().clone() for module in model.modules() for x in vars(module).values()
            if isinstance(x, torch.Tensor) and x.grad_fn is not None}
    try:
        return copy.deepcopy(model, kept)
    except Exception as error:
        raise ExportError(f"duet.export: {type(model).__name__} cannot be copied ("
                          f"{(str(error).splitlines() or [type(error).__name__])[0]}): its "
                          "modules must be copyable: the export runs copies of the model") from None


def _norm(x):
    return torch.linalg.vector_norm(x, dtype=torch.float64).item()


# ---- PyTorch's answer

class _Mode(torch.overrides.TorchFunctionMode):
    """Forward without dropout, and in dtype where it asks for float32 by name."""

    dropouts = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout,
                F.feature_alpha_dropout, torch.dropout, torch.dropout_, torch.alpha_dropout}

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in self.dropouts:
            return args[0] if args else kwargs["input"]
        if function is F.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs.update({"dropout_p": 0.0} if len(args) < 5 else {})
        if self.dtype == torch.float64:
            function = torch.Tensor.double if function is torch.Tensor.float else function
            args = tuple(self.dtype if x is torch.float32 else x for x in args)
            kwargs = {k: self.dtype if x is torch.float32 else x for k, x in kwargs.items()}
        return function(*args, **kwargs)


class _Answer:
    """The loss of the last of these batches, and its gradients, of a copy of the model. moved: the
    number of a draw that moves each parameter by about as much as float32 rounds on the way."""

    def __init__(self, model, result_of, dtype, batches, updated, moved=0, backward=True):
        def typed(x):
            return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        model = copied(model).cpu()
        for module in model.modules():
            if isinstance(module, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
                module.dropout = 0.0
        model = model.double() if dtype == torch.float64 else model
        if not model.training:
            model.train()
        # The draws are equal in all runs, and differ from those of the trace.
        random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
        drawn, default = torch.get_rng_state(), torch.get_default_dtype()
        of_moves = torch.Generator().manual_seed(moved)
        for p in model.parameters() if moved else ():
            p.data *= 1 + ROUNDED * torch.randn(p.shape, generator=of_moves, dtype=p.dtype)
        torch.set_default_dtype(dtype)
        try:
            with _Mode(dtype), torch.enable_grad():
                kept = {name: model.get_buffer(name).clone() for name in updated}
                for batch in batches[:-1]:
                    model(*map(typed, batch))
                for name, numbers in kept.items():  # the text updates these itself
                    model.get_buffer(name).data.copy_(numbers)
                model.zero_grad()
                y = result_of(model(*map(typed, batches[-1])))
                self.target = numpy.random.RandomState(3).standard_normal(y.shape).astype("f4")
                loss = (y - torch.from_numpy(self.target).to(dtype)).square().mean()
                if backward:
                    loss.backward()
        finally:
            torch.set_default_dtype(default)
        self.draws, self.loss = not torch.equal(torch.get_rng_state(), drawn), loss.item()
        self.gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad
                          for name, p in model.named_parameters() if p.requires_grad}


# ---- Duet's

def _read(path):
    blob = numpy.memmap(path, "u1", "r")
    size = 8 + struct.unpack("<Q", blob[:8])[0]
    return {name: blob[size + begin:size + end].view("<f4").reshape(item["shape"])
            for name, item in json.loads(bytes(blob[8:size])).items()
            if name != "__metadata__" and item["dtype"] == "F32"
            for begin, end in [item["data_offsets"]]}


def duets(path, inputs, target, trained=()):
    """The loss of the text and the gradients of these parameters: what a step of RATE takes off."""
    data, saved = path.with_name("verify.safetensors"), path.with_name("saved.safetensors")
    save_dataset(data, inputs[0] if len(inputs) == 1 else tuple(inputs), target)
    run = train(model=path, dataset=data, loss="mse", batch_size=len(target), steps=1, epochs=1,
                lr=RATE if trained else 0, shuffle=False, mode="single", virtual_devices=1,
                save=saved, progress=False, quiet=True).runs[0]
    before, after = (_read(one) for one in (path.with_suffix(".safetensors"), saved))
    return run.losses[0], {name: (x - after[name]) * numpy.float32(1 / RATE)
                           for name, x in before.items() if name in trained and name in after}


# ---- both, side by side

class _Distances:
    """How far answers are from the exact one: a number for the loss and one for each gradient."""

    def __init__(self, exact):
        self.exact, self.names = exact, numpy.array(["the loss", *exact.gradients])
        self.size = numpy.array([abs(exact.loss), *map(_norm, exact.gradients.values())])
        self.near = numpy.zeros(len(self.names))  # of what is right up to roundings

    def of(self, loss, gradients):
        """A gradient that Duet lacks is 0."""
        return numpy.array([abs(loss - self.exact.loss), *(
            _norm(g - torch.as_tensor(gradients.get(name, 0.0)))
            for name, g in self.exact.gradients.items())])

    def differing(self, off):
        """Which of these distances are too large, and the largest of what is allowed."""
        whole, near = numpy.linalg.norm(self.size[1:]), self.near[1:]
        limit = FLOOR * self.size
        limit[0] += TIMES * self.near[0]
        limit[1:] += NOTHING * whole + TIMES * numpy.maximum(
            near, numpy.linalg.norm(near) / (whole or 1) * self.size[1:])
        most = numpy.divide(off, limit, where=limit > 0, out=(off > 0).astype(float))
        return [*self.names[~(off <= limit)]], most.max()


def _batch(x, samples, seed=None):
    """The first samples of the example, again where it has fewer. With a seed others: each number
    of a token is that of some sample at its place, and others are moved a little."""
    if not isinstance(x, torch.Tensor):
        return x
    if seed is None:
        return x[torch.arange(samples) % len(x)]
    drawn = torch.Generator().manual_seed(seed)
    made = torch.gather(x, 0, torch.randint(0, len(x), (samples, *x.shape[1:]), generator=drawn))
    if x.is_floating_point():
        spread = x.std().item() if x.numel() > 1 else 0.0
        made = made + 0.1 * (spread or 1.0) * torch.randn(made.shape, generator=drawn)
    return made


class _Unverified(Exception):
    pass


class _Verification:
    def __init__(self, model, result_of, inputs, path, program, ops):
        self.model, self.result_of, self.path = model, result_of, path
        self.program, self.ops = program, ops
        self.text, self.most = re.sub(r"((?:= dropout(?:2d)?\(.*\bp|dropout_p)=)[^,)]+", r"\g<1>0",
                                      path.read_text(encoding="utf-8")), 0.0
        self.updated = re.findall(r"^update (\S+) =", self.text, re.M)
        path.write_text(self.text, encoding="utf-8")  # dropout draws other masks in PyTorch
        self.inputs = [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
        tensors = [x for x in self.inputs if isinstance(x, torch.Tensor)]
        self.large = sum(x[0].numel() for x in tensors) > LARGE
        self.count = max(2, min(len(tensors[0]), 2 if self.large else 4))

    def answer(self, dtype, batches, **how):
        return _Answer(self.model, self.result_of, dtype, batches, self.updated, **how)

    def both(self, before, samples, seed=None):
        """What differs for a batch after others, if something does."""
        batches = [*before, [_batch(x, samples, seed and seed + 7 * i)
                             for i, x in enumerate(self.inputs)]]
        for dtype in (torch.float64, torch.float32):  # there are ops of float32 alone
            try:
                exact, why = self.answer(dtype, batches), ""
                break
            except Exception as error:
                exact, why = None, str(error)
        distances = exact and _Distances(exact)
        finite = exact and numpy.isfinite(distances.size).all()
        if seed and not finite:  # the model does not take these numbers
            return self.both(before, samples)
        if not exact:
            raise ExportError(f"duet.export: forward of {samples} samples: {why} (a tensor that it "
                              "keeps in a global must be a buffer)")
        if exact.draws or not finite:
            why = ("its random numbers are not Duet's" if exact.draws else
                   "its loss or gradients are not finite for the example inputs")
            warnings.warn(f"duet.export: {type(self.model).__name__} is not verified: {why}",
                          stacklevel=8)
            raise _Unverified
        if before:
            self.refuse_state_outside(batches[-1:], exact.loss)
        tensors = [x for x in batches[-1] if isinstance(x, torch.Tensor)]
        loss, gradients = duets(self.path, tensors, exact.target, exact.gradients)
        own = distances.of(loss, gradients)
        if dtype == torch.float32:
            distances.near[1:] = 1e-4 * distances.size[1:]
        differ, most = distances.differing(own)
        # First PyTorch's float32 says how near is near. A number near the corner of a relu may
        # fall on either side in it: that is seen where parameters are moved by as little.
        for moved in range(9 if dtype == torch.float64 else 0):
            if differ:
                near = self.answer(torch.float64 if moved else torch.float32, batches, moved=moved)
                distances.near = numpy.maximum(distances.near,
                                               distances.of(near.loss, near.gradients))
                differ, most = distances.differing(own)
        self.most = max(self.most, 0 if differ else most)
        return (differ, loss, exact, gradients, tensors) if differ else None

    def refuse_state_outside(self, batch, loss):
        """That of a copy of the model is its own."""
        first = loss
        for _ in range(2):  # the first may round other than float64
            again = self.answer(torch.float32, batch, backward=False).loss
            if abs(again - first) <= 1e-5 * abs(first):
                return
            first, loss = again, first
        raise ExportError(f"duet.export: {type(self.model).__name__} has the loss {loss:.7g} and, "
                          f"called again, {first:.7g}: {_OUTSIDE}")

    def run(self):
        first = [_batch(x, self.count) for x in self.inputs]
        for what, before, samples, seed in (
                ("the example inputs", [], self.count, None),
                ("a second batch", [first], self.count, 2),
                ("another number of samples", [], self.count + 1, None)):
            one = self.both(before, samples, seed)
            if one:
                raise ExportError(self.told(what, *one))

    def told(self, what, differ, loss, exact, gradients, tensors):
        says = f"duet.export: the exported model does not match: for {what} "
        lines = self.text.splitlines()
        at = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith("%")}
        if differ[0] == "the loss":
            return (f"{says}its loss is {loss:.7g}, PyTorch's {exact.loss:.7g}; "
                    f"{self.first_op(lines, at, tensors)}: {_WHY[what]}")
        name = differ[-1]  # the last one: what is behind it has the right gradients
        uses = [line for line in lines
                if line.startswith("%") and re.search(rf"[ (]{re.escape(name)}[,)]", line)]
        return (f"{says}the gradient of {name} is {numpy.linalg.norm(gradients.get(name, 0)):.4g}, "
                f"PyTorch's {_norm(exact.gradients[name]):.4g}, at or behind "
                f"{(uses or ['no line'])[-1]}: {_UNSEEN}")

    def first_op(self, lines, at, tensors):
        """The first op whose value differs from the trace's."""
        names, values = [*self.ops], _traced_values(self.program, tensors)

        def off(name):
            node, dim, front, _ = self.ops[name]
            want = values[node].unflatten(dim, (front, len(tensors[0]), -1)).movedim(dim + 1, 0)
            sizes = re.search(r"f32\[N(.*?)\]", lines[at[name]]).group(1).split(",")[1:]
            want = want.reshape([-1, *map(int, sizes)]).numpy().astype("f4")
            self.path.write_text("\n".join([*lines[:at[name] + 1], f"return {name}", ""]),
                                 encoding="utf-8")
            try:
                mean = duets(self.path, tensors, want)[0]
            except DuetError:  # a part that no parameter is in
                return False
            return not mean ** 0.5 <= APART * numpy.linalg.norm(want) / want.size ** 0.5

        def operands(name):
            for word in re.findall(r"%\d+", lines[at[name]].partition(" = ")[2]):
                yield from [word] if word in self.ops else operands(word)
        wrong = names[bisect.bisect_left(names[:-1], True, key=off)]
        while before := next(filter(off, operands(wrong)), None):  # beside it others are right
            wrong = before
        if wrong != names[-1] or off(wrong):
            return f"the first to differ: {lines[at[wrong]]}, {self.ops[wrong][-1]}"
        return "each op is as it was traced"


def _traced_values(program, inputs):
    """{node: its value}, without dropout."""
    class Run(torch.fx.Interpreter):
        def run_node(self, node):
            if "dropout" in str(node.target):
                return (self.env[node.args[0]], None)[:1 + ("native" in str(node.target))]
            return super().run_node(node)
    tables, inputs = program.state_dict | program.constants, iter(inputs)
    run = Run(program.graph_module, garbage_collect_values=False)
    with torch.no_grad():
        run.run(*(tables[spec.target] if spec.target else next(inputs)
                  for spec in program.graph_signature.input_specs))
    return run.env


def verify(model, result_of, inputs, path, program, ops):
    """The model file `path` and the weights next to it are the model: else an ExportError says
    what is not. Returns the largest difference, as a share of the allowed one. program, ops: the
    trace, and {line: the node whose value it has, its layout, and what is said of it}."""
    verification = _Verification(model, result_of, inputs, path, program, ops)
    python, of_numpy = random.getstate(), numpy.random.get_state()
    threads = torch.get_num_threads()
    try:
        if not verification.large:  # threads that wait for one another would take longer
            torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]), contextlib.suppress(_Unverified):
            verification.run()
    finally:
        torch.set_num_threads(threads)
        random.setstate(python)
        numpy.random.set_state(of_numpy)
    return verification.most
