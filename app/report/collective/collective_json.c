/* A collective as JSON: hops with their moves, the plans with their flags, and the bytes. How it is
 * nested stands in docs/json.md. */
#include <stdlib.h>

#include "base/error.h"
#include "report/collective/collective.h"
#include "report/collective/collective_replay.h"

static void write_ranks(struct json_writer *w, const char *key, uint64_t ranks) {
    json_array(w, key);
    for (int r = 0; r < MAX_DEVICES; r++)
        if (ranks >> r & 1) json_integer(w, NULL, r);
    json_close(w);
}

/* ---- hops ---- */

static void write_move(struct json_writer *w, const struct hops *h, const struct hop_move *m) {
    int first, last;
    json_object(w, NULL);
    json_integer(w, "hop", m->hop);
    json_integer(w, "from", m->from);
    json_integer(w, "to", m->to);
    json_string(w, "action", m->action == HOP_REDUCE ? "reduce" : "copy");
    json_string(w, "from_buffer", hop_buffer_name((enum hop_buffer)m->from_buffer));
    json_natural(w, "from_offset", m->from_offset);
    json_string(w, "to_buffer", hop_buffer_name((enum hop_buffer)m->to_buffer));
    json_natural(w, "to_offset", m->to_offset);
    json_natural(w, "count", m->count);
    if (hops_chunks_of(h, m, &first, &last)) {
        json_integer(w, "first_chunk", first);
        json_integer(w, "last_chunk", last);
    } else {
        json_null(w, "first_chunk");
        json_null(w, "last_chunk");
    }
    json_integer(w, "by", m->by);
    json_integer(w, "step", m->step);
    json_close(w);
}

/* What has become complete since the hop before: done[cell] remembers. */
static void write_completed(struct json_writer *w, const struct replay *r, char *done) {
    const struct hops *h = r->of;
    json_array(w, "completes");
    for (int rank = 0; rank < h->n; rank++) {
        for (int c = 0; c < h->chunk_count; c++) {
            char *known = &done[(size_t)rank * (size_t)h->chunk_count + (size_t)c];
            if (*known || !replay_is_complete(r, rank, c)) continue;
            *known = 1;
            json_object(w, NULL);
            json_integer(w, "rank", rank);
            json_integer(w, "chunk", c);
            json_close(w);
        }
    }
    json_close(w);
}

static int write_hops(struct json_writer *w, const struct hops *h) {
    struct replay r;
    CHECK(replay_init(&r, h));
    char *done = calloc((size_t)h->n * (size_t)h->chunk_count + 1, 1);
    int code = done ? OK : fail(ERR_MEMORY, "collective: no host memory"), i = 0;
    json_array(w, "hop_list");
    for (int hop = 0; !code && hop <= h->hops; hop++) {
        json_object(w, NULL);
        json_integer(w, "hop", hop);
        json_array(w, "moves");
        for (; i < h->move_count && h->moves[i].hop == hop; i++)
            write_move(w, h, &h->moves[i]);
        json_close(w);
        code = hops_state_run(r.state, hop);
        if (!code) write_completed(w, &r, done);
        json_close(w);
    }
    json_close(w);
    free(done);
    replay_free(&r);
    return code;
}

/* ---- plans ---- */

static void write_flag(struct json_writer *w, const char *key, int kind, uint32_t epoch,
                       uint64_t ranks) {
    if (!ranks) {
        json_null(w, key);
        return;
    }
    json_object(w, key);
    json_string(w, "flag", plan_flag_name((enum plan_flag)kind));
    json_natural(w, "epoch", epoch);
    write_ranks(w, "ranks", ranks);
    json_close(w);
}

