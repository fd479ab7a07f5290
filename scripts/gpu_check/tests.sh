# The tests that look at a GPU where there is one. TESTS names them; make gpu-check sets it.
. scripts/gpu_check/common.sh
programs=()
for name in ${TESTS-}; do
    if [[ -x $B/tests/$name ]]; then programs+=("$B/tests/$name"); else check off "$name" "is not built"; fi
done
((${#programs[@]})) || { echo "no test is built"; exit 1; }
export TEST_SECONDS=$((LIMIT > 20 ? LIMIT - 10 : 10)) # so that what hangs is named, and the others count
TEST_JOBS=4 scripts/run_tests.sh "$B" "${programs[@]}" | tee "$WORK/tests.out"
status=${PIPESTATUS[0]}
echo "note: $(tail -n 1 "$WORK/tests.out")"
((status == 0 && bad == 0))
