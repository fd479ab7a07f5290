/* The launcher's internal state: a running job and its processes. Only one thread uses it. */
#ifndef COMM_JOB_H
#define COMM_JOB_H

#include <signal.h>
#include <sys/types.h>

#include "comm/board.h"
#include "comm/launch.h"

struct process {
    pid_t pid;     /* 0: not started */
    int pidfd;     /* -1: the kernel has none; the loop then notices an end at its next look */
    int ended;     /* it stays a zombie until the job is over, so its id is not reused */
    int signalled; /* the launcher sent it a signal, so its exit status means nothing */
    int exit_code; /* once it has ended; 0 if a signal ended it */
    int signal;    /* the signal that ended it, else 0 */
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

    /* The job's clock, ns, never 0. It counts the time in which the launcher runs or sleeps as
     * intended. If the whole machine or job stops (a suspended virtual machine, Ctrl-Z), this clock
     * stops too, so no deadline of the launcher passes meanwhile. */
    int64_t clock;
    int64_t last_look; /* now_ns() when the clock was last advanced */

    int signal;           /* the first signal that the launcher received, 0: none */
    int signals;          /* how many signals; an immediate repeat of the first does not count */
    int64_t signal_ns;    /* now_ns() when the first signal arrived */
    int passed_on;        /* 1: that signal was passed on, and the ranks have launch->grace_s */
    int64_t ending_since; /* on the job's clock; 0: the job is not ending */
    enum ending ending;   /* the stage reached */
};

/* start.c: makes one process per rank. After an error some may be running. */
int start_ranks(struct job *job);

/* signals.c: sleeps until a rank ends or a signal arrives, for at most most_ms. */
int sleep_until_event(struct job *job, int most_ms);
void take_late_signal(struct job *job); /* called once all ranks have ended */

/* end.c: notices ranks that have ended, and ends the job in stages. */
int watch_processes(struct job *job);                                /* returns how many live */
void end_job(struct job *job, int rank, int code, const char *text); /* the first call wins */
void pass_on_signal(struct job *job, int signal);                    /* if grace_s is set */
void reap_ranks(struct job *job); /* collects the zombies once no rank runs */

/* report.c: how a rank ended, and the error text and exit status of the whole job. */
int ended_well(const struct job *job, int rank);
void describe_end(const struct job *job, int rank, char *text, size_t size);
int report_end(const struct job *job, struct launch_result *out);

#endif
