/* Shared by the tests of rpc/: workers as processes, which check their results and fail like ranks.
 * Worker r is named "w<r>"; each has its own emulated device, or with CUDA_EMULATION a GPU. */
#ifndef TESTS_RPC_WORKERS_H
#define TESTS_RPC_WORKERS_H

#include <sys/wait.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/error.h"
#include "duet.h"
#include "rpc/agent.h"
#include "rpc/autograd.h"
#include "tests/harness/harness.h"

/* In a worker: ends it if a check fails; the launcher then ends the others. */
#define MUST(condition, ...)                                                               \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, " " __VA_ARGS__);                                              \
            fprintf(stderr, " (last error: %s)\n", duet_error());                          \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)
#define GOOD(call) MUST((call) == DUET_OK)
/* The call fails with this code and a text that has these words. */
#define FAILS(code_, call, words) \
    MUST((call) == (code_) && strstr(duet_error(), words), "wanted: %s", words)

#ifdef CUDA_EMULATION
static const char worker_kind[] = "cuda";
enum { WORKER_MEMORY = 96 << 20 }; /* the workspace of a GPU is 64 MiB */
#else
static const char worker_kind[] = "cpu";
enum { WORKER_MEMORY = 64 << 20 };
#endif

/* A function that others call. */
#define FUNCTION(name_) \
    static __attribute__((unused)) int name_(duet_rpc_call *call, __attribute__((unused)) void *p)

struct worker {
    int rank, n;
    duet_rpc *rpc;
    duet_device *device;
};

static const struct duet_rpc_function *worker_functions; /* of the test, before duet_spawn */
static int worker_function_count, worker_threads;
static double worker_timeout;
static __attribute__((unused)) void (*worker_body)(struct worker *w);
static __attribute__((unused)) void (*worker_behind)(void); /* runs after the end; NULL: nothing */
static int worker_world, worker_abrupt; /* abrupt 1: the body ends the worker itself */
static int worker_bare;                 /* 1: it has no device */

static inline duet_tensor *tensor_of(struct worker *w, int n, const float *values) {
    duet_tensor *t;
    GOOD(duet_tensor_create(&t, w->device, DUET_F32, 1, &n, values));
    return t;
}

static struct worker worker_here; /* for functions: this process is one worker */

static inline int worker_main(int rank, void *context) {
    (void)context;
    char name[16];
    struct worker *w = &worker_here;
    *w = (struct worker){.rank = rank, .n = worker_world};
    setenv("EMULATED_GPUS", "4", 0);
    if (!worker_bare) GOOD(duet_device_open(&w->device, worker_kind, rank, WORKER_MEMORY));
    snprintf(name, sizeof name, "w%d", rank);
    struct duet_rpc_options options = {.functions = worker_functions,
                                       .function_count = worker_function_count,
                                       .device = w->device,
                                       .threads = worker_threads,
                                       .timeout_s = worker_timeout};
    GOOD(duet_rpc_init(&w->rpc, name, -1, 0, &options));
    worker_body(w);
    if (!worker_abrupt) GOOD(duet_rpc_shutdown(&w->rpc, 1, 60));
    if (worker_behind) worker_behind();
    if (w->device) duet_devices_close(&w->device, 1);
#ifdef __SANITIZE_ADDRESS__ /* a rank ends without the leak check at a program's end */
    MUST(!__lsan_do_recoverable_leak_check());
#endif
    return DUET_OK;
}

/* Each worker has these. */
#define HAVE(functions_)              \
    (worker_functions = (functions_), \
     worker_function_count = (int)(sizeof(functions_) / sizeof *(functions_)))

/* Runs `body` in n workers. */
#define RUN_WORKERS(n_, body_)                            \
    do {                                                  \
        worker_world = (n_), worker_body = (body_);       \
        int code_ = duet_spawn((n_), worker_main, NULL);  \
        cr_assert_eq(code_, DUET_OK, "%s", duet_error()); \
    } while (0)
#define WORKERS(n_, body_, functions_) \
    do {                               \
        HAVE(functions_);              \
        RUN_WORKERS(n_, body_);        \
    } while (0)

/* ---- workers that are no ranks of a launcher, which would end all when one dies ---- */

/* Makes a job of the processes that are forked after it. */
static inline void set_secret(void) {
    static int jobs;
    char text[48];
    snprintf(text, sizeof text, "job %d of process %d", jobs++, getpid());
    setenv("DUET_RPC_SECRET", text, 1);
}

static inline pid_t start_one(int rank, int n, void (*body)(struct worker *w)) {
    char name[16];
    struct worker w = {.rank = rank, .n = n};
    pid_t p = fork();
    if (p) return p;
    snprintf(name, sizeof name, "w%d", rank);
    struct duet_rpc_options options = {.functions = worker_functions,
                                       .function_count = worker_function_count};
    GOOD(duet_rpc_init(&w.rpc, name, rank, n, &options));
    body(&w);
    _exit(0);
}

static inline void start(pid_t *pids, int n, void (*body)(struct worker *w)) {
    set_secret();
    for (int r = 0; r < n; r++)
        pids[r] = start_one(r, n, body);
}

static inline int status_of(pid_t p) {
    int status = -1;
    cr_assert_eq(waitpid(p, &status, 0), p);
    return status;
}

/* Runs `body` in n of them, which end with these statuses or signals; NULL: all with 0. */
static inline void alone(int n, void (*body)(struct worker *w), const int *statuses) {
    pid_t p[3];
    start(p, n, body);
    for (int r = 0; r < n; r++) {
        int status = status_of(p[r]);
        cr_expect_eq(status & 0x7f ? status & 0x7f : status, statuses ? statuses[r] : 0,
                     "worker %d", r);
    }
}

/* ---- inside a worker ---- */

/* The objects that this worker holds at the moment. */
struct rpc_info {
    int threads;     /* of the pool */
    int owned, kept; /* objects here; references and futures of this worker */
    int contexts;    /* of duet/autograd.h that are known here */
};

static inline void rpc_info(duet_rpc *rpc, struct rpc_info *info) {
    *info = (struct rpc_info){0};
    if (!rpc) return;
    pthread_mutex_lock(&rpc->lock);
    info->owned = rpc->life.objects;
    info->kept = rpc->kept;
    pthread_mutex_lock(&rpc->pool.lock);
    info->threads = rpc->pool.count;
    pthread_mutex_unlock(&rpc->pool.lock);
    for (duet_autograd_context *c = rpc->contexts; c; c = c->next)
        info->contexts++;
    pthread_mutex_unlock(&rpc->lock);
}

/* The context of the call that a function runs in; NULL: none. It belongs to the caller. */
static inline duet_autograd_context *autograd_context_of(duet_rpc_call *call) {
    return call ? call->said->entered : NULL;
}

#endif
