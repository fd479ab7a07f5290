"""Checks that the exported file computes the same as the model. duet.export runs it in Duet, and
compares its loss and gradients with the model's.

Three batches are compared: the example inputs; other numbers right after them, which finds state
that forward keeps; and another number of samples. Each is compared with PyTorch's float32: the
loss, the gradients, and what the step adds to buffers. If something differs by more than FLOOR,
float64 shows how close a right answer is. This finds what torch.export does not see: state, hooks
on gradients, an autograd.Function with its own backward, reentrant checkpoints. Dropout is off on
both sides; its settings must be equal in all batches. """

import bisect
import collections
import contextlib
import math
import random
import re
import warnings

import numpy
import torch
from torch.nn import functional as F

from .._files import read_tensors, save_dataset
from .._library import DuetError, ExportError
from ..command import started
from .trace import copied, first_line, traced_values

TIMES = 4  # multiple of the distance between PyTorch's own float32 and float64
# Where PyTorch's float32 is exact by chance, Duet may be off by the roundings of long sums: of the
# parameter's own gradient; and of all gradients, for one that is nothing but roundings. That is
# known from float64, in which it is ZERO, relative to all; until then, SOME of all is allowed.
FLOOR, NOTHING, SOME, ZERO = 1e-5, 1e-6, 3e-8, 1e-10
ROUNDED = 2.0 ** -21  # of parameters, relative: some roundings of float32
ALL_ROUNDINGS = 0.1  # of a gradient: float32 is not as far from float64, except near a corner
SAME, SETTLED = 1e-5, 1e-3  # of equal losses; of a gradient: more may be state and is asked again
ALONE = 1e-4  # of a model that cannot compute in float64, relative to float32
APART = 3e-5  # of a line's numbers, which differ by more than float32 rounds
RATE = 2.0 ** 40  # a step with it says the gradient: (before - after) / RATE
LARGE, MANY = 1 << 14, 1 << 24  # numbers of a sample, and parameters: here two samples are enough

_UNSEEN = ("torch.export does not see a custom backward (autograd.Function, hooks), "
           "inference_mode, .data and checkpoint(use_reentrant=True): write it as forward")
_OUTSIDE = ("forward keeps something outside the model, in a global, a class or a default "
            "argument: Duet's forward has no state")
_WHY = {"the example inputs": "forward does more than the trace shows: it changes a .data, draws "
                              "by Python's or numpy's generator, or keeps something between calls",
        "a second batch": "forward keeps something from one batch to the next, as a count in a dict"
                          ": Duet's forward has no state",
        "another number of samples": "what forward does depends on the number of samples"}


def _norm(x):
    """The norm; of numbers whose squares float32 does not hold in float64, which is slower."""
    norm = torch.linalg.vector_norm(x).item()
    return norm if 1e-12 < norm < 1e15 else torch.linalg.vector_norm(x, dtype=torch.float64).item()


