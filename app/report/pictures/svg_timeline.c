/* Draws the timeline: what every device did in one step, with all runs on one axis. A line runs
 * through each device for the whole step; where no box covers it, the device is idle. */
#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/pictures/window.h"

struct layout {
    double gutter, width; /* widths left of the axis and along it */
    double row[ROW_COUNT], gap, head;
    double axis_ns; /* the time that `width` stands for */
    const struct window *windows;
};

static double device_height(const struct layout *l, const struct window *w) {
    double height = l->row[ROW_COMPUTE] + l->gap;
    for (int row = ROW_COMM; row < ROW_COUNT; row++)
        if (w->has_row[row]) height += l->row[row] + 1;
    return height;
}

static struct layout lay_out(const struct picture *p, const struct page *page,
                             const struct window *windows) {
    int small = most_devices(page) > 16, narrow = p->form == PICTURE_NARROW;
    struct layout l = {.gutter = narrow ? 2 * p->font : 5.8 * p->font, .windows = windows};
    l.width = p->width - l.gutter - 2;
    l.row[ROW_COMPUTE] = small ? 0.5 * p->font : 1.5 * p->font;
    l.row[ROW_COMM] = small ? 0.3 * p->font : 1.1 * p->font;
    l.row[ROW_COPY] = small ? 0.2 * p->font : 0.45 * p->font;
    l.gap = small ? 2 : 0.45 * p->font;
    l.head = 2 * p->font;
    for (int i = 0; i < page->count; i++)
        if (windows[i].count && l.axis_ns < (double)(windows[i].end_ns - windows[i].start_ns))
            l.axis_ns = (double)(windows[i].end_ns - windows[i].start_ns);
    return l;
}

/* The phases that occur, waiting, and being idle, as a key. */
enum { KEYS = PHASE_COUNT + 2 };
static int key_of(const struct page *page, const struct window *windows,
                  struct key_item items[KEYS]) {
    char seen[KEYS] = {0};
    int n = 0;
    for (int i = 0; i < page->count; i++)
        for (size_t k = 0; k < windows[i].count; k++) {
            const struct span *s = windows[i].spans[k];
            seen[s->waiting ? PHASE_COUNT : s->phase] = 1;
        }
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        if (seen[phase])
            items[n++] = (struct key_item){shade_of_phase(phase), phase_name(phase), KEY_BOX};
    if (seen[PHASE_COUNT]) items[n++] = (struct key_item){SHADE_QUIET, "waiting", KEY_FRAME};
    items[n++] = (struct key_item){SHADE_QUIET, "idle", KEY_LINE};
    return n;
}

/* The box of spans[0 .. n), which are neighbours in one row. */
static void box_of(const struct layout *l, const struct window *w, const struct span *const *spans,
                   size_t n, double top, double box[4] /* x, y, width, height */) {
    const struct span *s = spans[0];
    enum window_row row = window_row_of(s);
    int64_t start = s->start_ns > w->start_ns ? s->start_ns : w->start_ns, end = s->end_ns;
    for (size_t k = 1; k < n; k++)
        if (spans[k]->end_ns > end) end = spans[k]->end_ns;
    if (end > w->end_ns) end = w->end_ns;
    box[0] = l->gutter + (double)(start - w->start_ns) * l->width / l->axis_ns;
    box[1] = top + s->device * device_height(l, w);
    if (row > ROW_COMPUTE) box[1] += l->row[ROW_COMPUTE] + 1;
    if (row > ROW_COMM && w->has_row[ROW_COMM]) box[1] += l->row[ROW_COMM] + 1;
    box[2] = (double)(end - start) * l->width / l->axis_ns;
    box[3] = l->row[row];
}

static void draw_span(struct picture *p, const struct span *s, double ns, const double box[4]) {
    char text[32], tip[128], *says = p->form == PICTURE_SLIDE ? tip : NULL;
    double width = says && box[2] < 0.6 ? 0.6 : box[2];
    snprintf(tip, sizeof tip, "%s%s: %s", s->waiting ? "waiting in " : "",
             s->lane == LANE_COMM ? s->name : phase_name(s->phase), time_words(ns, text));
    if (says && box[2] < 0.25) return; /* too small to be seen */
    if (s->waiting) {
        picture_box(p, box[0], box[1], width, box[3], SHADE_RAISED, NULL); /* covers the line */
        picture_outline(p, box[0], box[1], width, box[3], SHADE_QUIET, says);
    } else {
        picture_box(p, box[0], box[1], width, box[3], shade_of_phase(s->phase), says);
    }
}

