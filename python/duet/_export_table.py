"""Which function writes the lines of an op, and what the schemas of PyTorch say of it: see
_export_ops.py."""

from . import (_export_attention, _export_choices, _export_convolutions, _export_functions,
               _export_layers, _export_ops, _export_parts, _export_picks, _export_pools,
               _export_random, _export_recurrent, _export_shapes, _export_volumes, _export_wholes)

KEEPS = {  # ops that change no value
    "alias", "clone", "contiguous", "lift_fresh_copy", "to", "_to_copy", "type_as"}
_FILES = (_export_ops, _export_attention, _export_choices, _export_convolutions, _export_layers,
          _export_functions, _export_parts, _export_picks, _export_pools, _export_random,
          _export_recurrent, _export_shapes, _export_volumes, _export_wholes)


def writer_of(name):
    """The function op_NAME, None where Duet has no such op."""
    return next((getattr(m, f"op_{name}") for m in _FILES if hasattr(m, f"op_{name}")), None)


def written_by(target):
    """The arguments that an op writes into."""
    return [a.name for a in target._schema.arguments if a.alias_info and a.alias_info.is_write]