class _Mode(torch.overrides.TorchFunctionMode):
    """Runs forward without dropout, and in dtype where forward names float32. `dropped` has the
    settings of the dropouts."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.dropped = dtype, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "dropout" in getattr(function, "__name__", "") and function != torch.native_dropout:
            self.dropped.append((args[1:], {**kwargs, "input": None}))
            return args[0] if args else kwargs["input"]
        if function is F.scaled_dot_product_attention:
            self.dropped.append(args[4:5] or kwargs.get("dropout_p"))
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs.update({"dropout_p": 0.0} if len(args) < 5 else {})
        if self.dtype == torch.float64:
            function = torch.Tensor.double if function is torch.Tensor.float else function
            args = tuple(self.dtype if x is torch.float32 else x for x in args)
            kwargs = {k: self.dtype if x is torch.float32 else x for k, x in kwargs.items()}
        return function(*args, **kwargs)


def _target(shape):
    return numpy.random.RandomState(3).standard_normal(shape).astype("f4")


# `gradients` also has what is added to buffers.
_Answer = collections.namedtuple("_Answer", "loss gradients copy", defaults=[None])


class _Copy:
    """A copy of the model, in float64 or float32, which gets one batch after another, each with the
    buffers of the exported file. moved is the number of a draw that moves each parameter by about
    float32's rounding errors."""

    def __init__(self, model, dtype, buffers, moved=0):
        self.dtype, self.batches = dtype, 0
        self.model = model = copied(model).cpu()
        for module in model.modules():
            if isinstance(module, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
                module.dropout = 0.0
        if dtype == torch.float64:  # a buffer of several modules stays one
            made = {}
            model._apply(lambda x: made.setdefault(
                id(x), (x, x.double() if x.is_floating_point() else x))[1])
        if not model.training:
            model.train()
        of_moves = torch.Generator().manual_seed(moved)
        for p in model.parameters() if moved else ():
            p.data *= 1 + ROUNDED * torch.randn(p.shape, generator=of_moves, dtype=p.dtype)
        self.buffers = {name: model.get_buffer(name).clone() for name in buffers}

    def answer(self, batch, backward=True):
        """The loss, its gradients, and what is added to buffers."""
        for name, numbers in self.buffers.items():
            self.model.get_buffer(name).data.copy_(numbers)
        self.batches += 1  # the draws are equal in all copies, and differ from those of the trace
        for seed in (random.seed, numpy.random.seed, torch.manual_seed):
            seed(6 + self.batches)
        drawn, default = torch.get_rng_state(), torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with _Mode(self.dtype) as mode, torch.enable_grad():
                self.model.zero_grad()
                y = self.model(*(  # of copies, which forward may change
                    x.to(self.dtype if x.is_floating_point() else x.dtype, copy=True)
                    if isinstance(x, torch.Tensor) else x for x in batch))
                y = next(x for x in torch.utils._pytree.tree_leaves(y) if hasattr(x, "dim"))
                loss = (y - torch.from_numpy(_target(y.shape)).to(self.dtype)).square().mean()
                if backward:
                    loss.backward()
        finally:
            torch.set_default_dtype(default)
        self.draws, self.dropped = not torch.equal(torch.get_rng_state(), drawn), mode.dropped
        return _Answer(loss.item(), {
            **{name: torch.zeros_like(p) if p.grad is None else p.grad
               for name, p in self.model.named_parameters() if p.requires_grad},
            **{name: self.model.get_buffer(name).detach() - before
               for name, before in self.buffers.items() if before.is_floating_point()}}, self)


@contextlib.contextmanager
def duets(path, inputs, target, trained=()):
    """Runs the exported file during the block, which gets a function that waits for its loss, the
    gradients of these parameters, which are what a step of RATE subtracts, and what is added to
    buffers."""
    data, saved = path.with_name("verify.safetensors"), path.with_name("saved.safetensors")
    save_dataset(data, inputs[0] if len(inputs) == 1 else tuple(inputs), target)
    with started("train", model=path, dataset=data, loss="mse", batch_size=len(target), steps=1,
                 epochs=1, lr=RATE if trained else 0, shuffle=False, mode="single",
                 virtual_devices=1, save=saved, progress=False, quiet=True) as result:
        def answer():
            loss = result().runs[0].losses[0]
            before, after = (read_tensors(one) for one in (path.with_suffix(".safetensors"), saved))
            with numpy.errstate(invalid="ignore"):  # infinite constants, which nobody compares
                return _Answer(loss, {
                    name: (x - after[name]) * numpy.float32(1 / RATE) if name in trained else
                    after[name] - x for name, x in before.items() if name in after})
        yield answer


class _Distances:
    """The distances of answers from this one: a number for the loss, and one for each gradient and
    each buffer."""

    def __init__(self, answer):
        self.answer, self.names = answer, numpy.array(["the loss", *answer.gradients])
        self.size = numpy.array([abs(answer.loss), *map(_norm, answer.gradients.values())])
        self.of_parameters = slice(1, 1 + sum(
            p.requires_grad for p in answer.copy.model.parameters()))
        self.whole = numpy.linalg.norm(self.size[self.of_parameters])

    def of(self, other):
        """A gradient that Duet does not compute is 0."""
        return numpy.array([abs(other.loss - self.answer.loss), *(
            _norm(g - torch.as_tensor(other.gradients.get(name, 0.0)))
            for name, g in self.answer.gradients.items())])

    def differing(self, off, near, zero, times=TIMES):
        """Which of these distances are too large, and the largest one relative to its bound. near
        has the distances of an answer that is right except for roundings. zero: which are nothing
        but roundings."""
        limit = FLOOR * self.size
        of_all = numpy.where(zero, NOTHING, numpy.full(len(limit), SOME)) * self.whole
        limit[0] += times * near[0]
        limit[1:] += of_all[1:] + times * numpy.maximum(near[1:], numpy.linalg.norm(
            near[self.of_parameters]) / (self.whole or 1) * self.size[1:])
        most = numpy.divide(off, limit, where=limit > 0, out=(off > 0).astype(float))
        return [*self.names[~(off <= limit)]], most.max()


def _batch(x, samples, seed=None):
    """The first samples of the example, repeated if it has fewer. A seed changes them: each token
    is replaced by some sample's at the same index, and other numbers move slightly."""
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


def _tensors(batch):
    return [x for x in batch if isinstance(x, torch.Tensor)]


class _Unverified(Exception):
    pass


class _Verification:
    def __init__(self, model, inputs, shape, path, program, ops):
        self.model, self.path, self.program, self.ops = model, path, program, ops
        self.shape = [*map(int, shape[1:])]
        self.text, self.most = re.sub(r"((?:= dropout\(.*\bp|dropout_p)=)[^,)]+", r"\g<1>0",
                                      path.read_text(encoding="utf-8")), 0.0
        self.buffers = re.findall(r"^buffer (\S+):", self.text, re.M)
        self.trained = [name for name, p in model.named_parameters() if p.requires_grad]
        path.write_text(self.text, encoding="utf-8")  # dropout draws other masks in PyTorch
        self.inputs = [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
        tensors = _tensors(self.inputs)
        self.large = sum(x[0].numel() for x in tensors) > LARGE or \
            sum(p.numel() for p in model.parameters()) > MANY
        self.count = 2 if self.large else 4  # a BatchNorm of two may be all roundings
        # Where float64 is known: its answer, how far float32 is from it, relative to the size, and
        # which gradients are nothing but roundings.
        self.exact, self.rounds, self.zero = None, 0.0, False

    def answer(self, batches, after=None, dtype=torch.float32, moved=0, backward=True):
        """The answer of a copy of the model for the last of these batches. after: the previous
        batch's answer."""
        copy = after.copy if after else _Copy(self.model, dtype, self.buffers, moved)
        try:
            for batch in batches[copy.batches:-1]:
                copy.answer(batch, backward=False)
            return copy.answer(batches[-1], backward)
        except Exception as error:
            raise ExportError("duet.export: forward fails in a copy of the model: perhaps it uses "
                              "a tensor in a global, which must be a buffer: "
                              f"{first_line(error)}") from error

    def both(self, what, batches, after=None):
        """Raises ExportError if the file differs from the model for the last of these batches; Duet
        and PyTorch compute at the same time. after: the previous batch's answer. Returns PyTorch's
        answer."""
        drawn = len(batches) == 2 and batches[1] is not batches[0]
        tensors = _tensors(batches[-1])
        with duets(self.path, tensors, _target([len(tensors[0]), *self.shape]),
                   self.trained) as of_text:
            try:
                answer = self.answer(batches, after)
                distances = _Distances(answer)
                finite = numpy.isfinite(distances.size).all()
            except ExportError:
                if not drawn:
                    raise
                finite = False
            if finite and not answer.copy.draws:
                text = of_text()
        if drawn and not finite:  # the model does not accept these numbers
            return self.both(what, [batches[0]] * 2)
        if answer.copy.draws or not finite:
            why = ("its random numbers are not Duet's" if answer.copy.draws else
                   "its loss or gradients are not finite for the example inputs")
            warnings.warn(f"duet.export: {type(self.model).__name__} is not verified: {why}",
                          stacklevel=8)
            raise _Unverified
        # Three times as far from float32 is at most four times as far from float64.
        differ, most = distances.differing(distances.of(text), self.rounds * distances.size,
                                           self.zero, TIMES - 1)
        # State outside the model would make float32's distances large, too.
        if len(batches) == 2 and not math.isclose(answer.loss, text.loss, rel_tol=SAME):
            self.refuse_state(*(self.answer(batches[1:], backward=False) for _ in range(2)),
                              _OUTSIDE)
        if differ:
            differ, most = self.beside_exact(batches, text, answer, after and self.exact)
        self.dropped = getattr(self, "dropped", answer.copy.dropped)
        if self.dropped != answer.copy.dropped:
            raise ExportError(f"duet.export: {type(self.model).__name__} has other dropouts for "
                              f"{what} than for the example inputs: {_WHY[what]}")
        self.most = max(self.most, most)
        if differ:
            raise ExportError(self.told(what, differ, text, answer, batches[-1]))
        return answer

    def beside_exact(self, batches, text, near, after):
        """What differs from float64 by more than PyTorch's float32 (`near`), and the largest
        difference relative to its bound. after: float64's answer for the previous batch."""
        try:
            self.exact = self.answer(batches, after, dtype=torch.float64)
            distances = _Distances(self.exact)
        except ExportError:  # some ops exist only in float32
            distances = _Distances(near)
            return distances.differing(distances.of(text), ALONE * distances.size, False, TIMES - 1)
        off, allowed, size = distances.of(text), distances.of(near), distances.size
        # A gradient that is 0 except for rounding, as for a bias before BatchNorm, allows nothing.
        self.zero = size <= ZERO * distances.whole
        self.rounds = numpy.where(self.zero, 0, numpy.minimum(
            allowed / numpy.maximum(size, 1e-30), SETTLED))
        # Others that differ as much between float32 and float64 have state, if no corner is near.
        apart = ~self.zero & (allowed > ALL_ROUNDINGS * size)
        off, allowed = numpy.maximum(off, apart * allowed), ~apart * allowed
        differ, most = distances.differing(off, allowed, self.zero)
        # A number near a relu's corner may fall on either side in float32: that is seen where
        # parameters are moved by as little.
        for moved in range(1, 9):
            if differ:
                other = self.answer(batches, dtype=torch.float64, moved=moved)
                allowed = numpy.maximum(allowed, distances.of(other))
                differ, most = distances.differing(off, allowed, self.zero)
        return differ, most

    def refuse_state(self, first, again, why):
        if not math.isclose(first.loss, again.loss, rel_tol=SAME):
            raise ExportError(f"duet.export: {type(self.model).__name__} has the loss "
                              f"{first.loss:.7g} and, called again, {again.loss:.7g}: {why}")

    def run(self):
        first, other = ([_batch(x, self.count + more) for x in self.inputs] for more in (0, 1))
        second = [_batch(x, self.count, 2 + 7 * i) for i, x in enumerate(self.inputs)]
        answer = self.both("the example inputs", [first])
        answer = self.both("a second batch", [first, second], answer)
        fresh = self.both("another number of samples", [other])
        third = self.answer([first, second, other], answer, backward=False)
        self.refuse_state(fresh, third, _WHY["a second batch"])

    def told(self, what, differ, text, answer, batch):
        says = f"duet.export: the exported model does not match: for {what} "
        if differ[0] == "the loss":
            return (f"{says}its loss is {text.loss:.7g}, PyTorch's {answer.loss:.7g}; "
                    f"{self.first_op(_tensors(batch))}: {_WHY[what]}")
        name = differ[-1]  # the last one: all after it have the right gradients
        uses = re.findall(rf"^%.*[ (]{re.escape(name)}[,)].*", self.text, re.M)
        kind = "the gradient of" if name in self.trained else "what is added to"
        return (f"{says}{kind} {name} is {numpy.linalg.norm(text.gradients.get(name, 0)):.4g}, "
                f"PyTorch's {_norm(answer.gradients[name]):.4g}, at or behind "
                f"{(uses or ['no line'])[-1]}: {_UNSEEN}")

    def first_op(self, tensors):
        """The first op whose value differs from the trace's."""
        names, values = [*self.ops], traced_values(self.program, tensors)
        lines = self.text.splitlines()
        at = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith("%")}

        def off(name):
            node, dim, front, _ = self.ops[name]
            want = values[node].unflatten(dim, (front, len(tensors[0]), -1)).movedim(dim + 1, 0)
            sizes = re.search(r"f32\[N(.*?)\]", lines[at[name]]).group(1).split(",")[1:]
            want = want.reshape([-1, *map(int, sizes)]).numpy().astype("f4")
            self.path.write_text("\n".join([*lines[:at[name] + 1], f"return {name}", ""]),
                                 encoding="utf-8")
            with contextlib.suppress(DuetError), duets(self.path, tensors, want) as of_text:
                return not of_text().loss ** 0.5 <= \
                    APART * numpy.linalg.norm(want) / want.size ** 0.5
            return False  # a part without parameters

        def operands(name):
            for word in re.findall(r"%\d+", lines[at[name]].partition(" = ")[2]):
                yield from [word] if word in self.ops else operands(word)
        wrong = names[bisect.bisect_left(names[:-1], True, key=off)]
        while before := next(filter(off, operands(wrong)), None):  # its other operands are right
            wrong = before
        if wrong != names[-1] or off(wrong):
            return f"the first to differ: {lines[at[wrong]]}, {self.ops[wrong][-1]}"
        return "each op is as it was traced"


def verify(model, inputs, shape, path, program, ops):
    """Checks that the file `path` and its weights equal the model; otherwise ExportError says what
    differs. Returns the largest difference relative to its bound. shape: the result's, with N.
    program, ops: the trace, and {line: the node whose value it has, its layout, its words}."""
    verification = _Verification(model, inputs, shape, path, program, ops)
    python, of_numpy = random.getstate(), numpy.random.get_state()
    threads = torch.get_num_threads()
    try:  # Duet uses one core, and in small models more threads only slow each other down
        torch.set_num_threads(max(1, threads - 1) if verification.large else 1)
        with torch.random.fork_rng(devices=[]), contextlib.suppress(_Unverified):
            verification.run()
    finally:
        torch.set_num_threads(threads)
        random.setstate(python)
        numpy.random.set_state(of_numpy)
    return verification.most
