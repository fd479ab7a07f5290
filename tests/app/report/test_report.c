/* Tests reports of handmade records: every figure has its place and unit. test_profile.c tests the
 * profile. */
#include "report/compare_table.h"
#include "report/machine.h"
#include "report/text.h"
#include "tests/app/report/records.h"

/* single has a core for 1.7 of 2 s and the third device of DDP for 3.76 of 4. That of DP is worse
 * off, but there two devices share one. */
static void busy_machine(struct run_record run[3]) {
    const int cores[] = {1, 1, 3};
    char *text = text_of(busy_line, run);
    cr_expect_str_eq(text, "", "%s", text);
    free(text);
    for (int i = 0; i < 3; i++)
        run[i].cores = cores[i];
    run[0].device[0].no_core_ns = 300000000, run[1].device[1].no_core_ns = 900000000;
    run[2].device[2].no_core_ns = 240000000;
    text = text_of(busy_line, run);
    cr_expect_str_eq(text, "the machine was busy: single waited for a CPU core 15 % of its time, "
                           "DDP 6 %, so\n  do not trust these times\n");
    free(text);
    run[0].device[0].no_core_ns = 90000000, run[2].device[2].no_core_ns = 190000000; /* below 5 % */
    text = text_of(busy_line, run);
    cr_expect_str_eq(text, "", "%s", text);
    free(text);
}

static void usual_table(FILE *file, const struct run_record *run) {
    compare_table(file, TEXT_USUAL, run);
}

static void narrowest_table(FILE *file, const struct run_record *run) {
    compare_table(file, TEXT_NARROWEST, run);
}

static void narrow_table(FILE *file, const struct run_record *run) {
    compare_table(file, 70, run);
}

/* Runs that do not fit side by side stand below each other. */
static void narrow_terminals(struct run_record run[3]) {
    char *text = text_of(narrow_table, run);
    has(text, "^ +single +DP x 2$");
    has(text, "^ +DDP x 3$");
    has(text, "^samples/s +1250 +2500$");
    has(text, "^samples/s +625$");
    free(text);
    text = text_of(narrowest_table, run);
    has(text, "^ +DDP x 3\n-{20}\nseconds per epoch,\n  extrapolated\n +8.00\nsamples/s\n +625\n");
    has(text, "^speed-up over single\n +0.50\n");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        cr_expect_leq(strlen(line), 20, "%s", line);
    free(text);
}

Test(report, compare_table, .timeout = 30) {
    static struct run_record run[3]; /* too large for a small stack */
    run[0] = make(MODE_SINGLE, 1);
    run[1] = make(MODE_DP, 2);
    run[2] = make(MODE_DDP, 3);
    /* whole epochs, except in DDP */
    run[0].steps_per_epoch = run[1].steps_per_epoch = STEPS;
    run[2].training_seconds = 400; /* on a slow machine */
    char *head = text_of(usual_table, run);
    has(head, "^seconds per epoch, extrapolated ");
    has(head, "^  idle .* 39992 \\| 39994$");
    for (char *line = strtok(head, "\n"); line; line = strtok(NULL, "\n"))
        cr_expect_leq(strlen(line), 80, "%s", line);
    free(head);
    run[0].steps_per_epoch = run[1].steps_per_epoch = run[2].steps_per_epoch;
    run[1].training_seconds = 1, run[2].training_seconds = 4;
    char *text = text_of(usual_table, run);
    has(text, "^ +single +DP x 2 +DDP x 3$");
    /* 2500 of 5003 images, in 2, 1 and 4 s */
    has(text, "^seconds per epoch, extrapolated +4.00 +2.00 +8.00$");
    has(text, "^samples/s +1250 +2500 +625$");
    has(text, "^speed-up over single +1.00 +2.00 +0.50$");
    has(text, "^test accuracy( +0.8432){3}$");
    has(text, "^valid_loss( +0.5){3}$");
    has(text, "^last loss( +0.123456789){3}$");
    has(text, "^peak memory, device 0( +9 MiB){3}$");
    has(text, "^peak memory, other devices +- +4 MiB +4.5 MiB$");
    has(text, "^bytes per step: into device 0( +7 MiB){3}$");
    has(text, "^  out of device 0( +9 MiB){3}$");
    has(text, "^  into every other device +- +1 MiB +1 MiB$");
    has(text, "^  out of every other device +- +512 KiB +512 KiB$");
    has(text, "^  forward +4.00 +4.00 \\| 4.10 +4.00 \\| 4.15$");
    has(text, "^  optimizer +2.00 +2.00 \\| 0.00 +2.00 \\| 0.00$");
    has(text, "^  allreduce, hidden +- +- +2.00 \\| 2.00$");
    has(text, "^  allreduce, exposed +- +- +1.00 \\| 1.00$");
    has(text, "^  waiting for the others +- +0.50 \\| - +1.50 \\| 1.50$");
    has(text, "^  waiting for a CPU core +0.20 +0.20 \\| 0.30 +0.20 \\| 0.35$");
    /* idle: the rest of a step's wall time */
    has(text, "^  idle +193.10 +92.60 \\| 95.60 +391.60 \\| 394.00$");
    cr_expect(!strstr(text, "evaluate") && !strstr(text, "scatter"), "%s", text);
    free(text);
    narrow_terminals(run);
    busy_machine(run);
    run[1].accuracy[0] = -1;
    for (int i = 0; i < 3; i++)
        /* two whole epochs: the time they took, also where samples were left out */
        run[i].steps_per_epoch = 5;
    text = text_of(usual_table, run);
    has(text, "^seconds per epoch +1.00 +0.500 +2.00$");
    has(text, "^test accuracy +0.8432 +- +0.8432$");
    has(text, "^valid_loss +0.5 +- +0.5$");
    free(text);
    for (int i = 0; i < 3; i++)
        record_free(&run[i]);
}

