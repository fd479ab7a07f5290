/* What ends in the midst of calls: a function that crashes, a worker that leaves, the job by
 * Ctrl-C, a reference whose owner is gone, an answer after its deadline, values too large to send.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "tests/rpc/workers.h"

static int crash(duet_rpc_call *call, void *context) {
    (void)call, (void)context;
    signal(SIGSEGV, SIG_DFL); /* a sanitizer has a handler, which says more */
    raise(SIGSEGV);
    return DUET_OK;
}

static int nap(duet_rpc_call *call, void *context) {
    (void)context;
    usleep((useconds_t)(duet_rpc_arg_number(call, 0) * 1e6));
    return duet_rpc_return(call, duet_rpc_int(7));
}

static int object(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return_object(call, malloc(1), free);
}

static int size(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_bytes("", (size_t)duet_rpc_arg_int(call, 0)));
}

static const struct duet_rpc_function functions[] = {{"crash", crash, NULL, NULL},
                                                     {"nap", nap, NULL, NULL},
                                                     {"Object", object, NULL, NULL},
                                                     {"size", size, NULL, NULL}};

/* ---- a crash, and what is left of it ---- */

static void one_crashes(struct worker *w) {
    struct duet_rpc_value got;
    duet_rref *r, *other;
    if (w->rank == 0) {
        GOOD(duet_remote(&r, w->rpc, "w1", "Object", DUET_NO_ARGS, 0));
        GOOD(duet_rref_wait(r, 0));
        FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w1", "crash", DUET_NO_ARGS, 0, &got),
              "rpc: crash: worker 'w1' is gone: its process has ended");
        /* Whatever is done with the reference now names its owner. */
        FAILS(DUET_PEER, duet_rref_sync(r, "add", DUET_NO_ARGS, 0, &got),
              "Object.add: worker 'w1'");
        FAILS(DUET_PEER, duet_rref_to_here(r, 0, &got), "worker 'w1' is gone");
        FAILS(DUET_PEER, duet_rref_wait(r, 0), "worker 'w1' is gone");
        FAILS(DUET_PEER, duet_remote(&other, w->rpc, "w1", "Object", DUET_NO_ARGS, 0), "'w1'");
        FAILS(DUET_PEER, duet_rpc_sync(w->rpc, "w0", "nap", DUET_ARGS(duet_rpc_rref(r)), 0, &got),
              "'w1'");
        duet_rref_free(r);
    }
    FAILS(DUET_PEER, duet_rpc_shutdown(&w->rpc, 1, 0), "worker 'w1' is gone");
}

Test(ends, a_function_that_crashes, .timeout = 30) {
    HAVE(functions);
    alone(2, one_crashes, (int[]){0, SIGSEGV});
}

/* ---- one that leaves ---- */

/* w0 has calls under way in both directions, and goes. */
static void one_leaves_at_once(struct worker *w) {
    duet_future *f;
    if (w->rank == 1) {
        FAILS(DUET_PEER,
              duet_rpc_sync(w->rpc, "w0", "nap", DUET_ARGS(duet_rpc_number(0.3)), 0, NULL),
              "rpc: nap: worker 'w0' has left");
        raise(SIGKILL); /* its nap is long */
    }
    GOOD(duet_rpc_async(&f, w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(20)), 0));
    duet_future_free(f); /* nobody waits for it */
    usleep(100000);      /* so that the call of w1 has come */
    double began = duet_time();
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
    MUST(duet_time() - began < 10 && !w->rpc);
}

Test(ends, leaving_at_once_waits_for_no_call_from_here, .timeout = 30) {
    HAVE(functions);
    alone(2, one_leaves_at_once, (int[]){0, SIGKILL});
}

