"""Ops that write into a tensor: what has its memory has the new value from then on: see
export.py."""

from . import _export_ops, _export_parts, _export_picks, _export_shapes
from ._export_graph import Counted, Filled, N, Refused, Stored, Uniform, Value
from ._export_ops import Bound
from ._export_table import KEEPS, written_by
from ._export_turned import Turned, permuted


def _place(fake):
    """Which elements of its storage a tensor has."""
    return str(fake.storage_offset()), [*map(str, fake.shape)], [*map(str, fake.stride())]


class InPlace:
    """Of a walk through the nodes of a program, which it is a part of."""

    def pending(self, node, x):
        """Does anything behind the node use x?"""
        return any(user not in self.env and user is not node for user in x.users)

    def sharing(self, node):
        """What has memory of the tensor that the node writes into. Autograd must see the write:
        what is written through a detached tensor, or under no_grad, leaves the gradient as it was.
        """
        torch, target = self.torch, node.args[0]
        storage = target.meta["val"].untyped_storage()._cdata
        found = [x for x in self.env if isinstance(fake := x.meta.get("val"), torch.Tensor) and
                 fake.untyped_storage()._cdata == storage]

        def detached(x):
            while x in found:
                if "detach" in str(x.target):
                    return True
                x = x.args[0] if x.args else None
            return False

        def trains(x):
            x = self.env[x]
            return isinstance(x, Turned) or isinstance(x, Stored) and \
                x.name in self.writer.stored or isinstance(x, Value) and \
                x.name in self.writer.trained
        outside = [x for x in found if x.op == "placeholder" and
                   x.graph is not self.program.graph]
        aside = [x for x in found if not detached(x) and self.pending(node, x)] \
            if detached(target) else outside
        if any(map(trains, aside)):
            raise Refused("it writes outside of autograd into a value that has a gradient")
        return found

    def zero(self, node):
        """x.zero_(): all that has elements of x's memory is multiplied by 0 there, and by 1
        elsewhere."""
        torch, target = self.torch, node.args[0].meta["val"]
        sharing, storage = self.sharing(node), target.untyped_storage()
        if any(x.op == "placeholder" and x.graph is self.program.graph for x in sharing):
            raise Refused("it writes into a tensor of the model or an input")
        if any(isinstance(d, torch.SymInt) for x in sharing for d in x.meta["val"].shape):
            result = Filled(0.0, self.sizes(target.shape))
            self.overwrite(node, result)
            return result
        kept = torch.ones(storage.nbytes() // target.element_size())
        kept.as_strided(target.shape, target.stride(), target.storage_offset()).zero_()
        for x in sharing:
            fake = x.meta["val"]
            part = kept.as_strided(fake.shape, fake.stride(), fake.storage_offset())
            used = self.pending(node, x) or x is node.args[0] and node.users
            if used and not part.all():
                self.env[x] = _export_ops.binary(self.writer, "multiply", self.env[x],
                                                 part.clone(), list(fake.shape))
        return self.env[node.args[0]]

    def overwrite(self, node, result):
        """What was written in place has the new value from now on: what it is a part of, and other
        parts of that."""
        target, sharing = node.args[0], self.sharing(node)
        for other in sharing:
            if not isinstance(self.env[other], (Value, Turned, Filled, Counted, Uniform)):
                raise Refused("it writes into a tensor that is no value")
        place = _place(target.meta["val"])
        if _place(node.meta["val"]) != place and any(
                self.pending(node, x) for x in sharing if x is not target):
            raise Refused("it turns in place a tensor of which there are views")
        same = [x for x in sharing if _place(x.meta["val"]) == place]
        if any(self.pending(node, x) for x in sharing if x not in same):
            self.put_back(node, result, sharing)
        for other in same:
            self.env[other] = result

    def put_back(self, node, result, sharing):
        """`result` in what the node's target is a view of, of which all views are taken anew."""
        whole = node.args[0]
        while whole.args and whole.args[0] in sharing:
            if _is_view(whole, sharing):
                into = self.settled(self.env[whole.args[0]], False)
                result = _put(self, whole, into, result)
            whole = whole.args[0]
        if whole.op == "placeholder":
            raise Refused("it writes into a tensor of the model or an input")
        self.env[whole] = result
        for other in sharing:
            if other is whole:
                continue
            if other.args and other.args[0] in sharing:
                self.env[other] = self.call(other) if _is_view(other, sharing) else \
                    self.env[other.args[0]]
            elif self.pending(node, other):
                raise Refused("it writes in place into a tensor of which there are views that "
                              "cannot be followed")


def _is_view(x, sharing):
    return bool(x.args) and x.args[0] in sharing and not written_by(x.target)


def _put(walk, view, into, value):
    """`into` with `value` in place of the part of it that the node `view` is."""
    w, name = walk.writer, view.target._schema.name.split("::")[-1]
    shape = walk.sizes(view.args[0].meta["val"].shape)
    if name in ("view", "reshape", "squeeze", "unsqueeze", "flatten", "unflatten", "alias",
                "_unsafe_view", "view_as", "detach", *KEEPS):
        return _export_shapes.op_view(w, Bound(self=value), shape)
    given = dict(zip((a.name for a in view.target._schema.arguments), view.args)) | view.kwargs
    if name == "transpose":
        return _export_shapes.op_transpose(w, Bound(given, self=value), shape)
    if name == "permute":
        order = [d % len(shape) for d in given["dims"]]
        return _export_shapes.op_permute(
            w, Bound(self=value, dims=[order.index(d) for d in range(len(order))]), shape)
    if name == "slice" and given.get("step", 1) != 1:
        dim = given.get("dim", 0) % len(shape)
        places = walk.torch.arange(int(shape[dim]))[given.get("start"):given.get("end"):
                                                    given["step"]]
        return _export_picks.put_at(w, into, dim, places, value, shape)
    if name not in ("select", "slice", "narrow"):
        raise Refused(f"it writes in place into what {name} makes, which cannot be followed")
    dim, to = given.get("dim", 0) % len(shape), walk.sizes(view.meta["val"].shape)
    if name != "select" and str(to[dim]) == str(shape[dim]):  # all of it
        return value
    part = [*shape[:dim], 1 if name == "select" else to[dim], *shape[dim + 1:]]
    if isinstance(shape[dim], N):
        raise Refused("it writes in place into some of the samples")
    first = given["index"] if name == "select" else given.get("start") or 0
    first += shape[dim] if first < 0 else 0
    value = _export_shapes.op_view(w, Bound(self=value), part)
    order = sorted(range(len(shape)), key=lambda d: not isinstance(shape[d], N))
    into, value = (_in_order(w, x, order) for x in (into, value))
    to, dim = [shape[d] for d in order], order.index(dim)
    sides = [(0, first), (first + part[order[dim]], to[dim] - first - part[order[dim]])]
    before, behind = ([] if not length else [_export_parts.op_narrow(
        w, Bound(self=into, dim=dim, start=start, length=length),
        [*to[:dim], length, *to[dim + 1:]])] for start, length in sides)
    y = _export_parts.op_cat(w, Bound(tensors=[*before, value, *behind], dim=dim), to)
    return _in_order(w, y, [order.index(d) for d in range(len(order))])


def _in_order(w, x, order):
    """The dimensions of x in this order, as where the samples go to the front and back."""
    if order == list(range(len(order))):
        return x
    if isinstance(x, Filled):
        return Filled(x.number, [x.shape[d] for d in order])
    return permuted(w, x, order)
