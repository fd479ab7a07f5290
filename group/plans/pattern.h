/* The table of collectives of process groups, which both ways share: through windows (windows.c)
 * and, if they are short, through slots (slots.c). For the files of this folder alone. */
#ifndef GROUP_PLANS_PATTERN_H
#define GROUP_PLANS_PATTERN_H

#include "allreduce/plans/steps.h"
#include "group/plans/windows.h"

enum whom { NOBODY, ROOT, ALL_BUT_ROOT, EVERYBODY };
struct pattern {
    enum allreduce_algorithm what;
    enum whom shows, takes;
    int parts;  /* 1: INPUT has a block for each taker; else one block for all */
    int sums;   /* 1: a taker adds up; else it copies */
    int stacks; /* 1: OUTPUT has a block for each rank that shows */
    const char *name;
};

const struct pattern *pattern_of(enum allreduce_algorithm what); /* NULL: an allreduce */
uint64_t ranks_of(enum whom whom, int n, int root);

/* slots.c. pattern NULL: an allreduce. */
int check_slots(const struct window_request *q, const struct pattern *pattern);
void through_slots(struct plan *plan, const struct window_request *q,
                   const struct pattern *pattern);

#endif
