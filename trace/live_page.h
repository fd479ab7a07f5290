/* The live page: what a run shows of itself while it goes on (--live).
 *
 * A page is a memory file that the launcher and all ranks of its jobs map. Each number has one
 * writer: rank 0 writes what concerns the whole run, and the process of a device what concerns that
 * device. Writing is a few stores, without a lock or a system call, so that it costs a step
 * next to nothing; the launcher reads whenever it likes.
 *
 * A group of numbers that belong together has a version, which is odd while they are written. A
 * reader takes a copy and tries again if the version has changed or was odd. Losses lie in a ring:
 * `losses` says how many have been written, and is stored behind them. */
#ifndef TRACE_LIVE_PAGE_H
#define TRACE_LIVE_PAGE_H

#include "trace/ledger.h"
#include "trace/mode.h"
#include "trace/span.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LIVE_RUNS = 4,      /* of one command: compare has three */
    LIVE_LOSSES = 4096, /* in the ring */
    LIVE_EPOCHS = 256   /* in the ring of accuracies */
};

enum live_state { LIVE_NONE, LIVE_TRAINING, LIVE_EVALUATING, LIVE_DONE };

/* One device, as measured (trace/record.h has the same numbers). */
struct live_device {
    uint32_t version;
    int64_t trained_ns; /* time of training in which what follows was measured */
    uint64_t memory, memory_peak, capacity;
    int64_t busy_ns, wait_ns, comm_ns, no_core_ns, phase_ns[PHASE_COUNT]; /* since the start */
};

/* What does not change during a run. */
struct live_facts {
    enum run_mode mode;
    char title[40]; /* "DP, loss in forward" */
    char model[64], dataset[64], kind[16];
    int devices, batch_size, first_step, last_step, steps_per_epoch, epochs;
};

/* How far it has come, as rank 0 knows it. */
struct live_progress {
    uint32_t version;
    enum live_state state;
    int32_t step;   /* steps done, of which the host has read the losses */
    int32_t epochs; /* epochs evaluated */
    int64_t images;
    double seconds;                  /* of training, in which those images were trained on */
    double last_loss, last_accuracy; /* accuracy -1: none yet */
    double last_valid_loss;          /* of that evaluation */
};

struct live_run {
    uint32_t begun; /* 1: the facts are there */
    struct live_facts facts;
    struct live_progress progress;
    int32_t enqueued; /* steps begun: stored at every step */
    uint64_t losses;  /* written so far; loss i is in loss[i % LIVE_LOSSES] */
    double loss[LIVE_LOSSES];
    struct {
        int32_t step; /* at the end of the epoch */
        double accuracy;
    } epoch[LIVE_EPOCHS]; /* of epoch i in [i % LIVE_EPOCHS], for progress.epochs of them */
    struct live_device device[MAX_DEVICES];
};

struct live_page {
    struct live_run run[LIVE_RUNS];
};

/* Maps the page in file `fd`, for reading alone where writable is 0. ERR_FAILED: it is no such
 * file. */
int live_page_map(struct live_page **page, int fd, int writable);
void live_page_unmap(struct live_page *page); /* NULL is fine */

/* The writers of a version: live_write_begin, stores with __ATOMIC_RELEASE, so that none of them
 * comes before it, live_write_end. */
static inline void live_write_begin(uint32_t *version) {
    __atomic_store_n(version, *version + 1, __ATOMIC_RELAXED);
}
static inline void live_write_end(uint32_t *version) {
    __atomic_store_n(version, *version + 1, __ATOMIC_RELEASE);
}

/* Copies what the version guards. Returns 0 where a writer was in between again and again: then
 * *copy is undefined. The first member of both structs is the version. */
int live_read_device(struct live_device *copy, const struct live_device *device);
int live_read_progress(struct live_progress *copy, const struct live_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
