"""torch.export of a model in training mode, with the samples as the first dimension."""

import contextlib
import copy
import gc
import io
import logging
import operator
import sys
import warnings

import torch

from .._library import ExportError
from .lower import LOWERINGS

_SAMPLES = *range(2, 66), 100, 127, 128, 255, 256, 1000  # batch sizes for which guards must hold


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def without_torchs_log():
    """Silences PyTorch's logs of its stack and its trace: the exception says what a tracer cannot
    do. The many objects of a trace live on: collecting garbage would take a tenth of its time."""
    printed, level, collects = io.StringIO(), logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with contextlib.redirect_stderr(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        logging.disable(level)
        if collects:
            gc.enable()


def _for_a_trace(model):
    """Prepares a copy of the model for tracing: training mode; for transformers no cache, and
    experts as matrices that are looked up, which gives the same numbers."""
    for config in {id(c): c for m in model.modules() if (c := getattr(m, "config", None))}.values():
        for name, found, wanted in (("use_cache", True, False), (
                "_experts_implementation_internal", "grouped_mm", "batched_mm")):
            if getattr(config, name, None) == found:
                setattr(config, name, wanted)
    for module in model.modules():
        # The mean of all batches needs their number, which a trace lacks; Duet marks it with -1.
        if getattr(module, "momentum", 0) is None and \
                isinstance(module, torch.nn.modules.batchnorm._NormBase):
            module.momentum = -1.0
    own = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    for name, _ in model.named_children():
        if hasattr(own, name):
            raise ExportError(f"torch.fx uses the name {name}: rename the module {name}")
    if not model.training:  # otherwise its layers keep their modes, so that frozen ones are noticed
        model.train()


def copied(model):
    """A copy of the model, which forward may change. A tensor that forward has computed and kept is
    copied by value; what cannot be copied is an ExportError."""
    kept = {id(x): x.detach().clone() for module in model.modules() for x in vars(module).values()
            if isinstance(x, torch.Tensor) and x.grad_fn is not None}
    try:
        return copy.deepcopy(model, kept)
    except Exception as error:
        raise ExportError(f"{type(model).__name__} cannot be copied ({first_line(error)}), and the "
                          "export runs copies: make its modules copyable") from None


@without_torchs_log()
def trace(model, inputs):
    """Returns the traced copy of the model, and the program, decomposed."""
    given = tuple(x.detach()[torch.arange(max(2, len(x))) % len(x)]  # one would be a constant
                  if isinstance(x, torch.Tensor) else x for x in inputs)
    dynamic = tuple({0: torch.export.Dim.DYNAMIC} if isinstance(x, torch.Tensor) else None
                    for x in given)
    traced = copied(model)
    _for_a_trace(traced)
    program = torch.export.export(traced, given, strict=False, dynamic_shapes=dynamic)
    _refuse_shared_memory(model, program)
    _refuse_guards(program)
    return traced, decompose(program)


# ---- faults that neither a trace nor a comparison with the model (verify.py) would find

def _refuse_shared_memory(model, program):
    """Tied parameters are one Parameter in two places. Two tensors that share memory would become
    separate constants, or two parameters that diverge."""
    found = {}
    for spec in program.graph_signature.input_specs:
        name, x = spec.target or "", None
        with contextlib.suppress(AttributeError):  # only the trace has it
            x = operator.attrgetter(name)(model)
        if isinstance(x, torch.Tensor) and x.layout is torch.strided and x.numel() and \
                x.device.type != "meta":
            other, before = found.setdefault(x.data_ptr(), (name, x))
            if before is not x and (before.requires_grad or x.requires_grad):
                raise ExportError(f"{other} and {name} are two tensors in one memory, "
                                  "which Duet would train apart: tie them as one Parameter "
                                  "(a.weight = b.weight), or give one a clone()")


def _refuse_guards(program):
    """Refuses branches on the number of samples, because the trace has only one side. PyTorch's own
    branches lead to the same numbers."""
    sizes = [n for node in program.graph.find_nodes(op="placeholder")
             for n in getattr(node.meta.get("val"), "shape", ()) if isinstance(n, torch.SymInt)]
    for guard in sizes[0].node.shape_env.guards if sizes else ():
        place = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        symbols = guard.expr.free_symbols
        if "/torch/" in getattr(place, "filename", "/torch/") or len(symbols) != 1:
            continue
        samples = symbols.pop()
        if not all(guard.expr.subs(samples, n) for n in _SAMPLES):
            text = str(guard.expr).replace(str(samples), "x.shape[0]")
            raise ExportError(f"{place.filename}:{place.lineno}: forward depends on the number of "
                              f"samples, as {text} for the example: write it without this branch")


# ---- few kinds of op: an op with a lowering stays whole, and PyTorch decomposes all others; the
# result is functional, so later steps need not handle writing in place

def decompose(program):
    _note_no_grad(program.graph_module)
    program._guards_code = []  # trace.py checks those of shapes
    seen = set()
    for name, x in program.state_dict.items():  # a node with two names occurs twice
        program.state_dict[name] = x.clone() if id(x) in seen and not isinstance(
            x, torch.nn.Parameter) else x
        seen.add(id(x))
    default = dict(torch.export.default_decompositions())
    table = torch._decomp.decomposition_table | default
    return program.run_decompositions({
        op: how for op, how in table.items() if isinstance(op, torch._ops.OpOverload) and
        op._schema.name not in LOWERINGS and (op in default or not op._schema.is_mutable)})


def _note_no_grad(module):
    """The part of forward under torch.no_grad() is a separate module here, which the decomposition
    opens: its results are detached."""
    without_grad = torch.ops.higher_order.wrap_with_set_grad_enabled
    for part in filter(lambda x: isinstance(x, torch.fx.GraphModule), module.modules()):
        for node in part.graph.find_nodes(op="call_function", target=without_grad):
            for user in list(node.users) if node.args[0] is False else ():
                with part.graph.inserting_after(user):
                    cut = part.graph.call_function(torch.ops.aten.detach.default, (user,))
                    cut.meta.update(user.meta)
                user.replace_all_uses_with(cut, delete_user_cb=lambda n, cut=cut: n is not cut)
        part.recompile()


def traced_values(program, inputs):
    """{node: its value}, without dropout."""
    class Run(torch.fx.Interpreter):
        def run_node(self, node):
            if "native_dropout" in str(node.target):
                return self.env[node.args[0]], None
            if "bernoulli.p" in str(node.target):  # like dropout of planes and of paths
                return torch.full_like(self.env[node.args[0]], node.args[1])
            return super().run_node(node)
    tables, inputs = program.state_dict | program.constants, iter(inputs)
    run = Run(program.graph_module, garbage_collect_values=False)
    with torch.no_grad():
        run.run(*(tables[spec.target] if spec.target else next(inputs)
                  for spec in program.graph_signature.input_specs))
    return run.env
