/* The launcher: starts one process per rank, serves their rendezvous, and ends them all.
 *
 * Nothing of a job has a name. Each rank inherits one end of a socket pair and one memfd, so there
 * is no port and no file in /dev/shm, nothing is left behind, and two jobs cannot meet.
 *
 * The first failure ends the job. The abort word is set; the ranks get half a second to leave by
 * themselves, then SIGTERM, then SIGKILL, all within a second. SIGINT, SIGTERM and SIGHUP to the
 * launcher end the ranks in the same way, unless grace_s is set. If the launcher itself is killed,
 * the kernel kills the ranks (PR_SET_PDEATHSIG). The kernel ties that signal to the THREAD that
 * forked the ranks; that thread stays in launch_ranks until all of them have ended, so the tie
 * holds. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include <stdint.h>

struct launch {
    int world_size; /* 1 .. MAX_DEVICES */

    /* The ranks' arguments, ended by NULL. The program is /proc/self/exe, this very program, or, if
     * `program` is set, the one found by that name along PATH. */
    char *const *argv;
    const char *program;

    /* A function to run in the forked child: instead of argv, or with `program` before it is
     * started, unless the function returns another status than 0. What it returns is the exit
     * status (0..255). The caller must have no other thread at that time. */
    int (*entry)(void *context);
    void *context;

    int master_port; /* MASTER_PORT of the ranks; 0: 29500, as in PyTorch */

    /* 1: each rank leads its own process group (setpgid, by `entry`), and signals that end it go to
     * the whole group, so also to the programs that it has started. */
    int groups;

    /* Above 0: SIGINT, SIGTERM, SIGHUP or SIGQUIT to the launcher is passed on to the ranks, and
     * the job is not aborted: they have this many seconds to end in their own way, with each
     * other's help. Ranks that still run then get SIGKILL; so do all of them at a second such
     * signal (one within a tenth of a second counts as the first, as below). */
    double grace_s;

    /* File descriptors that the ranks inherit under the same numbers, in addition to 0, 1 and 2.
     * Whether they are close-on-exec does not matter. */
    const int *pass_fds;
    int pass_count;

    /* 1: the ranks call comm_look_for_stop, and ignore SIGINT and SIGTERM. Once they have begun to
     * look, the first of these signals to the launcher asks them to stop instead of ending the job.
     * Another one ends it at once; one within a tenth of a second of the first, as `timeout` sends
     * to a command and then to its group, counts as the same. */
    int stoppable;
};

struct launch_result {
    /* 0; else the status of the first rank that failed; 128 + n if it, or the launcher, was ended
     * by signal n */
    int exit_status;
    int stopped; /* 1: the ranks were asked to stop, and all of them ended well */
    int signal;  /* received by the launcher (Ctrl-C: SIGINT), 0 if none: start no further job */
    int rank;    /* the rank that failed first, -1 if none or unknown */
    long pid;    /* its process id, 0 if none or unknown */
};

/* Runs a job to its end. When it returns no process of the job is left.
 *
 * It has no deadline: ranks that wait for each other have theirs, also at the rendezvous, and ranks
 * that are all stopped or blocked are waited for. Of the time that ranks have to leave, that in
 * which the launcher itself could not run (Ctrl-Z, a machine that stands still) does not count.
 *
 * Environment of each rank: the caller's, with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT as torchrun sets them (no port is opened), OMP_NUM_THREADS=1 unless
 * it is set, and the two descriptors that comm_open needs.
 *
 * OK: every rank ended with status 0. ERR_READER: the first rank to end had lost the reader of its
 * output (SIGPIPE). Else the error text is the root cause, "rank 2 (pid 123) ended by signal 9
 * (Killed): ...", and main exits with out->exit_status.
 *
 * Meanwhile SIGINT, SIGTERM and SIGHUP are blocked in its thread, and SIGCHLD, if it was ignored,
 * is at its default, since the kernel would drop the exit status of children; both are restored.
 * One call at a time in a process. */
int launch_ranks(const struct launch *launch, struct launch_result *out);

#endif
