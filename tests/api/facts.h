/* PyTorch's numbers of functions on the tape, from tests/golden/: values, and the gradients of what
 * they were given. */
#ifndef TESTS_API_FACTS_H
#define TESTS_API_FACTS_H

#include <math.h>

#include "tests/api/shared.h"
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

/* y on a tape, backward from it with the gradient value(i, 3571), and the gradients of the leaves a
 * and b (NULL: there is none) are as given, and so are those of the parameters, a weight and a
 * bias, if there are some. */
static inline void check_fact(const char *file, const char *name, duet_device *device,
                              duet_tape *tape, duet_var *y, duet_var *a, duet_var *b,
                              duet_params *params, double tolerance) {
    char line[64];
    duet_tensor *got, *dy;
    int shape[DUET_MAX_RANK], code = duet_var_value(&got, tape, y);
    cr_assert_eq(code, DUET_OK, "%s: %s", name, duet_error());
    snprintf(line, sizeof line, "%s_y", name);
    struct golden_tensor want = golden_tensor(file, line);
    for (int d = 0; d < DUET_MAX_RANK; d++) {
        shape[d] = duet_tensor_dim(got, d);
        cr_assert_eq(shape[d], d < 4 ? want.dims[d] : 0, "%s: dimension %d is %d", name, d,
                     shape[d]);
    }
    expect_fact(file, name, "y", got, tolerance);
    dy = fact_input(device, duet_tensor_rank(got), shape, 3571, 1);
    duet_tensor_free(got);
    MUST(duet_backward(tape, y, dy));
    for (int i = 0; i < 2 && (i ? b : a); i++) {
        MUST(duet_var_grad(&got, tape, i ? b : a));
        expect_fact(file, name, i ? "db" : "da", got, tolerance);
        duet_tensor_free(got);
    }
    for (int p = 0; params && p < duet_params_count(params); p++)
        expect_fact(file, name, p ? "db" : "dw", duet_params_grad(params, p), tolerance);
    duet_tensor_free(dy);
}

#endif
