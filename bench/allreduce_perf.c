/* Measures how fast an allreduce is on this machine. The flags (allreduce_options.h) and columns
 * are those of nccl-tests, so the figures can be compared directly.
 *
 * `time` is the time of one call: n calls are enqueued at once and waited for together, and the
 * slowest rank counts. p50 and p99 are quantiles of single calls on rank 0's stream. They come from
 * n further calls, because the events that time each call cost time themselves. algbw = size /
 * time, busbw = algbw 2(n-1)/n. `wrong` counts the elements, over all ranks, that are not the exact
 * sum: each algorithm and size is checked before it is timed.
 *
 * `copy` is a yardstick. An allreduce in shared memory must move at least 2 n size bytes: it reads
 * each input once and writes each output once. The column is the time in which memcpy moves the
 * same number of bytes, in the same run, on the same buffer, with as many cores. It is no lower
 * bound: direct writes to memory that it has just read, while memcpy must first fetch its target.
 * On GPUs it is a copy inside the device, on all GPUs in use. If ranks share one GPU, no rank has
 * its own link, and busbw means nothing.
 *
 * If the machine has enough cores, each rank's communication thread is bound to one (-p 0: not).
 * Without this, the kernel tends to put threads that wake each other on one core. Each then sleeps
 * while the other works, so that core never looks busy enough to separate them: a call takes 20 us
 * instead of 1. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/allreduce.h"
#include "base/clock.h"
#include "base/error.h"
#include "bench/allreduce_options.h"
#include "bench/quantile.h"
#include "comm/launch.h"
#include "doctor/cuda/gpu.h"

/* Runs in the communication thread of rank *args: binds it to the core of that number among those
 * that are allowed. */
static int bind_to_core(void *args) {
    cpu_set_t allowed, one;
    int left = *(int *)args;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return OK; /* a failure only costs speed */
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && left-- == 0) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return OK;
}

/* ---- one size ---- */

struct rank {
    const struct options *options;
    struct comm *comm;
    struct device *device;
    struct allreduce *ar;
    float *data; /* device memory */
    float *host; /* pinned host memory, copied to and from `data` */
    int n, rank;
};

/* Small integers: every sum of them, and a 1/n of it for n a power of two, is exact. */
static float input(int rank, size_t i) {
    return (float)((i * 7 + (size_t)rank * 13) % 64) * 64;
}

static int call(struct rank *r, size_t count, float scale) {
    return allreduce_enqueue(r->ar, device_comm(r->device), r->data, count, scale, -1, -1);
}

static int count_wrong(struct rank *r, size_t count, float scale, uint64_t *wrong) {
    uint64_t mine = 0, all[MAX_DEVICES];
    struct stream *stream = device_comm(r->device);
    for (size_t i = 0; i < count; i++)
        r->host[i] = input(r->rank, i);
    CHECK(copy_to_device(stream, r->data, r->host, count * sizeof(float)));
    CHECK(stream_sync(stream));
    CHECK(call(r, count, scale));
    CHECK(copy_to_host(stream, r->host, r->data, count * sizeof(float)));
    CHECK(stream_sync(stream));
    for (size_t i = 0; i < count; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < r->n; k++) {
            sum += (double)input(k, i) * scale;
            size += (double)input(k, i) * scale;
        }
        double bound =
            /* each product and each sum rounds once */
            scale == 1 ? 0 : (r->n + 1) * size / (1 << 24);
        double off = r->host[i] - sum;
        mine += !(off <= bound && off >= -bound);
    }
    CHECK(comm_gather(r->comm, &mine, sizeof mine, all));
    *wrong = 0;
    for (int k = 0; k < r->n; k++)
        *wrong += all[k];
    return OK;
}

struct timing {
    double us, p50, p99;
};

/* `calls` calls, enqueued at once and waited for together. */
static int run_calls(struct rank *r, int calls, size_t count, float scale) {
    for (int i = 0; i < calls; i++)
        CHECK(call(r, count, scale));
    return stream_sync(device_comm(r->device));
}

