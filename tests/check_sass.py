#!/usr/bin/env python3
"""What ptxas made of each kernel, read from the GPU's own instructions (SASS). Needs no GPU.

    tests/check_sass.py NVDISASM LAUNCHES OBJECT...

prints a table with one line for each kernel and architecture: all its instructions by kind, and one
turn of its main loop with a static estimate; and from that an estimate of a step of LeNet, whose
launches the file LAUNCHES lists (tests/step_estimate.py). Exit status 1 if one of the checks does
not hold.
Looked at are all kernels for sm_90, and for other architectures those that are named below, since
nvdisasm takes a third of a second for each file.

The main loop is the innermost loop with the most multiply-adds, or where there are none the loop
that loads the most bytes for its instructions. Of one turn of it, for one warp, the table has

    slots    instructions. A scheduler issues one a cycle, and a multiprocessor has four schedulers.
    fma      the share of them that are multiply-adds (those of tensor cores count too), in percent
    passes   of shared memory, which serves 128 bytes a cycle for all four schedulers. A load or
             store of 32 lanes and 4 bytes is one pass, of 8 bytes two, of 16 four; half of that for
             wide loads of product_planes, whose lanes all read one address. At most: lanes that
             share an address cost less, lanes that meet in a bank more.
    busy     4 * passes / slots in percent: above 100 shared memory is slower than the schedulers
    bytes    between the warp and global memory

The checks:

    acquire   The loop of spin_kernel that sleeps has two system-wide loads. Behind the second the
              first cache is invalidated, and its value is used: ptxas drops an acquire load whose
              value is not.
    release   Each system-wide store and atomic of spin_kernel stands behind a system-wide fence.
    follows   From sm_90 on each kernel waits for the one in front of it (griddepcontrol.wait, here
              ACQBULK) before it branches, ends or touches memory: all but those of PLAIN may be
              started before the kernel in front has ended (device/cuda/dependent.c).
    local     No kernel touches local memory but those that check_cuda_kernels.py lets.
    constant  No kernel reads by the read-only path, which may be stale where a peer writes.
    wide      The kernels of WIDE load and store 16 bytes at a time.
    share     The loops of the kernels of SHARES are multiply-adds to that part."""
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from check_cuda_kernels import STACKS, code_of, kernels_of, plain
from step_estimate import estimate

# Kernels bound by memory: how many loads of 16 bytes must be under way at once before their values
# are needed, and how many stores of 16 bytes there must be.
WIDE = {
    "sum_kernel": (8, 4), "spin_kernel": (8, 4),  # two vectors of 4 sources
    "activation_forward": (1, 1), "activation_backward": (2, 1),
    "relu_forward": (1, 1), "relu_backward": (2, 1), "sigmoid_forward": (1, 1),
    "sigmoid_backward": (2, 1), "tanh_forward": (1, 1), "tanh_backward": (2, 1), "scale": (1, 1),
    "add_forward": (2, 1), "subtract_forward": (2, 1), "multiply_forward": (2, 1),
    "fill": (0, 1), "dropout": (1, 1), "dropout2d": (1, 1), "sgd": (3, 2),
    "adam": (4, 3), "adadelta": (4, 3), "gather_samples": (0, 1), "hash": (1, 0),
}

# The least share of multiply-adds in one turn of the main loop, in percent: what ptxas of CUDA 13
# makes, less some percent for another ptxas.
SHARES = {
    "product_planes<0,3>": 62, "product_planes<0,5>": 68,
    "product_planes<1,3>": 62, "product_planes<1,5>": 68,
    "product<0,0>": 56, "product<1,0>": 54, "product<2,0>": 48, "product<3,0>": 57,
    "product_narrow": 28, "product<4,0>": 64, "product<5,0>": 63, "product<6,0>": 59,
}

# Never started early, so they need not wait.
PLAIN = {"spin_kernel", "write_value"}

NAMED = WIDE.keys() | SHARES.keys()

TARGET = re.compile(r"`\((\.L_\w+)\)")

KINDS = {
    "fma": "FFMA DFMA HMMA",
    "float": "FADD FMUL FSETP FSEL FMNMX FCHK FRND DADD DMUL DSETP MUFU F2F F2I I2F I2FP UI2F UF2I",
    "shared": "LDS STS ATOMS LDGSTS",
    "global": "LDG STG LD ST RED REDG ATOM ATOMG",
    "local": "LDL STL",
    "control": "BRA BRX BSSY BSYNC BREAK BAR CALL RET EXIT WARPSYNC YIELD NANOSLEEP MEMBAR ERRBAR "
               "CGAERRBAR CCTL LDGDEPBAR DEPBAR",
}  # everything else is arithmetic of indices, predicates and moves: "index"
KIND = {name: kind for kind, names in KINDS.items() for name in names.split()}
WIDTH = {"128": 16, "64": 8, "U8": 1, "S8": 1, "U16": 2, "S16": 2}
LOADS = ("LDG", "LD", "LDGSTS")
COLUMNS = ["all", "fma", "float", "index", "shared", "global", "local", "control"]


