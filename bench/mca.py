"""How well the inner loops of LeNet's convolutions would keep the multipliers of a processor busy
that is not at hand: by llvm-mca's model of it, not by a run.

    python3 bench/mca.py [BUILD [LLVM-MCA]]        BUILD is build

For each kernel that takes most of LeNet's step it cuts the inner loop out of the object file, as
objdump shows it, and asks llvm-mca how many cycles a pass through it takes. The share is of the
most multiply-adds a cycle that the same model allows. The model takes every operand to lie in the
first-level cache and every jump to be foreseen: the share is what issue, ports and latencies allow,
and memory and the ends of rows come on top. math_bench measures whole kernels on the processor at
hand.
"""
import heapq
import re
import subprocess
import sys

FUSED = re.compile(r"vf(n?m)(add|sub)\d+ps")
# kernel of LeNet's step -> the function with its inner loop, by instruction set
LOOPS = {
    "avx512": [("conv1 forward", "forward_tile_7"), ("conv2 forward", "forward_tile_5"),
               ("conv2 backward data", "data_tile_5_9"),
               ("conv2 backward weight", "weight_tile_5_5"),
               ("fc1 forward", "product_tile_wide")],
    "avx2": [("conv1 forward", "forward_tile_6"), ("conv2 forward", "forward_tile_5"),
             ("conv2 backward data", "data_tile_5_9"),
             ("conv2 backward weight", "weight_tile_3_4"),
             ("fc1 forward", "product_tile_wide")],
}
PROCESSORS = {"avx512": ["skylake-avx512", "icelake-server", "sapphirerapids", "znver4"],
              "avx2": ["skylake", "icelake-server", "znver3", "znver4"]}
PASSES = 200


def instructions(path, function):
    """[(address, text)] of a function."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}",
                              path], check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^ *([0-9a-f]+):\t(.+)$", listing, re.M)
    return [(int(address, 16), re.sub(r"\s*(<.*>|#.*)$", "", text).strip())
            for address, text in lines]


def blocks_of(code):
    """{address: (lines, addresses of the blocks that may follow)}, cut at jumps and targets."""
    jumps = {at: m for at, text in code if (m := re.match(r"(j\w+) +([0-9a-f]+)$", text))}
    starts = {int(m[2], 16) for m in jumps.values()}
    blocks, start = {}, code[0][0]
    for (at, text), after in zip(code, [at for at, _ in code[1:]] + [None]):
        blocks.setdefault(start, ([], []))[0].append("nop" if at in jumps else text)
        if at in jumps or text.startswith("ret") or after in starts:
            if at in jumps:
                blocks[start][1].append(int(jumps[at][2], 16))
            if after and not text.startswith("ret") and (at not in jumps or jumps[at][1] != "jmp"):
                blocks[start][1].append(after)
            start = after
    return blocks


def inner_loop(code):
    """The lines of the shortest way around through the block with the most multiply-adds: of those
    with equally many, the shortest block, where strides are constants."""
    blocks = blocks_of(code)
    first = max(blocks, key=lambda at: (count_fused(blocks[at][0]), -len(blocks[at][0])))
    ways, seen = [(0, first, [])], set()
    while ways:
        length, at, lines = heapq.heappop(ways)
        if at == first and lines:
            return lines
        if at in seen and at != first or at not in blocks:
            continue
        seen.add(at)
        lines = lines + blocks[at][0]
        for after in blocks[at][1]:
            heapq.heappush(ways, (len(lines), after, lines))
    return blocks[first][0]


def count_fused(lines):
    return sum(bool(FUSED.match(line)) for line in lines)


def cycles(mca, processor, lines):
    """Cycles of one pass through the lines; None if llvm-mca does not know the processor."""
    run = subprocess.run([mca, "-march=x86-64", f"-mcpu={processor}", f"-iterations={PASSES}"],
                         input="\n".join(lines), capture_output=True, text=True)
    known = run.returncode == 0 and "not a recognized processor" not in run.stderr
    return int(re.search(r"Total Cycles:\s+(\d+)", run.stdout)[1]) / PASSES if known else None


def peak(mca, processor, isa):
    """Multiply-adds a cycle, by the same model, where nothing stands in their way."""
    register = "zmm" if isa == "avx512" else "ymm"
    lines = [f"vfmadd231ps %{register}14,%{register}15,%{register}{i}" for i in range(12)]
    taken = cycles(mca, processor, lines)
    return len(lines) / taken if taken else None


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    mca = sys.argv[2] if len(sys.argv) > 2 else "llvm-mca"
    for isa, loops in LOOPS.items():
        peaks = {processor: peak(mca, processor, isa) for processor in PROCESSORS[isa]}
        known = [processor for processor in peaks if peaks[processor]]
        print(f"{isa + ': share of peak':24}" + "".join(f"{name:>16}" for name in known))
        for kernel, function in loops:
            lines = inner_loop(instructions(f"{build}/device/host/kernels/n16_{isa}.o", function))
            fused, shares = count_fused(lines), ""
            for processor in known:
                share = fused / cycles(mca, processor, lines) / peaks[processor]
                shares += f"{100 * share:15.0f}%"
            print(f"{kernel:24}{shares}   {fused} multiply-adds of {len(lines)} instructions")


main()
