/* Jobs whose ranks call allreduce for ever, until one of them is killed or stopped: on emulated
 * devices and on GPUs. */
#ifndef TESTS_ALLREDUCE_LOSE_H
#define TESTS_ALLREDUCE_LOSE_H

#include "tests/allreduce/shared.h"

enum { COUNT = 20000, CALLS_BEFORE = 20 };

/* Every fifth call is synced, so that several are under way when the signal comes. After a failure
 * everything is released without waiting for the victim, which is dead or stopped. */
static int endless_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    int code = rank_open(&r, job, COUNT);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, COUNT);
    for (long step = 0; !code; step++) {
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, COUNT, 0, 2, step);
        if (!code && step % 5 == 4) code = stream_sync(device_comm(r.device));
        __atomic_fetch_add(&job->page->calls[r.rank], !code, __ATOMIC_RELAXED);
    }
    char text[600];
    snprintf(text, sizeof text, "%s", error_message());
    int64_t start = now_ns();
    allreduce_free(ar);
    if ((double)(now_ns() - start) * 1e-9 > job->free_s) code = ERR_CHECK;
    fail(code, "%s", text);
    return rank_close(&r, code);
}

/* Starts a process that signals the victim once it has made some calls, and then ends. Returns its
 * pid. */
static pid_t start_killer(const struct job *job) {
    struct page *page = job->page;
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid > 0) return pid;
    for (int i = 0; i < 20000; i++) {
        if (__atomic_load_n(&page->calls[job->victim], __ATOMIC_RELAXED) >= CALLS_BEFORE) {
            usleep((useconds_t)(i * 37 % 400)); /* at some point within a call */
            __atomic_store_n(&page->hit_ns, now_ns(), __ATOMIC_RELAXED);
            kill(page->pid[job->victim], job->signal);
            _exit(0);
        }
        usleep(1000);
    }
    _exit(1);
}

/* On a busy machine a job with a short timeout may end before its ranks have made those calls: then
 * it runs again. */
static void lose_a_rank(struct job *job, int n, struct launch_result *result) {
    struct page *page = job->page;
    page->hit_ns = 0;
    for (int tries = 0; tries < 4 && !page->hit_ns; tries++) {
        memset(page, 0, sizeof *page);
        pid_t killer = start_killer(job);
        cr_assert_neq(launch_all(n, endless_entry, job, result), OK);
        kill(killer, SIGKILL); /* it would still wait if the victim was not hit */
        cr_assert_eq(waitpid(killer, NULL, 0), killer);
    }
    cr_assert(page->hit_ns, "the ranks never made %d calls: %s", CALLS_BEFORE, error_message());
    for (int r = 0; r < n; r++)
        cr_assert(kill(job->page->pid[r], 0) != 0, "rank %d is still there", r);
}

/* 1 if a rank other than the victim did not end by itself. The launcher gives it 0.75 s. */
static int was_ended(const struct page *page, int n, int victim) {
    for (int r = 0; r < n; r++)
        if (r != victim && !page->ended_ns[r]) return 1;
    return 0;
}

/* With three ranks the others notice within some seconds, and blame it. On a busy machine the
 * launcher may end them before they can say so: then the job runs again. */
static inline void kill_one(struct job *job, int victim, double seconds) {
    struct launch_result result;
    struct page *page = job->page;
    const char *name = allreduce_algorithm_name(job->algorithm);
    job->victim = victim, job->signal = SIGKILL, job->timeout_s = 60;
    for (int tries = 0; tries == 0 || (tries < 4 && was_ended(page, 3, victim)); tries++)
        lose_a_rank(job, 3, &result);
    cr_assert_eq(result.exit_status, 128 + SIGKILL, "%s: status %d", name, result.exit_status);
    cr_assert_eq(result.rank, victim, "%s: rank %d is blamed for %d", name, result.rank, victim);
    for (int r = 0; r < 3; r++) {
        if (r == victim) continue;
        double took = (double)(page->ended_ns[r] - page->hit_ns) * 1e-9;
        cr_assert_eq(page->code[r], ERR_PEER, "%s: rank %d got %d: %s", name, r, page->code[r],
                     page->text[r]);
        cr_assert(strstr(page->text[r], "a peer failed first"), "%s: %s", name, page->text[r]);
        cr_assert(took < seconds, "%s: rank %d took %g s", name, r, took);
    }
}

/* With two ranks the other names it at the deadline, with what it waited in. */
static inline void stop_one(struct job *job) {
    struct launch_result result;
    const char *text = job->page->text[0], *name = allreduce_algorithm_name(job->algorithm);
    /* also the timeout of the rendezvous and of all earlier calls */
    job->victim = 1, job->signal = SIGSTOP, job->timeout_s = 1.5;
    lose_a_rank(job, 2, &result);
    cr_assert_eq(job->page->code[0], ERR_TIMEOUT, "%s: %d: %s", name, job->page->code[0], text);
    cr_assert(strstr(text, "rank 0: allreduce") && strstr(text, " bucket 2 step ") &&
                  strstr(text, "no word from rank 1 after 1.5 s: it may be stopped"),
              "%s: %s", name, text);
    cr_assert_eq(result.exit_status, 1);
}

#endif
