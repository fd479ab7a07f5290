#!/usr/bin/env bash
# The work of `make docs` and `make sheet`: scripts/make_docs.sh BUILD_DIR [sheet]
#
# Makes the generated pages, which are not kept in the repository, in BUILD_DIR/docs:
#
#     wide.html, resnet18.html        two pages of --report, with the times of this machine
#     sheet.html, answers.html        the lesson's worksheet, two A4 pages, and its answers; `sheet`
#                                     makes only these, in a second
#
# It prints what it made, and ends like a stage of .ci/run.
set -u
root=$(realpath "$(dirname "$0")/..")
mkdir -p "$1"
build=$(realpath "$1") only=${2:-}
made=0 failed=0
mkdir -p "$build/docs"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH="$build:$PATH"

# A page shows its command line, so the command runs in an empty folder and contains no path.
report() { # PAGE COMMAND...
    local page=$1
    shift
    echo "make docs: $page: duet $*" >&2
    (cd "$work" && duet "$@" --report "$page" >"$page.txt") && keep "$page"
}

# Checks that a browser would show the page: it is complete and has its pictures.
keep() { # PAGE
    if tail -c 20 "$work/$1" | grep -q '</html>'; then
        mv "$work/$1" "$build/docs/$1"
        echo "$build/docs/$1: $(stat -c %s "$build/docs/$1") bytes"
        made=$((made + 1))
    else
        echo "make docs: $1: it is not whole" >&2
        failed=$((failed + 1))
    fi
}

# A page to print must stand alone, so it contains its pictures.
inline_pictures() {
    local line picture
    while IFS= read -r line; do
        if [[ $line =~ src=\"\.\./(pictures/[a-z_/-]+\.svg)\" ]]; then
            picture=$(base64 -w0 "$root/docs/${BASH_REMATCH[1]}")
            line=${line/"../${BASH_REMATCH[1]}"/data:image/svg+xml;base64,$picture}
        fi
        printf '%s\n' "$line"
    done
}

sheet() { # NAME
    {
        cat <<'END'
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<style>
@page { size: A4; margin: 14mm 16mm }
body { font: 10.5pt/1.4 "Liberation Sans", Arial, sans-serif; max-width: 178mm; margin: 0 auto }
h1 { font-size: 17pt } h2 { font-size: 12.5pt; margin-top: 6mm; break-after: avoid }
pre { font: 8.2pt/1.25 "Liberation Mono", monospace; background: #f2f4f7; padding: 2mm;
      break-inside: avoid; white-space: pre-wrap }
code { font-family: "Liberation Mono", monospace; font-size: .92em }
code i { font-style: normal; white-space: nowrap } /* an option stays whole */
img { width: 94%; display: block; margin: 0 auto }
hr { border: 0; border-bottom: .3pt dotted #888; height: 10mm; margin: 0 }
p { margin: 2.5mm 0 1mm } p, li { break-inside: avoid } a { color: inherit; text-decoration: none }
p:has(+ hr), p:has(+ p + hr), hr:has(+ hr) { break-after: avoid } /* a question and its lines */
@media (max-width: 40em) { /* a phone: the picture scrolls */
    body { padding: 0 4mm } p { overflow-x: auto } img { width: 150mm; max-width: none }
}
</style><title>
END
        sed -n '1s/^# //p' "$root/docs/lessons/$1.md"
        echo '</title></head><body>'
        cmark-gfm -e table "$root/docs/lessons/$1.md" | sed -E 's|--[a-z-]+|<i>&</i>|g' |
            inline_pictures
        echo '</body></html>'
    } >"$work/$1.html"
    keep "$1.html"
}

if [[ $only != sheet ]]; then
    report wide.html compare --model wide --devices 4 --device-memory 48M --steps 20 ||
        failed=$((failed + 1))
    report resnet18.html compare --model resnet18 --dataset synthetic --samples 512 \
        --batch-size 64 --devices 4 --steps 4 || failed=$((failed + 1))
fi
if command -v cmark-gfm >/dev/null; then
    sheet sheet
    sheet answers
else
    echo "make sheet: no worksheet: install cmark-gfm"
    [[ $only != sheet ]] || exit 1
fi
if [[ $only == sheet ]]; then
    echo "open them in a browser and print them"
else
    echo "$made passed, $failed failed"
fi
((failed == 0))
