/* Parameters that have no part in a rank's loss, with find_unused: a parameter that some rank used
 * gets that rank's gradient on all, and one that no rank used is left alone. */
#include "tests/ddp/job.h"

/* fc1 784 -> 32, fc2 32 -> 32, fc3 32 -> 10. Rank 1 leaves fc2 out in every step but step 1; in
 * step 2 rank 0 leaves it out too. */
enum { FC1 = 0, FC2 = 2, FC3 = 4, PARAMS = 6, STEPS = 4 };

static duet_var *short_forward(duet_tape *t, duet_var *x, int skip) {
    duet_var *h = duet_relu(t, duet_layer(t, 0, duet_flatten(t, x)));
    if (!skip) h = duet_relu(t, duet_layer(t, 1, h));
    return duet_layer(t, 2, h);
}

static duet_var *forward_0(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return short_forward(t, x, duet_tape_number(t) == 2);
}

static duet_var *forward_1(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return short_forward(t, x, duet_tape_number(t) != 1);
}

static void by_rank(struct model *model, int rank) {
    model->forward = rank == 1 ? forward_1 : forward_0;
    model->graph_changes = 1;
}

static struct job unused_job(void) {
    struct job job = job_default();
    struct model model;
    job.steps = STEPS;
    job.hidden[0] = job.hidden[1] = 32;
    job.change_model = by_rank;
    job.config.find_unused = 1;
    cr_assert_eq(open_model(&job, &model, 0), OK, "%s", error_message());
    job.elements = model_count(&model);
    model_free(&model);
    job.grads = share((size_t)job.world * STEPS * job.elements * sizeof(float));
    return job;
}

static size_t offset_of(int parameter) {
    static const size_t counts[PARAMS] = {784 * 32, 32, 32 * 32, 32, 320, 10};
    size_t offset = 0;
    for (int i = 0; i < parameter; i++)
        offset += counts[i];
    return offset;
}

/* What rank 0 alone would get for fc2 in step 0. */
static void grads_of_rank_0(const struct job *job, float *grads) {
    struct worker w;
    struct job alone = *job;
    struct batch batch = {0};
    duet_var *output, *loss;
    struct step_block block = step_of(job, 0);
    memset(&w, 0, sizeof w);
    cr_assert_eq(worker_model(&w, &alone, 0), OK, "%s", error_message());
    draw_share(job, 0, 0, job->world, w.pixels, w.labels, &batch.segments);
    batch.pixels = w.pixels, batch.labels = w.labels;
    struct replica *r = &w.replica;
    int code = replica_write_step(r, &block);
    if (!code) code = replica_load(r, &batch);
    if (!code) code = replica_forward(r, &batch.segments, 1, &output);
    if (!code) code = replica_loss(r, output, 1, &loss);
    if (!code) code = replica_backward(r, loss);
    if (!code) code = read_all(r, 1, grads);
    cr_assert_eq(code, OK, "%s", error_message());
    worker_close(&w);
}

static void check_job(struct job *job) {
    struct launch_result result;
    float *alone = malloc(job->elements * sizeof *alone);
    cr_assert_eq(job_run(job, run_rank, &result), OK, "%s", error_message());
    cr_assert(!memcmp(job->out[0].hashes, job->out[1].hashes, sizeof job->out[0].hashes),
              "the ranks differ");
    /* hashes of values before step s; momentum is on, so an update would change them */
    for (int s = 0; s + 1 < STEPS; s++)
        for (int p = 0; p < PARAMS; p++) {
            int left_out = s == 2 && (p == FC2 || p == FC2 + 1);
            cr_assert_eq(job->out[0].hashes[s][p] == job->out[0].hashes[s + 1][p], left_out,
                         "step %d, parameter %d: updated or not", s, p);
        }
    for (size_t i = offset_of(FC2); i < offset_of(FC3); i++)
        cr_assert_eq(grads_of(job, 1, 2)[i], 0, "no rank used fc2 in step 2");
    grads_of_rank_0(job, alone);
    float scale = job->config.divide ? 0.5f : 1;
    for (size_t i = offset_of(FC2); i < offset_of(FC3); i++)
        cr_assert_eq(grads_of(job, 1, 0)[i], alone[i] * scale,
                     "rank 1, element %zu: %.9g, rank 0 has %.9g", i, grads_of(job, 1, 0)[i],
                     alone[i]);
    free(alone);
    job_end(job);
}

Test(ddp_unused, some_ranks_leave_out_a_layer, .timeout = 60) {
    static const double caps[] = {-1, 0.001};
    for (int c = 0; c < 2; c++)
        for (int way = 0; way < 3; way++) {
            struct job job = unused_job();
            job.config.bucket_cap_mb = caps[c];
            job.config.divide = way == 1;
            job.config.no_overlap = way == 2;
            job.kind = way == 2 ? DEVICE_HOST_LATE : DEVICE_HOST;
            check_job(&job);
            munmap(job.grads, (size_t)job.world * STEPS * job.elements * sizeof(float));
        }
}

/* The buckets are those of PyTorch, from the first step to the last. */
Test(ddp_unused, buckets_are_not_rebuilt, .timeout = 60) {
    struct job job = unused_job();
    struct launch_result result;
    job.config.bucket_cap_mb = 0.004; /* 4194 bytes */
    cr_assert_eq(job_run(&job, run_rank, &result), OK, "%s", error_message());
    for (int which = 0; which < 2; which++) {
        cr_assert_str_eq(job.out[1].sizes[which], "1448, 4224, 100352", "%s",
                         job.out[1].sizes[which]);
        cr_assert_str_eq(job.out[1].indices[which], "5 4 3, 2 1, 0", "%s",
                         job.out[1].indices[which]);
    }
    job_end(&job);
}

/* Without it the next step fails, on the rank that left the layer out, in PyTorch's words. */
Test(ddp_unused, without_the_flag_the_next_step_fails, .timeout = 60) {
    struct job job = unused_job();
    struct launch_result result;
    job.config.find_unused = 0;
    job.timeout_s = 5;
    cr_assert_neq(job_run(&job, run_rank, &result), OK);
    cr_assert(
        strstr(error_message(), "Expected to have finished reduction in the prior iteration") &&
            strstr(error_message(), "for rank 1: fc2.weight, fc2.bias") &&
            strstr(error_message(), "did not receive grad for rank 1: 2 3"),
        "%s", error_message());
    job_end(&job);
}
