/* The optimizer launches runs of parameters; the bits are those of a launch for each, whatever the order of gradients. */
#include "base/random.h"
#include "nn/optimizer.h"
#include "tests/test_device.h"

enum { PARAMS = 6, STEPS = 4 };

static const struct param_spec specs[PARAMS] = {{"a", 2, {5, 13}}, {"b", 1, {5}},          {"c", 4, {4, 2, 3, 3}},
                                                {"d", 1, {1}},     {"e", 2, {64, 2}},      {"f", 1, {63}}};

/* As registered last to first (the values' order), in runs, and with nothing where it was. */
static const struct {
    int order[PARAMS], launches;
} layouts[] = {{{5, 4, 3, 2, 1, 0}, 1}, {{4, 5, 3, 2, 1, 0}, 3}, {{2, 1, 0, 5, 4, 3}, 2}, {{5, 4, 3, 0, 2, 1}, 3},
               {{0, 1, 2, 3, 4, 5}, 6}, {{0, 5, 4, 3, 2, 1}, 2}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void set_gradients(struct param_set *set, int step) {
    struct rng r;
    float values[200];
    for (int i = 0; i < PARAMS; i++) {
        rng_seed(&r, (uint64_t)(step * PARAMS + i + 1));
        rng_uniform(&r, values, (int)set->param[i].count, -1, 1);
        MUST(copy_to_device(device_compute(set->device), set->param[i].grad.data, values, set->param[i].count * sizeof *values));
        MUST(stream_sync(device_compute(set->device)));
    }
}

/* The plain way: a launch a parameter. */
static void update_one_by_one(struct sgd *sgd, struct param_set *set, const struct step_block *step) {
    for (int i = 0; i < PARAMS; i++) {
        struct param *p = &set->param[i];
        struct op_args a = {.in[0] = p->grad, .out[0] = p->value, .step = step};
        a.p.sgd = (struct sgd_args){sgd->momentum, sgd->weight_decay};
        if (sgd->buffers) {
            a.out[1] = p->value;
            a.out[1].data = sgd->buffers + p->value_offset;
        }
        MUST(launch(device_compute(set->device), OP_SGD, &a));
    }
}

static int sgd_spans(struct device *d) {
    int count = 0;
    MUST(stream_sync(device_compute(d)));
    for (size_t i = 0; i < stream_spans(device_compute(d))->count; i++)
        count += !strcmp(stream_spans(device_compute(d))->spans[i].name, "sgd");
    return count;
}

static void read_arena(struct device *d, const float *arena, size_t count, float *host) {
    MUST(copy_to_host(device_compute(d), host, arena, count * sizeof *host));
    MUST(stream_sync(device_compute(d)));
}

/* Both ways from the same start; returns the launches of a step. */
static int compare(struct device *d, const int *order, double momentum, double decay) {
    struct param_set set[2];
    struct sgd sgd[2];
    struct step_block *step = (struct step_block *)test_floats(d, 64);
    float values[2][2000], start[200];
    int before = sgd_spans(d), launches = 0;
    for (int k = 0; k < 2; k++) {
        struct rng r;
        MUST(param_set_init(&set[k], d, specs, PARAMS));
        MUST(sgd_init(&sgd[k], &set[k], momentum, decay));
        MUST(param_set_relayout_grads(&set[k], order));
        rng_seed(&r, 99);
        for (int i = 0; i < PARAMS; i++) {
            rng_uniform(&r, start, (int)set[k].param[i].count, -2, 2);
            MUST(param_write_value(&set[k], i, start));
        }
    }
    cr_assert_lt(set[0].arena_count, 2000u);
    for (int s = 0; s < STEPS; s++) {
        struct step_block block = {.learning_rate = 0.3f / (float)(s + 1), .first_update = s == 0};
        MUST(stream_write(device_compute(d), step, &block, sizeof block));
        set_gradients(&set[0], s), set_gradients(&set[1], s);
        int done = sgd_spans(d);
        MUST(sgd_step(&sgd[0], &set[0], step));
        launches = sgd_spans(d) - done;
        update_one_by_one(&sgd[1], &set[1], step);
    }
    cr_assert_eq(sgd_spans(d) - before, STEPS * (launches + PARAMS));
    size_t count = set[0].arena_count, whole = count * sizeof(float); /* pads too */
    for (int k = 0; k < 2; k++) read_arena(d, set[k].values, count, values[k]);
    cr_assert(!memcmp(values[0], values[1], whole), "values differ");
    for (size_t pad = set[0].param[1].value_offset + 5; pad < set[0].param[0].value_offset; pad++)
        cr_assert_eq(values[0][pad], 0, "a pad is no longer zero");
    if (momentum != 0) {
        for (int k = 0; k < 2; k++) read_arena(d, sgd[k].buffers, count, values[k]);
        cr_assert(!memcmp(values[0], values[1], whole), "momentum differs");
    }
    for (int k = 0; k < 2; k++) sgd_free(&sgd[k]), param_set_free(&set[k]);
    device_free(d, step);
    return launches;
}

Test(optimizer, runs_have_the_bits_of_single_launches, .timeout = 60) {
    for (int k = 0; k < HOST_KINDS; k++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int form = 0; form < 4; form++) {
                struct device *d = test_open(host_kinds[k], 0);
                int launches = compare(d, layouts[l].order, form & 1 ? 0.9 : 0, form & 2 ? 0.01 : 0);
                cr_assert_eq(launches, layouts[l].launches, "layout %d: %d launches", l, launches);
                device_close(d);
            }
}
