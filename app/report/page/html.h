/* Pieces of HTML that sections share. html_text is in picture.h. */
#ifndef REPORT_PAGE_HTML_H
#define REPORT_PAGE_HTML_H

#include <stdio.h>

#include "report/pictures/draw.h"
#include "report/table.h"

/* The start of a page up to its headline, which is its title, and the end with the script. Between
 * them is <main>. */
void html_start(FILE *file, const char *title);
void html_end(FILE *file);

/* A paragraph of the text, which is escaped. */
void put_paragraph(FILE *file, const char *css_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins a table in a box that scrolls by itself, hidden until somebody opens it: `summary` says
 * what is in it. head: the names of the columns, separated by '|'. */
void open_table(FILE *file, const char *summary, const char *head);
void close_table(FILE *file);

/* A table whose columns are the runs; label: for those who do not see it. */
void put_table(FILE *file, const char *label, const struct table *table);

/* A figure with the picture in both forms, and `caption` below it. */
int put_figure(FILE *file, const struct page *page, draw_function *draw, int index,
               const char *caption);

#endif
