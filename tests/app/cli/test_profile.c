/* Tests duet profile: the tables of its three runs, the same numbers in --json, and relations that
 * must hold between them. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

static const char *const KEYS[] = {"dp", "dp_loss_in_forward", "ddp"};
static const char *const TITLES[] = {"DP: ", "DP, loss in forward: ", "DDP: "};
enum { STEPS = 4, DEVICES = 3 };

/* The text of one table, from its title to the next table. */
static char *section(const char *out, int i) {
    const char *from = strstr(out, TITLES[i]);
    while (from && from > out && from[-1] != '\n')
        from = strstr(from + 1, TITLES[i]);
    cr_assert_not_null(from, "no table '%s' in %s", TITLES[i], out);
    const char *end = strstr(from, "\n\n");
    return end ? strndup(from, (size_t)(end - from) + 1) : strdup(from);
}

/* Compares times in the table with those in the file. In DP the other devices share a column, in
 * DDP all do. */
static void check_numbers(const char *table, const struct json *root, int run) {
    static const char *const keys[] = {"busy_ns", "phase_ns/forward", "phase_ns/backward"};
    static const char *const names[] = {"busy ms per step", "  forward", "  backward"};
    for (int k = 0; k < 3; k++) {
        double sum = 0, first = (double)json_int(root, "%s/per_device/0/%s", KEYS[run], keys[k]);
        for (int d = 1; d < DEVICES; d++)
            sum += (double)json_int(root, "%s/per_device/%d/%s", KEYS[run], d, keys[k]);
        char row[128];
        if (run == 2)
            snprintf(row, sizeof row, "^%s +%.3f$", names[k],
                     (first + sum) / DEVICES / STEPS * 1e-6);
        else
            snprintf(row, sizeof row, "^%s +%.3f +%.3f$", names[k], first / STEPS * 1e-6,
                     sum / (DEVICES - 1) / STEPS * 1e-6);
        cr_expect(matches(table, row), "no '%s' in %s", row, table);
    }
}

static int64_t sum_of(const struct json *root, int run, const char *key) {
    int64_t sum = 0;
    for (int d = 0; d < DEVICES; d++)
        sum += json_int(root, "%s/per_device/%d/%s", KEYS[run], d, key);
    return sum;
}

CliTest(cli_profile, three_tables, 120) {
    char *table[3];
    put_data(300, 20);
    char *out = cli_output("profile --details --devices %d --data-dir d --batch-size 60 --steps %d "
                           "--json j",
                           DEVICES, STEPS);
    cr_expect(plain_lines(out));
    struct json *root = json_of("j");
    for (int i = 0; i < 3; i++) {
        table[i] = section(out, i);
        cr_expect(matches(table[i], "3 devices( on [12] cores?)?, global batch 60, 4 steps"), "%s",
                  table[i]);
        check_numbers(table[i], root, i);
        /* Bytes out of a device go into another one or to the host; from the host comes the
         * batch. */
        cr_expect_geq(sum_of(root, i, "bytes_in"), sum_of(root, i, "bytes_out"));
        for (int d = 0; d < DEVICES; d++) {
            const struct json *phases = json_at(root, "%s/per_device/%d/phase_ns", KEYS[i], d);
            cr_expect(json_int(phases, "evaluate") == 0 && json_int(phases, "proof") == 0,
                      "only training is measured");
            cr_expect(json_int(phases, "forward") > 0 && json_int(phases, "backward") > 0);
            cr_expect_eq(json_int(phases, "optimizer") > 0, i == 2 || d == 0,
                         "DP's optimizer runs on device 0 alone");
            cr_expect_eq(json_int(phases, "replicate") > 0, i < 2 && d == 0,
                         "DDP replicates in set-up, which is not measured");
        }
    }
    /* In DP device 0's thread waits for the others. Waiting of the other devices is not
     * measured. */
    for (int i = 0; i < 2; i++)
        cr_expect(json_int(root, "%s/per_device/0/wait_ns", KEYS[i]) > 0 &&
                      json_int(root, "%s/per_device/1/wait_ns", KEYS[i]) == 0 &&
                      matches(table[i], "^ +device 0 +devices 1-2$") &&
                      matches(table[i], "^  .waiting for the others. +[0-9.]+ +-$"),
                  "%s", table[i]);
    /* Only plain DP gathers outputs: how many bytes is in test_wide_head.c. */
    cr_expect(strstr(table[0], "gathered output") && !strstr(table[1], "gathered output") &&
              !strstr(table[2], "gathered output"));
    /* DDP's ranks do the same work, and each has memory for collectives. */
    cr_expect(matches(table[2], "^ +devices 0-2$") && strstr(table[2], "(allreduce, exposed)"),
              "%s", table[2]);
    cr_expect_gt(json_int(root, "ddp/per_device/1/comm_ns"), 0);
    cr_expect_eq(json_int(root, "ddp/per_device/0/memory_peak"),
                 json_int(root, "ddp/per_device/2/memory_peak"));
    cr_expect(strstr(out, "\nwhat this means\n") && strstr(out, "\nAt its peak, device 0 ") &&
              strstr(out, "\nPyTorch's DataParallel would hold ") &&
              strstr(out, "\nIn DDP every device holds all parameters and gradients"));
    for (int i = 0; i < 3; i++)
        free(table[i]);
    json_free(root), free(out);
}
