#!/usr/bin/env bash
# What a build with CUDA promises, as far as it shows without a GPU: tests/check_cuda.sh [BUILD_DIR]
#
#   1. the program starts where there is no driver: it needs no libcuda.so, and `duet devices` runs with GPUs hidden
#   2. the kernels are there for sm_80 and sm_90, and as PTX for what comes later
#   3. libduet.a shows duet_* alone, kernels and their registration included
#   4. `make CUDA=` builds a program that says it has no CUDA, with status 2
#
# Where there is no nvcc only 4 is done. The last line is `N passed, N failed`. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
passed=0 failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $name"; fi
}
no_driver_needed() { ! readelf -d "$build/duet" | grep -q 'NEEDED.*libcuda\.so'; }
starts() { CUDA_VISIBLE_DEVICES= "$build/duet" devices | grep -q '^cuda  *none: device cuda: '; }
# Each object of nvcc holds a fat binary: a header, then entries {kind 1 PTX or 2 ELF, ..., size, ..., architecture at byte 28}.
all_targets() {
    python3 - "$build"/device/cuda_*.o <<'END'
import struct, sys
MAGIC, seen = struct.pack("<I", 0xBA55ED50), 0
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    at = data.find(MAGIC)
    if at < 0: continue # host code
    seen, found = seen + 1, set()
    header, size = struct.unpack_from("<HQ", data, at + 6)
    entry, end = at + header, at + header + size
    while entry < end:
        kind, _, head, body, arch = struct.unpack_from("<HHIQ12xI", data, entry)
        found.add((kind, arch))
        entry += head + body
    if found != {(2, 80), (2, 90), (1, 90)}: sys.exit(f"{name}: {found}")
sys.exit(0 if seen else "no kernels at all")
END
}
own_names() { ! nm --defined-only "$build/libduet.o" | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }' | grep -vq '^duet_'; }
refuses() {
    local status
    CUDA_VISIBLE_DEVICES= build/without-cuda/duet train --device cuda --dataset synthetic --steps 1 2>&1 | grep -q 'not built into this program'
    status=("${PIPESTATUS[@]}")
    [[ ${status[0]} == 2 && ${status[1]} == 0 ]]
}

if scripts/find_cuda.sh | grep -q version=; then
    check "no driver needed to start" no_driver_needed
    check "starts with no GPU" starts
    check "code for sm_80 and sm_90, PTX for compute_90" all_targets
    check "libduet.a shows duet_* alone" own_names
fi
make CUDA= B=build/without-cuda build/without-cuda/duet >/dev/null || echo "make CUDA= failed"
check "a build without CUDA refuses it" refuses
echo "$passed passed, $failed failed"
((failed == 0))
