"""The first program of PyTorch's text on torch.distributed.rpc, as the text has it, beside
examples/rpc_cartpole.c: python3 bench/torch_rpc_cartpole.py WORLD_SIZE EPISODES

Prints how many steps of the poles it made a second. CartPole-v1 is written out from its published
equations, so that no gymnasium is needed; its step costs less than gymnasium's."""
import math
import os
import sys
import time

import numpy
import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.rpc import RRef, remote, rpc_async
from torch.distributions import Categorical

GAMMA, SEED = 0.99, 1
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
        t = (force + 0.05 * (speed * speed) * s) / 1.1
        angular = (9.8 * s - c * t) / (0.5 * (4.0 / 3.0 - 0.1 * (c * c) / 1.1))
        linear = t - 0.05 * angular * c / 1.1
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


def _call_method(method, rref, *args, **kwargs):
    return method(rref.local_value(), *args, **kwargs)


def _remote_method(method, rref, *args, **kwargs):
    return rpc.rpc_sync(rref.owner(), _call_method, args=[method, rref] + list(args), kwargs=kwargs)


class Observer:
    def __init__(self):
        self.id = rpc.get_worker_info().id
        self.env = CartPole(SEED)

    def run_episode(self, agent_rref):
        state, done = self.env.reset(), False
        while not done:
            action = _remote_method(Agent.select_action, agent_rref, self.id, state)
            state, reward, done = self.env.step(action)
            _remote_method(Agent.report_reward, agent_rref, self.id, reward)


class Agent:
    def __init__(self, world_size):
        torch.manual_seed(SEED)
        self.agent_rref = RRef(self)
        self.policy = Policy()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-2)
        self.ob_rrefs, self.rewards, self.saved_log_probs = [], {}, {}
        for rank in range(1, world_size):
            info = rpc.get_worker_info(f"observer{rank}")
            self.ob_rrefs.append(remote(info, Observer))
            self.rewards[info.id], self.saved_log_probs[info.id] = [], []

    def select_action(self, ob_id, state):
        m = Categorical(self.policy(torch.from_numpy(state).float().unsqueeze(0)))
        action = m.sample()
        self.saved_log_probs[ob_id].append(m.log_prob(action))
        return action.item()

    def report_reward(self, ob_id, reward):
        self.rewards[ob_id].append(reward)

    def run_episode(self):
        torch.futures.wait_all([
            rpc_async(ob.owner(), _call_method, args=(Observer.run_episode, ob, self.agent_rref))
            for ob in self.ob_rrefs])

    def finish_episode(self):
        R, probs, rewards, returns = 0, [], [], []
        for ob_id in self.rewards:
            probs.extend(self.saved_log_probs[ob_id])
            rewards.extend(self.rewards[ob_id])
            self.rewards[ob_id], self.saved_log_probs[ob_id] = [], []
        for r in rewards[::-1]:
            R = r + GAMMA * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + EPS)
        self.optimizer.zero_grad()
        torch.cat([-p * R for p, R in zip(probs, returns)]).sum().backward()
        self.optimizer.step()
        return len(rewards)


def work(rank, world_size, episodes):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29512"))
    rpc.init_rpc(f"observer{rank}" if rank else "agent", rank=rank, world_size=world_size)
    if rank == 0:
        agent, steps, began = Agent(world_size), 0, time.perf_counter()
        for _ in range(episodes):
            agent.run_episode()
            steps += agent.finish_episode()
        print(f"{steps} steps: {steps / (time.perf_counter() - began):.0f} a second", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    world, count = (int(a) for a in sys.argv[1:3])
    mp.spawn(work, args=(world, count), nprocs=world)
