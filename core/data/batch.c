/* Finds the samples of a batch, by one rule for every mode; data/batch.h has a worked example. */
#include "data/batch.h"

#include <string.h>

#include "base/error.h"

int split_check(const struct split *s) {
    if (s->devices < 1 || s->devices > MAX_DEVICES)
        return fail(ERR_USAGE, "devices: %d: give 1 to %d", s->devices, MAX_DEVICES);
    if (s->kind == SPLIT_CHUNKED) return OK;
    if (s->virtual_devices < 1 || s->virtual_devices > MAX_DEVICES)
        return fail(ERR_USAGE, "virtual devices: %d: give 1 to %d", s->virtual_devices,
                    MAX_DEVICES);
    if (s->virtual_devices % s->devices)
        return fail(ERR_USAGE, "virtual devices: %d: give a multiple of the %d devices",
                    s->virtual_devices, s->devices);
    return OK;
}

int split_replicas(const struct split *s) {
    return s->kind == SPLIT_CHUNKED ? 1 : s->virtual_devices;
}

int batch_count(int64_t length, int batch_size, int drop_short) {
    int64_t whole = length / batch_size;
    return (int)(whole + (!drop_short && length % batch_size));
}

int batch_capacity(const struct split *s, int batch_size, int devices) {
    int parts = s->kind == SPLIT_CHUNKED ? s->devices : s->virtual_devices;
    int64_t each = ((int64_t)batch_size + parts - 1) / parts,
            most = each * (parts / s->devices) * devices;
    return (int)(most < batch_size ? most : batch_size);
}

/* Appends one segment: the positions from, from + stride, from + 2 stride, ... below end. */
static void add_segment(struct batch_plan *plan, int device, int v, const int32_t *order,
                        int64_t from, int64_t end, int stride, int32_t *sample) {
    struct segment *g = &plan->segments.seg[plan->segments.count++];
    g->v = v;
    g->n = from < end ? (int)((end - from + stride - 1) / stride) : 0;
    for (int i = 0; order && i < g->n; i++)
        sample[plan->n + i] = order[from + (int64_t)i * stride];
    plan->n += g->n;
    plan->device_n[device] += g->n;
}

void batch_plan(const struct split *s, const int32_t *order, int64_t length, int batch_size, int k,
                int first, int devices, struct batch_plan *plan, int32_t *sample) {
    int64_t start = (int64_t)k * batch_size,
            end = start + batch_size < length ? start + batch_size : length;
    int W = s->devices, V = s->virtual_devices;
    memset(plan, 0, sizeof *plan);
    plan->global_n = (int)(end - start);
    plan->per_device = s->kind == SPLIT_CHUNKED ? 1 : V / W;
    /* ceil(n / W) each: the last devices may get fewer samples, or none */
    int64_t chunk = (plan->global_n + W - 1) / W;
    for (int r = first; r < first + devices; r++) {
        if (s->kind == SPLIT_CHUNKED) {
            int64_t from = start + r * chunk, to = from + chunk < end ? from + chunk : end;
            add_segment(plan, r - first, r, order, from, to, 1, sample);
            continue;
        }
        for (int v = r; v < V; v += W) {
            /* the first position with p mod V = v */
            int64_t from = start + (v + V - start % V) % V;
            add_segment(plan, r - first, v, order, from, end, V, sample);
        }
    }
    plan->segments.n = plan->n;
}
