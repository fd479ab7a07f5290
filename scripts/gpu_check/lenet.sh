# The figure that matters first: LeNet on one GPU at batch 256, plain and as a graph; and what it
# would be without dependent launches (device/cuda/dependent.c).
. scripts/gpu_check/common.sh
words=(--models lenet --batches 256 --devices 0 --epochs 5)
[[ -n $EMULATED ]] && words=(--models mlp --batches 8 --devices 0 --epochs 3)
folder=$(pictures full) || exit 1
"$B/bench/step_perf" --device "$device" --data-dir "$folder" --json "$WORK/lenet.json" \
    "${words[@]}" 2>&1 | tee "$WORK/lenet.out"
status=${PIPESTATUS[0]}
step_of() { awk '/^[a-z]+ +single .* graph / { print $1, $5, "us a step at batch", $3 }' "$1"; }
DUET_DEPENDENT_LAUNCH=0 "$B/bench/step_perf" --device "$device" --data-dir "$folder" \
    "${words[@]}" >"$WORK/lenet.plain" 2>&1
echo "without dependent launches: $(step_of "$WORK/lenet.plain")"
echo "note: $(step_of "$WORK/lenet.out")"
exit "$status"
