#!/usr/bin/env bash
# The rules of the house that a compiler does not know: tests/check_layers.sh [BUILD_DIR]
#
#   1. arrows point down: a folder includes itself and folders of lower layers only (docs/design.md section 1)
#   2. CUDA and NCCL headers stand only below folders named cuda
#   3. no mutable globals: looked up in the objects of BUILD_DIR (default build), which must be built
#   4. no file longer than 400 lines: one file, one idea
#   5. headers that say extern "C" compile as C++: CUDA's compiler will include them (needs g++, else left out)
#
# Prints each offending line; the last line is `N passed, N failed`, one per rule. Exit status 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}

# Folders of one layer do not include each other. cli stands on all; api, the library's public face, on all but cli.
layers="base
trace
device
comm nn data
allreduce scatter_gather
syncbn models
dp ddp
report train
doctor
api
cli"

# Static variables that have to be mutable, as file:name, each with its reason. Keep it short.
allowed_statics="device/cuda/nvtx.c:nvtxGlobals_v3
device/cuda/nvtx.c:InitializeInjectionNvtx2_fnptr" # NVTX lives in its header: the table that a profiler fills in at its start

passed=0 failed=0
rule() { # NAME OFFENDING-LINES
    if [[ -z $2 ]]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "$1:"
    sed 's/^/    /' <<<"$2"
}

mapfile -t folders < <(tr ' ' '\n' <<<"$layers")
mapfile -t sources < <(find "${folders[@]}" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null | sort)

# 1. "folder/..." includes, file:line:text. A folder within a folder belongs to it: device/cuda to device.
rule "includes that point up or sideways, or not from the root" "$(
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${sources[@]}" /dev/null | awk -v layers="$layers" '
        BEGIN {
            n = split(layers, line, "\n")
            for (i = 1; i <= n; i++) {
                k = split(line[i], name, " ")
                for (j = 1; j <= k; j++) layer[name[j]] = i
            }
        }
        {
            split($0, part, ":")
            match($0, /"[^"]*"/)
            target = substr($0, RSTART + 1, RLENGTH - 2)
            from = to = part[1]
            sub(/\/.*/, "", from)
            to = target
            if (target == "duet.h" && (from == "api" || from == "cli")) next # the public header at the root
            if (!sub(/\/.*/, "", to) || !(to in layer)) print
            else if (from != to && layer[to] >= layer[from]) print
        }')"

# 2. By header name; and CUDA source only where the folder says so.
rule "CUDA outside folders named cuda" "$(
    grep -nE '#[[:space:]]*include[[:space:]]*[<"](cuda|cublas|cudnn|curand|cooperative_groups|nccl|nvtx|nvml)' \
        "${sources[@]}" /dev/null | grep -vE '^[^:]*/cuda/'
    printf '%s\n' "${sources[@]}" | grep -E '\.cuh?$' | grep -v '/cuda/')"

# 3. An OBJECT in a section that stays writable. Left out: const data (.rodata, .data.rel.ro), thread-local (type TLS).
objects=()
for source in "${sources[@]}"; do
    object=$build/${source%.c}.o
    # Of a folder cuda either absent.c or the other files are built.
    [[ $source == *.c ]] && { [[ -e $object ]] && objects+=("$object") || [[ $source == */cuda/* ]] || objects+=("missing:$object"); }
done
rule "mutable globals, or objects not built" "$(
    for object in "${objects[@]}"; do
        if [[ $object == missing:* ]]; then
            echo "${object#missing:}: not built: run make first"
            continue
        fi
        # readelf: the section's index per name, then symbols: num value size TYPE bind vis INDEX name
        { readelf -SW "$object"; readelf -sW "$object"; } | awk -v file="$(sed "s|^$build/||; s|o$|c|" <<<"$object")" '
            /^ *\[ *[0-9]+\]/ { sub(/^ *\[ */, ""); sub(/\]/, ""); section[$1] = $2 }
            $4 == "OBJECT" {
                where = $7 == "COM" ? ".bss" : section[$7]
                if (where ~ /^\.(data|bss)/ && where !~ /^\.data\.rel\.ro/) print file ":" $8
            }'
    done | grep -vxF "${allowed_statics:- }")"

# 4. tests/golden is made by other programs.
rule "files over 400 lines" "$(
    find "${folders[@]}" tests bench examples \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' \) \
        -not -path 'tests/golden/*' 2>/dev/null -exec awk 'END { if (NR > 400) print FILENAME ": " NR " lines" }' {} \;)"

# 5. All in one go: a second and not a minute. Headers below cuda/ include CUDA's own: nvcc reads them where there is one.
if command -v g++ >/dev/null; then
    rule "headers that do not compile as C++" "$(
        grep -l 'extern "C"' "${sources[@]}" duet.h 2>/dev/null | grep '\.h$' | grep -v /cuda/ | sed 's/.*/#include "&"/' |
            g++ -std=c++17 -Wall -Wextra -I. -fsyntax-only -x c++ - 2>&1 | grep -E 'error|warning')"
else
    echo "no g++ here: headers not tried as C++"
fi

echo "$passed passed, $failed failed"
((failed == 0))
