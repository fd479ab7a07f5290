#!/usr/bin/env bash
# make soak [T=60] kills, stops and pauses ranks and commands at random moments, for T seconds, each
# round with its own seed. It runs the tests of random kills, which in `make check` take a few
# seconds and always use the same seed.
#
#   tests/soak.sh BUILD SECONDS
#
# It ends with the first round that fails, and prints its seed: DUET_SEED repeats its choices.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1 end=$((SECONDS + $2)) rounds=0
while ((SECONDS < end)); do
    for test in app/cli/test_stop rpc/test_kills; do
        seed=$((RANDOM * 32768 + RANDOM)) left=$((end - SECONDS))
        if ! DUET_SEED=$seed DUET_SECONDS=$((left < 20 ? (left > 1 ? left : 1) : 20)) \
            "$build/tests/$test"; then
            echo "after $rounds rounds: DUET_SEED=$seed $build/tests/$test failed"
            exit 1
        fi
        ((++rounds))
    done
done
echo "$rounds rounds passed"
