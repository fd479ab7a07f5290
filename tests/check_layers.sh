#!/usr/bin/env bash
# Checks the project's rules that a compiler cannot check: tests/check_layers.sh [BUILD_DIR]
#
#   1. Arrows point down: a folder includes and calls only itself and folders of lower layers
#      (docs/design.md section 1), and files do not call each other in a circle. Calls are searched
#      in the objects of BUILD_DIR.
#   2. CUDA and NCCL headers are included only below folders named cuda, MPI's below folders mpi.
#   3. No mutable globals exist. They are searched in the objects of BUILD_DIR (default: build),
#      which must be built: `make lint` builds them first.
#   4. No file is longer than 400 lines: one file, one idea.
#   5. Headers with extern "C" compile as C++, because CUDA's compiler includes them. This needs
#      g++.
#   6. No line is longer than 100 columns.
#   7. C files are as clang-format leaves them (.clang-format). This needs clang-format.
#   8. Lines of the product, lines of tests, and functions of duet.h are at most the numbers in
#      tests/budget. These only ever fall: whoever adds something takes something out.
#   9. Each function of duet.h is in tests/duet/test_misuse*.c or tests/rpc/test_misuse.c.
#
# Prints each offending line. The last line is `N passed, N failed`, where each rule counts once.
# A rule whose tool is missing is named and does not count. Exit status: 1 on any failure.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build}

# Folders of one layer do not include each other. cli is on top. nn, which has the tensors and the
# tape of the public library, is below data, whose loader makes tensors, and below models, which
# call its functions.
layers="base
trace comm
device
nn
data
allreduce scatter_gather
group
models rpc
dp ddp syncbn
fsdp
clock
report train
doctor
cli"

# Static variables that have to be mutable, as file:name. Keep the list short. NVTX is a
# header-only library; a profiler fills in these two tables when it starts.
allowed_statics="core/device/cuda/nvtx.c:nvtxGlobals_v3
core/device/cuda/nvtx.c:InitializeInjectionNvtx2_fnptr"

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

# Where a folder is: below core/, below app/, or at the top.
mapfile -t folders < <(for folder in $layers; do
    ls -d "core/$folder" "app/$folder" "$folder" 2>/dev/null
done)
mapfile -t sources < <(
    find "${folders[@]}" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null | sort)

# For awk: layer[folder] from the list above.
read_layers='BEGIN {
    n = split(layers, line, "\n")
    for (i = 1; i <= n; i++) {
        k = split(line[i], name, " ")
        for (j = 1; j <= k; j++) layer[name[j]] = i
    }
}'

# 1. "folder/..." includes, as file:line:text. A folder within a folder belongs to it, as
# core/device/cuda to device.
rule "includes that point up or sideways, or not from the root" "$(
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${sources[@]}" /dev/null |
        awk -v layers="$layers" "$read_layers"'
        {
            split($0, part, ":")
            match($0, /"[^"]*"/)
            target = substr($0, RSTART + 1, RLENGTH - 2)
            from = to = part[1]
            sub(/^(core|app)\//, "", from)
            sub(/\/.*/, "", from)
            to = target
            # the public header at the root, and its parts, in the folders that implement them
            if (target ~ /^duet(\/[a-z]+)?\.h$/ &&
                from ~ /^(base|device|nn|data|group|models|dp|ddp|fsdp|syncbn|rpc|cli)$/) next
            if (!sub(/\/.*/, "", to) || !(to in layer)) print
            else if (from != to && layer[to] >= layer[from]) print
        }')"

# 2. By header name; and CUDA source only in such folders.
rule "CUDA outside folders named cuda" "$(
    libraries='cuda|cublas|cudnn|curand|cooperative_groups|nccl|nvtx|nvml'
    grep -nE "#[[:space:]]*include[[:space:]]*[<\"]($libraries)" "${sources[@]}" /dev/null |
        grep -vE '^[^:]*/cuda/'
    printf '%s\n' "${sources[@]}" | grep -E '\.cuh?$' | grep -v '/cuda/')"
