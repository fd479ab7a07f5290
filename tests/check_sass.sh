#!/usr/bin/env bash
# Looks at the GPU's instructions in the kernels of a build: tests/check_sass.sh [BUILD_DIR]
#
# tests/check_sass.py says what must hold, and leaves its tables in BUILD_DIR/cuda_sass.txt, where
# two builds can be compared. The part for sm_90 is printed, and the estimate of a step of LeNet.
#
# It needs nvdisasm, of the toolkit or of a Python package. Where neither is there pip downloads the
# package into BUILD_DIR/toolkits. Without python3 or nvdisasm nothing is looked at, and the reason
# is said. The last line is `N passed, N failed`. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
words=$(scripts/find_cuda.sh)
nvcc=$(sed -n 's/.*nvcc=\([^ ]*\).*/\1/p' <<<"$words")

skip() {
    echo "the kernels' instructions were not looked at: $1"
    echo "0 passed, 0 failed"
    exit 0
}

found() { # prints the path of an nvdisasm that runs
    local file
    for file in "${nvcc%nvcc}nvdisasm" "$(command -v nvdisasm)" \
        "$build"/toolkits/nvdisasm/nvidia/*/bin/nvdisasm; do
        "$file" --version >/dev/null 2>&1 && echo "$file" && return
    done
    return 1
}

download() {
    local wheels said
    wheels=$(mktemp -d) || return 1
    said=$(python3 -m pip download --quiet --no-deps --dest "$wheels" nvidia-cuda-nvdisasm 2>&1) &&
        python3 -m zipfile -e "$wheels"/*.whl "$build/toolkits/nvdisasm" &&
        chmod +x "$build"/toolkits/nvdisasm/nvidia/*/bin/nvdisasm || tail -1 <<<"$said"
    rm -rf "$wheels"
}

[[ $words == *version=* ]] || skip "no CUDA here"
command -v python3 >/dev/null || skip "no python3 here"
nvdisasm=$(found) || { download && nvdisasm=$(found); } || skip "no nvdisasm here, nor from pip"

table=$build/cuda_sass.txt launches=$build/lenet_launches
cc -std=c11 -O1 -I. tests/cuda/helper_lenet_launches.c "$build/libinternal.a" -lm -lpthread \
    -o "$launches" && "$launches" >"$launches.txt" || echo "failed: the launches of a step"
python3 tests/check_sass.py "$nvdisasm" "$launches.txt" "$build"/*/cuda/*.o \
    "$build"/*/cuda/kernels/*.o >"$table"
status=$?
sed '/^a step of LeNet/,$d' "$table" | grep -E '^kernel|sm_90'
sed -n '/^a step of LeNet/,$p' "$table"
if ((status == 0)); then
    echo "1 passed, 0 failed"
else
    echo "failed: the kernels' instructions"
    echo "0 passed, 1 failed"
    exit 1
fi
