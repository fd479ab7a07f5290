/* A canvas: a grid of characters that somebody else brings to a terminal (cli/live/live.h), or
 * prints as text. On it: text, bars, and a chart of two curves as d2l's Animator draws them. In a
 * UTF-8 locale curves are made of braille, whose characters hold 2 x 4 dots each, and bars of
 * blocks; elsewhere of ASCII.
 *
 * What lies outside the grid is cut off, so that nothing here depends on the size of a window. */
#ifndef REPORT_LIVE_CANVAS_H
#define REPORT_LIVE_CANVAS_H

#include <stdint.h>
#include <stdio.h>

enum style { STYLE_PLAIN, STYLE_HEAD, STYLE_FAINT, STYLE_BAR, STYLE_LOSS, STYLE_ACCURACY, STYLES };

struct cell {
    uint32_t c; /* a Unicode code point; never 0 */
    uint8_t style;
};

struct canvas {
    int rows, columns;
    int utf8;
    struct cell *cell; /* [rows][columns], owned */
};

/* Makes the canvas blank, of this size. ERR_MEMORY; canvas_free takes NULL and zeroed ones. */
int canvas_resize(struct canvas *c, int rows, int columns);
void canvas_free(struct canvas *c);

void canvas_put(struct canvas *c, int row, int column, uint32_t code, enum style style);
/* ASCII text from (row, column) on. Returns the column behind it. */
int canvas_text(struct canvas *c, int row, int column, enum style style, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "[####      ]" of `width` columns; share from 0 to 1 of the inside is full. */
void canvas_bar(struct canvas *c, int row, int column, int width, double share, enum style style);

/* A curve: count values, evenly spread over the width of the chart; NaN where there is none. */
struct chart {
    int row, column, rows, columns; /* its place, with axes and labels */
    const double *loss;             /* [loss_count] its own scale, on the left; finite or NaN */
    int loss_count;
    /* Points at `at`, a share of the width from 0 to 1, on a scale from 0 to 1 on the right. */
    const double *accuracy, *at; /* [accuracy_count] */
    int accuracy_count;
    const char *first, *last; /* the ends of the x axis: "0", "3 epochs" */
};
void canvas_chart(struct canvas *c, const struct chart *chart);

/* The canvas as lines of text; blanks at their ends and blank lines at its end are left out. */
void canvas_print(const struct canvas *c, FILE *file);

#endif
