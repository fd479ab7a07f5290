/* DDP on GPUs whose steps are recorded: a replay launches the same buckets as a plain step, also
 * where they wait for the end of backward; and a replica that was recorded before it had a ddp, or
 * is used after one, records anew.
 *
 * Skipped where no GPU opens; in the build with EMULATION=1 one does. */
#include <sys/wait.h>

#include "tests/ddp/job.h"

enum {
    STEPS = 8,
    ALONE = 5
}; /* steps of one shape: plain three times, then recorded, then replayed */

/* Asks in a process of its own: ranks are forked from this one, and CUDA does not work in a fork of
 * a process that has called it. */
static void need_gpu(void) {
    int count, status = 1;
    setenv("EMULATED_GPUS", "1", 1);
    pid_t asked = fork();
    if (asked == 0) _exit(device_probe(DEVICE_CUDA, &count) != OK);
    waitpid(asked, &status, 0);
    if (status) cr_skip_test("no GPU opens here");
}

static struct job recorded_job(int graph) {
    struct job job = job_default();
    job.kind = DEVICE_CUDA;
    job.memory = 160 << 20;
    job.steps = STEPS;
    job.graph = graph;
    job.timeout_s = 60;
    return job;
}

static void run_job(struct job *job, int (*entry)(void *)) {
    struct launch_result result;
    cr_assert_eq(job_run(job, entry, &result), OK, "%s", error_message());
}

/* Every value and reduced gradient of every step is the same on both ranks, plain and recorded. */
static void same_either_way(int no_overlap, int (*entry)(void *)) {
    struct job plain = recorded_job(0), recorded = recorded_job(1);
    plain.config.no_overlap = recorded.config.no_overlap = no_overlap;
    run_job(&plain, entry);
    run_job(&recorded, entry);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < STEPS; s++)
            cr_expect_arr_eq(plain.out[r].hashes[s], recorded.out[r].hashes[s],
                             sizeof plain.out[r].hashes[s], "rank %d, step %d", r, s);
    for (int s = 0; s < STEPS; s++)
        cr_expect_arr_eq(recorded.out[0].hashes[s], recorded.out[1].hashes[s],
                         sizeof recorded.out[0].hashes[s], "the ranks differ at step %d", s);
    job_end(&plain);
    job_end(&recorded);
}

/* Also notes that the last steps were replays. */
static int run_and_look(void *context) {
    const struct job *job = context;
    struct worker w;
    int code = worker_open(&w, job);
    if (!code) code = train(&w, job);
    if (!code && job->graph && w.replica.recorded.stage != STAGE_REPLAYED)
        code = fail(ERR_FAILED, "nothing was replayed");
    return note_end(job, &w, code);
}

Test(cuda_recorded_ddp, overlapped, .timeout = 120) {
    need_gpu();
    same_either_way(0, run_and_look);
}

Test(cuda_recorded_ddp, buckets_that_wait_for_the_end_of_backward, .timeout = 120) {
    need_gpu();
    same_either_way(1, run_and_look);
}

/* Trains steps of this rank alone, into row 0 of its logs. */
static int train_alone(struct worker *w, const struct job *job, int rank) {
    for (int i = 0; i < ALONE; i++) {
        struct step_block block = step_of(job, 0);
        struct batch batch = {.pixels = w->pixels, .labels = w->labels};
        draw_share(job, 0, rank, job->world, w->pixels, w->labels, &batch.segments);
        CHECK(replica_write_step(&w->replica, &block));
        CHECK(replica_load(&w->replica, &batch));
        CHECK(replica_step(&w->replica, &batch.segments));
        if (i == 0 && w->replica.recorded.stage != STAGE_PLAIN)
            return fail(ERR_FAILED, "a recording holds events of a ddp that is gone");
        CHECK(stream_sync(device_compute(w->device)));
    }
    if (job->graph && w->replica.recorded.stage != STAGE_REPLAYED)
        return fail(ERR_FAILED, "alone: nothing was replayed");
    return OK;
}

static int before_and_behind(void *context) {
    const struct job *job = context;
    struct comm_options options = {.timeout_s = job->timeout_s};
    struct worker w = {0};
    int rank = atoi(getenv("RANK")), code = comm_open(&w.comm, &options);
    if (!code) code = worker_model(&w, job, rank);
    if (!code) code = train_alone(&w, job, rank);
    if (code) comm_abort(w.comm, code, error_message());
    if (!code) code = ddp_init(&w.ddp, w.comm, w.replica.params, NULL, &job->config);
    if (!code) code = train(&w, job);
    if (!code) {
        worker_free_ddp(&w);
        code = train_alone(&w, job, rank);
        comm_abort(w.comm, code, error_message());
    }
    return note_end(job, &w, code);
}

Test(cuda_recorded_ddp, recorded_before_and_behind_it, .timeout = 120) {
    need_gpu();
    same_either_way(0, before_and_behind);
}
