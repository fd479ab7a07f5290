/* Inside group/: the contents of a group. */
#ifndef GROUP_STATE_H
#define GROUP_STATE_H

#include <pthread.h>

#include "allreduce/host/executor.h"
#include "base/worker.h"
#include "comm/announce.h"
#include "comm/comm.h"
#include "group/call_trace.h"
#include "group/group.h"

/* The job of a world and of all groups made from it. */
struct membership {
    struct comm *comm;
    int users; /* number of groups; atomic, since different threads may end them */
    int local_rank;
    char name[48]; /* the job's name */
    int made;      /* groups made so far, the same on all ranks */
};

/* Sent with each piece of a message: executor_call.signature and .more. */
struct mailbox_head {
    uint64_t count;
    uint32_t type;
    int32_t tag;
};

/* A message that has arrived and has no receive yet: tags.c. */
struct stashed {
    struct mailbox_head head;
    int source;
    void *data;
    struct stashed *next;
};

/* ---- memory that the ranks share: memory.c ---- */

struct shared_memory {
    struct group_sizes sizes;
    char *start;
    size_t bytes;
    struct announcement (*announced)[ANNOUNCED]; /* [n] */
    struct comm_flag *flags[MAX_DEVICES];        /* rank r's */
    float *window[MAX_DEVICES], *scratch[MAX_DEVICES], *mailbox[MAX_DEVICES];
    struct tally *tallies[MAX_DEVICES]; /* rank r's: [TALLIES] */
    uint64_t *makes[MAX_DEVICES];       /* new_group calls that rank r has begun here */
    float *slots[MAX_DEVICES];          /* rank r's: the elements of its first slot */
    size_t slot_stride;                 /* bytes from one slot to the next */
};

/* Sums up a rank's calls before a turn of the eager calls: eager.c. */
enum { TALLIES = 4 };
struct tally {
    uint64_t sum;    /* announcer.tally */
    uint64_t number; /* announcer.number */
};

/* Collective over the job: member 0 makes the memory, and all members map it. memory->sizes is set.
 * All ranks of the job must pass the same `bytes` in `blob`, which is checked. me < 0: this rank is
 * not a member, and maps nothing. */
int share_memory(struct shared_memory *memory, struct comm *comm, int n, int me, const void *blob,
                 size_t bytes);
void unmap_memory(struct shared_memory *memory);

/* ---- plans ---- */

struct group_plan {
    struct window_request request;
    struct plan plan;
    int users; /* number of works that use it */
    struct group_plan *next;
};

/* ---- eager calls: eager.c ---- */

enum { SLOTS = 32, HALF_OF_SLOTS = SLOTS / 2, KEPT_EAGER = 64 };

/* The parts of an eager call that stay the same from call to call. */
struct eager_call {
    enum collective what; /* these identify the call */
    struct arithmetic how;
    int root, average;
    size_t count;
    struct plan plans[2]; /* [turn] */
    struct announced_call told;
    uint64_t signature;
    int users; /* works that use it, plus 1 while the group keeps it */
};

/* ---- works and the runners that run them ---- */

struct runner;
struct work {
    struct group *group;
    struct group_call call;
    uint64_t number; /* number of the call, from 1; collectives and messages count separately */
    /* The parts of a long call: all but the last use the plan `full`, the last one `last`. */
    struct group_plan *full, *last;
    size_t parts, longest;
    uint64_t base;            /* base of the first part's epochs */
    uint64_t calls;           /* counted calls before this one; they select the half of scratch */
    struct eager_call *brief; /* not NULL: an eager call; `base` is its number */
    struct tally tally;       /* for an eager call: a tally of earlier calls */
    size_t *claims;      /* for an uneven call: uneven.c; `last` is the plan that exchanges them */
    const size_t *sizes; /* over MPI: the lengths of the blocks, [from * n + to]; else NULL */

    int (*run)(struct runner *runner, struct work *work);
    struct runner *runner;
    int source;
    struct task task;
};

enum runner_kind { RUNS_COLLECTIVES, RUNS_SENDS, RUNS_RECEIVES };

/* Runs works one after another: all collectives of a group, all messages to one rank, or all
 * receives of one tag from one rank or from any. */
struct runner {
    struct host_ranks ranks; /* the executor's view; it waits through wait_on */
    struct host_ranks slots; /* the same for eager calls */
    struct group *group;
    enum runner_kind kind;
    struct work *now;          /* the running work */
    int peer;                  /* the rank in the group that `now` waits for */
    uint64_t taken;            /* messages to one rank: host_ranks.taken */
    struct executor_call part; /* the current part; constant fields are set once */
    struct worker *worker;     /* has one thread; NULL: all calls so far were synchronous */
    int source, tag;           /* of receives */
    struct runner *next;       /* the next runner of receives */
};

/* With wait 1 it runs the work to its end, in the caller if the runner is idle, and returns its
 * code. With wait 0 the runner's thread will run it. */
int run_on(struct runner *runner, struct work *work, int wait);
void wait_for_runner(struct runner *runner); /* until all work queued so far is done */
int runner_open(struct runner **out, struct group *group, enum runner_kind kind);
void runner_close(struct runner *runner); /* after all its works; NULL is fine */

