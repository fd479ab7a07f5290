"""The first program of PyTorch's torch.distributed.rpc tutorial, as a peer of
examples/rpc_cartpole.c: python3 bench/torch_rpc_cartpole.py WORLD_SIZE EPISODES

Prints how many pole steps it made per second. Pole and policy are those behind the golden episode
lengths: CartPole-v1 by its published equations, whose step costs less than gymnasium's."""
import os
import sys
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch.distributed.rpc import RRef, remote, rpc_async
from torch.distributions import Categorical

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "tests", "golden"))
from make_rpc_cartpole import EPS, GAMMA, CartPole, Policy  # noqa: E402

SEED = 1


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
