/* A rank of DDP differs, fails, leaves out a parameter or dies. The tests check which rank reports
 * what, and that no rank goes on waiting. */
#include "tests/ddp/job.h"

/* A peer learns of a failure through the abort word or a pidfd: at once, or within seconds on a
 * busy machine, and not by the deadline LONG_TIMEOUT_S. */
#define HEARD_WITHIN_S 8.0
#define LONG_TIMEOUT_S 18 /* below the 20 s of a device's own waits */

static double seconds(int64_t from_ns) {
    return (double)(now_ns() - from_ns) * 1e-9;
}

/* Runs a job that must fail at once; returns its exit status. */
static int run_badly(struct job *job, int (*entry)(void *context), struct launch_result *result) {
    int64_t start = now_ns();
    job->timeout_s = LONG_TIMEOUT_S;
    int code = job_run(job, entry, result);
    cr_assert_neq(code, OK, "the job ended well");
    cr_assert_lt(seconds(start), 15.0, "the job took %.1f s to fail", seconds(start));
    return result->exit_status;
}

static void expect_end(const struct job *job, int rank, int code, const char *text) {
    const struct rank_out *out = &job->out[rank];
    cr_assert_eq(out->code, code, "rank %d ended with %d: %s", rank, out->code, out->text);
    cr_assert(strstr(out->text, text), "rank %d says: %s", rank, out->text);
}

/* The rank that failed first reports the cause, once; the others name that rank. */
static void expect_told(const struct job *job, int rank, int first) {
    char words[64];
    snprintf(words, sizeof words, "a peer failed first: rank %d, whose error says why", first);
    expect_end(job, rank, ERR_PEER, words);
}

/* ---- not the same model ---- */

static void one_layer_more(struct model *model, int rank) {
    struct model_options options = {.dropout = -1, .hidden_count = 3, .hidden = {64, 32, 24}};
    if (rank != 1) return;
    model_free(model);
    cr_assert_eq(model_open(model, "mlp", &options), OK);
}

Test(ddp_failure, another_number_of_parameters, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    job.world = 3;
    job.change_model = one_layer_more;
    cr_assert_eq(run_badly(&job, run_rank, &result), 1);
    /* One rank fails first; the others report their own error or say that it has. */
    static const char *const words[] = {
        "but Rank 0 has 6 params, while rank 1 has inconsistent 8 params.",
        "but Rank 1 has 8 params, while rank 0 has inconsistent 6 params.",
        "but Rank 2 has 6 params, while rank 1 has inconsistent 8 params."};
    for (int r = 0; r < job.world; r++) {
        const char *text = job.out[r].text;
        int told = 0;
        if (r != result.rank && job.out[r].code == ERR_PEER) {
            expect_told(&job, r, result.rank);
            continue;
        }
        for (int i = 0; i < 3; i++)
            told += strstr(text, words[i]) != NULL;
        cr_assert_eq(told, 1, "rank %d: %s", r, text);
        cr_assert(strstr(text, "DDP expects same model across all ranks, but "), "rank %d: %s", r,
                  text);
        cr_assert(strstr(text, words[r]), "rank %d: %s", r, text);
    }
    job_end(&job);
}

static void wider(struct model *model, int rank) {
    struct model_options options = {.dropout = -1, .hidden_count = 2, .hidden = {64, 48}};
    if (rank != 2) return;
    model_free(model);
    cr_assert_eq(model_open(model, "mlp", &options), OK);
}

Test(ddp_failure, another_shape, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    job.world = 3;
    job.change_model = wider;
    cr_assert_eq(run_badly(&job, run_rank, &result), 1);
    cr_assert_eq(result.rank, 2);
    const char *words = "[2]: params[2] in this process with sizes [48, 64] appears not to match "
                        "sizes of the same param in "
                        "process 0.";
    expect_end(&job, 2, ERR_FAILED, words);
    expect_told(&job, 0, 2);
    expect_told(&job, 1, 2);
    job_end(&job);
}

static void nothing_to_train(struct model *model, int rank) {
    (void)rank;
    model->param_count = 0;
}

