/* The page of --report: one HTML file with all results of a run, or of several side by side. It
 * needs no network, no other file and no script: C code writes pictures and numbers. The browser's
 * preference selects the light or the dark theme.
 *
 * Every number on it is from the run records, as in --json, and measured with spans and ledgers.
 * Computed numbers are marked as such.
 *
 *     page.c       the document: its sections in order
 *     tables.c, about.c         the numbers; command line, machine, versions
 *     page.css the style, copied into the page
 *
 * The sentences of the verdict are those of report/findings.c and of the command.
 *
 * The pictures are those of report/pictures/. */
#ifndef REPORT_PAGE_PAGE_H
#define REPORT_PAGE_PAGE_H

#include "report/pictures/runs.h"

/* Writes the page. ERR_MEMORY; the caller checks `file` for errors. */
int page_write(FILE *file, const struct page *page);

#endif
