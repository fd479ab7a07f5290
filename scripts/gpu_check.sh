#!/usr/bin/env bash
# Checks everything that needs a GPU, in at most 14 minutes, the most important first:
#
#     make gpu-check [PARTS="build doctor"] [OUT=DIR]
#
# It needs a GPU with its driver, the CUDA toolkit, a C compiler, make and bash; no network, no data
# set and no test package. Its parts:
#
#     build      the program, the benchmarks and the tests that use a GPU
#     lenet      the time of LeNet's step at batch 256 on one GPU
#     doctor     duet doctor: is this machine fit, and is every operation right
#     demo       single, DP and DDP on 2 and 4 devices
#     step       bench/step_perf: the time of other training steps
#     allreduce  bench/allreduce_perf: sums are right; times beside that of a copy
#     torch      the same steps in PyTorch, where it is installed
#     kill       ranks and launcher are killed: what is printed, and what is left behind
#     tests      the tests that use a GPU
#     sanitizer  short runs under compute-sanitizer: memcheck and racecheck
#
# Each part is a program of its own, scripts/gpu_check/PART.sh, with a time limit. A part that fails
# or is cut off is reported, and the others go on. What a part says is printed as it comes. After
# each part, and whenever a figure with a target is known, the results are written to OUT (default
# bench/results) as gpu_check-GPU-DATE.json and .txt. The last line is
# `N passed, N failed, N not here`.
# A program stays open on each GPU meanwhile, since a driver may need seconds to start when the last
# one has gone.
# Exit status: 0 all passed, 1 something failed or was cut off, 2 wrong usage or no GPU.
#
# EMULATION=1 tries the script itself on the emulated CUDA runtime of
# tests/stand_ins/cuda_emulation: all work is smaller, and the results say "emulated" and go to the
# build folder.
set -u
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C # compilers print ASCII quotes, and numbers have a decimal point
# part | its limit in seconds
table="build|130
lenet|30
doctor|100
demo|50
step|100
allreduce|50
torch|70
kill|70
tests|160
sanitizer|80"
# For all parts: the sum of the table's limits.
limit_all=${GPU_CHECK_SECONDS:-840}
slower=${GPU_CHECK_SLOWER:-1} # the emulation needs more time
[[ -n ${EMULATION-} && -z ${GPU_CHECK_SECONDS-}${GPU_CHECK_SLOWER-} ]] && slower=5
limit_all=$((slower * limit_all))

export B=${B:-build} EMULATED=${EMULATION:+1} WORK
. scripts/gpu_check/common.sh

known=$(cut -d'|' -f1 <<<"$table")
parts=()
for part in ${*:-$known}; do
    grep -qxF -e "$part" <<<"$known" || stop "unknown part: $part: there are ${known//$'\n'/ }"
    parts+=("$part")
done

# ---- is there a GPU? ----

