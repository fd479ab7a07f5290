#!/usr/bin/env bash
# Makes the pictures of docs/ again that the program writes: docs/pictures/make.sh [DUET]
#
# Times in them are those of the machine, but for modelled ones. The commands run in an empty
# folder, because a page shows its command line, which should name no path. chromium takes the
# pictures of a page. sampler.py draws what `duet sampler` prints. dp_and_ddp.svg, dp_moves.svg,
# data_parallelism.svg and lenet/splits.svg are kept as they are.
set -eu
duet=$(realpath "${1:-build/duet}")
docs=$(realpath "$(dirname "$0")/..")
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
PATH=$(dirname "$duet"):$PATH
cd "$all"

pictures() { # FOLDER NAMES -- COMMAND...: keeps these of the pictures
    local folder=$1 names=()
    shift
    while [[ $1 != -- ]]; do names+=("$1.svg") && shift; done
    shift
    duet "$@" --pictures "$folder" >"$folder.txt"
    mkdir -p "$docs/pictures/$folder"
    for name in "${names[@]}"; do cp "$folder/$name" "$docs/pictures/$folder/$name"; done
}

pictures wide timeline traffic-dp traffic-ddp collective -- \
    compare --model wide --devices 4 --steps 40 --allreduce ring --quiet
pictures wide_head memory phases -- profile --optimizer adam --steps 12
pictures sharded memory traffic-fsdp -- \
    compare --model mlp --mlp-hidden 512,512,512,512,512,512,512,512 --units 0.5 --dataset random \
    --modes ddp,fsdp --devices 4 --steps 6 --optimizer adam --quiet
pictures batch_norm loss -- \
    compare --model resnet18 --dataset synthetic --shape 1x12x12 --samples 320 --batch-size 32 \
    --devices 4 --epochs 1 --lr 0.05 --sync-bn --quiet
pictures modelled timeline -- \
    estimate --gpu titan-rtx --machine titan-rtx-x4 --model resnet50 --dataset random \
    --shape 3x224x224 --classes 1000 --batch-per-device 12 --devices 4
python3 "$docs/pictures/sampler.py" "$duet"
python3 "$docs/pictures/speed_up.py" "$duet"
command -v chromium >/dev/null || exit 0
duet compare --model wide --devices 4 --steps 20 --allreduce ring --quiet --report page.html \
    >/dev/null
for theme in light dark; do
    dark=()
    [[ $theme == light ]] || dark=(--blink-settings=preferredColorScheme=0)
    for shot in page:1280,1130 phone:500,900; do
        chromium --headless --no-sandbox --hide-scrollbars "${dark[@]}" \
            --window-size="${shot#*:}" --screenshot="$docs/pictures/${shot%:*}_$theme.png" \
            "file://$all/page.html" 2>/dev/null
    done
done
