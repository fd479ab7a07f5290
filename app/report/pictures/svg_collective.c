/* The allreduce of one step as a strip of pictures (strip.h). The moves are those of the plan that
 * the run's largest bucket was summed by. */
#include <math.h>

#include "base/error.h"
#include "report/pictures/collective.h"
#include "report/pictures/draw.h"
#include "report/pictures/strip.h"
#include "report/text.h"

int has_collective(const struct page *page) {
    int ddp = index_of_ddp(page);
    return ddp >= 0 && page->run[ddp].run->devices > 1 &&
           largest_bucket_of(page->run[ddp].run) >= 0;
}

static void draw_many(struct picture *p, const char *title, const struct hops *h) {
    char bytes[32];
    p->height = 3 * p->font;
    picture_open(p, "collective", title, "Too many ranks or hops for a strip of pictures.");
    picture_text(p, 0, 1.5 * p->font, ANCHOR_START, SHADE_TEXT,
                 "%d ranks: %d hops, %d moves of %s in all", h->n, h->hops, h->move_count,
                 bytes_words(hops_bytes(h), bytes));
    picture_close(p);
}

/* How many frames stand side by side. On a slide the cells grow until the frames fill it, 16 to 9
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
    struct strip s = strip_of(p, h, state);
    double key = strip_key(p, 0, h->n, 0), top = key + 1.9 * f;
    int columns = fit_frames(p, &s, gap, key), rows = (h->hops + columns) / columns;
    double width = strip_frame_width(p, &s) + gap, height = strip_frame_height(p, &s) + gap;
    p->height = top + rows * height;
    picture_open(p, "collective", title,
                 "What the data of each rank holds before the collective and after each hop.");
    strip_key(p, 0, h->n, 1);
    picture_text(p, 0, key + 0.9 * f, ANCHOR_START, SHADE_QUIET,
                 "row: rank; column: chunk; arrow: who sends a chunk to whom");
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
    snprintf(title, sizeof title, "Allreduce by %s: %s, %d ranks, %d chunk%s, batch %d",
             bucket_algorithm(r, largest_bucket_of(r)), r->model, hops.n, hops.chunk_count,
             hops.chunk_count == 1 ? "" : "s", r->batch_size);
    int code = draw_hops(p, title, &hops);
    hops_free(&hops);
    return code;
}
