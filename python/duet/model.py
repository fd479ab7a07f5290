"""Measures a PyTorch model. With these numbers `duet estimate` can estimate a model that Duet does
not have.

    numbers = duet.describe(model, torch.randn(8, 3, 224, 224))
    duet.estimate(**numbers, batch_size=256, devices=8, device_memory="11G")

The model runs forward once on fake tensors (FakeTensorMode), so it may have any size.
"""

import copy

from ._library import NoTorch, WrongArgument
from .command import Record


class Numbers(Record):
    """Options of `duet estimate`; as a string they are the words of the command."""

    def __str__(self):
        return " ".join(f"--{name} {value}" for name, value in self.items())


def saved_bytes(model, batches):
    """Yields for each batch, (inputs, named), the bytes that autograd keeps for backward, without
    parameters, buffers, inputs and outputs; and the outputs, as fake tensors."""
    import torch
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
    from torch.utils import _pytree
    fake, fakes = FakeTensorMode(allow_non_fake_inputs=True), {}

    def save(tensor):  # by storage, so that what several functions save counts once
        saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes(), tensor
        return tensor

    for batch in batches:
        saved, made = {}, dict(fakes)
        with FakeCopyMode(fake):
            double, (args, kwargs) = copy.deepcopy((model, batch), made)
        # The next copy of the model has the same fakes, which take most of the time.
        fakes = {id(x): made[id(x)] for x in [*model.parameters(), *model.buffers()]
                 if id(x) in made}
        if not double.training:
            double.train()
        with fake, torch.enable_grad():
            with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
                output = double(*args, **kwargs)
        outputs = [x for x in _pytree.tree_leaves(output) if isinstance(x, torch.Tensor)]
        given = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        for tensor in [*double.parameters(), *double.buffers(), *given, *outputs]:
            saved.pop(tensor.untyped_storage()._cdata, None)  # estimate counts these separately
        yield sum(count for count, _ in saved.values()), outputs


def saved_per_sample(model, inputs):
    """The bytes that autograd keeps for each sample, and those that do not depend on the number of
    samples. None if forward fails on fake tensors."""
    import torch
    samples = next(x.shape[0] for x in inputs if isinstance(x, torch.Tensor))
    try:
        two, more = (count for count, _ in saved_bytes(model, [(tuple(
            torch.cat([x] * k) if isinstance(x, torch.Tensor) else x for x in inputs), {})
            for k in (2, 4)]))
    except Exception:
        return None
    each = (more - two) // (2 * samples)
    return each, max(0, two - 2 * samples * each)


def describe(model, *inputs, **named):
    """Returns the elements of the model's parameters and of its buffers; the bytes per sample that
    autograd keeps for backward in training, in addition to these and the input; the shape of a
    sample (of the first input); and how many numbers its output has. Inputs are the model's, with
    the samples as the first dimension, or as duet.export takes them. The model does not change."""
    try:
        import torch
        from torch.utils import _pytree
    except ImportError:
        raise NoTorch("describe") from None
    given = inputs[0] if len(inputs) == 1 else None
    if isinstance(given, tuple):
        inputs = given
    elif hasattr(given, "items"):
        inputs, named = (), given
    tensors = [x for x in _pytree.tree_leaves((inputs, named)) if isinstance(x, torch.Tensor)]
    if not tensors or not tensors[0].ndim or not tensors[0].shape[0]:
        raise WrongArgument("duet.describe: the inputs have no samples: give a tensor whose first "
                            "dimension counts them")
    samples = tensors[0].shape[0]
    shape = tensors[0].shape[1:]
    if len(shape) not in (1, 3):  # estimate supports vectors and images
        shape = [shape.numel()]
    held, outputs = next(saved_bytes(model, [(inputs, named)]))
    return Numbers(params=sum(p.numel() for p in model.parameters()),
                   buffers=sum(b.numel() for b in model.buffers()),
                   activations=-(-held // samples),
                   shape="x".join(map(str, shape)),
                   classes=-(-sum(x.numel() for x in outputs) // samples))
