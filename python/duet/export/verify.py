"""Checks that the text computes the same as the model. duet.export runs the text by Duet, and
compares its loss and gradients with the model's in float64.

Three batches are compared: the example inputs, a second batch after them, which finds state that
forward keeps between batches, and one with another number of samples. PyTorch's own float32 tells
how close a right answer comes. This finds what torch.export does not see: state, hooks on
gradients, an autograd.Function with its own backward, reentrant checkpoints.
"""

import bisect
import contextlib
import copy
import json
import pathlib
import random
import re
import struct
import warnings

import numpy

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

_UNSEEN = ("torch.export does not see a backward of its own (autograd.Function, hooks), "
           "inference_mode, .data and checkpoint(use_reentrant=True): write it as forward")
_OUTSIDE = ("forward keeps something outside of the model, in a global, a class or a default "
            "argument: Duet's forward has no state")
_WHY = {"the example inputs": "what forward does is not in the trace: it changes a .data, draws by "
                              "Python's or numpy's numbers, or keeps something from call to call",
        "a second batch": "forward keeps something from one batch to the next, as a count in a dict"
                          ": Duet's forward has no state",
        "another number of samples": "what forward does depends on the number of samples"}


def copied(torch, model):
    """A copy, on which forward may leave what it likes. A tensor that forward has computed and kept
    is copied as a number; what cannot be copied is an ExportError."""
    kept = {id(x): x.detach().clone() for module in model.modules() for x in vars(module).values()
            if isinstance(x, torch.Tensor) and x.grad_fn is not None}
    try:
        return copy.deepcopy(model, kept)
    except Exception as error:
        raise ExportError(f"duet.export: {type(model).__name__} cannot be copied ("
                          f"{(str(error).splitlines() or [type(error).__name__])[0]}): what its "
                          "modules hold must be, so that nothing of the model changes") from None


def _target_of(shape):
    return numpy.random.RandomState(3).standard_normal(tuple(shape)).astype("f4")


def _norm(x):
    return float(numpy.linalg.norm(x))


# ---- PyTorch's answer

