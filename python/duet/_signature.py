"""duet.export for models with any signature: inputs named as in forward, `*more` inputs, labels
among the inputs, and named outputs."""

import dataclasses
import functools
import inspect

from ._library import WrongArgument


def _by_position(model, names, defaults, inputs):
    """The inputs in forward's order, without labels, because Duet computes the loss."""
    given = {name: x for name, x in inputs.items() if name != "labels"}
    shifted = getattr(model, "prepare_decoder_input_ids_from_labels", None)  # in T5 and BART
    if shifted and "labels" in inputs:
        given.setdefault("decoder_input_ids", shifted(labels=inputs["labels"]))
    strange = sorted(given.keys() - set(names))
    if strange:
        raise WrongArgument(f"duet.export: {type(model).__name__} takes no positional input "
                            f"{strange[0]}: expected {', '.join(names)}")
    last = max((names.index(name) for name in given), default=-1)
    return tuple(given.get(*one) for one in list(zip(names, defaults))[:last + 1])


def _result_of(output):
    """The logits of an output with names, or the one tensor in it."""
    if dataclasses.is_dataclass(output) and not hasattr(output, "values"):
        output = vars(output)
    if hasattr(output, "values") and hasattr(output, "get"):
        tensors = tuple(x for x in output.values() if hasattr(x, "dim"))
        output = output.get("logits", tensors[0] if len(tensors) == 1 else tensors)
    return output


def called(export):
    """export, but inputs may also be a dict. The wrapped forward has a parameter for each."""
    @functools.wraps(export)
    def of_calls(model, example_inputs, *arguments, **options):
        if any(c.__module__.startswith("torch.nn.parallel.") for c in type(model).__mro__):
            model = model.module
        kind, by_name = type(model), hasattr(example_inputs, "items")
        if not by_name and not isinstance(example_inputs, (tuple, list)):
            example_inputs = (example_inputs,)
        parameters = inspect.signature(getattr(model, "forward", export)).parameters.values()
        if not hasattr(model, "forward") or not by_name and all(
                p.kind is not p.VAR_POSITIONAL for p in parameters):
            return export(model, example_inputs, *arguments, **options)
        named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names, defaults = [p.name for p in named], [p.default for p in named]
        given = _by_position(model, names, defaults, example_inputs) if by_name else example_inputs
        names = ["self", *names, *(f"more_{i}" for i in range(len(given)))][:len(given) + 1]

        def forward(self, *x):
            return _result_of(kind.forward(self, *x))
        forward.__signature__ = inspect.Signature([inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])
        model.__class__ = type(kind.__name__, (kind,), {"forward": forward,
                                                        "__module__": kind.__module__})
        try:
            return export(model, given, *arguments, **options)
        finally:
            model.__class__ = kind
    return of_calls
