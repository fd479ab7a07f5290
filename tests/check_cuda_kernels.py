#!/usr/bin/env python3
"""What each kernel takes of a multiprocessor, read from the objects that nvcc made. Needs no GPU
and no tool of CUDA's.

    tests/check_cuda_kernels.py CODE OBJECT...

prints a table. CODE names the GPUs that the build has code for: 80,90 or more of them, as
scripts/find_cuda.sh says. Exit status 1 if a kernel could not be launched, spills, or is not there
for all of them and, as PTX, for other GPUs.

An object of nvcc holds a fat binary: a header, then entries {kind 1 PTX or 2 ELF, ..., size, ...,
architecture at byte 28}. In an ELF file of code each kernel has a section .nv.info.KERNEL and a
line in .nv.info: lists of {format, attribute, value}. Registers, threads, the stack and the
parameter are such attributes; shared memory is a section's size.

A block cannot be launched with more registers than a multiprocessor has, more static shared memory
than 48 KiB, or a parameter above 4 KiB. Each kernel names its threads by __launch_bounds__, the
very number of its launch, so that the compiler keeps within the registers. A stack is local
memory: spilled registers, or an array with an index that is not known when compiled. Both are
slow, so each kernel that has a stack stands in STACKS, with its most bytes and the reason."""
import re
import struct
import sys

REGISTERS, REGISTER_LIMIT, SHARED_LIMIT, PARAMETER_LIMIT = 65536, 255, 48 * 1024, 4096
# Of a multiprocessor: bytes of shared memory, warps, blocks.
ROOM = {80: (164 * 1024, 64, 32), 90: (228 * 1024, 64, 32), 100: (228 * 1024, 64, 32),
        120: (100 * 1024, 48, 24)}
RESERVED = 1024  # of shared memory, for each block; sm_90's sections count it already

STACKS = {
    "sum_kernel": (176, "the tree over more than 8 sources, and vectors cut short: rarely run"),
    "spin_kernel": (208, "the same tree; 8 to 16 bytes for two blocks a multiprocessor"),
    "batch_norm_factors": (8, "on sm_80 alone; its threads have one channel each"),
    "cross_entropy_forward": (8, "on sm_120 alone; beside sums over all classes"),
    "adaptive_avg_pool_backward": (24, "ends of windows, for full occupancy; a plane once a step"),
}

# Blocks that a multiprocessor must hold at once.
RESIDENT = {
    "sum_kernel": 4,  # reads under way, device/cuda/kernels/sum.cu
    "spin_kernel": 2,  # one grid for 8 ranks, allreduce/cuda/grid.c
    "product_planes<0,3>": 3, "product_planes<0,5>": 3,  # bounds of device/cuda/kernels/product.cu
    "product_planes<1,3>": 3, "product_planes<1,5>": 3,
    **{f"product<{kind},0>": 4 for kind in (0, 1, 2, 4, 5, 6)}, "product<3,0>": 3,
    **{f"product<{kind},4>": 3 for kind in range(7)},
}

FORMAT_LIST, INT32 = 4, "<I"
ATTRIBUTE = {0x2F: "registers", 0x12: "stack", 0x05: "threads", 0x19: "parameter"}


def code_of(data):
    """Yields (kind, architecture, bytes) of each entry of the fat binary; a host's has none."""
    at = data.find(struct.pack(INT32, 0xBA55ED50))
    if at < 0:
        return
    header, size = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + header, at + header + size
    while entry < end:
        kind, _, head, body, arch = struct.unpack_from("<HHIQ12xI", data, entry)
        yield kind, arch, data[entry + head:entry + head + body]
        entry += head + body


def text(data, at):
    return data[at:data.index(b"\0", at)].decode()


