/* Clipping of gradients by their norm. The squares are summed on the host, in double and in one
 * order, whatever computes: so all ranks and all kinds of devices scale by the same bits. */
#include "api/api.h"

#include <math.h>
#include <stdlib.h>

/* PyTorch's: keeps the division defined where all gradients are zero. */
static const double NORM_EPSILON = 1e-6;

/* Adds the squares of all elements to *sum; `host` has room for them. NULL: it is frozen. */
static int add_squares(const duet_tensor *grad, float *host, double *sum) {
    if (!grad) return OK;
    size_t count = duet_tensor_count(grad);
    CHECK(duet_tensor_read(grad, host));
    for (size_t i = 0; i < count; i++)
        *sum += (double)host[i] * host[i];
    return OK;
}

static int norm_of(duet_params *params, double *norm) {
    size_t largest = 0;
    double sum = 0;
    int n = duet_params_count(params), code = OK;
    for (int i = 0; i < n; i++) {
        size_t count = duet_tensor_count(duet_params_value(params, i));
        if (count > largest) largest = count;
    }
    float *host = malloc(largest * sizeof *host);
    if (!host) return fail(ERR_MEMORY, "clip: no host memory for %zu numbers", largest);
    for (int i = 0; i < n && !code; i++)
        code = add_squares(duet_params_grad(params, i), host, &sum);
    free(host);
    *norm = sqrt(sum);
    return code;
}

int duet_clip_grad_norm(duet_params *params, double max_norm, double *norm) {
    double all = 0;
    if (norm) *norm = 0;
    if (!params) return fail(ERR_USAGE, "clip: no parameters were given");
    if (!(max_norm >= 0)) /* NaN too */
        return fail(ERR_USAGE, "clip: max_norm %g: give at least 0", max_norm);
    CHECK(norm_of(params, &all));
    if (norm) *norm = all;
    double factor = max_norm / (all + NORM_EPSILON);
    if (factor >= 1) return OK; /* NaN is not: it reaches all gradients */
    for (int i = 0; i < duet_params_count(params); i++)
        if (duet_params_requires_grad(params, i))
            CHECK(duet_tensor_scale(duet_params_grad(params, i), (float)factor));
    return OK;
}
