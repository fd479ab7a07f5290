/* The allreduce of one step as a strip of pictures (strip.h). The moves are those of the plan that
 * the run's largest bucket was summed by. */
#include <math.h>

#include "base/error.h"
#include "report/page/collective.h"
#include "report/page/draw.h"
#include "report/page/strip.h"
#include "report/text.h"

int has_collective(const struct page *page) {
    int ddp = index_of_ddp(page);
    return ddp >= 0 && page->run[ddp].run->devices > 1 &&
           largest_bucket_of(page->run[ddp].run) >= 0;
}

static void draw_many(struct picture *p, const struct hops *h) {
    char bytes[32];
    p->height = 3 * p->font;
    picture_open(p, "collective", "Allreduce", "Too many ranks or hops for a strip of pictures.");
    picture_text(p, 0, 1.5 * p->font, ANCHOR_START, SHADE_TEXT,
                 "%s over %d ranks: %d hops, %d moves of %s in all", h->n > 0 ? h->name : "", h->n,
                 h->hops, h->move_count, bytes_words(hops_bytes(h), bytes));
    picture_close(p);
}

static int draw_strip(struct picture *p, const struct hops *h, struct hops_state *state) {
    double f = p->font, gap = 1.5 * f;
    struct strip s = strip_of(p, h, state, NULL);
    double width = strip_frame_width(p, &s) + gap, height = strip_frame_height(p, &s) + gap;
    int columns = (int)((p->width + gap) / width);
    if (columns < 1) columns = 1;
    if (columns > h->hops + 1) columns = h->hops + 1;
    int rows = (h->hops + columns) / columns;
    double top = strip_key(p, 0, h->n, "term of rank", 0) + 0.5 * f;
    p->height = top + rows * height;
    picture_open(p, "collective", "Allreduce, hop by hop",
                 "What the data of each rank holds before the allreduce and after each hop.");
    strip_key(p, 0, h->n, "term of rank", 1);
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

int draw_collective(struct picture *p, const struct page *page, int index) {
    struct hops hops;
    struct hops_state *state = NULL;
    (void)index;
    const struct run_record *r = page->run[index_of_ddp(page)].run;
    CHECK(hops_of_bucket(r, largest_bucket_of(r), &hops, NULL));
    int code = OK;
    if (hops.n > STRIP_RANKS || hops.hops > STRIP_FRAMES || hops.chunk_count > STRIP_CHUNKS) {
        draw_many(p, &hops);
    } else {
        code = hops_state_init(&state, &hops);
        if (!code) code = draw_strip(p, &hops, state);
    }
    hops_state_free(state);
    hops_free(&hops);
    return code;
}
