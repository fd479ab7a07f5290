/* Writes pieces of HTML that several sections use. html_text is in picture.h. */
#ifndef REPORT_PAGE_HTML_H
#define REPORT_PAGE_HTML_H

#include <stdio.h>

#include "report/pictures/draw.h"
#include "report/table.h"

/* Writes the start of a page, up to the headline, which repeats the title. */
void html_start(FILE *file, const char *title);

/* Writes the formatted text as a paragraph, escaped. */
void put_paragraph(FILE *file, const char *css_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes a table; label says what it shows. FOLDED: hidden until the reader opens it. */
enum table_form { TABLE_OPEN, TABLE_FOLDED };
void put_table(FILE *file, const char *label, const struct table *table, enum table_form form);

/* Writes a figure with the picture in both forms, and `caption` below it. */
int put_figure(FILE *file, const struct page *page, draw_function *draw, int index,
               const char *caption);

/* Write the tables of a page: the runs as columns, the table of `duet profile` for each run, and
 * the command with the machine and the versions, which returns OK. */
void summary_table(FILE *file, const struct page *page);
void device_tables(FILE *file, const struct page *page);
int about_table(FILE *file, const struct page *page);

#endif
