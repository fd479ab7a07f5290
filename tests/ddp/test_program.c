/* duet_ddp: after duet_backward the gradients are the mean of those that each rank would have
 * alone, in every step, for any buckets. Ranks start from rank 0's values. The file also tests
 * unused parameters, accumulated passes and misuse. With CUDA_EMULATION it also runs on GPUs. */
#include "tests/ddp/program_bed.h"

/* The mean by DDP adds in the order of its algorithm, that of the group in its own: terms of up to
 * about 10, so each of the few roundings is up to 1e-6, and from step to step the weights of the
 * two differ by it too. */
static const double TOLERANCE = 1e-5;

/* Are the gradients of `ours` the mean over the ranks of those of `alone`? */
static int check_means(struct rank *r) {
    float *got = malloc(LARGEST * sizeof *got), *want = malloc(LARGEST * sizeof *want);
    int code = DUET_OK, rank = r->rank;
    for (int i = 0; i < r->params; i++) {
        duet_tensor *mean = duet_params_grad(r->alone, i), *ours = duet_params_grad(r->ours, i);
        TRY(duet_all_reduce(r->group, mean, DUET_MEAN, NULL));
        TRY(duet_tensor_read(mean, want));
        TRY(duet_tensor_read(ours, got));
        double size = 0;
        for (size_t k = 0; k < duet_tensor_count(mean); k++) {
            size += fabs((double)want[k]);
            HOLDS(fabs((double)got[k] - (double)want[k]) <= TOLERANCE);
        }
        HOLDS(size > 1e-3);
    }
out:
    free(got), free(want);
    return code;
}

static int compare_steps(struct rank *r, int passes, int extra_on_0) {
    int code = DUET_OK, rank = r->rank, extra = r->params == PARAMS && (!extra_on_0 || !rank);
    TRY(duet_tape_accumulate(r->tape, passes));
    for (int step = 0; step < 4; step++) {
        for (int p = 0; p < passes; p++)
            TRY(pass(r, r->ours, step * passes + p, extra));
        for (int p = 0; p < passes; p++)
            TRY(pass(r, r->alone, step * passes + p, extra));
        TRY(check_means(r));
        TRY(duet_sgd(r->ours, 0.1, 1));
        /* `alone` now also has the mean, so both take the same step. */
        TRY(duet_sgd(r->alone, 0.1, 1));
    }
    HOLDS(ddp_buckets(r->ddp)->bucket_count >= 1);
out:
    return code;
}

/* A ddp after another one, whose buckets moved the gradients. */
static int renew(struct rank *r, const struct duet_ddp_options *options) {
    duet_ddp_free(r->ddp);
    r->ddp = NULL;
    return duet_ddp_create(&r->ddp, r->group, r->ours, options);
}

/* The number of passes changes from the next pass on, not in the current one. */
static int change_accumulation(struct rank *r) {
    int code = DUET_OK;
    TRY(pass(r, r->alone, 0, 0));
    r->change = 2;
    TRY(pass(r, r->ours, 0, 0));
    TRY(check_means(r));
    r->change = 0;
    for (int p = 1; p <= 2; p++)
        TRY(pass(r, r->ours, p, 0));
    for (int p = 1; p <= 2; p++)
        TRY(pass(r, r->alone, p, 0));
    TRY(check_means(r));
    r->change = 1; /* this update is dropped */
    TRY(pass(r, r->ours, 3, 0));
    r->change = 0;
    TRY(pass(r, r->ours, 4, 0));
    TRY(pass(r, r->alone, 4, 0));
    TRY(check_means(r));
out:
    return code;
}

struct job {
    const char *kind;
    const struct duet_ddp_options *options;
};

static int averages(int number, void *context) {
    const struct job *job = context;
    const struct duet_ddp_options *options = job->options;
    struct rank r;
    (void)number;
    int code = open_rank(&r, job->kind, options, EXTRA);
    if (!code) code = compare_steps(&r, 1, 0);
    if (!code) code = compare_steps(&r, 3, 0); /* once in three passes, as no_sync */
    if (!code && options && options->bucket_cap_mb > 0 && ddp_buckets(r.ddp)->bucket_count < 2)
        code = DUET_CHECK;
    if (!code) code = renew(&r, options);
    if (!code) code = compare_steps(&r, 1, 0);
    if (!code) code = change_accumulation(&r);
    close_rank(&r);
    return code;
}

Test(api_ddp, gradients_are_the_mean_over_the_ranks, .timeout = 120) {
    struct duet_ddp_options small = {.bucket_cap_mb = 0.002, .allreduce = "direct"},
                            late = {.no_overlap = 1, .allreduce = "ring"};
    for (int kind = 0; kind < API_KINDS; kind++) {
        const char *name = api_kinds[kind];
        MUST(duet_spawn(2, averages, &(struct job){name, NULL}));
        MUST(duet_spawn(3, averages, &(struct job){name, &small}));
        MUST(duet_spawn(4, averages, &(struct job){name, &late}));
        MUST(duet_spawn(1, averages, &(struct job){name, NULL}));
    }
}

