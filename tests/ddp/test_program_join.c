/* duet_ddp_join: ranks with unequal numbers of batches. Gradients are the sum over the ranks that
 * have batches, divided by the number of all ranks or of ranks with batches. In the end all ranks
 * have the last one's parameters and buffers. With CUDA_EMULATION the tests also run on GPUs. */
#include <unistd.h>

#include "tests/ddp/program_bed.h"

/* As in test_ddp.c: terms of up to about 10 are added in two orders. */
static const double TOLERANCE = 1e-5;

enum { WORLD = 3, EPOCHS = 2, STATE = 3 };
/* Each rank's batches, a row per epoch; rank 0 is among the first to end, and then the last. */
static const int batches[EPOCHS][WORLD] = {{2, 5, 4}, {4, 1, 0}};
static const int longest[EPOCHS] = {1, 0};

struct job {
    const char *kind;
    enum duet_join join;
    int hook, find_unused, passes;
};

static int begins_sum(const struct duet_bucket *b, void *context) {
    duet_work *work;
    (void)context;
    int code = duet_all_reduce(b->group, b->gradients, DUET_MEAN, &work);
    return code ? code : duet_bucket_then(b, work, NULL, NULL);
}

static int active_in(int epoch, int step) {
    int active = 0;
    for (int r = 0; r < WORLD; r++)
        active += step < batches[epoch][r];
    return active;
}

/* The gradients of a step that all its ranks should have, by passes over everybody's samples. */
static int check_gradients(struct rank *r, const struct job *job, int epoch, int step) {
    static float want[EXTRA][LARGEST], term[LARGEST];
    int code = DUET_OK, rank = r->rank, active = active_in(epoch, step);
    memset(want, 0, sizeof want);
    TRY(duet_tape_accumulate(r->tape, 1));
    for (int other = 0; other < WORLD; other++) {
        if (step >= batches[epoch][other]) continue;
        for (int p = 0; p < job->passes; p++) {
            r->rank = other;
            code = pass(r, r->alone, (10 * epoch + step) * job->passes + p, 0);
            r->rank = rank;
            if (code) goto out;
            for (int i = 0; i < EXTRA; i++) {
                duet_tensor *grad = duet_params_grad(r->alone, i);
                TRY(duet_tensor_read(grad, term));
                for (size_t k = 0; k < duet_tensor_count(grad); k++)
                    want[i][k] += term[k] / (float)(job->join == DUET_JOIN_ACTIVE ? active : WORLD);
            }
        }
    }
    for (int i = 0; i < EXTRA; i++) {
        duet_tensor *grad = duet_params_grad(r->ours, i);
        TRY(duet_tensor_read(grad, term));
        for (size_t k = 0; k < duet_tensor_count(grad); k++)
            HOLDS(fabs((double)term[k] - (double)want[i][k]) <= TOLERANCE);
    }
    TRY(duet_tape_accumulate(r->tape, job->passes));
out:
    return code;
}

/* 1: all elements are those of rank `root`. */
static int is_of(struct rank *r, duet_tensor *tensor, int root, int *same) {
    static float own[LARGEST], theirs[LARGEST];
    duet_tensor *copy;
    int code = duet_tensor_to(&copy, tensor, r->device);
    if (!code) code = duet_broadcast(r->group, copy, root, NULL);
    if (!code) code = duet_tensor_read(copy, theirs);
    if (!code) code = duet_tensor_read(tensor, own);
    duet_tensor_free(copy);
    *same = !memcmp(own, theirs, duet_tensor_count(tensor) * sizeof *own);
    return code;
}

