# The doctor's own table and JSON; it exits with 3 where something is off. A GPU that cannot be used is off too: auto would go
# without. The libraries of CUDA need a real one.
. scripts/gpu_check/common.sh
words=(--device "$device")
[[ -n $EMULATED ]] && words+=(--quick) && export DUET_CUBLAS=/emulated DUET_CUDNN=/emulated
"$duet" doctor "${words[@]}" --json "$WORK/doctor.json" 2>&1 | tee "$WORK/doctor.out"
status=${PIPESTATUS[0]}
echo "note: $(grep ' ok, .* off, ' "$WORK/doctor.out" | tail -n 1)"
exit "$status"
