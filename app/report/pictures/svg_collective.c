/* Draws the allreduce of one step as a strip of frames, like a comic. They show each device's data
 * before the first hop and after each hop. A row is a device, a column a chunk of the data. A cell
 * has one stripe for each device whose term it holds, and is full once the sum is complete. Arrows
 * show who sends a chunk to whom. The moves are those of the plan for the largest bucket. */
#include <math.h>

#include "base/error.h"
#include "report/collective/collective.h"
#include "report/pictures/collective.h"
#include "report/pictures/draw.h"
#include "report/text.h"

/* The most that a strip can show; for more there is a line of text. */
enum { STRIP_FRAMES = 16, STRIP_RANKS = 8, STRIP_CHUNKS = 24 };

struct strip {
    const struct hops *hops;
    const struct hops_state *state;
    double cell, row; /* width and height of a cell */
};

/* Above the cells: the headline and the numbers of the chunks, in heights of a line. */
static const double STRIP_HEAD = 2.7;

static double strip_frame_width(const struct picture *p, const struct strip *s) {
    return 1.6 * p->font + s->hops->chunk_count * s->cell;
}

static double strip_frame_height(const struct picture *p, const struct strip *s) {
    return STRIP_HEAD * p->font + s->hops->n * s->row;
}

/* Parts of a frame that are drawn together: all of one colour become one shape (picture_box). */
enum { LAYER_EMPTY, LAYER_RANKS /* LAYER_RANKS + r: the terms of rank r */ };

static int layer_of_changes(const struct strip *s) {
    return LAYER_RANKS + s->hops->n;
}

static void draw_cell(struct picture *p, const struct strip *s, double x, double y, uint64_t terms,
                      int changed, int layer) {
    int n = s->hops->n, r = layer - LAYER_RANKS;
    double stripe = (s->cell - 2) / n;
    if (layer == LAYER_EMPTY) {
        if (terms != rank_all(n)) /* otherwise it would be invisible */
            picture_box(p, x, y, s->cell - 2, s->row - 2, SHADE_RAISED, NULL);
    } else if (layer == layer_of_changes(s)) {
        if (changed) picture_box(p, x, y + s->row - 2, s->cell - 2, 2, SHADE_TEXT, NULL);
    } else if (terms >> r & 1) {
        picture_box(p, x + r * stripe, y, stripe + 0.2, s->row - 2, shade_of_rank(r), NULL);
    }
}

/* 1 if this hop writes chunk c of the rank. */
static int is_written(const struct hops *h, int hop, int rank, int chunk) {
    const struct hop_chunk *c = &h->chunks[chunk];
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *m = &h->moves[i];
        if (m->hop == hop && m->to == rank && m->from != rank && m->to_buffer == PLAN_DATA &&
            m->to_offset <= c->offset && c->offset < m->to_offset + m->count)
            return 1;
    }
    return 0;
}

/* Where the arrow of a move is in the columns of its chunks, -0.5 to 0.5. Moves of a chunk that
 * share a rank are on one line: all moves to a rank, or all from it. Others are side by side. */
static double aside(const struct hops *h, const struct hop_move *m, int chunk) {
    int to_one = 0, others = 0, first, last;
    for (int i = 0; i < h->move_count; i++) {
        const struct hop_move *o = &h->moves[i];
        if (o == m || o->hop != m->hop || o->from == o->to ||
            !hops_chunks_of(h, o, &first, &last) || chunk < first || chunk > last)
            continue;
        to_one |= o->to == m->to;
        others |= o->to != m->to && o->from != m->from;
    }
    return others ? ((to_one ? m->to : m->from) + 0.5) / h->n - 0.5 : 0;
}

/* Who sends what to whom in this hop: from row to row, in the middle of the chunks that move. A dot
 * marks the sender, since several may share a line. */
static void draw_moves_of(struct picture *p, const struct strip *s, int hop, double x, double y) {
    for (int i = 0; i < s->hops->move_count; i++) {
        const struct hop_move *m = &s->hops->moves[i];
        int first, last;
        if (m->hop != hop || m->from == m->to || !hops_chunks_of(s->hops, m, &first, &last))
            continue;
        double at = x + (0.5 * (first + last + 1) + 0.5 * aside(s->hops, m, first)) * s->cell - 1,
               down = m->to > m->from ? 1 : -1, from = y + (m->from + 0.5) * s->row;
        picture_circle(p, at, from, 2.4, SHADE_TEXT);
        picture_arrow(p, at, from, at, y + (m->to + 0.5 - 0.15 * down) * s->row, 0, SHADE_TEXT, 1.2,
                      NULL);
    }
}

/* One picture: the state as it is now, after hop `hop`, with a headline. */
static void strip_frame(struct picture *p, const struct strip *s, int hop, const char *head,
                        double x, double y) {
    const struct hops *h = s->hops;
    double f = p->font;
    picture_text(p, x, y + f, ANCHOR_START, SHADE_TEXT, "%s", head);
    y += STRIP_HEAD * f;
    for (int c = 0; h->chunk_count > 1 && c < h->chunk_count; c++)
        picture_text(p, x + 1.6 * f + (c + 0.5) * s->cell - 1, y - 0.3 * f, ANCHOR_MIDDLE,
                     SHADE_QUIET, "%d", c);
    for (int r = 0; r < h->n; r++)
        picture_text(p, x + 1.2 * f, y + r * s->row + 0.7 * s->row, ANCHOR_END, SHADE_QUIET, "%d",
                     r);
    for (int layer = LAYER_EMPTY; layer <= layer_of_changes(s); layer++)
        for (int cell = 0; cell < h->n * h->chunk_count; cell++) {
            int r = cell / h->chunk_count, c = cell % h->chunk_count;
            uint64_t terms = hops_state_terms(s->state, r, c);
            draw_cell(p, s, x + 1.6 * f + c * s->cell, y + r * s->row, terms,
                      hop && is_written(h, hop, r, c), layer);
        }
    draw_moves_of(p, s, hop, x + 1.6 * f, y);
}

