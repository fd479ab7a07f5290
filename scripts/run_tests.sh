#!/usr/bin/env bash
# Runs test programs and sums what they say: scripts/run_tests.sh BUILD_DIR PROGRAM...
#
# TEST_JOBS (default 3: many wait more than they work) programs run side by side, each its tests one after another; a test
# may start several ranks of its own. The long ones begin: what starts last decides when all is done. The lines come in the
# order in which programs end.
# A program's output goes to a file beside it and is shown only if something failed; skipped tests are always named. A
# program that crashes, hangs, runs no test, or lets a sanitizer speak counts as one failure more, and the others still
# run. What failed is named again at the end. The last line is `N passed, N failed` (and `, N skipped`); the exit status
# is 1 on any failure.
set -u
limit=900 # seconds a program may take; single tests have timeouts of their own
# TEST_SECONDS, where it is set, is what all may take together: a program that has no more time is one failure.

# A race ends the process that has it. Ranks fork from threaded processes and start threads themselves.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:exitcode=66:die_after_fork=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# One program. Its line, and what else there is to show, go to PROGRAM.report, "passed failed skipped" to PROGRAM.counts;
# its name on standard output says that they are there.
run_one() { # PROGRAM
    local program=$1 name=${1##*/tests/} log=$1.log prefix=() start status ms plain numbers ok bad skip note=
    if [[ -n ${TESTS_END-} ]]; then
        limit=$((TESTS_END - $(date +%s)))
        ((limit > 0)) || limit=1
    fi
    # ThreadSanitizer of gcc 12 and 13 cannot start ("unexpected memory mapping") where addresses are drawn from more than
    # 28 bits, as on newer kernels. There the programs run without address randomisation, if the system lets us.
    if [[ $program == *thread* && $(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) -gt 28 ]] && setarch -R true 2>/dev/null; then
        prefix=(setarch -R)
    fi
    start=$(date +%s%N)
    # To a file, not a pipe: a process a test left behind would hold the pipe open, and us with it.
    timeout -k 5 $limit "${prefix[@]}" "$program" -j1 >"$log" 2>&1 </dev/null
    status=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    # Criterion puts colours around its words when it thinks there is a terminal.
    plain=$(sed 's/\x1b\[[0-9;]*m//g' "$log")
    numbers=$(sed -n 's/.*Synthesis: Tested: [0-9]* | Passing: \([0-9]*\) | Failing: \([0-9]*\) | Crashing.*/\1 \2/p' <<<"$plain" | tail -1)
    read -r ok bad <<<"${numbers:-0 0}"
    skip=$(grep -c '^\[SKIP\]' <<<"$plain")

    if [[ -z $numbers ]]; then
        note="ended with status $status without a summary"
        [[ $status == 124 || $status == 137 ]] && note="ran past $limit s"
    elif ((status != 0 && bad == 0)); then
        note="ended with status $status"
    elif ((ok + bad + skip == 0)); then
        note="ran no test"
    elif ((bad == 0)) && grep -qE 'ERROR: (Address|Leak|Thread)Sanitizer|WARNING: ThreadSanitizer|: runtime error: ' <<<"$plain"; then
        note="a sanitizer reported, see below"
    fi
    [[ -n $note ]] && bad=$((bad + 1))
    {
        printf '%-28s %4d passed, %d failed%s  (%d.%d s)%s\n' "$name" "$ok" "$bad" "$( ((skip)) && echo ", $skip skipped")" \
            $((ms / 1000)) $((ms % 1000 / 100)) "${note:+  $note}"
        if ((bad > 0)); then
            printf '%s\n' "$plain"
        else
            grep '^\[SKIP\]' <<<"$plain"
        fi
    } >"$program.report"
    echo "$ok $bad $skip" >"$program.counts"
    echo "$program"
}

# Reads the names of programs that have ended.
sum_up() { # HOW_MANY
    local passed=0 failed=0 skipped=0 ended=0 program ok bad skip summary failures=
    while read -r program; do
        cat "$program.report"
        read -r ok bad skip <"$program.counts"
        passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip)) ended=$((ended + 1))
        ((bad > 0)) && failures+=$(sed -n '1p; /^\[FAIL\]/p; /^\[----\]/p' "$program.report" | head -12)$'\n'
        rm -f "$program.report" "$program.counts"
    done
    if ((ended < $1)); then
        echo "$(($1 - ended)) of $1 programs were not run to their end"
        failed=$((failed + $1 - ended))
    fi
    [[ -n $failures ]] && printf 'What failed, once more:\n%s' "$failures" # the reports lie far above
    summary="$passed passed, $failed failed"
    ((skipped > 0)) && summary+=", $skipped skipped"
    echo "$summary"
    ((failed == 0 && passed > 0))
}

if [[ $1 == --one ]]; then
    run_one "$2"
    exit
fi
shift # the build folder: its programs carry its name
[[ -n ${TEST_SECONDS-} ]] && export TESTS_END=$(($(date +%s) + TEST_SECONDS))

# 0: the longest, 1: the tests of the command, 2: those that train or wait in themselves, 3: the rest; then as given.
printf '%s\n' "$@" |
    awk '{ print /\/cli\/test_same_bits/ ? 0 : /\/cli\/test_/ ? 1 : /test_(kernels|golden|gpu_check)|\/(dp|ddp|train|allreduce|comm|cuda|doctor)\/test_/ ? 2 : 3, NR, $0 }' |
    sort -n -k1,1 -k2,2 | cut -d' ' -f3- |
    xargs -P "${TEST_JOBS:-3}" -I{} "$0" --one {} |
    sum_up $#
