/* Tests checkpoints of GPU runs on the emulated runtime. A run in three parts, each in another
 * mode, ends with the files of an uninterrupted run. SIGINT stops all ranks after the same step,
 * with complete files. Streams run late. */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_resume)
#else
#include <signal.h>

#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* Five batches an epoch, the last of which is cut. */
#define RUN                                                                                      \
    "--device cuda --data-dir d --model mlp --mlp-hidden 20 --batch-size 8 --virtual-devices 2 " \
    "--optimizer adam --lr 0.01 --quiet "

static void two_late_gpus(void) {
    setenv("EMULATED_GPUS", "2", 1);
    setenv("EMULATED_CUDA_LATE_US", "100", 1);
    put_data(37, 4);
}

CliTest(emulated_resume, in_parts, 240) {
    two_late_gpus();
    cli_well("train " RUN "--epochs 3 --save one --log-loss one.csv");
    cli_well("train --mode ddp " RUN "--epochs 3 --steps 3 --checkpoint ck --log-loss a.csv");
    cli_well("train --mode dp " RUN "--epochs 3 --steps 10 --resume ck --checkpoint ck "
             "--log-loss b.csv");
    cli_well("train " RUN "--epochs 3 --resume ck --save two --log-loss c.csv");
    cr_assert_eq(system("(cat a.csv; tail -n +2 b.csv; tail -n +2 c.csv) > two.csv"), 0);
    cr_expect(cli_same_file("one", "two"), "other weights");
    cr_expect(cli_same_file("one.csv", "two.csv"), "other losses");
}

static void stops(const char *mode) {
    struct cli c;
    cr_assert_eq(system("rm -f ck"), 0);
    cli_start(&c,
              "train --mode %s " RUN "--epochs 100000 --checkpoint ck --checkpoint-every 2 "
              "--save two --log-loss two.csv --json j",
              mode);
    for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; cli_pause())
        if (!access("ck", F_OK)) break;
    kill(c.pid, SIGINT);
    cli_wait(&c);
    cr_assert_eq(c.status, 128 + SIGINT, "%s: status %d: %s", mode, c.status, c.err);
    cli_free(&c);
    struct json *j = json_of("j");
    int steps = (int)json_int(j, "steps");
    json_free(j);
    cr_expect_geq(steps, 2, "%s", mode);
    cli_well("train " RUN "--epochs 100000 --steps %d --save one --log-loss one.csv", steps);
    cr_expect(cli_same_file("one", "two"), "%s: other weights after %d steps", mode, steps);
    cr_expect(cli_same_file("one.csv", "two.csv"), "%s: other losses", mode);
    cli_well("train " RUN "--epochs 100000 --steps %d --resume ck --save two", steps + 2);
    cli_well("train " RUN "--epochs 100000 --steps %d --save one", steps + 2);
    cr_expect(cli_same_file("one", "two"), "%s: other weights after --resume", mode);
}

CliTest(emulated_resume, sigint, 240) {
    two_late_gpus();
    stops("ddp");
    if (!test_short()) stops("dp");
}
#endif
