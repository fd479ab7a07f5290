/* The tables of a page: the numbers of its pictures. */
#ifndef REPORT_PAGE_TABLES_H
#define REPORT_PAGE_TABLES_H

#include "report/pictures/draw.h"

void summary_table(FILE *file, const struct page *page); /* each run a column */
/* For each run the table of `duet profile`. */
void device_tables(FILE *file, const struct page *page);

void about_table(FILE *file, const struct page *page); /* about.c */

#endif
