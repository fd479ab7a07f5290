/* Clipping has the same bits wherever the gradients are, and ignores frozen parameters. (PyTorch's
 * numbers: core/nn/test_parts.c.) */
#include <math.h>

#include "base/random.h"
#include "device/clip.h"
#include "nn/optimizer/clip.h"
#include "tests/core/device/shared.h"

enum { PARAMS = 4, MOST = 40000, TRAINED = 3 };

/* The third has several pieces. */
static const struct param_spec specs[PARAMS] = {
    {"a", 2, {5, 13}, 0}, {"b", 1, {7}, 1}, {"c", 2, {200, 200}, 0}, {"d", 1, {1}, 0}};
static const int orders[][TRAINED] = {{3, 2, 0}, {0, 2, 3}, {2, 0, 3}};

static void set_gradients(struct param_set *set, double scale, double *norm) {
    static float values[MOST];
    long double sum = 0;
    for (int i = 0; i < PARAMS; i++) {
        struct rng r;
        if (!param_trains(&set->param[i])) continue;
        rng_seed(&r, (uint64_t)i + 1);
        rng_uniform(&r, values, set->param[i].count, -scale, scale);
        for (size_t k = 0; k < set->param[i].count; k++)
            sum += (long double)values[k] * values[k];
        MUST(copy_to_device(device_compute(set->device), set->param[i].grad.data, values,
                            set->param[i].count * sizeof *values));
        MUST(stream_sync(device_compute(set->device)));
    }
    *norm = (double)sqrtl(sum);
}

static void read_all(struct param_set *set, int gradients, float *to) {
    for (int i = 0; i < PARAMS; i++, to += MOST)
        MUST(gradients ? param_read_grad(set, i, to) : param_read_value(set, i, to));
}

Test(clip, has_the_same_bits_wherever_gradients_lie, .timeout = 60) {
    static float first[PARAMS * MOST], grads[PARAMS * MOST];
    for (int kind = 0; kind < HOST_KINDS; kind++) {
        struct device *d = test_open(host_kinds[kind], 0);
        struct param_set set;
        struct grad_clip clip = {0};
        double norm, want, of_first = 0;
        MUST(param_set_init(&set, d, specs, PARAMS));
        for (int k = 0; k < 3; k++) {
            MUST(param_set_relayout_grads(&set, orders[k]));
            set_gradients(&set, 1, &want);
            MUST(grad_clip(&clip, &set, 1));
            MUST(grad_clip_norm(&clip, &norm));
            cr_assert_float_eq(norm, want, 1e-12 * want);
            read_all(&set, 1, k ? grads : first);
            if (!k) of_first = norm;
            cr_assert(norm == of_first, "order %d: norm %a, not %a", k, norm, of_first);
            cr_assert(!k || !memcmp(grads, first, sizeof grads), "order %d: gradients differ", k);
        }
        set_gradients(&set, 1, &want);
        read_all(&set, 1, grads);
        for (int i = 0; i < PARAMS; i++)
            for (size_t k = 0; k < set.param[i].count; k++)
                cr_assert_eq(first[i * MOST + (int)k],
                             grads[i * MOST + (int)k] * clip_factor(1, of_first));
        MUST(grad_clip(&clip, &set, 2 * want));
        read_all(&set, 1, first);
        cr_assert(!memcmp(grads, first, sizeof grads), "a small norm changes no bit");
        grad_clip_free(&clip);
        param_set_free(&set);
        device_close(d);
    }
}
