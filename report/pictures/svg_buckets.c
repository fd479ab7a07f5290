/* Buckets: how much of each bucket's allreduce lay beside the work of its device, and how much
 * beside none. */
#include "base/error.h"
#include "report/pictures/buckets.h"
#include "report/pictures/draw.h"
#include "report/text.h"

int has_buckets(const struct page *page) {
    struct bucket_time times[MOST_BUCKETS];
    int ddp = index_of_ddp(page);
    return ddp >= 0 && bucket_times(page->run[ddp].run, times) > 0;
}

int draw_buckets(struct picture *p, const struct page *page, int index) {
    const struct run_record *r = page->run[index_of_ddp(page)].run;
    struct bucket_time times[MOST_BUCKETS];
    int buckets = bucket_times(r, times), seen = 0;
    double f = p->font, row = 1.6 * f, gap = 0.4 * f, most = 1;
    double gutter = p->form == PICTURE_NARROW ? 7.2 * f : 11 * f, room = 5.5 * f,
           width = p->width - gutter - room;
    const enum shade overlapped = shade_of_phase(PHASE_ALLREDUCE);
    const struct key_item items[] = {{overlapped, "beside work of the device (overlapped)", 0},
                                     {SHADE_EXPOSED, "beside none (exposed)", 0}};
    (void)index;
    for (int b = 0; b < buckets; b++) {
        seen += times[b].calls > 0;
        if (times[b].overlapped_ns + times[b].exposed_ns > most)
            most = times[b].overlapped_ns + times[b].exposed_ns;
    }
    double y = picture_key(p, 0, items, 2, 0) + 0.6 * f, bottom = y + seen * (row + gap);
    p->height = bottom + 2 * f + mark_height(p, page);
    picture_open(p, "buckets", "Buckets of gradients",
                 "Time of each bucket's allreduce, beside work of its device and beside none.");
    picture_key(p, 0, items, 2, 1);
    draw_axis(p, gutter, bottom, width, bottom - y, most, AXIS_TIME);
    for (int b = 0; b < buckets; b++) {
        char size[32], text[32];
        double a = times[b].overlapped_ns / most * width, c = times[b].exposed_ns / most * width;
        if (!times[b].calls) continue;
        picture_text(p, gutter - 0.5 * f, y + 1.15 * f, ANCHOR_END, SHADE_TEXT,
                     p->form == PICTURE_NARROW ? "%d: %s" : "bucket %d: %s", b,
                     bytes_words(bucket_bytes(r, b), size));
        picture_box(p, gutter, y, a, row, overlapped, NULL);
        picture_box(p, gutter + a, y, c, row, SHADE_EXPOSED, NULL);
        picture_label(p, gutter, y, a, row, overlapped, time_words(times[b].overlapped_ns, text));
        picture_label(p, gutter + a, y, c, row, SHADE_EXPOSED,
                      time_words(times[b].exposed_ns, text));
        picture_text(p, gutter + a + c + 0.4 * f, y + 1.15 * f, ANCHOR_START, SHADE_QUIET, "%s",
                     time_words(times[b].overlapped_ns + times[b].exposed_ns, text));
        y += row + gap;
    }
    draw_mark(p, page);
    picture_close(p);
    return OK;
}
