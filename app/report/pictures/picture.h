/* Pictures as SVG: rectangles, lines and text, in units of a CSS pixel.
 *
 * One function draws a picture three times: wide and narrow inside the page, which shows the one
 * that fits the screen, and as a separate file for slides. Inside the page a shape has a class, so
 * that it follows the theme. In a file its colour is written out, because not every SVG viewer
 * supports CSS. */
#ifndef REPORT_PICTURES_PICTURE_H
#define REPORT_PICTURES_PICTURE_H

#include <stdio.h>

#include "report/pictures/palette.h"

enum picture_form { PICTURE_WIDE, PICTURE_NARROW, PICTURE_SLIDE };

struct picture {
    FILE *file;
    enum picture_form form;
    double width, height; /* size of the picture */
    double font;          /* the size of text; rows and gaps follow from it */
    char about[128];      /* what was run, shown after the title of a slide; "": nothing */
    int boxes;            /* 1: an open path of boxes in `shade`, which the next box can join */
    enum shade shade;
};

/* Sets the width and the text size of that form; the drawing function sets the height. */
struct picture picture_of(FILE *file, enum picture_form form);

/* Begins and ends the <svg>. `title` names the picture, and `said` is a sentence that describes it
 * for those who cannot see it. `name` is its CSS class, such as "timeline". */
void picture_open(struct picture *p, const char *name, const char *title, const char *said);
void picture_close(struct picture *p);

/* tip is the tooltip, or NULL. Shapes without size are left out. Consecutive boxes of one shade
 * without tips become one shape, because a picture may have thousands. */
void picture_box(struct picture *p, double x, double y, double width, double height,
                 enum shade shade, const char *tip);
/* Draws only the outline of a box, for idle time. */
void picture_outline(struct picture *p, double x, double y, double width, double height,
                     enum shade shade, const char *tip);
void picture_line(struct picture *p, double x1, double y1, double x2, double y2, enum shade shade,
                  double thickness);
/* Draws an arrow from (x1, y1) to (x2, y2), bent to the left by `bend` of its length. */
void picture_arrow(struct picture *p, double x1, double y1, double x2, double y2, double bend,
                   enum shade shade, double thickness, const char *tip);
void picture_circle(struct picture *p, double x, double y, double radius, enum shade shade);

/* A line through points: begin, a point at a time, end. */
void picture_curve_begin(struct picture *p, enum shade shade, double thickness);
void picture_curve_point(struct picture *p, double x, double y);
void picture_curve_end(struct picture *p);

/* Writes text whose baseline is at y; it starts, is centred or ends at x. */
enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
void picture_text(struct picture *p, double x, double y, enum anchor anchor, enum shade shade,
                  const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The same in bold. */
void picture_head(struct picture *p, double x, double y, const char *text);
/* The greatest width that text can have, for text that must fit. */
double picture_text_width(const struct picture *p, const char *text);
/* Writes `text` into a box if it fits. */
void picture_label(struct picture *p, double x, double y, double width, double height,
                   enum shade on, const char *text);

/* Draws a key with a coloured square, an outlined one or a line, and a name, for each shade, in as
 * many rows as needed. Returns its height; with draw 0 it only measures. */
enum key_form { KEY_BOX, KEY_FRAME, KEY_LINE };
struct key_item {
    enum shade shade;
    const char *name;
    enum key_form form;
};
double picture_key(struct picture *p, double y, const struct key_item *items, int count, int draw);

/* The step for a scale up to `most` with at most `marks` marks: 1, 2 or 5 times a power of ten.
 * binary 1: a power of two, for bytes. */
double picture_scale_step(double most, int marks, int binary);

/* Writes text with <, >, &, and quotes escaped; bytes that are not UTF-8 become U+FFFD. */
void html_text(FILE *file, const char *text);

#endif