Test(ddp_failure, a_model_without_parameters, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    job.change_model = nothing_to_train;
    cr_assert_eq(run_badly(&job, run_rank, &result), 1);
    cr_assert(strstr(job.out[0].text, "DistributedDataParallel is not needed"), "%s",
              job.out[0].text);
    job_end(&job);
}

Test(ddp_failure, a_cap_that_is_no_number, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    job.config.bucket_cap_mb = NAN;
    cr_assert_eq(run_badly(&job, run_rank, &result), 2);
    job_end(&job);
}

/* ---- out of memory on one rank ---- */

static int hoard(const struct job *job, struct device *device, int rank) {
    (void)job;
    void *memory;
    for (size_t bytes = 16 << 20; rank == 1 && bytes >= 4096; bytes /= 2)
        while (device_alloc(device, &memory, bytes, MEM_WORKSPACE) == OK)
            continue;
    return OK;
}

Test(ddp_failure, no_memory_left_on_one_rank, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    job.world = 3;
    job.before_ddp = hoard;
    cr_assert_eq(run_badly(&job, run_rank, &result), 1);
    expect_end(&job, 1, ERR_MEMORY, "out of memory on device 1");
    expect_told(&job, 0, 1);
    expect_told(&job, 2, 1);
    job_end(&job);
}

/* ---- a parameter that gets no gradient ---- */

/* Leaves out the middle layer (parameters 2 and 3): its input goes straight to the next. */
static duet_var *without_the_middle(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 2, duet_relu(t, duet_layer(t, 0, duet_flatten(t, x))));
}

static void forget_everywhere(struct model *model, int rank) {
    (void)rank;
    model->forward = without_the_middle;
}

static void forget_on_rank_1(struct model *model, int rank) {
    if (rank == 1) model->forward = without_the_middle;
}

Test(ddp_failure, a_parameter_without_gradient, .timeout = 60) {
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        struct job job = job_default();
        struct launch_result result;
        job.hidden[0] = job.hidden[1] = 32; /* square, so that it can be left out */
        job.change_model = everywhere ? forget_everywhere : forget_on_rank_1;
        cr_assert_eq(run_badly(&job, run_rank, &result), 1);
        if (!everywhere)
            expect_end(&job, 1, ERR_FAILED,
                       "Expected to have finished reduction in the prior iteration before");
        if (!everywhere) expect_told(&job, 0, 1);
        const char *text = job.out[everywhere ? result.rank : 1].text;
        cr_assert(strstr(text, "Parameters which did not receive grad for rank "), "%s", text);
        cr_assert(
            strstr(
                text,
                ": fc2.weight, fc2.bias. Parameter indices which did not receive grad for rank "),
            "%s", text);
        cr_assert(strlen(text) > 5 && !strcmp(text + strlen(text) - 5, ": 2 3"), "%s", text);
        job_end(&job);
    }
}

/* ---- one backward too many ---- */

static int forward_of(struct worker *w, const struct job *job, int s, duet_var **loss) {
    struct step_block block = step_of(job, s);
    struct batch batch = {.pixels = w->pixels, .labels = w->labels};
    duet_var *output;
    draw_share(job, s, comm_rank(w->comm), job->world, w->pixels, w->labels, &batch.segments);
    CHECK(replica_write_step(&w->replica, &block));
    CHECK(replica_load(&w->replica, &batch));
    CHECK(replica_forward(&w->replica, &batch.segments, 1, &output));
    return replica_loss(&w->replica, output, 1, loss);
}

static int run_two_backwards(void *context) {
    const struct job *job = context;
    struct worker w;
    duet_var *loss;
    int code = worker_open(&w, job);
    if (!code) code = ddp_begin(w.ddp, 0);
    if (!code) code = forward_of(&w, job, 0, &loss);
    if (!code) code = tape_backward(w.replica.tape, loss, NULL);
    if (!code) code = forward_of(&w, job, 0, &loss);
    if (!code) code = tape_backward(w.replica.tape, loss, NULL);
    return note_end(job, &w, code);
}

