/* The run record as JSON. The tables below name every field of the record once; record_field.c
 * writes and reads them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "trace/record.h"
#include "trace/record_field.h"
#include "trace/record_proof.h"

/* ---- one device ---- */

/* "gathered output" as a key: "gathered_output". Returns text. */
static const char *cause_key(enum mem_cause cause, char text[32]) {
    snprintf(text, 32, "%s", mem_cause_name(cause));
    for (char *c = text; *c; c++)
        if (*c == ' ') *c = '_';
    return text;
}

void record_write_causes(struct json_writer *w, const char *key, const uint64_t *bytes) {
    char name[32];
    json_object(w, key);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        json_integer(w, cause_key(c, name), (int64_t)bytes[c]);
    json_close(w);
}

static void write_causes(const struct field *f, const void *object, struct json_writer *w) {
    record_write_causes(w, f->key, field_member(f, object));
}

static int read_causes(const struct field *f, void *object, const struct json *item) {
    uint64_t *bytes = field_member(f, object);
    char key[32];
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        const struct json *cause = json_find(item, cause_key(c, key));
        bytes[c] = cause ? (uint64_t)cause->integer : 0;
    }
    return OK;
}

static void write_phases(const struct field *f, const void *object, struct json_writer *w) {
    const int64_t *ns = field_member(f, object);
    json_object(w, f->key);
    for (int p = 0; p < PHASE_COUNT; p++)
        json_integer(w, phase_name(p), ns[p]);
    json_close(w);
}

static int read_phases(const struct field *f, void *object, const struct json *item) {
    int64_t *ns = field_member(f, object);
    for (int p = 0; p < PHASE_COUNT; p++) {
        const struct json *phase = json_find(item, phase_name(p));
        ns[p] = phase ? phase->integer : 0;
    }
    return OK;
}

static const struct field_type CAUSES = {write_causes, read_causes};
static const struct field_type PHASES = {write_phases, read_phases};

#define AT(member) FIELD_AT(struct device_record, member), 0
static const struct field device_fields[] = {
    {"device", &FIELD_INT, AT(device)},
    {"memory_capacity", &FIELD_INT64, AT(memory.capacity)},
    {"memory_now", &FIELD_INT64, AT(memory.total)},
    {"memory_peak", &FIELD_INT64, AT(memory.total_peak)},
    {"memory_now_by_cause", &CAUSES, AT(memory.now)},
    {"memory_peak_by_cause", &CAUSES, AT(memory.peak)},
    {"memory_at_peak_by_cause", &CAUSES, AT(memory.at_peak)},
    {"bytes_in", &FIELD_INT64, AT(bytes_in)},
    {"bytes_out", &FIELD_INT64, AT(bytes_out)},
};
/* There only where the record is computed; of one that is measured they are among the next. */
static const struct field counted_fields[] = {
    {"kernels", &FIELD_INT64, AT(kernels)},
    {"phase_bytes", &PHASES, AT(phase_bytes)},
    {"flops", &FIELD_NUMBER, AT(flops)},
};
/* There only where the record's phases_measured is true. */
static const struct field time_fields[] = {
    {"phase_ns", &PHASES, AT(phase_ns)},
    {"phase_median_ns", &PHASES, AT(phase_median_ns)},
    {"phase_p90_ns", &PHASES, AT(phase_p90_ns)},
    {"phase_spread_ns", &PHASES, AT(phase_spread_ns)},
    {"step_median_ns", &FIELD_INT64, AT(step_median_ns)},
    {"step_p90_ns", &FIELD_INT64, AT(step_p90_ns)},
    {"step_spread_ns", &FIELD_INT64, AT(step_spread_ns)},
    {"comm_ns", &FIELD_INT64, AT(comm_ns)},
    {"comm_exposed_ns", &FIELD_INT64, AT(exposed_ns)},
    {"copy_ns", &FIELD_INT64, AT(copy_ns)},
    {"loader_host_ns", &FIELD_INT64, AT(host_ns)},
    {"loader_pinned_ns", &FIELD_INT64, AT(pinned_ns)},
    {"wait_ns", &FIELD_INT64, AT(wait_ns)},
    {"busy_ns", &FIELD_INT64, AT(busy_ns)},
    {"no_core_ns", &FIELD_INT64, AT(no_core_ns)},
    {"clock_error_ns", &FIELD_INT64, AT(clock_error_ns)},
    {"kernels", &FIELD_INT64, AT(kernels)},
    {"phase_bytes", &PHASES, AT(phase_bytes)},
    {"flops", &FIELD_NUMBER, AT(flops)},
};
#undef AT

