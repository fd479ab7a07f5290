/* Computes the memory of a run that does not fit: see need.h. */
#include "train/estimate/need.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "train/estimate/estimate.h"
#include "train/estimate/max_batch.h"
#include "train/shared_data.h"

int need_outline(const struct run_config *config, struct run_config *c, int *can) {
    struct dataset set;
    *c = *config;
    *can = !estimate_prepare(c);
    if (!*can) return OK;
    if (*c->data.folder) {
        CHECK(run_open_set(config, &set, 1));
        c->model.options.sample = set.shape;
        c->data.samples = set.count;
        if (!c->model.options.classes) c->model.options.classes = set.classes;
        if (c->model.options.classes < DATASET_CLASSES) c->model.options.classes = DATASET_CLASSES;
        snprintf(c->data.name, sizeof c->data.name, "synthetic");
        *c->data.folder = 0;
        dataset_free(&set);
    }
    c->dry = 1;
    return OK;
}

struct need need_of(const struct run_config *config) {
    struct need need = {0, 0};
    struct run_config c;
    struct run_record *record;
    int can;
    if (need_outline(config, &c, &can) || !can || record_new(&record)) return need;
    c.device_memory_count = 0; /* no limit */
    if (!c.steps || c.steps > MAX_BATCH_STEPS) c.steps = MAX_BATCH_STEPS;
    int failed = estimate_run(&c, record), equal = 1;
    for (int d = 0; !failed && d < record->devices; d++) {
        uint64_t peak = record->device[d].memory.total_peak;
        equal &= d == 0 || peak == need.bytes;
        if (peak > need.bytes) need = (struct need){peak, d};
    }
    if (equal && record->devices > 1) need.device = -1;
    record_delete(record);
    return need;
}

char *need_words(const struct need *need, char text[NEED_WORDS]) {
    char size[32], where[24] = "each device";
    *text = 0;
    if (!need->bytes) return text;
    if (need->device >= 0) snprintf(where, sizeof where, "device %d", need->device);
    snprintf(text, NEED_WORDS, ": it needs at least %s on %s (computed from its shapes)",
             format_bytes(need->bytes, size, sizeof size), where);
    return text;
}
