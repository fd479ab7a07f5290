/* Jobs for the tests of allreduce/: real processes, and one page that ranks and test share. */
#ifndef TESTS_ALLREDUCE_SHARED_H
#define TESTS_ALLREDUCE_SHARED_H

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allreduce/allreduce.h"
#include "tests/allreduce/reference.h"
#include "base/clock.h"
#include "base/error.h"
#include "tests/harness/ranks.h"

static const enum allreduce_algorithm algorithms[] = {ALLREDUCE_NAIVE,  ALLREDUCE_ONESHOT,
                                                      ALLREDUCE_DIRECT, ALLREDUCE_RING,
                                                      ALLREDUCE_TREE,   ALLREDUCE_FUSED};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* What ranks tell the test. */
struct page {
    int pid[MAX_DEVICES], code[MAX_DEVICES];
    int64_t ended_ns[MAX_DEVICES]; /* when the failure was known */
    char text[MAX_DEVICES][600];
    int calls[MAX_DEVICES]; /* calls finished so far; atomic */
    int64_t hit_ns;         /* when a rank was killed or stopped; atomic */
};

struct job {
    struct page *page;
    enum device_kind kind;
    enum allreduce_algorithm algorithm;
    double timeout_s, free_s; /* free_s: how long freeing may take after a failure */
    int victim, signal;
};

struct rank {
    struct job *job;
    struct comm *comm;
    struct device *device;
    int n, rank;
    float *data; /* device memory */
    size_t count;
};

static inline int job_failed(void *comm) {
    return comm_check(comm);
}

/* Joins the job, opens a device, takes `count` floats on it. A GPU's waits end with the job, as
 * training's do. */
static inline int rank_open(struct rank *r, struct job *job, size_t count) {
    struct comm_options options = {.timeout_s = job->timeout_s};
    memset(r, 0, sizeof *r);
    r->job = job;
    CHECK(comm_open(&r->comm, &options));
    r->n = comm_world_size(r->comm);
    r->rank = comm_rank(r->comm);
    r->count = count;
    job->page->pid[r->rank] = (int)getpid();
    int gpu = job->kind == DEVICE_CUDA;
    struct device_config config = {.kind = job->kind,
                                   .index = r->rank,
                                   .rank = r->rank,
                                   .devices = r->n,
                                   .memory_bytes =
                                       count * sizeof(float) + (gpu ? 128 << 20 : 8 << 20),
                                   .interrupted = gpu ? job_failed : NULL,
                                   .interrupt_context = r->comm,
                                   .check_operands = 1,
                                   .spans = 1,
                                   .timeout_s = job->timeout_s > 0 ? 2 * job->timeout_s : 60};
    CHECK(device_open(&r->device, &config));
    return device_alloc(r->device, (void **)&r->data, (count ? count : 1) * sizeof(float),
                        MEM_GRADS);
}

/* Ends as a program's main does: reports a failure to the job and to the page. Returns the exit
 * status. */
static inline int rank_close(struct rank *r, int code) {
    struct page *page = r->job->page;
    if (r->comm) {
        page->code[r->rank] = code;
        page->ended_ns[r->rank] = now_ns();
        if (code) snprintf(page->text[r->rank], sizeof page->text[0], "%s", error_message());
        if (code) comm_abort(r->comm, code, page->text[r->rank]);
    }
    device_close(r->device);
    comm_close(r->comm);
    return rank_status(code);
}

/* The input of a rank: integers below 1000, exact in any order; or values of very different size
 * and both signs. */
static inline float input(int seed, int rank, size_t i, int integers) {
    uint64_t x =
        ((uint64_t)seed * 64 + (uint64_t)rank + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 29;
    float whole = (float)((int)(x >> 40) % 2001 - 1000);
    return integers ? whole : whole * 1.2345e-3f * (float)(1 << (x & 15));
}

#endif