def sections_of(elf):
    """name: (bytes of it, its size)."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry, count, names = struct.unpack_from("<HHH", elf, 58)
    raw = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
    return {text(elf, raw[names][4] + s[0]): (elf[s[4]:s[4] + s[5]], s[5]) for s in raw}


def attributes_of(info):
    at = 0
    while at < len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == FORMAT_LIST:
            yield ATTRIBUTE.get(attribute), info[at:at + value]
            at += value
        else:
            yield ATTRIBUTE.get(attribute), struct.pack(INT32, value)


def kernels_of(elf):
    sections = sections_of(elf)
    symbols, names = sections[".symtab"][0], sections[".strtab"][0]
    starts = range(0, len(symbols), 24)
    symbol = [text(names, struct.unpack_from(INT32, symbols, i)[0]) for i in starts]
    kernels = {name[len(".nv.info."):]: {} for name in sections if name.startswith(".nv.info.")}
    for what, value in attributes_of(sections[".nv.info"][0]):  # of all kernels: (symbol, value)
        if what in ("registers", "stack"):
            index, number = struct.unpack_from("<II", value)
            if symbol[index] in kernels:
                kernels[symbol[index]][what] = number
    for name, k in kernels.items():
        k["shared"] = sections.get(".nv.shared." + name, (b"", 0))[1]
        for what, value in attributes_of(sections[".nv.info." + name][0]):
            if what == "threads":
                x, y, z = struct.unpack("<III", value)
                k[what] = x * y * z
            elif what == "parameter":
                k[what] = struct.unpack(INT32, value)[0]
    return kernels


def plain(name):
    """_Z7productILi3ELi0EEv7product: product<3,0>."""
    length = re.match(r"_Z(\d+)", name)
    if not length:
        return name
    start = length.end()
    numbers = re.match(r"I((?:Li\d+E)+)E", name[start + int(length[1]):])
    return name[start:start + int(length[1])] + (
        "<" + ",".join(re.findall(r"\d+", numbers[1])) + ">" if numbers else "")


def round_up(x, to):
    return -(-x // to) * to


def judge(name, arch, k):
    """Blocks that a multiprocessor holds at once, and what is wrong."""
    threads = k.get("threads", 1024)
    warps = -(-threads // 32)
    registers = round_up(k["registers"], 8) * 32 * warps
    shared = k["shared"] + (0 if arch >= 90 and k["shared"] else RESERVED)
    room, most_warps, most_blocks = ROOM[arch]
    blocks = min(REGISTERS // registers, room // shared, most_warps // warps, most_blocks)
    wrong = []
    if "threads" not in k:
        wrong.append("no __launch_bounds__")
    if blocks < RESIDENT.get(name, 1):
        wrong.append(f"{blocks} blocks of it on a multiprocessor")
    if registers > REGISTERS or k["registers"] > REGISTER_LIMIT:
        wrong.append(f"{k['registers']} registers in {threads} threads")
    if k["shared"] > SHARED_LIMIT + (RESERVED if arch >= 90 else 0):
        wrong.append(f"{k['shared']} bytes of shared memory")
    if k["parameter"] > PARAMETER_LIMIT:
        wrong.append(f"a parameter of {k['parameter']} bytes")
    most = STACKS.get(name, (0, ""))[0]
    if k["stack"] > most:
        wrong.append(f"a stack of {k['stack']} bytes, {most} in STACKS")
    return blocks, wrong


def main(code, objects):
    failed, seen = 0, {}
    targets = {(2, int(c)) for c in code.split(",")} | {(1, 90)}
    row = "{:29}{:>6}{:>9}{:>11}{:>8}{:>7}{:>11}{:>11}".format
    columns = "kernel arch threads registers shared stack parameter blocks/SM"
    print(row(*columns.split()))
    for file in objects:
        with open(file, "rb") as f:
            data = f.read()
        entries = list(code_of(data))
        if entries and {(kind, arch) for kind, arch, _ in entries} != targets:
            failed += 1
            print(f"{file}: code for {sorted((kind, arch) for kind, arch, _ in entries)}")
        for kind, arch, elf in entries:
            if kind != 2:
                continue
            for mangled, k in sorted(kernels_of(elf).items()):
                name = plain(mangled)
                blocks, wrong = judge(name, arch, k)
                seen[name] = max(seen.get(name, 0), k["stack"])
                print(row(name, f"sm_{arch}", k.get("threads", "-"), k["registers"], k["shared"],
                          k["stack"], k["parameter"], blocks))
                for line in wrong:
                    failed += 1
                    print(f"{file}: {name} on sm_{arch}: {line}")
    for name in STACKS:
        if seen.get(name) == 0:  # an excuse that nobody needs any more
            failed += 1
            print(f"{name}: no stack any more: take it out of STACKS")
    if not seen:
        print("no kernels in these objects")
    return 1 if failed or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
