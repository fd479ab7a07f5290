/* Kinds of calls, for tests that walk over all of them: a collective, and for an allreduce its
 * algorithm. */
#ifndef TESTS_ALLREDUCE_KINDS_H
#define TESTS_ALLREDUCE_KINDS_H

#include "allreduce/plan.h"

struct kind {
    enum collective what;
    enum allreduce_algorithm algorithm;
};

#define BY(NAME) \
    { COLLECTIVE_ALL_REDUCE, ALLREDUCE_##NAME }
#define IT(NAME) \
    { COLLECTIVE_##NAME, ALLREDUCE_AUTO }

static inline const char *kind_name(struct kind kind) {
    return kind.what == COLLECTIVE_ALL_REDUCE ? allreduce_algorithm_name(kind.algorithm)
                                              : collective_name(kind.what);
}

#endif
