#!/usr/bin/env python3
"""Measures the claims of the docs and the installed peers, and writes one page.

    make bench-report [ROUNDS=3] [PYTHON=python3] [OUT=build/bench-report.md]

Duet and its peer take turns in each part; a part whose peer is missing is left out, and the page
says so. The benchmarks check their answers: a wrong one fails its part and the report (exit status
1). The page begins with facts about the machine and the load of other programs, because a figure
means little without them: another machine may give other figures.
"""
import argparse
import datetime
import importlib.util
import os
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
SECONDS = 1800  # time limit of one program


class Failed(Exception):
    """A part's program failed or ran out of time."""


def output_of(command, **more):
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), **more}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(command)}: not done after {SECONDS} s") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"]
        raise Failed(f"{' '.join(command)}: status {done.returncode}: {said[-1]}")
    return done.stdout


def line_of(command):
    """The first line of a command, or none."""
    try:
        return output_of(command).splitlines()[0]
    except (OSError, Failed, IndexError):
        return None


# ---- the machine

def first_match(pattern, path):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.M)
    except OSError:
        return None
    return found and found.group(1)


def caches():
    names = []
    for i in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{i}/"
        kind, size = (first_match(r"(.+)", folder + name) for name in ("type", "size"))
        if kind and kind != "Instruction":
            names.append(f"L{first_match(r'(.+)', folder + 'level')} {size}")
    return ", ".join(names)


def instruction_sets():
    flags = (first_match(r"^flags\s*: (.*)", "/proc/cpuinfo") or "").split()
    return [name for name in ("avx2", "fma", "avx512f") if name in flags]


def facts():
    torch = importlib.util.find_spec("torch") and line_of(
        [sys.executable, "-c", "import torch; print(torch.__version__)"])
    return {
        "date": datetime.date.today().isoformat(),
        "Duet": line_of(["git", "describe", "--always", "--dirty"]),
        "processor": first_match(r"^model name\s*: (.*)", "/proc/cpuinfo") or platform.machine(),
        "instruction sets": ", ".join(instruction_sets()),
        "cores": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory": first_match(r"^MemTotal:\s*(.*)", "/proc/meminfo"),
        "system": f"{platform.system()} {platform.release()}",
        "compiler": line_of(["cc", "--version"]),
        "PyTorch": torch or "not installed",
        "load at the start": "%.1f" % os.getloadavg()[0],
    }


# ---- the parts: each returns lines of text

def ends_alone(*command):
    """A part with a single program, which takes the turns itself."""
    def lines(rounds):
        words = [word.replace("ROUNDS", str(rounds)) for word in command]
        return output_of([sys.executable, *words]).rstrip().splitlines()
    return lines


def kernels(rounds):
    sets = instruction_sets()
    widest = "avx512" if "avx512f" in sets else "avx2" if "avx2" in sets else "generic"
    return output_of(["build/bench/math_bench", widest]).rstrip().splitlines()


def rows_of(text):
    """{(call, bytes): us} from group_perf and from torch_group."""
    found = re.findall(r"^(\w+)\s+\d+\s+(\d+)\s+([\d.]+)$", text, re.M)
    return {(call, int(size)): float(us) for call, size, us in found}


def collectives(rounds):
    lines = []
    for world in (2, 4):
        sizes = ["-n", str(world), "-b", "1024", "-e", str(1 << 22), "-t", "0.2"]
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(rows_of(output_of(["build/bench/group_perf", *sizes])))
            theirs.append(rows_of(output_of([sys.executable, "bench/torch_group.py", *sizes])))
        lines += ["", f"{world} ranks{'':<7} {'bytes':>9} {'Duet us':>10} {'gloo us':>10} "
                  f"{'gloo : Duet':>12}"]
        ratios = []
        for row in ours[0]:
            if row not in theirs[0]:
                continue
            d, t = (min(one[row] for one in runs) for runs in (ours, theirs))
            ratios.append(t / d)
            lines.append(f"{row[0]:<14} {row[1]:>9} {d:>10.2f} {t:>10.2f} {t / d:>12.2f}")
        if not ratios:
            raise Failed("group_perf and torch_group print no row in common")
        lines.append(f"median {statistics.median(ratios):.2f}, {min(ratios):.2f} to "
                     f"{max(ratios):.2f}; gloo is faster in {sum(r < 1 for r in ratios)} of "
                     f"{len(ratios)}")
    return lines[1:]


PARTS = [  # title, Python packages that it needs, lines
    ("Kernels of the CPU: what one core can do at most, and what they do", (), kernels),
    ("An epoch of LeNet on one core", ("torch", "numpy"),
     ends_alone("bench/lenet_epoch.py", "ROUNDS")),
    ("A step of ResNet-18 on one core", ("torch", "numpy"),
     ends_alone("bench/resnet_step.py", "ROUNDS")),
    ("A step of ten nets that duet.export writes, on one core",
     ("torch", "torchvision", "transformers"),
     ends_alone("bench/exported_step.py", "-r", "ROUNDS")),
    ("Process groups on this machine, compared with gloo", ("torch",), collectives),
    ("Remote calls, compared with torch.distributed.rpc: how many times faster", ("torch",),
     ends_alone("bench/rpc_beside_torch.py", "ROUNDS")),
]


def part(title, needs, lines, rounds):
    """A part as text, and whether it failed."""
    missing = [name for name in needs if not importlib.util.find_spec(name)]
    print(f"bench-report: {title}" + (f": left out, no {missing[0]}" if missing else ""),
          flush=True)
    if missing:
        return f"Left out: the Python package {missing[0]} is not installed.\n", False
    start, load = time.time(), os.getloadavg()[0]
    try:
        body, failed = "\n".join("    " + line for line in lines(rounds)), False
    except (Failed, OSError) as error:
        body, failed = f"**Failed**: {error}", True
    seconds = time.time() - start
    return f"{body}\n\n{seconds:.0f} s; load when it began: {load:.1f}.\n", failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="build/bench-report.md")
    parser.add_argument("--only", default="", metavar="WORD", help="parts with WORD in their title")
    options = parser.parse_args()
    parts = [one for one in PARTS if options.only.lower() in one[0].lower()]
    if options.rounds < 1 or not parts:
        sys.exit("bench-report: --rounds: give 1 or more; --only: give a word of a title: "
                 + "; ".join(one[0] for one in PARTS))
    page, failures = ["# Duet beside what is installed here", ""], 0
    for name, value in facts().items():
        page.append(f"- {name}: {value}")
    page += ["", f"Duet and its peer took turns in {options.rounds} rounds. These are figures of "
             "this machine on this day."]
    for title, needs, lines in parts:
        body, failed = part(title, needs, lines, options.rounds)
        failures += failed
        page += ["", f"## {title}", "", body.rstrip()]
    with open(os.path.join(ROOT, options.out), "w") as file:
        file.write("\n".join(page) + "\n")
    print(f"bench-report: {options.out}" + (f", {failures} failed" if failures else ""))
    sys.exit(failures > 0)


main()
