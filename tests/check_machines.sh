#!/usr/bin/env bash
# Tests several machines on this one: tests/check_machines.sh [BUILD_DIR [TEST...]]
#
# Each machine is a network namespace with a veth pair to one bridge, its own host name, /dev/shm
# and IPC namespace, so that MPI takes it for another host. mpirun starts ranks there; its ssh is a
# script that this one writes. Run it as root; without namespaces, mpirun or Open MPI's header it is
# skipped with the reason. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:-build}")
helper=$build/tests/group/helper_spread
shift
skip() { echo "[SKIP] check_machines.sh: $1"; echo "0 passed, 0 failed"; exit 0; }
command -v mpirun >/dev/null || skip "no mpirun: apt-get install openmpi-bin"
command -v ip >/dev/null || skip "no ip: apt-get install iproute2"
[[ -e $build/group/mpi/world.o || -e ${build%/emulation}/group/mpi/world.o ]] ||
    skip "Duet was built without MPI (libopenmpi-dev)"
[[ -x $helper ]] || skip "not built: make $helper"
work=$(mktemp -d)
net=d$$ machines=0
ip netns add "$net" 2>/dev/null || skip "network namespaces are not allowed here"

clean() {
    for ((m = 0; m < machines; m++)); do
        ip netns pids "$net-$m" | xargs -r kill -9
        ip netns del "$net-$m"
    done
    ip netns del "$net"
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# The bridge is in a namespace of its own, so nothing of this machine changes.
ip -n "$net" link add bridge type bridge && ip -n "$net" link set bridge up
for ((m = 0; m < 4; m++)); do
    ip netns add "$net-$m" && machines=$((m + 1))
    ip -n "$net" link add "v$m" type veth peer name eth0 netns "$net-$m"
    ip -n "$net" link set "v$m" master bridge up
    ip -n "$net-$m" addr add "10.77.0.$((m + 1))/24" dev eth0
    ip -n "$net-$m" link set eth0 up
    ip -n "$net-$m" link set lo up
    echo "10.77.0.$((m + 1)) m$m" >>"$work/hosts"
done
echo "127.0.0.1 localhost" >>"$work/hosts"
mkdir "$work/tmp"
# HOST COMMAND...: what ssh does for mpirun.
cat >"$work/shell" <<END
#!/usr/bin/env bash
host=\$1 && shift
exec ip netns exec "$net-\${host#m}" unshare --uts --ipc --mount bash -c "
    hostname \${NAME:-\$host}; mount --bind $work/hosts /etc/hosts
    mount -t tmpfs none /dev/shm; mount -t tmpfs none $work/tmp; export TMPDIR=$work/tmp; \$*"
END
chmod +x "$work/shell"

# on HOSTS RANKS COMMAND...: mpirun on m0. bind-to: otherwise the first ranks of all these machines
# would share core 0. keepalive: mpirun notices within seconds that a machine is gone.
on() {
    local hosts=$1 ranks=$2
    shift 2
    timeout "${LIMIT:-120}" "$work/shell" m0 "cd $PWD; mpirun --allow-run-as-root --oversubscribe \
        --bind-to none --mca plm_rsh_agent $work/shell --mca oob_tcp_keepalive_time 2 \
        --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 2 \
        -np $ranks --host $hosts $*" >"$work/out" 2>&1
}

passed=0 failed=0
verdict() { # NAME WHAT-FAILED
    if [[ -z $2 ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$1: $2:"
        tail -40 "$work/out" | sed 's/^/    /'
    fi
}
says() { grep -q -- "$1" "$work/out" || echo "it does not say '$1'"; }

two=m0:1,m1:1 pairs=m0:2,m1:2 four=m0:1,m1:1,m2:1,m3:1

test_calls() {
    local shape
    for shape in "$two 2" "$pairs 4" "$four 4"; do
        on $shape "$helper" calls
        verdict "calls on $shape" "$(
            [[ $(grep -c 'calls: well' "$work/out") == "${shape#* }" ]] || echo "not all are well")"
    done
    on "$pairs" 4 "$helper" drawn
    verdict "drawn programs" "$(
        [[ $(grep -c 'drawn: well' "$work/out") == 4 ]] || echo "not all are well")"
}

# Runs COMMAND against a background job, whose ranks run $program with a timeout of 4 s: all of them
# must end within 9 s, on all machines, with the given message.
strike() { # NAME COMMAND WHAT-IT-SAYS
    local start took left
    start=$(date +%s%N)
    eval "$2"
    wait "$job"
    took=$((($(date +%s%N) - start) / 1000000))
    for ((m = 0; m < machines; m++)); do
        left+=$(ip netns pids "$net-$m" | xargs -rI{} readlink /proc/{}/exe | grep -E 'spread|duet')
    done
    verdict "$1" "$(says "$3")$( ((took < 9000)) || echo " it took $took ms")${left:+ left: $left}"
}
victim() { # RANK MACHINE
    for pid in $(ip netns pids "$net-$2"); do
        [[ $(readlink "/proc/$pid/exe") == "$program" ]] &&
            tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" &&
            echo "$pid"
    done
}
strike_sums() { # like strike, with ranks that add up forever
    rm -f "$work/out"
    program=$helper
    on "$pairs" 4 "$helper" forever 4 &
    job=$!
    for _ in {1..150}; do
        grep -qs "they run" "$work/out" && break
        sleep 0.1
    done
    strike "$@"
}

test_faults() {
    on "$pairs" 4 "$helper" sizes
    verdict "one expects more" "$(says 'rank 0 sends rank 3 7 elements, but that rank expects 8')"
    on "$pairs" 4 "$helper" late
    verdict "a late rank" "$(says 'Rank 3 failed to pass monitoredBarrier')"
    on "$pairs" 4 "$helper" absent 4
    verdict "a rank that does not come" "$(says 'MPI: not all ranks have joined after 4 s')"
    strike_sums "a killed rank" 'kill -9 $(victim 3 1)' \
        'process rank 3 .* on node m1 exited on signal 9'
    strike_sums "a stopped rank" 'kill -STOP $(victim 3 1)' 'rank 3 (\?on m1)\?.* 4 s'
    strike_sums "a link that is down" "ip -n $net-1 link set eth0 down" \
        'rank [23] (\?on m1\|Remote daemon: .* on node m1'
    ip -n "$net-1" link set eth0 up
    NAME=same on "$two" 2 "$helper" calls
    verdict "machines of one name" "$(says 'are on two machines, which are both called same')"
    local on_m1='[[ $(hostname) == m1 ]] && exec '"$work/other"
    echo "$on_m1 \"\$@\"; exec $build/duet \"\$@\"" >"$work/two"
    # the compiler may have turned the text into numbers
    LC_ALL=C sed 's/0\.3\./0.2./g' "$build/duet" >"$work/other" && chmod +x "$work/other"
    on "$two" 2 bash "$work/two" train --mode ddp --dataset synthetic --steps 1
    verdict "another version" "$(says 'rank 1 on m1 runs 0.2.0: install the same')"
    printf '#!/bin/sh\nexec %s "$@" --dataset %s\n' "$build/duet" random >"$work/other"
    echo "$on_m1 \"\$@\"; exec $build/duet \"\$@\" --dataset synthetic" >"$work/two"
    on "$two" 2 bash "$work/two" train --mode ddp --steps 1
    verdict "other data" "$(says 'rank 1 on m1 reads different data')"
    local lines wrong="$build/duet train --mode ddp --dataset synthetic --steps 1"
    echo "(( OMPI_COMM_WORLD_RANK == 1 )) && exec $wrong --no-such; exec $wrong" >"$work/two"
    on "$pairs" 4 bash "$work/two"
    verdict "an error of one rank" "$(says 'unknown option: --no-such')"
    # mpirun has 10 s to end the later ranks of a machine: a busy computer may need another try
    for _ in 1 2 3; do
        on "$pairs" 4 "$wrong" --no-such
        lines=$(grep -c 'unknown option: --no-such' "$work/out")
        [[ $lines == [12] ]] && break
    done
    verdict "an error of all, once a machine" "$([[ $lines == [12] ]] || echo "$lines times")"
}

small="--model lenet --dataset synthetic --batch-size 64 --virtual-devices 4"

# At a random moment a rank or a link of a training run dies. All ranks must end in time, and the
# checkpoint must continue, on another number of ranks, with the bits of an undisturbed run.
# STRIKES: how often.
test_strikes() {
    local i rank machine late=0 steps="train --mode ddp ${small/synthetic/random} --steps 400"
    program=$build/duet
    "$program" ${steps/ddp/single} --quiet --save "$work/whole" >"$work/out" 2>&1
    for ((i = 0; i < ${STRIKES:-4}; i++)); do
        rank=$((RANDOM % 4)) machine=$((rank / 2))
        rm -f "$work/half"
        on "$pairs" 4 "$program" $steps --timeout 4 --checkpoint "$work/half" \
            --checkpoint-every 10 &
        job=$!
        # the first strike comes at any time, the others after a checkpoint, which is resumed
        for _ in {1..200}; do
            [[ $(victim $rank $machine) && (i -eq 0 || -e $work/half) ]] && break
            sleep 0.1
        done
        # on a busy computer the ranks may take longer than the timeout to join: try again
        if grep -qs 'not all ranks have joined' "$work/out" && ((late++ < 20)); then
            wait "$job"
            i=$((i - 1))
            continue
        fi
        sleep "0.$((RANDOM % 10))"
        [[ $(victim $rank $machine) ]] || verdict "$i: a strike" "rank $rank is gone before it"
        case $((i % 4)) in
        0) strike "$i: rank $rank is killed" 'victim $rank $machine | xargs -r kill -9' . ;;
        1) strike "$i: rank $rank is stopped" 'victim $rank $machine | xargs -r kill -STOP' . ;;
        2) strike "$i: m$machine has no link" "ip -n $net-$machine link set eth0 down" . ;;
        3) strike "$i: rank $rank is asked to stop" 'victim $rank $machine | xargs -r kill' \
            'ended by signal 15 (Terminated) after [0-9]* steps' ;;
        esac
        ip -n "$net-$machine" link set eth0 up
        [[ -e $work/half ]] || continue
        on "$two" 2 "$program" $steps --resume "$work/half" --save "$work/resumed"
        verdict "$i: resumed" "$(cmp "$work/resumed" "$work/whole" 2>&1)"
    done
}

