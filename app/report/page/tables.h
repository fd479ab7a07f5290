/* The tables of a page, each with the numbers of a picture. */
#ifndef REPORT_PAGE_TABLES_H
#define REPORT_PAGE_TABLES_H

#include "report/pictures/draw.h"

void summary_table(FILE *file, const struct page *page); /* each run a column */
void memory_table(FILE *file, const struct page *page);
void traffic_table(FILE *file, const struct page *page);
void phase_table(FILE *file, const struct page *page);

void about_table(FILE *file, const struct page *page); /* about.c */

/* collectives_section.c: the section with its figures. ERR_FAILED, ERR_MEMORY. */
int collectives_content(FILE *file, const struct page *page);

#endif
