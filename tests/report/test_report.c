/* Reports of records that are made by hand: every figure is in its place and unit, and what device
 * 0 has more of is found, in order. */
#include "report/compare_table.h"
#include "report/profile_table.h"
#include "report/table.h"
#include "tests/cli/json.h"

enum { MIB = 1 << 20, STEPS = 10 };

static struct run_record make(enum run_mode mode, int devices) {
    struct run_record r = {.mode = mode,
                           .devices = devices,
                           .virtual_devices = 4,
                           .batch_size = 250,
                           .lr = 0.125,
                           .steps = STEPS,
                           .images = 2500,
                           .train_samples = 5000,
                           .steps_per_epoch = 20,
                           .training_seconds = 2,
                           .epoch_count = 1,
                           .duplicates = 3};
    strcpy(r.kind, "cpu"), strcpy(r.optimizer, "adam");
    r.losses = calloc(STEPS, sizeof *r.losses);
    r.accuracy = calloc(1, sizeof *r.accuracy);
    r.losses[STEPS - 1] = 0.123456789;
    r.accuracy[0] = 0.84321;
    for (int d = 0; d < devices; d++) {
        struct device_record *x = &r.device[d];
        x->memory.now[MEM_PARAMS] = x->memory.peak[MEM_PARAMS] = x->memory.at_peak[MEM_PARAMS] =
            2 * MIB;
        x->memory.total = 2 * MIB, x->memory.total_peak = (uint64_t)(d == 0 ? 9 : 3 + d) * MIB;
        x->memory.peak[MEM_ACTIVATIONS] = x->memory.at_peak[MEM_ACTIVATIONS] =
            x->memory.total_peak - 2 * MIB;
        x->bytes_in = (uint64_t)(d == 0 ? 70 : 10) * MIB,
        x->bytes_out = (uint64_t)(d == 0 ? 90 : 5) * MIB;
        x->phase_ns[PHASE_FORWARD] = 40000000 + 1000000 * d;
        x->phase_ns[PHASE_OPTIMIZER] = d ? 0 : 20000000;
        x->phase_ns[PHASE_EVALUATE] = 900000000,
        x->phase_ns[PHASE_PROOF] = d ? 0 : 7000000; /* neither is part of a training step */
        x->busy_ns = x->phase_ns[PHASE_FORWARD] + x->phase_ns[PHASE_OPTIMIZER];
        x->comm_ns = mode == MODE_DDP ? 30000000 : 0;
        x->no_core_ns = 2000000 + 1000000 * d;
        x->wait_ns = mode == MODE_DDP ? 15000000 : mode == MODE_DP && d == 0 ? 5000000 : 0;
    }
    return r;
}

static char *text_of(void (*print)(FILE *, const struct run_record *),
                     const struct run_record *run) {
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    print(f, run);
    fclose(f);
    return text;
}

static void has(const char *text, const char *line) {
    cr_expect(matches(text, line), "no '%s' in:\n%s", line, text);
}

Test(report, compare_table, .timeout = 30) {
    struct run_record run[3] = {make(MODE_SINGLE, 1), make(MODE_DP, 2), make(MODE_DDP, 3)};
    /* whole epochs, except in DDP */
    run[0].steps_per_epoch = run[1].steps_per_epoch = STEPS;
    char *head = text_of(compare_table, run);
    has(head, "^seconds an epoch, extrapolated ");
    free(head);
    run[0].steps_per_epoch = run[1].steps_per_epoch = run[2].steps_per_epoch;
    run[1].training_seconds = 1, run[2].training_seconds = 4;
    char *text = text_of(compare_table, run);
    has(text, "^ +single +DP x 2 +DDP x 3$");
    /* 2500 of 5003 images, in 2, 1 and 4 s */
    has(text, "^seconds an epoch, extrapolated +4.00 +2.00 +8.00$");
    has(text, "^images/s +1250 +2500 +625$");
    has(text, "^speed-up over single +1.00 +2.00 +0.50$");
    has(text, "^test accuracy( +0.8432){3}$");
    has(text, "^last loss( +0.123456789){3}$");
    has(text, "^peak memory, device 0( +9 MiB){3}$");
    has(text, "^peak memory, each other +- +4 MiB +4.5 MiB$");
    has(text, "^bytes into device 0, a step( +7 MiB){3}$");
    has(text, "^bytes out of device 0( +9 MiB){3}$");
    has(text, "^bytes into each other +- +1 MiB +1 MiB$");
    has(text, "^bytes out of each other +- +512 KiB +512 KiB$");
    has(text, "^  forward +4.00 +4.00 \\| 4.10 +4.00 \\| 4.15$");
    has(text, "^  optimizer +2.00 +2.00 \\| 0.00 +2.00 \\| 0.00$");
    has(text, "^  allreduce, beside backward +- +- +3.00 \\| 3.00$");
    has(text, "^  waiting for the others +- +0.50 \\| - +1.50 \\| 1.50$");
    has(text, "^  without a core +0.20 +0.20 \\| 0.30 +0.20 \\| 0.35$");
    /* idle: the rest of a step's wall time */
    has(text, "^  idle +193.10 +92.60 \\| 95.60 +391.60 \\| 394.00$");
    cr_expect(!strstr(text, "evaluate") && !strstr(text, "scatter"), "%s", text);
    free(text);
    run[1].accuracy[0] = -1;
    for (int i = 0; i < 3; i++)
        /* two whole epochs: the time they took, also where samples were left out */
        run[i].steps_per_epoch = 5;
    text = text_of(compare_table, run);
    has(text, "^seconds an epoch +1.00 +0.50 +2.00$");
    has(text, "^test accuracy +0.8432 +- +0.8432$");
    free(text);
    for (int i = 0; i < 3; i++)
        record_free(&run[i]);
}

