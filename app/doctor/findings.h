/* Findings: the rows of the doctor's table. They are in memory that the doctor shares with the
 * process of each check, so that findings survive the crash of a check. One process writes at a
 * time. */
#ifndef DOCTOR_FINDINGS_H
#define DOCTOR_FINDINGS_H

#include <stddef.h>
#include <stdio.h>

#include "base/text/json.h"

enum finding_state {
    FINDING_OK,
    FINDING_OFF,      /* the bound is exceeded, or the check did not finish */
    FINDING_NOT_HERE, /* this machine or this program lacks it, which is no failure */
};

enum { FINDINGS_MOST = 1024, CHECK_NAME_BYTES = 48 };

struct finding {
    enum finding_state state;
    char check[CHECK_NAME_BYTES]; /* "cuda(0): conv2d forward" */
    char measured[320];           /* "6 shapes, 8123 values, off by 2.4e-07 at most" */
    char bound[200];              /* what is allowed, and why; "" if the row only informs */
};

struct findings {
    int count; /* written after the row: all rows below `count` are complete */
    struct finding row[FINDINGS_MOST];
};

/* An empty table in memory that this process shares with its children. NULL: no memory.
 * findings_free takes NULL. */
struct findings *findings_new(void);
void findings_free(struct findings *findings);

/* Adds a row; long strings are truncated. When the table is full, its last row says so and is
 * off. */
void finding_add(struct findings *findings, enum finding_state state, const char *check,
                 const char *measured, const char *bound);

int findings_count(const struct findings *findings, enum finding_state state);

/* Prints one finding in at most `width` columns (base/text/text.h). If something is off or not
 * here, or with `details`, the bound follows below it. */
void finding_print(FILE *file, const struct finding *finding, int width, int details);

/* An array of objects {check, state, measured, bound} under `key`. */
void findings_json(const struct findings *findings, struct json_writer *w, const char *key);

#endif
