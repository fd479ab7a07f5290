/* Shared by the tests of rpc/: workers as processes, which check their results and fail like ranks,
 * the functions that all of them register, and counted objects ("things"). Worker r is named
 * "w<r>"; each has its own emulated device, or with CUDA_EMULATION a GPU. */
#ifndef TESTS_RPC_WORKERS_H
#define TESTS_RPC_WORKERS_H

#include <signal.h>
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

/* A call by this worker, with or without a place for its result. */
#define SYNC(to_, ...) duet_rpc_sync(w->rpc, (to_), __VA_ARGS__, 0, &got)
#define TELL(to_, ...) duet_rpc_sync(w->rpc, (to_), __VA_ARGS__, 0, NULL)

#ifdef CUDA_EMULATION
static const char worker_kind[] = "cuda";
enum { WORKER_MEMORY = 96 << 20 }; /* the workspace of a GPU is 64 MiB */
#else
static const char worker_kind[] = "cpu";
enum { WORKER_MEMORY = 64 << 20 };
#endif

/* ---- functions that others call ---- */

#define FUNCTION(name_) \
    static __attribute__((unused)) int name_(duet_rpc_call *call, __attribute__((unused)) void *p)
#define NAMED(name_, run_) \
    { name_, run_, NULL, NULL }
#define F(run_) NAMED(#run_, run_)

FUNCTION(echo) {
    return duet_rpc_return(call, duet_rpc_list(duet_rpc_arg(call, 0), duet_rpc_arg_count(call)));
}
FUNCTION(add) {
    return duet_rpc_return(call,
                           duet_rpc_int(duet_rpc_arg_int(call, 0) + duet_rpc_arg_int(call, 1)));
}
FUNCTION(nap) {
    usleep((useconds_t)(duet_rpc_arg_number(call, 0) * 1e6));
    return duet_rpc_return(call, duet_rpc_int(7));
}
FUNCTION(pid) {
    return duet_rpc_return(call, duet_rpc_int(getpid()));
}
FUNCTION(die) {
    (void)call;
    raise(SIGKILL);
    return DUET_OK;
}

static int alive; /* things in this process */

static void thing_goes(void *thing) {
    *(int64_t *)thing = -1;
    __atomic_fetch_sub(&alive, 1, __ATOMIC_SEQ_CST);
    free(thing);
}

static inline int64_t *thing_of(int64_t value) {
    int64_t *thing = malloc(sizeof *thing);
    *thing = value;
    __atomic_fetch_add(&alive, 1, __ATOMIC_SEQ_CST);
    return thing;
}

/* Of a value, or 7; one above 1000 takes its time. */
FUNCTION(thing_new) {
    int64_t value = duet_rpc_arg_count(call) ? duet_rpc_arg_int(call, 0) : 7;
    if (value < 0) return fail(ERR_USAGE, "a thing begins at 0 or above");
    if (value > 1000) usleep(100000);
    return duet_rpc_return_object(call, thing_of(value), thing_goes);
}
FUNCTION(thing_add) {
    int64_t *thing = duet_rpc_self(call);
    MUST(thing); /* a method has its object */
    *thing += duet_rpc_arg_int(call, 0) % 100;
    return duet_rpc_return(call, duet_rpc_int(*thing));
}
FUNCTION(count_alive) {
    return duet_rpc_return(call, duet_rpc_int(__atomic_load_n(&alive, __ATOMIC_SEQ_CST)));
}
FUNCTION(contexts) { /* of duet/autograd.h, that are known here */
    int n = 0;
    pthread_mutex_lock(&duet_rpc_of_call(call)->lock);
    for (duet_autograd_context *c = duet_rpc_of_call(call)->contexts; c; c = c->next)
        n++;
    pthread_mutex_unlock(&duet_rpc_of_call(call)->lock);
    return duet_rpc_return(call, duet_rpc_int(n));
}

static const struct duet_rpc_function common[] = {F(echo),
                                                  F(add),
                                                  F(nap),
                                                  F(pid),
                                                  F(die),
                                                  F(contexts),
                                                  NAMED("Thing", thing_new),
                                                  NAMED("Thing.add", thing_add),
                                                  NAMED("alive", count_alive)};

/* ---- workers ---- */

struct worker {
    int rank, n;
    duet_rpc *rpc;
    duet_device *device;
};

enum { COMMON = sizeof common / sizeof *common, MOST_FUNCTIONS = COMMON + 16 };
static struct duet_rpc_function worker_functions[MOST_FUNCTIONS];
static struct duet_rpc_options worker_options; /* set by the test */
static void (*worker_body)(struct worker *w);
static void (*worker_behind)(void); /* runs after the end; NULL: nothing */
static int worker_abrupt;           /* 1: the body ends the worker itself */
static int worker_bare;             /* 1: it has no device */
static struct worker worker_here;   /* for functions: this process is one worker */

