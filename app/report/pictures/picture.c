/* Draws pictures as SVG: see picture.h. */
#include "report/pictures/picture.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/text/plain.h"

struct picture picture_of(FILE *file, enum picture_form form) {
    static const struct { double width, font; } forms[] = {{940, 13}, {350, 12}, {960, 18}};
    return (struct picture){
        .file = file, .form = form, .width = forms[form].width, .font = forms[form].font};
}

void html_text(FILE *file, const char *text) {
    size_t left = strlen(text);
    for (int n; left; text += n, left -= (size_t)n) {
        unsigned char c = (unsigned char)*text;
        n = utf8_length((const unsigned char *)text, left);
        if (!n || (c < ' ' && c != '\n' && c != '\t') || c == 127) {
            fputs("\xef\xbf\xbd", file);
            n = 1;
        } else if (strchr("<>&\"'", c)) {
            fprintf(file, "&#%d;", c);
        } else {
            fwrite(text, 1, (size_t)n, file);
        }
    }
}

/* Ends the open path of boxes, before anything else is drawn. */
static void end_boxes(struct picture *p) {
    if (p->boxes) fprintf(p->file, "\"/>\n");
    p->boxes = 0;
}

/* A separate file has a margin and shows its title. */
enum { MARGIN = 28, TITLE = 44 };

/* The size of a slide, 16 to 9, with the picture in the middle. */
static void open_slide(struct picture *p, const char *title, const char *said) {
    double inner_width = p->width + 2 * MARGIN, inner_height = p->height + 2 * MARGIN + TITLE;
    double width = fmax(inner_width, inner_height * 16 / 9), height = width * 9 / 16;
    double left = -MARGIN - (width - inner_width) / 2,
           top = -MARGIN - TITLE - (height - inner_height) / 2;
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"%.1f %.1f %.1f %.1f\" "
            "width=\"%.1f\" height=\"%.1f\" font-size=\"%.4g\" font-family=\"Helvetica, Arial, "
            "sans-serif\" role=\"img\">\n<title>",
            left, top, width, height, width, height, p->font);
    html_text(p->file, title);
    fprintf(p->file, "</title>\n<desc>");
    html_text(p->file, said);
    fprintf(p->file, "</desc>\n");
    picture_box(p, left, top, width, height, SHADE_PAPER, NULL);
    end_boxes(p);
    fprintf(p->file, "<text x=\"0\" y=\"%d\" font-size=\"%.4g\" font-weight=\"bold\" fill=\"%s\">",
            -TITLE / 2, 1.35 * p->font, shade_colour(SHADE_TEXT));
    html_text(p->file, title);
    fprintf(p->file, "<tspan font-size=\"%.4g\" font-weight=\"normal\">", p->font);
    html_text(p->file, p->about);
    fprintf(p->file, "</tspan></text>\n");
}

/* A title inside a page would follow the pointer everywhere, so a page has a label in place of a
 * file's title and description. */
void picture_open(struct picture *p, const char *name, const char *title, const char *said) {
    if (p->form == PICTURE_SLIDE) {
        open_slide(p, title, said);
        return;
    }
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
            "font-size=\"%.4g\" role=\"img\" class=\"%s %s\" aria-label=\"",
            p->width, p->height, p->font, name, p->form == PICTURE_NARROW ? "narrow" : "wide");
    html_text(p->file, title);
    fprintf(p->file, ": ");
    html_text(p->file, said);
    fprintf(p->file, "\">\n");
}

void picture_close(struct picture *p) {
    end_boxes(p);
    fprintf(p->file, "</svg>\n");
}

/* ---- shapes ---- */

/* Coordinates are rounded to tenths of a pixel, which nobody sees, to keep pages small. */
static double tenth(double x) {
    return round(10 * x) / 10 + 0.0; /* + 0.0: no "-0" */
}

static void put_fill(struct picture *p, enum shade shade) {
    if (p->form == PICTURE_SLIDE)
        fprintf(p->file, " fill=\"%s\"", shade_colour(shade));
    else
        fprintf(p->file, " class=\"%s\"", shade_class(shade));
}

