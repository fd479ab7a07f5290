/* Pieces of HTML that sections share. html_text is in picture.h. */
#ifndef REPORT_PAGE_HTML_H
#define REPORT_PAGE_HTML_H

#include <stdio.h>

#include "report/pictures/draw.h"
#include "report/table.h"

/* The start of a page up to its headline, which is its title. */
void html_start(FILE *file, const char *title);

/* A paragraph of the text, which is escaped. */
void put_paragraph(FILE *file, const char *css_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A table; label: what is in it. FOLDED: hidden until the reader opens it. */
enum table_form { TABLE_OPEN, TABLE_FOLDED };
void put_table(FILE *file, const char *label, const struct table *table, enum table_form form);

/* A figure with the picture in both forms, and `caption` below it. */
int put_figure(FILE *file, const struct page *page, draw_function *draw, int index,
               const char *caption);

/* The tables of a page, the numbers of its pictures: each run a column; for each run the table of
 * `duet profile`; the command, the machine and the versions. */
void summary_table(FILE *file, const struct page *page);
void device_tables(FILE *file, const struct page *page);
void about_table(FILE *file, const struct page *page);

#endif
