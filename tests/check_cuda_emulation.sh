#!/usr/bin/env bash
# Runs the tests that use a GPU on the emulated CUDA runtime (docs/cuda.md, "Without a GPU"):
#
#   tests/check_cuda_emulation.sh [SANITIZER [TEST...]]
#
# It finds these tests by their files, which name DEVICE_CUDA, ALL_KINDS, an EMULATED_ variable or
# CUDA_EMULATION, or start the WORKERS of tests/rpc/workers.h. The last line is `N passed, N
# failed`. Exit status 1 on any failure. Without CUDA's headers it does nothing.
set -u
cd "$(dirname "$0")/.." || exit 1
san=${1:-}
shift $(($# > 0))
if [[ -z $(scripts/find_cuda.sh headers) ]]; then
    echo "no headers of the CUDA toolkit here: the emulated runtime is not built"
    echo "0 passed, 0 failed"
    exit 0
fi
build=build/emulation${san:+-san-${san//,/-}}
words='DEVICE_CUDA|ALL_KINDS|CUDA_EMULATION|EMULATED_|WORKERS\('
names=("$@")
if ((${#names[@]} == 0)); then
    mapfile -t names < <(grep -lE "$words" tests/*/test_*.c tests/*/*/test_*.c |
        sed 's|tests/||; s|\.c$||')
fi
started=(tests/*/*/helper_*.c bench/*.c examples/*.c) # programs that tests start
started=("${started[@]/#/$build/}")
make -j"$(nproc)" EMULATION=1 SAN="$san" "$build/duet" "${started[@]%.c}" \
    "${names[@]/#/$build/tests/}" || exit 1
scripts/run_tests.sh "$build" "${names[@]/#/$build/tests/}"
