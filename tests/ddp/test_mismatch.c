/* Ranks that misbehave: one makes a different call than its peers, or one call fewer. Every such
 * job ends with an error that names ranks and calls, at once or at the deadline. None continues
 * with wrong sums. */
#include "tests/ddp/job.h"

#define WORDS "Detected mismatch between collectives on ranks. Rank "
#define DEADLINE_S 2 /* of the waits that have to end */

/* Runs a job that must fail within `within_s`. Its error text is that of the launcher. */
static void run_badly(struct job *job, int (*entry)(void *context), double within_s) {
    struct launch_result result;
    int64_t start = now_ns();
    int code = job_run(job, entry, &result);
    double took = (double)(now_ns() - start) * 1e-9;
    cr_assert_neq(code, OK, "the job ended well");
    cr_assert_eq(result.exit_status, 1, "status %d: %s", result.exit_status, error_message());
    cr_assert_lt(took, within_s, "it took %.1f s: %s", took, error_message());
}

/* The error names two ranks and the call of each. */
static void expect_both(const char *text, const char *one, const char *other) {
    cr_assert(strstr(text, WORDS) && strstr(text, one) && strstr(text, other), "%s", text);
}

/* ---- under DDP ---- */

static int run_with_other_buckets(void *context) {
    struct job job = *(const struct job *)context;
    if (atoi(getenv("RANK")) == 1) job.config.bucket_cap_mb = 25;
    return run_rank(&job);
}

/* Rank 1 rebuilds other buckets: it sums all 3 layers at once, its peers one. */
Test(ddp_mismatch, another_count, .timeout = 60) {
    struct job job = job_default();
    job.world = 3;
    run_badly(&job, run_with_other_buckets, 20);
    expect_both(error_message(),
                "Rank 1 is running collective: ALLREDUCE bucket 0 step 1, 52736 elements from "
                "element 0, ",
                "running collective: ALLREDUCE bucket 0 step 1, 384 elements from element 0, ");
    job_end(&job);
}

/* ---- bare calls ---- */

enum { COUNT = 4096, CALLS = 4, ODD_CALL = 2, ODD_RANK = 1 };
enum mischief {
    SKIPS,
    HANGS,
    LEAVES,
    COUNTS_ONE_MORE,
    STARTS_ELSEWHERE,
    MEETS,
    GATHERS,
    MISCHIEFS
};

struct bare {
    struct job job;
    enum mischief mischief;
};

/* Call number i of the odd rank, which is none or another one. */
static int odd_call(const struct bare *b, struct comm *comm, struct allreduce *ar,
                    struct stream *stream, float *data, int i) {
    char byte = 0, all[WORLD_MOST];
    switch (b->mischief) {
    case SKIPS: return OK;
    case HANGS: return sleep(4 * DEADLINE_S), comm_check(comm);
    case LEAVES: CHECK(stream_sync(stream)); return fail(ERR_USAGE, "it leaves");
    case COUNTS_ONE_MORE: return allreduce_enqueue(ar, stream, data, COUNT + 1, 1, -1, i);
    case STARTS_ELSEWHERE: return allreduce_enqueue(ar, stream, data + 64, COUNT, 1, -1, i);
    case MEETS: return comm_barrier(comm, "a meeting");
    case GATHERS: return comm_gather(comm, &byte, 1, all);
    case MISCHIEFS: break;
    }
    return OK;
}

static int make_calls(const struct bare *b, struct comm *comm, struct device *device,
                      struct allreduce *ar, float *data) {
    struct stream *stream = device_comm(device);
    CHECK(allreduce_register(ar, data, 2 * COUNT));
    for (int i = 0; i < CALLS; i++)
        if (comm_rank(comm) == ODD_RANK && i == ODD_CALL)
            CHECK(odd_call(b, comm, ar, stream, data, i));
        else
            CHECK(allreduce_enqueue(ar, stream, data, COUNT, 1, -1, i));
    return stream_sync(stream);
}

static int run_bare(void *context) {
    const struct bare *b = context;
    struct comm_options options = {.timeout_s = DEADLINE_S};
    struct device_config config = {.memory_bytes = 16 << 20, .timeout_s = 20};
    struct comm *comm = NULL;
    struct device *device = NULL;
    struct allreduce *ar = NULL;
    float *data = NULL;
    int code = comm_open(&comm, &options);
    config.index = config.rank = atoi(getenv("RANK"));
    if (!code) code = device_open(&device, &config);
    if (!code) code = device_alloc(device, (void **)&data, 2 * COUNT * sizeof *data, MEM_GRADS);
    if (!code) code = allreduce_init(&ar, comm, device, NULL);
    if (!code) code = make_calls(b, comm, device, ar, data);
    struct rank_out *out = &b->job.out[config.rank];
    snprintf(out->text, sizeof out->text, "%s", code ? error_message() : "");
    if (code != ERR_USAGE) comm_abort(comm, code, error_message());
    if (code == ERR_USAGE) { /* it leaves as if all were well */
        comm_close(comm);
        _exit(0);
    }
    allreduce_free(ar);
    device_free(device, data);
    device_close(device);
    comm_close(comm);
    return error_exit_status(code);
}

static void misbehave(enum mischief mischief, const char *one, const char *other) {
    struct bare bare = {.job = {.world = 3}, .mischief = mischief};
    struct launch_result result;
    bare.job.out = share(WORLD_MOST * sizeof *bare.job.out);
    int64_t start = now_ns();
    int code = launch_all(3, run_bare, &bare, &result);
    double took = (double)(now_ns() - start) * 1e-9;
    cr_assert_neq(code, OK, "mischief %d: the job ended well", mischief);
    cr_assert_lt(took, 20.0, "mischief %d took %.1f s", mischief, took);
    cr_assert(strstr(error_message(), one) && strstr(error_message(), other), "mischief %d: %s",
              mischief, error_message());
    job_end(&bare.job);
}

#define RIGHT "running collective: ALLREDUCE step 2, 4096 elements from element 0, "
#define ODD "Rank 1 is running collective: "

Test(ddp_mismatch, every_mischief_ends_with_the_names_of_both, .timeout = 120) {
    misbehave(SKIPS, ODD "ALLREDUCE step 3, 4096 elements from element 0, ", RIGHT);
    misbehave(COUNTS_ONE_MORE, ODD "ALLREDUCE step 2, 4097 elements from element 0, ", RIGHT);
    misbehave(STARTS_ELSEWHERE, ODD "ALLREDUCE step 2, 4096 elements from element 64, ", RIGHT);
    misbehave(MEETS, ODD "BARRIER (a meeting)", RIGHT);
    misbehave(GATHERS, ODD "ALLGATHER", RIGHT);
}

/* A rank that makes no call is named at the deadline, and one that left is named at once. */
Test(ddp_mismatch, a_rank_that_makes_no_call, .timeout = 60) {
    misbehave(HANGS, "allreduce step 2", "no word from rank 1 after 2 s");
    misbehave(LEAVES, "allreduce step 2", "rank 1 has left");
}
