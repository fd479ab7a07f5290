/* DDP in real processes: the gradients equal the ranks' gradients added in fold order, in every
 * bit. The judge is a simple loop in this process, in which one replica takes every rank's share in
 * turn. */
#include "tests/ddp/job.h"

#include "tests/core/base/fold_float.h"

/* Ring and tree add in another order: for n terms each of at most n - 1 additions rounds once. */
#define OTHER_ORDER_BOUND(n) ((double)((n)-1) * 0x1p-23)

/* ---- the judge ---- */

struct judge {
    size_t elements;
    float *values; /* initial values */
    float *grads;  /* [steps][elements] */
    float *terms;  /* [world][elements] of the last step */
    double *sizes; /* [elements] of step 0: the sum of the terms' absolute values */
};

static void fold_terms(struct judge *judge, const struct job *job, int step) {
    float *sum = judge->grads + (size_t)step * judge->elements;
    for (size_t i = 0; i < judge->elements; i++) {
        float term[WORLD_MOST];
        double size = 0;
        for (int r = 0; r < job->world; r++) {
            term[r] = judge->terms[(size_t)r * judge->elements + i];
            if (job->config.divide) term[r] *= 1.0f / (float)job->world;
            size += fabs((double)term[r]);
        }
        sum[i] = fold_sum_float(term, job->world);
        if (step == 0) judge->sizes[i] = size;
    }
}

static int judge_steps(struct judge *judge, const struct job *job, struct worker *w) {
    struct replica *r = &w->replica;
    CHECK(read_all(r, 0, judge->values));
    for (int s = 0; s < job->steps; s++) {
        struct step_block block = step_of(job, s);
        CHECK(replica_write_step(r, &block));
        for (int rank = 0; rank < job->world; rank++) {
            struct batch batch = {.pixels = w->pixels, .labels = w->labels};
            duet_var *output, *loss;
            if (job->change_model) job->change_model(&w->model, rank);
            draw_share(job, s, rank, job->world, w->pixels, w->labels, &batch.segments);
            CHECK(replica_load(r, &batch));
            CHECK(replica_forward(r, &batch.segments, 1, &output));
            CHECK(replica_loss(r, output, 1, &loss));
            CHECK(replica_backward(r, loss));
            CHECK(read_all(r, 1, judge->terms + (size_t)rank * judge->elements));
        }
        fold_terms(judge, job, s);
        const float *sum = judge->grads + (size_t)s * judge->elements;
        for (int i = 0; i < r->params->set.count; sum += r->params->set.param[i++].count)
            CHECK(copy_to_device(device_compute(w->device), r->params->set.param[i].grad.data, sum,
                                 r->params->set.param[i].count * sizeof *sum));
        CHECK(replica_update(r));
    }
    return stream_sync(device_compute(w->device));
}

static struct judge judge_init(const struct job *job) {
    struct model model;
    cr_assert_eq(open_model(job, &model, 0), OK, "%s", error_message());
    struct judge judge = {.elements = model_count(&model)};
    judge.values = malloc(judge.elements * sizeof(float));
    judge.grads = malloc((size_t)job->steps * judge.elements * sizeof(float));
    judge.terms = malloc((size_t)job->world * judge.elements * sizeof(float));
    judge.sizes = malloc(judge.elements * sizeof(double));
    cr_assert(judge.values && judge.grads && judge.terms && judge.sizes);
    model_free(&model);
    return judge;
}

static void judge_run(struct judge *judge, const struct job *job) {
    struct job alone = *job;
    struct worker w;
    memset(&w, 0, sizeof w);
    alone.seed_per_rank = 0;
    alone.kind = DEVICE_HOST;
    cr_assert_eq(worker_model(&w, &alone, 0), OK, "%s", error_message());
    cr_assert_eq(judge_steps(judge, job, &w), OK, "%s", error_message());
    worker_close(&w);
}

static void judge_free(struct judge *judge) {
    free(judge->values);
    free(judge->grads);
    free(judge->terms);
    free(judge->sizes);
}

/* ---- running a job and looking at its gradients ---- */

static void run_job_well(struct job *job) {
    struct launch_result result;
    int code = job_run(job, run_rank, &result);
    cr_assert_eq(code, OK, "%d ranks, %s: %s", job->world,
                 allreduce_algorithm_name(job->config.algorithm), error_message());
}

static void expect_replicas_equal(const struct job *job) {
    size_t bytes = sizeof job->out[0].hashes;
    for (int r = 1; r < job->world; r++)
        cr_assert(!memcmp(job->out[0].hashes, job->out[r].hashes, bytes),
                  "%s: rank %d of %d differs from rank 0",
                  allreduce_algorithm_name(job->config.algorithm), r, job->world);
    cr_assert_neq(job->out[0].hashes[1][0], job->out[0].hashes[0][0],
                  "the parameters never changed");
}

