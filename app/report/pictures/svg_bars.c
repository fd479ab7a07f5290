/* Draws a stacked bar for each device of each run. Two pictures use it:
 *
 *     memory   by cause, at the device's peak, and the limit. Neighbouring devices with equal
 *              memory share a bar
 *     phases   time by phase, the average over all steps; a bar is as long as a step. Devices that
 *              share cores spend most of a step waiting for them, so their bars show only busy
 *              time. It excludes allreduce, whose time includes waits for other ranks */
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/text.h"
#include "report/values.h"

/* Keys below PHASE_COUNT are phases of the compute lane. The others are the rest of the step:
 * together they add up to its wall time. */
enum time_key {
    TIME_WAIT = PHASE_COUNT, /* waiting for other devices, or for the communication or copy lane */
    TIME_NO_CORE,            /* emulated devices: waiting for a core */
    TIME_IDLE,               /* the rest of the step */
    TIME_KEYS
};

/* What a picture of bars shows, and where. */
struct bars {
    const struct page *page;
    int of_time, keys;
    int small; /* 1: too many bars for text beside each */
    struct key_item key[TIME_KEYS];
    int key_count;
    double gutter, width, row, gap; /* widths of labels and of the longest bar; height of a bar */
    double top, bottom;
    double most;  /* the amount that a bar of `width` shows */
    double limit; /* memory of a device; 0: outside the picture */
};

/* ---- what they show ---- */

static double part_of(const struct bars *b, const struct run_record *r, int device, int key) {
    if (!b->of_time) return (double)r->device[device].memory.at_peak[key];
    if (key == PHASE_NONE || key == PHASE_EVALUATE) return 0; /* not part of a step */
    if (key < PHASE_COUNT) return device_value(r, device, VALUE_PHASE, key);
    return device_value(r, device,
                        key == TIME_WAIT      ? VALUE_WAIT
                        : key == TIME_NO_CORE ? VALUE_NO_CORE
                                              : VALUE_IDLE,
                        0);
}

static struct key_item look_of(const struct bars *b, int key) {
    static const struct key_item rest[] = {{SHADE_QUIET, "waiting", KEY_FRAME},
                                           {SHADE_NO_CORE, "waiting for a CPU core", KEY_BOX},
                                           {SHADE_IDLE, "idle", KEY_BOX}};
    if (!b->of_time) return (struct key_item){shade_of_cause(key), mem_cause_name(key), KEY_BOX};
    if (key >= PHASE_COUNT) return rest[key - PHASE_COUNT];
    return (struct key_item){shade_of_phase(key), phase_name((enum phase)key), KEY_BOX};
}

/* Run i of the page, if it has bars. */
static const struct run_record *shown(const struct bars *b, int i) {
    const struct run_record *r = b->page->run[i].run;
    return r && (!b->of_time || (r->timed && r->steps)) ? r : NULL;
}

/* The end of the devices from d on that share a bar. */
static int end_of_bar(const struct bars *b, const struct run_record *r, int d) {
    const struct ledger *m = &r->device[d].memory;
    int end = d + 1;
    for (const struct ledger *n; !b->of_time && end < r->devices; end++) {
        n = &r->device[end].memory;
        if (m->capacity != n->capacity || m->total_peak != n->total_peak ||
            memcmp(m->at_peak, n->at_peak, sizeof m->at_peak) != 0)
            break;
    }
    return end;
}

static int bars_of(const struct bars *b, const struct run_record *r) {
    int bars = 0;
    for (int d = 0; d < r->devices; d = end_of_bar(b, r, d))
        bars++;
    return bars;
}

static void find_keys(struct bars *b) {
    for (int k = 0; k < b->keys; k++) {
        double any = 0;
        for (int i = 0; i < b->page->count; i++)
            for (int d = 0; b->page->run[i].run && d < b->page->run[i].run->devices; d++)
                any += part_of(b, b->page->run[i].run, d, k);
        if (any > 0) b->key[b->key_count++] = look_of(b, k);
    }
}

