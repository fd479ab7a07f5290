"""Prints the first episode lengths of the first program in PyTorch's torch.distributed.rpc
tutorial, one observer:
python3 tests/golden/make_rpc_cartpole.py > tests/golden/rpc_cartpole.txt

Policy, Agent and Observer are the tutorial's, in one process: the calls between them change no number. CartPole-v1
follows its published equations, in float64, with the starts that gymnasium draws; the policy gets the state as float32.
Agent and observer each have a generator. bench/torch_rpc_cartpole.py imports pole and policy from here."""
import math
import numpy
import torch
from torch import nn
from torch.distributions import Categorical

EPISODES, SEEDS, GAMMA = 60, (1, 2, 3), 0.99
EPS = numpy.finfo(numpy.float32).eps.item()


class CartPole:
    def __init__(self, seed):
        self.rng = numpy.random.Generator(numpy.random.PCG64(numpy.random.SeedSequence(seed)))

    def reset(self):
        self.state, self.steps = list(self.rng.uniform(-0.05, 0.05, 4)), 0
        return numpy.array(self.state, dtype=numpy.float32)

    def step(self, action):
        x, v, angle, speed = self.state
        force = 10.0 if action == 1 else -10.0
        c, s = math.cos(angle), math.sin(angle)
        total, half, pole = 0.1 + 1.0, 0.5, 0.1 * 0.5
        t = (force + pole * (speed * speed) * s) / total
        angular = (9.8 * s - c * t) / (half * (4.0 / 3.0 - 0.1 * (c * c) / total))
        linear = t - pole * angular * c / total
        self.state = [x + 0.02 * v, v + 0.02 * linear, angle + 0.02 * speed, speed + 0.02 * angular]
        self.steps += 1
        done = (abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * 2 * math.pi / 360
                or self.steps == 500)
        return numpy.array(self.state, dtype=numpy.float32), 1.0, done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.dropout = nn.Dropout(p=0.6)
        self.affine2 = nn.Linear(128, 2)

    def forward(self, x):
        x = torch.relu(self.dropout(self.affine1(x)))
        return torch.softmax(self.affine2(x), dim=1)


def lengths(seed):
    torch.manual_seed(seed)
    pole, policy = CartPole(seed), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    found = []
    for _ in range(EPISODES):
        state, done, saved, rewards = pole.reset(), False, [], []
        while not done:
            m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
            action = m.sample()
            saved.append(m.log_prob(action))
            state, reward, done = pole.step(action.item())
            rewards.append(reward)
        R, returns = 0, []
        for r in rewards[::-1]:
            R = r + GAMMA * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + EPS)
        optimizer.zero_grad()
        torch.cat([-p * R for p, R in zip(saved, returns)]).sum().backward()
        optimizer.step()
        found.append(len(rewards))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}: lengths of the first {EPISODES} episodes, a line a seed")
    for seed in SEEDS:
        print(seed, *lengths(seed))
