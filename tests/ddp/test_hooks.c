/* Communication hooks of a duet_ddp get whole buckets in order, and may do their work at once or
 * only begin it. fp16 and bf16 give PyTorch's bits and keep their bounds. Errors are reported. With
 * CUDA_EMULATION the tests also run on GPUs. */
#include "tests/ddp/program_bed.h"
#include "tests/golden/golden.h"

/* The rounding of sums in float32, as in test_ddp.c. */
static const double TOLERANCE = 1e-5;

typedef int hook_function(const struct duet_bucket *bucket, void *context);

struct job {
    const char *kind;
    hook_function *hook;
    double unit; /* of the rounding of 16 bits; 0: float32 */
    const char *golden;
    int no_overlap;
};

/* ---- hooks ---- */

struct seen {
    int next, last, thens, failed;
    size_t count;
};

static int note(const struct duet_bucket *b, struct seen *seen) {
    seen->failed |= b->index != seen->next++ || seen->last || !b->count ||
                    b->count != duet_tensor_count(b->gradients);
    seen->last |= b->is_last;
    seen->count += b->count;
    return seen->failed ? DUET_CHECK : DUET_OK;
}

static int sums_at_once(const struct duet_bucket *b, void *context) {
    int code = note(b, context);
    if (!code) code = duet_all_reduce(b->group, b->gradients, DUET_SUM, NULL);
    if (code) return code;
    return duet_tensor_scale(b->gradients, 1.0f / (float)duet_group_size(b->group));
}

static int divide(const struct duet_bucket *b, void *state) {
    struct seen *seen = state;
    if (b->index != seen->thens++ || !seen->last) return DUET_CHECK; /* in order, at the end */
    return duet_tensor_scale(b->gradients, 1.0f / (float)duet_group_size(b->group));
}

static int begins_sums(const struct duet_bucket *b, void *context) {
    duet_work *work;
    int code = note(b, context);
    if (!code) code = duet_all_reduce(b->group, b->gradients, DUET_SUM, &work);
    if (!code) code = duet_bucket_then(b, work, divide, context);
    if (!code && duet_bucket_then(b, NULL, NULL, NULL) != DUET_USAGE) code = DUET_CHECK;
    return code;
}

/* A second call after the first one: the mean of what is already the mean changes nothing. */
static int sums_again(const struct duet_bucket *b, void *context) {
    duet_work *work;
    int code = duet_tensor_scale(b->gradients, 1.0f / (float)duet_group_size(b->group));
    if (!code) code = duet_all_reduce(b->group, b->gradients, DUET_MEAN, &work);
    return code ? code : duet_bucket_then(b, work, NULL, context);
}

static int begins_two_sums(const struct duet_bucket *b, void *context) {
    duet_work *work;
    int code = duet_all_reduce(b->group, b->gradients, DUET_SUM, &work);
    return code ? code : duet_bucket_then(b, work, sums_again, context);
}

/* ---- the average of a model, step after step ---- */

/* The mean over the ranks of r->alone's gradient i, and of its absolute values. */
static int means(struct rank *r, int i, float *mean, float *size) {
    duet_tensor *grad = duet_params_grad(r->alone, i), *absolute = NULL;
    int code = duet_tensor_read(grad, size);
    for (size_t k = 0; k < duet_tensor_count(grad); k++)
        size[k] = fabsf(size[k]);
    if (!code) code = duet_tensor_to(&absolute, grad, r->device);
    if (!code) code = duet_tensor_write(absolute, size);
    if (!code) code = duet_all_reduce(r->group, absolute, DUET_MEAN, NULL);
    if (!code) code = duet_tensor_read(absolute, size);
    duet_tensor_free(absolute);
    if (!code) code = duet_all_reduce(r->group, grad, DUET_MEAN, NULL);
    return code ? code : duet_tensor_read(grad, mean);
}

/* The bound that duet.h promises. *error: the 2-norm of the difference, by that of the mean
 * sizes. */
static int check_bound(struct rank *r, double unit, double *error) {
    static float got[LARGEST], mean[LARGEST], size[LARGEST];
    int code = DUET_OK, rank = r->rank;
    double apart = 0, all = 0;
    for (int i = 0; i < r->params; i++) {
        TRY(means(r, i, mean, size));
        TRY(duet_tensor_read(duet_params_grad(r->ours, i), got));
        for (size_t k = 0; k < duet_tensor_count(duet_params_grad(r->ours, i)); k++) {
            double e = fabs((double)got[k] - (double)mean[k]);
            double bound = (r->n + 2) * unit * (double)size[k] + (r->n + 1) * ldexp(1, -24);
            HOLDS(e <= (unit > 0 ? bound : TOLERANCE));
            apart += e * e, all += (double)size[k] * (double)size[k];
        }
    }
    *error = sqrt(apart / all);
out:
    return code;
}