static inline duet_tensor *tensor_of(struct worker *w, int n, const float *values) {
    duet_tensor *t;
    GOOD(duet_tensor_create(&t, w->device, DUET_F32, 1, &n, values));
    return t;
}

/* world 0: as the environment says. */
static inline int init_worker(struct worker *w, int world) {
    char name[16];
    snprintf(name, sizeof name, "w%d", w->rank);
    worker_options.device = w->device;
    int code = duet_rpc_init(&w->rpc, name, world ? w->rank : -1, world, &worker_options);
    if (!code) w->n = w->rpc->world;
    return code;
}

static inline int worker_main(int rank, void *context) {
    (void)context;
    struct worker *w = &worker_here;
    *w = (struct worker){.rank = rank};
    setenv("EMULATED_GPUS", "4", 0);
    if (!worker_bare) GOOD(duet_device_open(&w->device, worker_kind, rank, WORKER_MEMORY));
    GOOD(init_worker(w, 0));
    worker_body(w);
    if (!worker_abrupt) GOOD(duet_rpc_shutdown(&w->rpc, 1, 60));
    if (worker_behind) worker_behind();
    if (w->device) duet_devices_close(&w->device, 1);
#ifdef __SANITIZE_ADDRESS__ /* a rank ends without the leak check at a program's end */
    MUST(!__lsan_do_recoverable_leak_check());
#endif
    return DUET_OK;
}

/* Each worker has these functions of the test, and the common ones. */
static inline void have(const struct duet_rpc_function *own, size_t count) {
    cr_assert(count <= MOST_FUNCTIONS - COMMON);
    memcpy(worker_functions, common, sizeof common);
    if (count) memcpy(worker_functions + COMMON, own, count * sizeof *own);
    worker_options.functions = worker_functions;
    worker_options.function_count = COMMON + (int)count;
}

/* Runs `body` in n workers. */
static inline void run_workers(int n, void (*body)(struct worker *w)) {
    worker_body = body;
    int code = duet_spawn(n, worker_main, NULL);
    cr_assert_eq(code, DUET_OK, "%s", duet_error());
}
#define HAVE(own_) have((own_), sizeof(own_) / sizeof *(own_))
#define WORKERS(n_, body_, own_) (HAVE(own_), run_workers((n_), (body_)))
#define COMMON_WORKERS(n_, body_) (have(NULL, 0), run_workers((n_), (body_)))
#define TEST_WORKERS(suite_, name_, n_, body_, own_) \
    Test(suite_, name_, .timeout = 60) {             \
        WORKERS(n_, body_, own_);                    \
    }

/* ---- workers that are no ranks of a launcher, which would end all when one dies ---- */

/* Makes a job of the processes that are forked after it. */
static inline void set_secret(void) {
    static int jobs;
    char text[48];
    snprintf(text, sizeof text, "job %d of process %d", jobs++, getpid());
    setenv("DUET_RPC_SECRET", text, 1);
}

static inline void start(pid_t *pids, int n, void (*body)(struct worker *w)) {
    set_secret();
    for (int r = 0; r < n; r++) {
        struct worker w = {.rank = r};
        if ((pids[r] = fork())) continue;
        GOOD(init_worker(&w, n));
        body(&w);
        _exit(0);
    }
}

static inline int status_of(pid_t p) {
    int status = -1;
    cr_assert_eq(waitpid(p, &status, 0), p);
    return status;
}

/* Runs `body` in n of them, which end with these statuses or signals; NULL: all with 0. */
static inline void alone(int n, void (*body)(struct worker *w), const int *statuses) {
    pid_t p[3];
    have(NULL, 0);
    start(p, n, body);
    for (int r = 0; r < n; r++) {
        int status = status_of(p[r]);
        cr_expect_eq(status & 0x7f ? status & 0x7f : status, statuses ? statuses[r] : 0,
                     "worker %d", r);
    }
}

#define TEST_ALONE(suite_, name_, n_, body_, ...) \
    Test(suite_, name_, .timeout = 30) {          \
        alone(n_, body_, __VA_ARGS__);            \
    }

/* ---- inside a worker ---- */

static inline int64_t ask(struct worker *w, const char *to, const char *function) {
    struct duet_rpc_value got;
    GOOD(SYNC(to, function, DUET_NO_ARGS));
    return got.integer;
}

/* At the latest after a few messages the worker counts as many things, or contexts. A thing ends on
 * its device, which a function that waited for that would keep. */
static inline void becomes(struct worker *w, const char *at, const char *count, int wanted) {
    for (int i = 0; i < 1000 && ask(w, at, count) != wanted; i++)
        usleep(10000);
    MUST(ask(w, at, count) == wanted, "%s", count);
}

#endif
