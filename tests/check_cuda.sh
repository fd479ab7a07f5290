#!/usr/bin/env bash
# Checks the promises of a build with CUDA that show without a GPU: tests/check_cuda.sh [BUILD_DIR]
#
#   1. the program starts without a driver: it needs no libcuda.so, and `duet devices` runs with
#      GPUs hidden
#   2. libduet.a exports only duet_*, including kernels and their registration
#   3. `make CUDA=` builds a program that says it has no CUDA, with exit status 2
#
# Files without CUDA are compiled the same in all builds, so both builds take them from BUILD_DIR.
# Without nvcc only 3 is checked. The last line is `N passed, N failed`. Exit status 1 on any
# failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
with=$build/with-cuda without=$build/without-cuda
passed=0 failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && passed=$((passed + 1)) && return
    failed=$((failed + 1))
    echo "failed: $name"
    return 1
}
# Looks for libc first: an unreadable file would lack libcuda, too.
no_driver_needed() {
    local needed
    needed=$(readelf -d "$with/duet") && grep -q 'NEEDED.*libc\.so' <<<"$needed" &&
        ! grep -q 'NEEDED.*libcuda\.so' <<<"$needed"
}
starts() { CUDA_VISIBLE_DEVICES= "$with/duet" devices | grep -q '^cuda  *none: device cuda: '; }
own_names() {
    local names
    names=$(nm --defined-only "$with/libduet.o" | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }')
    [[ -n $names ]] && ! grep -vq '^duet_' <<<"$names"
}
refuses() {
    local status
    CUDA_VISIBLE_DEVICES= "$without/duet" train --device cuda --dataset synthetic \
        --steps 1 2>&1 | grep -q 'not built into this program'
    status=("${PIPESTATUS[@]}")
    [[ ${status[0]} == 2 && ${status[1]} == 0 ]]
}

if [[ $(scripts/find_cuda.sh) == *version=* ]]; then
    make -j"$(nproc)" CUDA=1 H="$build" B="$with" "$with/duet" "$with/libduet.a" >/dev/null ||
        echo "make CUDA=1 failed"
    check "no driver needed to start" no_driver_needed
    check "starts with no GPU" starts
    check "libduet.a shows duet_* alone" own_names
fi
make -j"$(nproc)" CUDA= H="$build" B="$without" "$without/duet" >/dev/null ||
    echo "make CUDA= failed"
check "a build without CUDA refuses it" refuses
echo "$passed passed, $failed failed"
((failed == 0))
