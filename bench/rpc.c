/* Measures how long a remote call takes between two processes on this machine. bench/torch_rpc.py
 * measures the same calls in PyTorch, and bench/rpc_beside_torch.py runs both in turns:
 *
 *     make bench examples && build/bench/rpc && python3 bench/rpc_beside_torch.py
 *
 * Each line has the fastest and the median call in microseconds, and the answers are checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "duet.h"

enum { MOST = 4000, IN_FLIGHT = 64 };

#define TRY(call)                \
    do {                         \
        int code_ = (call);      \
        if (code_) return code_; \
    } while (0)

static int nothing(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    return DUET_OK;
}

static int count(duet_rpc_call *call, void *context) {
    (void)context;
    duet_tensor *t = duet_rpc_arg_tensor(call, 0);
    return duet_rpc_return(call, duet_rpc_int((int64_t)duet_tensor_count(t)));
}

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, double *us, int n) {
    qsort(us, (size_t)n, sizeof *us, by_time);
    printf("%-24s %12.1f %12.1f\n", name, us[0], us[n / 2]);
}

static int empty_calls(duet_rpc *rpc) {
    static double us[MOST];
    for (int i = 0; i < MOST; i++) {
        double began = duet_time();
        TRY(duet_rpc_sync(rpc, "there", "nothing", DUET_NO_ARGS, 0, NULL));
        us[i] = (duet_time() - began) * 1e6;
    }
    show("empty function", us, MOST);
    return DUET_OK;
}

static int tensor_calls(duet_rpc *rpc, duet_device *device, const char *name, int floats, int n) {
    static double us[MOST];
    duet_tensor *t;
    TRY(duet_tensor_create(&t, device, DUET_F32, 1, &floats, NULL));
    for (int i = 0; i < n; i++) {
        struct duet_rpc_value got;
        double began = duet_time();
        TRY(duet_rpc_sync(rpc, "there", "count", DUET_ARGS(duet_rpc_tensor(t)), 0, &got));
        us[i] = (duet_time() - began) * 1e6;
        if (got.integer != floats) return DUET_CHECK;
    }
    duet_tensor_free(t);
    show(name, us, n);
    return DUET_OK;
}

/* The time of a copy of as many bytes: how fast memory is. */
static int copies(void) {
    enum { BYTES = 1 << 26, COUNT = 20 };
    double us[COUNT];
    char *from = malloc(BYTES), *to = malloc(BYTES);
    for (int i = 0; from && to && i < COUNT; i++) {
        memset(i ? from + i : from, i + 1, i ? 1 : BYTES);
        double began = duet_time();
        memcpy(to, from, BYTES);
        us[i] = (duet_time() - began) * 1e6;
        if (to[i] != i + 1) return DUET_CHECK;
    }
    int good = from && to;
    free(from);
    free(to);
    if (good) show("memcpy of 64 MiB", us, COUNT);
    return good ? DUET_OK : DUET_MEMORY;
}

static int many_calls(duet_rpc *rpc) {
    duet_future *f[IN_FLIGHT] = {NULL};
    double began = duet_time();
    for (int i = 0; i < 10 * MOST; i++) {
        duet_future **slot = &f[i % IN_FLIGHT];
        if (*slot) TRY(duet_future_wait(*slot, NULL));
        duet_future_free(*slot);
        TRY(duet_rpc_async(slot, rpc, "there", "nothing", DUET_NO_ARGS, 0));
    }
    TRY(duet_future_wait_all(f, IN_FLIGHT));
    for (int i = 0; i < IN_FLIGHT; i++)
        duet_future_free(f[i]);
    printf("%-24s %12.0f calls/s\n", "64 calls in flight", 10 * MOST / (duet_time() - began));
    return DUET_OK;
}

static int references(duet_rpc *rpc) {
    static double us[MOST];
    for (int i = 0; i < MOST; i++) {
        duet_rref *r;
        struct duet_rpc_value got;
        double began = duet_time();
        TRY(duet_remote(&r, rpc, "there", "nothing", DUET_NO_ARGS, 0));
        TRY(duet_rref_to_here(r, 0, &got));
        us[i] = (duet_time() - began) * 1e6;
        duet_rref_free(r);
    }
    show("remote and to_here", us, MOST);
    return DUET_OK;
}

static int measure(duet_rpc *rpc, duet_device *device) {
    printf("%-24s %12s %12s\n", "us", "fastest", "median");
    TRY(empty_calls(rpc));
    TRY(tensor_calls(rpc, device, "4 floats", 4, MOST));
    TRY(tensor_calls(rpc, device, "1 MiB", 1 << 18, 400));
    TRY(tensor_calls(rpc, device, "64 MiB", 1 << 24, 20));
    TRY(copies());
    TRY(many_calls(rpc));
    return references(rpc);
}

static int work(int rank, void *context) {
    (void)context;
    duet_device *device;
    duet_rpc *rpc = NULL;
    TRY(duet_device_open(&device, "cpu", rank, 1 << 28));
    const struct duet_rpc_function functions[] = {
        /* an empty call needs no device */
        {.name = "nothing", .run = nothing},
        {.name = "count", .run = count, .device = device}};
    const struct duet_rpc_options options = {.functions = functions, .function_count = 2};
    int code = duet_rpc_init(&rpc, rank ? "there" : "here", -1, 0, &options);
    if (!code && rank == 0) code = measure(rpc, device);
    int end = duet_rpc_shutdown(&rpc, !code, 0);
    duet_devices_close(&device, 1);
    return code ? code : end;
}

int main(void) {
    int code = duet_spawn(2, work, NULL);
    if (code) fprintf(stderr, "%s\n", duet_error());
    return duet_exit_status(code);
}