rule "MPI outside folders named mpi" "$(
    grep -nE "#[[:space:]]*include[[:space:]]*<mpi" "${sources[@]}" /dev/null |
        grep -vE '^[^:]*/mpi/')"

# 3. An OBJECT in a section that stays writable. Constant data (.rodata, .data.rel.ro) and
# thread-local data (type TLS) do not count.
objects=()
kernels=$(cat "$build/kernels" 2>/dev/null)
for source in "${sources[@]}"; do
    object=$build/${source%.c}.o
    # In a folder cuda or mpi, either absent.c is built or all other files. Vector kernels are built
    # for the instruction sets in $build/kernels; objects of others are of an older build.
    [[ $source == *.c ]] || continue
    set=${source##*_}
    [[ $source == *_avx* && " $kernels " != *" ${set%.c} "* ]] && continue
    if [[ -e $object ]]; then
        objects+=("$object")
    elif [[ $source != */cuda/* && $source != */mpi/* ]]; then
        objects+=("missing:$object")
    fi
done
rule "mutable globals, or objects not built" "$(
    {
        printf '%s\n' "${objects[@]}" | sed -n 's/^missing:\(.*\)/\1: not built: run make first/p'
        # readelf prints each file's name, its sections by index, then its symbols as
        # number value size TYPE bind visibility INDEX name.
        printf '%s\n' "${objects[@]}" | grep -v '^missing:' | xargs readelf -SsW |
            awk -v build="$build/" '
            $1 == "File:" { file = substr($2, length(build) + 1); sub(/o$/, "c", file) }
            /^ *\[ *[0-9]+\]/ { sub(/^ *\[ */, ""); sub(/\]/, ""); section[$1] = $2 }
            $4 == "OBJECT" {
                where = $7 == "COM" ? ".bss" : section[$7]
                if (where ~ /^\.(data|bss)/ && where !~ /^\.data\.rel\.ro/) print file ":" $8
            }'
    } | grep -vxF "${allowed_statics:- }")"

# 1 again, in the objects: nm prints FILE: [VALUE] TYPE NAME.
rule "calls that point up or sideways" "$(
    printf '%s\n' "${objects[@]}" | grep -v '^missing:' | xargs nm -A |
        awk -v layers="$layers" -v build="$build/" "$read_layers"'
        {
            file = folder = substr($1, length(build) + 1)
            sub(/:.*/, "", file)
            sub(/^(core|app)\//, "", folder)
            sub(/\/.*/, "", folder)
        }
        $(NF - 1) ~ /^[BDRT]$/ { home[$NF] = folder }
        $(NF - 1) == "U" { from[file " calls " $NF] = folder }
        END {
            for (call in from) {
                split(call, word, " ")
                to = home[word[3]]
                if (to && to != from[call] && layer[to] >= layer[from[call]])
                    print call " in " to
            }
        }')"

# And among the files. One that calls no other, or that no other calls, is in no circle; without it
# others are in none, and so on.
rule "calls in a circle of files" "$(
    printf '%s\n' "${objects[@]}" | grep -v '^missing:' | xargs nm -A |
        awk -v build="$build/" '
        { sub(/:.*/, "", $1); file = substr($1, length(build) + 1) }
        $(NF - 1) ~ /^[BDRT]$/ { home[$NF] = file }
        $(NF - 1) == "U" { from[file " calls " $NF] = file }
        END {
            for (call in from) { split(call, word, " "); to[call] = home[word[3]] }
            do {
                gone = 0; split("", calls); split("", called) # empties both
                for (call in from) { calls[from[call]]; called[to[call]] }
                for (call in from)
                    if (!(to[call] in calls && from[call] in called)) { delete from[call]; gone++ }
            } while (gone)
            for (call in from) print call " in " to[call]
        }')"

# 4. tests/golden is made by other programs.
rule "files over 400 lines" "$(
    find "${folders[@]}" duet.h duet tests bench examples mk scripts -not -path 'tests/golden/*' \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.sh' -o -name '*.mk' \) \
        -exec awk 'END { if (NR > 400) print FILENAME ": " NR " lines" }' {} \; 2>/dev/null)"

# 5. All at once, which takes a second instead of a minute. Headers below cuda/ include CUDA's own
# headers, so nvcc reads them if it exists.
if command -v g++ >/dev/null; then
    rule "headers that do not compile as C++" "$(
        grep -l 'extern "C"' "${sources[@]}" duet/*.h 2>/dev/null | grep '\.h$' | grep -v /cuda/ |
            sed 's/.*/#include "&"/' |
            g++ -std=c++17 -Wall -Wextra -I. -Icore -Iapp -fsyntax-only -x c++ - 2>&1 |
            grep -E 'error|warning')"