Test(ddp_failure, two_backwards_in_one_reduction, .timeout = 60) {
    struct job job = job_default();
    struct launch_result result;
    /* so that the second backward does not write what the allreduce of the first reads */
    job.config.no_overlap = 1;
    cr_assert_eq(run_badly(&job, run_two_backwards, &result), 1);
    expect_end(
        &job, result.rank, ERR_FAILED,
        "Expected to mark a variable ready only once. Parameter at index 5 with name fc3.bias");
    job_end(&job);
}

/* A backward outside of begin and finish belongs to this rank alone: no other rank takes part. */
static int run_backward_alone(void *context) {
    const struct job *job = context;
    struct worker w;
    duet_var *loss;
    int code = worker_open(&w, job);
    if (!code && comm_rank(w.comm) == 0) code = forward_of(&w, job, 0, &loss);
    if (!code && comm_rank(w.comm) == 0) code = replica_backward(&w.replica, loss);
    if (!code) code = train(&w, job);
    return note_end(job, &w, code);
}

Test(ddp_failure, a_backward_outside_of_steps_is_not_reduced, .timeout = 60) {
    uint64_t hashes[STEPS_MOST][2 * PARAMS_MOST];
    for (int alone = 0; alone < 2; alone++) {
        struct job job = job_default();
        struct launch_result result;
        cr_assert_eq(job_run(&job, alone ? run_backward_alone : run_rank, &result), OK, "%s",
                     error_message());
        if (!alone) memcpy(hashes, job.out[0].hashes, sizeof hashes);
        cr_assert(!memcmp(hashes, job.out[1].hashes, sizeof hashes));
        job_end(&job);
    }
}

/* ---- death in the middle of a step ---- */

enum { DIES_BEFORE_BACKWARD, DIES_BEHIND_A_BUCKET, DIES_BEFORE_FINISH, DEATHS };
enum { VICTIM = 1, FATAL_STEP = 2, AFTER_IT = 3 };

struct doomed {
    struct job job;
    int when;
    int signal;         /* 0: the rank does not die but stops taking part */
    int64_t *killed_ns; /* shared */
};

static void die(const struct doomed *doomed, const struct worker *w, int when) {
    if (comm_rank(w->comm) != VICTIM || doomed->when != when) return;
    *doomed->killed_ns = now_ns();
    if (doomed->signal)
        raise(doomed->signal);
    else
        sleep(LONG_TIMEOUT_S);
}

/* Runs the output layer alone once more: its gradients are ready first and fill the first bucket,
 * and then the rank dies. */
static duet_var *first_bucket_only(struct worker *w, struct tensor *grad) {
    duet_tape *t = w->replica.tape;
    int dims[2] = {1, w->replica.params->set.param[4].spec->dims[1]};
    struct tensor x = tensor_plain(w->replica.pixels, DTYPE_F32, 2, dims);
    duet_var *y = to_plain(t, duet_linear(t, tape_leaf(t, &x, 0), 4, 5));
    *grad = tensor_plain(w->replica.pixels, DTYPE_F32, 2, (int[2]){1, 10});
    return y;
}

static int doomed_step(const struct doomed *doomed, struct worker *w, int step_number) {
    duet_var *loss;
    CHECK(ddp_begin(w->ddp, step_number));
    CHECK(forward_of(w, &doomed->job, step_number, &loss));
    die(doomed, w, DIES_BEFORE_BACKWARD);
    if (doomed->when == DIES_BEHIND_A_BUCKET && comm_rank(w->comm) == VICTIM) {
        struct tensor grad;
        struct segments one = {.count = 1, .n = 1, .seg = {{VICTIM, 1}}};
        struct tape_step step = {.segments = &one,
                                 .params = &w->replica.params->set,
                                 .step = w->replica.step,
                                 .training = 1};
        CHECK(tape_begin(w->replica.tape, &step));
        CHECK(tape_backward(w->replica.tape, first_bucket_only(w, &grad), &grad));
        die(doomed, w, DIES_BEHIND_A_BUCKET);
    }
    CHECK(tape_backward(w->replica.tape, loss, NULL));
    die(doomed, w, DIES_BEFORE_FINISH);
    CHECK(ddp_finish(w->ddp));
    CHECK(replica_update(&w->replica));
    return stream_sync(device_compute(w->device));
}

