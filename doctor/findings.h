/* Findings: the rows of the doctor's table. They lie in memory shared between the doctor and the
 * process of each check, so that what was found before a crash is kept. One process writes at a
 * time. */
#ifndef DOCTOR_FINDINGS_H
#define DOCTOR_FINDINGS_H

#include <stddef.h>
#include <stdio.h>

#include "base/json.h"

#ifdef __cplusplus
extern "C" {
#endif

enum finding_state {
    FINDING_OK,
    FINDING_OFF,      /* the bound is not kept, or the check could not be brought to its end */
    FINDING_NOT_HERE, /* this machine or this program has no such thing: no failure */
};
const char *finding_state_name(enum finding_state state); /* "ok", "off", "not here" */

enum { FINDINGS_MOST = 1024 };

struct finding {
    enum finding_state state;
    char check[48];     /* "cuda(0): conv2d forward" */
    char measured[320]; /* "6 shapes, 8123 values, off by 2.4e-07 at most" */
    char bound[200];    /* what is allowed, and why; "" where the row only informs */
};

struct findings {
    int count; /* written last: rows below it are whole */
    struct finding row[FINDINGS_MOST];
};

/* In memory that children share. NULL: there is none. free: NULL is fine. */
struct findings *findings_new(void);
void findings_free(struct findings *findings);

/* Adds a row; texts that are too long are cut. The table full: the last row says so and is off. */
void finding_add(struct findings *findings, enum finding_state state, const char *check,
                 const char *measured, const char *bound);

int findings_count(const struct findings *findings, enum finding_state state);

/* The table: head, a row, each ended by newlines; no escape codes. */
void findings_print_head(FILE *file);
void finding_print(FILE *file, const struct finding *finding);

/* An array of objects {check, state, measured, bound} under `key`. */
void findings_json(const struct findings *findings, struct json_writer *w, const char *key);

#ifdef __cplusplus
}
#endif
#endif
