"""Models that duet.export must refuse, because a graph cannot express them: each would train with
other numbers than in PyTorch. Needs torch."""

import contextlib
import io
import pathlib
import random
import tempfile
import unittest
import unittest.mock

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import duet
from duet.export.lower import LOWERINGS


class Net(nn.Module):
    """A layer before and one after the op that is tested."""

    def __init__(self, tried, **modules):
        super().__init__()
        self.first, self.head, self.tried = nn.Linear(4, 4), nn.Linear(4, 3), tried
        self.register_buffer("seen", torch.zeros(4))
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *x):
        return self.head(self.tried(self, self.first(x[0]), *x[1:]))


def into_a_sample(net, x):
    y = x * 2
    y[0] = 1
    return y


def cleared_aside(net, x):
    bias = net.first.bias.clone()
    bias.detach()[2:].zero_()
    return x * bias


def into_a_buffer(net, x):
    net.seen.add_(1)
    return x + net.seen


def into_a_parameter(net, x):
    net.first.bias.detach().clamp_(-1, 1)
    return x


class FiveTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5


def hooked(net, x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 2)
    return y


def in_inference_mode(net, x):
    with torch.inference_mode():
        y = x * 2
    return x * y.clone()


def counts(net, x):
    net.count += 1
    return x * min(1.0, 0.25 * net.count)


def counts_backward(net, x):
    def counted(gradient):
        net.count += 1
        return gradient * net.count
    y = x * 1
    y.register_hook(counted)
    return y


def drops_more(net, x):
    net.drop.p += 0.1
    return net.drop(x)


def forgets_slower(net, x):
    net.norm.momentum *= 0.5
    return net.norm(x)


def marked(x):
    with torch.no_grad():
        return (x > 0).float()


CALLS = []


def counts_outside(net, x):
    CALLS.append(0)
    return x * len(CALLS)


def remembers(net, x):
    y = x if net.before is None else x + net.before
    net.before = y.detach()
    return y


def sets_data(net, x):
    net.first.weight.data = net.first.weight.detach() * 0.9
    return x


def keeps(net, x):
    """A cache that the first batch fills for good, and a result that is only kept."""
    if net.length < 4:
        net.length, net.cache = 4, torch.arange(4.0)
    net.result = x * net.cache
    return net.result