static int run_doomed(void *context) {
    const struct doomed *doomed = context;
    struct job two_steps = doomed->job;
    struct worker w;
    two_steps.steps = FATAL_STEP;
    int code = worker_open(&w, &doomed->job);
    if (!code) code = train(&w, &two_steps);
    if (!code) code = doomed_step(doomed, &w, FATAL_STEP);
    /* One more step, because the last bucket may have been summed before the rank died. */
    if (!code) code = doomed_step(doomed, &w, AFTER_IT);
    return note_end(&doomed->job, &w, code);
}

static struct doomed doom_once(int world, int when, int signal, double timeout_s) {
    struct doomed doomed = {
        .job = job_default(), .when = when, .signal = signal, .killed_ns = share(sizeof(int64_t))};
    struct launch_result result;
    doomed.job.world = world;
    doomed.job.steps = AFTER_IT + 1;
    doomed.job.timeout_s = timeout_s;
    doomed.job.out = share(WORLD_MOST * sizeof *doomed.job.out);
    cr_assert_neq(launch_all(world, run_doomed, &doomed, &result), OK);
    cr_assert_eq(result.exit_status, signal ? 128 + signal : 1, "status %d: %s", result.exit_status,
                 error_message());
    return doomed;
}

static void forget(struct doomed *doomed) {
    munmap(doomed->killed_ns, sizeof(int64_t));
    job_end(&doomed->job);
}

/* The launcher gives the others 0.75 s to end by themselves. Where the machine is too busy for that
 * the job runs again. */
static struct doomed doom(int world, int when, int signal, double timeout_s) {
    for (int tries = 1;; tries++) {
        struct doomed doomed = doom_once(world, when, signal, timeout_s);
        int silent = 0;
        for (int r = 0; r < world; r++)
            silent += r != VICTIM && !doomed.job.out[r].ended_ns;
        if (!silent || tries == 4) return doomed;
        forget(&doomed);
    }
}

static void expect_survivors(struct doomed *doomed, int code, double within_s) {
    for (int r = 0; r < doomed->job.world; r++) {
        const struct rank_out *out = &doomed->job.out[r];
        double heard = (double)(out->ended_ns - *doomed->killed_ns) * 1e-9;
        if (r == VICTIM) continue;
        cr_assert(out->code == code || (code == ERR_TIMEOUT && out->code == ERR_PEER),
                  "case %d, rank %d ended with %d: %s", doomed->when, r, out->code, out->text);
        cr_assert_lt(heard, within_s, "case %d, rank %d heard of it after %.1f s", doomed->when, r,
                     heard);
    }
    forget(doomed);
}

Test(ddp_failure, a_rank_is_killed_in_the_middle_of_a_step, .timeout = 60) {
    for (int world = 2; world <= 3; world++)
        for (int when = 0; when < DEATHS; when++) {
            struct doomed doomed = doom(world, when, SIGKILL, LONG_TIMEOUT_S);
            expect_survivors(&doomed, ERR_PEER, HEARD_WITHIN_S);
        }
}

Test(ddp_failure, a_rank_that_stops_taking_part_is_not_waited_for_longer_than_the_deadline,
     .timeout = 60) {
    const double timeout_s = 3; /* of each wait in the steps before, too */
    struct doomed doomed = doom(3, DIES_BEFORE_BACKWARD, 0, timeout_s);
    int named = 0;
    for (int r = 0; r < 3; r++)
        named += strstr(doomed.job.out[r].text, "rank 1") != NULL;
    cr_assert_gt(named, 0, "nobody names the rank that is missing: %s", doomed.job.out[0].text);
    expect_survivors(&doomed, ERR_TIMEOUT, timeout_s + HEARD_WITHIN_S);
}
