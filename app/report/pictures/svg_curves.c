/* Draws loss and accuracy of all runs in one picture. Curves of equal runs overlap, so each is
 * thinner than the previous one, and all stay visible. */
#include <math.h>

#include "base/error.h"
#include "report/pictures/draw.h"

enum { MOST_POINTS = 300 };

struct frame {
    double x, y, width, height; /* area of the plot; y is its bottom */
    double first, last;         /* range of steps or epochs */
    double low, high;           /* range of values */
};

static const double *values_of(const struct run_record *r, int accuracy, int *count) {
    *count = r->computed ? 0 : accuracy ? r->epoch_count : r->steps; /* nothing was trained */
    return accuracy ? r->accuracy : r->losses;
}

/* Not every value can be drawn: a loss may be NaN, and an accuracy may not have been measured. */
static int is_shown(double value, int accuracy) {
    return isfinite(value) && (!accuracy || value >= 0);
}

/* Where value i on the x axis: its step, or the number of epochs that are done. */
static double x_value(const struct run_record *r, int accuracy, int i) {
    return accuracy ? i + 1 : r->first_step + i;
}

static struct frame frame_of(const struct page *page, int accuracy) {
    struct frame f = {.first = INFINITY, .last = -INFINITY, .low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < page->count; i++) {
        int count;
        if (!page->run[i].run) continue;
        const double *value = values_of(page->run[i].run, accuracy, &count);
        for (int k = 0; k < count; k++) {
            if (!is_shown(value[k], accuracy)) continue;
            f.first = fmin(f.first, x_value(page->run[i].run, accuracy, k));
            f.last = fmax(f.last, x_value(page->run[i].run, accuracy, k));
            f.low = fmin(f.low, value[k]);
            f.high = fmax(f.high, value[k]);
        }
    }
    return f;
}

int has_curves(const struct page *page, int accuracy) {
    return frame_of(page, accuracy).last >= 0;
}

int has_chart(const struct page *page, int accuracy) {
    struct frame f = frame_of(page, accuracy);
    return f.first < f.last;
}

static double x_of(const struct frame *f, double value_x) {
    double share = f->last > f->first ? (value_x - f->first) / (f->last - f->first) : 0.5;
    return f->x + share * f->width;
}

static double y_of(const struct frame *f, double value) {
    return f->y - (value - f->low) / (f->high - f->low) * f->height;
}

/* The distance of the lines of the grid in values, and the digits that tell them apart. */
static double grid_step(const struct picture *p, const struct frame *f, int *digits) {
    double step = picture_scale_step(f->high - f->low, (int)(f->height / (2.2 * p->font)), 0);
    *digits = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
    return step;
}

/* The width of the labels of the values. */
static double gutter_of(const struct picture *p, const struct frame *f) {
    char low[64], high[64];
    int digits;
    grid_step(p, f, &digits);
    snprintf(low, sizeof low, "%.*f", digits, f->low);
    snprintf(high, sizeof high, "%.*f", digits, f->high);
    return fmax(picture_text_width(p, low), picture_text_width(p, high)) + 0.8 * p->font;
}

static void draw_grid(struct picture *p, const struct frame *f) {
    int digits;
    double step = grid_step(p, f, &digits);
    for (double at = ceil(f->low / step - 1e-9) * step; at <= f->high + 1e-9 * step; at += step) {
        double y = y_of(f, at);
        picture_line(p, f->x, y, f->x + f->width, y, SHADE_GRID, 1);
        picture_text(p, f->x - 0.4 * p->font, y + 0.35 * p->font, ANCHOR_END, SHADE_QUIET, "%.*f",
                     digits, at);
    }
    step = picture_scale_step(f->last - f->first, (int)(f->width / (5 * p->font)), 0);
    if (step < 1) step = 1;
    for (double at = ceil(f->first / step) * step; at <= f->last; at += step)
        picture_text(p, x_of(f, at), f->y + 1.3 * p->font, ANCHOR_MIDDLE, SHADE_QUIET, "%.0f", at);
}

static void put_point(struct picture *p, const struct frame *f, double value_x, double value) {
    picture_curve_point(p, x_of(f, value_x), y_of(f, value));
}

/* If there are many values, the smallest and largest of each stretch are drawn, in order. */
static void draw_curve(struct picture *p, const struct frame *f, const struct run_record *r,
                       int accuracy) {
    int count, each;
    const double *value = values_of(r, accuracy, &count);
    each = count > MOST_POINTS ? (count + MOST_POINTS / 2 - 1) / (MOST_POINTS / 2) : 1;
    for (int i = 0; i < count; i += each) {
        int low = -1, high = -1;
        for (int k = i; k < i + each && k < count; k++) {
            if (!is_shown(value[k], accuracy)) continue;
            if (low < 0 || value[k] < value[low]) low = k;
            if (high < 0 || value[k] > value[high]) high = k;
        }
        if (low < 0) continue;
        int a = low < high ? low : high, b = low < high ? high : low;
        put_point(p, f, x_value(r, accuracy, a), value[a]);
        if (b != a) put_point(p, f, x_value(r, accuracy, b), value[b]);
    }
}

static int draw_curves(struct picture *p, const struct page *page, int accuracy) {
    struct frame f = frame_of(page, accuracy);
    struct key_item items[PAGE_RUNS];
    int count = 0, drawn = 0;
    for (int i = 0; i < page->count; i++)
        if (page->run[i].run)
            items[count++] = (struct key_item){shade_of_run(page, i), page->run[i].title, KEY_BOX};
    double font = p->font, key = picture_key(p, 0, items, count, 0);
    if (f.high - f.low < 1e-9) f.high += 0.5e-3, f.low -= 0.5e-3;
    f.height = p->form == PICTURE_NARROW ? 14 * font : 12 * font;
    f.x = fmax(4.2 * font, gutter_of(p, &f));
    f.width = p->width - f.x - 1.5 * font;
    f.y = key + 1.2 * font + f.height;
    p->height = f.y + 2.9 * font;
    picture_open(p, accuracy ? "accuracy" : "loss", accuracy ? "Test accuracy" : "Loss",
                 accuracy ? "Accuracy on the test set after each epoch, all runs."
                          : "The loss of every training step, all runs overlaid.");
    picture_key(p, 0, items, count, 1);
    draw_grid(p, &f);
    picture_text(p, f.x + f.width, f.y + 2.6 * font, ANCHOR_END, SHADE_QUIET, "%s",
                 accuracy ? "epochs" : "step");
    for (int i = 0; i < page->count; i++) {
        if (!page->run[i].run) continue;
        double thickness = drawn == 0 ? 7 : drawn == 1 ? 3.5 : 1.4;
        if (count == 1) thickness = 2;
        picture_curve_begin(p, shade_of_run(page, i), thickness);
        draw_curve(p, &f, page->run[i].run, accuracy);
        picture_curve_end(p);
        drawn++;
    }
    picture_close(p);
    return OK;
}

int draw_loss(struct picture *p, const struct page *page, int index) {
    (void)index;
    return draw_curves(p, page, 0);
}

int draw_accuracy(struct picture *p, const struct page *page, int index) {
    (void)index;
    return draw_curves(p, page, 1);
}
