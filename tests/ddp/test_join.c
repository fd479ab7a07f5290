/* Uneven inputs: ranks whose batches are used up shadow the others; and communication hooks, which
 * take the place of a bucket's allreduce. */
#include "tests/ddp/job.h"

/* Rank r has this many batches; rank 1 has the most, and rank 0 the fewest. */
enum { WORLD = 3, MOST = 5 };
static const int batches[WORLD] = {2, MOST, 4};

static void draw(struct worker *w, const struct job *job, int rank, int s, struct batch *batch) {
    float *pixels = w->pixels + (size_t)s * (size_t)job->batch * PIXELS;
    int32_t *labels = w->labels + (size_t)s * (size_t)job->batch;
    *batch = (struct batch){.pixels = pixels, .labels = labels};
    draw_share(job, s, rank, job->world, pixels, labels, &batch->segments);
}

static int without_forward(void *worker) {
    struct worker *w = worker;
    CHECK(replica_hash_values(&w->replica));
    CHECK(replica_log_nothing(&w->replica));
    memset(w->replica.params->has_grad, 1, (size_t)w->replica.params->set.count);
    return OK;
}

/* As train/strategy_ddp.c does. */
static int shadow(struct worker *w, const struct step_block *block, int *active) {
    CHECK(replica_write_step(&w->replica, block));
    CHECK(ddp_shadow_pass(w->ddp, w->replica.step_number, without_forward, w, active));
    return *active ? replica_update(&w->replica) : OK;
}

/* Steps until this rank's input is used up, then shadows; out->into[0] counts those steps. */
static int train_unevenly(struct worker *w, const struct job *job) {
    int rank = comm_rank(w->comm), active = 1, s = 0;
    struct rank_out *out = &job->out[rank];
    size_t row = 2 * (size_t)w->model.param_count;
    for (out->into[0] = 0; active; s++) {
        struct step_block block = step_of(job, s);
        struct batch batch;
        block.weight = 0.25f; /* of the mean of a rank's 4 samples */
        if (s < batches[rank]) {
            draw(w, job, rank, s, &batch);
            CHECK(worker_step(w, &block, &batch));
        } else {
            CHECK(shadow(w, &block, &active));
            if (!active) break;
            out->into[0]++;
            cr_assert_eq(active, (s < batches[0]) + (s < batches[1]) + (s < batches[2]));
        }
        if (job->grads) CHECK(read_all(&w->replica, 1, grads_of(job, rank, s)));
    }
    note_buckets(w, out, 1);
    cr_assert_eq(s, MOST);
    uint64_t *hashes = calloc((size_t)job->steps * row, sizeof *hashes);
    double losses[STEPS_MOST];
    int code = replica_read_logs(&w->replica, MOST, losses, NULL, hashes);
    for (int i = 0; !code && i < MOST; i++) {
        memcpy(out->hashes[i], hashes + (size_t)i * row, row * sizeof *hashes);
        cr_assert_eq(losses[i] != 0, i < batches[rank], "rank %d, step %d: loss %g", rank, i,
                     losses[i]);
    }
    free(hashes);
    return code;
}

static int run_unevenly(void *context) {
    const struct job *job = context;
    struct worker w;
    int code = worker_open(&w, job);
    if (!code) code = train_unevenly(&w, job);
    return note_end(job, &w, code);
}

static struct job uneven_job(enum duet_join join, int divide) {
    struct job job = job_default();
    struct model model;
    job.world = WORLD;
    job.steps = MOST;
    job.frozen = 1;
    job.config.join = join;
    job.config.divide = divide;
    cr_assert_eq(open_model(&job, &model, 0), OK);
    job.elements = model_count(&model);
    model_free(&model);
    job.grads = share(WORLD * MOST * job.elements * sizeof(float));
    return job;
}

static void run_well(struct job *job, int (*entry)(void *context)) {
    struct launch_result result;
    cr_assert_eq(job_run(job, entry, &result), OK, "%s", error_message());
    for (int r = 1; r < job->world; r++)
        cr_assert(!memcmp(job->out[0].hashes, job->out[r].hashes, sizeof job->out[0].hashes),
                  "rank %d differs from rank 0", r);
}

static void end(struct job *job) {
    munmap(job->grads, WORLD * MOST * job->elements * sizeof(float));
    job_end(job);
}

/* In the last step rank 1 is alone. The parameters stand still, so its gradient is the same in all
 * jobs, but for the divisor: 1 where gradients are summed, all ranks, or the active ones. In
 * PyTorch a rank alone with input 2 gets 1 of 2 ranks, or 2. */