static void put_stroke(struct picture *p, enum shade shade, double thickness) {
    if (p->form == PICTURE_SLIDE)
        fprintf(p->file, " fill=\"none\" stroke=\"%s\"", shade_colour(shade));
    else
        fprintf(p->file, " class=\"s-%s\"", shade_class(shade));
    fprintf(p->file, " stroke-width=\"%.3g\"", thickness);
}

static void put_end(struct picture *p, const char *element, const char *tip) {
    if (!tip) {
        fprintf(p->file, "/>\n");
        return;
    }
    fprintf(p->file, "><title>");
    html_text(p->file, tip);
    fprintf(p->file, "</title></%s>\n", element);
}

/* A path is shorter than a <rect>, and boxes of one shade that follow each other share one. Both
 * edges are rounded, not an edge and the width, so that boxes that touch still do. A box whose
 * width rounds to 0 could be neither seen nor pointed at, and a page of 64 devices would have
 * thousands of them. */
void picture_box(struct picture *p, double x, double y, double width, double height,
                 enum shade shade, const char *tip) {
    double left = tenth(x), right = tenth(x + width), top = tenth(y), bottom = tenth(y + height);
    if (!(right > left) || !(bottom > top)) return;
    if (tip || !p->boxes || p->shade != shade) {
        end_boxes(p);
        fprintf(p->file, "<path");
        put_fill(p, shade);
        fprintf(p->file, " d=\"");
    }
    fprintf(p->file, "M%.6g %.6gh%.6gv%.6gH%.6gz", left, top, tenth(right - left),
            tenth(bottom - top), left);
    if (tip) {
        fputc('"', p->file);
        put_end(p, "path", tip);
        return;
    }
    p->boxes = 1;
    p->shade = shade;
}

void picture_outline(struct picture *p, double x, double y, double width, double height,
                     enum shade shade, const char *tip) {
    if (!(width > 1) || !(height > 1)) return;
    end_boxes(p);
    fprintf(p->file, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%.6g\"", tenth(x + .5),
            tenth(y + .5), tenth(width - 1), tenth(height - 1));
    put_stroke(p, shade, 1);
    fprintf(p->file, " stroke-dasharray=\"2 2\"");
    put_end(p, "rect", tip);
}

void picture_line(struct picture *p, double x1, double y1, double x2, double y2, enum shade shade,
                  double thickness) {
    end_boxes(p);
    fprintf(p->file, "<line x1=\"%.6g\" y1=\"%.6g\" x2=\"%.6g\" y2=\"%.6g\"", tenth(x1), tenth(y1),
            tenth(x2), tenth(y2));
    put_stroke(p, shade, thickness);
    put_end(p, "line", NULL);
}

void picture_arrow(struct picture *p, double x1, double y1, double x2, double y2, double bend,
                   enum shade shade, double thickness, const char *tip) {
    double dx = x2 - x1, dy = y2 - y1, length = hypot(dx, dy);
    if (!(length > 0)) return;
    double cx = (x1 + x2) / 2 + bend * dy, cy = (y1 + y2) / 2 - bend * dx;
    double tx = x2 - cx, ty = y2 - cy, t = hypot(tx, ty), head = 4 + 1.6 * thickness;
    tx /= t, ty /= t;
    double bx = x2 - tx * head, by = y2 - ty * head, half = 0.5 * head;
    end_boxes(p);
    fprintf(p->file, "<path d=\"M%.6g %.6gQ%.6g %.6g %.6g %.6g\"", tenth(x1), tenth(y1), tenth(cx),
            tenth(cy), tenth(bx), tenth(by));
    put_stroke(p, shade, thickness);
    put_end(p, "path", tip);
    fprintf(p->file, "<path d=\"M%.6g %.6gL%.6g %.6gL%.6g %.6gz\"", tenth(x2), tenth(y2),
            tenth(bx - ty * half), tenth(by + tx * half), tenth(bx + ty * half),
            tenth(by - tx * half));
    put_fill(p, shade);
    put_end(p, "path", NULL);
}

