#!/usr/bin/env bash
# Runs README's two commands on a bare Debian: tests/check_fresh.sh [SUITE]
#
# Makes a root of SUITE (bookworm, the default, or trixie) that has only make, git and certificates,
# from the package sources of this machine. There it clones the commit that is checked out here, and
# runs the commands under "Two commands" in README.md, as written. scripts/setup.sh must install
# everything else that the program and its tests need, or the test must skip with a reason. A
# developer's machine has everything, and so hides missing packages.
#
# The root is a separate folder with its own namespaces for mounts and processes, so that nothing
# stays behind. The exit status is 77 if this machine cannot make one, with the reason. The last
# line is `N passed, N failed`; each of the two commands counts as one, in addition to the tests.
set -u
cd "$(dirname "$0")/.." || exit 1
suite=${1:-bookworm}

skip() {
    echo "fresh: skipped: $*"
    exit 77
}
[[ $(id -u) == 0 ]] || skip "not root: an empty root is made by root alone"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap: scripts/setup.sh ci installs it"
unshare --mount --pid --fork true 2>/dev/null || skip "this system allows no new mount namespace"

# Its name may end up in messages and sockets' paths, so it is short.
work=$(mktemp -d) || exit 1
trap 'rm -rf --one-file-system "$work"' EXIT

# This machine's package sources, with SUITE in place of its own suite.
here=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
mkdir "$work/sources"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    grep -qsE "(^|[[:space:]])$here([[:space:]]|$)" "$file" || continue
    sed -E "s/(^|[[:space:]])$here($|[[:space:]-])/\1$suite\2/g" "$file" \
        >"$work/sources/${file##*/}"
done
[[ -n $(ls "$work/sources") ]] || skip "no package source of $here in /etc/apt"

start=$SECONDS
mmdebstrap --quiet --variant=minbase --include=make,git,ca-certificates "$suite" "$work/tree" \
    "$work"/sources/* || {
    echo "fresh: no root of $suite could be made"
    echo "0 passed, 1 failed"
    exit 1
}
# How this machine reaches its package sources.
cp /etc/resolv.conf /etc/hosts "$work/tree/etc/"
cp -r /etc/apt/apt.conf.d/. "$work/tree/etc/apt/apt.conf.d/"
[[ -e /etc/ssl/certs/ca-certificates.crt ]] &&
    cp /etc/ssl/certs/ca-certificates.crt "$work/tree/etc/ssl/certs/"
echo "fresh: a bare $suite in $((SECONDS - start)) s: $(ls "$work/tree/var/lib/dpkg/info/"*.list |
    wc -l) packages"

git clone --quiet --no-hardlinks . "$work/tree/duet" || exit 1

# Runs a line in the root, as a new user's shell would.
inside() {
    unshare --mount --pid --fork --kill-child bash -c '
        mount --make-rprivate / &&
            mount -t proc proc "$1/proc" &&
            mount -t tmpfs tmpfs "$1/dev" && mkdir "$1/dev/shm" "$1/dev/pts" &&
            mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts" &&
            ln -s pts/ptmx "$1/dev/ptmx" && ln -s /proc/self/fd "$1/dev/fd" &&
            ln -s fd/0 "$1/dev/stdin" && ln -s fd/1 "$1/dev/stdout" && ln -s fd/2 "$1/dev/stderr" &&
            for device in null zero full random urandom tty; do
                : >"$1/dev/$device" && mount --bind "/dev/$device" "$1/dev/$device" || exit 1
            done &&
            exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
                chroot "$1" bash -c "cd /duet && $2"' fresh "$work/tree" "$1" </dev/null
}

# The commands as README shows them: the block after the heading, without its comments.
mapfile -t commands < <(sed -n '/^## Two commands/,/^## /p' README.md |
    sed -nE 's/^    (make [^#]*[^# ]) *(#.*)?$/\1/p')
if ((${#commands[@]} != 2)); then
    echo "fresh: README.md shows ${#commands[@]} commands under 'Two commands', not 2"
    echo "0 passed, 1 failed"
    exit 1
fi

passed=0 failed=0
for command in "${commands[@]}"; do
    start=$SECONDS
    echo "fresh: $command"
    inside "$command" 2>&1 | tee "$work/log"
    status=${PIPESTATUS[0]}
    echo "fresh: $command: status $status, $((SECONDS - start)) s"
    if ((status == 0)); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$work/log" | tail -1)
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    fi
done
echo "$passed passed, $failed failed"
((failed == 0))
