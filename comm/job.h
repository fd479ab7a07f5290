/* Inside the launcher: a running job and its processes. One thread touches all of this. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include "comm/board.h"
#include "comm/launch.h"

#include <signal.h>
#include <sys/types.h>

/* What a rank has brought to the exchange that is under way. */
struct offer {
    bool here;
    int fd; /* -1: none */
    uint32_t bytes;
    void *blob;
    int given; /* how many ranks' blobs have been sent back to it */
};

struct process {
    pid_t pid;  /* 0: not started */
    int socket; /* the launcher's end; -1: closed */
    int pidfd;  /* -1: not offered by the kernel; then the loop looks again every few ms */
    bool ended; /* a zombie until the job is over, so that its id is not given to a stranger */
    bool told;  /* the launcher has sent it a signal: its status is not its own any more */
    int exit_code, signal; /* once ended: the one or the other, else 0 */
    struct offer offer;
};

struct job {
    const struct launch *launch;
    int world;
    struct board *board;
    int board_fd, signal_fd;
    sigset_t mask_before;
    struct process ranks[MAX_DEVICES];

    uint32_t exchange;  /* the one under way, from 1 */
    bool giving;        /* all offers are here and are being sent back */
    bool crowded;       /* too many descriptors in flight: pause for a moment */
    int64_t first_came; /* when the first rank came to the rendezvous, ns; 0: none yet */

    int signal;           /* that the launcher received, 0: none */
    int signals;          /* how many */
    int64_t ending_since; /* ns; 0: the job runs */
    int stage;            /* of ending: 0 wait, 1 SIGTERM sent, 2 SIGKILL sent */
};

/* start.c: makes one process per rank. On an error some may be running. */
int start_ranks(struct job *job);

/* serve.c: sleeps for at most timeout_ms until a rank speaks or ends or a signal comes; takes
 * what the ranks bring and gives all to each. */
int serve_start(struct job *job);
int serve_ranks(struct job *job, int timeout_ms);
void serve_late_signal(struct job *job); /* when all ranks have ended */
void serve_stop(struct job *job);

/* end.c: sees who has ended; begins and drives the end of the job. Returns how many still run. */
int watch_processes(struct job *job);
void end_job(struct job *job, int rank, int code, const char *text); /* first call wins */
int time_to_next_stage(const struct job *job);                       /* ms */
void reap_ranks(struct job *job);                                    /* no process is left */
int report_end(const struct job *job, struct launch_result *out);

#endif
