/* PyTorch's numbers for functions on the tape, from tests/golden/: values, and the gradients of
 * their inputs. */
#ifndef TESTS_API_FACTS_H
#define TESTS_API_FACTS_H

#include <math.h>

#include "tests/duet/shared.h"
#include "tests/golden/golden.h"

enum { FACT_MOST = 256 };

/* Elements value(i, a) of formulas.py, `scale` times. */
static inline duet_tensor *fact_input(duet_device *device, int rank, const int *shape, int a,
                                      float scale) {
    float host[FACT_MOST];
    duet_tensor *tensor;
    for (int i = 0; i < FACT_MOST; i++)
        host[i] = scale * golden_value(i, a);
    MUST(duet_tensor_create(&tensor, device, DUET_F32, rank, shape, host));
    return tensor;
}

/* `got` holds the numbers of the line NAME_PART. */
static inline void expect_fact(const char *file, const char *name, const char *part,
                               const duet_tensor *got, double tolerance) {
    float host[FACT_MOST];
    char line[64];
    snprintf(line, sizeof line, "%s_%s", name, part);
    cr_assert_leq(duet_tensor_count(got), FACT_MOST, "%s: %zu", line, duet_tensor_count(got));
    MUST(duet_tensor_read(got, host));
    golden_near(file, line, host, duet_tensor_count(got), tolerance);
}

#endif
