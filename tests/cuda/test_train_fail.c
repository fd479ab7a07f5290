/* Tests training on failing GPUs: each run ends within the deadline, with the right exit status and
 * one line that names what failed, and leaves no process and no file.
 *
 * The faults are planted in the emulated runtime (tests/stand_ins/cuda_emulation/emulation.h), so
 * these tests are skipped with real GPUs, or without any. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* SHORT_S: --timeout where something hangs or is stopped; LONG_S: where nothing may wait that long.
 * MOST_S: what an end may take on a busy machine, since deadlines come one after another. */
static const double SHORT_S = 3, LONG_S = 60, MOST_S = 30;

static void set_up(void) {
    struct cli c;
    setenv("EMULATED_GPUS", "1", 1);
    cli_run(&c, "devices");
    int emulated = strstr(c.out, "emulated GPU") != NULL;
    cli_free(&c);
    if (!emulated)
        cr_skip_test("faults are planted in an emulated GPU, and there is none: make EMULATION=1");
    setenv("EMULATED_CUDA_EXIT", "waits", 1); /* the worst that a driver may do */
    put_data(36, 8);
}

static const char COMMON[] =
    "--device cuda --data-dir d --model mlp --mlp-hidden 20 --batch-size 12 --epochs 5 --quiet "
    "--save w --log-loss l --json j";

static void fails(const char *fault, int status, const char *words, const char *mode) {
    int64_t begun = now_ns();
    setenv("EMULATED_CUDA_FAULT", fault, 1);
    cli_fails(status, words, "train %s %s --timeout %g", COMMON, mode,
              strncmp(fault, "hang", 4) ? LONG_S : SHORT_S);
    double seconds = (double)(now_ns() - begun) * 1e-9;
    cr_expect(seconds < MOST_S, "%s, %s: %g s", fault, mode, seconds);
    unsetenv("EMULATED_CUDA_FAULT");
}

/* A kernel faults in the first steps or later: the step is named. */
CliTest(cuda_train_fail, kernel_faults, 120) {
    set_up();
    fails("launch:20", 1, "cudaErrorIllegalAddress|of step |CUDA_LAUNCH_BLOCKING=1 names",
          "--mode single");
    fails("launch:110", 1, "cudaErrorIllegalAddress|of step ", "--mode single");
    fails("launch:60", 1, "cudaErrorIllegalAddress|of step ", "--mode dp --devices 2");
    fails("launch:40@1", 1, "rank 1|cudaErrorIllegalAddress|of step ", "--mode ddp --devices 2");
}

/* A kernel that never ends, on a GPU that all devices share: nothing may wait for it without a
 * deadline. */
CliTest(cuda_train_fail, kernel_hangs, 240) {
    set_up();
    fails("hang:20", 1, "cuda(0)|did not finish within", "--mode single");
    fails("hang:110", 1, "cuda(0)|did not finish within", "--mode single");
    fails("hang:110", 1, "did not finish within", "--mode dp --devices 2");
    fails("hang:40@0", 1, "rank ", "--mode ddp --devices 2");
}

CliTest(cuda_train_fail, no_memory, 120) {
    set_up();
    fails("malloc:1", 1, "out of memory on device 0|GPU 0", "--mode single");
    fails("malloc:2", 1, "out of memory on device 1|GPU 0", "--mode dp --devices 2");
    fails("malloc:1@1", 1, "rank 1|out of memory on device 1", "--mode ddp --devices 2");
    fails("host:1", 1, "pinned host memory|cuda(0)", "--mode single");
    fails("", 1, "out of memory on device 0|workspace", "--mode single --device-memory 2M");
    fails("", 1, "rank |out of memory on device|params",
          "--mode ddp --devices 2 --device-memory 66M --mlp-hidden 4000");
}

CliTest(cuda_train_fail, ipc_refused, 120) {
    set_up();
    fails("ipc:1@1", 1, "rank 1|import of memory of device 0|container", "--mode ddp --devices 2");
    fails("export:1@0", 1, "rank 0|export of memory by CUDA IPC", "--mode ddp --devices 2");
}

CliTest(cuda_train_fail, no_driver, 120) {
    set_up();
    fails("driver:none", 2, "no NVIDIA driver|--device cpu", "--mode dp --devices 2");
    fails("driver:old", 2, "driver is for CUDA|--device cpu", "--mode ddp --devices 2");
    setenv("EMULATED_CUDA_FAULT", "driver:none", 1); /* then auto takes emulated devices */
    cli_well("train --mode ddp %s --device auto", COMMON);
    struct json *j = json_of("j");
    cr_expect(!strcmp(json_text(j, "device_kind"), "cpu") && json_int(j, "gpus") == 0);
    json_free(j);
}

/* ---- a rank that is killed while others wait for it ---- */

/* Sends each signal to each of two ranks in the middle of training, for every way of summing. */
static void hit(int signal, const char *algorithm, int rank) {
    struct cli c;
    char want[64];
    int files = cli_files();
    cli_start_on_terminal(&c,
                          "train --mode ddp --devices 2 --device cuda --data-dir d --model mlp "
                          "--mlp-hidden 20 --batch-size 12 "
                          "--epochs 100000 --allreduce %s --save w --timeout %g",
                          algorithm, signal == SIGSTOP ? SHORT_S : LONG_S);
    cr_assert(cli_shows(&c, "epoch 3/"), "%s", c.shown);
    pid_t pid = cli_find_rank(&c, rank);
    int64_t begun = now_ns();
    kill(pid, signal);
    cli_wait(&c);
    double seconds = (double)(now_ns() - begun) * 1e-9;
    cr_expect(seconds < MOST_S, "%s: %g s", algorithm, seconds);
    cr_expect_eq(c.status, signal == SIGKILL ? 137 : 1, "%s: status %d: %s", algorithm, c.status,
                 c.err);
    snprintf(want, sizeof want,
             signal == SIGKILL ? "^duet: rank %d \\(pid [0-9]+\\) .*signal 9" : "^duet: .*rank %d",
             rank);
    const char *end = strchr(c.err, '\n');
    cr_expect(matches(c.err, want) && end && !end[1], "%s: '%s'", algorithm, c.err);
    cr_expect_eq(cli_files(), files, "%s: left a file", algorithm);
    cli_free(&c);
}

CliTest(cuda_train_fail, rank_killed, 240) {
    set_up();
    hit(SIGKILL, "auto", 1);
    hit(SIGKILL, "ring", 0);
}

CliTest(cuda_train_fail, rank_stopped, 240) {
    set_up();
    hit(SIGSTOP, "auto", 0);
    hit(SIGSTOP, "tree", 1);
}
