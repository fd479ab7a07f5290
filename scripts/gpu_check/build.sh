# Builds everything that the other parts run. The tests are built without Criterion, since tests
# with it do not run under compute-sanitizer.
. scripts/gpu_check/common.sh
# The flags of the make that started this contain its job server, which cannot be used from here.
MAKEFLAGS=$(sed -E 's/(^| )(-j[0-9]*|--jobserver[^ ]*)//g' <<<"${MAKEFLAGS-}")
export MAKEFLAGS
make -k -j"$(jobs_here)" B="$B" ${EMULATED:+EMULATION=1} HAVE_CRITERION= all gpu-check-programs
status=$?
"$B/bench/gpu_facts" || exit 1
if ((status == 0)); then
    echo "note: $("$B/bench/gpu_facts" | sed -n 's/^built: //p')"
else
    echo "note: not all could be built: see what make says"
fi
exit $status
