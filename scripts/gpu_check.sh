#!/usr/bin/env bash
# Everything that needs a GPU, in one command and at most 8 minutes: make gpu-check [PARTS="build doctor"] [OUT=DIR]
#
# Needs a GPU with its driver, the CUDA toolkit, a C compiler, make and bash; no network, no data set, no test package.
#
#   build       program, benchmarks and the tests that look at a GPU        demo     single, DP and DDP on 2 and 4 devices
#   doctor      is this machine fit, is every operation right               step     bench/step_perf: time of a training step
#   allreduce   bench/allreduce_perf: right, and beside a copy              torch    the same steps in PyTorch, where it is
#   kill        ranks and launcher killed: what is said, what is left       tests    the tests that look at a GPU
#   sanitizer   short forms under compute-sanitizer: memcheck, racecheck
#
# Each part is scripts/gpu_check/PART.sh, a program of its own with a time limit: one that fails or is cut off is
# reported, and the others go on. After each part the results are written anew to OUT (default bench/results), as
# gpu_check-GPU-DATE.json and .txt. The last line is `N passed, N failed, N not here`.
# Exit status: 0 all passed, 1 something failed or was cut off, 2 wrong usage or no GPU.
#
# With EMULATION=1 (the emulated CUDA runtime of tests/stand_ins/cuda_emulation) only the script itself is tried: everything is
# smaller, results say "emulated" and go to the build folder.
set -u
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C # quotes of compilers are ASCII, numbers have points
# part | seconds it may take
table="build|170
doctor|75
demo|60
step|100
allreduce|60
torch|80
kill|75
tests|90
sanitizer|90"
limit_all=${GPU_CHECK_SECONDS:-465} # what is left then is cut off, which takes some seconds
slower=1
[[ -n ${EMULATION-} && -z ${GPU_CHECK_SECONDS-} ]] && slower=5 limit_all=2400 # on the few cores of whoever writes this

export B=${B:-build} EMULATED=${EMULATION:+1} WORK
. scripts/gpu_check/common.sh

known=$(cut -d'|' -f1 <<<"$table")
parts=()
for part in ${*:-$known}; do
    grep -qxF -e "$part" <<<"$known" || stop "unknown part: $part: there are ${known//$'\n'/ }"
    parts+=("$part")
done

# ---- is there a GPU: asked before anything long ----

