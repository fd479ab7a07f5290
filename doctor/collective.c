/* Allreduce over ranks as DDP runs it: processes, memory mapped from each other, calls on the
 * communication stream. Every algorithm, over 2 and over 4 ranks, against the reference executor
 * (one thread, allreduce/reference.h), which every rank runs for itself over the data of all:
 * equal to the bit.
 *
 * The calls of a trial lie in one buffer with gaps between them, are enqueued one behind the
 * other and waited for once; then all of it again on the results. The gaps must stay as they
 * were. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/allreduce.h"
#include "allreduce/reference.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "doctor/ranks.h"

enum { ROUNDS = 2, MOST_RANKS = 4 };

/* Lengths and starts that fall on no boundary: of 16 bytes, of a slice, of a chunk of n ranks. */
static const struct call {
    size_t offset, count;
} calls[] = {{3, 1}, {8, 5}, {17, 1021}, {1100, 65537}, {66641, 300007}};
_Static_assert((int)ALLREDUCE_ALGORITHM_COUNT <= (int)RANK_TRIALS, "each algorithm is a trial");
enum { CALLS = sizeof calls / sizeof *calls, LENGTH = 66641 + 300007 + 9 };

struct bed {
    struct doctor *d;
    struct comm *comm;
    struct rank_task *task;
    int n, rank, calls;
    int exact, rounds; /* of the algorithm at hand */
    struct device *device;
    float *data;           /* on the device, LENGTH floats */
    float *of[MOST_RANKS]; /* host: every rank's buffer as the reference sees it */
    float *got;            /* host, pinned */
};

static int open_bed(struct bed *bed) {
    CHECK(doctor_open(bed->d, bed->rank, (uint64_t)LENGTH * sizeof(float) + (32 << 20), 0,
                      &bed->device));
    CHECK(device_alloc(bed->device, (void **)&bed->data, LENGTH * sizeof(float), MEM_GRADS));
    CHECK(device_host_alloc(bed->device, (void **)&bed->got, LENGTH * sizeof(float)));
    for (int r = 0; r < bed->n; r++)
        if (!(bed->of[r] = malloc(LENGTH * sizeof(float))))
            return fail(ERR_MEMORY, "doctor: no host memory for the data of %d ranks: free some",
                        bed->n);
    return OK;
}

static int fill(struct bed *bed, enum allreduce_algorithm algorithm) {
    struct stream *stream = device_comm(bed->device);
    struct rng rng;
    for (int r = 0; r < bed->n; r++) {
        rng_seed(&rng, bed->d->config.seed + 100 * (uint64_t)algorithm + (uint64_t)r);
        rng_uniform(&rng, bed->of[r], LENGTH, -1, 1);
    }
    memcpy(bed->got, bed->of[bed->rank], LENGTH * sizeof(float));
    CHECK(copy_to_device(stream, bed->data, bed->got, LENGTH * sizeof(float)));
    return stream_sync(stream);
}

static int run(struct bed *bed, struct allreduce *ar, double *ms) {
    struct stream *stream = device_comm(bed->device);
    int64_t start = now_ns();
    for (int round = 0; round < bed->rounds; round++)
        for (int i = 0; i < bed->calls; i++)
            CHECK(allreduce_enqueue(ar, stream, bed->data + calls[i].offset, calls[i].count,
                                    1.0f / (float)bed->n, i, round));
    CHECK(stream_sync(stream));
    *ms = (double)(now_ns() - start) * 1e-6;
    memset(bed->got, 0xff, LENGTH * sizeof(float));
    CHECK(copy_to_host(stream, bed->got, bed->data, LENGTH * sizeof(float)));
    return stream_sync(stream);
}

static int run_reference(struct bed *bed, enum allreduce_algorithm algorithm,
                         const struct plan_config *config) {
    for (int round = 0; round < bed->rounds; round++)
        for (int i = 0; i < bed->calls; i++) {
            float *data[MOST_RANKS];
            for (int r = 0; r < bed->n; r++)
                data[r] = bed->of[r] + calls[i].offset;
            CHECK(reference_allreduce(algorithm, bed->n, calls[i].count, config, data,
                                      1.0f / (float)bed->n));
        }
    return OK;
}

/* Terms are at most 1 / n, n of them: a sum in any order is off by at most n + 1 roundings of 1. */
static double allowed(const struct bed *bed) {
    return bed->exact ? 0 : (bed->n + 1) * 0x1p-24;
}