else
    echo "no g++ here: headers were not tried as C++"
fi

# 6 and 7. Everything that people wrote. Outputs and tables in Markdown may be wider.
mapfile -t written < <(find . -path ./build -prune -o -path ./tests/golden -prune -o \
    -path ./.git -prune -o -path ./bench/results -prune -o -type f \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.sh' -o -name '*.py' -o -name '*.md' \
    -o -name '*.css' -o -name '*.js' \
    -o -name '*.mk' -o -name Makefile -o -path ./.ci/run \) -print | sort)
rule "lines over 100 columns" "$(
    awk 'FNR == 1 { shown = 0 } /^ *```/ { shown = !shown }
        { gsub(/[\200-\277]/, "") } # a character of several bytes counts once
        length > 100 && !shown && !/^\|/ { print FILENAME ":" FNR ": " length }' "${written[@]}")"

if command -v clang-format >/dev/null; then
    rule "files that clang-format would change (run clang-format -i on them)" "$(
        printf '%s\n' "${written[@]}" | grep -E '\.(c|h|cu)$' |
            xargs clang-format --dry-run 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning: .*//p' | uniq)"
else
    echo "no clang-format here: the format of C files was not checked"
fi

# 8. Lines of C, CUDA, JavaScript, CSS and Python; `count` prints their sum below some folders.
count() { # FOLDER...
    find "$@" \( -path ./build -o -path ./.git -o -name node_modules \) -prune -o -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.js' -o -name '*.css' \
        -o -name '*.py' \) -print0 | xargs -0 cat | wc -l
}
# Functions that duet.h declares: names before a parenthesis, without comments and macros.
public_names() {
    cat duet.h duet/*.h | ${CC:-cc} -fpreprocessed -dD -E -P -x c - 2>/dev/null | grep -v '^#' |
        grep -oE '\<duet_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u
}
mapfile -t rooms < <(find . -mindepth 1 -maxdepth 1 -type d -not -name '.*' -not -name build \
    -not -name datasets | grep -vxE './(tests|bench|examples|docs|scripts|mk)')
over_budget() {
    local name limit now
    declare -A weight=([product]=$(count ./*.h "${rooms[@]}") [tests]=$(count tests)
        [functions]=$(public_names | wc -l))
    while read -r name limit _; do
        now=${weight[$name]}
        ((now <= limit)) || echo "$name: $now, and the budget is $limit: take something out"
    done < <(grep -v '^#' tests/budget)
    echo "budget: product ${weight[product]} lines, tests ${weight[tests]} lines," \
        "duet.h ${weight[functions]} functions" >&2
}
# 9. Each of these functions is called with wrong arguments.
rule "not in a test_misuse*.c, which calls each function of duet.h with wrong arguments" "$(
    comm -23 <(public_names) <(cat tests/duet/test_misuse*.c tests/rpc/test_misuse.c |
        grep -oE '\<duet_[a-z0-9_]+' | sort -u))"
rule "more than tests/budget allows" "$(over_budget)"

echo "$passed passed, $failed failed"
((failed == 0))