void picture_circle(struct picture *p, double x, double y, double radius, enum shade shade) {
    end_boxes(p);
    fprintf(p->file, "<circle cx=\"%.6g\" cy=\"%.6g\" r=\"%.4g\"", tenth(x), tenth(y), radius);
    put_fill(p, shade);
    put_end(p, "circle", NULL);
}

void picture_curve_begin(struct picture *p, enum shade shade, double thickness) {
    end_boxes(p);
    fprintf(p->file, "<polyline stroke-linejoin=\"round\"");
    put_stroke(p, shade, thickness);
    fprintf(p->file, " points=\"");
}

void picture_curve_point(struct picture *p, double x, double y) {
    fprintf(p->file, "%.6g,%.6g ", tenth(x), tenth(y));
}

void picture_curve_end(struct picture *p) {
    fprintf(p->file, "\"/>\n");
}

/* ---- text ---- */

static void put_text(struct picture *p, double x, double y, enum anchor anchor, enum shade shade,
                     int bold, const char *text) {
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    static const char *const classes[] = {"", " mid", " end"};
    end_boxes(p);
    fprintf(p->file, "<text x=\"%.6g\" y=\"%.6g\"", tenth(x), tenth(y));
    if (p->form == PICTURE_SLIDE)
        fprintf(p->file, "%s%s fill=\"%s\">", anchors[anchor], bold ? " font-weight=\"bold\"" : "",
                shade_colour(shade));
    else
        fprintf(p->file, " class=\"%s%s%s\">", shade_class(shade), classes[anchor],
                bold ? " bold" : "");
    html_text(p->file, text);
    fprintf(p->file, "</text>\n");
}

void picture_text(struct picture *p, double x, double y, enum anchor anchor, enum shade shade,
                  const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    put_text(p, x, y, anchor, shade, 0, text);
}

void picture_head(struct picture *p, double x, double y, const char *text) {
    put_text(p, x, y, ANCHOR_START, SHADE_TEXT, 1, text);
}

double picture_text_width(const struct picture *p, const char *text) {
    double sum = 0;
    for (; *text; text++) {
        char c = *text;
        if ((c & 0xc0) == 0x80) continue; /* a continuation byte of a character */
        sum += strchr(" ijlI.,:;'", c) ? 0.34
               : strchr("ftr()-/", c)  ? 0.42
               : strchr("mwMW%=", c)   ? 0.98
               : c >= 'A' && c <= 'Z'  ? 0.72
                                       : 0.63;
    }
    return sum * p->font;
}

void picture_label(struct picture *p, double x, double y, double width, double height,
                   enum shade on, const char *text) {
    if (picture_text_width(p, text) > width - 4 || height < p->font) return;
    picture_text(p, x + width / 2, y + height / 2 + 0.36 * p->font, ANCHOR_MIDDLE,
                 shade_of_text_on(on), "%s", text);
}

double picture_key(struct picture *p, double y, const struct key_item *items, int count, int draw) {
    double x = 0, row = 1.6 * p->font, box = 0.85 * p->font, top = y;
    for (int i = 0; i < count; i++) {
        double width = box + 0.5 * p->font + picture_text_width(p, items[i].name) + p->font;
        if (x > 0 && x + width > p->width + p->font) x = 0, y += row;
        if (draw) {
            double middle = y + 0.2 * p->font + box / 2;
            if (items[i].form == KEY_LINE)
                picture_line(p, x, middle, x + box, middle, items[i].shade, 1.2);
            else
                (items[i].form == KEY_FRAME ? picture_outline : picture_box)(
                    p, x, middle - box / 2, box, box, items[i].shade, NULL);
            picture_text(p, x + box + 0.4 * p->font, y + 0.95 * p->font, ANCHOR_START, SHADE_TEXT,
                         "%s", items[i].name);
        }
        x += width;
    }
    return count ? y + row - top : 0;
}

double picture_scale_step(double most, int marks, int binary) {
    double least = most / (marks > 0 ? marks : 1), step;
    if (!(least > 0)) return 1;
    if (binary) return exp2(ceil(log2(least)));
    step = pow(10, floor(log10(least)));
    return step >= least       ? step
           : 2 * step >= least ? 2 * step
           : 5 * step >= least ? 5 * step
                               : 10 * step;
}