static int averages(int number, void *context) {
    const struct job *job = context;
    const struct duet_ddp_options options = {.bucket_cap_mb = 0.002, .no_overlap = job->no_overlap};
    struct rank r;
    struct seen seen = {0};
    double error;
    int code = open_rank(&r, job->kind, &options, EXTRA), rank = r.rank;
    (void)number;
    if (code) goto out;
    TRY(duet_ddp_register_comm_hook(r.ddp, job->hook, &seen));
    HOLDS(duet_ddp_register_comm_hook(r.ddp, job->hook, &seen) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "can only be called once"));
    for (int step = 0; step < 3; step++) {
        seen = (struct seen){0};
        TRY(pass(&r, r.ours, step, 0));
        TRY(pass(&r, r.alone, step, 0));
        TRY(check_bound(&r, job->unit, &error));
        /* The error is that of 16 bits and hardly more, since many roundings partly cancel. */
        HOLDS(job->unit > 0 ? error > job->unit / 10 && error < job->unit : error < TOLERANCE);
        TRY(duet_sgd(r.ours, 0.1, 1));
        for (int i = 0; i < r.params; i++)
            TRY(duet_tensor_copy(duet_params_value(r.alone, i), duet_params_value(r.ours, i)));
        HOLDS(!seen.next || (seen.next == ddp_buckets(r.ddp)->bucket_count && seen.last));
        HOLDS(!seen.thens || seen.thens == seen.next);
        HOLDS(!seen.next || seen.count >= CLASSES * HIDDEN + CLASSES + HIDDEN * K + HIDDEN);
    }
    HOLDS(ddp_buckets(r.ddp)->bucket_count > 1);
out:
    close_rank(&r);
    return code;
}

Test(api_hooks, average_in_every_way, .timeout = 120) {
    const double half = ldexp(1, -11), bf16 = ldexp(1, -8);
    for (int kind = 0; kind < API_KINDS; kind++) {
        struct job jobs[] = {{.hook = sums_at_once},
                             {.hook = begins_sums},
                             {.hook = begins_sums, .no_overlap = 1},
                             {.hook = begins_two_sums},
                             {.hook = duet_fp16_compress_hook, .unit = half},
                             {.hook = duet_bf16_compress_hook, .unit = bf16}};
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            jobs[i].kind = api_kinds[kind];
            MUST(duet_spawn(i % 2 ? 3 : 2, averages, &jobs[i]));
        }
    }
}

/* ---- PyTorch's bits ---- */

enum { COMM_HOOK_GRADIENTS = 24 };

/* The numbers whose bits the file holds. */
static void numbers_of(const char *name, float *to) {
    struct golden_tensor bits = golden_tensor("tests/golden/comm_hooks.txt", name);
    for (int i = 0; i < COMM_HOOK_GRADIENTS; i++)
        memcpy(&to[i], &(uint32_t){(uint32_t)bits.x[i]}, sizeof *to);
}

/* The gradient of w in x w, where x is the gradient that each rank shall have. */
static int bring_gradients(struct rank *r, duet_params *params, duet_tape *tape, float *gradients) {
    duet_tensor *x = NULL, *one = NULL;
    const int shape[2] = {1, COMM_HOOK_GRADIENTS};
    int code = duet_tensor_create(&x, r->device, DUET_F32, 2, shape, gradients);
    if (!code) code = duet_tensor_create(&one, r->device, DUET_F32, 2, (int[]){1, 1}, (float[]){1});
    if (!code) code = duet_tape_begin(tape, params, 1, DUET_TRAIN);
    if (!code)
        code = duet_backward(tape, duet_linear(tape, duet_input(tape, x), 0, DUET_NO_BIAS), one);
    if (!code) code = duet_tensor_read(duet_params_grad(params, 0), gradients);
    duet_tensor_free(x);
    duet_tensor_free(one);
    return code;
}

static int as_pytorch(int number, void *context) {
    const struct job *job = context;
    const struct duet_param one = {"weight", 2, {1, COMM_HOOK_GRADIENTS}, NULL};
    float got[COMM_HOOK_GRADIENTS] = {0}, want[COMM_HOOK_GRADIENTS];
    struct rank r;
    duet_params *params = NULL;
    int code = open_rank(&r, job->kind, NULL, EXTRA), rank = r.rank;
    (void)number;
    if (code) goto out;
    duet_ddp_free(r.ddp), r.ddp = NULL;
    if (!rank || r.n == 2) numbers_of(rank ? "second" : "first", got);
    TRY(duet_params_create(&params, r.device, &one, 1));
    TRY(duet_ddp_create(&r.ddp, r.group, params, NULL));
    TRY(duet_ddp_register_comm_hook(r.ddp, job->hook, NULL));
    TRY(bring_gradients(&r, params, r.tape, got));
    numbers_of(job->golden, want);
    for (int i = 0; i < COMM_HOOK_GRADIENTS; i++)
        HOLDS(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
out:
    duet_ddp_free(r.ddp), r.ddp = NULL;
    duet_params_free(params);
    close_rank(&r);
    return code;
}

Test(api_hooks, compress_as_pytorch, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        const char *name = api_kinds[kind];
        struct job jobs[] = {{name, duet_fp16_compress_hook, 0, "fp16_2", 0},
                             {name, duet_fp16_compress_hook, 0, "fp16_3", 0},
                             {name, duet_bf16_compress_hook, 0, "bf16_2", 0},
                             {name, duet_bf16_compress_hook, 0, "bf16_3", 0}};
        for (int i = 0; i < 4; i++)
            MUST(duet_spawn(2 + i % 2, as_pytorch, &jobs[i]));
    }
}

