# What the parts of gpu_check.sh share; they source it. In the environment:
#
#     B         the build folder
#     WORK      the folder of this run, which is removed at the end
#     EMULATED  not empty where CUDA is emulated
#     LIMIT     the seconds after which the part is cut off
#
# A part prints what happened. Its last line `note: ...` and all its lines `target: WHAT | WANTED |
# MEASURED | reached` go into the summary. It may leave $WORK/PART.json, the JSON of a program, and
# `check` adds to $WORK/PART.checks. Its exit status is 0 for success, 77 where this machine lacks
# what the part needs, and anything else for a failure.
PART=$(basename "$0" .sh)
duet=$B/duet
# cpu: the tests try the parts themselves on emulated devices (tests/scripts)
device=${GPU_CHECK_DEVICE:-cuda}

stop() {
    echo "gpu-check: $*" >&2
    exit 2
}

# Runs a command that asks the driver, which may not answer.
soon() { timeout -k 5 20 "$@"; }

not_here() {
    echo "note: $*"
    exit 77
}

# Prints a JSON string. Bytes beyond ASCII become question marks, control characters spaces.
json_text() {
    local text
    text=$(printf '%s' "$1" | LC_ALL=C tr '\200-\377' '?' |
        sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g; s/$/\\n/' |
        LC_ALL=C tr -d '\n' | LC_ALL=C tr '\001-\037\177' ' ')
    printf '"%s"' "${text%\\n}"
}

# Prints `true` if the command succeeds, else `false`.
json_yes_no() { # COMMAND...
    if "$@"; then echo true; else echo false; fi
}

# Prints the lines of a file with commas between them.
json_join() { # FILE
    [[ -s $1 ]] && sed '$!s/$/,/' "$1"
}

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# The number of cores, but no more than a build or a set of tests can use. nproc may be missing.
jobs_here() {
    local n
    n=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 4)
    echo $((n > 32 ? 32 : n))
}

# Prints the outcome of one check, keeps it for the JSON and counts it.
bad=0 good=0
check() { # ok|off NAME WORDS
    if [[ $1 == ok ]]; then good=$((good + 1)); else bad=$((bad + 1)); fi
    printf '%-4s %-46s %s\n' "$1" "$2" "$3"
    echo "{\"check\": $(json_text "$2"), \"ok\": $(json_yes_no test "$1" = ok)," \
        "\"words\": $(json_text "$3")}" >>"$WORK/$PART.checks"
}
# Ends a part that consists of checks.
conclude() {
    echo "note: $good ok, $bad off"
    ((bad == 0 && good > 0))
}

# Where the daemon of MPS listens. Under it processes run on a GPU at once and not in turns.
mps_pipes=${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}

# A daemon of MPS of this run's own; it ends with the run at the latest.
start_mps() {
    export CUDA_MPS_PIPE_DIRECTORY=$WORK/mps CUDA_MPS_LOG_DIRECTORY=$WORK/mps
    mkdir -p "$WORK/mps" || return
    if [[ -n $EMULATED ]]; then
        export EMULATED_MPS=1
        : >"$WORK/mps/control"
    else
        soon nvidia-cuda-mps-control -d
    fi
}
end_mps() {
    if [[ -z $EMULATED ]]; then
        echo quit | soon nvidia-cuda-mps-control
        for _ in {1..50}; do # until it has ended
            [[ -e $WORK/mps/control ]] && sleep 0.1
        done
    fi
    rm -f "$WORK/mps/control"
    unset EMULATED_MPS CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

# Prints the folder of a data set, which is made once for all parts: `full` is as large as
# Fashion-MNIST, `small` is for short runs.
pictures() { # full|small
    local folder=$WORK/$1 count="60000 10000"
    [[ $1 == small ]] && count="2000 200"
    [[ -n $EMULATED ]] && count="96 32" # the CPU does the work of the GPU
    [[ -e $folder/t10k-labels-idx1-ubyte ]] || "$B/bench/make_data" "$folder" $count || exit 1
    echo "$folder"
}