static void judge(struct bed *bed, enum allreduce_algorithm algorithm, const char *executor,
                  double ms) {
    const float *want = bed->of[bed->rank];
    size_t wrong = 0, first = 0;
    double most = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        if (!memcmp(&bed->got[i], &want[i], sizeof *want)) continue;
        double off = fabs((double)bed->got[i] - (double)want[i]);
        if (off > most) most = off;
        if (!(off <= allowed(bed)) && wrong++ == 0) first = i;
    }
    if (wrong)
        rank_say(bed->comm, bed->task, (int)algorithm, FINDING_OFF,
                 "rank %d: %zu of %d elements differ, first element %zu: %.9g, not %.9g", bed->rank,
                 wrong, LENGTH, first, (double)bed->got[first], (double)want[first]);
    else if (bed->exact)
        rank_say(bed->comm, bed->task, (int)algorithm, FINDING_OK,
                 "%s: %d calls, 1 to %zu elements: equal; %.2f ms", executor,
                 bed->rounds * bed->calls, calls[bed->calls - 1].count, ms);
    else
        rank_say(bed->comm, bed->task, (int)algorithm, FINDING_OK,
                 "%s: %d calls: off by %.1e, of %.1e for %d terms in any order; %.2f ms", executor,
                 bed->calls, most, allowed(bed), bed->n, ms);
}

static int trial(struct bed *bed, enum allreduce_algorithm algorithm) {
    struct allreduce_config config = allreduce_config_default();
    struct allreduce *ar = NULL;
    double ms = 0;
    config.algorithm = algorithm;
    bed->exact = allreduce_has_plan(algorithm);
    /* what a library adds up has no order that could be told */
    bed->rounds = bed->exact ? ROUNDS : 1;
    CHECK(fill(bed, algorithm));
    int code = allreduce_init(&ar, bed->comm, bed->device, &config);
    if (code == ERR_USAGE) { /* not for these ranks: all of them were told the same */
        rank_say(bed->comm, bed->task, (int)algorithm, FINDING_NOT_HERE, "%s", error_message());
        return OK;
    }
    if (!code) code = allreduce_register(ar, bed->data, LENGTH);
    if (!code) code = run(bed, ar, &ms);
    if (!code) code = run_reference(bed, bed->exact ? algorithm : ALLREDUCE_DIRECT, &config.plan);
    if (!code) judge(bed, algorithm, allreduce_executor_name(ar), ms);
    allreduce_free(ar);
    return code;
}

int allreduce_rank(struct doctor *d, struct comm *comm, struct rank_task *task) {
    struct bed bed = {
        .d = d, .comm = comm, .task = task, .n = comm_world_size(comm), .rank = comm_rank(comm)};
    bed.calls = d->config.quick ? CALLS - 1 : CALLS;
    d->devices = bed.n;
    int code = open_bed(&bed);
    for (int a = task->first; a < ALLREDUCE_ALGORITHM_COUNT && !code; a++)
        if (a != ALLREDUCE_AUTO) code = trial(&bed, (enum allreduce_algorithm)a);
    for (int r = 0; r < bed.n; r++)
        free(bed.of[r]);
    if (bed.device) device_host_free(bed.device, bed.got);
    device_close(bed.device);
    return code;
}

/* ---- the check's side ---- */

/* The word of the first rank that is not content, or of rank 0; NULL: some rank has not come so
 * far. */
static const struct rank_word *worst(const struct rank_task *task, int n, int trial) {
    const struct rank_word *word = &task->said[trial][0];
    for (int r = 0; r < n; r++) {
        if (!task->said[trial][r].done) return NULL;
        if (word->state == FINDING_OK) word = &task->said[trial][r];
    }
    return word;
}

/* Ranks that fail end their job; the next begins behind the algorithm they failed in. A launch
 * is a step of the check, numbered by world and algorithm. */
static int one_world(struct doctor *d, int world, int n, int first) {
    static const char bound[] = "equal to the one-thread reference";
    struct rank_task *task = rank_task_new(d, WORK_ALLREDUCE);
    if (!task) return fail(ERR_MEMORY, "doctor: no memory to share with ranks: free some");
    for (int a = first; a < ALLREDUCE_ALGORITHM_COUNT;) {
        doctor_step(d, world * ALLREDUCE_ALGORITHM_COUNT + a, "%s: allreduce, %d ranks",
                    doctor_kind_name(d), n);
        task->first = a;
        int code = ranks_run(d, n, task), stopped = 0;
        for (; a < ALLREDUCE_ALGORITHM_COUNT && !stopped; a++) {
            const struct rank_word *word = worst(task, n, a);
            char name[48];
            snprintf(name, sizeof name, "%s: allreduce %s, %d ranks", doctor_kind_name(d),
                     allreduce_algorithm_name((enum allreduce_algorithm)a), n);
            stopped = !word;
            if (word)
                note(d, word->state, name, word->state == FINDING_NOT_HERE ? "" : bound, "%s",
                     word->text);
            else
                note(d, FINDING_OFF, name, bound, "%s",
                     code ? error_message() : "ended without a word");
        }
    }
    rank_task_free(task);
    return OK;
}

int check_allreduce(struct doctor *d, int first) {
    static const int worlds[] = {2, MOST_RANKS};
    int world = first / ALLREDUCE_ALGORITHM_COUNT, a = first % ALLREDUCE_ALGORITHM_COUNT;
    for (; world < 2; world++, a = 0)
        CHECK(one_world(d, world, worlds[world], a > ALLREDUCE_AUTO ? a : ALLREDUCE_AUTO + 1));
    return OK;
}
