/* Reads the files of --json (docs/json.md), for reports made of files. */
#ifndef REPORT_RESULTS_H
#define REPORT_RESULTS_H

#include "base/text/json.h"
#include "trace/record.h"

struct results_run {
    const char *name, *title; /* "dp_loss_in_forward"; "DP, loss in forward" */
    int fits;                 /* 0: it did not fit into its devices' memory, and has no record */
    struct run_record record;
    const struct json *item; /* the run as it stands in the file */
};

struct results {
    const char *path; /* as it was given; not owned */
    struct json *root;
    const char *command, *date, *host, *version; /* in root; "" where there is none */
    struct results_run *run;                     /* [count], owned */
    int count;
};

/* Reads a file that has runs; path must outlive *r. results_free it, also after a failure.
 * ERR_FAILED: it cannot be read, or is no such file, in one line that begins with the path;
 * ERR_MEMORY. */
int results_read(struct results *r, const char *path);
void results_free(struct results *r);

/* The text of a file, or of a pipe; *text and *bytes begin as NULL and 0, and *text is the caller's
 * to free even after a failure. */
int read_whole_file(const char *path, char **text, size_t *bytes);

/* The run of that name; NULL: there is none. */
const struct results_run *results_find(const struct results *r, const char *name);

/* The text at a path of keys, "host/name"; "" where there is none. */
const char *results_text(const struct json *object, const char *path);

#endif
