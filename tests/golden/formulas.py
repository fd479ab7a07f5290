"""What the scripts that make golden facts share: inputs by a formula that C tests repeat exactly,
and arrays written as C."""
import torch


def values(shape, a):
    """A float64 tensor; element i is ((i * a + 13) mod 1000) / 500 - 1."""
    count = torch.Size(shape).numel()
    numbers = [((i * a + 13) % 1000) / 500 - 1 for i in range(count)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def as_c(name, t):
    numbers = [f"{v:.17g}" for v in t.detach().reshape(-1).tolist()]
    lines = [", ".join(numbers[i:i + 4]) for i in range(0, len(numbers), 4)]
    return f"static const double {name}[{len(numbers)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def dims_as_c(name, y):
    dims = list(y.shape) or [1]
    return f"static const int {name}_dims[4] = {{{', '.join(map(str, dims))}}};\n"
