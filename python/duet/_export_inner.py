"""Programs within a program: what PyTorch itself makes an op of, and what stands under a context:
see export.py."""

from . import _export_ops
from ._export_graph import Refused
from ._export_table import KEEPS, writer_of, written_by


class Inner:
    """Of a walk through the nodes of a program, which it is a part of."""

    def is_unknown(self, target):
        """Is it an op that would be refused whatever it takes?"""
        if not isinstance(target, self.torch._ops.OpOverload) or \
                not any(isinstance(r.type, self.torch.TensorType) for r in target._schema.returns):
            return False
        name = target._schema.name.split("::")[-1]
        name = name.rstrip("_") if written_by(target) else name
        return name not in KEEPS and not writer_of(name) and not self.parts_of(target)

    def parts_of(self, target):
        """What PyTorch makes of an op by others; None: it is one of its own."""
        return target.decompose if target._can_decompose() else \
            self.torch._decomp.decomposition_table.get(target)

    def of_new(self, target):
        """Of an op that writes into its first operand the one that makes a new tensor."""
        def types(op):
            return [str(a.type) for a in op._schema.arguments]
        packet = getattr(self.torch.ops.aten, target._schema.name.split("::")[-1][:-1], None)
        ops = [getattr(packet, name) for name in packet.overloads()] if packet else []
        new = next((op for op in ops if types(op) == types(target)), target)
        return new if self.parts_of(new) else target

    def walk_into(self, node, target):
        """An op that PyTorch itself makes of others."""
        torch, parts = self.torch, self.parts_of(target)
        if not parts:
            raise Refused("Duet has no such op")
        inputs, place = node.all_input_nodes, torch.fx.node.map_arg

        def run(*given):
            table = dict(zip(inputs, given))
            args, kwargs = place((node.args, node.kwargs), lambda x: table[x])
            return parts(*args, **kwargs)
        trace = torch.fx.experimental.proxy_tensor.make_fx
        graph = trace(run, tracing_mode="symbolic", pre_dispatch=not target._can_decompose(),
                      _allow_non_fake_inputs=True)(*(x.meta["val"] for x in inputs))
        given = iter(inputs)
        for part in graph.graph.nodes:
            for key in ("nn_module_stack", "stack_trace"):
                part.meta[key] = node.meta.get(key)
            if part.op == "placeholder":
                self.env[part] = self.env[next(given)]
            elif part.op == "get_attr":
                self.env[part] = getattr(graph, part.target)
            elif part.op == "output":
                return self.look_up(part.args[0])
            elif part.target is target:
                raise Refused("Duet has no such op")
            else:
                self.env[part] = self.call(part)

    def block(self, target, *given):
        """What stands under a context: of gradients, or of autocast."""
        if target is self.torch.ops.higher_order.wrap_with_set_grad_enabled:
            return self.region(*given)
        if target is not self.torch.ops.higher_order.wrap_with_autocast:
            raise Refused("Duet has no such op")
        _, dtype, enabled, _, *rest = given
        if enabled and dtype is not self.torch.float32:
            raise Refused(f"it computes in {dtype}: Duet computes in float32")
        return self.region(True, *rest)

    def region(self, grad_enabled, part, *given):
        """What stands under torch.no_grad(), torch.enable_grad() within it, or torch.autocast."""
        given = iter(given)
        for node in part.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(given)
            elif node.op == "get_attr":
                self.env[node] = getattr(part, node.target)
            elif node.op == "output":
                results = self.look_up(node.args[0])
            else:
                try:
                    self.env[node] = self.call(node)
                except Refused as why:
                    raise Refused(f"{node.target}: {why}") from None
        if grad_enabled:
            return results
        return [_export_ops.detached(self.writer, x) for x in results]
