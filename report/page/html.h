/* Pieces of HTML that sections share. html_text is in picture.h. */
#ifndef REPORT_PAGE_HTML_H
#define REPORT_PAGE_HTML_H

#include <stdio.h>

#include "report/pictures/draw.h"

/* The start of a page up to its headline, which is its title, and the end with the script. Between
 * them lie <main> and an element of JSON with the id "data" (data.h). */
void html_start(FILE *file, const char *title);
void html_end(FILE *file);

/* A number as the page shows it, with its exact value and the place where the JSON of --json has
 * it: run `index`, and in it the path that `format` gives ("per_device.%d.memory_peak"). */
void put_number(FILE *file, double value, const char *words, int index, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same of a sum over all steps, shown as the mean of a step: the value is the number that
 * stands there, divided by the run's steps. */
void put_per_step(FILE *file, const struct run_record *run, double sum, const char *words,
                  int index, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* A paragraph of the text, which is escaped. */
void put_paragraph(FILE *file, const char *css_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Begins a table in a box that scrolls by itself, hidden until somebody opens it: `summary` says
 * what is in it. head: the names of the columns, separated by '|'. */
void open_table(FILE *file, const char *summary, const char *head);
void close_table(FILE *file);

/* A figure with the picture in both forms, and `caption` below it. id: NULL: none. */
int put_figure(FILE *file, const struct page *page, const char *id, draw_function *draw, int index,
               const char *caption);

/* "memory_at_peak_by_cause": the key of a cause in the JSON has no spaces. */
const char *cause_key(int cause, char key[32]);

#endif
