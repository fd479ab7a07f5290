"""Writes an nn.Sequential for `duet --model FILE`: net.txt says what it is, net.safetensors has its
weights.

    from export_model import export
    export(model, "net")

    duet compare --model net.txt --init-from net.safetensors

Needs PyTorch and the package safetensors."""
from safetensors.torch import save_file


def export(model, name):
    open(f"{name}.txt", "w").write(f"{model}\n")
    save_file(model.state_dict(), f"{name}.safetensors")
