"""Ops that write into a tensor: what has its memory has the new value from then on: see
export.py."""

from . import _export_ops
from ._export_graph import Counted, Filled, Refused, Stored, Uniform, Value
from ._export_turned import Turned


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
            raise Refused("it writes in place into a part of what is of the samples")
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
        """What was written in place has the new value from now on. A view of other elements would
        too, which no line can say."""
        target = node.args[0]
        for other in self.sharing(node):
            if not isinstance(self.env[other], (Value, Filled, Counted, Uniform)):
                raise Refused("it writes into a tensor that is no value")
            if _place(other.meta["val"]) == _place(target.meta["val"]):
                self.env[other] = result
            elif self.pending(node, other):
                raise Refused("it writes in place into a tensor of which there are views")
