/* duet_ddp: the gradients that duet_backward leaves are the mean of those that each rank would have
 * alone, in every step, whatever the buckets; ranks start from rank 0's values; parameters left
 * out, accumulated passes, misuse. */
#include <math.h>
#include <stdlib.h>

#include "tests/api/shared.h"

/* The mean by DDP adds in the order of its algorithm, that of the group in its own: terms of up to
 * about 10, so each of the few roundings is up to 1e-6, and from step to step the weights of the
 * two differ by it too. */
static const double TOLERANCE = 1e-5;

/* Registered in another order than they are used, so that the buckets move the gradients. */
enum { W2, B2, W1, B1, EXTRA, PARAMS };
enum { N = 5, K = 9, HIDDEN = 300, CLASSES = 4, LARGEST = K * HIDDEN };
static const struct duet_param shapes[PARAMS] = {{"fc2.weight", 2, {CLASSES, HIDDEN}, NULL},
                                                 {"fc2.bias", 1, {CLASSES}, NULL},
                                                 {"fc1.weight", 2, {HIDDEN, K}, NULL},
                                                 {"fc1.bias", 1, {HIDDEN}, NULL},
                                                 {"extra.weight", 2, {CLASSES, K}, NULL}};

/* A rank's model: `ours` has a ddp around it, `alone` the same values and none. */
struct rank {
    int rank, n, params; /* 4 of them, or with the extra layer 5 */
    int change;          /* not 0: the passes of an update, set in the middle of a pass */
    duet_group *group;
    duet_device *device;
    duet_params *ours, *alone;
    duet_tape *tape;
    duet_ddp *ddp;
    float x[N * K];
    int32_t labels[N];
};

/* Every rank draws other values: DDP has to make them those of rank 0. */
static int make_params(struct rank *r, duet_params **out, int seed) {
    struct duet_param params[PARAMS];
    float *values = malloc(PARAMS * LARGEST * sizeof *values);
    duet_rng *rng;
    int code = duet_rng_create(&rng, (uint64_t)seed);
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS && !code; i++) {
        duet_rng_normal(rng, values + i * LARGEST, LARGEST, 0, 0.3);
        params[i].values = values + i * LARGEST;
    }
    if (!code) code = duet_params_create(out, r->device, params, r->params);
    duet_rng_free(rng);
    free(values);
    return code;
}

static int open_rank(struct rank *r, const struct duet_ddp_options *options, int params) {
    int code;
    *r = (struct rank){.params = params};
    if ((code = duet_group_init(&r->group, 60))) return code;
    r->rank = duet_group_rank(r->group), r->n = duet_group_size(r->group);
    if ((code = duet_devices_open(&r->device, 1, "cpu", 32 << 20))) return code;
    if ((code = make_params(r, &r->ours, r->rank))) return code;
    if ((code = make_params(r, &r->alone, 0))) return code;
    if ((code = duet_tape_create(&r->tape, r->device))) return code;
    return duet_ddp_create(&r->ddp, r->group, r->ours, options);
}

static void close_rank(struct rank *r) {
    duet_ddp_free(r->ddp);
    duet_tape_free(r->tape);
    duet_params_free(r->ours);
    duet_params_free(r->alone);
    duet_devices_close(&r->device, 1);
    duet_group_destroy(&r->group);
}

