/* A system on which files cannot be made without a name, or cannot be given one later, for this
 * process and every process that it starts. */
#ifndef TESTS_BASE_REFUSE_H
#define TESTS_BASE_REFUSE_H

#include "tests/harness/refuse.h"

enum refusal {
    REFUSE_NAMES,   /* linkat is not permitted: an unnamed file cannot get a name */
    REFUSE_TMPFILE, /* open knows no O_TMPFILE, as on NFS */
    REFUSALS
};

/* Returns 0, or not 0 if this system has no such filters. */
static inline int refuse(enum refusal what) {
    static const struct refused_call calls[REFUSALS] = {
        [REFUSE_NAMES] = {"linkat", SYS_linkat, 0, 0},
        [REFUSE_TMPFILE] = {"open O_TMPFILE", SYS_openat, 2, O_TMPFILE & ~O_DIRECTORY},
    };
    return !refuse_call(&calls[what], what == REFUSE_NAMES ? EPERM : EOPNOTSUPP);
}

#endif
