/* --find-max-batch: the batch that it names trains, the next one does not, and the estimate finds
 * the same without running. */
#include "tests/app/cli/json.h"

#define CASE \
    "--model simple --dataset random --classes 3000 --samples 4000 --devices 3 --device-memory 6M"

static struct json *search(const char *command) {
    struct cli c;
    cli_run(&c, "%s " CASE " --find-max-batch --json j", command);
    cr_assert_eq(c.status, 0, "%s: %s%s", command, c.out, c.err);
    cr_expect(strstr(c.out, "next larger") && strstr(c.out, "out of memory on device"), "%s",
              c.out);
    cli_free(&c);
    return json_of("j");
}

static const struct json *item(const struct json *root, const char *name) {
    for (const struct json *i = json_at(root, "max_batch")->child; i; i = i->next)
        if (!strcmp(json_text(i, "name"), name)) return i;
    cr_assert(0, "no %s", name);
    return NULL;
}

static int trains(const char *way, int64_t batch) {
    struct cli c;
    cli_run(&c, "train --mode %s " CASE " --batch-size %lld --steps 3 --workers 0 --quiet", way,
            (long long)batch);
    cr_expect(c.status == 0 || (c.status == 1 && strstr(c.err, "out of memory on device")), "%s",
              c.err);
    int status = c.status;
    cli_free(&c);
    return status == 0;
}

Test(cli_max_batch, is_the_largest_that_trains, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const char *const ways[] = {"dp", "ddp", "dp_loss_in_forward"};
    struct json *measured = search("profile"), *estimated = search("estimate");
    for (int i = 0; i < 3; i++) {
        const struct json *m = item(measured, ways[i]), *e = item(estimated, ways[i]);
        int64_t batch = json_int(m, "batch_size"), next = json_int(m, "does_not_fit");
        cr_expect(batch > 0 && batch % 3 == 0 && next == batch + 3, "%s: %lld", ways[i],
                  (long long)batch);
        cr_expect(json_at(m, "measured")->integer && !json_at(e, "measured")->integer);
        cr_expect_eq(json_int(m, "tries"), 2, "%s: the estimate was not right", ways[i]);
        cr_expect_eq(json_int(e, "batch_size"), batch, "%s", ways[i]);
        cr_expect_eq(json_int(e, "memory_peak"), json_int(m, "memory_peak"), "%s", ways[i]);
        if (i == 2) continue;
        cr_expect(trains(ways[i], batch), "%s with %lld", ways[i], (long long)batch);
        cr_expect(!trains(ways[i], next), "%s with %lld", ways[i], (long long)next);
    }
    /* DP gathers all outputs on device 0 */
    cr_expect(json_int(item(measured, "dp"), "batch_size") <
              json_int(item(measured, "ddp"), "batch_size"));
    cr_expect(json_int(item(estimated, "single"), "batch_size") > 0);
    json_free(measured);
    json_free(estimated);
}

static void expect(const char *words, int status, const char *text) {
    struct cli c;
    cli_run(&c, "%s --find-max-batch", words);
    cr_expect(c.status == status && (strstr(c.out, text) || strstr(c.err, text)),
              "%s: status %d: %s%s", words, c.status, c.out, c.err);
    cli_free(&c);
}

Test(cli_max_batch, at_the_ends, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    expect("profile --dataset random", 2, "give --device-memory");
    expect("estimate", 2, "give --device-memory");
    expect("profile --device-memory 4M --trace t", 2, "--trace: no effect beside");
    expect("profile --model simple --dataset random --samples 8 --device-memory 4M", 0,
           "DDP: the data set has no more than 8 samples, so memory is no limit");
    expect("estimate --model simple --dataset random --classes 30000 --device-memory 2M", 1,
           "single: not even a batch of 1 fits");
    expect("profile --model simple --dataset random --classes 30000 --device-memory 2M", 1,
           "not even a batch of 2 fits");
}