class Refusals(unittest.TestCase):
    def setUp(self):
        for seed in (random.seed, numpy.random.seed, torch.manual_seed):
            seed(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "net.duet")

    def refused(self, net, says, *inputs):
        before = {key: value.clone() for key, value in net.state_dict().items()}
        with self.assertRaisesRegex(duet.ExportError, says):
            duet.export(net, inputs or (torch.randn(3, 4),), self.path)
        self.assertEqual(list(self.path.parent.iterdir()), [])
        for key, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[key]), key)

    def test_writing_in_place(self):
        self.refused(Net(cleared_aside), "gradient of first.bias is .* at or behind")
        self.refused(Net(into_a_parameter), "it writes into first.bias, a tensor of the model")
        self.refused(Net(into_a_sample), "some of the samples")

    def test_what_depends_on_the_number_of_samples(self):
        self.refused(Net(lambda net, x: x * (torch.arange(x.shape[0]) < 2)[:, None]),
                     "depend on the number of samples")
        self.refused(Net(lambda net, x, y: x.view(-1, 2, 2)[torch.arange(x.shape[0]), :, y[:, 0]]
                         .repeat(1, 2)), "picks samples", torch.randn(3, 4),
                     torch.ones(3, 1, dtype=int))
        self.refused(Net(lambda net, x: x * x.shape[0]), "computes with the number of samples")

    def test_a_buffer_that_each_batch_updates_is_written(self):
        self.assertIn("\nupdate seen = %2\n", duet.export(
            Net(into_a_buffer), torch.randn(3, 4), self.path).read_text())

    def test_a_weight_that_forward_makes_anew_is_written(self):
        net = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 3))
        text = duet.export(net, torch.randn(3, 4), self.path).read_text()
        self.assertIn("\nupdate weight_u = ", text)

    def test_what_a_trace_does_not_see(self):
        for tried, how, says in (
                (counts, {"count": 0}, "for a second batch its loss .*: forward keeps something"),
                (counts_backward, {"count": 0}, "second batch the gradient of first.bias"),
                (drops_more, {"drop": nn.Dropout(0.1)}, "other dropouts for a second batch"),
                (forgets_slower, {"norm": nn.BatchNorm1d(4)}, "is added to norm.running_var"),
                (lambda net, x: x + 1e-7 * FiveTimes.apply(net.branch(x)),
                 {"branch": nn.Linear(4, 4)}, "the gradient of branch.bias"),
                (counts_outside, {}, "called again, .* in a global"),
                (remembers, {"before": None}, "does not match"), (sets_data, {}, "does not match"),
                (lambda net, x: x * random.random(), {}, "Python's or numpy's"),
                (lambda net, x: x * numpy.random.rand(), {}, "Python's or numpy's")):
            self.refused(Net(tried, **how), says)
        self.refused(Net(lambda net, x: x * (2 if x.shape[0] > 2 else 1)),
                     r"refusals.py:\d+: .* number of samples, as x.shape\[0\] > 2 for")
        net = Net(lambda net, x: x)
        handle = net.first.weight.register_hook(lambda gradient: gradient * 2)
        self.refused(net, "first.weight has a hook on its backward")
        handle.remove()
        net = Net(keeps, length=0, cache=None)
        duet.export(net, torch.randn(3, 4), self.path)
        self.assertEqual((net.length, net.cache, hasattr(net, "result")), (0, None, False))
        self.path.unlink(), self.path.with_suffix(".safetensors").unlink()
        net = Net(lambda net, x: x * (net.norm(x) > 0), norm=nn.BatchNorm1d(4))
        with unittest.mock.patch("duet.export.verify.verify",
                                 side_effect=duet.ExportError("verified")):
            self.refused(net, "verified")
            duet.export(net, torch.randn(3, 4), self.path, verify=False)

    def test_one_memory_of_two_tensors(self):
        net = Net(lambda net, x: net.other(x), other=nn.Linear(4, 4))
        net.other.weight = nn.Parameter(net.first.weight.t())
        self.refused(net, "first.weight and other.weight are two tensors in one memory")
        net.other.weight = net.first.weight  # a tie
        net.register_buffer("before", net.first.bias.detach())
        self.refused(net, "first.bias and before are two tensors in one memory")

    def test_a_backward_that_forward_does_not_say(self):
        for tried in (lambda net, x: FiveTimes.apply(x), hooked, in_inference_mode,
                      lambda net, x: checkpoint(torch.tanh, x, use_reentrant=True) * marked(x)):
            self.refused(Net(tried), "gradient of first.bias is .* at or behind %1: .*first.weight")

        def by_number(net, x):
            x.register_hook(lambda gradient: gradient * (4 / gradient.shape[0]))
            return net.norm(x + 300) + 300 - 300  # the gradient of first.bias is all roundings
        self.refused(Net(by_number, norm=nn.BatchNorm1d(4)), "for another number of samples")
        net = Net(lambda net, x: x)
        duet.export(net, torch.randn(3, 4), self.path)
        x = torch.randn(2, requires_grad=True)  # everything is as before
        hooked(net, FiveTimes.apply(x)).sum().backward()
        self.assertEqual(x.grad.tolist(), [20, 20])

    def test_what_is_asserted_alone_may_be_any_op(self):
        def asserted(net, x, y):
            assert y.max().item() < 9
            return x
        inputs = torch.randn(3, 4), torch.ones(3, 4, dtype=int)
        self.refused(Net(lambda net, x, y: x + y.max()), "mixes samples", *inputs)
        duet.export(Net(lambda net, x, y: asserted(net, x, y) + y), inputs, self.path)

    def test_what_is_said_of_shapes(self):
        self.refused(Net(lambda net, x: F.max_pool1d(x, 2).repeat(1, 2)), "no batch dimension")
        self.refused(Net(lambda net, x: F.avg_pool2d(x.view(-1, 2, 2), 1).flatten(1)), "channels")

    def test_types_that_round(self):
        for kind in (torch.float16, torch.bfloat16, torch.float64, torch.int16):
            self.refused(Net(lambda net, x: x.to(kind).float()), f"makes {kind}")
        self.refused(Net(lambda net, x: x).half(), r"is torch.float16: .* model.float\(\) makes",
                     torch.randn(3, 4).half())
        self.refused(Net(lambda net, x: x.softmax(1, dtype=torch.float64).float()), "float64")
        self.refused(Net(lambda net, x: x).double(), "float64", torch.randn(3, 4).double())
        self.refused(Net(lambda net, x, y: x + y), "input is torch.bool", torch.randn(3, 4),
                     torch.ones(3, 4) > 0)

    def test_what_each_sample_would_do_for_itself(self):
        self.refused(Net(lambda net, x: x.view(-1, 2, 2).permute(1, 0, 2).reshape(-1, 4)),
                     "mixes samples")
        self.refused(Net(lambda net, x: x * x.amax()), "mixes samples")
        self.refused(Net(lambda net, x: x.repeat(2, 1)[::2]), "some of the samples")
        self.refused(Net(lambda net, x: x + torch.randn(4)), "belong to no sample")

    def test_stochastic_depth_that_evaluation_would_draw_too(self):
        for tried in (lambda net, x: x / 0.75 * torch.floor(torch.rand(x.shape[0], 1) + 0.75),
                      lambda net, x: x.div(0.75) * (0.75 + torch.rand((x.shape[0], 1))).floor_()):
            self.refused(Net(tried), "write torch.bernoulli")

    def test_a_layer_in_eval_mode(self):
        net = Net(lambda net, x: net.norm(x), norm=nn.BatchNorm1d(4))
        net.norm.eval()
        duet.export(net, torch.randn(3, 4), self.path)
        duet.export(net.eval(), torch.randn(3, 4), self.path)  # all of it: traced in training mode
        net = Net(lambda net, x: net.drop(x), drop=nn.Dropout(0.5))
        net.drop.eval()
        duet.export(net, torch.randn(3, 4), self.path)
        self.assertNotIn("dropout", self.path.read_text())

    def test_indices_computed_from_numbers(self):
        """An index without a row makes the loss NaN."""
        net = Net(lambda net, x, y: x.gather(1, y.round().long()) + net.words(y.int()).sum(1),
                  words=nn.Embedding(9, 4))
        x, y = torch.randn(3, 4), torch.full((3, 4), 2.7)
        path, data = duet.export(net, (x, y), self.path), self.path.with_suffix(".rows.safetensors")
        for number, is_there in ((3.3, True), (3.6, False), (9.0, False)):
            y[1, 1] = number
            duet.save_dataset(data, (x, y), torch.zeros(3, dtype=int))
            run = duet.train(model=path, dataset=data, batch_size=3, steps=1, progress=False,
                             mode="single").runs[0]
            self.assertEqual(numpy.isfinite(run.losses[0]), is_there)

    def test_an_input_is_as_large_as_in_the_example(self):
        """Where no table says it: more would be outside of the table behind an op."""
        net = Net(lambda net, x, y: x + net.words(y // 2).sum(1), words=nn.Embedding(5, 4))
        inputs = torch.randn(3, 4), torch.arange(12).reshape(3, 4).clamp(max=9)
        path, data = duet.export(net, inputs, self.path), self.path.with_suffix(".rows.safetensors")
        for most in (9, 10):
            duet.save_dataset(data, (inputs[0], inputs[1].clamp(max=8) + most - 8), torch.zeros(
                3, dtype=int))
            options = dict(model=path, dataset=data, batch_size=3, steps=1, progress=False)
            if most == 9:
                duet.train(**options, mode="single")
                continue
            with self.assertRaisesRegex(duet.DuetError, "takes integers from 0 to 9$"):
                duet.train(**options, mode="single")

    def test_indices_that_may_not_exist(self):
        whole = torch.randn(3, 4), torch.full((3, 4), 3)
        self.refused(Net(lambda net, x, y: x + x.gather(0, y)), "picks samples: pick along", *whole)
        self.refused(Net(lambda net, x, y: x + F.embedding(y[:, 0], x)), "picks samples", *whole)
        self.refused(Net(lambda net, x, y: x + x.scatter(0, y, 1.0)), "picks samples", *whole)
        self.refused(Net(lambda net, x, y: x.scatter(1, y, x)), "indices may be equal", *whole)
        self.refused(Net(lambda net, x, y: x[:, None].expand(-1, 2, -1).scatter(
            2, y[:, None], 1.0).sum(1)), "part of other dimensions", *whole)
        self.refused(Net(lambda net, x, y: torch.take_along_dim(x, y, 1)), "and gather", *whole)
        for tried in (lambda net, x: x.index_copy(1, torch.tensor([1, 3]), x[:, :2]),
                      lambda net, x: x.index_fill(1, torch.tensor([0]), 2),
                      lambda net, x: torch.slice_scatter(x, x[:, :2], 1, 0, 4, 2)):
            self.refused(Net(tried), "write torch.where")
        self.refused(Net(lambda net, x: x + x.sort(0)[0]),
                     r"sort.default of the model \(Net\), .*refusals.py:\d+: it mixes samples")
        self.refused(Net(lambda net, x, y: x.scatter_add(0, y, x)), "picks samples", *whole)
        self.refused(Net(lambda net, x, y: x + (y / 3).floor()), "write x // n", *whole)
        self.refused(Net(lambda net, x: x + x.round(decimals=2)), "to decimals")
        self.refused(Net(lambda net, x: torch.fft.fft(x).real), "fft_fft.* no such op")
        self.refused(Net(lambda net, x: x * x.prod(1, keepdim=True)), "prod.* no such op")
        self.refused(Net(lambda net, x: x * F.adaptive_max_pool2d(x[:, None, None], 3).mean()),
                     "adaptive_max_pool2d.* no such op")
        self.refused(Net(lambda net, x: x + torch.empty_like(x).uniform_()), "uniform.* no such op")
        self.refused(Net(lambda net, x, y: x + net.words.weight[y, y], words=nn.Embedding(
            9, 9)), "computes several indices", *whole)
        self.refused(Net(lambda net, x: nn.AvgPool3d(1)(x.view(-1, 1, 1, 1, 4)).flatten(1)),
                     "pool3d.* no such op")
        for function, says in ((torch.asinh, "asinh of .* op: write torch.log"),
                               (torch.atan, "(?m)atan of .* op$"),
                               (torch.erfc, r"erfc of .* op: write 1 - torch.erf\(x\)")):
            self.refused(Net(lambda net, x: function(x)), says)
        self.refused(Net(lambda net, x: x.abs() ** x), r"write torch.exp\(y \* torch.log\(x\)\)")
        self.refused(Net(lambda net, x: x + x % (x * x + 1)), "other than a nonzero number")
        self.refused(Net(lambda net, x, y: x + y // (y + 1)), "is not a nonzero number", *whole)
        self.refused(Net(lambda net, x: x + x.div(0.3, rounding_mode="trunc")), "is no integer")
        duet.export(Net(lambda n, x, y: x + n.seen.gather(0, y[:, 0])[:, None]), whole, self.path)

    def test_integers_that_float32_rounds(self):
        whole = torch.randn(3, 4), torch.ones(3, 4, dtype=int)
        for tried in (lambda y: y * 99999991 % 9, lambda y: (y + 5) ** 12 % 7,
                      lambda y: (y + 99).cumprod(1) % 7, lambda y: (y + 1) * (1 << 24),
                      lambda y: (y * 9999991).sum(1, keepdim=True) // 3,
                      lambda y: (y - 4 + 16777217) % 7, lambda y: y % 2147483647,
                      lambda y: torch.where(y > 3, y, 1 << 25) // 2):
            self.refused(Net(lambda net, x, y: x + tried(y)), "exceed 2.24", *whole)
        self.refused(Net(lambda net, x, y: x + 2 ** y % 3), "power is a computed integer", *whole)
        self.refused(Net(lambda net, x, y: x + (y & 5)), "on bits", *whole)
        self.refused(Net(lambda net, x, y: x + ~(y.ne(1).long())), "on bits", *whole)

    def test_what_layers_have_in_other_ways(self):
        self.refused(Net(lambda net, x: F.batch_norm(x, net.seen, net.seen + 1, training=True)),
                     "as nn.BatchNorm has them")
        self.refused(Net(lambda net, x: x + torch.cdist(x[:, None], x[:, None], p=3)[:, 0]),
                     "norm of order 3")

    def test_what_pytorch_cannot_trace_is_told_in_one_line(self):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            self.refused(Net(lambda net, x, y: x + F.one_hot(y).sum()), "numbers in a tensor",
                         torch.randn(3, 4), torch.ones(3, 4, dtype=int))
            self.refused(Net(lambda net, x: x + len(x)), "only one number of samples")
        self.assertEqual(printed.getvalue(), "")

    def test_names_that_the_text_cannot_have(self):
        self.refused(Net(lambda net, x: net.code(x), code=nn.ReLU()), "rename the module code")
        for name in ("a b", "none", "a=b", "%a"):
            net = Net(lambda net, x: x * getattr(net, name))
            setattr(net, name, nn.Parameter(torch.ones(4)))
            self.refused(net, "is not a valid name")

    def test_what_python_raises_is_a_refusal(self):
        with unittest.mock.patch.dict(LOWERINGS, {"aten::relu": lambda w, a, shape: a.nothing}):
            self.refused(Net(lambda net, x: x.relu()),
                         r"aten.relu.* \(Net\), .*refusals.py:\d+: it cannot be written: Attri")

    def test_what_is_right_near_0(self):
        for function in torch.log1p, torch.expm1:
            duet.export(Net(lambda net, x: function(x * 1e-6) * 1e6), torch.randn(3, 4), self.path)

    def test_a_lowering_that_is_wrong_is_named(self):
        with unittest.mock.patch.dict(LOWERINGS, {
                "aten::tanh": lambda w, a, shape: w.line("sigmoid", a.self)}):
            self.refused(Net(lambda net, x: (x.t().tanh() * x.t().sin()).t()),
                         r"differ: %2: f32\[N, 4\] = sigmoid\(%1\), aten.tanh.* of the model")

    def test_weights_lie_where_the_command_looks(self):
        for name in ("net", "net.v1", "net.v1.duet"):
            path = duet.export(Net(lambda net, x: x), torch.randn(3, 4), self.path.with_name(name))
            result = duet.train(model=path, dataset="random", samples=8, steps=1, progress=False,
                                virtual_devices=1, mode="single")
            self.assertEqual(len(result.runs[0].losses), 1)


if __name__ == "__main__":
    unittest.main()