/* Waits for a flag on behalf of runner->now. peer is a rank in the group. */
int wait_on(struct runner *runner, struct comm_flag *flag, uint64_t epoch, int peer);

/* Describes runner->now in error messages if it waits for no single rank. */
struct comm_wait_reason runner_reason(struct runner *runner);

/* Called before runner->now begins. If the job has failed: ERR_PEER, which names the call. */
int check_job(struct runner *runner);

/* The names of a group's calls in error messages: "all_reduce", or in the second group that a
 * program makes "all_reduce of group 2". The group of all ranks is number 0 and is not named. */
enum { CALL_NAME = 40 };
/* As in torch.distributed: "all_reduce". */
static inline const char *call_name(enum collective what) {
    return what == COLLECTIVE_ALL_REDUCE ? "all_reduce" : collective_name(what);
}
struct call_names {
    char collectives[COLLECTIVE_COUNT][CALL_NAME], recv[CALL_NAME], monitored[CALL_NAME];
};

struct group {
    struct membership *job;
    struct call_names names;
    int n, rank, ranks[MAX_DEVICES]; /* ranks[r]: its rank in the job */
    double timeout_s;                /* 0: the job's timeout */
    struct group_sizes asked;        /* memory.sizes as the caller gave them */
    struct shared_memory memory;
    struct announcer announcer;
    size_t caches;              /* bytes; a call's tensors beyond this size do not stay in caches */
    struct allreduce_link link; /* for the choice of an algorithm; the same on all ranks */
    struct group_plan *plans;
    int plan_count;
    uint64_t base, calls, messages;
    struct eager_call *eagers[KEPT_EAGER];
    uint64_t eager_calls;
    uint64_t sent[MAX_DEVICES]; /* pieces sent to that rank */
    /* Receives, indexed by sender. The lock guards everything except the list of runners. */
    pthread_mutex_t mailbox_lock;
    uint64_t received[MAX_DEVICES]; /* pieces taken */
    int pending[MAX_DEVICES];       /* pending receives from only that rank */
    int taking[MAX_DEVICES];        /* 1: a receive looks at the first message, or takes it */
    struct stashed *stash;          /* oldest first */
    struct runner *collectives, *sends[MAX_DEVICES], *receives;
    struct work here;         /* for a synchronous call */
    int used;                 /* 1: a thread is inside; atomic */
    int waits;                /* 1: that thread is waiting for its collective; atomic */
    uint64_t made;            /* new_group calls on this group that this rank has begun */
    struct call_trace *trace; /* NULL: calls are not recorded */
    struct group_mpi *mpi;    /* for ranks on several machines: mpi/mpi.h; else NULL */
};

/* submit.c: admits one thread at a time. */
int enter_group(struct group *group, const char *what);
void leave_group(struct group *group);

/* deadlock.c. The first records that this rank begins a new_group. The second runs while call
 * `number` waits for `peer`. ERR_FAILED: the peer is in a new_group that waits for this rank. */
void begin_making(struct group *group);
int look_for_deadlock(struct group *group, const char *call, uint64_t number, int peer);

/* plan_parts.c: finds or builds a plan, and holds it for a work. */
int take_plan(struct group *group, const struct window_request *request, struct group_plan **out);
struct window_request request_of(const struct group *group, const struct group_call *call);
int plan_parts(struct work *work); /* sets its plans, parts and, for a message, base */
int run_parts(struct runner *runner, struct work *work); /* runs all parts of a work */

/* plan_parts.c: a call's announcement to the peers. told->what points to `text`. */
enum { TOLD_TEXT = 48 };
void tell(const struct group_call *call, struct comm_call *told, char text[TOLD_TEXT]);

/* eager.c */
int is_eager(const struct group *group, const struct group_call *call);
struct eager_call *kept_eager(const struct group *group, const struct group_call *call);
int begin_eager(struct work *work);           /* work->brief: its kept_eager, or NULL */
void release_eager(struct eager_call *brief); /* NULL is fine */

/* uneven.c */
#define UNEVEN_EPOCHS ((uint64_t)1 << 32) /* more than any plan needs */
static inline int is_uneven(const struct group_call *call) {
    return call->uneven || call->input_sizes || call->output_sizes;
}
int plan_uneven(struct work *work);
int run_uneven(struct runner *runner, struct work *work);

/* tags.c. The first runs a receive between processes of one machine. The second checks that `from`
 * has sent what the work expects; ERR_FAILED ends the job. */
int receive_message(struct runner *runner, struct work *work);
int judge_message(struct work *work, const struct mailbox_head *head, int from);

/* memory.c: the number of pieces for so many elements; the memory before piece `number` from
 * `sender` to this rank, with the flag SENT. */
uint64_t mailbox_pieces(const struct group *group, size_t count, enum dtype type);
struct host_slot *mailbox_slot(const struct group *group, int sender, uint64_t number);

void free_receives(struct group *group); /* tags.c: frees the runners and unreceived messages */

#endif
