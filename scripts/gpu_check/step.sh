# bench/step_perf measures and checks training steps, with Duet's own kernels, and with cuBLAS and
# cuDNN where they are found.
. scripts/gpu_check/common.sh
words=(--batches 256,64,1024 --devices 4 --epochs 5)
[[ -n $EMULATED ]] && words=(--batches 8 --devices 2 --epochs 3 --models mlp)
folder=$(pictures full) || exit 1

# Prints the table of one run and adds its JSON to the results.
perf() { # NAME WORDS...
    local name=$1
    shift
    "$B/bench/step_perf" --device "$device" --data-dir "$folder" --json "$WORK/step-$name.json" \
        "$@" 2>&1 | tee "$WORK/step-$name.out"
    local status=${PIPESTATUS[0]}
    if ((status == 0)); then
        local graph='/^lenet +single .* graph / && !n++ { print $5 " us a step at batch " $3 }'
        local runs lenet
        runs=$(grep -c ' falls' "$WORK/step-$name.out")
        lenet=$(awk "$graph" "$WORK/step-$name.out")
        check ok "steps, $name" "$runs runs; LeNet single as a graph $lenet"
    else
        check off "steps, $name" "status $status: $(tail -n 1 "$WORK/step-$name.out")"
    fi
    collect
}

# Puts together what has been measured until now: step_perf writes its JSON after each row.
collect() {
    local name results=
    for name in own library; do
        [[ -s $WORK/step-$name.json ]] &&
            results+="${results:+, }\"$name\": $(cat "$WORK/step-$name.json")"
    done
    echo "{$results}" >"$WORK/step.json"
}
trap 'collect; exit 143' TERM

perf own "${words[@]}"
if [[ $device == cuda && -z $EMULATED ]]; then
    if "$duet" train --device cuda --cuda-math library --model mlp --steps 1 --quiet \
        --data-dir "$folder" 2>"$WORK/step.err"; then
        perf library --cuda-math library --batches 256 --devices 0 --epochs 4
    else
        echo "--cuda-math library: not here: $(cat "$WORK/step.err")"
    fi
fi
echo "note: $(sed -n 's/.*"words": "\(.*\)"}$/\1/p' "$WORK/step.checks" | head -1)"
((bad == 0 && good > 0))
