/* The figures that reports derive from a run record. record_json.c has its JSON, and record_bytes.c
 * the memory that it owns. */
#include "trace/record.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

int record_new(struct run_record **record) {
    *record = calloc(1, sizeof **record);
    return *record ? OK : fail(ERR_MEMORY, "run record: out of host memory");
}

void record_delete(struct run_record *record) {
    record_free(record);
    free(record);
}

int record_has_grads(const struct run_record *record, int device) {
    return device == 0 || record->mode != MODE_DP;
}

int record_extrapolated(const struct run_record *record) {
    return !record->steps || !record->steps_per_epoch ||
           (record->first_step + record->steps) % record->steps_per_epoch != 0;
}

double record_seconds_per_epoch(const struct run_record *record) {
    double rate = record_samples_per_second(record);
    if (!record->samples || !record->train_samples || rate <= 0) return 0;
    /* The run ended with an epoch, so all its steps count, including a short last batch. */
    if (!record_extrapolated(record) && !record->device[0].step_median_ns)
        return record->training_seconds / record->steps * record->steps_per_epoch;
    double order = (double)record->train_samples + record->duplicates;
    /* With --drop-last an epoch has fewer samples, because the short last batch is left out. */
    double whole = (double)record->steps_per_epoch * record->batch_size *
                   (record->passes > 1 ? record->passes : 1);
    return (whole > 0 && whole < order ? whole : order) / rate;
}

double record_per_step(const struct run_record *record, double total) {
    return record->steps ? total / record->steps : 0;
}

double record_samples_per_second(const struct run_record *record) {
    int64_t median_ns = record->device[0].step_median_ns;
    int batches = record->passes > 1 ? record->passes : 1;
    if (median_ns && record->steps_per_epoch > 1) /* the median step's batch is full */
        return (double)record->batch_size * batches * 1e9 / (double)median_ns;
    return record->training_seconds > 0 ? (double)record->samples / record->training_seconds : 0;
}

int rate_digits(double per_second) {
    return per_second <= 0 || per_second >= 10 ? 0 : per_second >= 1 ? 1 : 2;
}

int seconds_digits(double seconds) {
    static const double below[] = {0.09995, 0.9995, 9.995, 99.95};
    int digits = 4;
    for (int i = 0; i < 4 && seconds >= below[i]; i++)
        digits--;
    return digits;
}

double record_idle_ns(const struct run_record *record, int device) {
    const struct device_record *d = &record->device[device];
    double used = (double)(d->busy_ns + d->wait_ns + d->phase_ns[PHASE_PROOF] + d->no_core_ns);
    for (int p = 0; p < PHASE_COUNT; p++)
        if (phase_is_of_host(p)) used += (double)d->phase_ns[p];
    double left = record->training_seconds * 1e9 - used;
    return left > 0 ? left : 0;
}

int record_shared(const struct run_record *r) {
    int has = r->gpus ? r->gpus : r->cores;
    return !*r->modelled && r->devices > has ? has : 0;
}

double record_busy_machine(const struct run_record *record) {
    int64_t most = 0;
    if (record->gpus || record->devices > record->cores || record->training_seconds <= 0) return 0;
    for (int d = 0; d < record->devices; d++)
        if (record->device[d].no_core_ns > most) most = record->device[d].no_core_ns;
    return (double)most * 1e-9 / record->training_seconds;
}

int record_not_finite(const struct run_record *record, int *count) {
    int first = -1, n = 0;
    for (int i = 0; i < record->steps; i++) {
        if (isfinite(record->losses[i])) continue;
        if (!n++) first = record->first_step + i;
    }
    if (count) *count = n;
    return first;
}

const char *not_finite_advice(int step) {
    return step ? "try a smaller --lr" : "look at the data and at the first weights";
}

uint64_t record_peak(const struct run_record *record, int first, int last) {
    uint64_t most = 0;
    for (int d = first; d <= last && d < record->devices; d++)
        if (record->device[d].memory.total_peak > most) most = record->device[d].memory.total_peak;
    return most;
}

double record_last_accuracy(const struct run_record *record) {
    return record->epoch_count ? record->accuracy[record->epoch_count - 1] : -1;
}

double record_last_valid_loss(const struct run_record *record) {
    int n = record->epoch_count;
    return n && record->valid_loss ? record->valid_loss[n - 1] : NAN;
}
