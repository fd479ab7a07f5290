/* Memory: a bar for each device, its causes stacked, as they were when the device held most; and
 * the limit of its memory. Neighbours that held the same share a bar. */
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/text.h"

/* A limit further away than this is named at the edge, so that it does not shrink the bars. */
static const double LIMIT_IN_SIGHT = 2.5;

struct extent {
    double peak, limit; /* the largest peak, and the limit nearest above it */
};

static struct extent extent_of(const struct page *page) {
    struct extent e = {1, 0};
    for (int i = 0; i < page->count; i++)
        for (int d = 0; page->run[i].run && d < page->run[i].run->devices; d++) {
            const struct ledger *m = &page->run[i].run->device[d].memory;
            if ((double)m->total_peak > e.peak) e.peak = (double)m->total_peak;
            if ((double)m->capacity > e.limit) e.limit = (double)m->capacity;
        }
    return e;
}

static int key_of(const struct page *page, struct key_item items[MEM_CAUSE_COUNT]) {
    int n = 0;
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        uint64_t any = 0;
        for (int i = 0; i < page->count; i++)
            for (int d = 0; page->run[i].run && d < page->run[i].run->devices; d++)
                any |= page->run[i].run->device[d].memory.at_peak[c];
        if (any) items[n++] = (struct key_item){shade_of_cause(c), mem_cause_name(c), 0};
    }
    return n;
}

static void draw_bar(struct picture *p, const struct ledger *m, double x, double y, double height,
                     double scale, int labels) {
    for (int c = 0; c < MEM_CAUSE_COUNT; c++) {
        char bytes[32], tip[80];
        double width = (double)m->at_peak[c] * scale;
        if (!m->at_peak[c]) continue;
        snprintf(tip, sizeof tip, "%s: %s", mem_cause_name(c),
                 format_bytes(m->at_peak[c], bytes, sizeof bytes));
        picture_box(p, x, y, width, height, shade_of_cause(c), tip);
        if (labels) picture_label(p, x, y, width, height, shade_of_cause(c), bytes);
        x += width;
    }
}

/* The end of the run of devices from d on that held the same as d: they share a bar. */
static int end_of_same(const struct run_record *r, int d) {
    const struct ledger *a = &r->device[d].memory;
    int end = d + 1;
    for (const struct ledger *b; end < r->devices; end++) {
        b = &r->device[end].memory;
        if (a->capacity != b->capacity || a->total_peak != b->total_peak ||
            memcmp(a->at_peak, b->at_peak, sizeof a->at_peak) != 0)
            break;
    }
    return end;
}

static int bars_of(const struct run_record *r) {
    int bars = 0;
    for (int d = 0; d < r->devices; d = end_of_same(r, d))
        bars++;
    return bars;
}

int draw_memory(struct picture *p, const struct page *page, int index) {
    struct extent e = extent_of(page);
    struct key_item items[MEM_CAUSE_COUNT];
    int count = key_of(page, items), most_bars = 0;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && bars_of(page->run[i].run) > most_bars)
            most_bars = bars_of(page->run[i].run);
    int small = most_bars > 16, in_sight = e.limit <= LIMIT_IN_SIGHT * e.peak;
    double most = in_sight && e.limit > e.peak ? e.limit : e.peak, f = p->font;
    double gutter = p->form == PICTURE_NARROW ? 2.6 * f : 6.6 * f,
           room = small ? 2 : 6 * f, /* for the text of the peak after a bar */
        width = p->width - gutter - room, row = small ? 0.55 * f : 1.5 * f,
           gap = small ? 2 : 0.4 * f;
    double y = picture_key(p, 0, items, count, 0), top = y;
    (void)index;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run) y += 2 * f + bars_of(page->run[i].run) * (row + gap);
    double bottom = y + 0.3 * f;
    p->height = bottom + 1.7 * f + (in_sight ? 0 : 1.5 * f);
    picture_open(p, "memory", "Memory by cause",
                 "What each device held at its peak, by cause, and the limit of its memory.");
    picture_key(p, 0, items, count, 1);
    draw_axis(p, gutter, bottom, width, bottom - top - 1.6 * f, most, AXIS_BYTES);
    y = top;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (!r) continue;
        picture_head(p, 0, y + 1.4 * f, "%s", page->run[i].title);
        y += 2 * f;
        for (int d = 0, end; d < r->devices; d = end, y += row + gap) {
            const struct ledger *m = &r->device[d].memory;
            char text[32];
            end = end_of_same(r, d);
            draw_bar(p, m, gutter, y, row, width / most, !small);
            double mark = gutter + (double)m->capacity / most * width; /* its limit */
            if (in_sight) picture_line(p, mark, y - 1, mark, y + row + 1, SHADE_TEXT, 2);
            if (end == d + 1 && d % label_every(bars_of(r))) continue;
            devices_label(p, d, end, text);
            picture_text(p, gutter - 0.5 * f, y + (small ? row : 1.1 * f), ANCHOR_END, SHADE_QUIET,
                         "%s", text);
            if (small) continue;
            double edge = gutter + (double)m->total_peak / most * width;
            /* behind the limit where it would be on it */
            if (in_sight && edge < mark && edge + 5.6 * f > mark) edge = mark;
            picture_text(p, edge + 0.4 * f, y + 1.1 * f, ANCHOR_START, SHADE_TEXT, "%s",
                         format_bytes(m->total_peak, text, sizeof text));
        }
    }
    char limit[32];
    format_bytes((uint64_t)e.limit, limit, sizeof limit);
    if (in_sight)
        picture_text(p, gutter + width, top + 1.4 * f, ANCHOR_END, SHADE_TEXT, "limit %s", limit);
    else
        picture_text(p, p->width - 2, p->height - 0.4 * f, ANCHOR_END, SHADE_TEXT,
                     "limit of a device: %s, far right of this scale \xe2\x86\x92", limit);
    picture_close(p);
    return OK;
}