/* The stream is idle, so how its thread handles spans may change. */
static int time_calls(struct rank *r, size_t count, float scale, struct timing *t) {
    int calls = (int)r->options->calls;
    double mine, all[MAX_DEVICES], *single = calloc((size_t)calls, sizeof *single);
    struct span_log *log = stream_spans(device_comm(r->device));
    if (!single)
        return fail(ERR_MEMORY, "out of host memory for %d times: give a smaller -n", calls);
    memset(r->host, 0, count * sizeof(float)); /* repeated sums would overflow */
    int code = copy_to_device(device_comm(r->device), r->data, r->host, count * sizeof(float));
    /* the first call reads all ranks' zeros */
    if (!code) code = stream_sync(device_comm(r->device));
    if (!code) code = comm_barrier(r->comm, "zeros");
    log->on = 0;
    if (!code) code = run_calls(r, (int)r->options->warmup, count, scale);
    if (!code) code = comm_barrier(r->comm, "start of timing");
    int64_t start = now_ns();
    if (!code) code = run_calls(r, calls, count, scale);
    mine = (double)(now_ns() - start) * 1e-3 / calls;
    log->on = 1;
    if (!code) code = comm_gather(r->comm, &mine, sizeof mine, all);
    size_t first = log->count;
    if (!code) code = run_calls(r, calls, count, scale);

    for (int k = 0; k < r->n && !code; k++)
        t->us = all[k] > t->us ? all[k] : t->us;
    for (int i = 0; i < calls && !code; i++)
        single[i] = (double)(log->spans[first + (size_t)i].end_ns -
                             log->spans[first + (size_t)i].start_ns) *
                    1e-3;
    sort_values(single, (size_t)calls);
    t->p50 = single[calls / 2];
    t->p99 = single[calls * 99 / 100];
    free(single);
    return code;
}

/* GB/s read and written by copies from one half of the buffer to the other, the best of five: by
 * memcpy on one core, or inside a GPU. */
static int copy_speed(struct rank *r, size_t count, double *best) {
    size_t half = count / 2 * sizeof(float);
    struct stream *stream = device_comm(r->device);
    int repeat = half < 1 << 20 ? 64 : r->options->kind == DEVICE_CUDA ? 8 : 1;
    *best = 0;
    for (int i = 0; i < 5 && half > 0; i++) {
        int64_t start = now_ns();
        for (int k = 0; k < repeat; k++) {
            if (r->options->kind == DEVICE_CUDA) {
                CHECK(
                    copy_peer(stream, r->device, r->data, r->device, (char *)r->data + half, half));
            } else {
                memcpy(r->data, (char *)r->data + half, half);
                __asm__ volatile("" ::: "memory"); /* keeps the compiler from removing copies */
            }
        }
        CHECK(stream_sync(stream));
        double speed = 2.0 * (double)half * repeat / (double)(now_ns() - start + 1);
        if (speed > *best) *best = speed;
    }
    return OK;
}

/* 1: the ranks take turns on one GPU, so they share its links. */
static int shares_device(const struct rank *r) {
    return r->n > 1 && !strcmp(allreduce_executor_name(r->ar), "stepwise");
}

/* How many cores or GPUs share the work of n ranks. */
static int at_work(const struct rank *r) {
    int cores = core_count();
    if (r->options->kind == DEVICE_CUDA) return shares_device(r) ? 1 : r->n;
    return r->n < cores ? r->n : cores;
}

static int print_size(struct rank *r, size_t count, const struct timing *t, uint64_t wrong) {
    double S = (double)count * sizeof(float), n = r->n, speed;
    char shown[24] = "-", bus[24] = "n/a";
    CHECK(copy_speed(r, count, &speed));
    double copy_us = speed > 0 ? 2 * n * S / (speed * 1e3 * at_work(r)) : 0;
    if (r->options->check) snprintf(shown, sizeof shown, "%llu", (unsigned long long)wrong);
    if (!shares_device(r)) snprintf(bus, sizeof bus, "%.2f", S / t->us * 1e-3 * 2 * (n - 1) / n);
    printf("%12zu %12zu   float   %s %9.2f %8.2f %8s %6s %9.2f %9.2f %9.2f   %s, %s\n",
           count * sizeof(float), count, r->options->average ? "avg" : "sum", t->us,
           S / t->us * 1e-3, bus, shown, t->p50, t->p99, copy_us,
           allreduce_algorithm_name(allreduce_algorithm_for(r->ar, count, NULL, 0)),
           allreduce_executor_name(r->ar));
    fflush(stdout);
    return OK;
}

static int run_size(struct rank *r, size_t bytes, uint64_t *all_wrong) {
    size_t count = bytes / sizeof(float);
    float scale = r->options->average ? 1.0f / (float)r->n : 1.0f;
    uint64_t wrong = 0;
    struct timing t = {0};
    if (r->options->check) CHECK(count_wrong(r, count, scale, &wrong));
    CHECK(time_calls(r, count, scale, &t));
    *all_wrong += wrong;
    CHECK(comm_barrier(r->comm, "start of copies"));
    if (r->rank == 0) CHECK(print_size(r, count, &t, wrong));
    /* ranks that share rank 0's GPU must be idle while it copies */
    return comm_barrier(r->comm, "end of copies");
}

/* ---- a rank ---- */