/* A graceful one waits for calls of others, too, that nobody waits for. */
static void all_leave(struct worker *w) {
    duet_future *f[3];
    for (int i = 0; i < 3; i++) {
        const char *to = i == 2 ? "w0" : "w1";
        GOOD(duet_rpc_async(&f[i], w->rpc, to, "nap", DUET_ARGS(duet_rpc_number(0.2)), 0));
        duet_future_free(f[i]);
    }
    double began = duet_time();
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 0));
    MUST(duet_time() - began > 0.15, "%g s", duet_time() - began);
}

Test(ends, leaving_together_waits_for_all_calls, .timeout = 30) {
    HAVE(functions);
    alone(2, all_leave, NULL);
}

/* ---- late answers, large values ---- */

static void late(struct worker *w) {
    struct duet_rpc_value got;
    if (w->rank == 0) {
        /* The answers still come, while other calls are made. */
        for (int i = 0; i < 5; i++)
            FAILS(DUET_TIMEOUT,
                  duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(0.4)), 0.01, &got),
                  "rpc: worker 'w1': nap: "); /* or it says that its caller has given up */
        GOOD(duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_number(0.1)), 0, &got));
        MUST(got.integer == 7);
        const size_t most = (size_t)18 << 30;
        FAILS(DUET_USAGE,
              duet_rpc_sync(w->rpc, "w1", "nap", DUET_ARGS(duet_rpc_bytes("", most)), 0, &got),
              "rpc: values of more than 18253611008 bytes do not go in a message");
        FAILS(DUET_USAGE,
              duet_rpc_sync(w->rpc, "w1", "size", DUET_ARGS(duet_rpc_int((int64_t)most)), 0, &got),
              "rpc: worker 'w1': size: rpc: values of");
        FAILS(DUET_USAGE, duet_rpc_sync(w->rpc, "w1", "Object", DUET_NO_ARGS, 0, &got),
              "rpc: worker 'w1': Object: it returns an object: call it by duet_remote");
    }
    GOOD(duet_rpc_shutdown(&w->rpc, 1, 20));
}

Test(ends, late_answers_and_large_values, .timeout = 30) {
    HAVE(functions);
    alone(2, late, NULL);
}

/* ---- Ctrl-C ---- */

static void without_end(struct worker *w) {
    duet_future *f[8];
    const char *to = duet_rpc_name(w->rpc, (w->rank + 1) % w->n);
    for (;;) {
        for (int i = 0; i < 8; i++)
            if (duet_rpc_async(&f[i], w->rpc, to, "nap", DUET_ARGS(duet_rpc_number(0.001)), 0))
                pause();
        int code = duet_future_wait_all(f, 8);
        for (int i = 0; i < 8; i++)
            duet_future_free(f[i]);
        if (code) pause(); /* another rank was faster */
    }
}

/* Files in /dev/shm with this process in their names. */
static int left_behind(pid_t pid) {
    char own[32];
    int count = 0;
    snprintf(own, sizeof own, "%d", pid);
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e; d && (e = readdir(d));)
        count += strstr(e->d_name, "duet") && strstr(e->d_name, own);
    if (d) closedir(d);
    return count;
}

Test(ends, ctrl_c_ends_the_whole_job, .timeout = 60) {
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int round = 0; round < 5; round++) {
        pid_t p = fork();
        if (!p) { /* a program, with a process group as a shell gives it */
            setpgid(0, 0);
            dup2(nowhere, 2); /* what ranks say that see others die first */
            worker_world = 3, worker_body = without_end;
            HAVE(functions);
            signal(SIGINT, SIG_DFL);
            _exit(duet_exit_status(duet_spawn(3, worker_main, NULL)));
        }
        setpgid(p, p); /* whoever is first */
        usleep((useconds_t)(100000 + 40000 * round));
        double began = duet_time();
        cr_assert_eq(kill(-p, SIGINT), 0); /* as the terminal does */
        int status = status_of(p);
        cr_expect_lt(duet_time() - began, 15);
        cr_expect(status, "it ends as if it had finished");
        cr_expect(kill(-p, 0) < 0 && errno == ESRCH, "a process is left");
        cr_expect_eq(left_behind(p), 0);
    }
    close(nowhere);
}
