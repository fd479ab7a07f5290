/* Follows DDP's order of summing without DDP; see sums.h. */
#include "ddp/sums.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/grow.h"
#include "nn/tape/tape.h"

/* Maps each parameter's part of a piece of the bucket to its position. *count: the elements of the
 * bucket, pads included. */
static int add_piece(struct sums *s, const struct bucket *bucket, const struct sum_piece *piece,
                     size_t *count) {
    struct sum_pieces *all = &s->pieces;
    *count = 0;
    for (int i = 0; i < bucket->count; i++) {
        const struct param *p = &s->params->param[s->plan.order[bucket->first + i]];
        CHECK(list_grow("order of sums", &all->piece, all->count, &all->room, sizeof *all->piece));
        struct sum_piece *part = &all->piece[all->count];
        if (sum_piece_in(piece, *count, param_padded(p->count), part)) {
            part->first += p->value_offset - *count;
            all->count++;
        }
        *count += param_padded(p->count);
    }
    return OK;
}

/* `order`: the order in which the gradients become ready; NULL: not known yet. */
static int cut(struct sums *s, const int *order) {
    struct sum_piece piece = {.count = 0};
    size_t count;
    s->rebuilt = order || s->config.find_unused;
    s->pieces.count = 0;
    CHECK(buckets_of(&s->plan, s->params, order, !order && s->config.find_unused, s->limits));
    for (int b = 0; b < s->plan.bucket_count; b++) {
        const struct bucket *bucket = &s->plan.bucket[b];
        CHECK(add_piece(s, bucket, &(struct sum_piece){.count = 0}, &count));
        for (size_t at = 0; at < count; at += piece.count) {
            CHECK(plan_order(s->config.algorithm, s->ranks, count, at, &piece));
            CHECK(add_piece(s, bucket, &piece, &count));
        }
    }
    return OK;
}

/* A grad_hook. */
static int note_ready(void *sums, int index) {
    struct sums *s = sums;
    if (!s->rebuilt && s->ready_count < s->params->trained) s->ready[s->ready_count++] = index;
    return pass_note_ready(s->tape, index);
}

int sums_init(struct sums *s, const struct ddp_config *config, int ranks, duet_params *params,
              duet_tape *tape) {
    *s = (struct sums){.config = *config, .ranks = ranks};
    CHECK(bucket_limits(config->bucket_cap_mb, config->first_bucket_mb, s->limits));
    s->params = &params->set;
    s->tape = tape;
    s->ready = calloc((size_t)s->params->count + 1, sizeof *s->ready);
    int code =
        s->ready ? cut(s, config->order) : fail(ERR_MEMORY, "order of sums: out of host memory");
    s->in_force = &s->pieces;
    if (code)
        sums_free(s);
    else
        tape_set_hook(tape, note_ready, s);
    return code;
}

void sums_free(struct sums *s) {
    bucket_plan_free(&s->plan);
    free(s->pieces.piece);
    free(s->ready);
    *s = (struct sums){.params = NULL};
}

int sums_begin_update(struct sums *s) {
    int all = s->params && s->ready_count == s->params->trained;
    return all && !s->rebuilt ? cut(s, s->ready) : OK;
}

const int *sums_ready_order(const struct sums *s) {
    if (!s->params || s->config.find_unused) return NULL;
    return s->rebuilt ? s->plan.order : s->ready_count == s->params->trained ? s->ready : NULL;
}
