# Short runs under compute-sanitizer: memcheck finds accesses out of bounds, racecheck finds races
# in shared memory. It does not see races between blocks, processes and GPUs. Several run at once,
# since most of their time they load and patch kernels.
. scripts/gpu_check/common.sh
tool=$(command -v compute-sanitizer ||
    ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null) ||
    not_here "no compute-sanitizer in PATH, CUDA_HOME or /usr/local/cuda"
SECONDS_EACH=75 SECONDS_TO_TELL=10 FOUND=86
folder=$(pictures small) || exit 1
train="$duet train --device cuda --data-dir $folder --batch-size 64 --steps 3 --quiet --timeout 60"
# A test in the very process that the tool starts: its runner would fork, which the tool does not
# follow.
graph="$B/tests/cuda/test_graph --here --filter cuda_graph/"
# tool | name | command
forms="memcheck|lenet, single|$train --mode single
memcheck|convnet, single, no graph|$train --mode single --model convnet --no-graph
memcheck|lenet, DP on 2|$train --mode dp --devices 2
memcheck|lenet, DDP on 2|$train --mode ddp --devices 2
memcheck|a recorded step|${graph}a_replay_reads_what_the_step_block_says_now
memcheck|a recorded event|${graph}the_communication_stream_waits_for_this_replays_event
memcheck|a recording that breaks|${graph}a_capture_broken_behind_its_back_*
racecheck|lenet, single, no graph|$train --mode single --no-graph
racecheck|convnet, single, no graph|$train --mode single --model convnet --no-graph"

# The tests of this script choose some.
forms=$(while IFS='|' read -r which name command; do
    [[ $name =~ ${GPU_CHECK_FORMS-} ]] && echo "$which|$name|$command"
done <<<"$forms")

# Runs one form. The results of all must be printed before this part is cut off, so a form may get
# less than SECONDS_EACH, or no time at all.
run_form() { # NUMBER TOOL COMMAND...
    local number=$1 which=$2 begin=$SECONDS left=$((LIMIT - SECONDS_TO_TELL - SECONDS))
    shift 2
    ((left < SECONDS_EACH)) || left=$SECONDS_EACH
    if ((left > 0)); then
        # Every call of CUDA is looked at by the program itself, which expects some of the errors.
        [[ $which == memcheck ]] && which+=" --report-api-errors no"
        timeout -k 5 $left "$tool" --tool $which --target-processes all \
            --error-exitcode $FOUND --print-limit 20 "$@"
    else
        (exit 124)
    fi >"$WORK/form-$number" 2>&1
    echo "$? $((SECONDS - begin))" >"$WORK/form-$number.end"
}

cores=$(jobs_here) number=0
while IFS='|' read -r which name command; do
    number=$((number + 1))
    while (($(jobs -rp | wc -l) * 2 >= cores)); do wait -n; done
    run_form $number "$which" $command &
done <<<"$forms"
wait
number=0
while IFS='|' read -r which name command; do
    number=$((number + 1))
    read -r status seconds <"$WORK/form-$number.end"
    summary=$(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$WORK/form-$number" | sed 's/^=* *//')
    words="status $status, $seconds s; $(sort <<<"$summary" | uniq -c | tr -s ' \n' ' ')"
    # Without a summary the tool has checked nothing. It does not count warnings as errors.
    if ((status == 0)) && [[ -n $summary ]] &&
        ! grep -qv ' 0 errors$\| 0 hazards ' <<<"$summary"; then
        check ok "$which: $name" "$words"
    else
        ((status == 124 || status == 137)) && words="not done after $seconds s"
        check off "$which: $name" "$words"
        grep -v '^$' "$WORK/form-$number" | head -n 25
    fi
done <<<"$forms"
conclude