/* ---- where ---- */

/* gutter: for labels, in wide and in narrow pictures; room: for text after a bar; foot:
 * below the axis. All in heights of text. */
static void open_bars(struct picture *p, struct bars *b, double wide, double narrow, double room,
                      double foot) {
    double f = p->font;
    b->gutter = (p->form == PICTURE_NARROW ? narrow : wide) * f;
    b->width = p->width - b->gutter - (room > 0 && !b->small ? room * f : 2);
    b->row = b->small ? 0.55 * f : 1.5 * f;
    b->gap = b->small ? 2 : 0.4 * f;
    find_keys(b);
    b->bottom = b->top = picture_key(p, 0, b->key, b->key_count, 0);
    for (int i = 0; i < b->page->count; i++)
        if (shown(b, i)) b->bottom += 2 * f + bars_of(b, shown(b, i)) * (b->row + b->gap);
    b->bottom += 0.3 * f;
    p->height = b->bottom + 1.7 * f + foot;
}

/* After picture_open: the key and the axis. */
static void draw_frame(struct picture *p, const struct bars *b) {
    picture_key(p, 0, b->key, b->key_count, 1);
    draw_axis(p, b->gutter, b->bottom, b->width, b->bottom - b->top - 1.6 * p->font, b->most,
              b->of_time ? AXIS_TIME : AXIS_BYTES);
}

static void draw_bar(struct picture *p, const struct bars *b, const struct run_record *r, int d,
                     double y) {
    double x = b->gutter;
    for (int k = 0; k < b->keys; k++) {
        const struct key_item look = look_of(b, k);
        char words[32], tip[80];
        double part = part_of(b, r, d, k), width = part * (b->width / b->most);
        if (!(part > 0)) continue;
        snprintf(tip, sizeof tip, "%s: %s", look.name,
                 b->of_time ? time_words(part, words) : bytes_words(part, words));
        (look.form == KEY_FRAME ? picture_outline : picture_box)(p, x, y, width, b->row, look.shade,
                                                                 tip);
        if (!b->small && look.form == KEY_BOX && look.shade != SHADE_IDLE)
            picture_label(p, x, y, width, b->row, look.shade, words);
        x += width;
    }
}

/* The limit of a device's memory, as a line across its bar; and what it held, after the bar. */
static void draw_limit(struct picture *p, const struct bars *b, const struct ledger *m, double y,
                       int with_text) {
    double f = p->font, mark = b->gutter + (double)m->capacity / b->most * b->width,
           edge = b->gutter + (double)m->total_peak / b->most * b->width;
    char text[32];
    if (b->limit > 0) picture_line(p, mark, y - 1, mark, y + b->row + 1, SHADE_TEXT, 2);
    if (!with_text || b->small) return;
    /* a text that would cross the limit line begins after it */
    if (b->limit > 0 && edge < mark && edge + 5.6 * f > mark) edge = mark;
    picture_text(p, edge + 0.4 * f, y + 1.1 * f, ANCHOR_START, SHADE_TEXT, "%s",
                 bytes_words((double)m->total_peak, text));
}

/* The bars of a run from y on. Returns where the next run begins. */
static double draw_run(struct picture *p, const struct bars *b, int i, double y) {
    const struct run_record *r = shown(b, i);
    int every = label_every(bars_of(b, r));
    picture_head(p, 0, y + 1.4 * p->font, b->page->run[i].title);
    y += 2 * p->font;
    for (int d = 0, end; d < r->devices; d = end, y += b->row + b->gap) {
        char text[32];
        end = end_of_bar(b, r, d);
        draw_bar(p, b, r, d, y);
        int labelled = end > d + 1 || d % every == 0;
        if (!b->of_time) draw_limit(p, b, &r->device[d].memory, y, labelled);
        if (!labelled) continue;
        devices_label(p, d, end, text);
        picture_text(p, b->gutter - 0.5 * p->font, y + (b->small ? b->row : 1.1 * p->font),
                     ANCHOR_END, SHADE_QUIET, "%s", text);
    }
    return y;
}