gpu_is_here() {
    [[ -n $EMULATED ]] && return
    [[ -n ${CUDA_VISIBLE_DEVICES-all} && ${CUDA_VISIBLE_DEVICES-all} != -1 ]] || return
    soon nvidia-smi -L 2>/dev/null | grep -q '^GPU ' && return
    compgen -G '/dev/nvidia[0-9]*' >/dev/null ||
        compgen -G '/proc/driver/nvidia/gpus/*' >/dev/null ||
        [[ -e /dev/dxg ]] # Windows' subsystem for Linux
}
hidden=${CUDA_VISIBLE_DEVICES+CUDA_VISIBLE_DEVICES is \"$CUDA_VISIBLE_DEVICES\"}
hidden=${hidden:-no nvidia-smi that lists one, no /dev/nvidia0}
gpu_is_here || stop "no GPU here: $hidden: nothing was checked"

WORK=$(mktemp -d "${TMPDIR:-/tmp}/gpu_check.XXXXXX") || exit 2
current= file= holder=
run=$$-$RANDOM # in the environment of every process that a part starts

# Ends processes that a part has left behind; they may be in process groups of their own (timeout,
# set -m). Fails where there were none.
end_the_rest() {
    local pids found=
    while pids=$(grep -lzxs "GPU_CHECK_RUN=$run" /proc/[0-9]*/environ | cut -d/ -f3) &&
        [[ -n $pids ]]; do
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
    [[ -n $holder ]] && kill -KILL "$holder" 2>/dev/null && wait "$holder" 2>/dev/null
    rm -rf "$WORK"
    [[ -n $file ]] && rm -f "$file.json.new" "$file.txt.new"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Keeps a program open on each GPU.
hold_gpus() {
    [[ -z $holder && -x $B/bench/gpu_facts ]] || return
    "$B/bench/gpu_facts" --hold >"$WORK/holder" 2>&1 </dev/null &
    holder=$!
}

# ---- the names of the results ----

describe_machine() {
    gpu=$(soon "$B/bench/gpu_facts" 2>/dev/null | sed -n 's/^gpu 0: \(.*\) | .*/\1/p')
    [[ -z $gpu ]] &&
        gpu=$(soon nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
    [[ -z $gpu && -n $EMULATED ]] && gpu="emulated GPU (no hardware)"
    gpu=${gpu:-unknown GPU}
    [[ $gpu == *emulated* ]] && EMULATED=1
    driver=$(soon nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
    local out=${OUT:-bench/results}
    if [[ -n $EMULATED && $(readlink -m "$out") == "$(readlink -m bench/results)" ]]; then
        out=$B/gpu_check # emulated results never stand among those of hardware
    fi
    mkdir -p "$out" || stop "$out: cannot be made: give OUT=DIR"
    file=$out/gpu_check-$(tr -cs 'A-Za-z0-9\n' '-' <<<"$gpu" | sed 's/^-//; s/-$//')-$date
    local n=1 first=$file
    while [[ -e $file.json ]]; do n=$((n + 1)) file=$first-$n; done
}
date=$(date -u +%Y-%m-%d)
cores=$(jobs_here)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
commit=$(git rev-parse --short HEAD 2>/dev/null &&
    { git diff --quiet HEAD 2>/dev/null || echo "with changes"; })
commit=${commit//$'\n'/, }

# ---- the results: collected in files, and written whole after each part ----

write_json() {
    echo "{\"what\": \"duet gpu-check\", \"emulated\": $(json_yes_no test -n "$EMULATED"),"
    echo " \"gpu\": $(json_text "$gpu"), \"driver\": $(json_text "$driver"), \"date\": \"$date\","
    echo " \"cpu\": $(json_text "$cpu"), \"cores\": $cores,"
    echo " \"commit\": $(json_text "${commit:-unknown}"), \"seconds\": $SECONDS,"
    echo " \"passed\": $passed, \"failed\": $failed, \"not_here\": $not_here,"
    echo " \"targets\": [$(json_join "$WORK/targets.json")],"
    echo " \"parts\": [$(json_join "$WORK/parts.json")]}"
}

write_table() {
    echo "duet gpu-check: $gpu, driver ${driver:-unknown}, $cpu, $cores cores, $date," \
        "commit ${commit:-unknown}"
    [[ -n $EMULATED ]] &&
        echo "EMULATED: CUDA ran on the CPU. This tries the script and says nothing of any GPU."
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

# Reads the lines `target: WHAT | WANTED | MEASURED | reached or not reached` of a log from a line
# on, and sets `taken` to how many there are.
take_targets() { # LOG FIRST
    local what wanted measured reached
    while IFS='|' read -r what wanted measured reached; do
        what=$(trim "$what") wanted=$(trim "$wanted")
        measured=$(trim "$measured") reached=$(trim "$reached")
        printf '  %-78s %-22s %-14s %s\n' "$what" "$wanted" "$measured" "$reached" >>"$WORK/targets"
        taken=$((taken + 1))
        echo "{\"what\": $(json_text "$what"), \"wanted\": $(json_text "$wanted")," \
            "\"measured\": $(json_text "$measured")," \
            "\"reached\": $(json_yes_no test "$reached" = reached)}" >>"$WORK/targets.json"
    done < <(sed -n 's/^target: //p' "$1" | tail -n +"$2")
}

# Prints what a part has said since the last time, and writes new figures down.
follow() { # NAME LOG
    local size lines=$taken
    size=$(wc -c <"$2")
    ((size > shown)) || return
    [[ $1 == build ]] || tail -c +$((shown + 1)) "$2" | head -c $((size - shown))
    shown=$size
    [[ $(tail -c 1 "$2") == "" ]] || return # a line is not yet complete
    take_targets "$2" $((taken + 1))
    ((taken == lines)) || { [[ -n $file ]] && write_results; }
}

# ---- one part ----

run_part() { # NAME LIMIT
    local name=$1 limit=$2 left=$((limit_all - SECONDS)) begin=$SECONDS log=$WORK/$1.log
    local status state note left_some= shown=0 taken=0
    ((limit > left)) && limit=$left
    if ((limit < 5)); then
        echo "no time was left for it" >"$log"
        status=124
    elif [[ $name != build && ! -x $B/duet ]]; then
        echo "$B/duet is not there: build it first" >"$log"
        status=1
    else
        echo "== $name, at most $limit s"
        LIMIT=$limit GPU_CHECK_RUN=$run timeout -k 5 "$limit" \
            bash "${GPU_CHECK_PARTS:-scripts/gpu_check}/$name.sh" >"$log" 2>&1 </dev/null &
        current=$!
        { # without the shell's own message on how it ended
            while kill -0 "$current"; do
                sleep 0.1
                follow "$name" "$log"
            done
            wait "$current"
        } 2>/dev/null
        status=$?
        follow "$name" "$log"
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
    *)
        state="failed" failed=$((failed + 1))
        note=${note:-"status $status: $(tail -n 1 "$log" | cut -c1-160)"}
        ;;
    esac
    [[ -n $left_some && $state != "cut off" ]] &&
        note="${note:+$note; }left processes, which were ended"
    printf '  %-10s %-9s %4d s  %s\n' "$name" "$state" "$seconds" "$note" | tee -a "$WORK/summary"
    take_targets "$log" $((taken + 1)) # of a last line without an end
    local results=null
    [[ -s $WORK/$name.json ]] && results=$(cat "$WORK/$name.json")
    {
        echo "{\"part\": \"$name\", \"state\": \"$state\", \"seconds\": $seconds,"
        echo "\"status\": $status, \"note\": $(json_text "$note"),"
        echo "\"checks\": [$(json_join "$WORK/$name.checks")], \"results\": $results,"
        local log_end=null
        [[ $state == passed ]] || log_end=$(json_text "$(tail -n 30 "$log")")
        echo "\"log_end\": $log_end}"
    } | tr '\n' ' ' >>"$WORK/parts.json"
    echo >>"$WORK/parts.json"
    [[ $name == build && $state != passed ]] && tail -n 30 "$log"
    [[ $name == build && $state == passed ]] || {
        printf '\n== %s: %s\n' "$name" "$state"
        tail -n $([[ $name == build ]] && echo 30 || echo 150) "$log" | grep -v '^target: '
    } >>"$WORK/logs"
}

passed=0 failed=0 not_here=0
touch "$WORK/summary" "$WORK/targets" "$WORK/targets.json" "$WORK/parts.json" "$WORK/logs"
for part in "${parts[@]}"; do
    [[ -n $file || ! -x $B/bench/gpu_facts ]] || describe_machine
    hold_gpus
    run_part "$part" $((slower * $(grep "^$part|" <<<"$table" | cut -d'|' -f2)))
    [[ -n $file ]] || describe_machine # only now, since it runs a program that `build` makes
    write_results
done
printf '\n'
cat "$WORK/summary" "$WORK/targets"
echo "results: $file.json and .txt"
last_line
((failed == 0 && passed > 0))
