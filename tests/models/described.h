/* Describes the parameters of a model in one line. */
#ifndef TESTS_MODELS_DESCRIBED_H
#define TESTS_MODELS_DESCRIBED_H

#include <stdio.h>

#include "models/model.h"

/* "W1(20,1,3,3) b1(20) ..." */
static inline void describe(const struct model *m, char *text) {
    *text = 0;
    for (int i = 0; i < m->param_count; i++) {
        text += sprintf(text, "%s%s(", i ? " " : "", m->params[i].name);
        for (int d = 0; d < m->params[i].rank; d++)
            text += sprintf(text, d ? ",%d" : "%d", m->params[i].dims[d]);
        text += sprintf(text, ")");
    }
}

#endif