class Line:
    """One instruction: its opcode with all words, its operands."""
    __slots__ = "code", "operands", "name", "kind"

    def __init__(self, code, operands):
        self.code, self.operands = code, operands
        self.name = code.partition(".")[0]
        self.kind = KIND.get(self.name, "index")

    def words(self):
        return self.code.split(".")

    def width(self):
        """Bytes of a lane."""
        words = self.words()
        return next((WIDTH[w] for w in words if w in WIDTH), 4)


def functions(text):
    """mangled name: ([Line], {label: index of the line behind it}). Read by hand: there are some
    hundred thousand lines."""
    found, lines, labels = {}, [], {}
    for row in text.splitlines():
        if row.startswith("        /*"):
            words = row[10:row.rindex(";")].split(None, 2 if "@" in row else 1)[1:]
            if words[0][0] == "@":
                del words[0]
            code, _, operands = " ".join(words).partition(" ")
            if code != "NOP":
                lines.append(Line(code, operands))
        elif row.startswith(".L_"):
            labels[row.rstrip(":")] = len(lines)
        elif row.startswith("\t.section\t.text."):
            lines, labels = found[row[len("\t.section\t.text."):row.index(",")]] = [], {}
    return found


def loops_of(lines, labels):
    """All loops as (first, last) of `lines`: from the target of a branch back to that branch."""
    loops = set()
    for i, line in enumerate(lines):
        if line.name == "BRA" and (target := TARGET.search(line.operands)):
            if (first := labels.get(target[1], i)) < i:
                loops.add((first, i))
    return sorted(loops, key=lambda loop: loop[1] - loop[0])


def innermost(loops):
    inner = []
    for loop in loops:
        if not any(loop[0] <= i[0] and i[1] <= loop[1] for i in inner):
            inner.append(loop)
    return inner


def moved(lines):
    """Bytes between a warp and global memory."""
    return sum(32 * line.width() for line in lines
               if line.kind == "global" or line.name == "LDGSTS")


def main_loop(lines, labels):
    def fma(loop):
        return sum(line.kind == "fma" for line in loop)

    def density(loop):
        return sum(line.width() for line in loop if line.name in LOADS) / len(loop)

    loops = loops_of(lines, labels)
    inner = [lines[first:last + 1] for first, last in innermost(loops)]
    best = max(inner, key=fma, default=[])
    if fma(best):
        return best
    return max((lines[first:last + 1] for first, last in loops), key=density, default=[])


def under_way(lines):
    """The most loads of 16 bytes with no arithmetic between them."""
    most = run = 0
    for line in lines:
        if line.name in ("LDG", "LD") and line.width() == 16:
            run += 1
            most = max(most, run)
        elif line.kind in ("float", "fma"):
            run = 0
    return most