gpu_is_here() {
    [[ -n $EMULATED ]] && return
    [[ -n ${CUDA_VISIBLE_DEVICES-all} && ${CUDA_VISIBLE_DEVICES-all} != -1 ]] || return
    soon nvidia-smi -L 2>/dev/null | grep -q '^GPU ' && return
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null || [[ -e /dev/dxg ]]
}
hidden=${CUDA_VISIBLE_DEVICES+CUDA_VISIBLE_DEVICES is \"$CUDA_VISIBLE_DEVICES\"}
gpu_is_here || stop "no GPU here: ${hidden:-no nvidia-smi that lists one, no /dev/nvidia0}: nothing was checked"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/gpu_check.XXXXXX") || exit 2
current= file=
run=$$-$RANDOM # stands in the environment of all that a part starts

# Ends what a part has left, which may lie in process groups of its own (timeout, set -m); fails where nothing was left.
end_the_rest() {
    local pids found=
    while pids=$(grep -lzxs "GPU_CHECK_RUN=$run" /proc/[0-9]*/environ | cut -d/ -f3) && [[ -n $pids ]]; do
        kill -KILL $pids 2>/dev/null
        found=yes
        sleep 0.05
        ((SECONDS < last_second)) || break
    done
    [[ -n $found ]]
}

clean_up() {
    [[ -n $current ]] && kill "$current" 2>/dev/null && wait "$current"
    last_second=$((SECONDS + 2))
    end_the_rest
    rm -rf "$WORK"
    [[ -n $file ]] && rm -f "$file.json.new" "$file.txt.new"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- what the results are called ----

describe_machine() {
    gpu=$(soon "$B/bench/gpu_facts" 2>/dev/null | sed -n 's/^gpu 0: \(.*\) | .*/\1/p')
    [[ -z $gpu ]] && gpu=$(soon nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
    [[ -z $gpu && -n $EMULATED ]] && gpu="emulated GPU (no hardware)"
    gpu=${gpu:-unknown GPU}
    [[ $gpu == *emulated* ]] && EMULATED=1
    driver=$(soon nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
    local out=${OUT:-bench/results}
    if [[ -n $EMULATED && $(readlink -m "$out") == "$(readlink -m bench/results)" ]]; then out=$B/gpu_check; fi
    mkdir -p "$out" || stop "$out: cannot be made: give OUT=DIR"
    file=$out/gpu_check-$(tr -cs 'A-Za-z0-9\n' '-' <<<"$gpu" | sed 's/^-//; s/-$//')-$date
    local n=1 first=$file
    while [[ -e $file.json ]]; do n=$((n + 1)) file=$first-$n; done
}
date=$(date -u +%Y-%m-%d)
cores=$(jobs_here)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
commit=$(git rev-parse --short HEAD 2>/dev/null && { git diff --quiet HEAD 2>/dev/null || echo "with changes"; })
commit=${commit//$'\n'/, }

# ---- the results: built up in files, written whole after each part ----

write_json() {
    echo "{\"what\": \"duet gpu-check\", \"emulated\": $([[ -n $EMULATED ]] && echo true || echo false), \"gpu\": $(json_text "$gpu"),"
    echo " \"driver\": $(json_text "$driver"), \"date\": \"$date\", \"cpu\": $(json_text "$cpu"), \"cores\": $cores,"
    echo " \"commit\": $(json_text "${commit:-unknown}"), \"seconds\": $SECONDS,"
    echo " \"passed\": $passed, \"failed\": $failed, \"not_here\": $not_here,"
    echo " \"targets\": [$(json_join "$WORK/targets.json")],"
    echo " \"parts\": [$(json_join "$WORK/parts.json")]}"
}

write_table() {
    echo "duet gpu-check: $gpu, driver ${driver:-unknown}, $cpu, $cores cores, $date, commit ${commit:-unknown}"
    [[ -n $EMULATED ]] && echo "EMULATED: CUDA ran on the CPU. This tries the script and says nothing of any GPU."
    echo
    cat "$WORK/summary"
    if [[ -s $WORK/targets ]]; then
        printf '\n%s\n' "targets"
        cat "$WORK/targets"
    fi
    cat "$WORK/logs"
    echo
    last_line
}

last_line() { echo "$passed passed, $failed failed, $not_here not here"; }

write_results() {
    write_json >"$file.json.new" && mv "$file.json.new" "$file.json" &&
        write_table >"$file.txt.new" && mv "$file.txt.new" "$file.txt" ||
        stop "$file: cannot be written: is the disk full?"
}

# target: WHAT | WANTED | MEASURED | reached or not
take_targets() { # LOG
    local what wanted measured reached
    while IFS='|' read -r what wanted measured reached; do
        what=$(trim "$what") wanted=$(trim "$wanted") measured=$(trim "$measured") reached=$(trim "$reached")
        printf '  %-78s %-22s %-14s %s\n' "$what" "$wanted" "$measured" "$reached" >>"$WORK/targets"
        echo "{\"what\": $(json_text "$what"), \"wanted\": $(json_text "$wanted"), \"measured\": $(json_text "$measured")," \
            "\"reached\": $([[ $reached == reached ]] && echo true || echo false)}" >>"$WORK/targets.json"
    done < <(sed -n 's/^target: //p' "$1")
}

# ---- one part ----

run_part() { # NAME LIMIT
    local name=$1 limit=$2 left=$((limit_all - SECONDS)) begin=$SECONDS status state note left_some= log=$WORK/$1.log
    ((limit > left)) && limit=$left
    if ((limit < 5)); then
        echo "no time was left for it" >"$log"
        status=124
    elif [[ $name != build && ! -x $B/duet ]]; then
        echo "$B/duet is not there: build it first" >"$log"
        status=1
    else
        echo "== $name, at most $limit s"
        LIMIT=$limit GPU_CHECK_RUN=$run timeout -k 5 "$limit" bash "${GPU_CHECK_PARTS:-scripts/gpu_check}/$name.sh" >"$log" 2>&1 </dev/null &
        current=$!
        { wait "$current"; } 2>/dev/null # without the shell's own word on how it ended
        status=$?
        current=
        last_second=$((SECONDS + 2))
        end_the_rest && left_some=yes
    fi
    local seconds=$((SECONDS - begin))
    note=$(sed -n 's/^note: //p' "$log" | tail -1)
    case $status in
    0) state="passed" passed=$((passed + 1)) ;;
    77) state="not here" not_here=$((not_here + 1)) ;;
    124 | 137) state="cut off" failed=$((failed + 1)) note="${note:+$note; }after $seconds s" ;;
    *) state="failed" failed=$((failed + 1)) note=${note:-"status $status: $(tail -n 1 "$log" | cut -c1-160)"} ;;
    esac
    [[ -n $left_some && $state != "cut off" ]] && note="${note:+$note; }left processes, which were ended"
    printf '  %-10s %-9s %4d s  %s\n' "$name" "$state" "$seconds" "$note" | tee -a "$WORK/summary"
    take_targets "$log"
    local results=null
    [[ -s $WORK/$name.json ]] && results=$(cat "$WORK/$name.json")
    {
        echo "{\"part\": \"$name\", \"state\": \"$state\", \"seconds\": $seconds, \"status\": $status, \"note\": $(json_text "$note"),"
        echo "\"checks\": [$(json_join "$WORK/$name.checks")], \"results\": $results,"
        echo "\"log_end\": $([[ $state == passed ]] && echo null || json_text "$(tail -n 30 "$log")")}"
    } | tr '\n' ' ' >>"$WORK/parts.json"
    echo >>"$WORK/parts.json"
    [[ $name == build && $state == passed ]] || {
        printf '\n== %s: %s\n' "$name" "$state"
        tail -n $([[ $name == build ]] && echo 30 || echo 150) "$log" | grep -v '^target: '
    } | tee -a "$WORK/logs"
}

passed=0 failed=0 not_here=0
touch "$WORK/summary" "$WORK/targets" "$WORK/targets.json" "$WORK/parts.json" "$WORK/logs"
for part in "${parts[@]}"; do
    run_part "$part" $((slower * $(grep "^$part|" <<<"$table" | cut -d'|' -f2)))
    [[ -n $file ]] || describe_machine # by the program of the build, where that is a part
    write_results
done
printf '\n'
cat "$WORK/summary" "$WORK/targets"
echo "results: $file.json and .txt"
last_line
((failed == 0 && passed > 0))
