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

static int draw_strip(struct picture *p, const char *title, const struct hops *h,
                      struct hops_state *state) {
    double f = p->font, gap = 1.5 * f;
    struct strip s = strip_of(p, h, state);
    double width = strip_frame_width(p, &s) + gap, height = strip_frame_height(p, &s) + gap;
    int columns = (int)((p->width + gap) / width);
    if (columns < 1) columns = 1;
    if (columns > h->hops + 1) columns = h->hops + 1;
    int rows = (h->hops + columns) / columns;
    double key = strip_key(p, 0, h->n, 0), top = key + 1.9 * f;
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
