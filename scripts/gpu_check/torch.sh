# The same training steps in PyTorch and in Duet, in turn.
. scripts/gpu_check/common.sh
export PYTHONUNBUFFERED=1 # output is there also if the part is cut off
command -v python3 >/dev/null || not_here "no python3"
python3 -c 'import torch' 2>/dev/null || not_here "python3 has no torch"
[[ -n $EMULATED ]] && not_here "CUDA is emulated: PyTorch could not use it"
python3 -c 'import torch; exit(not torch.cuda.is_available())' || not_here "this torch sees no GPU"
python3 bench/torch_step.py --device cuda --duet "$duet" --data-dir "$(pictures full)" \
    --rounds 2 --json "$WORK/torch.json"
