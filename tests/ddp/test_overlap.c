/* The spans show the use of buckets: an allreduce begins while backward still computes. In the
 * first step, with its one bucket, it cannot. */
#include "tests/ddp/job.h"

#include <stdatomic.h>

#include "device/table.h"

/* ---- a communication stream that is never late ----
 * On a busy machine its thread may get no core before backward has ended. So backward waits for it
 * here: after a bucket has been launched, the next kernel begins only when the allreduce of that
 * bucket has begun. A bucket launched after the last kernel delays nothing. */

static const struct device_ops *honest;
static struct device_ops patient;
static atomic_int left, begun; /* allreduces; relaxed, to hide no race from ThreadSanitizer */

struct noted {
    host_function *function;
    _Alignas(16) unsigned char args[256];
};

static int note_begin(void *args) { /* its span has begun */
    struct noted *noted = args;
    atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
    return noted->function(noted->args);
}

static int patient_call(struct stream *stream, const char *span_name, uint64_t span_bytes,
                        host_function *function, const void *args, size_t args_bytes) {
    struct noted noted = {.function = function};
    if (args_bytes > sizeof noted.args)
        return fail(ERR_CHECK, "%s: %zu bytes of arguments", span_name, args_bytes);
    memcpy(noted.args, args, args_bytes);
    CHECK(honest->call_host(stream, span_name, span_bytes, note_begin, &noted, sizeof noted));
    atomic_fetch_add_explicit(&left, 1, memory_order_relaxed);
    return OK;
}

static int patient_launch(struct stream *stream, enum op op, const struct op_args *args) {
    int64_t deadline = deadline_after(20);
    while (atomic_load_explicit(&begun, memory_order_relaxed) <
           atomic_load_explicit(&left, memory_order_relaxed)) {
        if (now_ns() > deadline)
            return fail(ERR_CHECK,
                        "a bucket has left, and its allreduce does not begin during backward");
        usleep(100);
    }
    return honest->launch(stream, op, args);
}

static int wait_for_comm(const struct job *job, struct device *device, int rank) {
    (void)job, (void)rank;
    honest = device->ops;
    patient = *honest;
    patient.call_host = patient_call;
    patient.launch = patient_launch;
    device->ops = &patient;
    return OK;
}

/* ---- what the spans show ---- */

/* One step of a rank: when its first allreduce began and when the last kernel of backward ended. */
struct moment {
    int64_t allreduce_began, backward_ended;
    int buckets;
};

struct watched {
    struct job job;
    struct moment *moments; /* [world][steps], shared */
};

static void look_at(const struct span_log *log, const struct job *job, struct moment *moments) {
    for (size_t i = 0; i < log->count; i++) {
        const struct span *span = &log->spans[i];
        if (span->waiting || span->step < 0 || span->step >= job->steps) continue;
        struct moment *moment = &moments[span->step];
        if (span->phase == PHASE_BACKWARD && span->lane == LANE_COMPUTE &&
            span->end_ns > moment->backward_ended)
            moment->backward_ended = span->end_ns;
        if (span->phase != PHASE_ALLREDUCE || span->lane != LANE_COMM) continue;
        if (!moment->allreduce_began || span->start_ns < moment->allreduce_began)
            moment->allreduce_began = span->start_ns;
        moment->buckets++;
    }
}

static int run_watched(void *context) {
    const struct watched *watched = context;
    const struct job *job = &watched->job;
    struct worker w;
    int code = worker_open(&w, job);
    if (!code) code = train(&w, job);
    if (!code) code = stream_sync(device_comm(w.device));
    if (!code) {
        struct moment *mine = watched->moments + comm_rank(w.comm) * job->steps;
        look_at(stream_spans(device_compute(w.device)), job, mine);
        look_at(stream_spans(device_comm(w.device)), job, mine);
    }
    return note_end(job, &w, code);
}

static struct watched watch(const struct job *job) {
    struct watched watched = {.job = *job};
    watched.job.spans = 1;
    watched.moments = share((size_t)(job->world * job->steps) * sizeof *watched.moments);
    watched.job.out = share(WORLD_MOST * sizeof *job->out);
    struct launch_result result;
    cr_assert_eq(launch_all(job->world, run_watched, &watched, &result), OK, "%s", error_message());
    return watched;
}

/* In each step after the first an allreduce begins before backward ends; in the first, with its
 * one bucket, it cannot. */
static void expect_overlap(const struct watched *watched, int buckets) {
    const struct job *job = &watched->job;
    for (int r = 0; r < job->world; r++) {
        const struct moment *moments = watched->moments + r * job->steps;
        cr_assert_eq(moments[0].buckets, 1, "the first step has %d buckets", moments[0].buckets);
        cr_assert_geq(moments[0].allreduce_began, moments[0].backward_ended,
                      "one bucket, yet its allreduce began before backward ended");
        for (int s = 1; s < job->steps; s++) {
            cr_assert_eq(moments[s].buckets, buckets, "rank %d, step %d: %d buckets", r, s,
                         moments[s].buckets);
            cr_assert_lt(moments[s].allreduce_began, moments[s].backward_ended,
                         "rank %d, step %d: no allreduce began before backward ended", r, s);
        }
    }
}

static void end_watch(struct watched *watched) {
    munmap(watched->moments,
           (size_t)(watched->job.world * watched->job.steps) * sizeof *watched->moments);
    job_end(&watched->job);
}

static struct job lenet_job(void) {
    struct job job = job_default();
    job.model = "lenet";
    job.steps = test_short() ? 4 : STEPS_MOST;
    job.batch = test_short() ? 32 : 128;
    job.config = ddp_config_default();
    job.config.bucket_cap_mb = 0.1;
    return job;
}

Test(ddp_overlap, lenet_with_a_cap_of_a_tenth, .timeout = 60) {
    struct job job = lenet_job();
    job.before_ddp = wait_for_comm;
    struct watched watched = watch(&job);
    expect_overlap(&watched, 2);
    cr_assert_str_eq(watched.job.out[0].sizes[1], "415272, 101000", "%s",
                     watched.job.out[0].sizes[1]);
    end_watch(&watched);
}

Test(ddp_overlap, lenet_fits_the_default_bucket, .timeout = 60) {
    struct job job = lenet_job();
    job.config.bucket_cap_mb = -1;
    struct watched watched = watch(&job);
    for (int s = 0; s < job.steps; s++) {
        cr_assert_eq(watched.moments[s].buckets, 1);
        cr_assert_geq(watched.moments[s].allreduce_began, watched.moments[s].backward_ended);
    }
    end_watch(&watched);
}

Test(ddp_overlap, none_when_it_is_switched_off, .timeout = 60) {
    struct job job = lenet_job();
    job.config.no_overlap = 1;
    struct watched watched = watch(&job);
    for (int s = 0; s < job.steps; s++) {
        cr_assert_eq(watched.moments[s].buckets, s ? 2 : 1);
        cr_assert_geq(watched.moments[s].allreduce_began, watched.moments[s].backward_ended);
    }
    end_watch(&watched);
}

/* 784 x 2800 + 2800 x 2800 + 2800 x 10 and the biases: 10,068,810 parameters, 38 MiB of
 * gradients. */
Test(ddp_overlap, mlp_of_ten_million, .timeout = 120) {
    struct job job = job_default();
    job.hidden[0] = 2800;
    job.hidden[1] = 2800;
    job.batch = 8;
    job.steps = 4;
    job.memory = 256 << 20;
    job.config = ddp_config_default();
    job.before_ddp = wait_for_comm;
    struct watched watched = watch(&job);
    expect_overlap(&watched, 2);
    end_watch(&watched);
}
