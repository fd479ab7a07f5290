"""Duet from Python.

    import duet
    result = duet.compare(model="lenet", dataset="synthetic", devices=4, steps=50)
    result.runs[0].losses       # a numpy array
    result                      # in a notebook: the page that --report writes

compare, profile, estimate and train are the command's subcommands, with its options as keyword
arguments: --batch-size 64 is batch_size=64, and --sync-bn is sync_bn=True. `import duet.torch` adds
the backend "duet" to PyTorch. duet.export writes a PyTorch model for --model, and duet.convert
turns a torch.save file into safetensors. docs/python.md explains all of this. """

from ._files import save_dataset
from ._library import DuetError, ExportError
from ._signature import called
from .command import Record, Result, compare, estimate, profile, run, train
from .convert import convert
from .export import export as _export
from .model import describe

export = called(_export)

__all__ = ["DuetError", "ExportError", "Record", "Result", "compare", "convert", "describe",
           "estimate", "export", "profile", "run", "save_dataset", "train"]
