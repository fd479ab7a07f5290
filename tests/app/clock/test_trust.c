/* Checks that the stated errors of modelled times are those of the held-out rows: `duet estimate
 * --validate` computes the table of clock/trust.c from them. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "clock/trust.h"
#include "tests/harness/harness.h"

Test(trust, the_largest_of_few) {
    double many[] = {9, 3, 1, 7, 5, 2, 8, 4, 6, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19},
           few[] = {2, 1};
    cr_expect_eq(trust_quantile(many, 19), 19);
    cr_expect_eq(trust_quantile(few, 2), 2);
    cr_expect_eq(trust_quantile(few, 0), 0);
}

/* Returns the kind of two convolutions; an output of the second sees group_width channels. */
static enum clock_kind kind_of(int group_width) {
    struct scheduled list[2] = {{.kind = SCHEDULED_KERNEL, .facts = {.phase = PHASE_FORWARD}}};
    struct program program = {.list = list, .count = 2};
    list[0].work = (struct work){.of = WORK_CONV, .flops = 1e9, .eager = 1};
    list[1] = list[0];
    list[1].work.group_width = group_width;
    if (group_width) list[1].work.of = WORK_CONV_GROUPED;
    return trust_kind(&program, 1, 1);
}

Test(trust, depthwise_convolutions_are_a_kind_of_their_own) {
    cr_expect_eq(kind_of(0), CLOCK_DENSE);
    cr_expect_eq(kind_of(4), CLOCK_GROUPED);
    cr_expect_eq(kind_of(1), CLOCK_DEPTHWISE);
}

/* Times on so many GPUs of a machine that nobody calibrated, or of a calibrated one whose time of
 * one GPU was given. */
static double error_of(struct trust_cell cell, int devices, int *rows) {
    struct gpu_spec gpu = {.name = "g"};
    struct machine machine = {.gpu = "g", .fitted = cell.informed};
    struct clock_config c = {.gpu = &gpu,
                             .machine = &machine,
                             .kind = cell.kind,
                             .way = cell.way,
                             .precision = cell.mixed ? CLOCK_AMP : CLOCK_AS_PYTORCH,
                             .devices = devices,
                             .given = cell.informed && cell.way != CLOCK_SINGLE};
    return trust_error(&c, rows);
}

/* A row of the table as it is printed: kind, amp, mode, GPUs, known, rows, error. */
static int check_row(const char *line) {
    struct trust_cell cell = {.way = CLOCK_WAYS};
    char mixed[8], way[8], gpus[8], informed[8];
    int printed, rows;
    double percent;
    for (int k = 0; k < CLOCK_KINDS; k++) {
        const char *name = trust_kind_name((enum clock_kind)k);
        if (strncmp(line + 2, name, strlen(name))) continue;
        cell.kind = (enum clock_kind)k;
        line += 2 + strlen(name);
        break;
    }
    if (sscanf(line, "%7s %7s %7s %7s %d %lf", mixed, way, gpus, informed, &printed, &percent) != 6)
        return 0;
    for (int w = 0; w < CLOCK_WAYS; w++)
        if (!strcmp(way, trust_way_name((enum clock_way)w))) cell.way = (enum clock_way)w;
    cell.mixed = *mixed == 'a', cell.informed = *informed == 'y';
    double error = error_of(cell, gpus[0] - '0', &rows);
    cr_expect(error == percent && rows == printed, "%s: %.1f of %d rows", line, error, rows);
    return 1;
}

/* Given the time of one GPU, or a calibrated machine, the stated error is never larger. */
Test(trust, to_know_more_costs_nothing) {
    int rows;
    for (int i = 0; i < CLOCK_KINDS * CLOCK_WAYS * 2 * 8; i++) {
        struct trust_cell cell = {.kind = (enum clock_kind)(i / 8 / 2 / CLOCK_WAYS),
                                  .way = (enum clock_way)(i / 8 / 2 % CLOCK_WAYS),
                                  .mixed = i / 8 % 2};
        int devices = 1 + i % 8;
        double without = error_of(cell, devices, &rows);
        cell.informed = 1;
        cr_expect(!rows || error_of(cell, devices, &rows) <= without, "%s, %s on %d",
                  trust_kind_name(cell.kind), trust_way_name(cell.way), devices);
    }
}

/* A row: table, machine, model of one word or of two, GPUs, role, measured, modelled. What its
 * command prints is the row's time, to the last digit. */
static void expect_same(const char *row, const char *command) {
    char typed[600], ms[16], line[256] = "", word[24] = "";
    snprintf(typed, sizeof typed, "build/%s", command + 4);
    cr_assert(sscanf(row, "%*s %*s %*s %*d %*d %*c %*s %15s", ms) == 1 ||
              sscanf(row, "%*s %*s %*s %*d %*c %*s %15s", ms) == 1);
    FILE *f = popen(typed, "r");
    cr_assert(f && fgets(line, sizeof line, f), "%s", typed);
    cr_expect_eq(pclose(f), 0, "%s", typed);
    cr_expect(sscanf(line, "%*s %*s %23s", word) == 1 && !strcmp(word, ms), "%s: %s, not %s", typed,
              line, ms);
}

Test(trust, the_table_is_that_of_the_rows_held_out_and_ten_rows_can_be_typed, .timeout = 300) {
    static char line[512], row[512];
    int in_table = 0, checked = 0, count = 0, shares = 0;
    if (test_short()) cr_skip_test("it runs all rows: seconds, and minutes under a sanitizer");
    FILE *f = popen("build/duet estimate --validate --details", "r");
    cr_assert_not_null(f);
    for (; fgets(line, sizeof line, f); memcpy(row, line, sizeof row)) {
        if (!strncmp(line, "error to expect", 15)) in_table = 1;
        if (in_table) checked += check_row(line);
        const char *share = strstr(line, " %), median error");
        if (share) shares += atof(share - 4) >= 90; /* percent of the held-out rows */
        if (!strncmp(line, "    duet ", 9) && ++count % 44 == 0) expect_same(row, line);
    }
    cr_expect_eq(pclose(f), 0);
    cr_expect(checked == 42 && shares == 2, "%d, %d", checked, shares);
    cr_assert_eq(count, 453);
}

Test(trust, what_nobody_has_measured_is_said_to_be_unknown) {
    struct gpu_spec gpu = {.name = "g"};
    struct machine machine = {.gpu = "g", .fitted = 1, .error = 7}; /* of a file */
    struct clock_config c = {.gpu = &gpu, .machine = &machine};
    int rows = 1;
    cr_expect_eq(trust_error(&c, &rows), 7);
    for (int mixed = 0; mixed < 2; mixed++)
        for (int k = 0; k < 2; k++) {
            struct trust_cell cell = {
                .kind = k ? CLOCK_DEPTHWISE : CLOCK_OTHER, .way = CLOCK_DP, .mixed = mixed};
            cr_expect(error_of(cell, 2, &rows) == TRUST_UNMEASURED && !rows);
        }
}