static void write_devices(const struct field *f, const void *object, struct json_writer *w) {
    const struct run_record *r = object;
    json_array(w, f->key);
    for (int d = 0; d < r->devices; d++) {
        json_object(w, NULL);
        fields_write(device_fields, FIELD_COUNT(device_fields), &r->device[d], w);
        if (r->computed)
            fields_write(counted_fields, FIELD_COUNT(counted_fields), &r->device[d], w);
        if (r->timed) fields_write(time_fields, FIELD_COUNT(time_fields), &r->device[d], w);
        json_close(w);
    }
    json_close(w);
}

static int read_devices(const struct field *f, void *object, const struct json *item) {
    struct run_record *r = object;
    (void)f;
    if (r->devices < 1 || r->devices > MAX_DEVICES || !item || item->count != r->devices)
        return fail(ERR_FAILED, "run record: %d devices: it was written by another version",
                    r->devices);
    struct device_record *device = r->device;
    for (const struct json *one = item->child; one; one = one->next, device++) {
        CHECK(fields_read(device_fields, FIELD_COUNT(device_fields), device, one));
        if (r->computed)
            CHECK(fields_read(counted_fields, FIELD_COUNT(counted_fields), device, one));
        if (r->timed) CHECK(fields_read(time_fields, FIELD_COUNT(time_fields), device, one));
    }
    return OK;
}

/* ---- traffic: the links over which something moved ---- */

/* The host is -1 in files, so that it stays so if devices become more. */
static void write_end(struct json_writer *w, const char *key, int end) {
    json_integer(w, key, end == LINK_HOST ? -1 : end);
}

static void write_traffic(const struct field *f, const void *object, struct json_writer *w) {
    const struct traffic *t = *(struct traffic **)field_member(f, object);
    json_array(w, f->key);
    for (int a = 0; t && a < LINK_COUNT; a++)
        for (int b = 0; b < LINK_COUNT; b++) {
            if (!t->bytes[a][b] || a == b) continue;
            json_object(w, NULL);
            write_end(w, "from", a);
            write_end(w, "to", b);
            json_natural(w, "bytes", t->bytes[a][b]);
            json_close(w);
        }
    json_close(w);
}

/* -1: no end of a link. */
static int read_end(const struct json *link, const char *key) {
    const struct json *end = json_find(link, key);
    if (!end || !end->is_integer || end->integer < -1 || end->integer >= LINK_HOST) return -1;
    return end->integer < 0 ? LINK_HOST : (int)end->integer;
}

static int read_traffic(const struct field *f, void *object, const struct json *item) {
    struct traffic *t = calloc(1, sizeof *t);
    if (!t) return fail(ERR_MEMORY, "run record: no host memory");
    *(struct traffic **)field_member(f, object) = t;
    for (const struct json *link = item ? item->child : NULL; link; link = link->next) {
        const struct json *bytes = json_find(link, "bytes");
        traffic_add(t, read_end(link, "from"), read_end(link, "to"), bytes ? bytes->natural : 0);
    }
    return OK;
}

/* ---- the run ---- */

static void write_mode(const struct field *f, const void *object, struct json_writer *w) {
    json_string(w, f->key, mode_name(((const struct run_record *)object)->mode));
}

static int read_mode(const struct field *f, void *object, const struct json *item) {
    const char *name = item && item->kind == JSON_STRING ? item->string : "";
    (void)f;
    if (mode_parse(name, &((struct run_record *)object)->mode)) return OK;
    return fail(ERR_FAILED, "run record: mode: '%.16s': it was written by another version", name);
}

static void write_epoch_time(const struct field *f, const void *object, struct json_writer *w) {
    json_number(w, f->key, record_seconds_per_epoch(object));
}

static void write_extrapolated(const struct field *f, const void *object, struct json_writer *w) {
    json_boolean(w, f->key, record_extrapolated(object));
}

static void write_speed(const struct field *f, const void *object, struct json_writer *w) {
    json_number(w, f->key, record_images_per_second(object));
}

static void write_final_loss(const struct field *f, const void *object, struct json_writer *w) {
    const struct run_record *r = object;
    json_number(w, f->key, r->steps && r->losses ? r->losses[r->steps - 1] : NAN);
}

static void write_final_accuracy(const struct field *f, const void *object, struct json_writer *w) {
    double accuracy = record_last_accuracy(object);
    json_number(w, f->key, accuracy < 0 ? NAN : accuracy);
}

static void write_final_valid_loss(const struct field *f, const void *object,
                                   struct json_writer *w) {
    json_number(w, f->key, record_last_valid_loss(object));
}

