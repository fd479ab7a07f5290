/* The page of --report: one HTML file with everything that a run, or several side by side, have to
 * show. It needs no network, no other file and no script: pictures and numbers are drawn in C.
 * Light or dark is as the browser prefers.
 *
 * Every number on it comes from the run records, as those of --json do: measured by spans and
 * ledgers. What is computed from them says so.
 *
 *     page.c       the document: its sections in order
 *     tables.c, about.c         the numbers; command line, machine, versions
 *     page.css     as it is, inside the page
 *
 * The sentences of the verdict are those of report/findings.c and of the command.
 *
 * The pictures are those of report/pictures/. */
#ifndef REPORT_PAGE_PAGE_H
#define REPORT_PAGE_PAGE_H

#include "report/pictures/runs.h"

/* Writes the page. ERR_MEMORY; errors of the file stay in the file. */
int page_write(FILE *file, const struct page *page);

#endif
