"""Collectives of Duet, of PyTorch's gloo and of MPI in turn, again and again; the least of each.

    compare_group.py [-n RANKS,...] [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS] [--rounds N]
                     [--python PYTHON] [--mpirun "MPIRUN and its flags" --mpi PROGRAM]

Prints microseconds and how many times Duet is faster. --python: one that has torch. --mpi:
bench/mpi_group.c as mpicc has built it. Run it in the repository's root, after `make bench`."""
import argparse
import shlex
import subprocess


def run(command, best):
    """Adds the least times of a run to best[(call, n, bytes)]."""
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in out.splitlines():
        words = line.split()
        if len(words) == 4 and words[1].isdigit():
            key = (words[0], int(words[1]), int(words[2]))
            best[key] = min(best.get(key, 1e30), float(words[3]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", default="2,4,8")
    parser.add_argument("-b", default="4")
    parser.add_argument("-e", default=str(64 << 20))
    parser.add_argument("-c")
    parser.add_argument("-t", default="0.05")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe")
    parser.add_argument("--mpi")
    o = parser.parse_args()
    flags = ["-b", o.b, "-e", o.e, "-t", o.t] + (["-c", o.c] if o.c else [])
    duet, gloo, mpi = {}, {}, {}
    for _ in range(o.rounds):
        for n in o.n.split(","):
            run(["build/bench/group_perf", "-n", n] + flags, duet)
            if o.python:
                run([o.python, "bench/torch_group.py", "-n", n] + flags, gloo)
            if o.mpi:
                run(shlex.split(o.mpirun) + ["-n", n, o.mpi] + flags, mpi)
    print(f"{'call':15} {'n':>3} {'bytes':>12} {'duet us':>12} {'gloo us':>12} {'x':>6} "
          f"{'MPI us':>12} {'x':>6}")
    for key, us in duet.items():
        line = f"{key[0]:15} {key[1]:3} {key[2]:12} {us:12.2f}"
        for other in gloo, mpi:
            line += f" {other[key]:12.2f} {other[key] / us:6.2f}" if key in other else " " * 20
        print(line.rstrip())


if __name__ == "__main__":
    main()
