/* The run record as JSON, written and read back. What a person reads is in numbers; hashes and
 * parameters, of which there are many and which must come back to the bit, are strings of
 * hexadecimal digits. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "trace/record.h"

/* ---- bytes as text ---- */

static void write_hex(struct json_writer *w, const char *key, const void *data, size_t bytes) {
    static const char digits[] = "0123456789abcdef";
    const unsigned char *p = data;
    char *text = malloc(2 * bytes + 1);
    if (!text) {
        w->misused = 1;
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        text[2 * i] = digits[p[i] >> 4];
        text[2 * i + 1] = digits[p[i] & 15];
    }
    text[2 * bytes] = 0;
    json_string(w, key, text);
    free(text);
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* *out: malloc'ed, or NULL where the key is missing or null. */
static int read_hex(const struct json *object, const char *key, size_t bytes, void **out) {
    const struct json *item = json_find(object, key);
    *out = NULL;
    if (!item || item->kind == JSON_NULL) return OK;
    if (item->kind != JSON_STRING || strlen(item->string) != 2 * bytes)
        return fail(ERR_FAILED, "run record: %s: not %zu bytes: it was written by another version",
                    key, bytes);
    unsigned char *data = malloc(bytes + 1);
    if (!data) return fail(ERR_MEMORY, "run record: no host memory");
    for (size_t i = 0; i < bytes; i++) {
        int high = digit(item->string[2 * i]), low = digit(item->string[2 * i + 1]);
        if (high < 0 || low < 0) {
            free(data);
            return fail(ERR_FAILED,
                        "run record: %s: no hexadecimal digits: it was written by another version",
                        key);
        }
        data[i] = (unsigned char)(high << 4 | low);
    }
    *out = data;
    return OK;
}

/* ---- writing ---- */

static void write_numbers(struct json_writer *w, const char *key, const double *x, int n) {
    json_array(w, key);
    for (int i = 0; i < n; i++)
        json_number(w, NULL, x[i]);
    json_close(w);
}

static void write_causes(struct json_writer *w, const char *key, const uint64_t *bytes) {
    json_object(w, key);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        json_integer(w, mem_cause_name(c), (int64_t)bytes[c]);
    json_close(w);
}

static void write_times(struct json_writer *w, const struct device_record *d) {
    json_object(w, "phase_ns");
    for (int p = 0; p < PHASE_COUNT; p++)
        json_integer(w, phase_name(p), d->phase_ns[p]);
    json_close(w);
    json_integer(w, "comm_ns", d->comm_ns);
    json_integer(w, "wait_ns", d->wait_ns);
    json_integer(w, "busy_ns", d->busy_ns);
    json_number(w, "flops", d->flops);
}

static void write_device(struct json_writer *w, const struct device_record *d, int timed) {
    json_object(w, NULL);
    json_integer(w, "device", d->device);
    json_integer(w, "memory_capacity", (int64_t)d->memory.capacity);
    json_integer(w, "memory_now", (int64_t)d->memory.total);
    json_integer(w, "memory_peak", (int64_t)d->memory.total_peak);
    write_causes(w, "memory_now_by_cause", d->memory.now);
    write_causes(w, "memory_peak_by_cause", d->memory.peak);
    write_causes(w, "memory_at_peak_by_cause", d->memory.at_peak);
    json_integer(w, "bytes_in", (int64_t)d->bytes_in);
    json_integer(w, "bytes_out", (int64_t)d->bytes_out);
    if (timed) write_times(w, d);
    json_close(w);
}

static void write_proof(const struct run_record *r, struct json_writer *w) {
    size_t row = 2 * (size_t)r->parameters * sizeof(uint64_t);
    json_array(w, "hashes");
    for (int d = 0; d < r->devices; d++) {
        if (r->hashes[d])
            write_hex(w, NULL, r->hashes[d], (size_t)r->steps * row);
        else
            json_null(w, NULL);
    }
    json_close(w);
    json_array(w, "final_hashes");
    for (int d = 0; d < r->devices; d++) {
        if (r->final_hashes[d])
            write_hex(w, NULL, r->final_hashes[d], row / 2);
        else
            json_null(w, NULL);
    }
    json_close(w);
    json_array(w, "snapshots");
    for (int k = 0; k < r->snapshot_count; k++) {
        json_object(w, NULL);
        json_integer(w, "step", r->snapshot_step[k]);
        write_hex(w, "values", r->snapshots[k], r->parameter_count * sizeof(float));
        json_close(w);
    }
    json_close(w);
    if (r->grads) write_hex(w, "grads", r->grads, r->parameter_count * sizeof(float));
}

void record_write(const struct run_record *r, struct json_writer *w, const char *key, int hashes) {
    json_object(w, key);
    json_string(w, "mode", mode_name(r->mode));
    json_string(w, "model", r->model);
    json_string(w, "dataset", r->dataset);
    json_string(w, "device_kind", r->kind);
    json_integer(w, "gpus", r->gpus);
    json_boolean(w, "phases_measured", r->timed);
    json_boolean(w, "graph", r->graph);
    json_boolean(w, "data_on_device", r->data_on_device);
    json_string(w, "allreduce", r->algorithm);
    json_string(w, "allreduce_choice", r->choice);
    json_string(w, "bucket_sizes", r->buckets);
    json_integer(w, "devices", r->devices);
    json_integer(w, "virtual_devices", r->virtual_devices);
    json_boolean(w, "bits_promised", r->bits_promised);
    json_string(w, "why_not", r->why_not);
    json_integer(w, "batch_size", r->batch_size);
    json_integer(w, "epochs", r->epochs);
    json_string(w, "optimizer", r->optimizer);
    json_number(w, "lr", r->lr);
    json_number(w, "momentum", r->momentum);
    json_number(w, "weight_decay", r->weight_decay);
    json_natural(w, "seed", r->seed);
    json_boolean(w, "loss_in_forward", r->loss_in_forward);
    json_integer(w, "duplicates", r->duplicates);
    json_integer(w, "train_samples", r->train_samples);
    json_integer(w, "test_samples", r->test_samples);
    json_integer(w, "parameter_count", (int64_t)r->parameter_count);
    json_array(w, "parameters");
    for (int i = 0; i < r->parameters; i++)
        json_string(w, NULL, r->names[i]);
    json_close(w);
    json_integer(w, "spans_lost", r->spans_lost);
    json_integer(w, "steps_per_epoch", r->steps_per_epoch);
    json_integer(w, "first_step", r->first_step);
    json_integer(w, "steps", r->steps);
    json_integer(w, "images", r->images);
    json_number(w, "training_seconds", r->training_seconds);
    json_number(w, "first_step_seconds", r->first_step_seconds);
    json_number(w, "seconds_per_epoch", record_seconds_per_epoch(r));
    json_boolean(w, "seconds_per_epoch_extrapolated", record_extrapolated(r));
    json_number(w, "images_per_second", record_images_per_second(r));
    write_numbers(w, "epoch_seconds", r->epoch_seconds, r->epoch_count);
    write_numbers(w, "accuracy", r->accuracy, r->epoch_count);
    write_numbers(w, "losses", r->losses, r->steps);
    json_array(w, "per_device");
    for (int d = 0; d < r->devices; d++)
        write_device(w, &r->device[d], r->timed);
    json_close(w);
    if (hashes) write_proof(r, w);
    json_close(w);
}

/* ---- reading ---- */

static int64_t integer(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item ? item->integer : 0;
}

static double number(const struct json *object, const char *key) {
    const struct json *item = json_find(object, key);
    return item && item->kind == JSON_NUMBER ? item->number : __builtin_nan("");
}

static void text(const struct json *object, const char *key, char *out, size_t bytes) {
    const struct json *item = json_find(object, key);
    strncpy(out, item && item->kind == JSON_STRING ? item->string : "", bytes - 1);
}

static int read_numbers(const struct json *object, const char *key, int n, double **out) {
    const struct json *item = json_find(object, key), *x = item ? item->child : NULL;
    if (!item || item->kind != JSON_ARRAY || item->count != n)
        return fail(ERR_FAILED, "run record: %s: not %d numbers: it was written by another version",
                    key, n);
    *out = malloc(((size_t)n + 1) * sizeof **out);
    if (!*out) return fail(ERR_MEMORY, "run record: no host memory");
    for (int i = 0; i < n; i++, x = x->next)
        (*out)[i] = x->kind == JSON_NUMBER ? x->number : __builtin_nan("");
    return OK;
}

static void read_causes(const struct json *object, const char *key, uint64_t *bytes) {
    const struct json *causes = json_find(object, key);
    for (int c = 0; c < MEM_CAUSE_COUNT; c++)
        bytes[c] = (uint64_t)integer(causes, mem_cause_name(c));
}

static void read_device(struct device_record *d, const struct json *object) {
    const struct json *phases = json_find(object, "phase_ns");
    d->device = (int)integer(object, "device");
    d->memory.capacity = (uint64_t)integer(object, "memory_capacity");
    d->memory.total = (uint64_t)integer(object, "memory_now");
    d->memory.total_peak = (uint64_t)integer(object, "memory_peak");
    read_causes(object, "memory_now_by_cause", d->memory.now);
    read_causes(object, "memory_peak_by_cause", d->memory.peak);
    read_causes(object, "memory_at_peak_by_cause", d->memory.at_peak);
    d->bytes_in = (uint64_t)integer(object, "bytes_in");
    d->bytes_out = (uint64_t)integer(object, "bytes_out");
    for (int p = 0; p < PHASE_COUNT; p++)
        d->phase_ns[p] = integer(phases, phase_name(p));
    d->comm_ns = integer(object, "comm_ns");
    d->wait_ns = integer(object, "wait_ns");
    d->busy_ns = integer(object, "busy_ns");
    d->flops = phases ? number(object, "flops") : 0;
}

static int read_proof(struct run_record *r, const struct json *object) {
    size_t row = 2 * (size_t)r->parameters * sizeof(uint64_t);
    const struct json *item = json_find(object, "hashes"),
                      *final = json_find(object, "final_hashes");
    item = item ? item->child : NULL;
    final = final ? final->child : NULL;
    for (int d = 0; d < r->devices && item && final; d++, item = item->next, final = final->next) {
        struct json one = {
            .kind = JSON_OBJECT,
            .count = 1,
            .child = &(struct json){.kind = item->kind, .string = item->string, .key = "hashes"}};
        CHECK(read_hex(&one, "hashes", (size_t)r->steps * row, (void **)&r->hashes[d]));
        one.child->kind = final->kind;
        one.child->string = final->string;
        CHECK(read_hex(&one, "hashes", row / 2, (void **)&r->final_hashes[d]));
    }
    const struct json *shots = json_find(object, "snapshots");
    for (item = shots ? shots->child : NULL; item && r->snapshot_count < MAX_SNAPSHOTS; item = item->next) {
        int k = r->snapshot_count++;
        r->snapshot_step[k] = (int)integer(item, "step");
        CHECK(read_hex(item, "values", r->parameter_count * sizeof(float),
                       (void **)&r->snapshots[k]));
    }
    return read_hex(object, "grads", r->parameter_count * sizeof(float), (void **)&r->grads);
}

static int read_names(struct run_record *r, const struct json *object) {
    const struct json *names = json_find(object, "parameters"), *name = names ? names->child : NULL;
    r->names = calloc(names ? (size_t)names->count + 1 : 1, sizeof *r->names);
    if (!r->names) return fail(ERR_MEMORY, "run record: no host memory");
    for (; name; name = name->next) {
        r->names[r->parameters] = strdup(name->string ? name->string : "");
        if (!r->names[r->parameters]) return fail(ERR_MEMORY, "run record: no host memory");
        r->parameters++;
    }
    return OK;
}

int record_read(struct run_record *r, const struct json *o) {
    memset(r, 0, sizeof *r);
    char mode[8] = "";
    text(o, "mode", mode, sizeof mode);
    if (!mode_parse(mode, &r->mode))
        return fail(ERR_FAILED, "run record: mode: '%s': it was written by another version", mode);
    text(o, "model", r->model, sizeof r->model);
    text(o, "dataset", r->dataset, sizeof r->dataset);
    text(o, "device_kind", r->kind, sizeof r->kind);
    text(o, "allreduce", r->algorithm, sizeof r->algorithm);
    text(o, "allreduce_choice", r->choice, sizeof r->choice);
    text(o, "bucket_sizes", r->buckets, sizeof r->buckets);
    text(o, "why_not", r->why_not, sizeof r->why_not);
    r->gpus = (int)integer(o, "gpus");
    r->timed = (int)integer(o, "phases_measured");
    r->graph = (int)integer(o, "graph");
    r->data_on_device = (int)integer(o, "data_on_device");
    r->devices = (int)integer(o, "devices");
    r->virtual_devices = (int)integer(o, "virtual_devices");
    r->bits_promised = (int)integer(o, "bits_promised");
    r->batch_size = (int)integer(o, "batch_size");
    r->epochs = (int)integer(o, "epochs");
    text(o, "optimizer", r->optimizer, sizeof r->optimizer);
    r->lr = number(o, "lr");
    r->momentum = number(o, "momentum");
    r->weight_decay = number(o, "weight_decay");
    const struct json *seed = json_find(o, "seed");
    r->seed = seed ? seed->natural : 0;
    r->loss_in_forward = (int)integer(o, "loss_in_forward");
    r->duplicates = (int)integer(o, "duplicates");
    r->train_samples = (int)integer(o, "train_samples");
    r->test_samples = (int)integer(o, "test_samples");
    r->parameter_count = (size_t)integer(o, "parameter_count");
    r->spans_lost = integer(o, "spans_lost");
    r->steps_per_epoch = (int)integer(o, "steps_per_epoch");
    r->first_step = (int)integer(o, "first_step");
    r->steps = (int)integer(o, "steps");
    r->images = integer(o, "images");
    r->training_seconds = number(o, "training_seconds");
    r->first_step_seconds = number(o, "first_step_seconds");
    const struct json *epochs = json_find(o, "epoch_seconds"),
                      *devices = json_find(o, "per_device");
    r->epoch_count = epochs ? epochs->count : 0;
    if (r->devices < 1 || r->devices > MAX_DEVICES || !devices || devices->count != r->devices)
        return fail(ERR_FAILED, "run record: %d devices: it was written by another version",
                    r->devices);
    int d = 0;
    for (const struct json *item = devices->child; item; item = item->next)
        read_device(&r->device[d++], item);
    CHECK(read_names(r, o));
    CHECK(read_numbers(o, "epoch_seconds", r->epoch_count, &r->epoch_seconds));
    CHECK(read_numbers(o, "accuracy", r->epoch_count, &r->accuracy));
    CHECK(read_numbers(o, "losses", r->steps, &r->losses));
    return read_proof(r, o);
}
