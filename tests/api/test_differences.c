/* Arithmetic on the tape against central differences of its own forward pass, on every kind of
 * device: matmul and the sums of two operands with broadcasting, sum, mean, embedding, reshape and
 * adaptive max pooling. (That forward is right: tests/api/test_algebra.c, nn/test_functions.c.)
 * With CUDA_EMULATION on GPUs too.
 *
 * All these functions are polynomials of degree 2 at most in any one number, or pick one of several
 * numbers that lie further apart than the step. So a central difference has no error of its own. */
#include <math.h>

#include "tests/api/shared.h"

/* All numbers are few multiples of 1/32, so products and sums are exact. Means alone are rounded,
 * to 6e-8 of numbers below 4; a wrong term is 1e-2. */
static const double TOLERANCE = 1e-6;
static const float STEP = 1 / 32.0f;

enum { MOST = 64, ROWS = 7, WIDTH = 3, WORDS = 5 };

/* Different for each i below 64, and 1/8 apart at least. */
static float value(int i, int a) {
    return (float)((i * 37 + a) % 64 - 32) / 8;
}

/* y of the leaves a and, where the case has it, b. */
typedef duet_var *function(duet_tape *t, duet_var *a, duet_var *b);

static duet_var *sum_all(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_sum(t, a, NULL, 0, 0);
}

static duet_var *mean_all(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_mean(t, a, NULL, 0, 0);
}

static duet_var *sum_inside(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_sum(t, a, (int[]){1}, 1, 0);
}

static duet_var *mean_first(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_mean(t, a, (int[]){0}, 1, 0);
}

static duet_var *mean_last(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_mean(t, a, (int[]){-1}, 1, 0);
}

static duet_var *reshaped(duet_tape *t, duet_var *a, duet_var *b) {
    return duet_matmul(t, duet_reshape(t, a, 3, (int[]){-1, 6, 2}), b);
}

static duet_var *adaptive_max(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_adaptive_max_pool2d(t, a, 3, 2);
}

static duet_var *padded_max(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_max_pool2d(t, duet_pad2d(t, a, -1, 2, 1, 0, 0.25), 3, 2, 1, 1);
}

static duet_var *padded_mean(duet_tape *t, duet_var *a, duet_var *b) {
    (void)b;
    return duet_avg_pool2d(t, a, 3, 2, 1);
}

static duet_var *joined(duet_tape *t, duet_var *a, duet_var *b) {
    duet_var *const vars[] = {duet_narrow(t, b, -1, 1, 2), a, duet_narrow(t, a, 2, 0, 1)};
    return duet_cat(t, vars, 3, -1);
}

/* The same operand as both, and a chain: x (x + b) - b. */
static duet_var *chain(duet_tape *t, duet_var *a, duet_var *b) {
    return duet_subtract(t, duet_multiply(t, a, duet_add(t, a, b)), b);
}

static const struct {
    const char *what;
    function *f;
    int a_rank, a[4], b_rank, b[4]; /* b_rank 0: there is no b */
} cases[] = {
    {"matmul", duet_matmul, 2, {3, 4}, 2, {4, 5}},
    {"matmul of vectors", duet_matmul, 1, {4}, 1, {4}},
    {"matmul of matrices and one matrix", duet_matmul, 3, {2, 3, 4}, 2, {4, 2}},
    {"matmul of matrices and a vector", duet_matmul, 4, {2, 2, 3, 4}, 1, {4}},
    {"matmul of one matrix and matrices", duet_matmul, 2, {3, 4}, 4, {2, 3, 4, 2}},
    {"matmul of a vector and matrices", duet_matmul, 1, {4}, 3, {3, 4, 2}},
    {"matmul of batches", duet_matmul, 3, {3, 2, 4}, 3, {3, 4, 2}},
    {"matmul of batches, both broadcast", duet_matmul, 4, {2, 1, 3, 4}, 4, {1, 3, 4, 2}},
    {"add of a row", duet_add, 3, {2, 3, 4}, 1, {4}},
    {"subtract of a row and a column", duet_subtract, 2, {1, 4}, 2, {3, 1}},
    {"multiply, outer", duet_multiply, 4, {2, 1, 3, 1}, 3, {4, 1, 2}},
    {"a chain", chain, 2, {5, 3}, 2, {5, 1}},
    {"sum", sum_all, 3, {2, 3, 4}, 0, {0}},
    {"mean", mean_all, 2, {3, 5}, 0, {0}},
    {"sum over dimension 1", sum_inside, 3, {2, 3, 4}, 0, {0}},
    {"mean over dimension 0", mean_first, 2, {5, 3}, 0, {0}},
    {"mean over the last dimension", mean_last, 4, {2, 2, 3, 5}, 0, {0}},
    {"reshape", reshaped, 4, {2, 3, 2, 2}, 2, {2, 3}},
    {"max_pool2d of a pad", padded_max, 4, {1, 2, 5, 4}, 0, {0}},
    {"avg_pool2d", padded_mean, 4, {1, 2, 5, 4}, 0, {0}},
    {"cat of narrows", joined, 3, {2, 3, 4}, 3, {2, 3, 5}},
    {"adaptive_max_pool2d", adaptive_max, 4, {1, 2, 5, 4}, 0, {0}},
    {"adaptive_max_pool2d, more out than in", adaptive_max, 4, {2, 2, 2, 3}, 0, {0}},
};

static size_t count_of(int rank, const int *shape) {
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    cr_assert_leq(count, MOST);
    return count;
}