Test(report, lines, .timeout = 30) {
    struct run_record run[3] = {make(MODE_SINGLE, 1), make(MODE_DP, 2), make(MODE_DDP, 2)};
    char *text = text_of(batch_line, run);
    has(text, "^batch: single: 250 x 1, DP: 125 x 2, DDP: 125 x 2 = global 250; adam, learning "
              "rate 0.125; 4 "
              "virtual devices, 3 duplicates an epoch$");
    free(text);
    run[0].virtual_devices = 0;
    text = text_of(batch_line, run);
    has(text, "adam, learning rate 0.125; virtual devices off$");
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
        text = text_of(device_words, &r);
        cr_expect_str_eq(text, kinds[i].words);
        free(text);
    }
    text = text_of(chapter_line, &run[1]);
    cr_expect_str_eq(text, "test acc: 0.84, 4.0 sec/epoch on [cpu(0), cpu(1)], extrapolated from "
                           "10 steps (an epoch has 20)\n");
    free(text);
    run[0].accuracy[0] = -1, run[0].steps_per_epoch = 10;
    text = text_of(chapter_line, run);
    cr_expect_str_eq(text, "2.0 sec/epoch on [cpu(0)]\n");
    free(text);
    for (int i = 0; i < 3; i++)
        record_free(&run[i]);
}

static void profile(FILE *file, const struct run_record *run) {
    profile_table(file, "DP", run);
}

Test(report, profile_table, .timeout = 30) {
    struct run_record run = make(MODE_DP, 3);
    char *text = text_of(profile, &run);
    has(text, "^DP: 3 devices, global batch 250, mean of 10 steps, 1250 images/s$");
    has(text, "^dev +memory +total +params +activations$");
    has(text, "^  0  now +2 MiB +2 MiB +-$");
    has(text, "^  0  peak +9 MiB +2 MiB +7 MiB$");
    has(text, "^  2  peak +5 MiB +2 MiB +3 MiB$");
    has(text, "^dev +bytes in +bytes out +busy ms +forward optimizer +waiting$");
    has(text, "^  0 +7 MiB +9 MiB +6.00 +4.000 +2.000 +0.50$");
    has(text, "^  1 +1 MiB +512 KiB +4.10 +4.100 +0.000 +-$");
    has(text, "^  memory at peak +activations \\+4.5 MiB$");
    has(text, "^  link bytes a step +bytes out \\+8.5 MiB, bytes in \\+6 MiB$");
    has(text, "^  ms a step +optimizer \\+2.000$");
    cr_expect(!strstr(text, "evaluate") && !strstr(text, "proof") && !strstr(text, "allreduce") &&
                  !strstr(text, "buckets"),
              "%s", text);
    free(text);
    /* An excess that would be printed as zero is left out. */
    /* in ns, over 10 steps */
    run.device[0].phase_ns[PHASE_INPUT] = 4999, run.device[0].phase_ns[PHASE_LOSS] = 5001;
    run.device[0].bytes_in = run.device[1].bytes_in + 4;
    text = text_of(profile, &run);
    has(text, "^  ms a step +optimizer \\+2.000, loss \\+0.001$");
    has(text, "^  link bytes a step +bytes out \\+8.5 MiB$");
    free(text);
    record_free(&run);
    run = make(MODE_DDP, 2);
    text = text_of(profile, &run);
    has(text, "^gradients lie in DDP's buckets, once; PyTorch holds them twice unless ");
    has(text, "^dev +bytes in .* waiting +allreduce \\(beside\\)$");
    has(text, "^  1 +1 MiB .* 1.50 +3.00$");
    free(text);
    record_free(&run);
    run = make(MODE_SINGLE, 1);
    text = text_of(profile, &run);
    has(text, "^DP: 1 device, ");
    has(text, "^  memory at peak +nothing$");
    free(text);
    record_free(&run);
}

/* The largest first; only what device 0 has more of. */
Test(report, excess, .timeout = 30) {
    struct run_record run = make(MODE_DP, 2);
    struct excess list[EXCESS_MAX];
    run.device[0].memory.at_peak[MEM_GATHERED] = 100, run.device[0].memory.at_peak[MEM_INPUT] = 300,
    run.device[1].memory.at_peak[MEM_INPUT] = 100;
    run.device[1].memory.at_peak[MEM_COMM] = 5000; /* less on device 0 is no excess */
    run.device[0].memory.at_peak[MEM_ACTIVATIONS] = run.device[1].memory.at_peak[MEM_ACTIVATIONS];
    cr_assert_eq(profile_excess(&run, EXCESS_MEMORY, list), 2);
    cr_assert(!strcmp(list[0].name, "input") && list[0].amount == 200 &&
              !strcmp(list[1].name, "gathered output") && list[1].amount == 100);
    cr_assert_eq(profile_excess(&run, EXCESS_TRAFFIC, list), 2);
    cr_assert(!strcmp(list[0].name, "bytes out") && list[0].amount == 8.5 * MIB &&
              list[1].amount == 6.0 * MIB);
    run.device[0].phase_ns[PHASE_REDUCE] = 50000000;
    cr_assert_eq(profile_excess(&run, EXCESS_TIME, list), 2);
    cr_assert(!strcmp(list[0].name, "reduce") && list[0].amount == 5e6 &&
              !strcmp(list[1].name, "optimizer") && list[1].amount == 2e6);
    record_free(&run);
    run = make(MODE_SINGLE, 1);
    for (int kind = EXCESS_MEMORY; kind <= EXCESS_TIME; kind++)
        cr_assert_eq(profile_excess(&run, kind, list), 0);
    record_free(&run);
}
