/* Makes run records for the tests of reports, and searches a report for words. */
#ifndef TESTS_REPORT_RECORDS_H
#define TESTS_REPORT_RECORDS_H

#include "tests/app/cli/json.h"
#include "trace/record.h"

enum { MIB = 1 << 20, STEPS = 10 };

static inline struct run_record make(enum run_mode mode, int devices) {
    struct run_record r = {.mode = mode,
                           .devices = devices,
                           .virtual_devices = 4,
                           .batch_size = 250,
                           .lr = 0.125,
                           .steps = STEPS,
                           .samples = 2500,
                           .train_samples = 5000,
                           .steps_per_epoch = 20,
                           .training_seconds = 2,
                           .epoch_count = 1,
                           .duplicates = 3};
    strcpy(r.kind, "cpu"), strcpy(r.optimizer, "adam");
    r.losses = calloc(STEPS, sizeof *r.losses);
    r.accuracy = calloc(1, sizeof *r.accuracy);
    r.valid_loss = calloc(1, sizeof *r.valid_loss);
    r.losses[STEPS - 1] = 0.123456789;
    r.accuracy[0] = 0.84321, r.valid_loss[0] = 0.5;
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
        x->exposed_ns = x->comm_ns / 3;
        x->no_core_ns = 2000000 + 1000000 * d;
        x->wait_ns = mode == MODE_DDP ? 15000000 : mode == MODE_DP && d == 0 ? 5000000 : 0;
    }
    return r;
}

static inline char *text_of(void (*print)(FILE *, const struct run_record *),
                            const struct run_record *run) {
    char *text;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    print(f, run);
    fclose(f);
    return text;
}

static inline void has(const char *text, const char *line) {
    cr_expect(matches(text, line), "no '%s' in:\n%s", line, text);
}

#endif
