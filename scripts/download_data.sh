#!/usr/bin/env bash
# Downloads data sets: scripts/download_data.sh [fashion-mnist] [mnist]     (default: both)
#
# It unpacks files to datasets/NAME/, where duet looks for them, and checks the sha256 of the
# unpacked bytes. Correct files that exist are kept. A file appears under its name only when it is
# complete. For mirrors DUET_DATA_URL names another folder with the .gz files, as https://... or
# file://...
set -u
cd "$(dirname "$0")/.." || exit 1

# Each entry has two lines: the set and the file, then the sha256 of the unpacked file.
table="
fashion-mnist train-images-idx3-ubyte
    c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
fashion-mnist train-labels-idx1-ubyte
    bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
fashion-mnist t10k-images-idx3-ubyte
    5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
fashion-mnist t10k-labels-idx1-ubyte
    0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
mnist train-images-idx3-ubyte
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
mnist train-labels-idx1-ubyte
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
mnist t10k-images-idx3-ubyte
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
mnist t10k-labels-idx1-ubyte
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"

# The addresses of each set, tried in turn.
urls_of() {
    case $1 in
    fashion-mnist)
        echo http://fashion-mnist.s3-website.eu-central-1.amazonaws.com
        echo https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion
        ;;
    mnist)
        echo https://ossci-datasets.s3.amazonaws.com/mnist
        echo https://storage.googleapis.com/cvdf-datasets/mnist
        ;;
    esac
}

fail() {
    echo "download_data.sh: $*" >&2
    exit 1
}

fetch() { # URL FILE
    if command -v curl >/dev/null; then
        curl --fail --location --silent --show-error --connect-timeout 8 --max-time 500 \
            --output "$2" "$1"
    else # it cannot read file://
        wget --quiet --timeout 8 --tries 1 --output-document "$2" "$1"
    fi
}

sum_is() { # FILE SHA256
    [[ -f $1 && $(sha256sum <"$1") == "$2 "* ]]
}

# Tries each address until the unpacked bytes are right.
get() { # SET FILE SHA256
    local target=datasets/$1/$2 url
    sum_is "$target" "$3" && return
    for url in ${DUET_DATA_URL:-$(urls_of "$1")}; do
        echo "$1: $2 from $url"
        rm -f "$temporary"/*
        fetch "$url/$2.gz" "$temporary/gz" || continue
        gunzip -c "$temporary/gz" >"$temporary/raw" || continue
        if sum_is "$temporary/raw" "$3"; then
            mv "$temporary/raw" "$target" || fail "cannot write: $target"
            return
        fi
        echo "  its sha256 is not the known one" >&2
    done
    fail "no good copy of $1's $2: check the network, or put the four IDX files into datasets/$1"
}

command -v curl >/dev/null || command -v wget >/dev/null ||
    fail "neither curl nor wget: install one"
for name in "$@"; do
    [[ $name == fashion-mnist || $name == mnist ]] ||
        fail "unknown data set: $name: give fashion-mnist or mnist"
done
temporary=
# Removes partial files, and folders that this script made and could not fill.
clean_up() {
    rm -rf "$temporary"
    rmdir datasets/fashion-mnist datasets/mnist datasets 2>/dev/null
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
(($#)) || set -- fashion-mnist mnist
for name in "$@"; do
    mkdir -p "datasets/$name" || fail "cannot make the folder datasets/$name"
    rm -rf "$temporary"
    temporary=$(mktemp -d "datasets/$name/.download.XXXXXX") ||
        fail "cannot write to datasets/$name"
    while read -r set file && read -r sum; do
        [[ $set == "$name" ]] && get "$set" "$file" "$sum"
    done <<<"${table#$'\n'}"
    echo "$name: complete in datasets/$name"
done
