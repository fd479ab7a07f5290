"""What PyTorch's autograd saves for single ops with operands X and FLAT, without parameters and
answers, for make_autograd_memory.py."""
import contextlib

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

X, FLAT = (4, 6, 8, 8), (4, 24)  # of the operands
OPS = {  # shape of x; w makes a parameter
    "relu": lambda x, w: F.relu(x),
    "tanh": lambda x, w: torch.tanh(x),
    "sigmoid": lambda x, w: torch.sigmoid(x),
    "leaky_relu": lambda x, w: F.leaky_relu(x, 0.1),
    "elu": lambda x, w: F.elu(x),
    "hardtanh": lambda x, w: F.hardtanh(x),
    "gelu": lambda x, w: F.gelu(x),
    "silu": lambda x, w: F.silu(x),
    "hardswish": lambda x, w: F.hardswish(x),
    "hardsigmoid": lambda x, w: F.hardsigmoid(x),
    "softplus": lambda x, w: F.softplus(x),
    "abs": lambda x, w: torch.abs(x),
    "exp": lambda x, w: torch.exp(x),
    "log": lambda x, w: torch.log(x),
    "sqrt": lambda x, w: torch.sqrt(x),
    "reciprocal": lambda x, w: torch.reciprocal(x),
    "sin": lambda x, w: torch.sin(x),
    "round": lambda x, w: torch.round(x),
    "remainder": lambda x, w: torch.remainder(x, 3),
    "pow": lambda x, w: x ** 3,
    "multiply_number": lambda x, w: x * 2,
    "add_number": lambda x, w: x + 2,
    "add": lambda x, w: x + x,
    "subtract": lambda x, w: x - x,
    "multiply": lambda x, w: x * x,
    "matmul": lambda x, w: x @ x,
    "sum": lambda x, w: x.sum((2, 3)),
    "mean": lambda x, w: x.mean((2, 3)),
    "avg_pool": lambda x, w: F.avg_pool2d(x, 3, 2, 1),
    "max_pool": lambda x, w: F.max_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool": lambda x, w: F.adaptive_avg_pool2d(x, 2),
    "adaptive_avg_pool_1": lambda x, w: F.adaptive_avg_pool2d(x, 1),
    "pad": lambda x, w: F.pad(x, (1, 1, 1, 1)),
    "flatten": lambda x, w: x.flatten(1),
    "dropout": lambda x, w: F.dropout(x, 0.5),
    "dropout2d": lambda x, w: F.dropout2d(x, 0.5),
    "softmax": lambda x, w: F.softmax(x, -1),
    "attention": lambda x, w: F.scaled_dot_product_attention(x, x, x),
    "log_softmax": lambda x, w: F.log_softmax(x, -1),
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w(8), w(8)),
    "group_norm": lambda x, w: F.group_norm(x, 3, w(6), w(6)),
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w(6), w(6), True),
    "conv2d": lambda x, w: F.conv2d(x, w(5, 6, 3, 3), w(5)),
    "conv_groups": lambda x, w: F.conv2d(x, w(6, 2, 3, 3), w(6), groups=3),
    "linear": lambda x, w: F.linear(x, w(5, 8), w(5)),
    "cross_entropy": lambda x, w: F.cross_entropy(x, labels()),
    "nll_loss": lambda x, w: F.nll_loss(x, labels()),
    "mse_loss": lambda x, w: F.mse_loss(x, torch.empty(FLAT, device="cuda")),
}


def labels():
    return torch.zeros(FLAT[0], dtype=torch.int64, device="cuda")


def saved_by_op(name):
    """Counts without parameters and answers, as on a GPU, using fake tensors. These have attention
    only as products, so its fused kernel is counted on the CPU."""
    fused = name == "attention"
    device, mode = ("cpu", contextlib.nullcontext()) if fused else ("cuda", FakeTensorMode())
    of_loss = name in ("cross_entropy", "nll_loss", "mse_loss")
    seen, params = {}, set()

    def parameter(*shape):
        x = torch.empty(shape, device=device, requires_grad=True)
        params.add(x.untyped_storage()._cdata)
        return x

    def pack(x):
        is_answer = of_loss and x.is_leaf
        if not is_answer and x.untyped_storage()._cdata not in params:
            seen[x.untyped_storage()._cdata] = x
        return x

    with mode:
        leaf = torch.empty(FLAT if of_loss else X, device=device, requires_grad=True)
        x = leaf * 2  # a result, so that it counts if it is saved
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = OPS[name](x, parameter)
    del result
    return sum(x.untyped_storage().nbytes() for x in seen.values())