static double strip_key(struct picture *p, double y, int n, int draw) {
    struct key_item items[STRIP_RANKS];
    char names[STRIP_RANKS][32];
    for (int r = 0; r < n; r++) {
        snprintf(names[r], sizeof names[r], "term of rank %d", r);
        items[r] = (struct key_item){shade_of_rank(r), names[r], KEY_BOX};
    }
    return picture_key(p, y, items, n, draw);
}

/* ---- the picture ---- */

static void draw_many(struct picture *p, const char *title, const struct hops *h) {
    char bytes[32];
    p->height = 3 * p->font;
    picture_open(p, "collective", title, "Too many ranks or hops for a strip of pictures.");
    picture_text(p, 0, 1.5 * p->font, ANCHOR_START, SHADE_TEXT,
                 "%d ranks: %d hops, %d moves of %s in all", h->n, h->hops, h->move_count,
                 bytes_words(hops_bytes(h), bytes));
    picture_close(p);
}

/* How many frames are side by side. On a slide the cells grow until the frames fill it, 16 to 9
 * with title and key. */
static int fit_frames(const struct picture *p, struct strip *s, double gap, double key) {
    double f = p->font, width = strip_frame_width(p, s) + gap, best = 0, cell = s->cell,
           row = s->row;
    int frames = s->hops->hops + 1, columns = (int)((p->width + gap) / width);
    columns = columns < 1 ? 1 : columns > frames ? frames : columns;
    for (int c = 1; p->form == PICTURE_SLIDE && c <= frames; c++) {
        double rows = (frames + c - 1) / c, height = p->width * 9 / 16 - 4 * f - key;
        double by_width = ((p->width + gap) / c - width + s->hops->chunk_count * cell) /
                          (s->hops->chunk_count * cell),
               by_height = (height / rows - strip_frame_height(p, s) - gap + s->hops->n * row) /
                           (s->hops->n * row),
               grown = fmin(by_width, fmin(by_height, 3));
        if (grown > best) best = grown, columns = c;
    }
    if (best > 1) s->cell = best * cell, s->row = best * row;
    return columns;
}

static int draw_strip(struct picture *p, const char *title, const struct hops *h,
                      struct hops_state *state) {
    double f = p->font, gap = 1.5 * f;
    struct strip s = {h, state, f * (h->chunk_count > 8 ? 1.2 : h->hops > 3 ? 2.4 : 3.4), 1.5 * f};
    double key = strip_key(p, 0, h->n, 0), top = key + 1.9 * f;
    int columns = fit_frames(p, &s, gap, key), rows = (h->hops + columns) / columns;
    double width = strip_frame_width(p, &s) + gap, height = strip_frame_height(p, &s) + gap;
    p->height = top + rows * height;
    picture_open(p, "collective", title,
                 "What the data of each rank holds before the collective and after each hop.");
    strip_key(p, 0, h->n, 1);
    picture_text(p, 0, key + 0.9 * f, ANCHOR_START, SHADE_QUIET,
                 "row: rank; column: chunk; dot: sender");
    int code = OK;
    for (int hop = 0; !code && hop <= h->hops; hop++) {
        char head[32];
        snprintf(head, sizeof head, hop ? "after hop %d" : "before", hop);
        code = hops_state_run(state, hop);
        strip_frame(p, &s, hop, head, hop % columns * width, top + hop / columns * height);
    }
    picture_close(p);
    return code;
}

int draw_hops(struct picture *p, const char *title, const struct hops *h) {
    struct hops_state *state = NULL;
    if (h->n > STRIP_RANKS || h->hops > STRIP_FRAMES || h->chunk_count > STRIP_CHUNKS)
        return draw_many(p, title, h), OK;
    CHECK(hops_state_init(&state, h));
    int code = draw_strip(p, title, h, state);
    hops_state_free(state);
    return code;
}

int draw_collective(struct picture *p, const struct page *page, int index) {
    struct hops hops;
    char title[192];
    const struct run_record *r = page->run[index_of_ddp(page)].run;
    (void)index;
    CHECK(hops_of_bucket(r, largest_bucket_of(r), &hops, NULL));
    snprintf(title, sizeof title, "Allreduce by %s, %d ranks, %d chunk%s",
             bucket_algorithm(r, largest_bucket_of(r)), hops.n, hops.chunk_count,
             hops.chunk_count == 1 ? "" : "s");
    int code = draw_hops(p, title, &hops);
    hops_free(&hops);
    return code;
}

int has_collective(const struct page *page) {
    int ddp = index_of_ddp(page);
    return ddp >= 0 && page->run[ddp].run->devices > 1 &&
           largest_bucket_of(page->run[ddp].run) >= 0;
}
