#!/usr/bin/env bash
# Checks Duet on an Arm processor (Grace, Graviton), as far as x86-64 can show it:
#
#   tests/check_aarch64.sh [BUILD_DIR [TEST...]]         TEST: ddp/test_ddp and the like
#
#   1. the C half of CUDA compiles for aarch64, if CUDA's headers are found
#   2. the command, some tests and the named tests are compiled for aarch64 with Debian's cross
#      compiler, and run under qemu-user
#   3. single, DP in all its ways and DDP end with the bits of this machine's own build. This
#      replaces dp/test_ways, which takes minutes under qemu
#   4. `duet estimate --gpu` and `duet train --gpu` print the same modelled times as here
#
# qemu shows instructions, layouts and the arithmetic of the 128-bit kernels. It does not show Arm's
# weaker memory order, because it runs with this machine's. Ranks are started with exec, so qemu
# must be registered with the kernel. That is done inside a user namespace, which leaves the machine
# unchanged. If that is refused, or a tool is missing, the part is skipped with the reason. The last
# line is `N passed, N failed`. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}
shift $(($# > 0))
arm=$build/aarch64 cc=aarch64-linux-gnu-gcc qemu=$(command -v qemu-aarch64-static)
tests=(core/device/test_kernels{,_fast,_ops,_norm,_loss,_pool} core/device/test_{stream,ipc}
    core/base/test_{fold,random,nearest,number} core/nn/test_{ops,optimizer}
    core/comm/test_comm core/data/test_random syncbn/test_syncbn "$@")
passed=0 failed=0

finish() { # [REASON for leaving something out]
    [[ ${1:-} ]] && echo "not looked at: $1"
    echo "$passed passed, $failed failed"
    exit $((failed != 0))
}
check() { # NAME COMMAND...: its output is shown if it fails
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $name"
        tail -5 <<<"$said"
        return 1
    fi
}

[[ $(uname -m) == x86_64 ]] || finish "aarch64: this machine is no x86-64"
command -v $cc >/dev/null || finish "aarch64: no $cc here (gcc-aarch64-linux-gnu)"

# ---- 1: CUDA's C half ----

includes=$(scripts/find_cuda.sh headers | tr ' ' '\n' | sed -n 's/^include=/-isystem /p' | sort -u)
cuda_half() {
    local files
    files=$(ls {core/device,scatter_gather,allreduce,app/doctor}/cuda/*.c |
        grep -v 'absent\|library\|nccl')
    $cc -std=c11 -D_GNU_SOURCE -DHAVE_CUDA -Wall -Wextra -Werror -pthread -fsyntax-only \
        -I. -Icore -Iapp $includes $files
}
if [[ $includes ]]; then
    check "CUDA's C half compiles" cuda_half
else
    echo "not looked at: CUDA's C half: no headers of CUDA"
fi

# ---- 2: tests under qemu ----

programs=("$arm/duet" "$arm/tests/core/comm/helper_comm" "${tests[@]/#/$arm/tests/}")
check "compiles" make -j"$(nproc)" CC="${CCACHE:-} $cc" AR=aarch64-linux-gnu-ar CUDA= HAVE_ZLIB= \
    HAVE_CRITERION= LDFLAGS=-static B="$arm" "${programs[@]}" || finish
[[ $qemu ]] || finish "what runs on aarch64: no qemu-aarch64-static here (qemu-user-static)"

# Runs a command in a namespace whose kernel starts aarch64 programs with qemu. It recognises their
# files by the first string; the second string masks the bits that it compares.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
in_namespace() {
    unshare --user --map-root-user --mount bash -c '
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
            printf "%s" "$0" >/proc/sys/fs/binfmt_misc/register && exec "$@"' \
        ":aarch64:M::$magic:$mask:$qemu:F" "$@"
}
in_namespace true 2>/dev/null ||
    finish "what runs on aarch64: this kernel lets no user namespace say how programs start"

export DUET_TEST_SHORT=1
log=$(mktemp -d) || exit 1
trap 'rm -rf "$log"' EXIT
export -f in_namespace
export magic mask qemu arm log
printf '%s\n' "${tests[@]}" | xargs -P "$(nproc)" -I T bash -c \
    'in_namespace "$arm/tests/T" >"$log/$(tr / _ <<<T)" 2>&1; echo "T $?" >>"$log/status"'
while read -r name status; do
    check "$name" test "$status" = 0 || tail -5 "$log/${name/\//_}"
done <"$log/status"
check "every test ran" test "$(wc -l <"$log/status")" = ${#tests[@]}

# ---- 3: the same bits ----

train() { # PROGRAM FOLDER: the losses of the steps and the weights, by mode
    local mode devices=1 model=lenet
    mkdir "$2"
    for mode in single dp ddp "dp --dp-reduce sharded" "dp --loss-in-forward" \
        "dp --output-device 1"; do
        [[ $mode == dp\ * ]] && model="mlp --mlp-hidden 16" # the ways of dp/test_ways
        "$1" train --device cpu --mode $mode --devices $devices --virtual-devices 2 --quiet \
            --model $model --dataset random --samples 4 --batch-size 4 --steps 2 --momentum 0.9 \
            --log-loss "$2/${mode// /_}.csv" --save "$2/${mode// /_}.weights" || return
        devices=2
    done
}
same_bits() {
    export -f train
    train "$build/duet" "$log/here" &&
        in_namespace bash -c 'train "$0/duet" "$1"' "$arm" "$log/arm" &&
        diff -r "$log/here" "$log/arm" && [[ $(ls "$log/arm" | wc -l) == 12 ]]
}
check "single, DP and DDP end with this machine's bits" same_bits

# ---- 4: the same modelled times ----

times() { # COMMAND...
    "$@" estimate --gpu v100 --machine dgx1 --model resnet34 --dataset random \
        --batch-per-device 16 --devices 1,4 --modes single,dp,ddp,fsdp &&
        "$@" train --gpu v100 --machine dgx1 --mode dp --devices 2 --model lenet --dataset random \
            --samples 96 --batch-size 32 --steps 3 --quiet --json /dev/stdout |
        grep -o '"training_seconds": [0-9.]*'
}
same_times() {
    times "$build/duet" >"$log/times" && times in_namespace "$arm/duet" | diff "$log/times" - &&
        grep -q "4 FSDP" "$log/times"
}
check "modelled times are this machine's" same_times
finish