/* Rank 0 alone uses the extra layer. */
static int finds_unused(int number, void *context) {
    const struct duet_ddp_options options = {.find_unused_parameters = 1};
    struct rank r;
    (void)number;
    int code = open_rank(&r, context, &options, PARAMS);
    if (!code) code = compare_steps(&r, 1, 1);
    close_rank(&r);
    return code;
}

static int leaves_out(int number, void *context) {
    struct rank r;
    (void)number, (void)context;
    int code = open_rank(&r, "cpu", NULL, PARAMS), first = 0, second = 0, rank = r.rank;
    if (code) goto out;
    first = pass(&r, r.ours, 0, 0);
    second = pass(&r, r.ours, 1, 0);
    HOLDS(!first && second);
    HOLDS(strstr(duet_error(), "Expected to have finished reduction in the prior iteration") ||
          second == DUET_PEER);
out:
    close_rank(&r);
    return code;
}

Test(api_ddp, parameters_may_be_left_out_if_they_are_looked_for, .timeout = 120) {
    for (int kind = 0; kind < API_KINDS; kind++)
        MUST(duet_spawn(3, finds_unused, (void *)api_kinds[kind]));
    cr_assert_neq(duet_spawn(2, leaves_out, NULL), DUET_OK); /* the job has failed */
    MUST_SAY("finished reduction");
}

static int misuse(int number, void *context) {
    struct rank r;
    struct duet_ddp_options bad = {.bucket_cap_mb = -1}, unknown = {.allreduce = "pigeon"};
    duet_ddp *other;
    duet_group *half = NULL, *turned = NULL;
    (void)number, (void)context;
    int code = open_rank(&r, "cpu", NULL, EXTRA), rank = r.rank;
    if (code) goto out;
    HOLDS(duet_ddp_create(NULL, r.group, r.alone, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, NULL, r.alone, NULL) == DUET_USAGE && !other);
    HOLDS(duet_ddp_create(&other, r.group, NULL, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, r.group, r.ours, NULL) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "already have a duet_ddp"));
    HOLDS(duet_ddp_create(&other, r.group, r.alone, &bad) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, r.group, r.alone, &unknown) == DUET_USAGE);
    HOLDS(duet_tape_accumulate(r.tape, 0) == DUET_USAGE);
    HOLDS(duet_tape_accumulate(NULL, 1) == DUET_USAGE);
    TRY(duet_group_new(&half, r.group, (int[]){r.n - 1}, 1, 0));
    if (half) HOLDS(duet_ddp_create(&other, half, r.alone, NULL) == DUET_USAGE);
    TRY(duet_group_new(&turned, r.group, (int[]){1, 0}, 2, 0));
    HOLDS(duet_ddp_create(&other, turned, r.alone, NULL) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "in another order"));
    HOLDS(duet_convert_sync_batchnorm(r.alone, turned) == DUET_USAGE);
    TRY(compare_steps(&r, 1, 0)); /* nothing was damaged */
out:
    duet_group_destroy(&half), duet_group_destroy(&turned);
    close_rank(&r);
    return code;
}

/* Each rank gives other options. */
static int disagrees(int number, void *context) {
    const struct duet_ddp_options *options = context;
    struct rank r;
    int code = open_rank(&r, "cpu", &options[number], EXTRA);
    close_rank(&r);
    return code;
}

static int calls_another(int number, void *context) {
    struct rank r;
    duet_ddp *other = NULL;
    int code = open_rank(&r, "cpu", NULL, EXTRA);
    (void)context;
    if (!code)
        code = number ? duet_ddp_create(&other, r.group, r.alone, NULL)
                      : duet_convert_sync_batchnorm(r.alone, r.group);
    close_rank(&r);
    return code;
}

Test(api_ddp, misuse_is_one_line, .timeout = 120) {
    const struct duet_ddp_options odd[][2] = {
        {{.join = DUET_JOIN_OFF}, {.bucket_cap_mb = 3}},
        {{.join = DUET_JOIN_OFF}, {.join = DUET_JOIN}},
        {{.join = DUET_JOIN_OFF}, {.find_unused_parameters = 1}},
        {{.join = DUET_JOIN_OFF}, {.no_broadcast_buffers = 1}}};
    const char *const names[] = {"bucket_cap_mb is ", "join is ", "find_unused_parameters is ",
                                 "no_broadcast_buffers is "};
    MUST(duet_spawn(2, misuse, NULL));
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(duet_spawn(2, disagrees, (void *)odd[i]), DUET_USAGE);
        MUST_SAY(names[i]);
    }
    cr_assert_neq(duet_spawn(2, calls_another, NULL), DUET_OK);
    MUST_SAY("DDP: setup");
    MUST_SAY("SyncBatchNorm: setup");
}
