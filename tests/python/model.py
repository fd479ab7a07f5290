"""Compares duet.describe with counts by hand and with PyTorch's own figures. Needs torch."""

import unittest

import torch
from torch import nn

import duet


class Describe(unittest.TestCase):
    def test_a_perceptron_counted_by_hand(self):
        net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
        numbers = duet.describe(net, (torch.zeros(4, 20),))
        # The second layer saves the output of ReLU, which ReLU also saves: one storage.
        self.assertEqual(numbers, {"params": 20 * 30 + 30 + 30 * 5 + 5, "buffers": 0,
                                   "activations": 4 * 30, "shape": "20",
                                   "classes": 5})
        self.assertEqual(str(numbers), "--params 785 --buffers 0 --activations 120 --shape 20 "
                                       "--classes 5")

    def test_a_residual_block_with_tied_weights_and_norm(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Conv2d(4, 4, 3, padding=1, bias=False)
                self.norm = nn.BatchNorm2d(4)
                self.b = self.a  # counts once
                self.head = nn.Linear(4, 3)

            def forward(self, x):
                y = self.b(torch.relu(self.norm(self.a(x))))
                return self.head((x + y).mean((2, 3)))
        net = Net()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        numbers = duet.describe(net, torch.zeros(8, 4, 6, 6))
        self.assertEqual(numbers.params, 4 * 4 * 9 + 8 + 15)
        self.assertEqual(numbers.buffers, 9)
        plane = 4 * 4 * 36  # bytes of a sample: convolved once, after relu
        # and the mean for the head; the statistics of the batch, shared by its 8 samples
        self.assertEqual(numbers.activations, 2 * plane + 4 * 4 + 2 * 4 * 4 // 8)
        for name, tensor in net.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertEqual(duet.describe(nn.Conv3d(1, 2, 3), torch.zeros(4, 1, 8, 8, 8)).shape, "512")

    def test_a_large_model_takes_no_memory_and_estimate_answers(self):
        with torch.device("meta"):
            net = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(6)], nn.Linear(16384, 10))
            x = torch.empty(64, 16384)
        numbers = duet.describe(net, x)
        self.assertEqual(numbers.params, 6 * (16384 * 16384 + 16384) + 163850)
        result = duet.estimate(**numbers, batch_size=64, devices=2, device_memory="8G")
        self.assertIn("does not fit", repr(result) + str(result.runs[0].does_not_fit))

    def test_inputs_without_samples_are_refused(self):
        with self.assertRaisesRegex(ValueError, "no samples"):
            duet.describe(nn.Linear(2, 2), torch.tensor(1.0))


if __name__ == "__main__":
    unittest.main()
