/* What DP moves in a step as a strip of pictures (strip.h): before and after each of its
 * collectives, in the order of the step. */
#include <math.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/pictures/strip.h"
#include "report/text.h"

int has_moves(const struct page *page, int index) {
    struct dp_move moves[MOST_DP_MOVES];
    return dp_moves_of(page->run[index].run, moves) > 0;
}

/* Frames flow beside each other while there is room, then in a new row; those of one move stay
 * together where a row can hold them. */
struct flow {
    double x, y, row, width, gap;
};

static void make_room(struct flow *at, double width) {
    if (!(at->x > 0) || at->x + width <= at->width) return;
    at->x = 0;
    at->y += at->row + at->gap;
}

static double head_of(const struct picture *p, const struct dp_move *move, int hop, int hops,
                      char head[64]) {
    const char *name = dp_move_name(move);
    if (!hop)
        snprintf(head, 64, "%s: before", name);
    else if (hops > 1)
        snprintf(head, 64, "%s: after hop %d", name, hop);
    else
        snprintf(head, 64, "%s: after", name);
    return picture_text_width(p, head);
}

/* The width of the frame of that hop, in which its headline fits. */
static double frame_width(const struct picture *p, const struct strip *s, int hop, char head[64]) {
    return fmax(head_of(p, s->move, hop, s->hops->hops, head), strip_frame_width(p, s));
}

/* draw 0: only finds the places. */
static int draw_frames(struct picture *p, const struct strip *s, struct hops_state *state,
                       struct flow *at, int draw) {
    char head[64];
    double all = 0;
    for (int hop = 0; hop <= s->hops->hops; hop++)
        all += frame_width(p, s, hop, head) + (hop ? at->gap : 0);
    if (all <= at->width) make_room(at, all);
    for (int hop = 0; hop <= s->hops->hops; hop++) {
        double width = frame_width(p, s, hop, head);
        make_room(at, width);
        at->row = strip_frame_height(p, s);
        CHECK(hops_state_run(state, hop));
        if (draw) strip_frame(p, s, hop, head, at->x, at->y);
        at->x += width + at->gap;
    }
    return OK;
}

static int draw_move(struct picture *p, const struct dp_move *move, struct flow *at, int draw) {
    struct hops hops;
    struct hops_state *state = NULL;
    CHECK(dp_move_hops(move, &hops));
    int code = hops_state_init(&state, &hops);
    struct strip s = strip_of(p, &hops, state, move);
    if (!code) code = draw_frames(p, &s, state, at, draw);
    hops_state_free(state);
    hops_free(&hops);
    return code;
}

static int draw_strip(struct picture *p, const struct dp_move *moves, int count, int draw) {
    double top = strip_key(p, 0, moves[0].devices, "from device", draw) + 0.5 * p->font;
    struct flow at = {.y = top, .width = p->width, .gap = 1.5 * p->font};
    for (int k = 0; k < count; k++)
        CHECK(draw_move(p, &moves[k], &at, draw));
    p->height = at.y + at.row + 0.5 * p->font;
    return OK;
}

/* Too many devices for cells: a line for each move. */
static void draw_lines(struct picture *p, const struct dp_move *moves, int count) {
    for (int k = 0; k < count; k++) {
        char bytes[32];
        picture_text(p, 0, (1.5 + 1.6 * k) * p->font, ANCHOR_START, SHADE_TEXT,
                     "%s: %s, %s a step over links", dp_move_name(&moves[k]), moves[k].what,
                     bytes_words(moves[k].bytes, bytes));
    }
}

int draw_moves(struct picture *p, const struct page *page, int index) {
    struct dp_move moves[MOST_DP_MOVES];
    int count = dp_moves_of(page->run[index].run, moves), few = moves[0].devices <= STRIP_RANKS;
    if (few)
        CHECK(draw_strip(p, moves, count, 0));
    else
        p->height = 1.6 * (count + 1) * p->font;
    const struct run_record *r = page->run[index].run;
    char title[160];
    snprintf(title, sizeof title, "What DP moves in a step: %s, %d devices, batch %d", r->model,
             r->devices, r->batch_size);
    picture_open(p, "collective", title,
                 "What each device holds before and after each collective of DP.");
    if (!few)
        draw_lines(p, moves, count);
    else
        CHECK(draw_strip(p, moves, count, 1));
    picture_close(p);
    return OK;
}