static void expect_judged(const struct job *job, const struct judge *judge) {
    for (int r = 0; r < job->world; r++)
        for (int s = 0; s < job->steps; s++)
            for (size_t i = 0; i < job->elements; i++) {
                float got = grads_of(job, r, s)[i],
                      want = judge->grads[(size_t)s * job->elements + i];
                cr_assert(!memcmp(&got, &want, sizeof got),
                          "%s, rank %d of %d, step %d, element %zu: %.9g, not %.9g",
                          allreduce_algorithm_name(job->config.algorithm), r, job->world, s, i, got,
                          want);
            }
}

static void expect_near(const struct job *job, const struct judge *judge) {
    for (size_t i = 0; i < job->elements; i++) {
        double off = fabs((double)grads_of(job, 0, 0)[i] - (double)judge->grads[i]);
        cr_assert_leq(off, OTHER_ORDER_BOUND(job->world) * judge->sizes[i],
                      "%s on %d, element %zu is off by %g",
                      allreduce_algorithm_name(job->config.algorithm), job->world, i, off);
    }
}

static void judge_job(struct job *job, const enum allreduce_algorithm *algorithms, int count) {
    struct judge judge = judge_init(job);
    size_t bytes = (size_t)job->world * (size_t)job->steps * judge.elements * sizeof(float);
    job->elements = judge.elements;
    job->grads = share(bytes);
    /* the ranks are forked first, while this process has no other thread */
    for (int a = 0; a < count; a++) {
        job->config.algorithm = algorithms[a];
        memset(job->grads, 0xff, bytes);
        run_job_well(job);
        if (a == 0) judge_run(&judge, job);
        expect_replicas_equal(job);
        if (job->world <= 2 || allreduce_keeps_order(algorithms[a]) ||
            algorithms[a] == ALLREDUCE_AUTO)
            expect_judged(job, &judge);
        else
            expect_near(job, &judge);
        job_end(job);
    }
    munmap(job->grads, bytes);
    judge_free(&judge);
}

Test(ddp, gradients_are_the_fold_of_the_ranks, .timeout = 120) {
    static const enum allreduce_algorithm algorithms[] = {ALLREDUCE_NAIVE,  ALLREDUCE_ONESHOT,
                                                          ALLREDUCE_DIRECT, ALLREDUCE_RING,
                                                          ALLREDUCE_TREE,   ALLREDUCE_AUTO};
    for (int world = 1; world <= WORLD_MOST; world++) {
        struct job job = job_default();
        job.world = world;
        job.last_batch = 2; /* fewer samples than ranks: the last ranks bring zeros */
        judge_job(&job, algorithms, 6);
    }
}

Test(ddp, lenet_in_one_bucket_and_in_several, .timeout = 120) {
    static const enum allreduce_algorithm direct = ALLREDUCE_DIRECT;
    static const double caps[] = {-1, 0.1, 0};
    for (int c = 0; c < 3; c++) {
        struct job job = job_default();
        job.model = "lenet";
        job.world = 3;
        job.config.bucket_cap_mb = caps[c];
        judge_job(&job, &direct, 1);
    }
}

Test(ddp, each_term_is_divided_before_the_sum_on_request, .timeout = 60) {
    static const enum allreduce_algorithm direct = ALLREDUCE_DIRECT;
    struct job job = job_default();
    job.world = 3;
    job.config.divide = 1;
    judge_job(&job, &direct, 1);
}

Test(ddp, without_overlap_the_same_bits, .timeout = 60) {
    static const enum allreduce_algorithm direct = ALLREDUCE_DIRECT;
    struct job job = job_default();
    job.config.no_overlap = 1;
    judge_job(&job, &direct, 1);
}

/* ---- ranks that see their gradients in different orders ---- */

/* Two square layers in the middle, which even ranks apply in the opposite order: not sensible, but
 * legal. */
static duet_var *through(duet_tape *t, duet_var *x, int one, int two) {
    duet_var *h = duet_relu(t, duet_layer(t, 0, duet_flatten(t, x)));
    h = duet_layer(t, two, duet_layer(t, one, h));
    return duet_layer(t, 3, duet_relu(t, h));
}

static duet_var *straight(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return through(t, x, 1, 2);
}

static duet_var *twisted(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return through(t, x, 2, 1);
}

static void twist(struct model *model, int rank) {
    model->forward = rank % 2 ? straight : twisted;
}