static void write_step(struct json_writer *w, const struct plan_step *s) {
    static const char *const ops[] = {"none", "copy", "reduce", "reduce_copy", "sum"};
    json_object(w, NULL);
    json_string(w, "op", ops[s->op]);
    write_flag(w, "awaits", s->wait_kind, s->wait_epoch, s->wait_ranks);
    if (s->op == PLAN_NONE) {
        static const char *const empty[] = {"source_rank", "source_buffer", "source_offset",
                                            "dest_buffer", "dest_offset",   "scales_source",
                                            "scales_dest"};
        for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
            json_null(w, empty[i]);
        write_ranks(w, "dest_ranks", 0);
        json_natural(w, "count", 0);
    } else {
        if (s->op == PLAN_SUM)
            json_null(w, "source_rank");
        else
            json_integer(w, "source_rank", s->source_rank);
        json_string(w, "source_buffer", hop_buffer_name((enum hop_buffer)s->source_buffer));
        json_natural(w, "source_offset", s->source_offset);
        write_ranks(w, "dest_ranks", s->dest_ranks);
        json_string(w, "dest_buffer", hop_buffer_name((enum hop_buffer)s->dest_buffer));
        json_natural(w, "dest_offset", s->dest_offset);
        json_natural(w, "count", s->length);
        json_boolean(w, "scales_source", s->scale & PLAN_SCALE_SOURCE);
        json_boolean(w, "scales_dest", s->scale & PLAN_SCALE_DEST);
    }
    write_flag(w, "posts", s->post_kind, s->post_epoch, s->post_ranks);
    json_close(w);
}

static void write_formula(struct json_writer *w, const struct formula *f) {
    json_object(w, "formula");
    json_natural(w, "bytes_in", f->in);
    json_natural(w, "bytes_out", f->out);
    json_string(w, "in_words", f->in_words);
    json_string(w, "out_words", f->out_words);
    json_number(w, "textbook_in", f->textbook_in);
    json_number(w, "textbook_out", f->textbook_out);
    json_string(w, "textbook_words", f->textbook_words);
    json_boolean(w, "textbook_is_bound", f->at_most);
    json_close(w);
}

static void write_ranks_of(struct json_writer *w, const struct drawing *c) {
    json_array(w, "per_rank");
    for (int r = 0; r < c->n; r++) {
        const struct formula *f = &c->formula[r];
        json_object(w, NULL);
        json_integer(w, "rank", r);
        json_natural(w, "bytes_in", collective_in(c, r));
        json_natural(w, "bytes_out", collective_out(c, r));
        if (c->has_formula)
            write_formula(w, f);
        else
            json_null(w, "formula");
        json_array(w, "steps");
        for (int i = 0; i < c->plans[r].step_count; i++)
            write_step(w, &c->plans[r].steps[i]);
        json_close(w);
        json_close(w);
    }
    json_close(w);
}

static void write_chunks(struct json_writer *w, const struct hops *h) {
    json_array(w, "chunks");
    for (int c = 0; c < h->chunk_count; c++) {
        json_object(w, NULL);
        json_natural(w, "offset", h->chunks[c].offset);
        json_natural(w, "count", h->chunks[c].count);
        json_close(w);
    }
    json_close(w);
}

int collective_json(struct json_writer *w, const struct drawing *c) {
    json_string(w, "collective", c->what);
    json_string(w, "algorithm", c->word);
    json_integer(w, "ranks", c->n);
    json_natural(w, "count", c->count);
    json_natural(w, "bytes", c->count * sizeof(float));
    json_object(w, "sizes");
    for (int b = 0; b < HOP_BUFFERS; b++)
        json_natural(w, hop_buffer_name((enum hop_buffer)b), c->hops.sizes[b]);
    json_close(w);
    json_string(w, "result", hop_buffer_name(c->hops.result));
    json_integer(w, "hops", c->hops.hops);
    json_boolean(w, "bytes_equal_formula", collective_is_equal(c));
    write_chunks(w, &c->hops);
    CHECK(write_hops(w, &c->hops));
    write_ranks_of(w, c);
    return OK;
}
