"""pip install ./python builds the library and the command with make, and includes them.

The sources are those of the tree around this folder, so the package is built there.
"""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCTS = ("libduet.so", "duet")


class BuildByMake(build_py):
    def run(self):
        super().run()
        subprocess.run(["make", f"-j{os.cpu_count()}", *(f"build/{name}" for name in PRODUCTS)],
                       cwd=ROOT, check=True)
        for name in PRODUCTS:
            target = pathlib.Path(self.build_lib, "duet", name)
            shutil.copy(ROOT / "build" / name, target)
            subprocess.run(["strip", "--strip-debug", target], check=False)


class WithLibrary(Distribution):
    """The wheel is for this platform only, although it has no extension module."""

    def has_ext_modules(self):
        return True


if not (ROOT / "Makefile").exists():
    raise SystemExit(f"{ROOT}: no Makefile: run pip in Duet's source tree: pip install ./python")
HEADER = (ROOT / "duet" / "core.h").read_text()
setup(version=re.search(r'^#define DUET_VERSION "(.*)"', HEADER, re.M)[1],
      cmdclass={"build_py": BuildByMake}, distclass=WithLibrary)
