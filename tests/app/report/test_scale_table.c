/* The table of duet scale: its columns, its width, and what is said of shared cores. */
#include <stdlib.h>
#include <string.h>

#include "report/scale_table.h"
#include "report/text.h"
#include "tests/harness/harness.h"

enum { RUNS = 4, WIDEST = 80 };

static struct run_record runs[RUNS];
static double losses[1], accuracy[RUNS][1], valid[RUNS][1];
static struct scale_line lines[RUNS];

/* 1, 2, 4 and 8 devices by rates of 0.5; the last two with wide numbers. */
static void make(void) {
    static const double published[RUNS] = {30, 20, 15, 18};
    memset(runs, 0, sizeof runs);
    losses[0] = 0.0512345678;
    for (int i = 0; i < RUNS; i++) {
        struct run_record *r = &runs[i];
        r->devices = 1 << i, r->batch_size = i < 2 ? 128 : 262144, r->lr = i < 2 ? 0.5 : 0.000125;
        r->steps = 1, r->losses = losses, r->epoch_count = 1, r->accuracy = accuracy[i];
        r->training_seconds = 12.345678, accuracy[i][0] = 0.9 + 0.01 * i;
        r->valid_loss = valid[i], valid[i][0] = i < 2 ? 0.25 : 34.56789;
        lines[i] = (struct scale_line){r, 1.5 * i + 1, i ? "equal" : "first", published[i]};
    }
}

static char *text_of(void (*print)(FILE *file)) {
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    cr_assert_not_null(file);
    print(file);
    fclose(file);
    return text;
}

static void print_table(FILE *file) {
    scale_table_head(file, 1);
    for (int i = 0; i < RUNS; i++)
        scale_table_line(file, &lines[i], 1);
}

Test(scale_table, lines_of_80_columns, .timeout = 30) {
    make();
    char *text = text_of(print_table), *line = text;
    cr_expect(strstr(text, "\n      1   128    128      0.5   12.35  1.00 0.05123 0.25000 0.9000  "
                           "first  30 s\n"),
              "%s", text);
    cr_expect(strstr(text, "  34.568 0.9300  equal  18 s\n"), "%s", text);
    for (int i = 0; i < 3 + RUNS; i++, line = strchr(line, '\n') + 1)
        cr_expect_leq(strcspn(line, "\n"), (size_t)WIDEST, "%s", text);
    free(text);
}

static void print_sharing(FILE *file) {
    scale_sharing(file, lines, RUNS, 2);
}

Test(scale_table, more_devices_than_cores_are_named, .timeout = 30) {
    make();
    char *text = text_of(print_sharing);
    cr_expect(strstr(text, "4 devices on 2 cores, 8 devices on 2 cores: ") == text, "%s", text);
    free(text);
    for (int i = 0; i < RUNS; i++)
        runs[i].gpus = i < 2 ? 1 << i : 4;
    text = text_of(print_sharing);
    cr_expect(strstr(text, "8 devices on 4 GPUs: ") == text, "%s", text);
    free(text);
    runs[3].devices = 4; /* none shares */
    text = text_of(print_sharing);
    cr_expect_str_eq(text, "");
    free(text);
}

static void print_best(FILE *file) {
    scale_best_rates(file, lines, RUNS);
}

Test(scale_table, the_best_rate_of_each_device_count, .timeout = 30) {
    make();
    char *text = text_of(print_best);
    cr_expect_str_eq(text, "", "one rate each");
    free(text);
    runs[1].devices = 1, runs[3].devices = 4, accuracy[3][0] = 0.5, runs[1].lr = 0.25;
    text = text_of(print_best);
    cr_expect_str_eq(text, "1 device: best test accuracy 0.9100 at learning rate 0.25\n"
                           "4 devices: best test accuracy 0.9200 at learning rate 0.000125\n");
    free(text);
    accuracy[0][0] = accuracy[1][0] = 0.5;
    text = text_of(print_best);
    cr_expect(strstr(text, "1 device: best test accuracy 0.5000 at learning rate 0.5, as at 1 "
                           "other\n"),
              "%s", text);
    free(text);
}

Test(scale_table, shares_of_a_batch, .timeout = 30) {
    char text[32];
    cr_expect_str_eq(share_words(256, 2, 0, text), "128");
    cr_expect_str_eq(share_words(32, 3, 0, text), "10 or 11");
    cr_expect_str_eq(share_words(10, 4, 1, text), "at most 3"); /* 3 3 3 1 */
    cr_expect_str_eq(share_words(8, 4, 1, text), "2");
}
