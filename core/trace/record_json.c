/* Writes the run record as JSON, with a line per field of docs/json.md, in the file's order. */
#include <math.h>
#include <stdio.h>

#include "trace/record.h"

static void write_numbers(struct json_writer *w, const char *key, const double *numbers,
                          int count) {
    json_array(w, key);
    for (int i = 0; i < count; i++)
        json_number(w, NULL, numbers[i]);
    json_close(w);
}

static void write_names(struct json_writer *w, const char *key, char *const *names, int count) {
    json_array(w, key);
    for (int i = 0; i < count; i++)
        json_string(w, NULL, names[i]);
    json_close(w);
}

/* ---- the run ---- */

static void write_buckets(const struct run_record *r, struct json_writer *w) {
    json_string_or_null(w, "allreduce", r->algorithm);
    json_string_or_null(w, "allreduce_choice", r->choice);
    json_string_or_null(w, "unreduced", r->unreduced);
    write_names(w, "bucket_algorithms", r->bucket_algorithms, r->bucket_algorithm_count);
    json_array(w, "bucket_sizes");
    for (int b = 0; b < r->bucket_count; b++)
        json_integer(w, NULL, r->bucket_bytes[b]);
    json_close(w);
}

static void write_update(const struct run_record *r, struct json_writer *w) {
    json_integer(w, "batch_size", r->batch_size);
    json_integer(w, "no_sync_steps", r->passes);
    json_integer(w, "epochs", r->epochs);
    json_string_or_null(w, "optimizer", r->optimizer);
    json_number(w, "lr", r->lr);
    json_number(w, "momentum", r->momentum);
    json_number(w, "weight_decay", r->weight_decay);
    json_natural(w, "seed", r->seed);
    json_boolean(w, "loss_in_forward", r->loss_in_forward);
    json_integer(w, "output_device", r->output_device);
    json_string_or_null(w, "dp_reduce", r->dp_reduce);
}

static void write_model_and_data(const struct run_record *r, struct json_writer *w) {
    json_integer(w, "duplicates", r->duplicates);
    json_integer(w, "train_samples", r->train_samples);
    json_integer(w, "test_samples", r->test_samples);
    json_integer(w, "channels", r->channels);
    json_integer(w, "height", r->height);
    json_integer(w, "width", r->width);
    json_integer(w, "classes", r->classes);
    json_string_or_null(w, "loss", r->loss);
    json_integer(w, "parameter_count", (int64_t)r->parameter_count);
    json_integer(w, "trainable_count", (int64_t)r->trainable_count);
    write_names(w, "parameters", r->names, r->parameters);
    write_names(w, "buffers", r->buffer_names, r->buffers);
}

static void write_run(const struct run_record *r, struct json_writer *w) {
    json_string(w, "mode", mode_name(r->mode));
    json_string_or_null(w, "model", r->model);
    json_string_or_null(w, "dataset", r->dataset);
    json_string_or_null(w, "device_kind", r->kind);
    json_integer(w, "gpus", r->gpus);
    json_integer(w, "cores", r->cores);
    json_boolean(w, "phases_measured", r->timed);
    json_boolean(w, "computed", r->computed);
    json_string_or_null(w, "modelled", r->modelled);
    json_number(w, "data_seconds", r->data_seconds);
    json_boolean(w, "pinned_memory", r->pinned);
    write_buckets(r, w);
    json_integer(w, "devices", r->devices);
    json_integer(w, "virtual_devices", r->virtual_devices);
    json_boolean(w, "bits_promised", r->bits_promised);
    json_string_or_null(w, "bits_not_promised_because", r->why_not);
    json_string_or_null(w, "sum_order", r->sum_order);
    write_update(r, w);
    write_model_and_data(r, w);
    write_names(w, "machines", r->machines, r->machine_count);
}

/* ---- how it went ---- */

static void write_steps(const struct run_record *r, struct json_writer *w) {
    json_integer(w, "spans_lost", r->spans_lost);
    json_integer(w, "steps_per_epoch", r->steps_per_epoch);
    json_integer(w, "first_step", r->first_step);
    json_integer(w, "resumed_from_step", r->resumed_from_step);
    json_integer(w, "steps", r->steps);
    json_integer(w, "samples", r->samples);
}

/* -1, not evaluated, is null. */
static double known(double accuracy) {
    return accuracy < 0 ? NAN : accuracy;
}