def passes(name, lines):
    total = 0
    for line in lines:
        if line.kind == "shared":
            need = -(-line.width() // 4)
            uniform = name.startswith("product_planes") and line.name == "LDS"
            total += max(1, need // 2) if uniform else need
    return total


def row_of(name, arch, lines, loop):
    count = Counter(line.kind for line in lines)
    count["all"] = len(lines)
    row = [name, f"sm_{arch}"] + [count[c] for c in COLUMNS]
    if loop:
        slots, p = len(loop), passes(name, loop)
        fma = sum(line.kind == "fma" for line in loop)
        row += [slots, 100 * fma // slots, p, 400 * p // slots, moved(loop)]
    return row


# ---- the checks: each returns what is wrong ----


def check_acquire(lines, labels):
    """In the loop that sleeps: poll, then acquire."""
    loops = (lines[first:last + 1] for first, last in loops_of(lines, labels))
    spinning = next((l for l in loops if any(line.name == "NANOSLEEP" for line in l)), None)
    if spinning is None:
        return ["no loop that sleeps"]
    loads = [i for i, line in enumerate(spinning) if line.code.startswith("LD")
             and "STRONG" in line.words() and "SYS" in line.words() and "64" in line.words()]
    if len(loads) < 2:
        return [f"acquire: {len(loads)} system-wide loads of 64 bits in the loop that waits, not 2:"
                " ptxas has dropped one"]
    behind = spinning[loads[1] + 1:loads[1] + 9]
    cached = next((i for i, line in enumerate(behind) if line.code == "CCTL.IVALL"), None)
    if cached is None:
        return ["acquire: no CCTL.IVALL behind the second load"]
    register = spinning[loads[1]].operands.split(",")[0].strip()
    if not any(re.search(rf"\b{register}\b", line.operands.partition(",")[2]) for line in behind):
        return [f"acquire: nothing uses {register}, which the second load has read"]
    return []


def check_release(lines):
    wrong, fenced = [], False
    for line in lines:
        if line.name == "MEMBAR":
            fenced = "SYS" in line.words()
        elif line.name in ("ST", "ATOM", "STG", "ATOMG") and "SYS" in line.words():
            if not fenced:
                wrong.append(f"release: {line.code} {line.operands} has no fence before it")
            fenced = False
        elif line.kind in ("global", "shared") or line.name in ("BRA", "CALL"):
            fenced = False  # a fence that something else follows orders too little
    if not any(line.code == "ST.E.64.STRONG.SYS" for line in lines):
        wrong.append("release: no post of a flag")
    return wrong


def check_follows(lines):
    wait = next((i for i, line in enumerate(lines) if line.name == "ACQBULK"), None)
    if wait is None:
        return ["follows: no wait for the kernel in front"]
    early = next((line for line in lines[:wait] if line.kind in ("global", "control", "local")
                  or line.name == "LDGSTS"), None)
    return [f"follows: {early.code} {early.operands} before the wait"] if early else []


def check_wide(name, lines):
    loads, stores = WIDE[name]
    has = sum(line.name in ("ST", "STG") and line.width() == 16 for line in lines)
    if under_way(lines) < loads or has < stores:
        return [f"wide: {under_way(lines)} loads of 16 bytes under way, {has} stores: {loads} and "
                f"{stores} meant"]
    return []


def judge(name, arch, lines, labels, loop):
    wrong = []
    if arch >= 90 and name not in PLAIN:
        wrong += check_follows(lines)
    if name == "spin_kernel":
        wrong += check_acquire(lines, labels) + check_release(lines) + planted(lines, labels)
    if name not in STACKS and any(line.kind == "local" for line in lines):
        wrong.append("local: a load or store of local memory")
    if any("CONSTANT" in line.words() for line in lines):
        wrong.append("constant: a load by the read-only path")
    if name in WIDE:
        wrong += check_wide(name, lines)
    if name in SHARES:
        share = 100 * sum(line.kind == "fma" for line in loop) // max(1, len(loop))
        if share < SHARES[name]:
            wrong.append(f"share: {share} % of the loop are multiply-adds: {SHARES[name]} meant")
    return wrong


def planted(lines, labels):
    """The checks of spin_kernel must notice what they are for: each of these instructions is taken
    out or changed in turn. Returns what went unnoticed."""
    def spoil(what, change):
        copy = [Line(*change(i, line)) for i, line in enumerate(lines)]
        return [] if check_acquire(copy, labels) + check_release(copy) else [f"planted: {what}"]

    fences = [i for i, line in enumerate(lines) if line.name == "MEMBAR" and "SYS" in line.words()]
    polls = [i for i, line in enumerate(lines) if line.code == "LD.E.64.STRONG.SYS"]
    wrong = spoil("no acquire", lambda i, line: ("NOP", "") if i == polls[-1] else
                  (line.code, line.operands))
    wrong += spoil("no invalidation", lambda i, line: ("NOP", "") if line.code == "CCTL.IVALL" else
                   (line.code, line.operands))
    for f in fences:
        wrong += spoil("no fence", lambda i, line: ("NOP", "") if i == f else
                       (line.code, line.operands))
        wrong += spoil("a fence of the GPU alone", lambda i, line: ("MEMBAR.ALL.GPU", "") if i == f
                       else (line.code, line.operands))
    return wrong


def is_read(arch, elf):
    """Whether this code is looked at."""
    return arch == 90 or any(plain(name) in NAMED for name in kernels_of(elf))


def look_at(nvdisasm, arch, elf):
    """[(row of the table, what is wrong)] for the kernels of one piece of code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(elf)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], check=True, capture_output=True,
                              text=True).stdout
    found = []
    for mangled, (lines, labels) in functions(text).items():
        name, loop = plain(mangled), main_loop(lines, labels)
        wrong = [f"{name} on sm_{arch}: {w}" for w in judge(name, arch, lines, labels, loop)]
        found.append((row_of(name, arch, lines, loop), wrong))
    return found


def main(nvdisasm, launches, objects):
    code = []
    for file in objects:
        with open(file, "rb") as f:
            code += [(arch, elf) for kind, arch, elf in code_of(f.read())
                     if kind == 2 and is_read(arch, elf)]
    code.sort(key=lambda c: -len(c[1]))  # the longest first
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(look_at, nvdisasm, *c) for c in code]
        found = [kernel for job in jobs for kernel in job.result()]
    rows, wrong = [row for row, _ in found], [w for _, ws in found for w in ws]
    form = ("{:29}{:>7}" + "{:>8}" * len(COLUMNS) + "  |" + "{:>7}" * 5).format
    print(form("kernel", "arch", *COLUMNS, "slots", "fma", "passes", "busy", "bytes"))
    for row in sorted(rows, key=lambda r: (r[1], r[0])):
        print(form(*(row + [""] * (15 - len(row)))).rstrip())
    with open(launches) as f:
        text, unknown = estimate(f.read().splitlines(), rows)
    print("\n".join(text))
    wrong += [f"{name}: of a step of LeNet, but not in these objects" for name in unknown]
    seen = {row[0] for row in rows}
    wrong += [f"{name}: not in these objects" for name in NAMED
              if name not in seen]
    print("\n".join(wrong))
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
