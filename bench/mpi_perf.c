/* Measures sums over several machines and compares them with MPI's own.
 *
 *     mpirun -np 4 --host m0:2,m1:2 -x DUET_BACKEND=mpi build/bench/mpi_perf [SECONDS]
 *
 * For each size from 16 bytes to 16 MiB it prints the microseconds of a call, the median over the
 * rounds of SECONDS (0.3), on the slowest rank. The calls are MPI_Allreduce, a process group's
 * all_reduce, which adds in fold order, and DDP's sums on the communication stream, in fold order
 * and with --allreduce mpi. A round makes each call once, so that other load on the machine affects
 * all of them. Results are checked before they are timed. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "allreduce/allreduce.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/quantile.h"
#include "comm/comm.h"
#include "device/device.h"
#include "group/group.h"

enum { LARGEST = 16 << 20, WAYS = 4, MOST = 2000, LEAST = 5 };

struct bench {
    struct group *group;
    struct device *device;
    struct allreduce *fold, *mpi;
    float *data, *in, *out;
    void *world, *f32, *sum; /* objects of Open MPI */
    int (*allreduce)(const void *, void *, int, void *, void *, void *);
    double times[WAYS][MOST];
};

static int by_object(struct bench *b, struct allreduce *ar, size_t count) {
    CHECK(allreduce_enqueue(ar, device_comm(b->device), b->data, count, 1, -1, -1));
    return stream_sync(device_comm(b->device));
}

static int call(struct bench *b, int way, size_t count) {
    struct group_call sum = {
        .what = COLLECTIVE_ALL_REDUCE, .count = count, .input = b->in, .output = b->out};
    switch (way) {
    case 0:
        return b->allreduce(b->in, b->out, (int)count, b->f32, b->sum, b->world)
                   ? fail(ERR_FAILED, "MPI_Allreduce failed")
                   : OK;
    case 1: return group_run(b->group, &sum, NULL);
    case 2: return by_object(b, b->fold, count);
    default: return by_object(b, b->mpi, count);
    }
}

/* All elements of rank r are r + 1. */
static int check(struct bench *b, int way, size_t count) {
    int n = group_size(b->group);
    const float *out = way > 1 ? b->data : b->out, want = (float)(n * (n + 1) / 2);
    for (size_t i = 0; i < count; i++)
        b->in[i] = b->data[i] = (float)group_rank(b->group) + 1;
    CHECK(call(b, way, count));
    for (size_t i = 0; i < count; i++)
        if (out[i] != want)
            return fail(ERR_CHECK, "way %d: element %zu of %zu: %g", way, i, count, (double)out[i]);
    memset(b->data, 0, count * sizeof *b->data); /* repeated sums would grow */
    return OK;
}

static int largest(struct bench *b, double *x) {
    struct group_call most = {.what = COLLECTIVE_ALL_REDUCE,
                              .count = 1,
                              .how = {DTYPE_F64, ELEMENT_MAX},
                              .input = x,
                              .output = x};
    return group_run(b->group, &most, NULL);
}

static int one_round(struct bench *b, size_t count, int round) {
    for (int way = 0; way < WAYS; way++) {
        int64_t start = now_ns();
        CHECK(call(b, way, count));
        b->times[way][round] = (double)(now_ns() - start) * 1e-3;
    }
    return OK;
}

static int one_size(struct bench *b, size_t count, double seconds) {
    double us[WAYS], all = 0;
    for (int way = 0; way < WAYS; way++)
        CHECK(check(b, way, count));
    CHECK(one_round(b, count, 0));
    for (int way = 0; way < WAYS; way++)
        all += b->times[way][0];
    CHECK(largest(b, &all));
    int rounds = all * MOST < seconds * 1e6 ? MOST : (int)(seconds * 1e6 / all);
    if (rounds < LEAST) rounds = LEAST;
    for (int i = 0; i < rounds; i++)
        CHECK(one_round(b, count, i));
    for (int way = 0; way < WAYS; way++) {
        us[way] = quantile(b->times[way], rounds, 0.5);
        CHECK(largest(b, &us[way]));
    }
    if (group_rank(b->group)) return OK;
    printf("%9zu %6d %10.1f", count * sizeof(float), rounds, us[0]);
    for (int way = 1; way < WAYS; way++)
        printf(" %10.1f %5.2f", us[way], us[way] / us[0]);
    printf("\n");
    return fflush(stdout) ? fail(ERR_FAILED, "stdout: cannot be written") : OK;
}

static int open_object(struct bench *b, struct allreduce **ar, enum allreduce_algorithm by) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = by;
    CHECK(allreduce_init(ar, group_comm(b->group), b->device, &config));
    return allreduce_register(*ar, b->data, LARGEST / sizeof *b->data);
}

static int open_bench(struct bench *b) {
    CHECK(group_open(&b->group, 60));
    if (!comm_is_spread(group_comm(b->group)))
        return fail(ERR_USAGE, "this job runs on one machine: use mpirun -x DUET_BACKEND=mpi ...");
    struct device_config config = {.kind = DEVICE_HOST,
                                   .index = group_rank(b->group),
                                   .rank = group_rank(b->group),
                                   .memory_bytes = 2 * LARGEST};
    b->world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    b->f32 = dlsym(RTLD_DEFAULT, "ompi_mpi_float");
    b->sum = dlsym(RTLD_DEFAULT, "ompi_mpi_op_sum");
    *(void **)&b->allreduce = dlsym(RTLD_DEFAULT, "MPI_Allreduce");
    b->in = malloc(LARGEST);
    b->out = malloc(LARGEST);
    if (!b->in || !b->out || !b->allreduce) return fail(ERR_MEMORY, "no memory, or no MPI");
    CHECK(device_open(&b->device, &config));
    CHECK(device_alloc(b->device, (void **)&b->data, LARGEST, MEM_GRADS));
    CHECK(open_object(b, &b->fold, ALLREDUCE_AUTO));
    return open_object(b, &b->mpi, ALLREDUCE_MPI);
}

int main(int argc, char **argv) {
    static struct bench b;
    double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    int code = open_bench(&b);
    if (!code && !group_rank(b.group))
        printf("%9s %6s %10s %10s ratio %10s ratio %10s ratio\n", "bytes", "rounds", "MPI",
               "all_reduce", "DDP's", "--allr.mpi");
    for (size_t bytes = 16; bytes <= LARGEST && !code; bytes *= 4)
        code = one_size(&b, bytes / sizeof(float), seconds);
    if (code) fprintf(stderr, "mpi_perf: %s\n", error_message());
    allreduce_free(b.fold);
    allreduce_free(b.mpi);
    device_close(b.device);
    if (b.group) group_close(b.group);
    free(b.in);
    free(b.out);
    return error_exit_status(code);
}