Test(report, lines, .timeout = 30) {
    static struct run_record run[3]; /* too large for a small stack */
    run[0] = make(MODE_SINGLE, 1);
    run[1] = make(MODE_DP, 2);
    run[2] = make(MODE_DDP, 2);
    char *text = text_of(batch_line, run);
    has(text, "^batch: single: 250 x 1, DP: 125 x 2, DDP: 125 x 2 = global 250$");
    has(text, "^  adam, learning rate 0.125; 4 virtual devices, 3 duplicates per epoch$");
    free(text);
    run[0].virtual_devices = 0;
    text = text_of(batch_line, run);
    has(text, "^  adam, learning rate 0.125; virtual devices off$");
    free(text);
    strcpy(run[2].choice,
           "ring: it was asked for by name, and these are many words about the reason");
    run[2].bucket_bytes = calloc(2, sizeof *run[2].bucket_bytes), run[2].bucket_count = 2;
    run[2].bucket_bytes[0] = 4, run[2].bucket_bytes[1] = 100000;
    text = text_of(allreduce_lines, &run[2]);
    has(text, "^allreduce: ring: it was asked for by name, and these are many words about the$");
    has(text, "^  reason$");
    has(text, "^buckets of 4, 100000 bytes$");
    free(text);
    const struct {
        int gpus, cores, devices;
        const char *words;
    } kinds[] = {{0, 4, 4, "cpu devices"},
                 {0, 2, 8, "cpu devices (8 devices share 2 cores)"},
                 {0, 1, 2, "cpu devices (2 devices share 1 core)"},
                 {4, 2, 4, "cuda devices"},
                 {1, 2, 4, "cuda devices (4 devices share 1 GPU)"},
                 {2, 2, 3, "cuda devices (3 devices share 2 GPUs)"},
                 {1, 2, 1, "cuda devices"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct run_record r = {
            .gpus = kinds[i].gpus, .cores = kinds[i].cores, .devices = kinds[i].devices};
        strcpy(r.kind, r.gpus ? "cuda" : "cpu");
        struct text devices = {""};
        add_devices(&devices, &r);
        cr_expect_str_eq(devices.words, kinds[i].words);
    }
    text = text_of(chapter_line, &run[1]);
    cr_expect_str_eq(
        text, "DP     test acc: 0.84, 4.00 sec/epoch on [cpu(0), cpu(1)], extrapolated from 10\n"
              "       steps of 20 per epoch\n");
    free(text);
    run[0].accuracy[0] = -1, run[0].steps_per_epoch = 10;
    text = text_of(chapter_line, run);
    cr_expect_str_eq(text, "single 2.00 sec/epoch on [cpu(0)]\n");
    free(text);
    for (int i = 0; i < 3; i++)
        record_free(&run[i]);
}

Test(report, shares_of_a_batch, .timeout = 30) {
    char text[32];
    cr_expect_str_eq(share_words(256, 2, 0, text), "128");
    cr_expect_str_eq(share_words(32, 3, 0, text), "10 or 11");
    cr_expect_str_eq(share_words(10, 4, 1, text), "at most 3"); /* 3 3 3 1 */
    cr_expect_str_eq(share_words(8, 4, 1, text), "2");
}