static int train(struct rank *r, const struct job *job, int epoch) {
    int code = DUET_OK, rank = r->rank, same, last = longest[epoch];
    duet_tensor *buffer = duet_params_buffer(r->ours, 0);
    TRY(duet_tape_accumulate(r->tape, job->passes));
    for (int step = 0; step < batches[epoch][rank]; step++) {
        float state[STATE];
        for (int p = 0; p < job->passes; p++)
            TRY(pass(r, r->ours, (10 * epoch + step) * job->passes + p, 0));
        TRY(duet_tensor_read(buffer, state));
        if (step) /* the last rank that still has batches sent its buffers before this forward */
            for (int other = 0; other < WORLD; other++)
                if (step < batches[epoch][other])
                    same = state[0] == (float)(100 * epoch + 10 * (step - 1) + other);
        HOLDS(!step || same);
        for (int k = 0; k < STATE; k++)
            state[k] = (float)(100 * epoch + 10 * step + rank + k);
        TRY(duet_tensor_write(buffer, state));
        TRY(check_gradients(r, job, epoch, step));
        TRY(duet_sgd(r->ours, 0.1, 1));
        for (int i = 0; i < EXTRA; i++)
            TRY(duet_tensor_copy(duet_params_value(r->alone, i), duet_params_value(r->ours, i)));
    }
    TRY(duet_ddp_join(r->ddp));
    for (int i = 0; i < EXTRA; i++) {
        TRY(is_of(r, duet_params_value(r->ours, i), last, &same));
        HOLDS(same);
        TRY(is_of(r, duet_params_value(r->alone, i), last, &same));
        HOLDS(i != W2 || same == (rank == last)); /* the others have ended earlier */
        TRY(duet_tensor_copy(duet_params_value(r->alone, i), duet_params_value(r->ours, i)));
    }
    TRY(is_of(r, buffer, last, &same));
    HOLDS(same);
out:
    return code;
}

static int joins(int number, void *context) {
    const struct job *job = context;
    const struct duet_ddp_options options = {
        .bucket_cap_mb = 0.002, .find_unused_parameters = job->find_unused, .join = job->join};
    const struct duet_buffer state = {"state", DUET_F32, 1, {STATE}, 0};
    struct rank r;
    int code = open_rank(&r, job->kind, NULL, EXTRA), rank = r.rank;
    (void)number;
    if (code) goto out;
    HOLDS(duet_ddp_join(r.ddp) == DUET_USAGE && strstr(duet_error(), "set join"));
    HOLDS(duet_ddp_join(NULL) == DUET_USAGE);
    duet_ddp_free(r.ddp), r.ddp = NULL;
    TRY(duet_params_register_buffers(r.ours, &state, 1));
    TRY(duet_ddp_create(&r.ddp, r.group, r.ours, &options));
    if (job->hook) TRY(duet_ddp_register_comm_hook(r.ddp, begins_sum, NULL));
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        TRY(train(&r, job, epoch));
out:
    close_rank(&r);
    return code;
}

Test(api_join, ranks_shadow_the_others, .timeout = 120) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        const char *name = api_kinds[kind];
        struct job jobs[] = {{.kind = name, .join = DUET_JOIN, .passes = 1},
                             {.kind = name, .join = DUET_JOIN_ACTIVE, .passes = 1},
                             {.kind = name, .join = DUET_JOIN, .passes = 2, .find_unused = 1},
                             {.kind = name, .join = DUET_JOIN, .passes = 1, .hook = 1}};
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
            MUST(duet_spawn(WORLD, joins, &jobs[i]));
    }
}

/* Rank 1 has one batch more. Even epochs are no error. */
static int throws(int number, void *context) {
    const struct duet_ddp_options options = {.join = DUET_JOIN_THROW};
    struct rank r;
    int code = open_rank(&r, "cpu", &options, EXTRA), rank = r.rank;
    (void)number, (void)context;
    if (code) goto out;
    TRY(pass(&r, r.ours, 0, 0));
    TRY(duet_ddp_join(r.ddp));
    for (int step = 0; step <= rank; step++)
        TRY(pass(&r, r.ours, step, 0));
    TRY(duet_ddp_join(r.ddp));
out:
    close_rank(&r);
    return code;
}

static int with_sync_bn(int number, void *context) {
    const struct duet_ddp_options options = {.join = DUET_JOIN};
    struct duet_ddp_options wrong = {.join = (enum duet_join)9};
    struct rank r;
    duet_ddp *other;
    int code = open_rank(&r, "cpu", &options, EXTRA), rank = r.rank;
    (void)number, (void)context;
    if (code) goto out;
    HOLDS(duet_ddp_create(&other, r.group, r.alone, &wrong) == DUET_USAGE);
    TRY(duet_convert_sync_batchnorm(r.ours, r.group));
    TRY(pass(&r, r.ours, 0, 0));
out:
    close_rank(&r);
    return code;
}

Test(api_join, what_cannot_be_shadowed_is_said, .timeout = 60) {
    cr_assert_neq(duet_spawn(2, throws, NULL), DUET_OK);
    MUST_SAY("Rank 0 exhausted all inputs.");
    cr_assert_neq(duet_spawn(2, with_sync_bn, NULL), DUET_OK);
    MUST_SAY("SyncBatchNorm");
}
