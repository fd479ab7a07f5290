"""Shared by the scripts that make golden facts: inputs from a formula that C tests repeat exactly,
images, hashes, and tensors written as lines."""
import gzip
import pathlib

import numpy
import torch


def values(shape, a):
    """A float64 tensor; element i is ((i * a + 13) mod 1000) / 500 - 1."""
    count = torch.Size(shape).numel()
    numbers = [((i * a + 13) % 1000) / 500 - 1 for i in range(count)]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def as_line(name, t, number="{:.12g}".format):
    """A tensor small enough to be kept whole: a line NAME DIMS : NUMBERS, read by golden_tensor of golden.h. With
    number=repr all bits are kept."""
    t = torch.as_tensor(t, dtype=None if torch.is_tensor(t) else torch.float64)
    dims = " ".join(map(str, t.shape or (1,)))
    return f"{name} {dims} : " + " ".join(map(number, t.detach().reshape(-1).tolist())) + "\n"


def bits(t):
    """The 32-bit words of a float32 or int32 tensor."""
    return t.detach().contiguous().reshape(-1).numpy().view(numpy.uint32).tolist()


def fnv1a64(words):
    """FNV-1a, 64 bits, of 32-bit words, lowest byte first: a hash that a C test computes in three lines."""
    h = 0xcbf29ce484222325
    for byte in numpy.array(words, dtype="<u4").tobytes():
        h = ((h ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return h


def fashion_mnist(folder="/usr/share/datasets/fashion-mnist"):
    """The training images (60000, 1, 28, 28), 0 to 255 in float32, and their labels."""
    def read(name, skip):
        return numpy.frombuffer(gzip.open(f"{folder}/train-{name}-ubyte.gz").read(), numpy.uint8, offset=skip)
    pictures = torch.from_numpy(read("images-idx3", 16).astype(numpy.float32))
    return pictures.reshape(-1, 1, 28, 28), torch.from_numpy(read("labels-idx1", 8).astype(numpy.int64))


def write(script, about, lines):
    """Writes NAME.txt next to make_NAME.py, the script."""
    path = pathlib.Path(script).resolve()
    head = f"# Made by {path.name} with torch {torch.__version__}: {about}\n"
    (path.parent / (path.stem.removeprefix("make_") + ".txt")).write_text(head + "".join(lines))


def weights(number, name, shape):
    """The float32 values of parameter `number` of a model: from splitmix64, as wide as keeps the size of what goes
    through them; biases near 0, scales near 1."""
    count = torch.Size(shape).numel()
    u = (_splitmix64(count, number << 32) >> numpy.uint64(11)).astype(numpy.float64) * 2.0 ** -52 - 1
    if len(shape) > 1:
        u *= numpy.sqrt(3.0 / (count // shape[0]))
    else:
        u = 0.1 * u if "bias" in name else 1 + 0.2 * u
    return torch.from_numpy(u.astype(numpy.float32)).reshape(shape)


def _splitmix64(count, first=0):
    z = numpy.arange(first + 1, first + count + 1, dtype=numpy.uint64) * numpy.uint64(0x9e3779b97f4a7c15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
    return z ^ (z >> numpy.uint64(31))


SUMS = 16


def signs(count, sums=SUMS):
    """(sums, count) of +-1 that look random: bit j of splitmix64(i) is the sign of element i in sum j."""
    z = _splitmix64(count)
    for j in range(sums):
        yield 1.0 - 2.0 * ((z >> numpy.uint64(j)) & numpy.uint64(1)).astype(numpy.float64)


def fact(words, t, sums=SUMS, digits=17):
    """A tensor too large to keep, as a line: its norm and sums of all elements with signs. The mean square of the
    errors of the sums estimates the squared L2 distance of two tensors (golden_distance of golden.h)."""
    x = t.detach().double().reshape(-1).numpy()
    numbers = [float(numpy.sqrt(x @ x)), *(float(s @ x) for s in signs(x.size, sums))]
    return " ".join([words, *(f"{number:.{digits}g}" for number in numbers)])