/* One pass over samples of this rank's own. extra 1: the extra layer has a part in the loss. */
static int pass(struct rank *r, duet_params *params, int number, int extra) {
    duet_tensor *x = NULL, *labels = NULL;
    for (int i = 0; i < N * K; i++)
        r->x[i] = sinf((float)(i + 17 * number + 101 * r->rank));
    for (int i = 0; i < N; i++)
        r->labels[i] = (i + number + r->rank) % CLASSES;
    int code = duet_tensor_create(&x, r->device, DUET_F32, 2, (int[]){N, K}, r->x);
    if (!code) code = duet_tensor_create(&labels, r->device, DUET_I32, 1, (int[]){N}, r->labels);
    if (!code) code = duet_tape_begin(r->tape, params, N, DUET_TRAIN);
    if (!code) {
        duet_tape *t = r->tape;
        duet_var *in = duet_input(t, x);
        duet_var *y = duet_linear(t, duet_relu(t, duet_linear(t, in, W1, B1)), W2, B2);
        if (extra) y = duet_add(t, y, duet_linear(t, in, EXTRA, DUET_NO_BIAS));
        duet_var *loss = duet_cross_entropy(t, y, labels, DUET_MEAN);
        if (r->change) code = duet_tape_accumulate(t, r->change);
        if (!code) code = duet_backward(t, loss);
        /* Another one would leave gradients of this rank alone. */
        if (!code && params == r->ours && duet_backward(t, loss) != DUET_USAGE) code = DUET_CHECK;
    }
    duet_tensor_free(x);
    duet_tensor_free(labels);
    return code;
}

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
        /* `alone` has the mean now too, so both go the same way. */
        TRY(duet_sgd(r->alone, 0.1, 1));
    }
    HOLDS(duet_ddp_buckets(r->ddp) >= 1);
out:
    return code;
}

/* A ddp after another, whose buckets have moved the gradients. */
static int renew(struct rank *r, const struct duet_ddp_options *options) {
    duet_ddp_free(r->ddp);
    r->ddp = NULL;
    return duet_ddp_create(&r->ddp, r->group, r->ours, options);
}

/* The number of passes changes from the next pass on, and not for the one under way. */
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
    r->change = 1; /* this update comes to nothing */
    TRY(pass(r, r->ours, 3, 0));
    r->change = 0;
    TRY(pass(r, r->ours, 4, 0));
    TRY(pass(r, r->alone, 4, 0));
    TRY(check_means(r));
out:
    return code;
}

static int averages(int number, void *context) {
    const struct duet_ddp_options *options = context;
    struct rank r;
    (void)number;
    int code = open_rank(&r, options, EXTRA);
    if (!code) code = compare_steps(&r, 1, 0);
    if (!code) code = compare_steps(&r, 3, 0); /* once in three passes, as no_sync */
    if (!code && options && options->bucket_cap_mb > 0 && duet_ddp_buckets(r.ddp) < 2)
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
    MUST(duet_spawn(2, averages, NULL));
    MUST(duet_spawn(3, averages, &small));
    MUST(duet_spawn(4, averages, &late));
    MUST(duet_spawn(1, averages, NULL));
}

/* Rank 0 alone uses the extra layer. */
static int finds_unused(int number, void *context) {
    const struct duet_ddp_options options = {.find_unused_parameters = 1};
    struct rank r;
    (void)number, (void)context;
    int code = open_rank(&r, &options, PARAMS);
    if (!code) code = compare_steps(&r, 1, 1);
    close_rank(&r);
    return code;
}

static int leaves_out(int number, void *context) {
    struct rank r;
    (void)number, (void)context;
    int code = open_rank(&r, NULL, PARAMS), first = 0, second = 0, rank = r.rank;
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
    MUST(duet_spawn(3, finds_unused, NULL));
    cr_assert_neq(duet_spawn(2, leaves_out, NULL), DUET_OK); /* the job has failed */
    MUST_SAY("finished reduction");
}

