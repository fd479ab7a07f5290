/* A scratch folder of a test: .init = scratch_make, .fini = scratch_remove. */
#ifndef TESTS_HARNESS_SCRATCH_H
#define TESTS_HARNESS_SCRATCH_H

#include "tests/harness/harness.h"

static char folder[] = "/tmp/duet-test-XXXXXX";

static inline void scratch_make(void) {
    cr_assert_not_null(mkdtemp(folder));
}

static inline void scratch_remove(void) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

/* A path in it; the last four results stay valid. */
static inline const char *in(const char *name) {
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

#endif
