/* PyTorch's bucket assignment is one walk over the parameters with one comparison each. bucket.h
 * states the rule. */
#include "ddp/bucket.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

#define MIB (1024.0 * 1024.0)
#define DEFAULT_FIRST_MB 1.0
#define DEFAULT_CAP_MB 25.0

static uint64_t whole_bytes(double mb) {
    double bytes = mb * MIB;
    return bytes >= 0x1p64 ? BUCKET_NO_LIMIT : (uint64_t)bytes;
}

int bucket_limits(double cap_mb, double first_mb, uint64_t limits[2]) {
    if (isnan(cap_mb) || isnan(first_mb))
        return fail(ERR_USAGE, "bucket size: not a number: give MiB, such as 25 or 0.1");
    double cap = cap_mb < 0 ? DEFAULT_CAP_MB : cap_mb;
    double first = first_mb >= 0 ? first_mb : cap_mb < 0 ? DEFAULT_FIRST_MB : cap;
    limits[0] = whole_bytes(first);
    limits[1] = whole_bytes(cap);
    return OK;
}

/* Copies `order`. bucket_of[p] is -1 until p has been seen. */
static int copy_order(struct bucket_plan *plan, const int *order, int params) {
    for (int i = 0; i < params; i++)
        plan->bucket_of[i] = -1;
    for (int i = 0; i < plan->param_count; i++) {
        int p = order[i];
        if (p < 0 || p >= params || plan->bucket_of[p] != -1)
            return fail(ERR_FAILED,
                        "buckets: parameter %d at index %d of %d: an order names each once", p, i,
                        plan->param_count);
        plan->bucket_of[p] = 0;
        plan->order[i] = p;
    }
    return OK;
}

static void assign(struct bucket_plan *plan, const uint64_t *bytes, const uint64_t *limits,
                   int limit_count) {
    const uint64_t *limit = limits, *last_limit = limits + limit_count - 1;
    struct bucket open = {0, 0, 0};
    for (int i = 0; i < plan->param_count; i++) {
        int p = plan->order[i];
        plan->bucket_of[p] = plan->bucket_count;
        open.count++;
        open.bytes += bytes[p];
        int full = *limit != BUCKET_NO_LIMIT && open.bytes >= *limit;
        if (full || i + 1 == plan->param_count) {
            plan->bucket[plan->bucket_count++] = open;
            open = (struct bucket){i + 1, 0, 0};
            if (limit < last_limit) limit++;
        }
    }
}

int bucket_plan_init(struct bucket_plan *plan, const uint64_t *bytes, int params, const int *order,
                     int count, const uint64_t *limits, int limit_count) {
    int code;
    size_t room = count > 0 ? (size_t)count : 1;
    *plan = (struct bucket_plan){.param_count = count};
    plan->order = malloc(room * sizeof *plan->order);
    plan->bucket_of = malloc(((size_t)params + 1) * sizeof *plan->bucket_of);
    plan->bucket = malloc(room * sizeof *plan->bucket); /* at most one per parameter */
    if (!plan->order || !plan->bucket_of || !plan->bucket)
        CHECK_GOTO(fail(ERR_MEMORY, "buckets: %d parameters: the host is out of memory", count),
                   code, failed);
    CHECK_GOTO(copy_order(plan, order, params), code, failed);
    assign(plan, bytes, limits, limit_count);
    return OK;
failed:
    bucket_plan_free(plan);
    return code;
}

void bucket_plan_reverse(struct bucket_plan *plan) {
    int count = plan->param_count, buckets = plan->bucket_count;
    for (int i = 0; i < count / 2; i++) {
        int other = plan->order[count - 1 - i];
        plan->order[count - 1 - i] = plan->order[i];
        plan->order[i] = other;
    }
    for (int b = 0; b < buckets / 2; b++) {
        struct bucket other = plan->bucket[buckets - 1 - b];
        plan->bucket[buckets - 1 - b] = plan->bucket[b];
        plan->bucket[b] = other;
    }
    for (int b = 0; b < buckets; b++)
        plan->bucket[b].first = count - plan->bucket[b].first - plan->bucket[b].count;
    for (int i = 0; i < count; i++)
        plan->bucket_of[plan->order[i]] = buckets - 1 - plan->bucket_of[plan->order[i]];
}

int buckets_of(struct bucket_plan *plan, const struct param_set *params, const int *order,
               int find_unused, const uint64_t limits[2]) {
    const uint64_t no_limit = BUCKET_NO_LIMIT;
    size_t room = (size_t)params->count + 1;
    uint64_t *bytes = malloc(room * sizeof *bytes);
    int code = OK, *first = malloc(room * sizeof *first);
    if (!bytes || !first)
        CHECK_GOTO(fail(ERR_MEMORY, "ddp: sizes of %d parameters: the host is out of memory",
                        params->count),
                   code, done);
    for (int i = 0, at = 0; i < params->count; i++) {
        bytes[i] = params->param[i].count * sizeof(float);
        if (param_trains(&params->param[i]))
            first[find_unused ? at++ : params->trained - 1 - at++] = i;
    }
    bucket_plan_free(plan);
    int cut = order || find_unused;
    CHECK_GOTO(bucket_plan_init(plan, bytes, params->count, order ? order : first, params->trained,
                                cut ? limits : &no_limit, cut ? 2 : 1),
               code, done);
    if (find_unused) bucket_plan_reverse(plan);
    for (int i = 0; i < params->count && !code; i++)
        if (param_trains(&params->param[i]) != (plan->bucket_of[i] >= 0))
            code = fail(ERR_FAILED,
                        "buckets: parameter %d: an order has all that are trained, and "
                        "no other",
                        i);
done:
    free(bytes);
    free(first);
    return code;
}

void bucket_plan_free(struct bucket_plan *plan) {
    free(plan->order);
    free(plan->bucket_of);
    free(plan->bucket);
    *plan = (struct bucket_plan){0};
}
