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
TEST_JOBS=4 scripts/run_tests.sh "$B" "${programs[@]}" | tee "$WORK/tests.out"
status=${PIPESTATUS[0]}
echo "note: $(tail -n 1 "$WORK/tests.out")"
((status == 0 && bad == 0))