Test(ddp_join, the_divisor_is_the_initial_or_the_active_number_of_ranks, .timeout = 60) {
    struct job sum = uneven_job(DUET_JOIN, 0), initial = uneven_job(DUET_JOIN, 1),
               active = uneven_job(DUET_JOIN_ACTIVE, 1);
    run_well(&sum, run_unevenly);
    run_well(&initial, run_unevenly);
    run_well(&active, run_unevenly);
    for (int r = 0; r < WORLD; r++)
        cr_assert_eq((int)sum.out[r].into[0], MOST - batches[r], "rank %d shadows", r);
    int moved = 0;
    for (int r = 0; r < WORLD; r++)
        for (size_t i = 0; i < sum.elements; i++) {
            float alone = grads_of(&sum, 1, MOST - 1)[i], third = alone * (1.0f / 3);
            cr_assert_eq(grads_of(&initial, r, MOST - 1)[i], third, "initial, element %zu", i);
            cr_assert_eq(grads_of(&active, r, MOST - 1)[i], alone, "active, element %zu", i);
            moved += alone != 0;
        }
    cr_assert_gt(moved, 1000, "the gradients are almost all zero");
    end(&sum), end(&initial), end(&active);
}

/* With an optimizer that moves, momentum included, all ranks stay equal, on devices that run early
 * or late, in one bucket and in several, with parameters that ranks may leave out. */
Test(ddp_join, shadows_stay_equal, .timeout = 60) {
    for (int way = 0; way < 4; way++) {
        struct job job = uneven_job(DUET_JOIN_ACTIVE, 1);
        job.frozen = 0;
        job.kind = way % 2 ? DEVICE_HOST_LATE : DEVICE_HOST;
        job.config.bucket_cap_mb = way == 2 ? -1 : 0.001;
        job.config.find_unused = way == 3;
        run_well(&job, run_unevenly);
        cr_assert_neq(job.out[0].hashes[MOST - 1][0], job.out[0].hashes[MOST - 2][0],
                      "the parameters do not move any more");
        cr_assert_str_eq(job.out[0].sizes[1], job.out[1].sizes[1]);
        end(&job);
    }
}

/* The rank that runs out is the root cause; PyTorch's words on both sides. */
Test(ddp_join, throws_on_request, .timeout = 60) {
    struct job job = uneven_job(DUET_JOIN_THROW, 1);
    struct launch_result result;
    cr_assert_neq(job_run(&job, run_unevenly, &result), OK);
    cr_assert_eq(result.rank, 0, "rank %d: %s", result.rank, error_message());
    cr_assert(strstr(error_message(), "Rank 0 exhausted all inputs."), "%s", error_message());
    for (int r = 1; r < WORLD; r++)
        cr_assert(strstr(job.out[r].text, "Detected at least one rank that exhausted inputs. "
                                          "Throwing across all ranks."),
                  "rank %d: %s", r, job.out[r].text);
    end(&job);
}

/* ---- hooks ---- */

/* Sums a bucket as without a hook and halves the sum. */
static int sum_and_halve(void *context, const struct ddp_bucket *bucket) {
    (void)context;
    int count = (int)bucket->count;
    struct op_args args = {.out[0] = tensor_plain(bucket->data, DTYPE_F32, 1, &count),
                           .p.fill = {0.5f}};
    CHECK(ddp_allreduce_hook(NULL, bucket));
    return launch(bucket->stream, OP_SCALE, &args);
}

static int run_hooked(void *context) {
    const struct job *job = context;
    struct worker w;
    int code = worker_open(&w, job);
    if (!code && ddp_register_comm_hook(w.ddp, NULL, NULL) != ERR_USAGE) abort();
    if (!code) code = ddp_register_comm_hook(w.ddp, sum_and_halve, &w);
    if (!code && ddp_register_comm_hook(w.ddp, sum_and_halve, &w) != ERR_USAGE) abort();
    if (!strstr(error_message(), "can only be called once")) abort();
    if (!code) code = train(&w, job);
    return note_end(job, &w, code);
}

Test(ddp_join, a_hook_takes_the_place_of_the_allreduce, .timeout = 60) {
    struct job plain = uneven_job(DUET_JOIN_OFF, 0), hooked = uneven_job(DUET_JOIN_OFF, 0);
    run_well(&plain, run_rank);
    run_well(&hooked, run_hooked);
    for (size_t i = 0; i < WORLD * MOST * plain.elements; i++)
        cr_assert_eq(hooked.grads[i], plain.grads[i] * 0.5f, "element %zu", i);
    end(&plain), end(&hooked);
}
