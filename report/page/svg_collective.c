/* The allreduce of one step as a comic strip: what every rank's data holds before it and after each
 * hop. A row is a rank, a column a chunk of the data; a cell has a stripe for each rank whose term
 * it holds, and is full where the sum is complete. The moves are those of the plan that the run's
 * largest bucket was summed by. */
#include <math.h>

#include "base/error.h"
#include "report/page/collective.h"
#include "report/page/draw.h"
#include "report/text.h"

enum { MOST_FRAMES = 16, MOST_RANKS = 8, MOST_CHUNKS = 24 };

int has_collective(const struct page *page) {
    int ddp = index_of_ddp(page);
    return ddp >= 0 && page->run[ddp].run->devices > 1 &&
           largest_bucket_of(page->run[ddp].run) >= 0;
}

struct strip {
    const struct hops *hops;
    const struct hops_state *state;
    int columns; /* frames beside each other */
    double frame_width, frame_height, cell, row;
};

/* Colours of ranks: the strongest of the palette, in an order in which neighbours differ. */
static enum shade shade_of_rank(int rank) {
    static const enum shade shades[] = {
        SHADE_PHASES + PHASE_BACKWARD,  SHADE_PHASES + PHASE_GATHER,
        SHADE_PHASES + PHASE_LOSS,      SHADE_PHASES + PHASE_REPLICATE,
        SHADE_PHASES + PHASE_ALLREDUCE, SHADE_PHASES + PHASE_FORWARD,
        SHADE_PHASES + PHASE_OPTIMIZER, SHADE_PHASES + PHASE_INPUT};
    return shades[rank % 8];
}

static void draw_cell(struct picture *p, const struct strip *s, double x, double y, uint64_t terms,
                      int changed) {
    int n = s->hops->n;
    double stripe = (s->cell - 2) / n;
    picture_box(p, x, y, s->cell - 2, s->row - 2, SHADE_RAISED, NULL);
    for (int r = 0; r < n; r++)
        if (terms >> r & 1)
            picture_box(p, x + r * stripe, y, stripe + 0.2, s->row - 2, shade_of_rank(r), NULL);
    if (changed) {
        picture_line(p, x, y + s->row - 1, x + s->cell - 2, y + s->row - 1, SHADE_TEXT, 2);
    }
}

/* The rank that chunk c of rank r comes from in this hop; -1: it stays as it is. */
static int source_of(const struct hops *h, int hop, int rank, int chunk) {
    const struct hop_chunk *c = &h->chunks[chunk];
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        if (m->hop == hop && m->to == rank && m->from != rank && m->to_buffer == HOP_DATA &&
            m->to_offset <= c->offset && c->offset < m->to_offset + m->count)
            return m->from;
    }
    return -1;
}

static void draw_frame(struct picture *p, const struct strip *s, int hop, double x, double y) {
    const struct hops *h = s->hops;
    double f = p->font;
    if (hop)
        picture_text(p, x, y + f, ANCHOR_START, SHADE_TEXT, "after hop %d", hop);
    else
        picture_text(p, x, y + f, ANCHOR_START, SHADE_TEXT, "before");
    y += 1.5 * f;
    for (int r = 0; r < h->n; r++) {
        picture_text(p, x + 1.2 * f, y + r * s->row + 0.7 * s->row, ANCHOR_END, SHADE_QUIET, "%d",
                     r);
        for (int c = 0; c < h->chunk_count; c++)
            draw_cell(p, s, x + 1.6 * f + c * s->cell, y + r * s->row,
                      hops_state_terms(s->state, r, c), hop && source_of(h, hop, r, c) >= 0);
    }
}

static void draw_many(struct picture *p, const struct hops *h) {
    char bytes[32];
    p->height = 3 * p->font;
    picture_open(p, "collective", "Allreduce", "Too many ranks or hops for a strip of pictures.");
    picture_text(p, 0, 1.5 * p->font, ANCHOR_START, SHADE_TEXT,
                 "%s over %d ranks: %d hops, %d moves of %s in all",
                 h->n > 0 ? allreduce_algorithm_name(h->algorithm) : "", h->n, h->hops,
                 h->move_count, bytes_words(hops_bytes(h), bytes));
    picture_close(p);
}

static int draw_strip(struct picture *p, const struct hops *h, struct hops_state *state) {
    double f = p->font, gap = 1.5 * f;
    struct strip s = {.hops = h, .state = state};
    s.cell = (h->chunk_count > 8 ? 1.2 : h->hops < 4 ? 3.4 : 2.4) * f;
    s.row = 1.5 * f;
    s.frame_width = 1.6 * f + h->chunk_count * s.cell;
    s.frame_height = 1.5 * f + h->n * s.row;
    s.columns = (int)((p->width + gap) / (s.frame_width + gap));
    if (s.columns < 1) s.columns = 1;
    if (s.columns > h->hops + 1) s.columns = h->hops + 1;
    int rows = (h->hops + s.columns) / s.columns;
    struct key_item items[MOST_RANKS];
    char names[MOST_RANKS][32];
    for (int r = 0; r < h->n; r++) {
        snprintf(names[r], sizeof names[r], "term of rank %d", r);
        items[r] = (struct key_item){shade_of_rank(r), names[r], 0};
    }
    double top = picture_key(p, 0, items, h->n, 0) + 0.5 * f;
    p->height = top + rows * (s.frame_height + gap);
    picture_open(p, "collective", "Allreduce, hop by hop",
                 "What the data of each rank holds before the allreduce and after each hop.");
    picture_key(p, 0, items, h->n, 1);
    int code = OK;
    for (int hop = 0; !code && hop <= h->hops; hop++) {
        code = hops_state_run(state, hop);
        draw_frame(p, &s, hop, hop % s.columns * (s.frame_width + gap),
                   top + hop / s.columns * (s.frame_height + gap));
    }
    picture_close(p);
    return code;
}

int draw_collective(struct picture *p, const struct page *page, int index) {
    struct hops hops;
    struct hops_state *state = NULL;
    (void)index;
    const struct run_record *r = page->run[index_of_ddp(page)].run;
    CHECK(hops_of_bucket(r, largest_bucket_of(r), &hops, NULL));
    int code = OK;
    if (hops.n > MOST_RANKS || hops.hops > MOST_FRAMES || hops.chunk_count > MOST_CHUNKS) {
        draw_many(p, &hops);
    } else {
        code = hops_state_init(&state, &hops);
        if (!code) code = draw_strip(p, &hops, state);
    }
    hops_state_free(state);
    hops_free(&hops);
    return code;
}