static void write_not_finite(const struct field *f, const void *object, struct json_writer *w) {
    int count;
    record_not_finite(object, &count);
    json_integer(w, f->key, count);
}

static void write_not_finite_since(const struct field *f, const void *object,
                                   struct json_writer *w) {
    int step = record_not_finite(object, NULL);
    if (step < 0)
        json_null(w, f->key);
    else
        json_integer(w, f->key, step);
}

/* -1, not evaluated, is null in JSON. */
static void write_accuracy(const struct field *f, const void *object, struct json_writer *w) {
    const struct run_record *r = object;
    json_array(w, f->key);
    for (int i = 0; i < r->epoch_count; i++)
        json_number(w, NULL, r->accuracy[i] < 0 ? NAN : r->accuracy[i]);
    json_close(w);
}

static int read_accuracy(const struct field *f, void *object, const struct json *item) {
    struct run_record *r = object;
    CHECK(FIELD_NUMBERS.read(f, object, item));
    for (int i = 0; i < r->epoch_count; i++)
        if (isnan(r->accuracy[i])) r->accuracy[i] = -1;
    return OK;
}

static const struct field_type DEVICES = {write_devices, read_devices};
static const struct field_type TRAFFIC = {write_traffic, read_traffic};
static const struct field_type MODE = {write_mode, read_mode};
static const struct field_type EPOCH_TIME = {write_epoch_time, NULL};
static const struct field_type EXTRAPOLATED = {write_extrapolated, NULL};
static const struct field_type FINAL_LOSS = {write_final_loss, NULL};
static const struct field_type FINAL_ACCURACY = {write_final_accuracy, NULL};
static const struct field_type FINAL_VALID_LOSS = {write_final_valid_loss, NULL};
static const struct field_type SPEED = {write_speed, NULL};
static const struct field_type NOT_FINITE = {write_not_finite, NULL};
static const struct field_type ACCURACY = {write_accuracy, read_accuracy};
static const struct field_type NOT_FINITE_SINCE = {write_not_finite_since, NULL};

#define AT(member) FIELD_AT(struct run_record, member), 0
#define ARRAY_AT(member, length) \
    FIELD_AT(struct run_record, member), offsetof(struct run_record, length)
