#!/usr/bin/env bash
# Checks everything that needs a GPU, in at most 15 minutes, the most important parts first:
#
#     make gpu-check [PARTS="build doctor"] [OUT=DIR]
#
#     build      the program, the benchmarks and the tests that use a GPU
#     doctor     duet doctor: this machine is fit, and every operation is correct
#     demo       single, DP and DDP on 2 and 4 devices end with the same bits
#     step       bench/step_perf: losses, the same bits with and without graphs, times
#     allreduce  bench/allreduce_perf: all sums are correct; times
#     tests      the tests that use a GPU
#     sanitizer  memcheck of LeNet in all modes, racecheck of a step, if compute-sanitizer exists
#
# It needs a GPU with its driver, the CUDA toolkit, a C compiler and make, but no network, no data
# set and no test package. Each part has a time limit. A part that fails or runs too long is
# reported, and the others continue. The output of a part is also in OUT/PART.txt (default:
# gpu_check in the build folder). EMULATION=1 tests this script on the emulated runtime.
#
# The last line is `N passed, N failed`. The exit status is 0 if all passed, 1 if something failed,
# 2 for wrong usage or no GPU.
set -u
cd "$(dirname "$0")/.." || exit 2
B=${B:-build} emulated=${EMULATION:-}
out=${OUT:-$B/gpu_check}
duet=$B/duet
declare -A limit=([build]=180 [doctor]=120 [demo]=80 [step]=120 [allreduce]=60 [tests]=240
    [sanitizer]=100)
known="build doctor demo step allreduce tests sanitizer"
parts=${*:-$known}

stop() {
    echo "gpu-check: $*" >&2
    exit 2
}

for part in $parts; do
    [[ " $known " == *" $part "* ]] || stop "unknown part: $part: there are $known"
done
if [[ -z $emulated ]]; then
    timeout 20 nvidia-smi -L 2>/dev/null | grep -q '^GPU ' ||
        stop "no GPU here: no nvidia-smi that lists one: nothing was checked"
fi
mkdir -p "$out" || stop "$out: cannot be made: give OUT=DIR"

# ---- the parts ----

# Without Criterion, whose tests compute-sanitizer cannot run.
build() {
    local how=CUDA=1
    [[ -n $emulated ]] && how=EMULATION=1
    make -j"$(nproc)" B="$B" $how HAVE_CRITERION= all gpu-check-programs
}

# Status 3: something is wrong. Emulated runs leave out CUDA's libraries.
doctor() {
    [[ -n $emulated ]] && export DUET_CUBLAS=/emulated
    "$duet" doctor --device cuda ${emulated:+--quick}
}

# A data set as large as Fashion-MNIST.
pictures() {
    [[ -e $out/pictures ]] || "$B/bench/make_data" "$out/pictures" ${emulated:+96 32}
}

demo() {
    local devices words=(--data-dir "$out/pictures")
    [[ -n $emulated ]] && words+=(--epochs 1 --steps 2 --batch-size 8 --model mlp)
    pictures || return
    for devices in 2 4; do
        "$duet" demo --device cuda --devices $devices "${words[@]}" || return
    done
}

step() {
    local words=(--batches 256 --devices 2 --epochs 5)
    [[ -n $emulated ]] && words=(--batches 8 --devices 2 --epochs 2 --models mlp)
    pictures || return
    "$B/bench/step_perf" --device cuda --data-dir "$out/pictures" "${words[@]}"
}

allreduce() {
    "$B/bench/allreduce_perf" -d cuda ${emulated:+-e 64K -n 2 -w 1}
}

# One program at a time: ranks that share a GPU take turns, while their deadlines keep running.
tests() {
    local names=(${TESTS-})
    DUET_TEST_SHORT=1 TEST_JOBS=1 TEST_SECONDS=$((seconds - 10)) \
        scripts/run_tests.sh "$B" "${names[@]/#/$B/tests/}"
}

# The program itself checks every CUDA call and expects some of the errors.
sanitizer() {
    local mode words="--batch-size 64 --steps 3 --quiet --timeout 60 --dataset synthetic"
    local tool="compute-sanitizer --target-processes all --error-exitcode 86"
    if ! command -v compute-sanitizer >/dev/null; then
        echo "no compute-sanitizer in PATH: nothing was looked at"
        return
    fi
    for mode in single "dp --devices 2" "ddp --devices 2"; do
        $tool --report-api-errors no "$duet" train --device cuda $words --mode $mode || return
    done
    $tool --tool racecheck "$duet" train --device cuda $words --mode single
}

# ---- all of them ----

passed=0 failed=0 summary=
export -f $known pictures
export B emulated out duet seconds TESTS="${TESTS-}"
for part in $parts; do
    seconds=${limit[$part]} begin=$SECONDS
    [[ -n $emulated ]] && seconds=$((5 * seconds))
    echo "== $part, at most $seconds s"
    timeout -k 5 "$seconds" bash -c "$part" 2>&1 | tee "$out/$part.txt"
    status=${PIPESTATUS[0]}
    if ((status == 0)); then
        passed=$((passed + 1)) word=passed
    else
        failed=$((failed + 1)) word="failed, status $status"
        ((status == 124 || status == 137)) && word="cut off"
    fi
    summary+=$(printf '  %-10s %4d s  %s' "$part" $((SECONDS - begin)) "$word")$'\n'
done
printf '\n%s' "$summary"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
