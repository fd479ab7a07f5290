# Allreduce by bench/allreduce_perf, which checks every sum before it times it: all algorithms with few ranks, then a large
# one by four ranks on one GPU beside a copy of the bytes that it must move.
. scripts/gpu_check/common.sh
"$B/bench/allreduce_perf" -h 2>&1 | grep -q -e '-d cpu|cuda' || not_here "this allreduce_perf knows emulated devices only (no -d)"
kind=$device small=(-b 1K -e 16M -f 128 -n 20) large=(-b 256M -e 256M -n 20 -w 3)
[[ -n $EMULATED ]] && small=(-b 1K -e 64K -f 64 -n 2 -w 1) large=(-b 1M -e 1M -n 2 -w 1)
rows=$WORK/allreduce.rows
: >"$rows"

# size count type op time algbw busbw wrong p50 p99 copy algorithm, executor
to_json() { # RANKS: rows of the table on standard input
    awk -v ranks="$1" '
        function number(x) { return x ~ /^[0-9.]+$/ ? x : "null" }
        /^ *[0-9]/ {
            sub(/,/, "", $12)
            printf "{\"ranks\": %d, \"bytes\": %s, \"op\": \"%s\", \"us\": %s, \"algbw\": %s, \"busbw\": %s, \"wrong\": %s, ", ranks, $1, $4, number($5), number($6), number($7), number($8)
            printf "\"p50_us\": %s, \"p99_us\": %s, \"copy_us\": %s, \"algorithm\": \"%s\", \"executor\": \"%s\"}\n", number($9), number($10), number($11), $12, $13
        }'
}

perf() { # NAME RANKS WORDS...
    local name=$1 ranks=$2 out=$WORK/allreduce.out status wrong lines
    shift 2
    "$B/bench/allreduce_perf" -d "$kind" -r "$ranks" "$@" >"$out" 2>&1
    status=$?
    cat "$out"
    to_json "$ranks" <"$out" >>"$rows"
    lines=$(grep -c '^ *[0-9]' "$out")
    wrong=$(awk '/^ *[0-9]/ && $8 != "0" { n++ } END { print n + 0 }' "$out")
    if ((status == 0 && lines > 0 && wrong == 0)); then
        check ok "$name" "$lines lines, no sum is wrong"
    else
        check off "$name" "status $status, $lines lines, $wrong with wrong sums: $(tail -n 1 "$out")"
    fi
    echo "{\"rows\": [$(json_join "$rows")]}" >"$WORK/allreduce.json"
}

for ranks in 2 4; do perf "all algorithms, $ranks ranks" $ranks -a all "${small[@]}"; done
first=${CUDA_VISIBLE_DEVICES-0}
export CUDA_VISIBLE_DEVICES=${first%%,*} # ranks that share one GPU, on a machine with several too
perf "fused, 4 ranks on one GPU" 4 -a fused "${large[@]}"
if [[ $device == cuda ]]; then
    awk '/^ *[0-9]/ && $5 > 0 {
        share = 100 * $11 / $5
        reached = (share >= 85 && $8 == "0") ? "reached" : "not reached" # what is wrong is not fast
        printf "target: allreduce of %d MiB, 4 ranks on one GPU: of the speed of a copy of as many bytes", $1 / 1048576
        printf " | at least 85 %% | %.1f %% | %s\n", share, reached
    }' "$WORK/allreduce.out"
fi
grid=(4 67108864 20)
[[ -n $EMULATED ]] && grid=(3 65536 2)
if [[ $device == cuda && -x $B/bench/allreduce_grid ]]; then # one grid for all ranks, the kernel of ranks with a GPU each
    if "$B/bench/allreduce_grid" "${grid[@]}" >"$WORK/grid.out" 2>&1; then
        check ok "one grid, ${grid[0]} ranks" "$(grep -c ' 0$' "$WORK/grid.out") plans, no sum is wrong"
    else
        check off "one grid, ${grid[0]} ranks" "$(tail -n 1 "$WORK/grid.out")"
    fi
    cat "$WORK/grid.out"
fi
conclude
