# The demo of README on 2 and 4 devices: does it train, and do DP and DDP train the same model as
# single?
. scripts/gpu_check/common.sh
words=(--dataset fashion-mnist) pictures= counts=(2 4)
if [[ -n $EMULATED ]]; then
    words=(--data-dir "$(pictures small)" --epochs 1 --steps 2 --batch-size 8
        --model mlp --mlp-hidden 16)
    counts=(2) # the lesson of each demo takes seconds
elif ! "$duet" train --device cpu --model mlp --mlp-hidden 1 --batch-size 1 --steps 1 --quiet \
    2>/dev/null; then
    echo "no data set on this machine (or packed, and no zlib): synthetic pictures instead"
    words=(--dataset synthetic) pictures=", synthetic pictures"
fi
for devices in "${counts[@]}"; do
    log=$WORK/demo-$devices.log
    "$duet" demo --device "$device" --devices $devices "${words[@]}" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    times=$(sed -n 's/^seconds an epoch  *//p' "$log" | tr -s ' ')
    same=$(grep -c '^D[DP]*P = single: identical to the bit' "$log")
    if ((status == 0 && same == 2)); then
        check ok "demo on $devices devices$pictures" \
            "DP and DDP identical to single; seconds an epoch (single, DP, DDP): $times"
    else
        check off "demo on $devices devices$pictures" \
            "status $status, $same of 2 identical: $(tail -n 1 "$log")"
    fi
done
conclude
