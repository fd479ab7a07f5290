/* The file of --json, which has the same form for every subcommand; docs/json.md names each field:
 *
 *     {"schema": 1, "command": "compare", "command_line": [...], "date": ..., "host": {...},
 *      "versions": {...},
 *      "runs": [{"name": "single", ...}, {"name": "dp", ...}, {"name": "ddp", ...}]}
 *
 *     CHECK(results_start(&w, file->file, "compare"));
 *     json_array(&w, "runs");
 *     results_run(&w, "dp", "DP", NULL, &record);
 *     json_boolean(&w, "more", 1);                   what this command alone has to say of a run
 *     json_close(&w);
 *     json_close(&w);
 *     CHECK(results_end(&w, file));                                                      */
#ifndef CLI_RESULTS_H
#define CLI_RESULTS_H

#include "base/atomic_file.h"
#include "trace/record.h"

/* Opens the outermost object and writes where the results come from. ERR_MEMORY. */
int results_start(struct json_writer *w, FILE *file, const char *command);

/* Opens the object of a run and writes its record. name: of the run among those of its command,
 * without spaces; title: as tables write it. does_not_fit: the error of a run that did not fit into
 * the memory of its devices, which has no record; NULL or "": it has one. */
void results_run(struct json_writer *w, const char *name, const char *title,
                 const char *does_not_fit, const struct run_record *run);

/* Closes the outermost object and puts the file in place. ERR_FAILED. */
int results_end(struct json_writer *w, struct atomic_file *file);

#endif
