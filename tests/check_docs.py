#!/usr/bin/env python3
"""Runs every command that README.md and docs/ show, and compares what it prints with the page.

    tests/check_docs.py [--write] [BUILD_DIR [PAGE...]]       default: build, all pages

A page shows commands in a block that is fenced as `console`. A line that begins with `$ ` is a bash
command, and the lines below it, up to the next such line, are its output on both streams:

    ```console
    $ duet sampler --dataset-size 4 --world-size 2 --rank 1 --no-shuffle
    1
    3
    ```

All commands of a page run one after another in one folder, which has only links to the build folder
and to examples/, with the build folder on PATH. One page per core is checked at the same time. In a
block `console exact` the output must be equal. Otherwise numbers, their units and runs of spaces
may differ, because times do; words, bytes and the number of lines must be equal. A command whose
output on the page has a line `duet: ...` must fail, and every other one must end with 0. A block
`console shown` is not run, because a machine may lack what it needs. In a block `console short` the
demo takes one epoch of few images. A line `...` stands for lines that the page omits.

A duet command elsewhere, indented by four spaces (perhaps with a remark after two spaces or more)
or in backticks with a flag, is also run once and must end with 0. Training takes one step, whatever
the command says, and few images if it names none, because only its words are checked. An example,
build/examples/NAME anywhere in a page, must have a source; tests run the examples.

--write puts the real outputs into the pages. Blocks that need Fashion-MNIST are skipped with a
message if it is not installed."""
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FASHION = "/usr/share/datasets/fashion-mnist"
SECONDS = 300  # the longest command is a short training run
NUMBER = re.compile(
    r"[-+]?\d[\d.]*(e[-+]\d+)?( ?(ns|us|ms|s|%|samples/s|GB/s)\b)?|\bnothing\b")
EXAMPLE = re.compile(r"build/(examples/[\w/]*\w)")
BYTES = re.compile(r"([-+]?\d[\d.]*) ?(B|bytes|KiB|MiB|GiB)\b")


# Commands that are not run, or must not end with 0: why.
NOT_RUN = {"duet doctor": "it takes seconds, and its own tests run it"}
FAILS = {"duet train --mode ddp --devices 3 --model branches --steps 5": "as its page says"}


def shape(line):
    """The line without what may differ from run to run, and the bytes that it names."""
    counts = [" ".join(found) for found in BYTES.findall(line)]
    return " ".join(NUMBER.sub("#", BYTES.sub("#", line)).split()), counts


def blocks(lines):
    """Yields (kind, first line of the block, line of its closing fence)."""
    start = kind = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start, kind = number + 1, line[3:].strip()
        else:
            yield kind, start, number
            start = None


def commands(lines):
    """Splits a block into [command, [lines of output]]; a command ending in \\ goes on."""
    found = []
    for line in lines:
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1][0] += "\n" + line
        elif found:
            found[-1][1].append(line)
        else:
            sys.exit(f"check_docs: output before the first command: {line!r}")
    return found


def run(command, folder, build):
    env = dict(os.environ, PATH=build + ":" + os.environ["PATH"], COLUMNS="80", LC_ALL="C.UTF-8")
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    return done.returncode, done.stdout.decode(errors="replace").rstrip("\n").split("\n")


def compare(exact, want, got):
    """The first difference of two outputs in words, or None."""
    same = (lambda a, b: a == b) if exact else (lambda a, b: shape(a) == shape(b))
    if "..." in want:
        return compare_parts(same, want, got)
    for i in range(max(len(want), len(got))):
        a = want[i] if i < len(want) else "(no line)"
        b = got[i] if i < len(got) else "(no line)"
        if not same(a, b):
            return f"line {i + 1} of its output is\n        {b}\n    and the page has\n        {a}"
    return None


def compare_parts(same, want, got):
    """Like compare, but `...` in the page stands for any lines, as few as possible."""
    at, free, parts = 0, False, [[]]
    for line in want:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    for number, part in enumerate(parts):
        ends = range(at, len(got) - len(part) + 1) if free else [at]
        if number + 1 == len(parts) and part:  # the last part ends the output
            ends = [len(got) - len(part)] if len(got) - len(part) >= at else []
        for start in ends:
            if all(same(a, b) for a, b in zip(part, got[start:])) and start + len(part) <= len(got):
                break
        else:
            return f"its output has nowhere\n        {part[0]}\n    and the lines below it"
        at, free = start + len(part), True
    return None


