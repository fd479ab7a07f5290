/* The launcher: starts one process per rank, watches them, and ends them all.
 *
 * Nothing in a job has a name. Each rank inherits one memfd, so a job needs no port and no file in
 * /dev/shm, leaves nothing behind, and cannot meet another job.
 *
 * The first failure ends the job. The abort word is set; the ranks get half a second to leave by
 * themselves, then SIGTERM, then SIGKILL, all within a second. SIGINT, SIGTERM and SIGHUP to the
 * launcher end the ranks in the same way, unless grace_s is set. If the launcher itself is killed,
 * the kernel kills the ranks (PR_SET_PDEATHSIG). The kernel ties that signal to the THREAD that
 * forked the ranks. That thread stays in launch_ranks until all of them have ended. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include <stdint.h>

struct launch {
    int world_size; /* 1 .. MAX_DEVICES */

    /* The ranks' arguments, ended by NULL. The program is this one (/proc/self/exe) or, if
     * `program` is set, the one that PATH has under that name. */
    char *const *argv;
    const char *program;

    /* A function to run in the forked child instead of argv; its result is the exit status
     * (0..255). With `program`, it runs before the program, which starts only if the function
     * returns 0. The caller must have no other thread at that time. */
    int (*entry)(void *context);
    void *context;

    int master_port; /* MASTER_PORT of the ranks; 0: 29500, as in PyTorch */

    /* 1: each rank leads its own process group (`entry` calls setpgid). Signals that end it go to
     * the whole group, so they also reach the programs that it has started. */
    int groups;

    /* If above 0, the launcher passes SIGINT, SIGTERM, SIGHUP and SIGQUIT on to the ranks and does
     * not abort the job. The ranks have this many seconds to end by themselves. Then, or at a
     * second such signal, the rest get SIGKILL. A signal within a tenth of a second of the first
     * does not count as a second one, as below. */
    double grace_s;

    /* File descriptors that the ranks inherit under the same numbers, in addition to 0, 1 and 2.
     * Whether they are close-on-exec does not matter. */
    const int *pass_fds;
    int pass_count;

    /* 1: the ranks call comm_look_for_stop, and ignore SIGINT and SIGTERM. Once they have begun to
     * look, the first of these signals to the launcher asks them to stop instead of ending the job.
     * Another one ends it at once. A signal within a tenth of a second counts as the same one,
     * because `timeout` signals a command and then its group. */
    int stoppable;
};

struct launch_result {
    /* 0, or the status of the first rank that failed; 128 + n if signal n ended that rank or the
     * launcher */
    int exit_status;
    int stopped; /* 1: the ranks were asked to stop, and all of them ended well */
    int signal;  /* received by the launcher (Ctrl-C: SIGINT), else 0; after one start no further
                  * job */
    int rank;    /* the rank that failed first, -1 if none or unknown */
    long pid;    /* its process id, 0 if none or unknown */
};

/* Runs a job to its end. When it returns no process of the job is left.
 *
 * It has no deadline: ranks that wait for each other have theirs, also at the rendezvous, and ranks
 * that are all stopped or blocked are waited for. The time that ranks have to leave stops while the
 * launcher itself cannot run (Ctrl-Z, a machine that stands still).
 *
 * Environment of each rank: the caller's, with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT as torchrun sets them (no port is opened), OMP_NUM_THREADS=1 unless
 * it is set, and the descriptor that comm_open needs.
 *
 * OK: every rank ended with status 0. ERR_READER: the first rank to end had lost the reader of its
 * output (SIGPIPE). After any other error the message names the root cause, "rank 2 (pid 123) ended
 * by signal 9 (Killed): ...", and main exits with out->exit_status.
 *
 * Meanwhile SIGINT, SIGTERM and SIGHUP are blocked in its thread. An ignored SIGCHLD is set to its
 * default, since the kernel would otherwise drop the exit status of children. Both are restored. A
 * process makes one call at a time. */
int launch_ranks(const struct launch *launch, struct launch_result *out);

#endif
