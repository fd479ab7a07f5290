# bench/allreduce_perf, which checks every sum before it measures a time: all algorithms with 2 and
# 4 ranks; then a large allreduce by four ranks on one GPU, beside a copy of the bytes that it
# moves: by processes that take turns on the GPU, by processes that share it under MPS, where its
# daemon can be started, and by one process, whose kernel is the most that the others can reach.
. scripts/gpu_check/common.sh
"$B/bench/allreduce_perf" -h 2>&1 | grep -q -e '-d cpu|cuda' ||
    not_here "this allreduce_perf knows emulated devices only (no -d)"
kind=$device small=(-b 1K -e 16M -f 128 -n 20) large=(-b 256M -e 256M -n 20 -w 3)
[[ -n $EMULATED ]] && small=(-b 1K -e 64K -f 64 -n 2 -w 1) large=(-b 1M -e 1M -n 2 -w 1)
rows=$WORK/allreduce.rows
: >"$rows"

# Turns rows of the table on standard input into JSON. The columns: size count type op time algbw
# busbw wrong p50 p99 copy algorithm, executor
to_json() { # RANKS
    awk -v ranks="$1" '
        function number(x) { return x ~ /^[0-9.]+$/ ? x : "null" }
        /^ *[0-9]/ {
            sub(/,/, "", $12)
            printf "{\"ranks\": %d, \"bytes\": %s, \"op\": \"%s\", ", ranks, $1, $4
            printf "\"us\": %s, \"algbw\": %s, ", number($5), number($6)
            printf "\"busbw\": %s, \"wrong\": %s, ", number($7), number($8)
            printf "\"p50_us\": %s, \"p99_us\": %s, ", number($9), number($10)
            printf "\"copy_us\": %s, \"algorithm\": \"%s\", ", number($11), $12
            printf "\"executor\": \"%s\"}\n", $13
        }'
}

perf() { # NAME RANKS WORDS...
    local name=$1 ranks=$2 out=$WORK/allreduce.out status wrong lines
    shift 2
    "$B/bench/allreduce_perf" -d "$kind" -r "$ranks" "$@" 2>&1 | tee "$out"
    status=${PIPESTATUS[0]}
    to_json "$ranks" <"$out" >>"$rows"
    lines=$(grep -c '^ *[0-9]' "$out")
    wrong=$(awk '/^ *[0-9]/ && $8 != "0" { n++ } END { print n + 0 }' "$out")
    if ((status == 0 && lines > 0 && wrong == 0)); then
        check ok "$name" "$lines lines, no sum is wrong"
    else
        check off "$name" \
            "status $status, $lines lines, $wrong with wrong sums: $(tail -n 1 "$out")"
    fi
    echo "{\"rows\": [$(json_join "$rows")]}" >"$WORK/allreduce.json"
}

for ranks in 2 4; do perf "all algorithms, $ranks ranks" $ranks -a all "${small[@]}"; done
first=${CUDA_VISIBLE_DEVICES-0}
export CUDA_VISIBLE_DEVICES=${first%%,*} # the ranks share one GPU, also where there are several

# The target, from lines `bytes time copy wrong` on standard input.
target() { # RANKS HOW
    [[ $device == cuda ]] || return
    awk -v ranks="$1" -v how="$2" '$2 > 0 {
        share = 100 * $3 / $2
        reached = (share >= 85 && $4 == "0") ? "reached" : "not reached" # only where sums are right
        printf "target: allreduce of %d MiB, %d ranks on one GPU, %s:", $1 / 1048576, ranks, how
        printf " of a copy'"'"'s speed | at least 85 %% | %.1f %% | %s\n", share, reached
    }'
}
large_row() { awk '/^ *[0-9]/ { print $1, $5, $11, $8 }' "$WORK/allreduce.out"; }

if [[ -e $mps_pipes/control ]]; then
    how="under MPS"
else
    how="taking turns"
fi
perf "fused, 4 ranks on one GPU, $how" 4 -a fused "${large[@]}"
large_row | target 4 "$how"

if [[ $device == cuda && $how != "under MPS" ]]; then
    if [[ -n $EMULATED ]] || command -v nvidia-cuda-mps-control >/dev/null; then
        if start_mps; then
            perf "fused, 4 ranks on one GPU, under MPS" 4 -a fused "${large[@]}"
            large_row | target 4 "under MPS"
        else
            echo "MPS: its daemon does not start: no figure of it"
        fi
        end_mps
    else
        echo "MPS: no nvidia-cuda-mps-control here: no figure of it"
    fi
fi
grid=(4 67108864 20)
[[ -n $EMULATED ]] && grid=(3 65536 2)
# One grid for all ranks runs the kernel of ranks that have a GPU each.
if [[ $device == cuda && -x $B/bench/allreduce_grid ]]; then
    if "$B/bench/allreduce_grid" "${grid[@]}" >"$WORK/grid.out" 2>&1; then
        check ok "one grid, ${grid[0]} ranks" \
            "$(grep -c ' 0$' "$WORK/grid.out") plans, no sum is wrong"
    else
        check off "one grid, ${grid[0]} ranks" "$(tail -n 1 "$WORK/grid.out")"
    fi
    cat "$WORK/grid.out"
    awk '$1 == "direct" { print $3, $5, $6, $7 }' "$WORK/grid.out" |
        target "${grid[0]}" "one process, direct"
fi
conclude