def check_page(page, build, write):
    """Returns (commands that did as the page says, the others, blocks that were skipped), text."""
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    said = []
    good = bad = skipped = 0
    name = os.path.relpath(page, ROOT)
    out, done = [], 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(build, os.path.join(folder, "build"))
        os.symlink(os.path.join(ROOT, "examples"), os.path.join(folder, "examples"))
        for kind, start, end in blocks(lines):
            words = kind.split()
            if not runs(kind):
                continue
            out += lines[done:start]
            done = end
            # Commands that use the default data set need its files.
            if "fashion" in words and not os.path.isdir(FASHION):
                said.append(f"[SKIP] {name}:{start}: dataset-fashion-mnist is not installed")
                skipped += 1
                out += lines[start:end]
                continue
            for command, want in commands(lines[start:end]):
                if "short" in words:
                    put_pictures(folder + "/pictures")
                    short = command + " --epochs 1 --data-dir pictures"
                status, got = run(short if "short" in words else command, folder, build)
                got = [line.rstrip() for line in got] if got != [""] else []
                wrong = compare("exact" in words, want, got)
                fails = any(line.startswith("duet: ") for line in want)
                if fails != (status != 0):
                    wrong = f"its status is {status}" + (f"; {wrong}" if wrong else "")
                out += ["$ " + command] + (want if "..." in want else got)
                good, bad = good + (not wrong), bad + bool(wrong)
                if wrong:
                    said.append(f"{name}:{start}: $ {command}\n    {wrong}")
    if write:
        with open(page, "w", encoding="utf-8") as file:
            file.write("\n".join(out + lines[done:]))
    return (good, bad, skipped), said


def runs(kind):
    """Whether the commands of a fenced block are run."""
    words = kind.split()
    return words[:1] == ["console"] and "shown" not in words


def shown(pages):
    """The commands in blocks, each as one line."""
    for page in pages:
        with open(page, encoding="utf-8") as file:
            lines = file.read().split("\n")
        for kind, start, end in blocks(lines):
            for command, _ in commands(lines[start:end]) if runs(kind) else []:
                yield " ".join(command.replace("\\\n", " ").split())


def mentions(text):
    """The commands in the text outside fenced blocks."""
    prose, fenced = [], False
    for line in re.sub(r"\\\n\s*", "", text).split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith(("    duet ", "    build/duet ")):
            yield re.split(r"\s{2,}| \| ", line.strip())[0].removeprefix("build/")
        elif not fenced and not line.startswith("    "):
            prose.append(line)
    for found in re.finditer(r"`(duet [^`]*--[^`]*)`", "\n".join(prose)):
        yield " ".join(found[1].split())


def put_pictures(folder):
    """A few images of noise in the format of MNIST."""
    os.mkdir(folder)
    noise = random.Random(1)
    for name, count in (("train", 512), ("t10k", 64)):
        for kind, sizes, values in (
                ("images-idx3", (count, 28, 28), noise.randbytes(count * 784)),
                ("labels-idx1", (count,), bytes(i % 10 for i in range(count)))):
            with open(f"{folder}/{name}-{kind}-ubyte", "wb") as file:
                file.write(struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + values)


def made_short(command):
    words = command.split()
    if words[1] not in ("train", "compare", "profile", "scale"):
        return command
    short = {}
    if words[1] != "scale":
        short["--batch-size"] = "32"
    if "--dataset" not in words:
        short["--data-dir"] = "pictures"
    for flag, value in short.items():
        if flag not in words:
            words += [flag, value]
    if "--resume" not in words and command not in FAILS:
        words += ["--steps", "1"]  # if a flag is given twice, the last one counts
    return " ".join(words)


def check_mentions(pages, build):
    """As check_page; none is skipped, and none is run that check_page runs."""
    good = bad = 0
    said = []
    seen = {*NOT_RUN, *shown(pages)}
    with tempfile.TemporaryDirectory() as folder:
        put_pictures(folder + "/pictures")
        for page in pages:
            with open(page, encoding="utf-8") as file:
                text = file.read()
            for example in sorted(set(EXAMPLE.findall(text))):
                there = os.path.exists(f"{ROOT}/{example}.c")
                good, bad = good + there, bad + (not there)
                if not there:
                    print(f"{os.path.relpath(page, ROOT)}: build/{example}: no {example}.c")
            for command in mentions(text):
                if command in seen:
                    continue
                seen.add(command)
                if EXAMPLE.search(command):  # tests run the examples
                    continue
                status, got = run(made_short(command), folder, build)
                right = (status != 0) == (command in FAILS)
                good, bad = good + right, bad + (not right)
                if not right:
                    said.append(f"{os.path.relpath(page, ROOT)}: {command}\n"
                                f"    its status is {status}: {got[-1]}")
    return (good, bad, 0), said


def main():
    words = [word for word in sys.argv[1:] if word != "--write"]
    build = os.path.abspath(words[0] if words else os.path.join(ROOT, "build"))
    pages = [os.path.abspath(word) for word in words[1:]]
    if not pages:
        pages = [os.path.join(ROOT, "README.md")]
        for folder, _, files in sorted(os.walk(os.path.join(ROOT, "docs"))):
            pages += [os.path.join(folder, f) for f in sorted(files) if f.endswith(".md")]
    sums = [0, 0, 0]
    with ThreadPoolExecutor(os.cpu_count()) as side_by_side:
        mentioned = side_by_side.submit(check_mentions, pages, build)  # first: it takes longest
        checked = [side_by_side.submit(check_page, page, build, "--write" in sys.argv)
                   for page in pages]
        for result, said in (done.result() for done in [*checked, mentioned]):
            sums = [a + b for a, b in zip(sums, result)]
            print(*said, sep="\n", end="\n" if said else "")
    print(f"{sums[0]} passed, {sums[1]} failed" + (f", {sums[2]} skipped" if sums[2] else ""))
    return 1 if sums[1] or not sums[0] else 0


if __name__ == "__main__":
    sys.exit(main())
