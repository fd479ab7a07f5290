/* Runs the Python package's own tests, which are next to this file, with the library of this build,
 * if the python3 in PATH (or PYTHON) has what they need. */
#include <stdlib.h>
#include <unistd.h>

#include "duet.h"
#include "tests/harness/harness.h"

#define PYTHON "PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 ${PYTHON:-python3} "

static int runs(const char *line) {
    return system(line) == 0;
}

static void run(const char *needs, const char *line) {
    char probe[200];
    if (access(BUILD_DIR "/libduet.so", R_OK)) cr_skip_test("builds for tests have no libduet.so");
    snprintf(probe, sizeof probe, PYTHON "-c 'import %s' 2>/dev/null", needs);
    if (!runs(probe)) cr_skip_test("python3 has no %s", needs);
    cr_assert(runs(line), "%s", line);
}

Test(python, the_command_as_functions, .timeout = 120) {
    run("numpy", PYTHON "tests/python/package.py 2>&1");
}

Test(python, the_version_that_pip_builds, .timeout = 60) {
    run("setuptools",
        "cd python && ${PYTHON:-python3} setup.py --version 2>/dev/null | grep -qx " DUET_VERSION);
}

Test(python, a_backend_of_torch_distributed, .timeout = 300) {
    run("torch", PYTHON "tests/python/backend.py 2>&1");
}

Test(python, a_model_described_by_numbers, .timeout = 120) {
    run("torch", PYTHON "tests/python/model.py 2>&1");
}

Test(python, files_of_torch_save, .timeout = 120) {
    run("torch", PYTHON "tests/python/convert.py 2>&1");
}

Test(python, any_model_exported_and_trained, .timeout = 600) {
    run("torch", PYTHON "tests/python/export.py 2>&1");
}

Test(python, what_no_graph_says_is_refused, .timeout = 300) {
    run("torch", PYTHON "tests/python/refusals.py 2>&1");
}

Test(python, the_notebooks_run_whole, .timeout = 600) {
    run("nbclient, ipykernel, numpy", PYTHON "tests/python/notebooks.py 2>&1");
}

/* The launcher's ranks find each other through PyTorch's store. */
Test(python, ranks_of_duet_run_and_of_torchrun, .timeout = 120) {
    run("torch",
        "OMP_NUM_THREADS=1 MASTER_PORT=$((20000 + $$ % 20000)) PYTHONPATH=python " BUILD_DIR
        "/duet run --nproc-per-node 2 ${PYTHON:-python3} tests/python/backend.py 2>&1 | "
        "grep -q 'rank 1 of 2: 2'");
    run("torch", "OMP_NUM_THREADS=1 " PYTHON "-m torch.distributed.run --standalone "
                 "--nproc-per-node 2 tests/python/backend.py 2>&1 | grep -q 'rank 1 of 2: 2'");
}