def _mode(torch, dtype):
    """Forward without dropout, and in dtype where it asks for float32 by name."""
    F = torch.nn.functional
    dropouts = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout,
                F.feature_alpha_dropout, torch.dropout, torch.dropout_, torch.alpha_dropout}

    class Exact(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function in dropouts:
                return args[0] if args else kwargs["input"]
            if function is F.scaled_dot_product_attention:
                args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
                kwargs.update({"dropout_p": 0.0} if len(args) < 5 else {})
            if dtype == torch.float64:
                function = torch.Tensor.double if function is torch.Tensor.float else function
                args = tuple(dtype if x is torch.float32 else x for x in args)
                kwargs = {k: dtype if x is torch.float32 else x for k, x in kwargs.items()}
            return function(*args, **kwargs)
    return Exact()


class _Run:
    """Forward and backward of a copy of the model: its loss and gradients."""

    def __init__(self, torch, model, result_of, dtype, before, inputs, updated=(), moved=0,
                 backward=True):
        def typed(x):
            return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        model = copied(torch, model).cpu()
        for module in model.modules():
            if isinstance(module, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
                module.dropout = 0.0
        model = model.double() if dtype == torch.float64 else model
        self._move(torch, model, moved)
        if not model.training:
            model.train()
        # What is drawn is the same in each run, and not what it was in the trace.
        random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
        drawn = torch.get_rng_state()
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with _mode(torch, dtype), torch.enable_grad():
                kept = {name: model.get_buffer(name).clone() for name in updated}
                for batch in before:
                    model(*map(typed, batch))
                for name, numbers in kept.items():  # the text updates these itself
                    model.get_buffer(name).data.copy_(numbers)
                model.zero_grad()
                y = result_of(model(*map(typed, inputs)))
                self.target = _target_of(y.shape)
                loss = (y - torch.from_numpy(self.target).to(dtype)).square().mean()
                if backward:
                    loss.backward()
        finally:
            torch.set_default_dtype(default)
        self.draws = not torch.equal(torch.get_rng_state(), drawn)
        self.loss, self.gradients = loss.item(), {}
        for name, p in model.named_parameters():
            if p.requires_grad:
                gradient = torch.zeros_like(p) if p.grad is None else p.grad
                self.gradients[name] = gradient.double().numpy().ravel()

    def _move(self, torch, model, seed):
        """Each parameter by about as much as float32 rounds on the way to it."""
        drawn = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in model.parameters() if seed else ():
                p *= 1 + ROUNDED * torch.randn(p.shape, generator=drawn, dtype=p.dtype)


# ---- Duet's

def _read(path):
    blob = pathlib.Path(path).read_bytes()
    size = 8 + struct.unpack("<Q", blob[:8])[0]
    return {name: numpy.frombuffer(blob, "<f4", (item["data_offsets"][1] - at) // 4, size + at)
            for name, item in json.loads(blob[8:size]).items()
            if name != "__metadata__" and item["dtype"] == "F32"
            for at in item["data_offsets"][:1]}


def duets(path, inputs, target, trained=()):
    """The loss of the text and the gradients of these parameters: what a step of RATE takes off."""
    data, saved = path.with_name("verify.safetensors"), path.with_name("saved.safetensors")
    save_dataset(data, inputs[0] if len(inputs) == 1 else tuple(inputs), target)
    run = train(model=path, dataset=data, loss="mse", batch_size=len(target), steps=1, epochs=1,
                lr=RATE if trained else 0, shuffle=False, mode="single", virtual_devices=1,
                save=saved, progress=False, quiet=True).runs[0]
    before, after = (_read(one) for one in (path.with_suffix(".safetensors"), saved))
    return run.losses[0], {name: (x.astype("f8") - after[name]) / RATE
                           for name, x in before.items() if name in trained and name in after}


# ---- both, side by side

def compare(loss, gradients, exact, near):
    """What differs: "the loss", and names of parameters; and the largest difference, of what is
    allowed. near: runs that are right up to roundings, PyTorch's own float32 among them; none
    where exact itself is of float32."""
    theirs = max((abs(one.loss - exact.loss) for one in near), default=0)
    whole = numpy.sqrt(sum(_norm(g) ** 2 for g in exact.gradients.values()))
    apart = {name: max((_norm(one.gradients[name] - g) for one in near), default=1e-4 * _norm(g))
             for name, g in exact.gradients.items()}
    relative = numpy.sqrt(sum(x * x for x in apart.values())) / (whole or 1)
    checks = [("the loss", abs(loss - exact.loss), TIMES * theirs + FLOOR * abs(exact.loss))]
    for name, g in exact.gradients.items():
        limit = TIMES * max(apart[name], relative * _norm(g)) + FLOOR * _norm(g) + NOTHING * whole
        checks.append((name, _norm(gradients[name] - g) if name in gradients else _norm(g), limit))
    return ([name for name, off, limit in checks if not off <= limit],
            max(off / limit if limit else float(off > 0) for _, off, limit in checks))


def _batch(torch, x, samples, seed=None):
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
    def __init__(self, torch, model, result_of, inputs, path, program, ops):
        self.torch, self.model, self.result_of, self.path = torch, model, result_of, path
        self.program, self.ops = program, ops
        self.text, self.most = re.sub(r"((?:= dropout(?:2d)?\(.*\bp|dropout_p)=)[^,)]+", r"\g<1>0",
                                      path.read_text(encoding="utf-8")), 0.0
        self.updated = re.findall(r"^update (\S+) =", self.text, re.M)
        path.write_text(self.text, encoding="utf-8")  # dropout draws other masks in PyTorch
        self.inputs = [x.detach().cpu() if isinstance(x, torch.Tensor) else x for x in inputs]
        tensors = [x for x in self.inputs if isinstance(x, torch.Tensor)]
        self.large = sum(x[0].numel() for x in tensors) > LARGE
        self.count = max(2, min(len(tensors[0]), 2 if self.large else 4))

    def both(self, before, samples, seed=None):
        """What differs for a batch, if something does."""
        torch = self.torch
        inputs = [_batch(torch, x, samples, seed and seed + 7 * i)
                  for i, x in enumerate(self.inputs)]
        def run(dtype, *more):
            return _Run(torch, self.model, self.result_of, dtype, before, inputs, self.updated,
                        *more)
        try:
            single = run(torch.float32)
            near = [single]
        except Exception as error:
            if seed:  # numbers that the model does not take
                return self.both(before, samples)
            raise ExportError(f"duet.export: forward of {samples} samples: {error} (a tensor "
                              "that it keeps in a global must be a buffer)") from None
        try:
            exact = run(torch.float64)
        except Exception:  # an op of float32 alone
            exact, near = near[0], []
        if samples == self.count and seed is None:
            first, again = single.loss, run(torch.float32, 0, False).loss
            if abs(again - first) > 1e-5 * abs(first):
                raise ExportError(f"duet.export: {type(self.model).__name__} has the loss "
                                  f"{first:.7g} and, called again, {again:.7g}: {_OUTSIDE}")
        numbers = exact.loss, *map(_norm, exact.gradients.values())
        if exact.draws or not numpy.isfinite(numbers).all():
            why = ("its random numbers are not Duet's" if exact.draws else
                   "its loss or gradients are not finite for the example inputs")
            warnings.warn(f"duet.export: {type(self.model).__name__} is not verified: {why}",
                          stacklevel=6)
            raise _Unverified
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        loss, gradients = duets(self.path, tensors, exact.target, exact.gradients)
        differ, most = compare(loss, gradients, exact, near)
        # A number beside the corner of a relu may fall on either side in float32. How much that
        # changes shows where the parameters themselves are moved by as little.
        if differ and near:
            near += [run(torch.float64, moved) for moved in range(1, 9)]
            differ, most = compare(loss, gradients, exact, near)
        self.most = max(self.most, 0 if differ else most)
        return (differ, loss, exact, gradients, tensors) if differ else None

    def run(self):
        first = [_batch(self.torch, x, self.count) for x in self.inputs]
        for what, before, samples, seed in (
                ("the example inputs", (), self.count, None),
                ("a second batch", (first,), self.count, 2),
                ("another number of samples", (), self.count + 1, None)):
            found = self.both(before, samples, seed)
            if found:
                raise ExportError(self.told(what, *found))

    def told(self, what, differ, loss, exact, gradients, tensors):
        says = f"duet.export: the text is not the model: for {what} "
        lines = self.text.splitlines()
        at = {line.split(":")[0]: i for i, line in enumerate(lines) if line.startswith("%")}
        if differ[0] == "the loss":
            return (f"{says}its loss is {loss:.7g}, PyTorch's {exact.loss:.7g}; "
                    f"{self.first_op(lines, at, tensors)}: {_WHY[what]}")
        name = differ[-1]  # the last one: what is behind it has the right gradients
        uses = [line for line in lines
                if line.startswith("%") and re.search(rf"[ (]{re.escape(name)}[,)]", line)]
        return (f"{says}the gradient of {name} is {_norm(gradients.get(name, 0)):.4g}, PyTorch's "
                f"{_norm(exact.gradients[name]):.4g}, at or behind {(uses or ['no line'])[-1]}: "
                f"{_UNSEEN}")

    def off(self, lines, i, want, tensors):
        """Is the value of line i another? want has it by samples."""
        trial, weights = self.path.with_name("part.duet"), self.path.with_suffix(".safetensors")
        trial.with_suffix(".safetensors").write_bytes(weights.read_bytes())
        trial.write_text("\n".join([*lines[:i + 1], f"return {lines[i].split(':')[0]}", ""]),
                         encoding="utf-8")
        sizes = re.search(r"f32\[N(.*?)\]", lines[i]).group(1).split(",")[1:]
        want = want.reshape([len(want), *map(int, sizes)]).astype("f4")
        try:
            mean = duets(trial, tensors, want)[0]
        except DuetError:  # a part that no parameter is in
            return False
        return not mean ** 0.5 <= APART * _norm(want) / want.size ** 0.5

    def first_op(self, lines, at, tensors):
        """The first op whose value differs from the trace's."""
        if not self.ops:
            return "its ops were not looked at"
        names, values = [*self.ops], _traced_values(self.torch, self.program, tensors)
        by_sample = {}
        for name, (node, dim, front, told) in self.ops.items():
            x = values[node].unflatten(dim, (front, len(tensors[0]), -1))
            by_sample[name] = x.movedim(dim + 1, 0).flatten(1).numpy()

        def off(name):
            return self.off(lines, at[name], by_sample[name], tensors)

        def operands(name):
            for word in re.findall(r"%\d+", lines[at[name]].partition(" = ")[2]):
                yield from [word] if word in self.ops else operands(word)
        wrong = names[bisect.bisect_left(names[:-1], True, key=off)]
        while before := next(filter(off, operands(wrong)), None):  # beside it others are right
            wrong = before
        if wrong != names[-1] or off(wrong):
            return f"the first to differ: {lines[at[wrong]]}, {self.ops[wrong][-1]}"
        return "each op is as it was traced"


def _traced_values(torch, program, inputs):
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


def verify(torch, model, result_of, inputs, path, program=None, ops=None):
    """The text of `path` and the weights beside it are the model: else an ExportError says what is
    not. Returns the largest difference, of what is allowed. program, ops: the trace, and {line: the
    node whose value it has, how that lies, and what is said of it}."""
    threads = None
    verification = _Verification(torch, model, result_of, inputs, path, program, ops or {})
    python, of_numpy = random.getstate(), numpy.random.get_state()
    try:
        if not verification.large:  # threads that wait for one another would take longer
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]), contextlib.suppress(_Unverified):
            verification.run()
    finally:
        torch.set_num_threads(threads or torch.get_num_threads())
        random.setstate(python)
        numpy.random.set_state(of_numpy)
    return verification.most
