"""Tests duet.export: writes each net of nets.py, which compares its loss and gradients with
PyTorch's float64, and trains it with the command in all modes. refusals.py has the nets that must
fail. Needs torch."""

import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import duet
import function_nets
import nets
from duet._library import find

SAMPLES, STEPS, BATCH = 8, 5, 8
LOSS = 2e-6  # allowed difference of a loss from PyTorch's float64


def read_tensors(path):
    import json
    import struct
    blob = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    header, at = json.loads(blob[8:8 + size]), 8 + size
    types = {"F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "u1"}
    return {name: numpy.frombuffer(blob[at + item["data_offsets"][0]:at + item["data_offsets"][1]],
                                   types[item["dtype"]]).reshape(item["shape"])
            for name, item in header.items() if name != "__metadata__"}


class Written(unittest.TestCase):
    """A folder with exported nets."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name):
        torch.manual_seed(1)
        net = nets.NETS[name][0]()
        path = duet.export(net, nets.samples(name, 2), self.folder / f"{name}.duet")
        return net, path

    def options(self, path, **more):
        return dict(model=path, dataset="random", loss=nets.loss_of(path.stem), samples=SAMPLES,
                    batch_size=BATCH, steps=STEPS, lr=0.05, progress=False, quiet=True, **more)


class Export(Written):
    def bits_are_equal(self, name):
        path = self.folder / f"{name}.duet"
        for devices in (2, 4):
            result = duet.compare(**self.options(path), devices=devices)
            self.assertEqual(len(result.runs), 3)
            self.assertIn("identical to the bit", result.output)


def _add(name):
    def test(self):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.write(name)
        unverified = any("is not verified" in str(one.message) for one in told)
        self.assertEqual(unverified, name in function_nets.RANDOM)
        self.bits_are_equal(name)
    setattr(Export, f"test_{name}", test)


for _name in nets.NETS:
    _add(_name)


class RunningMeans(Written):
    def test_of_all_batches(self):
        net, path = self.write("norms")
        saved = self.folder / "after.safetensors"
        duet.train(**{**self.options(path), "lr": 0}, shuffle=False, virtual_devices=1,
                   mode="single", save=saved)
        torch.manual_seed(0)
        x = nets.samples("norms", SAMPLES)
        for _ in range(STEPS):
            net.train()(x)
        after = read_tensors(saved)
        for key, want in net.named_buffers():
            off = numpy.abs(after[key] - want.numpy()).max()
            self.assertLessEqual(off, 1e-6 * max(1, want.abs().max()), key)  # float32's roundings


class Called(Written):
    """Models as they are called: by names, with labels, with more inputs than forward names."""

    def test_by_names_and_with_an_output_that_has_names(self):
        @dataclasses.dataclass
        class Output:
            loss: object
            logits: torch.Tensor
            hidden: torch.Tensor

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(6, 3)

            def forward(self, x, shift=None, mask=None, labels=None):
                x = x * mask + (0 if shift is None else shift)
                y = self.head(x)
                return Output(None if labels is None else F.cross_entropy(y, labels), y, x)
        inputs = {"mask": torch.ones(4, 6), "x": torch.randn(4, 6), "labels": torch.ones(4)}
        text = duet.export(Net(), inputs, self.folder / "net.duet").read_text()
        self.assertRegex(text, r"input %x: .*\ninput %mask: ")
        result = duet.compare(Net(), inputs, samples=8, batch_size=4, steps=2, devices=2,
                              progress=False)
        self.assertIn("identical to the bit", result.output)
        with self.assertRaisesRegex(ValueError, "takes no positional input y: expected x, shift,"):
            duet.export(Net(), {"y": torch.ones(4, 6)}, self.folder / "net.duet")

    def test_labels_give_the_decoder_its_inputs(self):
        """As transformers' own forward does: without labels the call names the shifted tokens."""
        try:
            import transformers
        except ImportError:
            self.skipTest("no transformers")
        table = {"T5": dict(d_kv=4, d_ff=8, num_layers=1, num_heads=2, dropout_rate=0),
                 "Bart": dict(encoder_layers=1, decoder_layers=1, encoder_ffn_dim=8,
                              decoder_ffn_dim=8, encoder_attention_heads=2, dropout=0,
                              decoder_attention_heads=2, max_position_embeddings=16)}
        for name, sizes in table.items():
            torch.manual_seed(1)
            config = getattr(transformers, f"{name}Config")(
                vocab_size=20, d_model=8, decoder_start_token_id=1, pad_token_id=0, **sizes)
            net = getattr(transformers, f"{name}ForConditionalGeneration")(config)
            words, labels = (torch.randint(3, 20, (4, n)) for n in (5, 3))
            shifted = torch.cat([torch.ones(4, 1, dtype=torch.int64), labels[:, :-1]], 1)
            texts = [duet.export(net, {"input_ids": words, **more},
                                 self.folder / "net.duet").read_text()
                     for more in ({"labels": labels}, {"decoder_input_ids": shifted})]
            self.assertEqual(*texts)
            self.assertRegex(texts[0], r"input %decoder_input_ids: i64\[N, 3\]")

    def test_more_inputs_than_forward_names(self):
        class Net(nn.Linear):
            def forward(self, x, *more):
                for one in more:
                    x = x * one
                return super().forward(x)
        for count in (1, 2, 3):
            text = duet.export(Net(6, 3), tuple(torch.randn(4, 6) for _ in range(count)),
                               self.folder / "net.duet").read_text()
            self.assertEqual(text.count("input %"), count)


class Drawn(Written):
    def test_squares_and_steps(self):
        """Of 2^15 numbers: six deviations of the mean of 9 e^2 - 2 * 3 e t + t^2, which is 10."""
        path = self.write("draws")[1]
        losses = duet.train(**{**self.options(path), "lr": 0}, mode="single").runs[0].losses
        for loss in losses:
            self.assertLess(abs(loss - 10), 6 * 14 / 2 ** 7.5)
        self.assertEqual(len(set(losses)), STEPS)


class OwnData(Written):
    """A user's tokens and labels from a file: PyTorch's losses, and equal bits in all modes."""

    def test_a_model_of_tokens_with_a_label_at_each_place(self):
        class Places(nets.GPT2):
            def forward(self, tokens):
                at = torch.arange(tokens.shape[1], device=tokens.device)
                x = self.norm(self.block(self.wte(tokens) + self.wpe(at)))
                return self.head(x).transpose(1, 2)

        torch.manual_seed(1)
        net, path = Places(), self.folder / "places.duet"
        tokens = torch.randint(0, nets.VOCABULARY, (3 * BATCH, 9))
        x, y, data = tokens[:, :-1], tokens[:, 1:], self.folder / "tokens.safetensors"
        duet.export(net, x[:2], path)
        duet.save_dataset(data, x, y, x_test=x[:4], y_test=y[:4].to(torch.int32))
        net = net.double().train()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        want = []
        for batch in range(3):
            rows = slice(batch * BATCH, (batch + 1) * BATCH)
            loss = F.cross_entropy(net(x[rows]), y[rows])
            want.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        options = dict(model=path, dataset=data, batch_size=BATCH, steps=3, lr=0.1, progress=False,
                       quiet=True)
        run = duet.train(**options, shuffle=False, virtual_devices=1, mode="single").runs[0]
        self.assertEqual((run.dataset, run.train_samples, run.test_samples),
                         ("tokens.safetensors", 3 * BATCH, 4))
        self.assertEqual(len(run.losses), 3)
        for got, exact in zip(run.losses, want):
            self.assertLessEqual(abs(got - exact), LOSS * max(1, abs(exact)))
        for devices in (2, 4):
            self.assertIn("identical to the bit", duet.compare(**options, devices=devices).output)
        duet.save_dataset(data, x + nets.VOCABULARY, y)
        with self.assertRaisesRegex(duet.DuetError, "takes integers from 0 to"):
            duet.train(**options)

    def test_columns_that_have_tables_of_their_own(self):
        class Columns(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.low, self.high = torch.nn.Embedding(7, 6), torch.nn.Embedding(11, 6)
                self.head = torch.nn.Linear(6, 4)

            def forward(self, x):
                return self.head(self.low(x[:, 0]) + self.high(x[:, 1]))
        torch.manual_seed(2)
        net, path, data = Columns(), self.folder / "columns.duet", self.folder / "data.safetensors"
        x = torch.stack([torch.randint(0, 7, (BATCH,)), torch.randint(0, 11, (BATCH,))], 1)
        x[0, 1], y = 10, torch.randint(0, 4, (BATCH,))
        self.assertIn("i64[N, 2] below 7 to 11\n", duet.export(net, x, path).read_text())
        duet.save_dataset(data, x, y)
        options = dict(model=path, batch_size=BATCH, steps=1, progress=False, quiet=True)
        loss = duet.train(**options, dataset=data, shuffle=False, mode="single").runs[0].losses[0]
        self.assertAlmostEqual(loss, F.cross_entropy(net(x), y).item(), 5)
        drawn = duet.compare(**options, dataset="random", samples=64, devices=2)
        self.assertTrue(numpy.isfinite(drawn.runs[0].losses).all())
        x[1, 0] = 9  # for which its table has no row
        duet.save_dataset(data, x, y)
        loss = duet.train(**options, dataset=data, shuffle=False, mode="single").runs[0].losses[0]
        self.assertTrue(numpy.isnan(loss))
        duet.save_dataset(data, x + 9, y)
        with self.assertRaisesRegex(duet.DuetError, "takes integers from 0 to 10"):
            duet.train(**options, dataset=data)

    def test_numbers_beside_tokens(self):
        class Both(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.kinds = torch.nn.Embedding(20, 6), torch.nn.Embedding(3, 6)
                self.first, self.head = torch.nn.Linear(8, 6), torch.nn.Linear(6, 4)

            def forward(self, tokens, numbers, kind):
                x = self.words(tokens).mean(1) * self.kinds(kind)
                return self.head(x + torch.tanh(self.first(numbers.flatten(1))))

        torch.manual_seed(1)
        net, path, data = Both(), self.folder / "both.duet", self.folder / "rows.safetensors"
        count = 3 * BATCH
        torch.manual_seed(0)  # as --dataset random draws them
        x = (torch.randint(0, 20, (count, 5)), torch.randn(count, 2, 4),
             torch.randint(0, 3, (count,)))
        y = torch.randint(0, 4, (count,))
        duet.export(net, tuple(part[:2] for part in x), path)
        duet.save_dataset(data, x, y)
        net, want = net.double().train(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for batch in range(3):
            rows = slice(batch * BATCH, (batch + 1) * BATCH)
            loss = F.cross_entropy(net(x[0][rows], x[1][rows].double(), x[2][rows]), y[rows])
            want.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        options = dict(model=path, batch_size=BATCH, steps=3, lr=0.1, progress=False, quiet=True)
        for given in (dict(dataset=data), dict(dataset="random", samples=count)):
            run = duet.train(**options, **given, shuffle=False, virtual_devices=1,
                             mode="single").runs[0]
            for got, exact in zip(run.losses, want, strict=True):
                self.assertLessEqual(abs(got - exact), LOSS * max(1, abs(exact)))
            result = duet.compare(**options, **given, devices=2)
            self.assertIn("identical to the bit", result.output)
        for part, wrong in ((0, 20), (2, 3)):
            off = [one.clone() for one in x]
            off[part][-1] = wrong
            duet.save_dataset(data, tuple(off), y)
            with self.assertRaisesRegex(duet.DuetError, f"integers from 0 to {wrong - 1}$"):
                duet.train(**options, dataset=data)
        with self.assertRaisesRegex(ValueError, "2.24"):
            duet.save_dataset(data, (x[0] + (1 << 24) + 1, x[1]), y)

    def test_each_batch_of_an_evaluation_draws_numbers_of_its_own(self):
        class Noise(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(3))

            def forward(self, x):
                return self.scale * torch.randn_like(x) + x

        path, data, zeros = self.folder / "noise.duet", self.folder / "zeros.safetensors", []
        duet.export(Noise(), torch.zeros(2, 3), path)
        for batches in (64, 128):  # the command reads what it has logged of 64 batches at a time
            x = torch.zeros(batches * BATCH, 3)
            duet.save_dataset(data, x[:BATCH], x[:BATCH], x_test=x, y_test=x)
            result = duet.compare(model=path, dataset=data, loss="mse", batch_size=BATCH, epochs=1,
                                  devices=2, progress=False, quiet=True)
            self.assertIn("identical to the bit", result.output)
            zeros += [run.valid_loss[0] for run in result.runs]
        self.assertEqual(zeros, 3 * zeros[:1] + 3 * zeros[3:4])
        self.assertNotAlmostEqual(zeros[0], zeros[3], 6)  # the same draws, twice: 1e-16

    def test_inputs_whose_numbers_of_samples_no_op_compares(self):
        class Values(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

            def forward(self, state, action):
                return self.head(torch.relu(self.first(state))).gather(1, action.unsqueeze(1))

        torch.manual_seed(1)
        net, path = Values(), self.folder / "values.duet"
        duet.export(net, (torch.randn(4, 4), torch.randint(0, 3, (4,))), path)
        torch.manual_seed(0)
        state, action = torch.randn(BATCH, 4), torch.randint(0, 3, (BATCH,))
        want = F.mse_loss(net.double()(state.double(), action), torch.randn(BATCH, 1).double())
        options = dict(model=path, dataset="random", samples=BATCH, batch_size=BATCH, steps=1,
                       loss="mse", progress=False, quiet=True)
        run = duet.train(**options, shuffle=False, virtual_devices=1, mode="single").runs[0]
        self.assertLessEqual(abs(run.losses[0] - want.item()), LOSS * max(1, want.item()))
        self.assertIn("identical to the bit", duet.compare(**options, devices=2).output)


class Refusals(unittest.TestCase):
    def test_every_op_that_is_not_there_is_named_at_once(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 4)

            def forward(self, x):
                x = torch.special.i0(self.head(x))
                return torch.nanmedian(x, 1)[0]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "net.duet")
            with self.assertRaises(duet.ExportError) as caught:
                duet.export(Net(), torch.zeros(2, 4), path)
            text = str(caught.exception)
            self.assertRegex(text, r"special_i0.* of the model \(Net\), .*export.py:\d+: Duet has")
            self.assertRegex(text, r"aten.nanmedian.* of the model")
            self.assertIn("duet estimate --params 20 --buffers 0", text)
            self.assertFalse(path.exists())

    def test_what_cannot_be_a_graph(self):
        class Mixes(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 4)

            def forward(self, x):
                return self.head(x - x.mean(0))

        class Plain(Mixes):
            def forward(self, x):
                return self.head(x)
        frozen = Plain().requires_grad_(False)
        branch = Plain()
        branch.forward = lambda x: branch.head(x) if x.sum() > 0 else x
        for net, says in ((Mixes(), "mixes samples"), (frozen, "all 2 parameters are frozen"),
                          (branch, "cannot trace")):
            with self.assertRaisesRegex(duet.ExportError, says):
                duet.export(net, torch.zeros(2, 4), tempfile.gettempdir() + "/net.duet")
        with self.assertRaisesRegex(TypeError, "relu: not a torch.nn.Module: give"):
            duet.export(F.relu, torch.zeros(2, 4), "/nowhere/net.duet")
        with self.assertRaisesRegex(ValueError, "2 samples and 3 answers"):
            duet.save_dataset("/nowhere/data.safetensors", torch.zeros(2, 4), torch.zeros(3))
        with self.assertRaisesRegex(ValueError, "no samples"):
            duet.export(Plain(), torch.tensor(1.0), tempfile.gettempdir() + "/net.duet")

    def test_parameters_without_a_gradient_are_unused(self):
        class Probe(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

            def forward(self, x):
                with torch.no_grad():
                    x = torch.relu(self.body(x))
                return self.head(x)
        with tempfile.TemporaryDirectory() as folder:
            path = duet.export(type("Of", (nn.DataParallel,), {})(Probe()), torch.zeros(2, 4),
                               pathlib.Path(folder, "net.duet"))
            options = dict(model=path, dataset="random", devices=2, steps=2, progress=False)
            with self.assertRaisesRegex(duet.DuetError, "find_unused_parameters.*body.weight"):
                duet.train(**options, mode="ddp")
            result = duet.compare(**options, find_unused_parameters=True)
        self.assertIn("identical to the bit", result.output)

    def test_estimate_sets_pytorch_beside_duet(self):
        class Net(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
        with tempfile.TemporaryDirectory() as folder:
            path = duet.export(Net(), torch.zeros(3, 20), pathlib.Path(folder, "net.duet"))
            self.assertIn("\nsaves 120 0\n", path.read_text())  # 30 floats after the ReLU
            run = duet.estimate(model=path, devices=2, batch_size=6, **{"as": "pytorch"})
        self.assertRegex(run.output, r"DP at its peak +Duet +PyTorch\n.*\nheld ")
        self.assertRegex(run.output, r"\nsaved by autograd .*360 B")  # of 3 samples

    def test_stochastic_depth_does_nothing_in_evaluation(self):
        class Net(nn.Module):
            def __init__(self, kept):
                super().__init__()
                self.first, self.last, self.kept = nn.Linear(784, 6), nn.Linear(6, 10), kept

            def forward(self, x):
                x = self.first(x.flatten(1))
                x = x / self.kept * x.new_empty(x.shape[0], 1).bernoulli_(self.kept)
                return self.last(x.tanh())
        runs, nets_of_both = [], (Net(1 - 1e-7), Net(0.6))
        for net in nets_of_both:
            net.load_state_dict(nets_of_both[0].state_dict())
            with tempfile.TemporaryDirectory() as folder:
                path = duet.export(net, torch.randn(2, 1, 28, 28), pathlib.Path(folder, "net.duet"))
                runs += duet.train(model=path, dataset="synthetic", samples=64, batch_size=64,
                                   epochs=1, lr=1e-12, mode="single", progress=False).runs
        self.assertNotAlmostEqual(runs[0].losses[0], runs[1].losses[0], 4)
        self.assertAlmostEqual(runs[0].final_valid_loss, runs[1].final_valid_loss, 6)

    def test_nothing_of_the_model_changes(self):
        net = nets.NETS["residual"][0]().eval()
        before = {key: value.clone() for key, value in net.state_dict().items()}
        with tempfile.TemporaryDirectory() as folder:
            duet.export(net, nets.samples("residual", 2), pathlib.Path(folder, "net.duet"))
        self.assertFalse(net.training or net.norm.training)
        for key, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[key]), key)

    def test_the_command_names_what_does_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = duet.export(nets.NETS["tied"][0](), nets.samples("tied", 2),
                               pathlib.Path(folder, "net.duet"))
            text = path.read_text()

            def refused(changed):
                path.write_text(changed)
                run = subprocess.run([find("duet"), "train", "--model", path, "--dataset", "random",
                                      "--steps", "1"], capture_output=True, text=True)
                self.assertIn(run.returncode, (1, 2))
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
                return run.stderr
            self.assertIn("op: 'tanhh'", refused(text.replace("tanh(", "tanhh(", 1)))
            self.assertIn("a.weight", refused(re.sub(r"48\]", "47]", text, count=1)))
            self.assertIn("version 9", refused(text.replace("duet 1", "duet 9")))
            path.with_suffix(".safetensors").unlink()
            self.assertIn("net.safetensors", refused(text))


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    unittest.main()
