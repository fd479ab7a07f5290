#!/usr/bin/env bash
# Runs test programs and adds up their results: scripts/run_tests.sh BUILD_DIR PROGRAM...
#
# TEST_JOBS programs run at the same time (default: the number of cores plus four, because many wait
# more than they compute). Each runs its tests one after another. Long programs start first, because
# the one that starts last determines the end. When a program ends, one line is printed with its
# time and the CPU time of its processes.
#
# A program's output goes to a file next to it and is shown only if something failed. The reasons
# for skipped tests are printed at the end, one per line. A program that crashes, hangs, runs no
# test or gets a sanitizer's report counts as one more failure, and the others still run. All
# failures are listed again at the end. The last line is `N passed, N failed`, with `, N skipped` if
# tests were skipped; the exit status is 1 on any failure.
set -u
limit=900 # seconds for one program; single tests have timeouts of their own
# TEST_SECONDS limits all programs together: a program for which no time is left counts as a
# failure.

# A race ends the process in which it is found. Ranks are forked from processes that have threads,
# and start threads themselves.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:exitcode=66:die_after_fork=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

sanitizer_report='ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|: runtime error: '

# Runs one program. Writes its line, and anything else to show, to PROGRAM.report, and "passed
# failed skipped" to PROGRAM.counts; then prints its name.
run_one() { # PROGRAM
    local program=$1 name=${1##*/tests/} log=$1.log prefix=()
    local start status ms cpu plain numbers ok bad skip note=
    if [[ -n ${TESTS_END-} ]]; then
        limit=$((TESTS_END - $(date +%s)))
        ((limit > 0)) || limit=1
    fi
    # ThreadSanitizer of gcc 12 and 13 cannot start ("unexpected memory mapping") if the kernel
    # randomises more than 28 bits of an address. There the programs run without randomisation, if
    # the system allows it.
    if [[ $program == *thread* ]] &&
        (($(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) > 28)) &&
        setarch -R true 2>/dev/null; then
        prefix=(setarch -R)
    fi
    start=$(date +%s%N)
    # Output goes to a file, since a process that a test left behind would keep a pipe open.
    timeout -k 5 $limit "${prefix[@]}" "$program" -j1 >"$log" 2>&1 </dev/null
    status=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    times >"$program.counts" # its second line has the times of ended child processes
    cpu=$(awk -F'[ms ]+' 'NR == 2 { printf "%.1f", 60 * ($1 + $3) + $2 + $4 }' "$program.counts")
    # Criterion may print in colour.
    plain=$(sed 's/\x1b\[[0-9;]*m//g' "$log")
    numbers=$(sed -nE 's/.*Synthesis: .* Passing: ([0-9]+) \| Failing: ([0-9]+) .*/\1 \2/p' \
        <<<"$plain" | tail -1)
    read -r ok bad <<<"${numbers:-0 0}"
    skip=$(grep -c '^\[SKIP\]' <<<"$plain")

    if [[ -z $numbers ]]; then
        note="ended with status $status without a summary"
        [[ $status == 124 || $status == 137 ]] && note="ran past $limit s"
    elif ((status != 0 && bad == 0)); then
        note="ended with status $status"
    elif ((ok + bad + skip == 0)); then
        note="ran no test"
    elif ((bad == 0)) && grep -qE "$sanitizer_report" <<<"$plain"; then
        note="a sanitizer reported, see below"
    fi
    [[ -n $note ]] && bad=$((bad + 1))
    {
        printf '%-28s %4d passed, %d failed%s  (%d.%d s, CPU %s s)%s\n' "$name" "$ok" "$bad" \
            "$( ((skip)) && echo ", $skip skipped")" $((ms / 1000)) $((ms % 1000 / 100)) "$cpu" \
            "${note:+  $note}"
        ((bad > 0)) && printf '%s\n' "$plain"
    } >"$program.report"
    sed -n 's/^\[SKIP\] [^ ]*: //p' <<<"$plain" >"$program.skips"
    echo "$ok $bad $skip" >"$program.counts"
    echo "$program"
}

# Reads the names of programs that have ended and prints their reports, then the sum.
sum_up() { # HOW_MANY
    local passed=0 failed=0 skipped=0 ended=0 program ok bad skip summary failures= skips=
    while read -r program; do
        cat "$program.report"
        read -r ok bad skip <"$program.counts"
        passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
        ended=$((ended + 1))
        ((bad > 0)) &&
            failures+=$(sed -n '1p; /^\[FAIL\]/p; /^\[----\]/p' "$program.report" | head -12)$'\n'
        ((skip > 0)) && skips+=$(cat "$program.skips")$'\n'
        rm -f "$program.report" "$program.counts" "$program.skips"
    done
    if ((ended < $1)); then
        echo "$(($1 - ended)) of $1 programs were not run to their end"
        failed=$((failed + $1 - ended))
    fi
    [[ -n $skips ]] && sort <<<"${skips%$'\n'}" | uniq -c | sort -rn |
        sed -E 's/^ *([0-9]+) /skipped \1: /'
    [[ -n $failures ]] && printf 'All failures:\n%s' "$failures" # the reports are far above
    summary="$passed passed, $failed failed"
    ((skipped > 0)) && summary+=", $skipped skipped"
    echo "$summary"
    ((failed == 0 && passed > 0))
}

if [[ $1 == --one ]]; then
    run_one "$2"
    exit
fi
shift # the build folder: the paths of the programs contain it
[[ -n ${TEST_SECONDS-} ]] && export TESTS_END=$(($(date +%s) + TEST_SECONDS))

# The order: 0 the longest programs, 1 tests of the command, 2 tests that train or wait, 3 the rest;
# within a class as given.
order='{ class = 3 }
/test_(kernels|golden)|\/(dp|ddp|train|allreduce|comm|cuda|doctor)\/test_/ { class = 2 }
/\/cli\/test_/ { class = 1 }
/\/cli\/test_(same_bits|end|batch_norm)$/ { class = 0 }
{ print class, NR, $0 }'
printf '%s\n' "$@" |
    awk "$order" |
    sort -n -k1,1 -k2,2 | cut -d' ' -f3- |
    xargs -P "${TEST_JOBS:-$(($(nproc) + 4))}" -I{} "$0" --one {} |
    sum_up $#
