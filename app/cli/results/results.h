/* The files of --json, which have the same form for every subcommand; docs/json.md names
 * each field:
 *
 *     {"schema": 3, "command": "compare", "command_line": [...], "date": ..., "host": {...},
 *      "versions": {...},
 *      "runs": [{"name": "single", ...}, {"name": "dp", ...}, {"name": "ddp", ...}]}
 *
 * A command with runs says how its list is written:
 *
 *     static void write_runs(const void *what, struct json_writer *w) {
 *         json_array(w, "runs");
 *         results_run(w, "dp", "DP", NULL, record);
 *         json_boolean(w, "more", 1);                what this command alone has to say of a run
 *         json_close(w);
 *         json_close(w);
 *     }
 *     CHECK_GOTO(results_open(&files, config), code, done);     before the first run
 *     failures_add(&all, results_write(&files, "compare", write_runs, what));
 * done:
 *     results_abandon(&files);                                                            */
#ifndef CLI_RESULTS_RESULTS_H
#define CLI_RESULTS_RESULTS_H

#include "base/files/atomic_file.h"
#include "trace/record.h"
#include "train/run.h"

/* Zeroed: it is not open. */
struct results_files {
    struct atomic_file json;
};

/* Opens what config asks for. */
int results_open(struct results_files *files, const struct run_config *config);

/* Writes the list `runs`, and what else the command has, into the open object. */
typedef void results_body(const void *what, struct json_writer *w);

/* Writes the file, if it is open, and puts it in place. */
int results_write(struct results_files *files, const char *command, results_body *body,
                  const void *what);
void results_abandon(struct results_files *files);

/* Opens the object of a run and writes its record. name: of the run among those of its command,
 * without spaces; title: as tables write it. does_not_fit: the error of a run that did not fit into
 * the memory of its devices, which has no record; NULL or "": it has one. */
void results_run(struct json_writer *w, const char *name, const char *title,
                 const char *does_not_fit, const struct run_record *run);

/* ---- for commands without runs ---- */

/* Opens the outermost object and writes where the results come from. ERR_MEMORY. */
int results_start(struct json_writer *w, FILE *file, const char *command);

/* Closes the outermost object and puts the file in place. ERR_FAILED. */
int results_end(struct json_writer *w, struct atomic_file *file);

#endif
