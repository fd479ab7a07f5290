/* The files of --report and --pictures, for the commands that have runs to show.
 *
 *     struct report report = {0};
 *     CHECK_GOTO(report_open(&report, &config), code, done);   before anything is trained
 *     ...
 *     failures_add(&all, report_write(&report, &page, "compare"));
 * done:
 *     report_abandon(&report);                                                      */
#ifndef CLI_RESULTS_REPORT_H
#define CLI_RESULTS_REPORT_H

#include "base/files/atomic_file.h"
#include "report/page/page.h"
#include "train/run.h"

struct report {
    struct atomic_file page;
    const char *folder;   /* of the pictures; "": none are asked for */
    int made;             /* 1: the folder was made here */
    int pictures, no_png; /* how many were written; 1: as SVG only */
};

/* Opens the page, and makes the folder of the pictures where there is none and tries to write into
 * it. config must outlive *r. ERR_FAILED: one of them cannot be written. */
int report_open(struct report *r, const struct run_config *config);

/* Fills in page->command and page->origin and writes what is asked for; the rest of *page is the
 * caller's. Each file is tried whatever becomes of the other. */
int report_write(struct report *r, struct page *page, const char *command);

/* Drops what was not written. */
void report_abandon(struct report *r);

#endif