/* ---- failures ---- */

static int gives_up(const struct duet_bucket *b, void *context) {
    (void)context;
    if (duet_group_rank(b->group) == 1) return duet_all_reduce(b->group, NULL, DUET_SUM, NULL);
    return duet_all_reduce(b->group, b->gradients, DUET_SUM, NULL);
}

/* A refused call leaves the running one as it is. */
static int compresses_twice(const struct duet_bucket *b, void *context) {
    int code = duet_fp16_compress_hook(b, context);
    if (!code && duet_bf16_compress_hook(b, context) != DUET_USAGE) code = DUET_CHECK;
    return code ? code : strstr(duet_error(), "waits for another call") ? DUET_OK : DUET_CHECK;
}

/* The hooks refuse a copy of the bucket: what they keep is in memory after the original. */
static int gives_copies(const struct duet_bucket *b, void *context) {
    const struct duet_bucket copy = *b, none = {.count = 4, .group = b->group};
    (void)context;
    for (int i = 0; i < 2; i++) {
        const struct duet_bucket *wrong = i ? &none : &copy;
        if (duet_bucket_then(wrong, NULL, NULL, NULL) != DUET_USAGE) return DUET_CHECK;
        if (!strstr(duet_error(), "the bucket is a copy")) return DUET_CHECK;
        if (duet_fp16_compress_hook(wrong, NULL) != DUET_USAGE) return DUET_CHECK;
        if (duet_bf16_compress_hook(wrong, NULL) != DUET_USAGE) return DUET_CHECK;
    }
    return duet_bucket_then(b, NULL, NULL, NULL);
}

static int says_nothing(const struct duet_bucket *b, void *context) {
    return duet_bucket_then(b, NULL, NULL, context) ? DUET_OK : 70;
}

static int ends_in_silence(const struct duet_bucket *b, void *context) {
    return duet_bucket_then(b, NULL, says_nothing, context);
}

static int fails(int number, void *context) {
    struct rank r;
    int code = open_rank(&r, "cpu", NULL, EXTRA), rank = r.rank;
    (void)number;
    if (code) goto out;
    HOLDS(duet_ddp_register_comm_hook(NULL, gives_up, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_register_comm_hook(r.ddp, NULL, NULL) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "Communication hook must be callable"));
    HOLDS(duet_bucket_then(NULL, NULL, NULL, NULL) == DUET_USAGE);
    HOLDS(duet_fp16_compress_hook(NULL, NULL) == DUET_USAGE);
    TRY(duet_ddp_register_comm_hook(r.ddp, ((const struct job *)context)->hook, NULL));
    TRY(pass(&r, r.ours, 0, 0));
out:
    close_rank(&r);
    return code;
}

Test(api_hooks, a_hook_that_fails_ends_the_job, .timeout = 60) {
    cr_assert_neq(duet_spawn(2, fails, &(struct job){.hook = gives_up}), DUET_OK);
    MUST_SAY("all_reduce: no tensor was given");
    cr_assert_eq(duet_spawn(2, fails, &(struct job){.hook = says_nothing}), DUET_FAILED);
    MUST_SAY("the communication hook returned 70 for bucket 0");
    cr_assert_eq(duet_spawn(2, fails, &(struct job){.hook = ends_in_silence}), DUET_FAILED);
    MUST_SAY("the function of duet_bucket_then returned 70 for bucket 0");
    MUST(duet_spawn(2, fails, &(struct job){.hook = compresses_twice}));
    MUST(duet_spawn(2, fails, &(struct job){.hook = gives_copies}));
}

/* The others wait in the allreduce that stands in the place of a hook. */
static int is_registered_on_one(int number, void *context) {
    const struct job *job = context;
    struct seen seen = {0}; /* the hook may run before the others arrive */
    struct rank r;
    int code = open_rank(&r, job->kind, NULL, EXTRA);
    (void)number;
    if (!code && r.rank == 1) code = duet_ddp_register_comm_hook(r.ddp, job->hook, &seen);
    if (!code) code = pass(&r, r.ours, 0, 0);
    close_rank(&r);
    return code;
}

Test(api_hooks, a_hook_of_one_rank_is_told_at_once, .timeout = 60) {
    static int (*const hooks[])(const struct duet_bucket *, void *) = {begins_sums, sums_at_once,
                                                                       duet_bf16_compress_hook};
    for (int i = 0; i < 3; i++) {
        struct job job = {.kind = i ? "cpu" : "cpu-late", .hook = hooks[i]};
        cr_assert_eq(duet_spawn(3, is_registered_on_one, &job), DUET_FAILED, "%s", duet_error());
        MUST_SAY("Detected mismatch between collectives on ranks");
        MUST_SAY("is running collective: communication hook bucket 0 step 0");
        MUST_SAY("is running collective: ALLREDUCE bucket 0 step 0");
    }
}
