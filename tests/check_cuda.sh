#!/usr/bin/env bash
# What a build with CUDA promises, as far as it shows without a GPU: tests/check_cuda.sh [BUILD_DIR]
#
#   1. the program starts where there is no driver: it needs no libcuda.so, and `duet devices` runs
#      with GPUs hidden
#   2. the kernels are there for the GPUs that this nvcc knows and, as PTX, for others; each can be
#      launched, and none spills registers without a reason (tests/check_cuda_kernels.py; its table
#      is left in BUILD_DIR/cuda_kernels.txt)
#   3. what ptxas made of them: tests/check_sass.sh, which prints its table
#   4. libduet.a shows duet_* alone, kernels and their registration included
#   5. `make CUDA=` builds a program that says it has no CUDA, with exit status 2
#
# Without nvcc only 5 is done. The last line is `N passed, N failed`. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
passed=0 failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && passed=$((passed + 1)) && return
    failed=$((failed + 1))
    echo "failed: $name"
    return 1
}
# First looks for what has to be there, since a file that is missing lacks libcuda too.
no_driver_needed() {
    local needed
    needed=$(readelf -d "$build/duet") && grep -q 'NEEDED.*libc\.so' <<<"$needed" &&
        ! grep -q 'NEEDED.*libcuda\.so' <<<"$needed"
}
starts() { CUDA_VISIBLE_DEVICES= "$build/duet" devices | grep -q '^cuda  *none: device cuda: '; }
kernels() {
    python3 tests/check_cuda_kernels.py "$code" "$build"/*/cuda/*.o "$build"/*/cuda/kernels/*.o \
        > "$build/cuda_kernels.txt"
}
own_names() {
    local names
    names=$(nm --defined-only "$build/libduet.o" | awk '$2 ~ /^[A-TV-Z]$/ { print $3 }')
    [[ -n $names ]] && ! grep -vq '^duet_' <<<"$names"
}
refuses() {
    local status
    CUDA_VISIBLE_DEVICES= build/without-cuda/duet train --device cuda --dataset synthetic \
        --steps 1 2>&1 | grep -q 'not built into this program'
    status=("${PIPESTATUS[@]}")
    [[ ${status[0]} == 2 && ${status[1]} == 0 ]]
}

words=$(scripts/find_cuda.sh)
if [[ $words == *version=* ]]; then
    code=$(sed -n 's/.*code=\([^ ]*\).*/\1/p' <<<"$words")
    check "no driver needed to start" no_driver_needed
    check "starts with no GPU" starts
    if command -v python3 >/dev/null; then
        check "kernels: their targets, registers, shared memory and stacks" kernels ||
            grep ': ' "$build/cuda_kernels.txt"
    else
        echo "what the kernels take of a multiprocessor was not looked at: no python3 here"
    fi
    tests/check_sass.sh "$build"
    check "the kernels' instructions" [ $? = 0 ]
    check "libduet.a shows duet_* alone" own_names
fi
# What knows nothing of CUDA is compiled the same in both builds.
make -j"$(nproc)" CUDA= H="$build" B=build/without-cuda build/without-cuda/duet >/dev/null ||
    echo "make CUDA= failed"
check "a build without CUDA refuses it" refuses
echo "$passed passed, $failed failed"
((failed == 0))