/* ---- memory ---- */

/* A limit further away than this is left out, so that it does not shrink the bars. */
static const double LIMIT_IN_SIGHT = 2.5;

static void measure_memory(struct bars *b) {
    double limit = 0;
    int most_bars = 0;
    b->most = 1;
    for (int i = 0; i < b->page->count; i++) {
        const struct run_record *r = shown(b, i);
        if (r && bars_of(b, r) > most_bars) most_bars = bars_of(b, r);
        for (int d = 0; r && d < r->devices; d++) {
            const struct ledger *m = &r->device[d].memory;
            if ((double)m->total_peak > b->most) b->most = (double)m->total_peak;
            if ((double)m->capacity > limit) limit = (double)m->capacity;
        }
    }
    b->small = most_bars > 16;
    if (limit <= LIMIT_IN_SIGHT * b->most) b->limit = limit;
    if (b->limit > b->most) b->most = b->limit;
}

int draw_memory(struct picture *p, const struct page *page, int index) {
    struct bars b = {.page = page, .keys = MEM_CAUSE_COUNT};
    double f = p->font, y;
    char text[32];
    (void)index;
    measure_memory(&b);
    open_bars(p, &b, 6.6, 2.6, 6, 0);
    picture_open(p, "memory", "Memory by cause",
                 "What each device held at its peak, by cause, and the limit of its memory.");
    draw_frame(p, &b);
    y = b.top;
    for (int i = 0; i < page->count; i++)
        if (shown(&b, i)) y = draw_run(p, &b, i, y);
    format_bytes((uint64_t)b.limit, text, sizeof text);
    if (b.limit > 0)
        picture_text(p, b.gutter + b.width, b.top + 1.4 * f, ANCHOR_END, SHADE_TEXT, "limit %s",
                     text);
    picture_close(p);
    return OK;
}

/* ---- phases ---- */

static void measure_phases(struct bars *b) {
    b->most = 1;
    b->keys = run_that_shares(b->page) ? PHASE_COUNT : TIME_KEYS;
    b->small = most_devices(b->page) > 16;
    for (int i = 0; i < b->page->count; i++)
        for (int d = 0; shown(b, i) && d < shown(b, i)->devices; d++) {
            double sum = 0;
            for (int k = 0; k < b->keys; k++)
                sum += part_of(b, shown(b, i), d, k);
            if (sum > b->most) b->most = sum;
        }
}

int draw_phases(struct picture *p, const struct page *page, int index) {
    struct bars b = {.page = page, .of_time = 1};
    double y;
    (void)index;
    measure_phases(&b);
    open_bars(p, &b, 5.8, 2, 0, mark_height(p, page));
    picture_open(p, "phases", "Time by phase",
                 "Mean time of a step by phase, for each device of each run.");
    draw_frame(p, &b);
    y = b.top;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = shown(&b, i);
        if (!r) continue;
        char text[48];
        double median = (double)r->device[0].step_median_ns,
               step = median > 0 ? median : record_per_step(r, r->training_seconds * 1e9);
        if (b.keys < TIME_KEYS)
            snprintf(text, sizeof text, "busy time%s",
                     r->mode == MODE_DDP    ? " without allreduce"
                     : r->mode == MODE_FSDP ? " without collectives"
                                            : "");
        else
            time_words(step, text);
        picture_text(p, p->width - 2, y + 1.4 * p->font, ANCHOR_END, SHADE_QUIET, "%s%s",
                     b.keys < TIME_KEYS ? ""
                     : *r->modelled     ? "modelled step "
                     : median > 0       ? "median step "
                                        : "mean step ",
                     text);
        y = draw_run(p, &b, i, y);
    }
    draw_mark(p, page);
    picture_close(p);
    return OK;
}