test_train() {
    local shape
    for shape in "$two 2" "$pairs 4" "$four 4"; do
        on $shape "$build/duet" compare $small --steps 12 --optimizer adam
        verdict "compare on $shape" "$(says 'DDP = single: identical to the bit after 12 steps')"
    done
    on "$pairs" 4 "$build/duet" compare --model resnet18 --dataset random --steps 3 \
        --batch-size 16 --sync-bn
    verdict "SyncBatchNorm" "$(says 'DDP = single: identical to the bit after 3 steps')"
    on "$pairs" 4 "$build/duet" compare $small --steps 12 --optimizer adam --modes single,fsdp \
        --shard parameters
    verdict "shards" "$(says 'FSDP = single: identical to the bit after 12 steps')"
    on "$pairs" 4 "$build/duet" profile $small --steps 4
    local bytes='1: 2 devices  *0.986 MiB  *0.986 MiB  *505 KiB'
    verdict "profile" "$(says "m$bytes")"
    "$build/duet" profile $small --devices 4 --steps 4 --gpu v100 --machine dgx1 --nodes 2 \
        >"$work/out" 2>&1
    verdict "the same job on modelled machines" "$(says "dgx1 $bytes")"
    on "$pairs" 4 "$build/duet" train --mode ddp $small --steps 6 --checkpoint "$work/half"
    on "$two" 2 "$build/duet" train --mode ddp $small --steps 12 --resume "$work/half" \
        --save "$work/resumed"
    "$build/duet" train --mode single $small --steps 12 --quiet --save "$work/single"
    verdict "resumed on another number of ranks" "$(cmp "$work/resumed" "$work/single" 2>&1)"
    on "$pairs" 4 "$build/examples/convnet_mnist" --num-machines 2 --num-processes 2 2 synthetic 3
    grep -E '^[0-9]+,' "$work/out" >"$work/there"
    "$build/examples/convnet_mnist" 4 synthetic 3 2>"$work/out" | grep -E '^[0-9]+,' >"$work/here"
    verdict "the text's ConvNet" "$(cmp "$work/there" "$work/here" 2>&1)"
    on "$pairs" 4 "$build/duet" train --mode dp $small --steps 1
    verdict "DataParallel" "$(says 'mode dp: it is one process, and mpirun has started 4')"
}

