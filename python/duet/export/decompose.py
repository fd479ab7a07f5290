"""The exported program as few kinds of op: what has a lowering stays whole, all else is decomposed
by PyTorch; it is functional behind this, so nothing below knows of writing in place."""

import torch

from .lower import LOWERINGS


def decompose(program):
    _note_no_grad(program.graph_module)
    _without_asserts(program.graph)
    program._guards_code = []  # those of shapes are looked at by trace.py
    seen = set()
    for name, x in program.state_dict.items():  # what has two names is twice here
        program.state_dict[name] = x.clone() if id(x) in seen and not isinstance(
            x, torch.nn.Parameter) else x
        seen.add(id(x))
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if op._schema.name in LOWERINGS:
            table.pop(op)
    for op, how in torch._decomp.decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload) and op._schema.name not in LOWERINGS and \
                not op._schema.is_mutable and op not in table:
            table[op] = how
    return program.run_decompositions(table)


def _without_asserts(graph):
    """What is only asserted may be any op."""
    for node in reversed(graph.nodes):
        name = str(node.target)
        if node.op == "call_function" and not node.users and (
                "assert" in name or "constrain_range" in name or "aten.item" in name or
                isinstance(node.meta.get("val"), (torch.SymBool, torch.SymInt, torch.SymFloat))):
            graph.erase_node(node)


def _note_no_grad(module):
    """What forward computes under torch.no_grad() is a module of its own here, which the
    decomposition opens: its results are detached."""
    for part in module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and \
                    node.args[0] is False:
                for user in list(node.users):
                    with part.graph.inserting_after(user):
                        cut = part.graph.call_function(torch.ops.aten.detach.default, (user,))
                        cut.meta.update(user.meta)
                    user.replace_all_uses_with(cut, delete_user_cb=lambda n, cut=cut: n is not cut)
        part.recompile()