/* Only present if the record is not computed. */
static void write_outcome(const struct run_record *r, struct json_writer *w) {
    int not_finite, since = record_not_finite(r, &not_finite);
    json_number(w, "training_seconds", r->training_seconds);
    json_number(w, "first_step_seconds", r->first_step_seconds);
    json_number(w, "seconds_per_epoch", record_seconds_per_epoch(r));
    json_boolean(w, "seconds_per_epoch_extrapolated", record_extrapolated(r));
    json_number(w, "samples_per_second", record_samples_per_second(r));
    json_number(w, "final_loss", r->steps && r->losses ? r->losses[r->steps - 1] : NAN);
    json_number(w, "final_accuracy", known(record_last_accuracy(r)));
    json_number(w, "final_valid_loss", record_last_valid_loss(r));
    json_integer(w, "losses_not_finite", not_finite);
    json_index_or_null(w, "losses_not_finite_since_step", since);
    write_numbers(w, "epoch_seconds", r->epoch_seconds, r->epoch_count);
    json_array(w, "accuracy");
    for (int i = 0; i < r->epoch_count; i++)
        json_number(w, NULL, known(r->accuracy[i]));
    json_close(w);
    write_numbers(w, "valid_loss", r->valid_loss, r->epoch_count);
    write_numbers(w, "epoch_lr", r->epoch_lr, r->epoch_count);
    write_numbers(w, "losses", r->losses, r->steps);
}

/* The host is -1 in files, so that it stays so if devices become more. */
static int end_of_link(int end) {
    return end == LINK_HOST ? -1 : end;
}

/* The links over which something moved. */
static void write_traffic(const struct traffic *t, struct json_writer *w) {
    json_array(w, "traffic");
    for (int a = 0; t && a < LINK_COUNT; a++)
        for (int b = 0; b < LINK_COUNT; b++) {
            if (!t->bytes[a][b] || a == b) continue;
            json_object(w, NULL);
            json_integer(w, "from", end_of_link(a));
            json_integer(w, "to", end_of_link(b));
            json_natural(w, "bytes", t->bytes[a][b]);
            json_close(w);
        }
    json_close(w);
}

/* ---- one device ---- */

/* "gathered output" is the key "gathered_output". */
void record_write_causes(struct json_writer *w, const char *key, const uint64_t *bytes) {
    json_object(w, key);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        char name[32];
        snprintf(name, sizeof name, "%s", mem_cause_name((enum mem_cause)c));
        for (char *at = name; *at; at++)
            if (*at == ' ') *at = '_';
        json_integer(w, name, (int64_t)bytes[c]);
    }
    json_close(w);
}

static void write_phases(struct json_writer *w, const char *key, const int64_t *of) {
    json_object(w, key);
    for (int p = 0; p < PHASE_COUNT; p++)
        json_integer(w, phase_name((enum phase)p), of[p]);
    json_close(w);
}

static void write_times(const struct device_record *d, struct json_writer *w) {
    write_phases(w, "phase_ns", d->phase_ns);
    json_integer(w, "step_median_ns", d->step_median_ns);
    json_integer(w, "step_spread_ns", d->step_spread_ns);
    json_integer(w, "comm_ns", d->comm_ns);
    json_integer(w, "comm_exposed_ns", d->exposed_ns);
    json_integer(w, "copy_ns", d->copy_ns);
    json_integer(w, "loader_host_ns", d->host_ns);
    json_integer(w, "loader_pinned_ns", d->pinned_ns);
    json_integer(w, "wait_ns", d->wait_ns);
    json_integer(w, "busy_ns", d->busy_ns);
    json_integer(w, "no_core_ns", d->no_core_ns);
    json_integer(w, "clock_error_ns", d->clock_error_ns);
}

/* Times are present only if they were measured. */
static void write_device(const struct run_record *r, const struct device_record *d,
                         struct json_writer *w) {
    json_object(w, NULL);
    json_integer(w, "device", d->device);
    json_integer(w, "memory_capacity", (int64_t)d->memory.capacity);
    json_integer(w, "memory_now", (int64_t)d->memory.total);
    json_integer(w, "memory_peak", (int64_t)d->memory.total_peak);
    record_write_causes(w, "memory_now_by_cause", d->memory.now);
    record_write_causes(w, "memory_peak_by_cause", d->memory.peak);
    record_write_causes(w, "memory_at_peak_by_cause", d->memory.at_peak);
    json_integer(w, "bytes_in", (int64_t)d->bytes_in);
    json_integer(w, "bytes_out", (int64_t)d->bytes_out);
    if (r->timed) write_times(d, w);
    if (r->timed || r->computed) {
        json_integer(w, "kernels", d->kernels);
        write_phases(w, "phase_bytes", (const int64_t *)d->phase_bytes);
        json_number(w, "flops", d->flops);
    }
    json_close(w);
}

void record_write_fields(const struct run_record *r, struct json_writer *w) {
    write_run(r, w);
    write_steps(r, w);
    if (!r->computed) write_outcome(r, w);
    write_traffic(r->traffic, w);
    json_array(w, "per_device");
    for (int d = 0; d < r->devices; d++)
        write_device(r, &r->device[d], w);
    json_close(w);
}
