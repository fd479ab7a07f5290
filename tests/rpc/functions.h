/* Functions that the workers of many tests register, and counted objects ("things"). */
#ifndef TESTS_RPC_FUNCTIONS_H
#define TESTS_RPC_FUNCTIONS_H

#include <signal.h>

#include "tests/rpc/workers.h"

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

/* ---- things ---- */

static int alive; /* in this process */

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

static const struct duet_rpc_function common[] = {{"echo", echo, NULL, NULL},
                                                  {"add", add, NULL, NULL},
                                                  {"nap", nap, NULL, NULL},
                                                  {"pid", pid, NULL, NULL},
                                                  {"die", die, NULL, NULL},
                                                  {"Thing", thing_new, NULL, NULL},
                                                  {"Thing.add", thing_add, NULL, NULL},
                                                  {"alive", count_alive, NULL, NULL}};
enum { COMMON = sizeof common / sizeof *common, MOST_FUNCTIONS = COMMON + 8 };
static struct duet_rpc_function all_functions[MOST_FUNCTIONS];

/* Each worker has these functions of the test, and the common ones. */
static inline void have_too(const struct duet_rpc_function *own, size_t count) {
    cr_assert(count <= MOST_FUNCTIONS - COMMON);
    memcpy(all_functions, common, sizeof common);
    if (count) memcpy(all_functions + COMMON, own, count * sizeof *own);
    worker_functions = all_functions;
    worker_function_count = COMMON + (int)count;
}
#undef HAVE
#define HAVE(own) have_too((own), sizeof(own) / sizeof *(own))
#define HAVE_COMMON have_too(NULL, 0)
#define COMMON_WORKERS(n_, body_) \
    do {                          \
        HAVE_COMMON;              \
        RUN_WORKERS(n_, body_);   \
    } while (0)

static inline int64_t ask(struct worker *w, const char *to, const char *function) {
    struct duet_rpc_value got;
    GOOD(duet_rpc_sync(w->rpc, to, function, DUET_NO_ARGS, 0, &got));
    return got.integer;
}

/* At the latest after a few messages. A thing ends on its device, which a function that waited for
 * that would keep. */
static inline void lives(struct worker *w, const char *at, int wanted) {
    for (int i = 0; i < 1000 && ask(w, at, "alive") != wanted; i++)
        usleep(10000);
    MUST(ask(w, at, "alive") == wanted);
}

#endif
