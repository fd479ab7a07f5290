"""What neither a trace by torch.export nor a run beside the model (_verify.py) would find out is
refused here. See export.py."""

from ._export_graph import ExportError

_SAMPLES = *range(2, 66), 100, 127, 128, 255, 256, 1000  # numbers of samples for which guards hold


def refuse_hooks(model):
    """Those of parameters, which a copy has not."""
    for name, p in model.named_parameters():
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            raise ExportError(f"a hook on the backward of {name}: its gradients are not those of "
                              "what forward computes")


def _span(tensor):
    first = tensor.storage_offset() * tensor.element_size()
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
    return tensor.untyped_storage().data_ptr(), first, first + last * tensor.element_size()


def refuse_shared_memory(torch, model):
    """A tie is one Parameter at two places. Two tensors over one memory would each be another's
    constant, or two parameters that go apart."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for path, module in model.named_modules():
        named.update({f"{path}.{name}".lstrip("."): x for name, x in vars(module).items()
                      if isinstance(x, torch.Tensor)})
    spans = [(*_span(x), name, x.requires_grad and x.is_leaf) for name, x in named.items()
             if x.layout is torch.strided and x.numel() and x.device.type != "meta"]
    last = None
    for span in sorted(spans, key=lambda s: s[:3]):
        if last and span[0] and span[0] == last[0] and span[1] < last[2] and (span[4] or last[4]):
            raise ExportError(f"{last[3]} and {span[3]} lie in one memory and are two tensors, "
                              "which Duet would train apart: tie them as one Parameter (a.weight = "
                              "b.weight), or give one a clone()")
        if not last or span[0] != last[0] or span[2] > last[2]:
            last = span


def refuse_guards(torch, program):
    """Branches by the number of samples, of which the trace has one side. PyTorch's own choose
    between ways to the same numbers."""
    sizes = [n for node in program.graph.nodes if node.op == "placeholder" and
             isinstance(x := node.meta.get("val"), torch.Tensor) for n in x.shape
             if isinstance(n, torch.SymInt)]
    for guard in sizes[0].node.shape_env.guards if sizes else ():
        place = getattr(getattr(guard, "sloc", None), "framework_loc", None)
        symbols = guard.expr.free_symbols
        if "/torch/" in getattr(place, "filename", "/torch/") or len(symbols) != 1:
            continue
        samples = symbols.pop()
        if not all(guard.expr.subs(samples, n) for n in _SAMPLES):
            text = str(guard.expr).replace(str(samples), "x.shape[0]")
            raise ExportError(f"{place.filename}:{place.lineno}: what forward does depends on the "
                              f"number of samples, of which the example has {text}")