static int misuse(int number, void *context) {
    struct rank r;
    struct duet_ddp_options bad = {.bucket_cap_mb = -1}, unknown = {.allreduce = "pigeon"};
    duet_ddp *other;
    duet_group *half = NULL;
    (void)number, (void)context;
    int code = open_rank(&r, NULL, EXTRA), rank = r.rank;
    if (code) goto out;
    HOLDS(duet_ddp_create(NULL, r.group, r.alone, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, NULL, r.alone, NULL) == DUET_USAGE && !other);
    HOLDS(duet_ddp_create(&other, r.group, NULL, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, r.group, r.ours, NULL) == DUET_USAGE);
    HOLDS(strstr(duet_error(), "have one already"));
    HOLDS(duet_ddp_create(&other, r.group, r.alone, &bad) == DUET_USAGE);
    HOLDS(duet_ddp_create(&other, r.group, r.alone, &unknown) == DUET_USAGE);
    HOLDS(duet_tape_accumulate(r.tape, 0) == DUET_USAGE);
    HOLDS(duet_tape_accumulate(NULL, 1) == DUET_USAGE);
    TRY(duet_group_new(&half, r.group, (int[]){r.n - 1}, 1, 0));
    if (half) HOLDS(duet_ddp_create(&other, half, r.alone, NULL) == DUET_USAGE);
    HOLDS(duet_ddp_buckets(NULL) == 0);
    TRY(compare_steps(&r, 1, 0)); /* none of this has done harm */
out:
    duet_group_destroy(&half);
    close_rank(&r);
    return code;
}

Test(api_ddp, misuse_is_one_line, .timeout = 120) {
    MUST(duet_spawn(2, misuse, NULL));
}

/* Each rank's batches are those of its DistributedSampler: together an epoch's samples, padded with
 * its first ones, and of equal numbers. */
Test(api_ddp, the_loader_of_a_rank, .timeout = 60) {
    enum { WORLD = 3, EACH = 7 };
    duet_dataset *set;
    duet_loader *loader;
    MUST(duet_dataset_open(&set, "random", NULL, 1));
    int count = duet_dataset_count(set), padded = (count + WORLD - 1) / WORLD * WORLD, seen = 0;
    for (int drop = 0; drop < 2; drop++)
        for (int r = 0; r < WORLD; r++) {
            struct duet_batch b;
            int mine = 0, steps = 0;
            MUST(duet_loader_create_distributed(&loader, set, EACH, 1, drop, 5, 0, r, WORLD));
            MUST(duet_loader_start(loader, 1));
            for (;; steps++) {
                MUST(duet_loader_next(loader, &b));
                if (!b.n) break;
                cr_assert(b.n <= EACH);
                mine += b.n;
            }
            cr_assert_eq(steps, duet_loader_steps(loader));
            cr_assert_eq(mine, drop ? count / WORLD / EACH * EACH : padded / WORLD);
            seen += drop ? 0 : mine;
            duet_loader_free(loader);
        }
    cr_assert_eq(seen, padded);
    MUST_FAIL(duet_loader_create_distributed(&loader, set, 1, 1, 0, 0, 0, 3, 3), DUET_USAGE,
              "Invalid rank 3, rank should be in the interval [0, 2]");
    MUST_FAIL(duet_loader_create_distributed(&loader, set, 1, 1, 0, 0, 0, 0, 65), DUET_USAGE, "65");
    MUST_FAIL(duet_loader_create_distributed(&loader, set, 0, 1, 0, 0, 0, 0, 1), DUET_USAGE, "0");
    MUST_FAIL(duet_loader_create_distributed(&loader, NULL, 1, 1, 0, 0, 0, 0, 1), DUET_USAGE,
              "set");
    duet_dataset_free(set);
}

/* The example trains, and rank 0 saves, once however many ranks there are. */
Test(api_ddp, the_example_trains, .timeout = 200) {
    char line[256];
    snprintf(line, sizeof line,
             "d=$(mktemp -d) && %s/examples/ddp_mnist 2 random 1 $d/w >$d/out && "
             "grep -q '^epoch 0: mean loss of rank 0 2\\.[0-9]*$' $d/out && "
             "[ $(wc -l <$d/out) = 1 ] && [ -s $d/w ]; s=$?; rm -rf $d; exit $s",
             BUILD_DIR);
    cr_assert_eq(system(line), 0);
}
