#!/usr/bin/env python3
"""What the modelled clock costs a run: CPU and wall time of LeNet with --gpu over those without.

    python3 bench/clock_cost.py [ROUNDS [OTHER]]      default: 20 rounds

OTHER is another build of duet, as one from before a change: its runs stand beside those of
build/duet without --gpu, which shows what the clock costs where nobody asks for it.

A round has each command once, in an order that changes from round to round, and one twice:
that pair shows what no difference looks like here. Ratios are taken within a round; printed are the
median and the middle half. All runs must end with the same weights.
"""
import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

DUET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "duet")
TRAIN = "train --model lenet --dataset synthetic --samples 25600 --epochs 1 --quiet --devices 2"
MODES = ["single", "dp", "ddp"]


def run(duet, mode, words, folder):
    """CPU seconds, wall seconds and the hash of the weights."""
    weights = os.path.join(folder, "weights")
    command = [duet] + TRAIN.split() + ["--mode", mode, "--save", weights] + words
    if mode == "single":
        command = [w for w in command if w not in ("--devices", "2")]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, hashlib.sha256(open(weights, "rb").read()).hexdigest()


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    ways = {"off": (DUET, []), "off again": (DUET, []),
            "on": (DUET, ["--gpu", "v100", "--machine", "dgx1"])}
    if len(sys.argv) > 2:
        ways["other"] = (sys.argv[2], [])
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES:
            ratios = {way: ([], []) for way in ways if way != "off"}
            for i in range(rounds):
                names = list(ways)
                names = names[i % len(names):] + names[:i % len(names)]
                got = {way: run(ways[way][0], mode, ways[way][1], folder) for way in names}
                assert len({hash for _, _, hash in got.values()}) == 1, "the weights differ"
                for way, (cpu, wall) in ratios.items():
                    cpu.append(got[way][0] / got["off"][0])
                    wall.append(got[way][1] / got["off"][1])
            for way, both in ratios.items():
                words = []
                for what, list_of in zip(("CPU", "wall"), both):
                    low, middle, high = statistics.quantiles(list_of, n=4)
                    words.append(f"{what} {middle:.3f} ({low:.3f} to {high:.3f})")
                print(f"{mode:6} {way:9} over off: {', '.join(words)}", flush=True)


if __name__ == "__main__":
    main()
