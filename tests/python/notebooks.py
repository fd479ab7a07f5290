"""Runs the whole notebooks of examples/notebooks: no cell may fail, and a cell tagged "exact" must
print its stored output. The cell tagged "parameters" is replaced, so that the run is short.

    notebooks.py            runs them as a test
    notebooks.py --write    runs them with their own parameters, and stores the output
"""

import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient

SMALL = 'DATASET, SAMPLES = "synthetic", 512\nEPOCHS, STEPS = 1, 2'
FOLDER = pathlib.Path("examples/notebooks")


def tagged(cell, tag):
    return tag in cell.metadata.get("tags", [])


def printed(cell):
    return "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")


def run(file, write):
    book = nbformat.read(file, as_version=4)
    stored = {cell.id: printed(cell) for cell in book.cells if cell.cell_type == "code"}
    for cell in book.cells:
        if tagged(cell, "parameters") and not write:
            cell.source = SMALL
    # Within the tree, in which the first cell looks for the package.
    with tempfile.TemporaryDirectory(dir="build") as folder:
        NotebookClient(book, timeout=600, kernel_name="python3",
                       resources={"metadata": {"path": folder}}).execute()
    if write:
        for cell in book.cells:
            cell.metadata.pop("execution", None)  # the times of day
        book.metadata.pop("language_info", None)
        nbformat.write(book, file)
        return
    for cell in book.cells:
        if tagged(cell, "exact"):
            assert printed(cell) == stored[cell.id], \
                f"{file}: {cell.id} prints\n{printed(cell)}and stored is\n{stored[cell.id]}"
    assert any(stored.values()), f"{file}: stored without outputs"


for file in sorted(FOLDER.glob("*.ipynb")):
    run(file, "--write" in sys.argv)
    print(file, "ran whole")
