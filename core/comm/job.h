/* The launcher's internal state: a running job and its processes. Only one thread uses it. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "comm/board.h"
#include "comm/launch.h"

/* A rank's contribution to the current exchange, and the progress of the reply to it. */
struct offer {
    int arrived;
    int fd;        /* the descriptor it brought, -1 if none */
    int delivered; /* how many ranks' packets have been sent to this rank */
};

struct process {
    pid_t pid;     /* 0: not started */
    int socket;    /* the launcher's end; -1: closed */
    int pidfd;     /* -1: the kernel has none; the loop then checks every few milliseconds */
    int ended;     /* it stays a zombie until the job is over, so its id is not reused */
    int signalled; /* the launcher sent it a signal, so its exit status means nothing */
    int exit_code; /* once it has ended; 0 if a signal ended it */
    int signal;    /* the signal that ended it, else 0 */

    struct offer offer;
};

/* The stages of ending a job, each harder than the one before. */
enum ending { ENDING_LEAVE, ENDING_TERM, ENDING_KILL };

struct job {
    const struct launch *launch;
    int world;
    struct board *board;
    int board_fd, signal_fd;
    uint64_t secret[2];            /* random; the ranks find it in their environment */
    sigset_t mask_before;          /* the thread's signal mask when launch_ranks was called */
    struct sigaction child_before; /* the process's action for SIGCHLD at that time */
    struct process ranks[MAX_DEVICES];

    uint32_t exchange; /* the number of the current exchange, from 1 */
    int delivering;    /* all offers have arrived and are being sent to all ranks */
    int crowded;       /* too many descriptors are in flight: pause for a moment */
    int joined;        /* 1: a rank has come to the rendezvous */

    /* The job's clock, ns, never 0. It counts the time in which the launcher runs or sleeps as
     * intended. If the whole machine or job stops (a suspended virtual machine, Ctrl-Z), this clock
     * stops too, so no deadline of the launcher passes meanwhile. */
    int64_t clock;
    int64_t last_look; /* now_ns() when the clock was last advanced */

    int signal;           /* the first one that the launcher received, 0: none */
    int signals;          /* how many; the first one again at once does not count */
    int64_t signal_ns;    /* now_ns() when the first came */
    int passed_on;        /* 1: that signal was passed on, and the ranks have launch->grace_s */
    int64_t ending_since; /* on the job's clock; 0: the job is not ending */
    enum ending ending;   /* the stage reached */
};

/* launch.c: initialises a zeroed job. */
void job_begin(struct job *job, const struct launch *launch);

/* start.c: makes one process per rank. After an error some may be running. */
int start_ranks(struct job *job);

/* serve.c: the rendezvous. serve_ranks sleeps for at most timeout_ms until a rank sends or ends or
 * a signal arrives; it collects the contributions of all ranks and delivers them to each. */
int serve_ranks(struct job *job, int timeout_ms);
void serve_late_signal(struct job *job); /* called once all ranks have ended */
void serve_stop(struct job *job);

/* end.c: notices ranks that have ended, and ends the job in stages. */
int watch_processes(struct job *job);                                /* returns how many run */
void end_job(struct job *job, int rank, int code, const char *text); /* the first call wins */
void pass_on_signal(struct job *job, int signal);                    /* if grace_s is set */
void reap_ranks(struct job *job); /* collects the zombies once no rank runs */

/* report.c: how a rank ended, and the error text and exit status of the whole job. */
int ended_well(const struct job *job, int rank);
void describe_end(const struct job *job, int rank, char *text, size_t size);
int report_end(const struct job *job, struct launch_result *out);

#endif