# Runs 200 steps, which takes minutes, so it runs only if it is named.
test_long() {
    local LIMIT=3000 shape optimizer
    for optimizer in adam sgd; do
        for shape in "$two 2" "$pairs 4" "$four 4"; do
            on $shape "$build/duet" compare $small --steps 200 --optimizer $optimizer
            verdict "lenet on $shape, $optimizer" "$(
                says 'DDP = single: identical to the bit after 200 steps')"
        done
    done
    for shape in "$two 2" "$pairs 4"; do
        on $shape "$build/duet" compare --model resnet18 --dataset random --steps 200 \
            --batch-size 4 --virtual-devices 4 --optimizer adam --sync-bn
        verdict "resnet18 on $shape" "$(
            says 'DDP = single: identical to the bit after 200 steps')"
    done
}

# GPUs of several machines, on the emulated runtime with the tests' own NCCL.
test_cuda() {
    local fake=$build/tests/stand_ins/fake_cuda_libraries/fake_nccl.so
    local gpus="DUET_NCCL=$fake EMULATED_GPUS=2 $build/duet" mode
    [[ -e $fake ]] || skip "not built: $fake"
    local steps="--model lenet --dataset synthetic --samples 96 --batch-size 32 --steps 3"
    steps+=" --device cuda --quiet"
    for mode in ddp fsdp; do
        on "$two" 2 env "$gpus" compare --modes single,$mode $steps --allreduce nccl
        verdict "$mode on two GPUs" "$(says 'single: identical to the bit after 3 steps')"
        on "$pairs" 4 env "$gpus" train --mode $mode $steps --allreduce nccl --log-loss "$work/loss"
        "$build/duet" train --mode single $steps --virtual-devices 4 --log-loss "$work/one"
        verdict "$mode on four GPUs" "$(paste -d, "$work/loss" "$work/one" | awk -F, '
            NR > 1 && ($3 - $6) ^ 2 > 1e-8 { print "loss", $3, "is not", $6 }
            END { if (NR != 4) print NR - 1, "losses" }')"
    done
    on "$pairs" 4 env "$gpus" train --mode ddp $steps
    verdict "GPUs without NCCL" "$(says 'only NCCL can do that')"
}

for name in "${@:-calls faults train strikes}"; do
    for part in $name; do "test_$part"; done
done
echo "$passed passed, $failed failed"
((failed == 0))
