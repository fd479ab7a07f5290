#!/usr/bin/env bash
# Runs fuzz targets at the same time: tests/fuzz/run.sh BUILD_DIR SECONDS TARGET...
#
# All targets together take about SECONDS on all cores. For each target it prints how many inputs
# were run, and how many edges and features of the code they reached. A failing input is kept in
# BUILD_DIR/fuzz-TARGET-..., and the end of the report is shown. FUZZ_SEED=N changes the seed, which
# is 1 by default. The last line is `N passed, N failed`.
set -u
build=$1 seconds=$2
shift 2
seed=${FUZZ_SEED:-1}
cores=$(nproc)
each=$((seconds * cores / $#))
((each > 0)) || each=1
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}

number() { sed -nE "s/$1/\1/p" "$log" | tail -1; } # the last match in the log

run_one() { # TARGET
    local name=$1 program=$build/tests/fuzz/fuzz_$1 log=$build/fuzz-$1.log found=$build/corpus/$1
    local status executions reached
    mkdir -p "$found"
    "$program" -max_total_time="$each" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -seed="$seed" -artifact_prefix="$build/fuzz-$name-" "$found" "tests/fuzz/corpus/$name" \
        >"$log" 2>&1
    status=$?
    executions=$(number '^stat::number_of_executed_units: ([0-9]+)')
    reached=$(number '.* cov: ([0-9]+ ft: [0-9]+) .*')
    printf '%-12s %10s inputs in %d s%s\n' "$name" "${executions:-0}" "$each" \
        "${reached:+, ${reached/ ft: / edges, } features}"
    if ((status != 0)); then
        tail -40 "$log"
        echo "$name: failed with status $status: see $log; the input is $build/fuzz-$name-*"
    fi
    return "$status"
}
export -f run_one number
export build each seed

echo "seed $seed, $each s for each of $# targets, $cores at a time"
printf '%s\n' "$@" | xargs -P "$cores" -I{} bash -c 'run_one {} && echo >"$build/fuzz-{}.passed"'
passed=0
for name in "$@"; do
    [[ -e $build/fuzz-$name.passed ]] && passed=$((passed + 1))
    rm -f "$build/fuzz-$name.passed"
done
echo "$passed passed, $(($# - passed)) failed"
((passed == $#))
