/* Times of transfers by formula: see transfer.h. */
#include "report/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "allreduce/select.h"
#include "report/text.h"

static double seconds(double bytes, double transfers, const struct link_speed *link) {
    return bytes / (link->gbs * 1e9) + transfers * link->us * 1e-6;
}

static double bytes_of(const struct run_record *r, int device, enum phase phase) {
    return record_per_step(r, (double)r->device[device].phase_bytes[phase]);
}

static double moves_of(const struct run_record *r, int device, enum phase phase) {
    return record_per_step(r, (double)r->device[device].phase_moves[phase]);
}

static double most_seconds(const struct run_record *r, enum phase phase,
                           const struct link_speed *link) {
    double most = 0;
    for (int d = 0; d < r->devices; d++) {
        double one = seconds(bytes_of(r, d, phase), moves_of(r, d, phase), link);
        if (one > most) most = one;
    }
    return most;
}

/* Every rank but rank 0 reads rank 0's buffers, at the same time. */
static double broadcast_seconds(const struct run_record *r, const struct link_speed *link) {
    double all = 0, copies = 0;
    for (int d = 0; d < r->devices; d++) {
        all += bytes_of(r, d, PHASE_REPLICATE);
        copies += moves_of(r, d, PHASE_REPLICATE);
    }
    return seconds(all, copies / (r->devices > 1 ? r->devices - 1 : 1), link);
}

/* Waits of one call, one after another, in the record's algorithm; `choice` begins with its
 * name. */
static double waits_a_call(const struct run_record *r) {
    const struct allreduce_link waits_alone = {.flag_us = 1, .rank_gbs = 1e30};
    enum allreduce_algorithm algorithm;
    char name[16];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(r->choice, ": "), r->choice);
    if (r->devices < 2 || allreduce_algorithm_parse(name, &algorithm)) return 0;
    return allreduce_cost(algorithm, r->devices, 1, &waits_alone);
}

/* Of the bytes in and out of a device those of the allreduces: without what the host sends, the
 * buffers of rank 0, and SyncBatchNorm's all-gathers, in which each rank sends what it gets. */
static double allreduce_bytes(const struct run_record *r, int device) {
    const struct device_record *d = &r->device[device];
    double in = record_per_step(r, (double)d->bytes_in),
           out = record_per_step(r, (double)d->bytes_out), buffers = 0;
    double gathered = bytes_of(r, device, PHASE_FORWARD) + bytes_of(r, device, PHASE_BACKWARD);
    for (int i = 0; i < r->devices; i++)
        buffers += bytes_of(r, i, PHASE_REPLICATE);
    in -= bytes_of(r, device, PHASE_INPUT) + bytes_of(r, device, PHASE_REPLICATE) + gathered;
    out -= (device ? 0 : buffers) + gathered;
    return in > out ? in : out;
}

static double allreduce_seconds(const struct run_record *r, const struct link_speed *link) {
    double most = 0, calls = moves_of(r, 0, PHASE_ALLREDUCE);
    for (int d = 0; d < r->devices; d++) {
        double bytes = allreduce_bytes(r, d), here = moves_of(r, d, PHASE_ALLREDUCE);
        if (bytes > most) most = bytes;
        if (here > calls) calls = here;
    }
    return seconds(most, calls * waits_a_call(r), link);
}

double transfer_seconds(const struct run_record *r, enum phase phase,
                        const struct link_speed *link) {
    if (r->devices < 2 || phase == PHASE_INPUT) return 0;
    if (phase == PHASE_ALLREDUCE) return r->mode == MODE_DDP ? allreduce_seconds(r, link) : 0;
    if (phase == PHASE_REPLICATE && r->mode == MODE_DDP) return broadcast_seconds(r, link);
    return most_seconds(r, phase, link);
}

static int is_of_a_step(int phase) {
    return phase != PHASE_NONE && phase != PHASE_EVALUATE && phase != PHASE_PROOF;
}

double transfer_seconds_a_step(const struct run_record *r, const struct link_speed *link) {
    double all = 0;
    for (int p = 0; p < PHASE_COUNT; p++)
        if (is_of_a_step(p)) all += transfer_seconds(r, (enum phase)p, link);
    return all;
}

void transfer_print(FILE *file, int width, const char *title, const struct run_record *r,
                    const struct link_speed *link) {
    struct text text = {.used = 0};
    int parts = 0;
    text_add(&text, "%s: %.3f ms a step", title, transfer_seconds_a_step(r, link) * 1e3);
    for (int p = 0; p < PHASE_COUNT; p++) {
        double one = is_of_a_step(p) ? transfer_seconds(r, (enum phase)p, link) : 0;
        if (one > 0)
            text_add(&text, "%s %s %.3f", parts++ ? "," : ":", phase_name((enum phase)p),
                     one * 1e3);
    }
    if (r->mode == MODE_DDP && r->devices > 1) text_add(&text, " (beside backward)");
    text_wrap(file, width, 2, 4, text.words);
}
