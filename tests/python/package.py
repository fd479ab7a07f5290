"""Tests the package duet: subcommands as functions, their records, errors and ends. Needs numpy."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import duet

SMALL = dict(dataset="synthetic", samples=256, steps=3, batch_size=64, model="mlp", quiet=True)


def children_of(pid):
    """The processes that `pid` has started, as /proc tells."""
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process may have ended meanwhile
            # The name, in parentheses, may contain spaces; state and parent come after it.
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(stat.parent.name)
    return children


class Package(unittest.TestCase):
    def test_a_record_has_attributes_and_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "losses.csv")
            result = duet.train(**SMALL, mode="dp", devices=2, log_loss=log)
            lines = log.read_text().split()[1:]
        losses = result.runs[0].losses
        self.assertIsInstance(losses, numpy.ndarray)
        self.assertEqual([line.split(",")[2] for line in lines], [f"{x:.9g}" for x in losses])
        self.assertEqual(result.runs[0].mode, "dp")
        self.assertEqual(result["command"], "train")
        with self.assertRaisesRegex(AttributeError, "no nothing here: expected schema"):
            result.nothing
        self.assertIn("srcdoc=", result._repr_html_())

    def test_losses_that_are_not_finite_are_nan(self):
        losses = duet.train(**{**SMALL, "lr": 1e30, "steps": 4}).runs[0].losses
        self.assertEqual(losses.dtype, float)
        self.assertTrue(numpy.isnan(losses[1:]).all(), losses)
        self.assertTrue(numpy.isnan(duet.command._plain([None, None])).all())

    def test_compare_proves_equal_bits(self):
        result = duet.compare(**SMALL, devices=2)
        self.assertEqual([run.name for run in result.runs], ["single", "dp", "ddp"])
        for run in result.runs[1:]:
            numpy.testing.assert_array_equal(run.losses, result.runs[0].losses)

    def test_estimate_shows_what_it_printed(self):
        result = duet.estimate(model="resnet18", devices=2)
        self.assertIn("resnet18", repr(result))
        self.assertTrue(result._repr_html_().startswith("<pre>"))

    def test_progress_is_one_line(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            duet.train(**{**SMALL, "quiet": None})
        self.assertIn("\rsingle epoch 1/1 ", errors.getvalue())
        self.assertIn("loss 2.", errors.getvalue())

    def test_errors_have_the_commands_line(self):
        with self.assertRaisesRegex(duet.DuetError, "^unknown argument: modle=x: did you me") as e:
            duet.train(modle="x")
        self.assertEqual(e.exception.code, 2)
        with self.assertRaisesRegex(duet.DuetError, "^[^-]*batch_size"):
            duet.train(**{**SMALL, "batch_size": -1})
        with self.assertRaisesRegex(duet.DuetError, "no/such/file") as e:
            duet.train(**SMALL, init_from="no/such/file")

    def test_a_model_may_come_first(self):
        options = {name: value for name, value in SMALL.items() if name != "model"}
        self.assertEqual(duet.train("mlp", **options).runs[0].model, "mlp")

    def test_a_module_is_exported(self):
        try:
            import torch
        except ImportError:
            self.skipTest("there is no torch")
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
        with self.assertWarnsRegex(UserWarning, "duet.compare: trains on random samples and la"):
            result = duet.compare(net, torch.randn(4, 1, 28, 28), devices=2, steps=2, quiet=True)
        numpy.testing.assert_array_equal(result.runs[1].losses, result.runs[0].losses)
        self.assertRegex(result.output, "(?s)Sequential.duet on random(?!.*written:)")
        for says, model, options in (
                ("in its module 1: .*4x25 and 784x10", net, {"inputs": torch.randn(4, 1, 5, 5)}),
                ("optimizer=SGD.*sgd", "mlp", {"optimizer": torch.optim.SGD(net.parameters())}),
                ("^dataset=tuple.*save_dataset", "mlp", {"dataset": (torch.randn(8, 784), [0])}),
                ("Linear.*inputs=torch.randn", torch.nn.Linear(3, 3), {}),
                ("model=<lambda>: not a torch.nn.Module: give", lambda x: x, {}),
                ("model=Linear: not a torch.nn.Module: give", torch.nn.Linear, {"inputs": 1}),
                ("only for a model that is a torch", "lenet", {"inputs": torch.randn(2, 3)})):
            with self.assertRaisesRegex(duet.DuetError, says):
                duet.compare(model, **options)

    def test_ctrl_c_ends_the_command(self):
        # Python ignores the signal if its parent did, as in a background job.
        program = ("import duet, signal\n"
                   "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                   "try: duet.train(dataset='synthetic', epochs=10000, samples=6400)\n"
                   "except KeyboardInterrupt: print('ended')")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=lambda: signal.alarm(100))
        self.addCleanup(process.kill)
        self.assertIn("epoch", process.stderr.read(20))
        children = children_of(process.pid)
        self.addCleanup(lambda: [os.kill(int(child), signal.SIGKILL) for child in children
                                 if os.path.exists(f"/proc/{child}")])
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[0], "ended\n")
        self.assertTrue(children)
        for child in children:
            self.assertFalse(os.path.exists(f"/proc/{child}"))

    def test_the_module_is_the_command(self):
        run = subprocess.run([sys.executable, "-m", "duet", "estimate", "--nonsense"],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("unknown option: --nonsense", run.stderr)

    def test_torch_is_asked_for_where_it_is_needed(self):
        hidden = "import sys; sys.modules['torch'] = None; import duet; "
        run = subprocess.run([sys.executable, "-c", hidden + "import duet.torch"],
                             capture_output=True, text=True)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("torch", run.stderr.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
