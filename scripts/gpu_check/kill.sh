# Kills commands in the middle of training, each rank and each signal once. They must end with the
# right status and one line that names the rank, and leave no process and no GPU memory in use.
. scripts/gpu_check/common.sh
set -m # otherwise background jobs of a script ignore SIGINT
SECONDS_TO_TRAIN=30 SECONDS_TO_END=10 SECONDS_TO_VANISH=3
SLACK=256 # MiB by which other programs and the driver may change the memory in use
ranks=4 model=(--model lenet --batch-size 32)
[[ -n $EMULATED ]] && ranks=2 model=(--model mlp --mlp-hidden 16 --batch-size 8)
mark=$$-$RANDOM # in the environment of every process of a command
launcher= out=$WORK/kill.out err=$WORK/kill.err
trap '[[ -n $launcher ]] && kill -KILL "$launcher"' EXIT
trap 'exit 143' TERM

# Prints the processes of the command that runs or ran: those that inherited the mark.
processes() {
    grep -lzxs "GPU_CHECK_MARK=$mark" /proc/[0-9]*/environ | cut -d/ -f3
}
process_of_rank() {
    local pid
    for pid in $(processes); do
        grep -qzx "RANK=$1" "/proc/$pid/environ" 2>/dev/null && echo "$pid" && return
    done
}

# Prints the MiB in use on all GPUs that this run sees. Where nvidia-smi says only [N/A],
# bench/gpu_facts is asked. Fails where neither knows.
memory_used() {
    add_up() { awk '$1 ~ /^[0-9]+$/ { sum += $1; n++ } END { if (n) print sum; exit !n }'; }
    soon nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} \
        --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | add_up ||
        soon "$B/bench/gpu_facts" 2>/dev/null |
        sed -n 's/^gpu .* MiB, \([0-9]*\) MiB in use$/\1/p' | add_up
}

# Succeeds if the command succeeds within some seconds.
within() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS >= end)) && return 1
        sleep 0.05
    done
}
trains() { grep -q 'epoch 2/' "$out" || ! kill -0 "$launcher" 2>/dev/null; }
ended() { ! kill -0 "$launcher" 2>/dev/null; }
vanished() { [[ -z $(processes) ]]; }
memory_is_back() { [[ -z $used_before ]] || (($(memory_used) <= used_before + SLACK)); }

# Starts a job, waits until it trains, sends SIGNAL to rank RANK (-: to the command itself), and
# judges how it ends. WORDS: what its one line must contain; empty: it must print none.
try() { # NAME MODE SIGNAL RANK STATUS WORDS
    local name=$1 mode=$2 signal=$3 rank=$4 wanted=$5 words=$6 target status lines complaint=
    [[ $name =~ ${GPU_CHECK_KILLS-} ]] || return # the tests of this script choose some
    local devices=(--devices $ranks)
    [[ $mode == single ]] && devices=()
    : >"$out"
    GPU_CHECK_MARK=$mark "$duet" train --mode "$mode" --device "$device" "${devices[@]}" \
        --data-dir "$folder" "${model[@]}" --epochs 1000000 --timeout 20 >/dev/null 2>"$out" &
    launcher=$!
    { # without the shell's own messages on jobs that were killed
        within $SECONDS_TO_TRAIN trains || complaint="no second epoch in $SECONDS_TO_TRAIN s"
        target=$launcher
        [[ $rank != - ]] && target=$(process_of_rank "$rank")
        if [[ -z $complaint && -n $target ]]; then
            kill -"$signal" "$target" || complaint="had ended before"
        fi
        [[ -n $target ]] || complaint="no process of rank $rank"
        within $SECONDS_TO_END ended ||
            complaint+="${complaint:+, }did not end in $SECONDS_TO_END s"
        kill -KILL "$launcher" 2>/dev/null
        wait "$launcher" 2>/dev/null
        status=$?
        launcher=
        within $SECONDS_TO_VANISH vanished || {
            complaint+="${complaint:+, }left processes $(processes | tr '\n' ' ')"
            processes | xargs -r kill -KILL
        }
        within $SECONDS_TO_VANISH memory_is_back ||
            complaint+="${complaint:+, }$(memory_used) MiB in use, $used_before before"
        ((status == wanted)) || complaint+="${complaint:+, }status $status, not $wanted"
    } 2>/dev/null
    # Without the progress, and without what a machine may have to say at the start of each run.
    grep -Ev '^(single|DP|DDP) +epoch |^duet: (rank [0-9]+: )?warning: |the driver compiles its' \
        "$out" >"$err"
    lines=$(wc -l <"$err")
    if [[ -n $words ]]; then
        ((lines == 1)) && grep -Eq "^duet: .*$words" "$err" ||
            complaint+="${complaint:+, }not one line with '$words' but: $(head -c 300 "$err")"
    else
        ((lines == 0)) || complaint+="${complaint:+, }said: $(head -c 300 "$err")"
    fi
    if [[ -z $complaint ]]; then
        check ok "$name" "status $status; $(head -n 1 "$err" | cut -c1-100)"
    else
        check off "$name" "$complaint"
    fi
}

folder=$(pictures small) || exit 1
if used_before=$(memory_used); then
    echo "GPU memory in use before: $used_before MiB"
elif [[ $device == cuda ]]; then
    check off "GPU memory" "neither nvidia-smi nor $B/bench/gpu_facts says how much is in use"
fi
for ((rank = 0; rank < ranks; rank++)); do
    try "rank $rank of $ranks by SIGKILL" ddp KILL $rank 137 "rank $rank \(pid [0-9]+\).*signal 9"
done
try "launcher by SIGINT" ddp INT - 130 "signal 2 "
try "launcher by SIGTERM" ddp TERM - 143 "signal 15 "
try "launcher by SIGKILL" ddp KILL - 137 ""
try "DP by SIGTERM" dp TERM - 143 "signal 15 "
try "single by SIGKILL" single KILL - 137 ""
conclude
