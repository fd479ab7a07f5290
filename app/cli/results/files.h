/* The files of --json, --trace, --report and --pictures. A command passes a function that writes
 * its list of runs as JSON, and describes the page (report/page/page.h). The JSON has the same form
 * for every subcommand; docs/json.md names each field:
 *
 *     {"schema": 7, "command": "compare", "command_line": [...], "date": ..., "host": {...},
 *      "versions": {...},
 *      "runs": [{"name": "single", ...}, {"name": "dp", ...}, {"name": "ddp", ...}]}
 *
 *     static void write_runs(const void *what, struct json_writer *w) {
 *         json_array(w, "runs");
 *         results_run(w, "dp", "DP", NULL, record);
 *         json_boolean(w, "more", 1);                what only this command says about a run
 *         json_close(w);
 *         json_close(w);
 *     }
 *     struct run_files files = {.config = NULL};
 *     CHECK_GOTO(run_files_open(&files, config), code, done);   before the first run
 *     failures_add(&all, run_files_write(&files, "compare", write_runs, what, &page));
 * done:
 *     run_files_abandon(&files); */
#ifndef CLI_RESULTS_FILES_H
#define CLI_RESULTS_FILES_H

#include "base/files/atomic_file.h"
#include "report/page/page.h"
#include "trace/record.h"
#include "train/run.h"

/* Writes the list `runs`, and the command's other members, into the open object. */
typedef void results_body(const void *what, struct json_writer *w);

/* Zeroed: none is open. */
struct run_files {
    struct atomic_file json, trace, page;
    struct pictures pictures;
    const struct run_config *config;
};

/* Opens the files that config names, and creates the folder of pictures if it is missing and tests
 * that it can be written to. config must outlive *o. ERR_FAILED: one of them cannot be written. */
int run_files_open(struct run_files *o, const struct run_config *config);

/* Writes the open files and puts them in place. It tries each file, even if others fail. The trace
 * has the runs of the page, whose command and origin are filled in here. */
int run_files_write(struct run_files *o, const char *command, results_body *body, const void *what,
                    struct page *page);

/* Drops files that were not written. */
void run_files_abandon(struct run_files *o);

/* Opens the object of a run and writes its record. name is the run's name within its command,
 * without spaces; title is its name in tables. does_not_fit is the error of a run that did not fit
 * into its devices' memory and so has no record; NULL or "": it has one. */
void results_run(struct json_writer *w, const char *name, const char *title,
                 const char *does_not_fit, const struct run_record *run);

/* ---- for commands without runs ---- */

/* Opens the outermost object and writes the origin of the results. ERR_MEMORY. */
int results_start(struct json_writer *w, FILE *file, const char *command);

/* Closes the outermost object and puts the file in place. ERR_FAILED. */
int results_end(struct json_writer *w, struct atomic_file *file);

#endif
