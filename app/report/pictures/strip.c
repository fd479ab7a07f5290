/* Strips of still pictures: see strip.h. */
#include "report/pictures/strip.h"

#include "report/collective/collective_replay.h"

/* Above the cells: the headline and the numbers of the chunks, in heights of a line. */
static const double STRIP_HEAD = 2.7;

struct strip strip_of(const struct picture *p, const struct hops *hops,
                      const struct hops_state *state) {
    double width = hops->chunk_count > 8 ? 1.2 : hops->hops > 3 ? 2.4 : 3.4;
    return (struct strip){hops, state, width * p->font, 1.5 * p->font};
}

double strip_frame_width(const struct picture *p, const struct strip *s) {
    return 1.6 * p->font + s->hops->chunk_count * s->cell;
}

double strip_frame_height(const struct picture *p, const struct strip *s) {
    return STRIP_HEAD * p->font + s->hops->n * s->row;
}

/* What of a frame is drawn at one time: all that has one colour becomes one shape (picture_box). */
enum { LAYER_EMPTY, LAYER_RANKS /* LAYER_RANKS + r: the terms of rank r */ };

static int layer_of_changes(const struct strip *s) {
    return LAYER_RANKS + s->hops->n;
}

static void draw_cell(struct picture *p, const struct strip *s, double x, double y, uint64_t terms,
                      int changed, int layer) {
    int n = s->hops->n, r = layer - LAYER_RANKS;
    double stripe = (s->cell - 2) / n;
    if (layer == LAYER_EMPTY) {
        if (terms != rank_all(n)) /* else nothing of it would be seen */
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
        if (m->hop == hop && m->to == rank && m->from != rank && m->to_buffer == HOP_DATA &&
            m->to_offset <= c->offset && c->offset < m->to_offset + m->count)
            return 1;
    }
    return 0;
}

/* Who sends what to whom in this hop: from row to row, in the middle of the chunks that move. */
static void draw_moves_of(struct picture *p, const struct strip *s, int hop, double x, double y) {
    for (int i = 0; i < s->hops->move_count; i++) {
        const struct hop_move *m = &s->hops->moves[i];
        int first, last;
        if (m->hop != hop || m->from == m->to || !hops_chunks_of(s->hops, m, &first, &last))
            continue;
        double aside = (m->from + m->to + 0.5) / (2 * s->hops->n - 1) -
                       0.5; /* or arrows of one chunk hide each other */
        double at = x + (0.5 * (first + last + 1) + 0.5 * aside) * s->cell - 1,
               down = m->to > m->from ? 1 : -1;
        picture_arrow(p, at, y + (m->from + 0.5 - 0.15 * down) * s->row, at,
                      y + (m->to + 0.5 - 0.15 * down) * s->row, 0.12, SHADE_TEXT, 1.2, NULL);
    }
}

void strip_frame(struct picture *p, const struct strip *s, int hop, const char *head, double x,
                 double y) {
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

double strip_key(struct picture *p, double y, int n, int draw) {
    struct key_item items[STRIP_RANKS];
    char names[STRIP_RANKS][32];
    for (int r = 0; r < n; r++) {
        snprintf(names[r], sizeof names[r], "term of rank %d", r);
        items[r] = (struct key_item){shade_of_rank(r), names[r], 0};
    }
    return picture_key(p, y, items, n, draw);
}
