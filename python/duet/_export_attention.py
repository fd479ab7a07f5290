"""Scaled dot product attention, which nn.MultiheadAttention and nn.TransformerEncoderLayer call
too: one line, whose memory grows with the sequence. A mask that is trained, or is broadcast in ways
that the line does not have, takes the lines of the definition. See _export_ops.py."""

from ._export_graph import N, Stored, Value
from ._export_ops import binary, line_dim, require


def _added_to_scores(w, mask):
    """The mask as numbers: of a bool one 0, and -inf where a key is hidden."""
    if isinstance(mask, w.torch.Tensor):
        return mask.log() if mask.dtype == w.torch.bool else mask
    if "attn_mask" in w.bools:
        mask = w.value(mask)
        return w.emit("log", [mask], mask.shape, mask.lifted)
    return mask


def _fits(lead, queries, keys, mask):
    """Does the line take a mask of this shape? Of the query's leading dimensions those that it has
    follow each other, and the others are 1."""
    ahead = [1] * (len(lead) + 2 - len(mask)) + list(mask[:-2])
    own = [d for d, size in enumerate(ahead) if str(size) != "1"]
    run = range(own[0], own[-1] + 1) if own else ()
    return len(mask) >= 2 and len(ahead) == len(lead) and mask[-2] in (1, queries) and \
        mask[-1] == keys and all(str(ahead[d]) == str(lead[d]) for d in run)


def _is_trained(w, mask):
    return isinstance(mask, (Stored, Value)) and mask.name in w.stored.keys() | w.trained


def _operand(w, mask, rank):
    """The line takes a constant as it is, of which the samples need no copies."""
    if isinstance(mask, w.torch.Tensor):
        return w.constant(mask)
    return mask if mask is None or isinstance(mask, Stored) else w.aligned(w.value(mask), rank)


def _by_definition(w, a, q, k, v, mask, scale, shape):
    """softmax(q k^T scale + mask) v, as lines of their own."""
    turned = [*k.shape[:-2], k.shape[-1], k.shape[-2]]
    kt = w.emit("transpose", [k], turned, k.lifted, dim0=line_dim(k, -2), dim1=line_dim(k, -1))
    rows = [*shape[:-1], k.shape[-2]]
    scaled = w.emit("multiply_number", [q], q.shape, q.lifted, number=scale)
    scores = binary(w, "add", w.emit("matmul", [scaled, kt], rows, q.lifted), mask, rows)
    weights = w.emit("softmax", [scores], scores.shape, scores.lifted)
    if a.dropout_p:
        weights = w.emit("dropout", [weights], rows, p=a.dropout_p)
    return w.emit("matmul", [weights, v], shape, v.lifted)


def op_scaled_dot_product_attention(w, a, shape):
    require(not a.get("enable_gqa"), "enable_gqa")
    operands = [w.value(x) for x in (a.query, a.key, a.value)]
    lifted = all(x.lifted for x in operands)
    require(not (lifted and a.dropout_p),
            "dropout of a tensor without samples: each sample would draw its own")
    if not lifted:
        operands = [w.aligned(x, len(shape)) for x in operands]
    q, k, v = operands
    require(len({len(x.shape) for x in operands}) == 1, "operands with other numbers of dimensions")
    scale = q.shape[-1] ** -0.5 if a.scale is None else a.scale
    mask = _added_to_scores(w, a.attn_mask)
    lead = [N(1), *shape[:-2]] if lifted else shape[:-2]
    if mask is not None and (_is_trained(w, mask) or not _fits(
            lead, shape[-2], k.shape[-2], mask.shape)):
        return _by_definition(w, a, q, k, v, mask, scale, shape)
    settings = {"is_causal": 1} if a.is_causal else {}
    if a.scale is not None:
        settings["scale"] = a.scale
    if a.dropout_p:
        settings["dropout_p"] = a.dropout_p
    return w.emit("scaled_dot_product_attention", [*operands, _operand(w, mask, len(lead) + 2)],
                  shape, lifted, **settings)
