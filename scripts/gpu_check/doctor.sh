# The doctor's own table and JSON; it exits with 3 where something is off.
. scripts/gpu_check/common.sh
"$duet" doctor --json "$WORK/doctor.json"