static void judge_twisted(double cap) {
    static const enum allreduce_algorithm direct = ALLREDUCE_DIRECT;
    struct job job = job_default();
    job.world = 3;
    job.hidden_count = 3;
    job.hidden[0] = job.hidden[1] = 24;
    job.config.bucket_cap_mb = cap;
    job.change_model = twist;
    judge_job(&job, &direct, 1);
}

/* One bucket for each parameter: on rank 1 the buckets of the middle layers fill in another order
 * than on rank 0. */
Test(ddp, buckets_leave_in_rank_0s_order, .timeout = 60) {
    judge_twisted(0);
}

/* 3145 bytes: rank 0's buckets are "7 6 3 2, 5 4 1 0", no neighbours in order of registration. */
Test(ddp, the_arena_is_laid_out_in_rank_0s_order, .timeout = 60) {
    judge_twisted(0.003);
}

Test(ddp, one_bucket_first_then_rebuilt_in_ready_order, .timeout = 60) {
    for (int world = 1; world <= 3; world += 2) {
        struct job job = job_default();
        job.world = world;
        run_job_well(&job);
        for (int r = 0; r < world; r++) {
            const struct rank_out *out = &job.out[r];
            cr_assert_str_eq(out->sizes[0], "210600");
            cr_assert_str_eq(out->indices[0], "5 4 3 2 1 0");
            cr_assert_str_eq(out->sizes[1], "1320, 8320, 200960", "%s", out->sizes[1]);
            cr_assert_str_eq(out->indices[1], "5 4, 3 2, 1 0");
        }
        job_end(&job);
    }
}

/* With find_unused the buckets are those of PyTorch, from the first step to the last. */
Test(ddp, buckets_are_not_rebuilt_where_parameters_may_be_unused, .timeout = 60) {
    struct job job = job_default();
    job.hidden[0] = job.hidden[1] = 32;
    job.config.find_unused = 1;
    job.config.bucket_cap_mb = 0.004; /* 4194 bytes */
    run_job_well(&job);
    for (int which = 0; which < 2; which++) {
        cr_assert_str_eq(job.out[1].sizes[which], "1448, 4224, 100352");
        cr_assert_str_eq(job.out[1].indices[which], "5 4 3, 2 1, 0");
    }
    job_end(&job);
}

/* ---- parameters ---- */

Test(ddp, all_ranks_start_from_rank_0s_values, .timeout = 60) {
    struct job job = job_default();
    job.world = 3;
    job.seed_per_rank = 1;
    struct judge judge = judge_init(&job);
    size_t bytes = WORLD_MOST * judge.elements * sizeof(float);
    job.elements = judge.elements;
    job.first_values = share(bytes);
    run_job_well(&job);
    judge_run(&judge, &job);
    for (int r = 0; r < job.world; r++)
        cr_assert(!memcmp(job.first_values + (size_t)r * job.elements, judge.values,
                          job.elements * sizeof(float)),
                  "rank %d starts from other values than rank 0's", r);
    expect_replicas_equal(&job);
    for (int r = 1; r < job.world; r++)
        cr_assert_geq(job.out[r].into[0], job.elements * sizeof(float),
                      "the broadcast was not charged");
    job_end(&job);
    munmap(job.first_values, bytes);
    judge_free(&judge);
}

/* A device that runs everything as late as it may shows each missing wait, because the reader finds
 * old bytes: the optimizer without the allreduce (late), the allreduce without the gradient (late,
 * with the communication stream first), rank 0 without a peer that is busy elsewhere. */
Test(ddp, late_devices_give_the_same_bits, .timeout = 60) {
    enum { PROMPT, LATE, LATE_COMM_FIRST, LATE_ONE_LOOKS, CASES };
    uint64_t hashes[STEPS_MOST][2 * PARAMS_MOST];
    for (int world = 2; world <= WORLD_MOST; world++)
        for (int c = PROMPT; c < CASES; c++) {
            struct job job = job_default();
            job.world = world;
            job.steps = 5;
            job.kind = c == PROMPT ? DEVICE_HOST : DEVICE_HOST_LATE;
            job.comm_first = c == LATE_COMM_FIRST;
            job.one_looks = c == LATE_ONE_LOOKS;
            run_job_well(&job);
            expect_replicas_equal(&job);
            if (c == PROMPT) memcpy(hashes, job.out[0].hashes, sizeof hashes);
            cr_assert(!memcmp(hashes, job.out[0].hashes, sizeof hashes),
                      "%d late ranks differ, case %d", world, c);
            job_end(&job);
        }
}