/* Spans too close to tell apart share a box. */
static void draw_spans(struct picture *p, const struct layout *l, const struct window *w,
                       double top) {
    double seen = 0.6 * l->axis_ns / l->width, box[4];
    for (size_t i = 0, n; i < w->count; i += n) {
        n = window_joined(w->spans + i, w->count - i, seen);
        box_of(l, w, w->spans + i, n, top, box);
        const struct span *s = w->spans[i];
        draw_span(p, s, box[2] * l->axis_ns / l->width, box);
        if (s->waiting) continue;
        picture_label(p, box[0], box[1], box[2], box[3], shade_of_phase(s->phase),
                      window_row_of(s) == ROW_COMM ? s->name : phase_name(s->phase));
    }
}

static double draw_run(struct picture *p, const struct layout *l, const struct page *page, int i,
                       double y) {
    const struct window *w = &l->windows[i];
    const struct run_record *r = page->run[i].run;
    double each = device_height(l, w), top = y + l->head;
    double length = (double)(w->end_ns - w->start_ns) * l->width / l->axis_ns;
    int every = label_every(r->devices);
    char text[32];
    picture_head(p, 0, y + 1.35 * p->font, page->run[i].title);
    time_words((double)w->step_ns, text);
    picture_text(p, p->width - 2, y + 1.35 * p->font, ANCHOR_END, SHADE_QUIET, "%sstep %d: %s%s",
                 *r->modelled ? "modelled " : "", w->step, text,
                 r->devices > 1 ? " on device 0" : "");
    for (int d = 0; d < r->devices; d++) {
        double lane = top + d * each, middle = lane + 0.5 * l->row[ROW_COMPUTE];
        picture_box(p, l->gutter, lane, length, each - l->gap, SHADE_RAISED, NULL);
        picture_line(p, l->gutter, middle, l->gutter + length, middle, SHADE_QUIET, 1.2);
        if (d % every) continue;
        device_label(p, d, text);
        picture_text(p, l->gutter - 0.5 * p->font, lane + 1.1 * p->font - (every > 1) * 5,
                     ANCHOR_END, SHADE_QUIET, "%s", text);
    }
    return top + r->devices * each;
}

static void close_windows(struct window *windows) {
    for (int i = 0; i < PAGE_RUNS; i++)
        window_free(&windows[i]);
}

int draw_timeline(struct picture *p, const struct page *page, int index) {
    struct window windows[PAGE_RUNS] = {{0}};
    struct key_item items[KEYS];
    int code = OK;
    (void)index;
    for (int i = 0; !code && i < page->count; i++)
        if (page->run[i].run) code = window_open(&windows[i], page->run[i].run);
    if (code) return close_windows(windows), code;
    struct layout l = lay_out(p, page, windows);
    int count = key_of(page, windows, items);
    double y = picture_key(p, 0, items, count, 0) + 0.4 * p->font, top = y;
    for (int i = 0; i < page->count; i++)
        if (windows[i].count)
            y += l.head + page->run[i].run->devices * device_height(&l, &windows[i]);
    p->height = y + 2 * p->font + mark_height(p, page);
    picture_open(p, "timeline", "Timeline; below a device its communication and its copies",
                 "What each device did in a typical step, all runs on one time axis.");
    picture_key(p, 0, items, count, 1);
    double tops[PAGE_RUNS] = {0}, first = top;
    for (int i = 0; i < page->count; i++) {
        if (!windows[i].count) continue;
        tops[i] = top + l.head;
        top = draw_run(p, &l, page, i, top);
    }
    draw_axis(p, l.gutter, y, l.width, y - first - 1.5 * p->font, l.axis_ns, AXIS_TIME);
    for (int i = 0; i < page->count; i++)
        if (windows[i].count) draw_spans(p, &l, &windows[i], tops[i]);
    draw_mark(p, page);
    picture_close(p);
    close_windows(windows);
    return OK;
}
