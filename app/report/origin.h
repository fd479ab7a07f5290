/* The origin of results: the command, the host, the date, and the versions of Duet and its
 * libraries. The files of --json begin with it, so that a number can be traced back to its run. */
#ifndef REPORT_ORIGIN_H
#define REPORT_ORIGIN_H

#include <stdint.h>

#include "base/text/json.h"

/* The version of the fields in docs/json.md. It grows when a field is removed or changes its
 * meaning; new fields alone do not change it. */
enum { JSON_SCHEMA = 7 };

struct origin {
    char **words; /* [word_count] the command line, owned; 0 words: unknown */
    int word_count;
    char date[24];    /* now, in UTC: "2026-03-01T12:30:05Z" */
    char host[65];    /* the host's name */
    char system[160]; /* "Linux 6.1.0 x86_64" */
    char cpu[80];     /* "AMD EPYC 9B14"; "": unknown */
    int cores;        /* cores that this process may use */
    int64_t memory;   /* memory of the host in bytes */
    char duet[16];    /* the version of Duet: "0.1.0" */
    char compiler[80];
    char cuda[160]; /* from gpu_build of doctor/cuda/gpu.h */
};

/* Fills in *o; call origin_free even after a failure. ERR_MEMORY. */
int origin_find(struct origin *o, const char *cuda_build);
void origin_free(struct origin *o);

/* Writes schema, command (the subcommand), command_line, date, host and versions into the open JSON
 * object. */
void origin_write(const struct origin *o, struct json_writer *w, const char *command);

#endif
