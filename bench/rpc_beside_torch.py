"""Compares Duet's remote calls with PyTorch's: python3 bench/rpc_beside_torch.py [ROUNDS]

Each round runs both programs of calls (build/bench/rpc, torch_rpc.py) and both CartPole programs
(build/examples/rpc_cartpole, torch_rpc_cartpole.py) one after the other. The table says how many
times faster Duet was: the median round, and the range. Run `make bench examples` first."""
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "build")
TORCH = [sys.executable, os.path.join(HERE, "torch_rpc.py")]
POLES = [sys.executable, os.path.join(HERE, "torch_rpc_cartpole.py")]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
                          text=True).stdout


def calls(command):
    """{row: (fastest, median)} in us; for calls in flight their rate, twice."""
    rows = {}
    for line in run(command).splitlines()[1:]:
        numbers = [float(x) for x in re.findall(r"[\d.]+", line[24:])]
        rows[line[:24].strip()] = (numbers[0], numbers[-1])
    return rows


def steps(command):
    return float(re.search(r"(\d+) a second", run(command)).group(1))


def one_round(ratios):
    def add(name, ratio):
        ratios.setdefault(name, []).append(ratio)

    ours, theirs = calls([os.path.join(BUILD, "bench", "rpc")]), calls(TORCH)
    for name, (fastest, median) in theirs.items():
        if "flight" in name:
            add(name, ours[name][0] / fastest)
        else:
            add(name + ", fastest call", fastest / ours[name][0])
            add(name + ", median call", median / ours[name][1])
    for word in ("fastest", "median"):
        i = word == "median"
        add(f"64 MiB against one memcpy, {word}", ours["memcpy of 64 MiB"][i] / ours["64 MiB"][i])
    for world in ("2", "3"):
        cart = os.path.join(BUILD, "examples", "rpc_cartpole")
        duet = steps([cart, "--world_size", world, "--episodes", "60", "--rate"])
        add(f"CartPole, {world} workers, steps a second", duet / steps(POLES + [world, "25"]))


def main():
    ratios = {}
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        one_round(ratios)
    for name, r in ratios.items():
        print(f"{name:<40} {statistics.median(r):6.1f} ({min(r):.1f} to {max(r):.1f})")


if __name__ == "__main__":
    main()
