#!/usr/bin/env bash
# Runs test programs one after another and sums what they say: scripts/run_tests.sh BUILD_DIR PROGRAM...
#
# A program's output goes to a file beside it and is shown only if something failed; skipped tests are always named. A
# program that crashes, hangs, runs no test, or lets a sanitizer speak counts as one failure more, and the others still
# run. The last line is `N passed, N failed` (and `, N skipped`); the exit status is 1 on any failure.
# TEST_JOBS (default 2): how many tests Criterion runs at once. Each may start several ranks of its own.
set -u
build=$1
shift
limit=900 # seconds a program may take; single tests have timeouts of their own

# A race ends the process that has it. Ranks fork from threaded processes and start threads themselves.
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:exitcode=66:die_after_fork=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

# ThreadSanitizer of gcc 12 and 13 cannot start ("unexpected memory mapping") where addresses are drawn from more than 28
# bits, as on newer kernels. There the programs run without address randomisation, if the system lets us.
prefix=()
if [[ $build == *thread* && $(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28) -gt 28 ]] && setarch -R true 2>/dev/null; then
    prefix=(setarch -R)
fi

passed=0 failed=0 skipped=0
for program in "$@"; do
    name=${program##*/}
    log=$program.log
    start=$(date +%s%N)
    # To a file, not a pipe: a process a test left behind would hold the pipe open, and us with it.
    timeout -k 5 $limit "${prefix[@]}" "$program" "-j${TEST_JOBS:-2}" >"$log" 2>&1 </dev/null
    status=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    # Criterion puts colours around its words when it thinks there is a terminal.
    plain=$(sed 's/\x1b\[[0-9;]*m//g' "$log")
    numbers=$(sed -n 's/.*Synthesis: Tested: [0-9]* | Passing: \([0-9]*\) | Failing: \([0-9]*\) | Crashing.*/\1 \2/p' <<<"$plain" | tail -1)
    read -r ok bad <<<"${numbers:-0 0}"
    skip=$(grep -c '^\[SKIP\]' <<<"$plain")

    note=
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

    printf '%-28s %4d passed, %d failed%s  (%d.%d s)%s\n' "$name" "$ok" "$bad" "$( ((skip)) && echo ", $skip skipped")" \
        $((ms / 1000)) $((ms % 1000 / 100)) "${note:+  $note}"
    if ((bad > 0)); then
        printf '%s\n' "$plain"
    else
        grep '^\[SKIP\]' <<<"$plain"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
done

summary="$passed passed, $failed failed"
((skipped > 0)) && summary+=", $skipped skipped"
echo "$summary"
((failed == 0 && passed > 0))
