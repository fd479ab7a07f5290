/* The table of pieces and the two launches of clip.h. */
#include "nn/optimizer/clip.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/clip.h"

/* The most elements of a piece: a GPU gives each to a block of threads. */
enum { PIECE = 1 << 15 };

static int count_pieces(const struct param_set *set) {
    size_t count = 0;
    for (int i = 0; i < set->count; i++)
        if (param_trains(&set->param[i])) count += (set->param[i].count + PIECE - 1) / PIECE;
    return (int)count;
}

static void cut(const struct param_set *set, int32_t *piece) {
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        for (size_t at = 0; param_trains(p) && at < p->count; at += PIECE) {
            *piece++ = (int32_t)(at + (set->shard ? 0 : p->grad_offset));
            *piece++ = (int32_t)(p->count - at < PIECE ? p->count - at : PIECE);
        }
    }
}

static int upload(struct grad_clip *c, const struct param_set *set) {
    size_t bytes = (size_t)c->count * 2 * sizeof(int32_t);
    int32_t *pieces = malloc(bytes);
    if (!pieces) return fail(ERR_MEMORY, "clip: out of host memory for %d pieces", c->count);
    cut(set, pieces);
    int code = copy_to_device(device_compute(c->device), c->pieces, pieces, bytes);
    if (!code) code = stream_sync(device_compute(c->device));
    free(pieces);
    return code;
}

/* The number of pieces changes when parameters are frozen. */
static int make_room(struct grad_clip *c, const struct param_set *set) {
    int count = count_pieces(set);
    if (count == c->count) return OK;
    grad_clip_free(c);
    c->device = set->device;
    CHECK(device_alloc(set->device, (void **)&c->pieces, (size_t)count * 2 * sizeof(int32_t),
                       MEM_WORKSPACE));
    CHECK(device_alloc(set->device, (void **)&c->sums, (size_t)count * sizeof(double),
                       MEM_WORKSPACE));
    c->count = count;
    return OK;
}

/* Cuts the pieces, unless they are cut and the gradients have not moved. Waits. */
static int prepare(struct grad_clip *c, const struct param_set *set) {
    if (!set->grad_count || (c->count && c->layout_version == set->layout_version)) return OK;
    CHECK(make_room(c, set));
    CHECK(upload(c, set));
    c->layout_version = set->layout_version;
    return OK;
}

void grad_clip_free(struct grad_clip *c) {
    if (c->device) {
        device_free(c->device, c->pieces);
        device_free(c->device, c->sums);
    }
    memset(c, 0, sizeof *c);
}

/* A sharded set: the squares of each whole gradient, which is gathered for that, and then this
 * process's part of it. The sums are those of a whole set, and so is the norm. */
static int clip_shards(struct grad_clip *c, const struct param_set *set, double max_norm) {
    const int all[2] = {c->count, 2};
    struct stream *stream = device_compute(set->device);
    for (int i = 0, first = 0; i < set->count; i++) {
        const struct param *p = &set->param[i];
        const int count = (int)p->count, pieces[2] = {(count + PIECE - 1) / PIECE, 2};
        if (!param_trains(p)) continue;
        CHECK(param_bring(set, i, 1));
        struct op_args squares = {.in = {tensor_plain(p->grad.data, DTYPE_F32, 1, &count),
                                         tensor_plain(c->pieces + 2 * first, DTYPE_I32, 2, pieces)},
                                  .out = {tensor_plain(c->sums + first, DTYPE_F64, 1, pieces)}};
        CHECK(launch(stream, OP_SQUARE_SUMS, &squares));
        first += *pieces;
    }
    for (int i = 0; i < set->count; i++) {
        const struct param *p = &set->shard->param[i];
        struct op_args clip = {.in = {tensor_plain(c->sums, DTYPE_F64, 1, all)},
                               .out = {p->grad},
                               .p.clip = {max_norm}};
        if (param_trains(p) && p->count) CHECK(launch(stream, OP_CLIP, &clip));
    }
    set->shard->written = 1;
    return OK;
}

int grad_clip(struct grad_clip *c, const struct param_set *set, double max_norm) {
    CHECK(prepare(c, set));
    if (!set->grad_count) return OK;
    if (set->shard) return clip_shards(c, set, max_norm);
    const int all = (int)set->grad_count, pieces[2] = {c->count, 2};
    struct tensor grads = tensor_plain(set->grads, DTYPE_F32, 1, &all),
                  sums = tensor_plain(c->sums, DTYPE_F64, 1, pieces);
    struct op_args squares = {.in = {grads, tensor_plain(c->pieces, DTYPE_I32, 2, pieces)},
                              .out = {sums}};
    struct op_args clip = {.in = {sums}, .out = {grads}, .p.clip = {max_norm}};
    CHECK(launch(device_compute(set->device), OP_SQUARE_SUMS, &squares));
    return launch(device_compute(set->device), OP_CLIP, &clip);
}

int grad_clip_norm(const struct grad_clip *c, double *norm) {
    *norm = 0;
    if (!c->count) return OK;
    size_t bytes = (size_t)c->count * sizeof(double);
    double *sums = malloc(bytes);
    if (!sums) return fail(ERR_MEMORY, "clip: out of host memory for %d sums", c->count);
    int code = copy_to_host(device_compute(c->device), sums, c->sums, bytes);
    if (!code) code = stream_sync(device_compute(c->device));
    if (!code) *norm = clip_norm(sums, c->count);
    free(sums);
    return code;
}
