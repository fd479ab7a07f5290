#!/usr/bin/env bash
# Checks that CUDA's files compile with every toolkit that Duet supports. It checks their syntax
# against the headers of the oldest and of the newest one:
#
#   tests/check_toolkits.sh [BUILD_DIR [VERSION...]]       VERSION: 12.0, 12.4 or newest
#
# The headers are from NVIDIA's Python packages, which pip downloads into BUILD_DIR/toolkits, unless
# they are already there. gcc compiles the C half as in the build, and the C++ compiler compiles
# kernels with the keywords of tests/stand_ins/cuda_emulation: it is not nvcc, but checks every call
# of the runtime. Files that need cuBLAS or NCCL are left out. A toolkit of 11.x must be refused in
# one line.
#
# A version whose packages cannot be downloaded is skipped with the reason. The last line is
# `N passed, N failed`. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
shift $(($# > 0))
versions=("$@")
((${#versions[@]})) || versions=(12.0 newest)
cc=${CC:-gcc} cxx=${CXX:-g++}
passed=0 failed=0

# Since CUDA 13 the packages have no suffix, and the compiler's headers have their own package.
packages() { # VERSION
    case $1 in
    newest) echo nvidia-cuda-runtime nvidia-cuda-nvcc nvidia-cuda-crt ;;
    *) echo "nvidia-cuda-runtime-cu12==$1.*" "nvidia-cuda-nvcc-cu12==$1.*" ;;
    esac
}

download() { # VERSION FOLDER: its headers, below FOLDER
    local wheels
    wheels=$(mktemp -d) || return 1
    if pip download --quiet --no-deps --dest "$wheels" $(packages "$1") >"$wheels/log" 2>&1; then
        mkdir -p "$2"
        for wheel in "$wheels"/*.whl; do
            python3 -m zipfile -e "$wheel" "$2"
        done
    else
        tail -1 "$wheels/log"
    fi
    rm -rf "$wheels"
    [[ -d $2 ]]
}

check() { # FILE COMMAND...: the compiler's first lines are shown if it fails
    local file=$1 said
    shift
    if said=$("$@" "$file" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $file"
        head -5 <<<"$said" | sed 's/^/    /'
    fi
}

flags=(-D_GNU_SOURCE -DHAVE_CUDA -Wall -Wextra -Werror -pthread -fsyntax-only -I. -Icore -Iapp)
kernel_flags=(-x c++ -std=c++17 -fno-exceptions -fno-rtti -Wno-missing-field-initializers
    -include tests/stand_ins/cuda_emulation/launch.h)
for version in "${versions[@]}"; do
    folder=$build/toolkits/$version
    if [[ ! -d $folder ]] && ! reason=$(download "$version" "$folder"); then
        echo "CUDA $version: skipped: its packages cannot be had: ${reason:-pip failed}"
        continue
    fi
    include=()
    while read -r dir; do include+=(-isystem "$dir"); done < <(find "$folder" -name include -type d)
    header=$(find "$folder" -name cuda_runtime_api.h | head -1)
    echo "CUDA $version: CUDART_VERSION $(sed -n 's/^#define CUDART_VERSION *//p' "$header")"
    for file in */cuda/*.c */*/cuda/*.c; do
        case $file in
        tests/* | */absent.c | */library_blas.c | */nccl.c | */nccl_library.c) ;;
        *) check "$file" "$cc" -std=c11 "${flags[@]}" "${include[@]}" ;;
        esac
    done
    for file in */cuda/*.cu core/*/cuda/kernels/*.cu; do
        check "$file" "$cxx" "${kernel_flags[@]}" "${flags[@]}" "${include[@]}"
    done
done

# An nvcc that says it is 11.8.
old=$(mktemp -d) || exit 1
mkdir "$old/bin"
printf '#!/bin/sh\necho "Cuda compilation tools, release 11.8, V11.8.89"\n' >"$old/bin/nvcc"
chmod +x "$old/bin/nvcc"
words=$(CUDA_HOME=$old scripts/find_cuda.sh)
line=$(scripts/find_cuda.sh report absent $words | head -1)
if [[ $words != *version=* && $line == *"nvcc 11.8"*"too old: CUDA 12.0 or newer"* ]]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "failed: CUDA 11.8 is refused in one line: $words: $line"
fi
rm -rf "$old"
echo "$passed passed, $failed failed"
((failed == 0))
