# The tests that use a GPU where there is one. make gpu-check sets TESTS to their names.
. scripts/gpu_check/common.sh
programs=()
for name in ${TESTS-}; do
    if [[ -x $B/tests/$name ]]; then
        programs+=("$B/tests/$name")
    else
        check off "$name" "is not built"
    fi
done
((${#programs[@]})) || { echo "no test is built"; exit 1; }
export TEST_SECONDS=$((LIMIT > 20 ? LIMIT - 10 : 10)) # before this part is cut off
# Programs that share a GPU take turns on it, ranks of one test too, and their deadlines run on
# meanwhile: a test that takes 5 s under MPS took more than a minute beside others in turns. Tests
# that kill ranks may end other clients of MPS, so one program runs at a time.
gpus=$("$B/bench/gpu_facts" 2>/dev/null | grep -c '^gpu ')
jobs=$((gpus < 1 ? 1 : gpus > 4 ? 4 : gpus))
how="in turns"
if [[ -e $mps_pipes/control ]]; then
    how="under MPS"
elif [[ -z $EMULATED && $device == cuda ]] && command -v nvidia-cuda-mps-control >/dev/null; then
    trap end_mps EXIT
    start_mps && how="under MPS"
fi
echo "$jobs at a time, on $gpus GPUs, $how"
export DUET_TEST_SHORT=1
TEST_JOBS=$jobs scripts/run_tests.sh "$B" "${programs[@]}" | tee "$WORK/tests.out"
status=${PIPESTATUS[0]}
echo "note: $(tail -n 1 "$WORK/tests.out")"
((status == 0 && bad == 0))
