"""What a trace by torch.export does not see is refused here: else the text would compute something
else from some batch on, without a word. See export.py."""

import contextlib
import random
import sys

from ._export_graph import ExportError

_SAMPLES = *range(2, 66), 100, 127, 128, 255, 256, 1000  # numbers of samples for which guards hold


def _refuse_hooks(model):
    hooked = [("module", path or "the model", type(m).__name__) for path, m in model.named_modules()
              if m._backward_hooks or m._backward_pre_hooks]
    hooked += [("parameter", name, "Parameter") for name, p in model.named_parameters()
               if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None)]
    for _, name, kind in hooked:
        _not_computed(f"a hook on the backward of {name} ({kind})")


def _not_computed(what):
    raise ExportError(f"{what}: its gradients are not those of what forward computes, and "
                      "torch.export does not see them")


# ---- memory that a parameter shares with others

def _span(tensor):
    first = tensor.storage_offset() * tensor.element_size()
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
    return tensor.untyped_storage().data_ptr(), first, first + last * tensor.element_size()


def _refuse_shared_memory(torch, model):
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


# ---- what forward leaves for the next batch

class _State:
    """Attributes of modules that forward has read, and given another value afterwards."""

    def __init__(self, model):
        self.of = {id(m): (path, m, dict(m.__dict__)) for path, m in model.named_modules()}
        self.read, self.changed = set(), {}

    def on_read(self, module, name):
        if id(module) in self.of and (id(module), name) not in self.changed:
            self.read.add((id(module), name))

    def on_write(self, module, name, value):
        key = id(module), name
        if key in self.read and name in self.of[id(module)][2]:
            self.changed[key] = value

    def changes(self):
        def differs(a, b):
            plain = int, float, str, bool, type(None), tuple
            return a != b if isinstance(a, plain) and isinstance(b, plain) else a is not b
        return [(self.of[module][0], name) for (module, name), value in self.changed.items()
                if differs(self.of[module][2].get(name), value)]


@contextlib.contextmanager
def _watched(torch, state):
    module = torch.nn.Module
    write = module.__setattr__

    def get(self, name):
        if not name.startswith("__"):
            state.on_read(self, name)
        return object.__getattribute__(self, name)

    def put(self, name, value):
        state.on_write(self, name, value)
        write(self, name, value)
    try:
        module.__getattribute__, module.__setattr__ = get, put
        yield
    finally:
        del module.__getattribute__
        module.__setattr__ = write


def _still_changes(torch, model, inputs):
    """What a second forward of the model itself changes: a cache that the first one has made stays.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        model(*inputs)
        state = _State(model)
        with _watched(torch, state):
            model(*inputs)
    return state.changes()


@contextlib.contextmanager
def _kept(torch, model):
    """Nothing of the model changes: each module gets the attributes back that it had."""
    tables = "_parameters", "_buffers", "_modules"
    before = [(m, dict(m.__dict__), {t: dict(m.__dict__[t]) for t in tables})
              for m in model.modules()]
    try:
        yield
    finally:
        for module, own, inner in before:
            module.__dict__.clear()
            module.__dict__.update(own)
            for table, entries in inner.items():
                module.__dict__[table].clear()
                module.__dict__[table].update(entries)


# ---- during the trace

@contextlib.contextmanager
def _patched(torch):
    function, mode, tensor = torch.autograd.Function, torch.inference_mode, torch.Tensor
    apply, enter = function.__dict__["apply"], mode.__enter__

    def apply_own(cls, *args, **kwargs):
        if not cls.__module__.startswith("torch."):
            _not_computed(f"{cls.__name__}, a torch.autograd.Function of your own")
        return apply.__get__(None, cls)(*args, **kwargs)

    def enter_own(self):
        if self.mode:
            _not_computed("torch.inference_mode(), where torch.no_grad() is meant")
        return enter(self)

    def by_torch_alone(name, instead):
        field = getattr(torch._C.TensorBase, name)

        def put(self, value):
            if "/torch/" not in sys._getframe(1).f_code.co_filename:
                raise ExportError(f"forward sets .{name} of a tensor, which torch.export does not "
                                  f"see: {instead}")
            field.__set__(self, value)
        return property(field.__get__, put)

    flag = tensor.requires_grad_

    def freeze_one(self, requires_grad=True):
        if not requires_grad and "/torch/" not in sys._getframe(1).f_code.co_filename:
            raise ExportError("forward sets .requires_grad of a tensor, which torch.export does "
                              "not see: set it before")
        return flag(self, requires_grad)

    def freeze(self, requires_grad=True):
        raise ExportError(f"forward calls requires_grad_({requires_grad}) of a "
                          f"{type(self).__name__}, which torch.export does not see: freeze it "
                          "before the export")
    patches = [(function, "apply", classmethod(apply_own)), (mode, "__enter__", enter_own),
               (tensor, "register_hook", lambda *_: _not_computed("a hook on a tensor")),
               (tensor, "data", by_torch_alone("data", "copy_() under torch.no_grad() is seen")),
               (tensor, "requires_grad", by_torch_alone("requires_grad", "set it before")),
               (tensor, "requires_grad_", freeze_one), (torch.nn.Module, "requires_grad_", freeze)]
    kept = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in patches]
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in kept:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _drawn():
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy and numpy.random.get_state()[2:], \
        numpy and numpy.random.get_state()[1].tolist()


@contextlib.contextmanager
def seen(torch, model, inputs):
    """Around a trace of the model. ExportError: forward does what the trace does not see."""
    _refuse_hooks(model)
    _refuse_shared_memory(torch, model)
    state, draws = _State(model), _drawn()
    with _kept(torch, model), _patched(torch), _watched(torch, state):
        yield
    if _drawn() != draws:
        raise ExportError("forward draws from Python's or numpy's random numbers, which would be "
                          "the same in each batch: draw by torch")
    if state.changes():
        with _kept(torch, model):
            changes = _still_changes(torch, model, inputs)
        if changes:
            path, name = changes[0]
            raise ExportError(f"forward reads {name} of {path or 'the model'} and then changes it, "
                              "so the next batch would find another: Duet's forward has no state")


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
