/* Writes pieces of HTML: see html.h. */
#include "report/page/html.h"

#include <stdarg.h>
#include <string.h>

#include "base/embed.h"
#include "base/error.h"

EMBED(page_css, "app/report/page/page.css");

/* The policy lets the page load nothing at all: it is complete. */
void html_start(FILE *file, const char *title) {
    fprintf(file, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'; img-src data:\">\n"
                  "<link rel=\"icon\" href=\"data:,\">\n<title>");
    html_text(file, title);
    fprintf(file, "</title>\n<style>\n");
    palette_css(file);
    fprintf(file, "%s</style>\n</head>\n<body>\n", page_css);
    fprintf(file, "<a class=\"skip\" href=\"#verdict\">to the verdict</a>\n<header><h1>");
    html_text(file, title);
    fprintf(file, "</h1></header>\n");
}

void put_paragraph(FILE *file, const char *css_class, const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(file, *css_class ? "<p class=\"%s\">" : "<p>", css_class);
    html_text(file, text);
    fprintf(file, "</p>\n");
}

void put_table(FILE *file, const char *label, const struct table *t, enum table_form form) {
    if (form == TABLE_FOLDED) {
        fprintf(file, "<details class=\"numbers\"><summary>");
        html_text(file, label);
        fprintf(file, "</summary>\n");
    }
    fprintf(file, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    html_text(file, label);
    fprintf(file, "\"><table class=\"summary\"><thead><tr><td></td>");
    for (int i = 0; i < t->columns; i++) {
        fprintf(file, "<th scope=\"col\">");
        html_text(file, t->head[i]);
        fprintf(file, "</th>");
    }
    fprintf(file, "</tr></thead><tbody>\n");
    for (int k = 0; k < t->rows; k++) {
        int is_name = t->row[k].kind == ROW_NOTE || t->row[k].kind == ROW_TITLE;
        if (is_name || !table_shows(&t->row[k], 0, t->columns)) continue;
        fprintf(file, "<tr><th scope=\"row\">");
        html_text(file, t->row[k].name);
        fprintf(file, "</th>");
        for (int i = 0; i < t->columns; i++) {
            const char *cell = t->row[k].cell[i];
            fprintf(file, "<td>");
            html_text(file, strcmp(cell, "-") ? cell : "\xe2\x80\x93");
            fprintf(file, "</td>");
        }
        fprintf(file, "</tr>\n");
    }
    fprintf(file, "</tbody></table></div>%s\n", form == TABLE_FOLDED ? "</details>" : "");
}

int put_figure(FILE *file, const struct page *page, draw_function *draw, int index,
               const char *caption) {
    fprintf(file, "<figure>\n");
    for (int form = PICTURE_WIDE; form <= PICTURE_NARROW; form++) {
        struct picture p = picture_of(file, (enum picture_form)form);
        CHECK(draw(&p, page, index));
    }
    fprintf(file, "<figcaption>");
    html_text(file, caption);
    fprintf(file, "</figcaption></figure>\n");
    return OK;
}