// clang-format off
static const struct field run_fields[] = {
    {"mode",               &MODE,         AT(mode)},
    {"model",              &FIELD_TEXT,   AT(model)},
    {"dataset",            &FIELD_TEXT,   AT(dataset)},
    {"device_kind",        &FIELD_TEXT,   AT(kind)},
    {"gpus",               &FIELD_INT,    AT(gpus)},
    {"cores",              &FIELD_INT,    AT(cores)},
    {"phases_measured",    &FIELD_YES_NO, AT(timed)},
    {"computed",           &FIELD_YES_NO, AT(computed)},
    {"modelled",           &FIELD_TEXT,   AT(modelled)},
    {"data_seconds",       &FIELD_NUMBER, AT(data_seconds)},
    {"pinned_memory",      &FIELD_YES_NO, AT(pinned)},
    {"blocking_copies",    &FIELD_YES_NO, AT(blocking_copies)},
    {"allreduce",          &FIELD_TEXT,   AT(algorithm)},
    {"allreduce_choice",   &FIELD_TEXT,   AT(choice)},
    {"unreduced",          &FIELD_TEXT,   AT(unreduced)},
    {"bucket_algorithms",  &FIELD_NAMES,  ARRAY_AT(bucket_algorithms, bucket_algorithm_count)},
    {"bucket_sizes",       &FIELD_SIZES,  ARRAY_AT(bucket_bytes, bucket_count)},
    {"devices",            &FIELD_INT,    AT(devices)},
    {"virtual_devices",    &FIELD_INT,    AT(virtual_devices)},
    {"bits_promised",      &FIELD_YES_NO, AT(bits_promised)},
    {"bits_not_promised_because", &FIELD_TEXT, AT(why_not)},
    {"sum_order",          &FIELD_TEXT,   AT(sum_order)},
    {"batch_size",         &FIELD_INT,    AT(batch_size)},
    {"no_sync_steps",      &FIELD_INT,    AT(passes)},
    {"epochs",             &FIELD_INT,    AT(epochs)},
    {"optimizer",          &FIELD_TEXT,   AT(optimizer)},
    {"lr",                 &FIELD_NUMBER, AT(lr)},
    {"momentum",           &FIELD_NUMBER, AT(momentum)},
    {"weight_decay",       &FIELD_NUMBER, AT(weight_decay)},
    {"seed",               &FIELD_UINT64, AT(seed)},
    {"loss_in_forward",    &FIELD_YES_NO, AT(loss_in_forward)},
    {"output_device",      &FIELD_INT,    AT(output_device)},
    {"dp_reduce",          &FIELD_TEXT,   AT(dp_reduce)},
    {"duplicates",         &FIELD_INT,    AT(duplicates)},
    {"train_samples",      &FIELD_INT,    AT(train_samples)},
    {"test_samples",       &FIELD_INT,    AT(test_samples)},
    {"channels",           &FIELD_INT,    AT(channels)},
    {"height",             &FIELD_INT,    AT(height)},
    {"width",              &FIELD_INT,    AT(width)},
    {"classes",            &FIELD_INT,    AT(classes)},
    {"loss",               &FIELD_TEXT,   AT(loss)},
    {"parameter_count",    &FIELD_INT64,  AT(parameter_count)},
    {"trainable_count",    &FIELD_INT64,  AT(trainable_count)},
    {"parameters",         &FIELD_NAMES,  ARRAY_AT(names, parameters)},
    {"buffers",            &FIELD_NAMES,  ARRAY_AT(buffer_names, buffers)},
    {"machines",           &FIELD_NAMES,  ARRAY_AT(machines, machine_count)},
    {"spans_lost",         &FIELD_INT64,  AT(spans_lost)},
    {"steps_per_epoch",    &FIELD_INT,    AT(steps_per_epoch)},
    {"first_step",         &FIELD_INT,    AT(first_step)},
    {"resumed_from_step",  &FIELD_INT,    AT(resumed_from_step)},
    {"steps",              &FIELD_INT,    AT(steps)},
    {"images",             &FIELD_INT64,  AT(images)},
};
/* There only where the record is not computed. */
static const struct field outcome_fields[] = {
    {"training_seconds",   &FIELD_NUMBER, AT(training_seconds)},
    {"first_step_seconds", &FIELD_NUMBER, AT(first_step_seconds)},
    {"seconds_per_epoch",              &EPOCH_TIME,   0, 0, 0},
    {"seconds_per_epoch_extrapolated", &EXTRAPOLATED, 0, 0, 0},
    {"images_per_second",              &SPEED,        0, 0, 0},
    {"final_loss",                     &FINAL_LOSS,   0, 0, 0},
    {"final_accuracy",                 &FINAL_ACCURACY, 0, 0, 0},
    {"final_valid_loss",               &FINAL_VALID_LOSS, 0, 0, 0},
    {"losses_not_finite",              &NOT_FINITE,       0, 0, 0},
    {"losses_not_finite_since_step",   &NOT_FINITE_SINCE, 0, 0, 0},
    {"epoch_seconds", &FIELD_NUMBERS_COUNTED, ARRAY_AT(epoch_seconds, epoch_count)},
    {"accuracy",      &ACCURACY,              ARRAY_AT(accuracy, epoch_count)},
    {"valid_loss",    &FIELD_NUMBERS,         ARRAY_AT(valid_loss, epoch_count)},
    {"epoch_lr",      &FIELD_NUMBERS,         ARRAY_AT(epoch_lr, epoch_count)},
    {"losses",        &FIELD_NUMBERS,         ARRAY_AT(losses, steps)},
    {"gathered_losses", &FIELD_NUMBERS_COUNTED, ARRAY_AT(gathered_losses, gathered_count)},
};
static const struct field device_lists[] = {
    {"traffic",    &TRAFFIC, AT(traffic)},
    {"per_device", &DEVICES, AT(device)},
};
// clang-format on

/* ---- the whole record ---- */

void record_write_fields(const struct run_record *r, struct json_writer *w) {
    fields_write(run_fields, FIELD_COUNT(run_fields), r, w);
    if (!r->computed) fields_write(outcome_fields, FIELD_COUNT(outcome_fields), r, w);
    fields_write(device_lists, FIELD_COUNT(device_lists), r, w);
}

void record_write(const struct run_record *r, struct json_writer *w, const char *key, int proof) {
    json_object(w, key);
    record_write_fields(r, w);
    if (proof) record_proof_write(r, w);
    json_close(w);
}

int record_read(struct run_record *r, const struct json *object) {
    memset(r, 0, sizeof *r);
    CHECK(fields_read(run_fields, FIELD_COUNT(run_fields), r, object));
    if (!r->computed) CHECK(fields_read(outcome_fields, FIELD_COUNT(outcome_fields), r, object));
    CHECK(fields_read(device_lists, FIELD_COUNT(device_lists), r, object));
    return record_proof_read(r, object);
}
