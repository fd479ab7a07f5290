"""How long a step of LeNet may take on a GPU, by counting: its launches, which
tests/cuda/helper_lenet_launches.c lists, beside the instructions that check_sass.py has found in
their kernels. Nothing of it is measured.

For each launch the multiprocessor with the most blocks is looked at:

    issue   microseconds in which its four schedulers issue the instructions of its warps. A warp
            has each instruction outside of its main loop once, which is more than it runs, and
            those of the loop once a turn.
    shared  microseconds in which its shared memory serves them
    bytes   microseconds in which all operands go through the GPU's memory once

The estimate of a launch is the largest of the three. It leaves out that warps wait for memory and
for each other, which makes a launch longer; that operands lie in the second cache, which makes it
shorter; and the time between launches."""

MULTIPROCESSORS, SCHEDULERS = 132, 4  # of an H100
CYCLES, BYTES = 1900, 3.35e6  # a microsecond: of its clock, and of its memory


def launch_of(line):
    """{what, kernel, blocks, threads, turns, part, bytes} of a line of the list."""
    what, words = line[:17].strip(), line[17:].split()
    numbers = [float(word) for word in words[1:]]
    return dict(zip(("what", "kernel", "blocks", "threads", "turns", "part", "bytes"),
                    [what, words[0]] + numbers))


def times_of(launch, row):
    """(issue, shared, bytes) of a launch; row: its kernel's in the table of check_sass.py."""
    everything = row[2]
    slots, passes = (row[10], row[12]) if len(row) > 12 else (0, 0)  # (0, 0): it has no loop
    turns = launch["turns"] * launch["part"]
    blocks = -(-launch["blocks"] // MULTIPROCESSORS)
    warps = blocks * -(-launch["threads"] // 32)
    issue = max(1, warps / SCHEDULERS) * (everything - slots + turns * slots) / CYCLES
    return issue, warps * turns * passes / CYCLES, launch["bytes"] / BYTES


def estimate(lines, rows):
    """The table for sm_90 as lines of text, and the kernels that are not among `rows`, which are
    those of check_sass.py."""
    kernels = {row[0]: row for row in rows if row[1] == "sm_90"}
    form = "{:17}{:24}{:>7}{:>8}{:>8.1f}{:>8.1f}{:>8.1f}{:>8.1f}".format
    text = ["a step of LeNet at batch 256: microseconds, estimated from the counts above",
            ("{:17}{:24}{:>7}" + "{:>8}" * 5).format("launch", "kernel", "blocks", "threads",
                                                   "issue", "shared", "bytes", "most")]
    total, unknown = [0, 0, 0, 0], []
    for launch in map(launch_of, lines):
        if launch["kernel"] not in kernels:
            unknown.append(launch["kernel"])
            continue
        times = times_of(launch, kernels[launch["kernel"]])
        times += (max(times),)
        total = [a + b for a, b in zip(total, times)]
        text.append(form(launch["what"], launch["kernel"], int(launch["blocks"]),
                         int(launch["threads"]), *times))
    text.append(form(f"{len(lines)} launches", "", "", "", *total))
    return text, unknown