static void processor_name(char *text, size_t bytes) {
    char line[256], model[256] = "a processor without a name";
    FILE *info = fopen("/proc/cpuinfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (sscanf(line, "model name : %255[^\n]", model) == 1) break;
    if (info) fclose(info);
    snprintf(text, bytes, "%s", model);
}

static int print_machine(const struct options *o) {
    char name[256];
    struct gpu_facts gpu;
    int cores = core_count(), gpus;
    if (o->kind == DEVICE_CUDA) {
        CHECK(device_probe(DEVICE_CUDA, &gpus));
        CHECK(gpu_facts(0, &gpu));
        printf("# machine: %d GPU%s, %s; %d rank%s%s\n", gpus, gpus == 1 ? "" : "s", gpu.name,
               (int)o->ranks, o->ranks == 1 ? "" : "s",
               o->ranks > gpus ? ", several share a GPU: busbw means nothing" : "");
        return OK;
    }
    processor_name(name, sizeof name);
    printf("# machine: %s, %d core%s; %d rank%s, emulated devices, host shared memory, %s\n", name,
           cores, cores == 1 ? "" : "s", (int)o->ranks, o->ranks == 1 ? "" : "s",
           o->pin ? "a core bound to each" : "cores not bound");
    return OK;
}

static int print_head(const struct options *o) {
    int emulated = o->kind == DEVICE_HOST;
    CHECK(print_machine(o));
    printf("# %d calls, %d warm-up, in place; busbw by the formula of nccl-tests%s\n",
           (int)o->calls, (int)o->warmup, emulated ? ": here ranks share their links" : "");
    printf("# copy: 2 n size bytes, the least to be moved, at the speed of %s in this run%s\n",
           emulated ? "memcpy" : "a copy inside a GPU",
           emulated && o->ranks > core_count() ? "; more ranks than cores: they take turns" : "");
    printf("#       size        count    type redop      time    algbw    busbw  wrong       p50   "
           "    p99   "
           "   copy   algorithm, executor\n");
    printf("#        (B)   (elements)                    (us)   (GB/s)   (GB/s)              (us)  "
           "    (us)  "
           "    (us)\n");
    return OK;
}

static int run_algorithm(struct rank *r, enum allreduce_algorithm algorithm, uint64_t *wrong) {
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = algorithm;
    config.any_order = 1;
    CHECK(allreduce_init(&r->ar, r->comm, r->device, &config));
    int code = allreduce_register(r->ar, r->data, r->options->to / sizeof(float));
    for (uint64_t bytes = r->options->from; bytes <= r->options->to && !code;
         bytes *= (uint64_t)r->options->factor)
        code = run_size(r, bytes, wrong);
    allreduce_free(r->ar);
    r->ar = NULL;
    return code;
}

static int run_rank(struct rank *r, uint64_t *wrong) {
    const struct options *o = r->options;
    CHECK(comm_open(&r->comm, NULL));
    r->n = comm_world_size(r->comm);
    r->rank = comm_rank(r->comm);
    struct device_config config = {.kind = o->kind,
                                   .index = r->rank,
                                   .devices = r->n,
                                   .rank = r->rank,
                                   .spans = 1,
                                   .memory_bytes =
                                       o->to + (o->kind == DEVICE_CUDA ? 128 << 20 : 16 << 20)};
    CHECK(device_open(&r->device, &config));
    CHECK(device_alloc(r->device, (void **)&r->data, o->to, MEM_GRADS));
    CHECK(device_host_alloc(r->device, (void **)&r->host, o->to));
    if (o->pin)
        CHECK(stream_call_host(device_comm(r->device), "bind", 0, bind_to_core, &r->rank,
                               sizeof r->rank));
    if (r->rank == 0) CHECK(print_head(o));
    if (!o->all) return run_algorithm(r, o->only, wrong);
    for (int a = ALLREDUCE_NAIVE; a < ALLREDUCE_ALGORITHM_COUNT; a++)
        if (allreduce_has_plan((enum allreduce_algorithm)a))
            CHECK(run_algorithm(r, (enum allreduce_algorithm)a, wrong));
    return OK;
}

static int rank_main(void *options) {
    struct rank r = {.options = options};
    uint64_t wrong = 0;
    int code = run_rank(&r, &wrong);
    if (!code && wrong)
        code = fail(ERR_CHECK, "allreduce_perf: %llu elements are wrong: see the column `wrong`",
                    (unsigned long long)wrong);
    if (code) comm_abort(r.comm, code, error_message());
    if (r.device) device_host_free(r.device, r.host);
    device_close(r.device);
    comm_close(r.comm);
    return error_exit_status(code);
}

int main(int argc, char **argv) {
    struct options options;
    struct launch_result result = {0};
    int code = parse_options(argc, argv, &options);
    if (!code) {
        struct launch launch = {
            .world_size = (int)options.ranks, .entry = rank_main, .context = &options};
        code = launch_ranks(&launch, &result);
    }
    if (code) fprintf(stderr, "allreduce_perf: %s\n", error_message());
    return result.exit_status ? result.exit_status : error_exit_status(code);
}
