"""Runs PyTorch's own tests of torch.distributed with Duet and with gloo.

    PYTHONPATH=python BACKENDS=gloo,duet python tests/python/torch_suite.py OUT.json [PATTERN]

Runs torch.testing._internal.distributed.distributed_test (it needs the package expecttest), each
test on three forked ranks. Duet's backend is registered as "gloo" there, because many of these
tests require that name before they run at all, and its spans in PyTorch's profiler begin with it.
OUT.json gets each test's result and the last line of its error.
"""

import json
import os
import re
import sys
import tempfile
import time
import unittest

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import distributed_test


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def duet_as_gloo(store, rank, size, timeout):
    import duet.torch  # in the rank, not before the fork

    return duet.torch.ProcessGroupDuet(store, rank, size, timeout, "gloo")


class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.all = {}

    def note(self, test, what, why=""):
        self.all[test._testMethodName] = [what, why]

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def addSuccess(self, test):
        self.note(test, "passed")

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addFailure(self, test, error):
        lines = [line for line in str(error[1]).splitlines() if line.strip()]
        told = [line for line in lines if re.match(r"\w*(Error|Exception)\b", line.strip())]
        self.note(test, "failed", (told or lines or ["?"])[-1])

    addError = addFailure

    def stopTest(self, test):
        what = self.all.get(test._testMethodName, ["?", ""])
        print(f"{time.monotonic() - self.begin:6.1f} s  {what[0]}  {test._testMethodName}  "
              f"{what[1]}", flush=True)


def main():
    out, pattern = sys.argv[1], re.compile(sys.argv[2] if len(sys.argv) > 2 else "")
    every = {"torch": torch.__version__, "world_size": int(os.environ["WORLD_SIZE"])}
    for backend in os.environ.get("BACKENDS", "gloo,duet").split(","):
        dist.Backend._plugins.pop("GLOO", None)
        if backend == "duet":
            dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(duet_as_gloo, False)
        results = Results()
        for name in unittest.TestLoader().getTestCaseNames(Suite):
            if pattern.search(name):
                Suite(name).run(results)
        every[backend] = results.all
        with open(out, "w") as file:
            json.dump(every, file, indent=1, sort_keys=True)
        counts = [what for what, _ in results.all.values()]
        print(backend, {what: counts.count(what) for what in sorted(set(counts))}, flush=True)


if __name__ == "__main__":
    main()
