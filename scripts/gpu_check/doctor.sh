# duet doctor, which exits with 3 where something is off. --device cuda makes it count a GPU that
# cannot be used; with auto it would go on without. Emulated runs leave out the libraries of CUDA.
. scripts/gpu_check/common.sh
words=(--device "$device")
[[ -n $EMULATED ]] && words+=(--quick) && export DUET_CUBLAS=/emulated DUET_CUDNN=/emulated
"$duet" doctor "${words[@]}" --json "$WORK/doctor.json" 2>&1 | tee "$WORK/doctor.out"
status=${PIPESTATUS[0]}
echo "note: $(grep ' ok, .* off, ' "$WORK/doctor.out" | tail -n 1)"
exit "$status"
