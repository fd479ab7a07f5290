"""Tests duet.convert: files of torch.save as safetensors, and refusals. Needs torch."""

import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch
from torch import nn

import duet
from export import read_tensors

SIMPLE = dict(model="simple", dataset="random", samples=32, steps=1, progress=False)


class Convert(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        torch.manual_seed(0)
        self.net = nn.Linear(10, 10)

    def converted(self, what, **options):
        torch.save(what, self.folder / "w.pth", **options)
        return read_tensors(duet.convert(self.folder / "w.pth"))

    def same(self, got, want):
        self.assertEqual(sorted(got), sorted(want))
        for name, tensor in want.items():
            self.assertEqual(got[name].tolist(), tensor.tolist(), name)

    def test_wherever_the_state_dict_is_kept(self):
        want = self.net.state_dict()
        wrapped = nn.DataParallel(nn.DataParallel(self.net)).state_dict()
        self.assertIn("module.module.weight", wrapped)
        compiled = {f"_orig_mod.{name}": tensor for name, tensor in want.items()}
        for what in (want, dict(self.net.named_parameters()), {"state_dict": want, "epoch": 3},
                     {"model": want, "optimizer": {}}, wrapped, compiled,
                     {"model_state_dict": {f"module._orig_mod.{k}": v for k, v in want.items()}}):
            self.same(self.converted(what), want)
        self.same(self.converted(want, _use_new_zipfile_serialization=False), want)
        with zipfile.ZipFile(self.folder / "w.pth", "w") as archive:
            archive.writestr("nothing", "")
        with self.assertRaisesRegex(duet.DuetError, "torch.load"):
            duet.convert(self.folder / "w.pth")

    def test_names_that_would_be_equal_stay(self):
        both = {"0.weight": torch.zeros(2), "module.0.weight": torch.ones(3)}
        self.same(self.converted(both), both)

    def test_types_and_layouts(self):
        exact = torch.arange(6.0).reshape(2, 3)
        for kind in (torch.float64, torch.float16, torch.bfloat16):
            got = self.converted({"w": exact.to(kind)})["w"]
            self.assertEqual((str(got.dtype), got.tolist()), ("float32", exact.tolist()))
        self.same(self.converted({"t": exact.t(), "s": exact.to_sparse()}),
                  {"t": exact.t(), "s": exact})
        for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
            self.assertEqual(self.converted({"n": torch.ones(2).to(kind)})["n"].tolist(), [1, 1])
        with self.assertRaisesRegex(duet.DuetError, "w: torch.complex64"):
            self.converted({"w": torch.zeros(2, dtype=torch.complex64)})

    def test_what_is_refused_in_one_line(self):
        for what, why in ((self.net, "more than tensors: save model.state_dict"),
                          (torch.zeros(3), "a Tensor, not a dict of tensors"),
                          ({"epoch": 3, "loss": 0.5}, "no tensors in it, only epoch, loss")):
            with self.assertRaisesRegex(duet.DuetError, why) as caught:
                self.converted(what)
            self.assertNotIn("\n", str(caught.exception))
        with open(self.folder / "old.pt", "wb") as file:
            pickle.dump(0x1950a86a20f9469cfc6c, file, protocol=0)
        with self.assertRaisesRegex(duet.DuetError, "protocol cannot be read without running code"):
            duet.convert(self.folder / "old.pt")
        with self.assertRaisesRegex(duet.DuetError, "No such file"):
            duet.convert(self.folder / "none.pt")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["old.pt", "w.pth"])

    def test_as_a_command_whose_file_trains(self):
        path = self.folder / "net.pth"
        torch.save({"fc." + name: tensor for name, tensor in self.net.state_dict().items()}, path)
        with self.assertRaisesRegex(duet.DuetError, "it is a file of torch.save: convert it: "
                                    f"python -m duet convert {path} .*net.safetensors"):
            duet.train(**SIMPLE, init_from=path)
        line = [sys.executable, "-m", "duet", "convert", path]
        done = subprocess.run(line, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout),
                         (0, f"wrote {self.folder / 'net.safetensors'}\n"))
        duet.train(**SIMPLE, init_from=self.folder / "net.safetensors")
        done = subprocess.run([*line[:-1], "none"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "duet: convert: none: No such file or directory\n"))

    def test_a_data_set(self):
        x, y = torch.randn(8, 10), torch.arange(8) % 10
        torch.save({"x": x, "y": y}, self.folder / "data.pt")
        run = duet.train(**{**SIMPLE, "dataset": duet.convert(self.folder / "data.pt"),
                            "samples": None}, batch_size=8).runs[0]
        self.assertEqual(run.train_samples, 8)


if __name__ == "__main__":
    unittest.main()
