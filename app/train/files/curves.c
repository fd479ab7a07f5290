/* Writes the curves of a run: see curves.h. */
#include "train/files/curves.h"

#include <stdio.h>
#include <time.h>

#include "base/error.h"

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void curves_steps(struct curves *c, const struct run_record *r, int first, double seconds) {
    double now = wall_time();
    /* A resumed run writes its first step again: the loss has the same bits, and the values of an
     * epoch that ended there are kept. */
    if (!first && r->resumed_from_step) event_file_start(&c->file, now, r->resumed_from_step + 1);
    for (int i = first; i < r->steps; i++)
        event_file_scalar(&c->file, now, r->first_step + i, "Loss/train", r->losses[i]);
    if (seconds > c->seconds && r->samples > c->samples)
        event_file_scalar(&c->file, now, r->first_step + r->steps, "Speed/samples_per_second",
                          (double)(r->samples - c->samples) / (seconds - c->seconds));
    c->samples = r->samples;
    c->seconds = seconds;
    event_file_flush(&c->file);
}

static void add_memory(struct curves *c, double now, int step, int device, uint64_t bytes,
                       const char *what) {
    char tag[64];
    snprintf(tag, sizeof tag, "Memory/device_%d%s_MiB", device, what);
    event_file_scalar(&c->file, now, step, tag, (double)bytes / (1 << 20));
}

static void add_epoch(struct curves *c, const struct run_record *r, const struct ledger *memory) {
    double now = wall_time(), sum = 0;
    int step = r->first_step + r->steps, steps = r->steps - c->epoch_start;
    for (int i = c->epoch_start; i < r->steps; i++)
        sum += r->losses[i];
    if (steps) event_file_scalar(&c->file, now, step, "Loss/train_epoch", sum / steps);
    c->epoch_start = r->steps;
    if (record_last_accuracy(r) >= 0) {
        event_file_scalar(&c->file, now, step, "Accuracy/test", record_last_accuracy(r));
        event_file_scalar(&c->file, now, step, "Loss/valid", record_last_valid_loss(r));
    }
    event_file_scalar(&c->file, now, step, "Learning_rate", r->epoch_lr[r->epoch_count - 1]);
    for (int d = 0; d < r->devices; d++) {
        add_memory(c, now, step, d, memory[d].total, "");
        add_memory(c, now, step, d, memory[d].total_peak, "_peak");
    }
    event_file_flush(&c->file);
}

int curves_epoch(struct curves *c, struct session *s) {
    struct ledger memory[MAX_DEVICES];
    if (!*s->config->files.tensorboard) return OK;
    for (int i = 0; i < s->device_count; i++)
        memory[i] = device_ledger(s->device[i]);
    struct ledger mine = memory[0];
    if (s->ranks > 1) CHECK(comm_gather(s->comm, &mine, sizeof mine, memory));
    if (session_leads(s)) add_epoch(c, s->record, memory);
    return OK;
}
