/* The launcher: starts one process per rank, is the server of their rendezvous, and ends them all.
 *
 * Nothing of a job has a name: the ranks inherit one end of a socket pair each and one memfd, so
 * there is no port, no file in /dev/shm and nothing left behind, and two jobs cannot meet.
 *
 * The first failure ends the job: the abort word is set, ranks get half a second to leave by
 * themselves, then SIGTERM, then SIGKILL; all within a second. SIGINT, SIGTERM and SIGHUP to the
 * launcher end the ranks the same way. If the launcher itself is killed the kernel kills the ranks
 * (PR_SET_PDEATHSIG). That signal is tied to the THREAD that started them: it blocks in
 * launch_ranks until all are gone, so the tie holds. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#ifdef __cplusplus
extern "C" {
#endif

struct launch {
    int world_size; /* 1 .. MAX_DEVICES */

    /* The program: argv ended by NULL; started again from /proc/self/exe, or, where `program` is
     * set, found by that name along PATH. */
    char *const *argv;
    const char *program;

    /* Instead of argv: a function run in the forked child, whose return is the exit status
     * (0..255). For tests and benchmarks: the caller must have no other thread at that time. */
    int (*entry)(void *context);
    void *context;

    /* File descriptors the ranks inherit under the same numbers, beside 0, 1 and 2 (CLOEXEC or
     * not). */
    const int *pass_fds;
    int pass_count;

    /* Once one rank has come to the rendezvous all must within this time; 0: 300 s. */
    double start_timeout_s;
};

struct launch_result {
    /* 0; the first failing rank's own; 128+n if it, or the launcher, got signal n */
    int exit_status;
    int signal; /* that the launcher got (Ctrl-C: SIGINT), 0 if none: start no further job */
    int rank;   /* the rank that failed first, -1 if none or unknown */
    long pid;   /* its process id, 0 likewise */
};

/* Runs a job to its end. Each rank's environment is the caller's with RANK, LOCAL_RANK,
 * WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (named for programs that read them; no
 * port is opened), OMP_NUM_THREADS=1 unless set, as torchrun has it, and the two descriptors
 * comm_open needs. OK if every rank ended with 0. ERR_READER if the first to end was one whose
 * reader had gone (SIGPIPE). Else the root cause is the error text and main exits with
 * out->exit_status:  rank 2 (pid 123) ended by signal 9 (Killed): ... When it returns no process
 * of the job is left. Blocks SIGINT, SIGTERM, SIGHUP in its thread for the time and restores the
 * mask. One call at a time in a process. */
int launch_ranks(const struct launch *launch, struct launch_result *out);

#ifdef __cplusplus
}
#endif
#endif
