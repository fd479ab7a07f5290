/* Checks that the largest batch that estimate names can be trained, and the next one cannot. */
#include "tests/app/cli/json.h"

#define NET "--model simple --dataset random --classes 3000 --devices 3 "

static int trains(const char *way, int batch) {
    struct cli c;
    cli_run(&c,
            "train --mode %s " NET "--samples 4000 --device-memory 6M --batch-size %d --steps 3 "
            "--workers 0 --quiet",
            way, batch);
    cr_expect(c.status == 0 || (c.status == 1 && strstr(c.err, "out of memory on device")), "%s",
              c.err);
    int status = c.status;
    cli_free(&c);
    return status == 0;
}

CliTest(cli_max_batch, is_the_largest_that_trains, 120) {
    static const char *const ways[] = {"dp", "dp --loss-in-forward", "ddp"};
    int single, batch[3];
    char *out = cli_output("estimate " NET "--samples 4000 --device-memory 6M"),
         *text = unbroken(out), *at = strstr(text, "The largest global batch that fits: ");
    cr_assert_not_null(at, "%s", out);
    int found = sscanf(strchr(at, ':'), ": single %d; DP %d; DP, loss in forward %d; DDP %d.",
                       &single, &batch[0], &batch[1], &batch[2]);
    cr_assert(found == 4 && single > 0, "%s", at);
    for (int i = 0; i < 3; i++) {
        cr_expect(batch[i] % 3 == 0 && trains(ways[i], batch[i]), "%s with %d", ways[i], batch[i]);
        cr_expect(!trains(ways[i], batch[i] + 3), "%s with %d", ways[i], batch[i] + 3);
    }
    cr_expect_lt(batch[0], batch[2]); /* DP gathers all outputs on device 0 */
    free(text), free(out);
    cli_says(0, "single 9, all samples; DP 9,",
             "estimate " NET "--samples 9 --batch-size 64 --device-memory 6M");
}
