/* The files of --json, --trace, --report and --pictures, for the commands that have all of
 * them. They hold the same runs, of which the command says two things: how its list is written as
 * JSON (results.h), and what the page shows of it (report/page/page.h).
 *
 *     struct run_files files = {.made = 0};
 *     CHECK_GOTO(run_files_open(&files, config), code, done);   before the first run
 *     failures_add(&all, run_files_write(&files, "compare", write_runs, what, &page));
 * done:
 *     run_files_abandon(&files);                                                      */
#ifndef CLI_RESULTS_FILES_H
#define CLI_RESULTS_FILES_H

#include "cli/results/results.h"
#include "report/page/page.h"

/* Zeroed: none is open. */
struct run_files {
    struct results_files results;
    struct atomic_file trace, page;
    int made;             /* 1: the folder of the pictures was made here */
    int pictures, no_png; /* how many were written; 1: as SVG only */
    const struct run_config *config;
};

/* Opens what config asks for; makes the folder of the pictures where there is none, and tries to
 * write into it. config must outlive *o. ERR_FAILED: one of them cannot be written. */
int run_files_open(struct run_files *o, const struct run_config *config);

/* Writes the files that are open and puts them in place. Each is tried, whatever becomes of the
 * others. The trace has the runs of the page, whose command and origin are filled in here. */
int run_files_write(struct run_files *o, const char *command, results_body *body, const void *what,
                    struct page *page);

/* Drops what was not written. */
void run_files_abandon(struct run_files *o);

#endif
