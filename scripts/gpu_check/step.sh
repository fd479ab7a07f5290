# Training steps, as bench/step_perf measures and checks them.
. scripts/gpu_check/common.sh
words=(--batches 256,64,1024 --devices 4 --epochs 5)
[[ -n $EMULATED ]] && words=(--batches 32 --devices 2 --epochs 3 --models lenet)
"$B/bench/step_perf" --device "$device" --data-dir "$(pictures full)" --json "$WORK/step.json" "${words[@]}" | tee "$WORK/step.out"
status=${PIPESTATUS[0]}
echo "note: $(grep -c 'falls' "$WORK/step.out") runs with the right answer; LeNet, single, as a graph: $(awk '/^lenet +single .* graph /{ print $5 " us (batch " $3 ")"; exit }' "$WORK/step.out")"
exit "$status"
