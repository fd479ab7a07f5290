/* The grid, text and bars of a canvas: see canvas.h. report/live/chart.c has the chart. */
#include "report/live/canvas.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/error.h"

enum { FULL_BLOCK = 0x2588, EIGHTH_BLOCK = 0x258f }; /* one eighth, left; above it 7 eighths, ... */

int canvas_resize(struct canvas *c, int rows, int columns) {
    size_t count = (size_t)rows * (size_t)columns;
    if (rows != c->rows || columns != c->columns || !c->cell) {
        struct cell *cell = realloc(c->cell, (count + 1) * sizeof *cell);
        if (!cell) return fail(ERR_MEMORY, "canvas: no host memory");
        c->cell = cell;
        c->rows = rows;
        c->columns = columns;
    }
    for (size_t i = 0; i < count; i++)
        c->cell[i] = (struct cell){' ', STYLE_PLAIN};
    return OK;
}

void canvas_free(struct canvas *c) {
    if (!c) return;
    free(c->cell);
    *c = (struct canvas){.utf8 = c->utf8};
}

void canvas_put(struct canvas *c, int row, int column, uint32_t code, enum style style) {
    if (row < 0 || row >= c->rows || column < 0 || column >= c->columns) return;
    c->cell[(size_t)row * (size_t)c->columns + (size_t)column] =
        (struct cell){code, (uint8_t)style};
}

int canvas_text(struct canvas *c, int row, int column, enum style style, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (const char *p = text; *p; p++)
        canvas_put(c, row, column++, *p >= ' ' && *p <= '~' ? (uint32_t)*p : '?', style);
    return column;
}

void canvas_bar(struct canvas *c, int row, int column, int width, double share, enum style style) {
    int inside = width - 2, eighths;
    if (inside < 1) return;
    share = share > 1 ? 1 : share > 0 ? share : 0; /* NaN is 0 */
    eighths = (int)(share * inside * 8 + 0.5);
    canvas_put(c, row, column, '[', STYLE_PLAIN);
    canvas_put(c, row, column + width - 1, ']', STYLE_PLAIN);
    for (int i = 0; i < inside; i++) {
        int left = eighths - 8 * i;
        uint32_t code = left >= 8  ? (c->utf8 ? FULL_BLOCK : '#')
                        : left < 1 ? ' '
                        : c->utf8  ? (uint32_t)(EIGHTH_BLOCK + 1 - left)
                        : left < 4 ? ' '
                                   : '#';
        canvas_put(c, row, column + 1 + i, code, style);
    }
}

static void print_utf8(uint32_t code, FILE *file) {
    if (code < 0x80)
        fputc((int)code, file);
    else if (code < 0x800)
        fprintf(file, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    else
        fprintf(file, "%c%c%c", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
}

static int row_length(const struct canvas *c, int row) {
    int n = c->columns;
    while (n && c->cell[(size_t)row * (size_t)c->columns + (size_t)n - 1].c == ' ')
        n--;
    return n;
}

void canvas_print(const struct canvas *c, FILE *file) {
    int rows = c->rows;
    while (rows && !row_length(c, rows - 1))
        rows--;
    for (int row = 0; row < rows; row++) {
        int n = row_length(c, row);
        for (int i = 0; i < n; i++)
            print_utf8(c->cell[(size_t)row * (size_t)c->columns + (size_t)i].c, file);
        fputc('\n', file);
    }
}
