/* Time by phase: a bar for each device, as long as a step, on average over all steps. Devices that
 * share cores spend most of a step waiting for them, so then the bars show busy time only. */
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/values.h"

/* Keys below PHASE_COUNT are phases of the compute lane. The others are the rest of the step:
 * together they add up to its wall time. */
enum time_key {
    TIME_WAIT = PHASE_COUNT, /* for other devices, for the communication or the copy lane */
    TIME_NO_CORE,            /* emulated devices: another one had the core */
    TIME_IDLE,               /* the rest of the step */
    TIME_KEYS,
    TIME_PARTS = TIME_KEYS - PHASE_COUNT
};

/* Nanoseconds a step, mean over all steps; 0 for phases that are no part of a step. */
static double time_part(const struct run_record *run, int device, int key) {
    if (key == PHASE_NONE || key == PHASE_EVALUATE) return 0;
    if (key < PHASE_COUNT) return device_value(run, device, VALUE_PHASE, key);
    return device_value(run, device,
                        key == TIME_WAIT      ? VALUE_WAIT
                        : key == TIME_NO_CORE ? VALUE_NO_CORE
                                              : VALUE_IDLE,
                        0);
}

static const char *time_name(int key) {
    return key == TIME_WAIT      ? "waiting"
           : key == TIME_NO_CORE ? "waiting for a CPU core"
           : key == TIME_IDLE    ? "idle"
                                 : phase_name((enum phase)key);
}

static enum shade time_shade(int key) {
    return key == TIME_WAIT      ? SHADE_QUIET
           : key == TIME_NO_CORE ? SHADE_NO_CORE
           : key == TIME_IDLE    ? SHADE_IDLE
                                 : shade_of_phase(key);
}

/* 1: some run of the page has more emulated devices than it has cores. */
static int is_shared(const struct page *page) {
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (r && !*r->modelled && record_shared(r) && r->devices > record_shared(r)) return 1;
    }
    return 0;
}

static int keys_of(const struct page *page) {
    return is_shared(page) ? PHASE_COUNT : TIME_KEYS;
}

static int key_of(const struct page *page, struct key_item items[PHASE_COUNT + TIME_PARTS]) {
    int n = 0;
    for (int k = 0; k < keys_of(page); k++) {
        double any = 0;
        for (int i = 0; i < page->count; i++)
            for (int d = 0; page->run[i].run && d < page->run[i].run->devices; d++)
                any += time_part(page->run[i].run, d, k);
        if (any > 0) items[n++] = (struct key_item){time_shade(k), time_name(k), k == TIME_WAIT};
    }
    return n;
}

static void draw_bar(struct picture *p, const struct run_record *r, int d, int keys, double x,
                     double y, double height, double scale, int labels) {
    for (int k = 0; k < keys; k++) {
        char words[32], tip[80];
        double ns = time_part(r, d, k), width = ns * scale;
        if (!(ns > 0)) continue;
        snprintf(tip, sizeof tip, "%s: %s", time_name(k), time_words(ns, words));
        if (k == TIME_WAIT)
            picture_outline(p, x, y, width, height, time_shade(k), tip);
        else
            picture_box(p, x, y, width, height, time_shade(k), tip);
        if (labels && k != TIME_WAIT && k != TIME_IDLE)
            picture_label(p, x, y, width, height, time_shade(k), words);
        x += width;
    }
}

int draw_phases(struct picture *p, const struct page *page, int index) {
    struct key_item items[PHASE_COUNT + TIME_PARTS];
    int count = key_of(page, items), small = most_devices(page) > 16, keys = keys_of(page);
    double most = 1, f = p->font, gutter = p->form == PICTURE_NARROW ? 2 * f : 5.8 * f,
           width = p->width - gutter - 2, row = small ? 0.55 * f : 1.5 * f,
           gap = small ? 2 : 0.4 * f, y = picture_key(p, 0, items, count, 0), top = y;
    (void)index;
    for (int i = 0; i < page->count; i++) {
        const struct run_record *r = page->run[i].run;
        if (!r || !r->timed || !r->steps) continue;
        y += 2 * f + r->devices * (row + gap);
        for (int d = 0; d < r->devices; d++) {
            double sum = 0;
            for (int k = 0; k < keys; k++)
                sum += time_part(r, d, k);
            if (sum > most) most = sum;
        }
    }
    double bottom = y + 0.3 * f;
    p->height = bottom + 1.7 * f + mark_height(p, page);
    picture_open(p, "phases", "Time by phase",
                 "Mean time of a step by phase, for each device of each run.");
    picture_key(p, 0, items, count, 1);
    draw_axis(p, gutter, bottom, width, bottom - top - 1.6 * f, most, AXIS_TIME);
    for (int i = 0, n = 0; i < page->count; i++, n = 0) {
        const struct run_record *r = page->run[i].run;
        if (!r || !r->timed || !r->steps) continue;
        char text[32];
        double median = (double)r->device[0].step_median_ns,
               step = median > 0 ? median : record_per_step(r, r->training_seconds * 1e9);
        picture_head(p, 0, top + 1.4 * f, "%s", page->run[i].title);
        picture_text(p, p->width - 2, top + 1.4 * f, ANCHOR_END, SHADE_QUIET, "%s%s%s",
                     *r->modelled ? "modelled step "
                     : median > 0 ? "median step "
                                  : "mean step ",
                     time_words(step, text), keys < TIME_KEYS ? "; drawn: busy time" : "");
        for (top += 2 * f; n < r->devices; n++, top += row + gap) {
            draw_bar(p, r, n, keys, gutter, top, row, width / most, !small);
            if (n % label_every(r->devices)) continue;
            device_label(p, n, text);
            picture_text(p, gutter - 0.5 * f, top + (small ? row : 1.1 * f), ANCHOR_END,
                         SHADE_QUIET, "%s", text);
        }
    }
    draw_mark(p, page);
    picture_close(p);
    return OK;
}
