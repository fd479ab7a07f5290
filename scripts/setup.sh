#!/usr/bin/env bash
# Installs what Duet needs and this machine lacks: scripts/setup.sh [demo|test|ci]
#
# It runs on Debian 12 and 13. It queries the package database, prints what it installs and why, and
# ends at once if nothing is missing. If a package cannot be installed, it says what will not work;
# only a missing compiler or make is an error. `test`, the default, adds the packages for tests, and
# `ci` those for CI. Without apt-get it says what to install.
set -u
purpose=${1:-test}
case $purpose in
demo | test | ci) ;;
*)
    echo "setup.sh: unknown purpose: $purpose: give demo, test or ci" >&2
    exit 2
    ;;
esac

# package | what it is for | what does not work without it ("!": nothing works)
table="gcc|the C compiler|!
libc6-dev|the C library's headers|!
make|runs the Makefile|!
pkg-config|lets your own programs find libduet|pkg-config cannot tell your programs where libduet is
zlib1g-dev|reads the gzip files of the data sets|data sets must be unpacked by hand (gunzip)
dataset-fashion-mnist|60,000 training and 10,000 test pictures|use 'make data' or --data-dir DIR"
[[ $purpose != demo ]] && table+="
libopenmpi-dev|moves bytes between machines|jobs run on one machine only
openmpi-bin|starts ranks on several machines|nothing starts ranks on several machines
libcriterion-dev|the test framework|the tests run in the small runner of tests/harness/harness.h
python3-numpy|the arrays of the Python package|the package is not tested"

[[ $purpose == ci ]] && table+="
clang-format|checks the format of C files|the format is not checked
mmdebstrap|makes a bare Debian to try README in|README is not tried on a bare machine
clang|a second compiler, and libFuzzer|no build with clang, and nothing is fuzzed
gcc-aarch64-linux-gnu|compiles for Arm processors|nothing is tried for Arm
libc6-dev-arm64-cross|the C library for Arm|nothing is tried for Arm
qemu-user-static|runs programs for Arm|what is compiled for Arm is not run
libclang-rt-dev|libFuzzer and the sanitizers of clang|nothing is fuzzed
iproute2|makes the machines of tests/check_machines.sh|no job of several machines is tried
librsvg2-bin|turns the picture of duet collective into PNG|its tests see SVG alone
cmark-gfm|makes the worksheet of the lesson|make docs leaves out the worksheet
python3-nbclient|runs the notebooks of examples/notebooks|the notebooks are not tested
python3-ipykernel|the Python in which notebooks run|the notebooks are not tested"

# A tool counts as present wherever it came from (pkgconf, a gcc built by hand).
present() { # PACKAGE INSTALLED-LIST
    case $1 in
    gcc) command -v cc >/dev/null && command -v objcopy >/dev/null ;;
    make | pkg-config) command -v "$1" >/dev/null ;;
    libc6-dev) grep -qx "$1" <<<"$2" || [[ -e /usr/include/stdio.h ]] ;;
    *) grep -qx "$1" <<<"$2" ;;
    esac
}

# Sets `missing` to the packages of the table that are not installed.
find_missing() {
    local installed package rest
    missing=()
    # dpkg-query reports names that it does not know on stderr and leaves them out of the list.
    installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' \
        $(cut -d'|' -f1 <<<"$table") 2>/dev/null | sed -n 's/ installed$//p')
    while IFS='|' read -r package rest; do
        present "$package" "$installed" || missing+=("$package")
    done <<<"$table"
}

why() { grep "^$1|" <<<"$table" | cut -d'|' -f2; }
without() { grep "^$1|" <<<"$table" | cut -d'|' -f3; }

find_missing
((${#missing[@]} == 0)) && exit 0

if ! command -v apt-get >/dev/null; then
    # Other systems name their packages differently, so only the essential tools are looked for.
    if command -v cc >/dev/null && command -v make >/dev/null && command -v objcopy >/dev/null; then
        for package in zlib1g-dev dataset-fashion-mnist \
            libcriterion-dev; do
            grep -q "^$package|" <<<"$table" || continue
            echo "setup: no apt-get here: without $package ($(why $package)): $(without $package)"
        done
        exit 0
    fi
    echo "setup: no apt-get here: install a C compiler with binutils, the C library's headers and" \
        "make by hand" >&2
    exit 1
fi

root=()
if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: not root and no sudo: as root, run: apt-get install ${missing[*]}" >&2
        root=(false)
    elif [[ -t 0 ]]; then
        root=(sudo)
    else
        root=(sudo -n) # nobody could type the password
    fi
fi
apt() {
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 "$@"
}
install() { apt install -y --no-install-recommends "$@"; }

for package in "${missing[@]}"; do
    echo "setup: installing $package: $(why "$package")"
done
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
if [[ ${root[*]} != false ]]; then
    apt update >>"$log" 2>&1 ||
        echo "setup: apt-get update failed: going on with the lists that are there"
    # If that fails, one by one: a package that cannot be installed must not stop the others.
    install "${missing[@]}" >>"$log" 2>&1 ||
        for package in "${missing[@]}"; do install "$package" >>"$log" 2>&1; done
fi

find_missing
((${#missing[@]} == 0)) && exit 0
status=0
grep -E '^(E|Err|sudo):' "$log" | sort -u | tail -5 >&2
for package in "${missing[@]}"; do
    lost=$(without "$package")
    if [[ $lost == '!' ]]; then
        echo "setup: cannot install $package ($(why "$package")):" \
            "nothing can be built without it: install it by hand" >&2
        status=1
    else
        echo "setup: cannot install $package ($(why "$package")): $lost" >&2
    fi
done
exit $status
