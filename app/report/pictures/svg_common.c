/* Code that several pictures share: the list of runs, axes, labels. */
#include <math.h>
#include <string.h>

#include "report/pictures/draw.h"
#include "report/pictures/window.h"
#include "report/text.h"

const struct run_record *first_run(const struct page *page) {
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run) return page->run[i].run;
    return NULL;
}

int most_devices(const struct page *page) {
    int most = 0;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && page->run[i].run->devices > most) most = page->run[i].run->devices;
    return most;
}

const struct run_record *run_that_shares(const struct page *page) {
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && record_shared(page->run[i].run)) return page->run[i].run;
    return NULL;
}

int index_of_ddp(const struct page *page) {
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && page->run[i].run->mode == MODE_DDP) return i;
    return -1;
}

enum shade shade_of_run(const struct page *page, int index) {
    const struct run_record *r = page->run[index].run;
    return r ? shade_of_mode(r->mode, r->loss_in_forward) : SHADE_QUIET;
}

int has_timeline(const struct page *page) {
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && has_steps(page->run[i].run)) return 1;
    return 0;
}

int has_phases(const struct page *page) {
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run && page->run[i].run->timed && page->run[i].run->steps) return 1;
    return 0;
}

static void axis_label(double value, double step, enum axis_unit unit, char text[32]) {
    if (unit == AXIS_BYTES)
        format_bytes((uint64_t)value, text, 32);
    else
        snprintf(text, 32, "%.*f", step < 1e5 ? 2 : step < 1e6 ? 1 : 0, value * 1e-6);
}

void draw_axis(struct picture *p, double x, double y, double width, double height, double most,
               enum axis_unit unit) {
    double step = picture_scale_step(most, (int)(width / (6.5 * p->font)), unit == AXIS_BYTES);
    static const char *const units[] = {"ms", ""};
    for (double at = 0; at <= most * 1.0001; at += step) {
        char text[32];
        double where = x + at / most * width;
        axis_label(at, step, unit, text);
        picture_line(p, where, y - height, where, y, SHADE_GRID, 1);
        picture_text(p, where, y + 1.2 * p->font, at == 0 ? ANCHOR_START : ANCHOR_MIDDLE,
                     SHADE_QUIET, "%s%s%s", text, at == 0 && *units[unit] ? " " : "",
                     at == 0 ? units[unit] : "");
        if (!(step > 0)) break;
    }
}

double mark_height(const struct picture *p, const struct page *page) {
    const struct run_record *first = first_run(page);
    return (first && *first->modelled) || run_that_shares(page) ? 1.7 * p->font : 0;
}

void draw_mark(struct picture *p, const struct page *page) {
    const struct run_record *first = first_run(page), *shares = run_that_shares(page);
    double y = p->height - 0.4 * p->font;
    if (shares) {
        int has = record_shared(shares);
        picture_text(p, 0, y, ANCHOR_START, SHADE_QUIET,
                     "%d devices share %d %s%s: do not compare times", shares->devices, has,
                     shares->gpus ? "GPU" : "core", has > 1 ? "s" : "");
    } else if (first && *first->modelled) { /* only the hardware: the page shows the rest */
        const char *host = strstr(first->modelled, ", host");
        picture_text(p, 0, y, ANCHOR_START, SHADE_QUIET, "%s, batch %d, modelled: %.*s",
                     first->model, first->batch_size,
                     (int)(host ? host - first->modelled : (ptrdiff_t)strlen(first->modelled)),
                     first->modelled);
    }
}

void device_label(const struct picture *p, int device, char text[32]) {
    snprintf(text, 32, p->form == PICTURE_NARROW ? "%d" : "device %d", device);
}

void devices_label(const struct picture *p, int first, int end, char text[32]) {
    if (end == first + 1)
        device_label(p, first, text);
    else
        snprintf(text, 32, p->form == PICTURE_NARROW ? "%d-%d" : "devices %d-%d", first, end - 1);
}

int label_every(int devices) {
    return devices > 32 ? 8 : devices > 16 ? 4 : 1;
}
