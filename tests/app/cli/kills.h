/* What the tests of random kills share. */
#ifndef TESTS_CLI_KILLS_H
#define TESTS_CLI_KILLS_H

#include "base/random.h"
#include "tests/app/cli/run.h"

static inline int below(struct rng *rng, int n) {
    return (int)(rng_u32(rng) % (uint32_t)n);
}

/* Returns how many it has found, `most` at most. */
static inline int children_of(pid_t parent, pid_t *children, int most) {
    int count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && count < most && (entry = readdir(all));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && cli_parent_of(pid) == parent) children[count++] = pid;
    }
    if (all) closedir(all);
    return count;
}

#endif
