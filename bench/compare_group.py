"""Collectives of Duet, of MPI and of PyTorch's gloo in turn, again and again; the least of each.

    compare_group.py [-n RANKS,...] [-b BYTES] [-e BYTES] [-c CALL] [-t SECONDS] [--rounds N]
                     [--mpirun "MPIRUN and its flags" --mpi PROGRAM] [--python PYTHON]
                     [--keep FILE] [--markdown]

Runs Duet, MPI, gloo, Duet, MPI, gloo, ...: what disturbs the machine disturbs all of them. Each
program checks the answers of every call before it times it, and a wrong one ends the comparison.
Prints microseconds of all three in one table, and in how many cases a peer is faster: among calls
that move at least one float, and among those whose blocks are empty, which all return at once.

--mpi: bench/mpi_group.c as mpicc has built it. --python: one that has torch. --keep: every run is
added to FILE and what it holds already counts too, so that a comparison can be made in portions;
of a case each program counts as often as the one that ran it the fewest times. --rounds 0 prints
what FILE holds. --markdown: tables of docs/collectives.md. Run it in the repository's root, after
`make bench`."""
import argparse
import os
import shlex
import subprocess
import sys

PROGRAMS = ["Duet", "MPI", "gloo"]
WIDE = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}


def cases_of(text):
    """(call, ranks, bytes) and microseconds of each line that a program has printed; a barrier has
    no bytes."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[1].isdigit():
            size = 0 if words[0] == "barrier" else int(words[2])
            yield (words[0], int(words[1]), size), float(words[3])


def run(program, command, times, keep):
    """Adds one run to times[program][case], a list, and to the file `keep`."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ended.returncode:
        sys.exit(f"compare_group: {program} ended with status {ended.returncode}: "
                 f"{shlex.join(command)}\n{ended.stdout}")
    with open(keep or os.devnull, "a") as file:
        for case, us in cases_of(ended.stdout):
            times[program].setdefault(case, []).append(us)
            print(program, *case, us, file=file)


def read(keep, times):
    if not keep or not os.path.exists(keep):
        return
    with open(keep) as file:
        for line in file:
            program, call, n, size, us = line.split()
            times[program].setdefault((call, int(n), int(size)), []).append(float(us))


def least_of(times):
    """best[case][program], of as many runs of each program."""
    best = {}
    for case in times["Duet"]:
        runs = {p: times[p][case] for p in PROGRAMS if case in times[p]}
        rounds = min(len(us) for us in runs.values())
        best[case] = {p: min(us[:rounds]) for p, us in runs.items()}
    return best


def is_empty(case):
    """A block of it has no element. (A barrier has none by its nature, and counts as a call.)"""
    call, n, size = case
    return call in WIDE and size // 4 // n == 0


def faster(us, peer):
    return peer in us and us[peer] < us["Duet"]


def print_table(best):
    print(f"{'call':15} {'n':>3} {'bytes':>9}" + "".join(f"{p + ' us':>12}" for p in PROGRAMS) +
          f"{'MPI x':>8}{'gloo x':>9}")
    for case, us in best.items():
        line = f"{case[0]:15} {case[1]:3} {case[2]:9}"
        for p in PROGRAMS:
            line += f"{us[p]:12.2f}" if p in us else f"{'-':>12}"
        for p in PROGRAMS[1:]:
            width = 8 if p == "MPI" else 9
            line += f"{us[p] / us['Duet']:{width}.2f}" if p in us else f"{'-':>{width}}"
        print(line + "".join(f"  {p} is faster" for p in PROGRAMS[1:] if faster(us, p)))


def short(us):
    return f"{us:.2f}" if us < 9.995 else f"{us:.0f}"


def name_of(size):
    for unit, name in (1 << 20, "MiB"), (1 << 10, "KiB"):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def print_markdown(best):
    sizes = [64 << 2 * i for i in range(0, 11) if i not in (1, 6, 8)]
    for n in sorted({case[1] for case in best}):
        print(f"\n| {n} ranks | " + " | ".join(name_of(s) for s in sizes) + " |")
        print("|" + "---|" * (len(sizes) + 1))
        for call in dict.fromkeys(case[0] for case in best):
            cells = []
            for size in sizes:
                us = best.get((call, n, 0 if call == "barrier" and size == sizes[0] else size), {})
                cells.append(" / ".join(short(us[p]) + "*" * faster(us, p) for p in PROGRAMS
                                        if p in us))
            print(f"| {call} | " + " | ".join(cells) + " |")


def print_counts(text, best, each):
    """How many cases of `best` each peer is faster in; each: which ones, too."""
    for p in PROGRAMS[1:]:
        timed = [case for case in best if p in best[case]]
        lost = [case for case in timed if faster(best[case], p)]
        if timed:
            print(f"\n{text}: {p} is faster in {len(lost)} of {len(timed)}")
        for case in lost if each else []:
            call, n, size = case
            what = f"{call} of {name_of(size)}" if size else call
            print(f"  {what} over {n} ranks: {best[case]['Duet']:.2f} against "
                  f"{best[case][p]:.2f} us")


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
    parser.add_argument("--keep")
    parser.add_argument("--markdown", action="store_true")
    o = parser.parse_args()
    flags = ["-b", o.b, "-e", o.e, "-t", o.t] + (["-c", o.c] if o.c else [])
    commands = {"Duet": ["build/bench/group_perf"]}
    if o.mpi:
        commands["MPI"] = shlex.split(o.mpirun)
    if o.python:
        commands["gloo"] = [o.python, "bench/torch_group.py"]
    times = {p: {} for p in PROGRAMS}
    read(o.keep, times)
    for _ in range(o.rounds):
        for n in o.n.split(","):
            for p, command in commands.items():
                run(p, command + ["-n", n] + ([o.mpi] if p == "MPI" else []) + flags, times, o.keep)
    best = least_of(times)
    if o.markdown:
        print_markdown(best)
    else:
        print_table(best)
    print_counts("calls of at least one float", {c: best[c] for c in best if not is_empty(c)}, 1)
    print_counts("calls of no element", {c: best[c] for c in best if is_empty(c)}, 0)


if __name__ == "__main__":
    main()
