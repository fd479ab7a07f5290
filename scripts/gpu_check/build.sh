# Builds all that the other parts run. Without Criterion, even where it is: its tests do not run under compute-sanitizer.
. scripts/gpu_check/common.sh
# The make that started this hands down its job server, which a program in between cannot use; variables stay.
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
