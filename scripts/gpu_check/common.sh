# Words that the parts of gpu_check.sh share; read by `.`. B is the build folder, WORK the folder of this run, which is
# removed in the end, EMULATED not empty where CUDA is emulated, LIMIT the seconds after which a part is cut off.
#
# A part prints what happened; its lines `note: ...` (the last one) and `target: WHAT | WANTED | MEASURED | reached` go into
# the summary. It leaves $WORK/PART.json (JSON of a program, whole) and, by `check`, $WORK/PART.checks. It ends with
# 0, with 77 where this machine has not what it needs, or with anything else.
PART=$(basename "$0" .sh)
duet=$B/duet
device=${GPU_CHECK_DEVICE:-cuda} # cpu: the parts themselves are tried, on emulated devices (tests/scripts/test_gpu_check.c)

stop() {
    echo "gpu-check: $*" >&2
    exit 2
}

# A driver that does not answer holds nobody up for long.
soon() { timeout -k 5 20 "$@"; }

not_here() {
    echo "note: $*"
    exit 77
}

# A string of JSON. What is no plain ASCII becomes a question mark, control characters spaces.
json_text() {
    local text
    text=$(printf '%s' "$1" | LC_ALL=C tr '\200-\377' '?' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g; s/$/\\n/' | LC_ALL=C tr -d '\n' | LC_ALL=C tr '\001-\037\177' ' ')
    printf '"%s"' "${text%\\n}"
}

# The lines of a file, with commas between.
json_join() { # FILE
    [[ -s $1 ]] && sed '$!s/$/,/' "$1"
}

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# Cores, but no more than a build or a set of tests can use; nproc may be missing or count a whole server.
jobs_here() {
    local n
    n=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 4)
    echo $((n > 32 ? 32 : n))
}

# One thing looked at: printed, kept for the JSON, counted.
bad=0 good=0
check() { # ok|off NAME WORDS
    if [[ $1 == ok ]]; then good=$((good + 1)); else bad=$((bad + 1)); fi
    printf '%-4s %-46s %s\n' "$1" "$2" "$3"
    echo "{\"check\": $(json_text "$2"), \"ok\": $([[ $1 == ok ]] && echo true || echo false), \"words\": $(json_text "$3")}" >>"$WORK/$PART.checks"
}
# The end of a part that is made of checks.
conclude() {
    echo "note: $good ok, $bad off"
    ((bad == 0 && good > 0))
}

# Pictures in files, drawn once for all parts: `full` as large as Fashion-MNIST, `small` for runs that shall be short.
pictures() { # full|small
    local folder=$WORK/$1 count="60000 10000"
    [[ $1 == small ]] && count="2000 200"
    [[ -n $EMULATED ]] && count="96 32" # the CPU does the GPU's work
    [[ -e $folder/t10k-labels-idx1-ubyte ]] || "$B/bench/make_data" "$folder" $count || exit 1
    echo "$folder"
}