/* What is differentiated: a case, or with f NULL the embedding of `index`. */
struct subject {
    duet_tape *tape;
    function *f;
    duet_tensor *operand[2]; /* the second may be NULL */
    duet_params *table;
    duet_tensor *index;
    duet_var *leaf[2]; /* of the last pass */
};

static duet_var *forward(struct subject *s, enum duet_pass pass) {
    MUST(duet_tape_begin(s->tape, s->table, WORDS, pass));
    if (!s->f) return duet_embedding(s->tape, s->index, 0);
    for (int i = 0; i < 2; i++)
        s->leaf[i] = s->operand[i] ? duet_leaf(s->tape, s->operand[i]) : NULL;
    return s->f(s->tape, s->leaf[0], s->leaf[1]);
}

/* The sum of y, each element weighed by dy. */
static double weighed(struct subject *s, const float *dy) {
    duet_tensor *y;
    float host[MOST];
    double sum = 0;
    int code = duet_var_value(&y, s->tape, forward(s, DUET_EVALUATE));
    cr_assert_eq(code, DUET_OK, "%s", duet_error());
    MUST(duet_tensor_read(y, host));
    for (size_t i = 0; i < duet_tensor_count(y); i++)
        sum += (double)host[i] * (double)dy[i];
    duet_tensor_free(y);
    return sum;
}

static void compare(const char *what, struct subject *s, duet_tensor *x, const float *grad,
                    const float *dy) {
    float host[MOST];
    MUST(duet_tensor_read(x, host));
    for (size_t i = 0; i < duet_tensor_count(x); i++) {
        float keep = host[i];
        host[i] = keep + STEP;
        MUST(duet_tensor_write(x, host));
        double more = weighed(s, dy);
        host[i] = keep - STEP;
        MUST(duet_tensor_write(x, host));
        double want = (more - weighed(s, dy)) / (2 * (double)STEP);
        host[i] = keep;
        cr_assert(fabs((double)grad[i] - want) <= TOLERANCE,
                  "%s: the gradient [%zu] is %.9g, the difference %.9g", what, i, (double)grad[i],
                  want);
    }
    MUST(duet_tensor_write(x, host));
}

/* Backward from y with weights dy, then each operand's gradient. */
static void check(const char *what, struct subject *s, duet_device *device) {
    float dy[MOST], grad[2][MOST];
    duet_tensor *y, *root, *got;
    int shape[DUET_MAX_RANK];
    duet_var *var = forward(s, DUET_TRAIN);
    MUST(duet_var_value(&y, s->tape, var));
    for (int i = 0; i < DUET_MAX_RANK; i++)
        shape[i] = duet_tensor_dim(y, i);
    for (int i = 0; i < MOST; i++)
        dy[i] = value(i, 21);
    (void)count_of(duet_tensor_rank(y), shape);
    MUST(duet_tensor_create(&root, device, DUET_F32, duet_tensor_rank(y), shape, dy));
    MUST(duet_backward(s->tape, var, root));
    if (!s->f) MUST(duet_tensor_read(duet_params_grad(s->table, 0), grad[0]));
    for (int i = 0; s->f && i < 2 && s->operand[i]; i++) {
        MUST(duet_var_grad(&got, s->tape, s->leaf[i]));
        MUST(duet_tensor_read(got, grad[i]));
        duet_tensor_free(got);
    }
    if (!s->f) compare(what, s, duet_params_value(s->table, 0), grad[0], dy);
    for (int i = 0; s->f && i < 2 && s->operand[i]; i++)
        compare(what, s, s->operand[i], grad[i], dy);
    duet_tensor_free(y), duet_tensor_free(root);
}

static duet_tensor *tensor_of(duet_device *device, int rank, const int *shape, int a) {
    float host[MOST];
    duet_tensor *tensor;
    for (size_t i = 0; i < count_of(rank, shape); i++)
        host[i] = value((int)i, a);
    MUST(duet_tensor_create(&tensor, device, DUET_F32, rank, shape, host));
    return tensor;
}

static void check_embedding(struct subject *s, duet_device *device) {
    float rows[ROWS * WIDTH];
    const int32_t index[2 * WORDS] = {3, 0, 6, 3, 3, 1, 0, 5, 1, 3}; /* not 2 and 4 */
    const struct duet_param shape = {"embedding.weight", 2, {ROWS, WIDTH}, rows};
    for (int i = 0; i < ROWS * WIDTH; i++)
        rows[i] = value(i, 5);
    MUST(duet_params_create(&s->table, device, &shape, 1));
    MUST(duet_tensor_create(&s->index, device, DUET_I32, 2, (int[]){WORDS, 2}, index));
    s->f = NULL;
    check("embedding", s, device);
    duet_tensor_free(s->index);
    duet_params_free(s->table);
}

Test(differences, of_every_function_of_arithmetic, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct subject s = {0};
        duet_device *device;
        MUST(duet_devices_open(&device, 1, api_kinds[kind], api_memory(api_kinds[kind])));
        MUST(duet_tape_create(&s.tape, device));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            s.f = cases[i].f;
            s.operand[0] = tensor_of(device, cases[i].a_rank, cases[i].a, 11);
            s.operand[1] =
                cases[i].b_rank ? tensor_of(device, cases[i].b_rank, cases[i].b, 2) : NULL;
            check(cases[i].what, &s, device);
            duet_tensor_free(s.operand[0]), duet_tensor_free(s.operand[1]);
        }
        check_embedding(&s, device);
        duet_tape_free(s.tape);
        duet_devices_close(&device, 1);
    }
}
