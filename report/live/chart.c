/* The chart of a canvas: the loss as a line, the accuracy as points, both over the steps.
 *
 *     2.3 |.                          1      a line of ASCII; in UTF-8 each character is a
 *         | '.                               grid of 2 x 4 braille dots
 *         |   '..        o         o
 *     0.6 |      ''......____________ 0
 *          0                 3 epochs        */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/live/canvas.h"

enum { LABEL = 8, RIGHT = 5, BRAILLE = 0x2800 };

/* The area of the curves, inside the axes, and the scale of the loss. */
struct plot {
    struct canvas *canvas;
    int row, column, rows, columns;
    int wide, high; /* dots of a character: 2 x 4, or 1 x 1 */
    double low, top;
};

/* Bit of the dot in column x and row y of a braille character. */
static int braille_bit(int x, int y) {
    static const int bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    return bits[x][y];
}

/* The dot in column x and row y, counted from the top left. between: it joins two values. */
static void dot(const struct plot *p, int x, int y, int between) {
    if (x < 0 || y < 0 || x >= p->columns * p->wide || y >= p->rows * p->high) return;
    int row = p->row + y / p->high, column = p->column + x / p->wide;
    struct canvas *c = p->canvas;
    if (row >= c->rows || column >= c->columns) return;
    struct cell *cell = &c->cell[(size_t)row * (size_t)c->columns + (size_t)column];
    if (!c->utf8) {
        if (cell->c != '*') *cell = (struct cell){between ? '|' : '*', STYLE_LOSS};
        return;
    }
    uint32_t bits = cell->c >= BRAILLE && cell->c < BRAILLE + 256 ? cell->c : BRAILLE;
    bits |= (uint32_t)braille_bit(x % p->wide, y % p->high);
    *cell = (struct cell){bits, STYLE_LOSS};
}

static int height_of(const struct plot *p, double loss) {
    double share = (p->top - loss) / (p->top - p->low);
    return (int)lround(share * (p->rows * p->high - 1));
}

/* Each column of dots shows the mean of the values that fall into it; where there are fewer values
 * than columns, a value reaches over several. Neighbours are joined. */
static void draw_loss(const struct plot *p, const struct chart *chart) {
    int dots = p->columns * p->wide, before = -1;
    for (int x = 0; x < dots; x++) {
        int first = (int)((int64_t)x * chart->loss_count / dots),
            end = (int)((int64_t)(x + 1) * chart->loss_count / dots), n = 0;
        double sum = 0;
        for (int i = first; i < end || i == first; i++)
            if (i < chart->loss_count && isfinite(chart->loss[i])) sum += chart->loss[i], n++;
        if (!n) {
            before = -1;
            continue;
        }
        int y = height_of(p, sum / n);
        for (int between = before; before >= 0 && between != y; between += between < y ? 1 : -1)
            if (between != before) dot(p, x, between, 1);
        dot(p, x, y, 0);
        before = y;
    }
}

static void draw_accuracy(const struct plot *p, const struct chart *chart) {
    for (int i = 0; i < chart->accuracy_count; i++) {
        double value = chart->accuracy[i];
        if (!(value >= 0 && value <= 1)) continue;
        int row = (int)lround((1 - value) * (p->rows - 1)),
            column = (int)lround(chart->at[i] * (p->columns - 1));
        if (column < 0 || column >= p->columns) continue;
        canvas_put(p->canvas, p->row + row, p->column + column, 'o', STYLE_ACCURACY);
    }
}

/* The scale of the loss: from the least to the largest value; a flat curve lies in the middle. */
static int set_scale(struct plot *p, const struct chart *chart) {
    int any = 0;
    for (int i = 0; i < chart->loss_count; i++) {
        double x = chart->loss[i];
        if (!isfinite(x)) continue;
        if (!any || x < p->low) p->low = x;
        if (!any || x > p->top) p->top = x;
        any = 1;
    }
    if (p->top > p->low) return any;
    double half = p->low ? fabs(p->low) * 0.1 : 1;
    p->low -= half;
    p->top += half;
    return any;
}

void canvas_chart(struct canvas *c, const struct chart *chart) {
    struct plot p = {.canvas = c,
                     .row = chart->row,
                     .column = chart->column + LABEL + 1,
                     .rows = chart->rows - 1,
                     .columns = chart->columns - LABEL - 1 - RIGHT,
                     .wide = c->utf8 ? 2 : 1,
                     .high = c->utf8 ? 4 : 1};
    if (p.rows < 2 || p.columns < 4) return;
    uint32_t line = c->utf8 ? 0x2502 : '|';
    for (int row = 0; row < p.rows; row++) {
        canvas_put(c, p.row + row, p.column - 1, line, STYLE_FAINT);
        canvas_put(c, p.row + row, p.column + p.columns, line, STYLE_FAINT);
    }
    if (set_scale(&p, chart)) {
        canvas_text(c, p.row, chart->column, STYLE_LOSS, "%7.4g", p.top);
        canvas_text(c, p.row + p.rows - 1, chart->column, STYLE_LOSS, "%7.4g", p.low);
        draw_loss(&p, chart);
    }
    canvas_text(c, p.row, p.column + p.columns + 1, STYLE_ACCURACY, "1");
    canvas_text(c, p.row + p.rows - 1, p.column + p.columns + 1, STYLE_ACCURACY, "0");
    draw_accuracy(&p, chart);
    int last = (int)strlen(chart->last);
    canvas_text(c, p.row + p.rows, p.column, STYLE_FAINT, "%s", chart->first);
    canvas_text(c, p.row + p.rows, p.column + p.columns - last, STYLE_FAINT, "%s", chart->last);
}
