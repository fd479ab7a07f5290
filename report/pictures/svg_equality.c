/* The equality check: fingerprints of gradients and parameters at some steps, device by device. The
 * first run is what the others are compared with; what agrees with it is green, what does not has a
 * sign, and is red where equal bits are promised. */
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/pictures/prints.h"

int has_equality(const struct page *page) {
    const struct run_record *first = first_run(page);
    int hashed = 0;
    for (int i = 0; i < page->count; i++)
        hashed += page->run[i].run && is_hashed(page->run[i].run, 0);
    return first && is_hashed(first, 0) && first->steps && hashed > 1;
}

struct sheet {
    const struct run_record *first;
    int steps[PRINTED_STEPS + 1], count; /* columns; the last is the end */
    double gutter, cell, row;
};

/* The print of column i. */
static uint32_t print_of(const struct sheet *s, const struct run_record *r, int d, int i) {
    int step = i == s->count - 1 ? r->steps : s->steps[i];
    return fingerprint(r, d, step, 0, !(d && r->buffers_apart));
}

/* The end of the devices from d on that have the prints of d. */
static int end_of_same(const struct sheet *s, const struct run_record *r, int d) {
    for (int end = d + 1; end < r->devices; end++)
        for (int i = 0; i < s->count; i++)
            if (print_of(s, r, end, i) != print_of(s, r, d, i)) return end;
    return r->devices;
}

/* With many rows the first ones are shown; the verdict is about all. */
enum { MOST_ROWS = 8 };

static int rows_of(const struct sheet *s, const struct run_record *r) {
    int rows = 0;
    for (int d = 0; d < r->devices && rows < MOST_ROWS; d = end_of_same(s, r, d))
        rows++;
    return rows;
}

/* Four digits where there is no room for eight. */
static void draw_print(struct picture *p, const struct sheet *s, double x, double y, uint32_t got,
                       int equal, enum shade other) {
    char digits[16];
    snprintf(digits, sizeof digits, "%08x", got);
    if (p->form == PICTURE_NARROW) digits[4] = 0;
    picture_text(p, x + s->cell / 2 - 1.5, y + 1.2 * p->font, ANCHOR_MIDDLE,
                 equal ? SHADE_TEXT : other, "%s%s", digits, equal ? "" : " \xe2\x89\xa0");
}

/* other: the colour of what is not equal: red only where it should be. */
static void draw_row(struct picture *p, const struct sheet *s, const struct run_record *r, int d,
                     int end, double y, enum shade other) {
    char label[32];
    devices_label(p, d, end, label);
    picture_text(p, s->gutter - 0.5 * p->font, y + 1.2 * p->font, ANCHOR_END, SHADE_QUIET, "%s",
                 label);
    for (int i = 0; i < s->count; i++)
        if (i == s->count - 1 || s->steps[i] < r->steps)
            picture_box(p, s->gutter + i * s->cell, y + 1, s->cell - 3, s->row - 2, SHADE_RAISED,
                        NULL);
    for (int i = 0; i < s->count; i++) {
        int last = i == s->count - 1, step = last ? s->first->steps : s->steps[i];
        if (!last && step >= r->steps) continue;
        uint32_t want = fingerprint(s->first, 0, step, 0, !(d && r->buffers_apart)),
                 got = print_of(s, r, d, i);
        draw_print(p, s, s->gutter + i * s->cell, y, got, got == want, other);
    }
}

static void draw_heads(struct picture *p, const struct sheet *s, double y) {
    for (int i = 0; i < s->count; i++) {
        double x = s->gutter + (i + 0.5) * s->cell;
        if (i == s->count - 1)
            picture_text(p, x, y, ANCHOR_MIDDLE, SHADE_QUIET, "end");
        else
            picture_text(p, x, y, ANCHOR_MIDDLE, SHADE_QUIET,
                         p->form == PICTURE_NARROW ? "%d" : "before step %d",
                         s->first->first_step + s->steps[i]);
    }
}

int draw_equality(struct picture *p, const struct page *page, int index) {
    double f = p->font, y = 2 * f;
    struct sheet s = {.first = first_run(page),
                      .gutter = p->form == PICTURE_NARROW ? 2.6 * f : 6.6 * f,
                      .row = 1.8 * f};
    (void)index;
    s.count = steps_to_print(s.first, s.steps) + 1;
    s.cell = (p->width - s.gutter) / s.count;
    if (s.cell > 14 * f) s.cell = 14 * f;
    p->height = y;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && is_hashed(page->run[i].run, 0))
            p->height += 2 * f + rows_of(&s, page->run[i].run) * s.row;
    picture_open(p, "equality", "Equality",
                 "Fingerprints of all parameters at some steps, on every device of every run.");
    draw_heads(p, &s, 1.3 * f);
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (!r || !is_hashed(r, 0)) continue;
        picture_head(p, 0, y + 1.4 * f, "%s", page->run[i].title);
        int d = 0, rows = rows_of(&s, r);
        y += 2 * f;
        for (int k = 0, end; k < rows; k++, d = end, y += s.row) {
            end = end_of_same(&s, r, d);
            draw_row(p, &s, r, d, end, y,
                     page->run[i].judged == PAGE_WITHIN ? SHADE_QUIET : SHADE_BAD);
        }
        if (d < r->devices)
            picture_text(p, p->width, y - rows * s.row - 0.6 * f, ANCHOR_END, SHADE_QUIET,
                         "the first %d of %d devices", d, r->devices);
    }
    picture_close(p);
    return OK;
}
