/* The sharded reduce; see shards.h. No device writes what another reads. Only device d writes to
 * arena d, and only to its shard d. Only device d reads that shard until device 0 copies the sum
 * after the event summed[d]. */
#include "scatter_gather/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct param_range shard_of(struct param_range range, int n, int d) {
    int first = n > 2; /* the first device that adds */
    size_t shards = (size_t)(n - first), i = (size_t)(d - first);
    if (d < first) return (struct param_range){range.first, 0};
    size_t units = (range.count + PARAM_ALIGN - 1) / PARAM_ALIGN;
    size_t from = units * i / shards * PARAM_ALIGN, to = units * (i + 1) / shards * PARAM_ALIGN;
    if (to > range.count) to = range.count;
    return (struct param_range){range.first + from, to - from};
}

static size_t largest_shard(const struct sharded_reduce *s, int d) {
    size_t most = 0;
    for (int i = 0; i < s->range_count; i++) {
        struct param_range shard = shard_of(s->ranges[i], s->group->count, d);
        if (shard.count > most) most = shard.count;
    }
    return most;
}

int sharded_reduce_init(struct sharded_reduce *s, struct device_group *group, float *const *arenas,
                        const struct param_range *ranges, int range_count,
                        const struct sum_pieces *sums) {
    int code = OK;
    memset(s, 0, sizeof *s);
    s->group = group;
    s->ranges = ranges;
    s->range_count = range_count;
    memcpy(s->arena, arenas, (size_t)group->count * sizeof *arenas);
    s->plan = calloc((size_t)group->count, sizeof *s->plan);
    if (!s->plan) CHECK_GOTO(fail(ERR_MEMORY, "sharded reduce: out of host memory"), code, failed);
    for (int d = 0; d < group->count; d++) {
        size_t most = largest_shard(s, d);
        if (!most) continue;
        CHECK_GOTO(reduce_plan_init(&s->plan[d], group, d, arenas, most, sums), code, failed);
        CHECK_GOTO(event_create(group->device[d], &s->summed[d]), code, failed);
    }
    return OK;

failed:
    sharded_reduce_free(s);
    return code;
}

void sharded_reduce_free(struct sharded_reduce *s) {
    for (int d = 0; s->plan && d < s->group->count; d++) {
        reduce_plan_free(&s->plan[d]);
        event_destroy(s->summed[d]);
    }
    free(s->plan);
    memset(s, 0, sizeof *s);
}

int sharded_reduce_add(struct sharded_reduce *s, int d) {
    struct device_group *group = s->group;
    struct stream *stream = device_compute(group->device[d]);
    if (!s->summed[d]) return OK;
    for (int r = 0; r < group->count; r++)
        if (r != d) CHECK(stream_wait(stream, group->ready[r]));
    for (int i = 0; i < s->range_count; i++)
        CHECK(reduce_add_one(&s->plan[d], shard_of(s->ranges[i], group->count, d)));
    return event_record(s->summed[d], stream);
}

int sharded_reduce_collect(struct sharded_reduce *s) {
    struct device_group *group = s->group;
    for (int d = 1; d < group->count; d++) {
        if (!s->summed[d]) continue;
        CHECK(stream_wait(group->stream, s->summed[d]));
        for (int i = 0; i < s->range_count; i++) {
            struct param_range shard = shard_of(s->ranges[i], group->count, d);
            CHECK(copy_peer(group->stream, group->device[0], s->arena[0] + shard.first,
                            group->device[d], s->arena[d] + shard.first,
                            shard.count * sizeof(float)));
        }
    }
    return device_group_leave(group);
}
