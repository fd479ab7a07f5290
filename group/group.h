/* Process groups: the collectives of torch.distributed, and messages from rank to rank.
 *
 *     group.h     the interface for calls.c, the public calls, and others
 *     group.c     beginning, sub-groups, end
 *     memory.c    the memory that the ranks of a group share
 *     submit.c    begins a call: what it takes from the group, and which thread runs it
 *     plan_parts.c makes the plans of a call (group/plans/windows.h), and keeps them
 *     eager.c     eager calls, through slots
 *     runners.c   the threads: a call runs in the caller or in a worker
 *     uneven.c    calls whose blocks differ in length
 *     tags.c      receives messages by rank and tag, from one rank or from any
 *     call_trace.c how long each call took: DUET_TRACE
 *     monitored.c the barrier that names missing ranks
 *     typed.c     copies and sums of elements of any type
 *     plans/      the plans: which rank shows what, and which takes it
 *     calls.c     the calls of duet/distributed.h, on tensors; blocks.c: their blocks; vars.c:
 *                 calls as nodes of a tape; spawn.c: starts ranks
 *
 * Calls use host memory only. A block has `count` elements, any number.
 *
 * Order. All ranks of a group call its collectives in the same order. Messages with the same tag
 * from one rank to another arrive in the order in which they were sent. Messages and collectives do
 * not wait for each other.
 *
 * Threads: one thread at a time uses a group (ERR_USAGE if two do); different threads may use
 * different groups. Errors are those of comm/comm.h; all except ERR_USAGE fail the job. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "allreduce/element.h"
#include "group/plans/windows.h"

struct group;
struct work;

enum { ANY_SOURCE = -1 };

extern const struct network_ops *const network_by_mpi; /* comm_options.by; mpi/world.c */

/* Joins the job that the environment names (comm_open with options.meet); all its ranks form the
 * group. timeout_s is the timeout of every wait; 0: 300. Returns when all ranks have joined. */
int group_open(struct group **out, double timeout_s);

/* The same for a job that the ranks find by name (comm_options.name). */
int group_join(struct group **out, const char *name, int rank, int n, double timeout_s);

/* The same with other sizes of the shared memory, for tests: bytes, multiples of 256, the same on
 * all ranks. */
struct group_sizes {
    uint32_t window;  /* each rank's window: at least 256 times n */
    uint32_t half;    /* half of a rank's scratch */
    uint32_t mailbox; /* one mailbox, with up to 16 ranks */
    uint32_t slot;    /* most bytes of an eager call; 0: no call is eager */
    uint32_t caches;  /* for the tensors of all ranks in a call; 0: most of the last-level cache */
};
struct group_sizes group_sizes_default(void); /* 2 MiB, 1 MiB, 1 MiB, 16 KiB, 0 */

/* The mailbox size for n ranks. A rank has one mailbox for each other rank, and together they take
 * no more memory than with 16 ranks. */
uint32_t group_mailbox_among(uint32_t mailbox, int n);

/* Each slot of a mailbox begins with a head of so many bytes. */
enum { MAILBOX_HEAD = 32 };
size_t group_mailbox_bytes(const struct group_sizes *sizes);
int group_open_sized(struct group **out, double timeout_s, const struct group_sizes *sizes);

/* Collective over `world`. Every rank of `world` passes the same list of n different ranks, which
 * become ranks 0 .. n-1 of the new group in this order. On a rank outside the list *out is NULL.
 * timeout_s 0: world's. The group may outlive `world`. */
int group_new(struct group **out, struct group *world, const int *ranks, int n, double timeout_s);

/* Ends pending calls, each within its deadline, and leaves the group. It does not wait for ranks
 * that have made the same calls. Works that were not freed become invalid. NULL is fine. */
void group_close(struct group *group);

int group_rank(const struct group *group);
int group_size(const struct group *group);
int group_local_rank(const struct group *group);

/* The job, if the group has all its ranks with the same numbers; else NULL. Borrowed from the
 * group. */
struct comm *group_comm(const struct group *group);

/* Work outside the group's calls, such as DDP's, is announced among them. The first returns the
 * announcer for comm_call.group, borrowed from the group (NULL if group is NULL or has one rank).
 * The second announces work without a comm_call, named in at most 23 characters. */
struct announcer *group_order(struct group *group);
int group_announce(struct group *group, const char *what);

/* The description of one call. */
struct group_call {
    enum collective what;
    size_t count; /* elements of a block: windows.h */
    struct arithmetic how;
    int average; /* 1: each term is multiplied by 1/n before it is added: floats only */
    int root;    /* used if the call has a root */
    int peer;    /* COLLECTIVE_SEND: the other rank; ANY_SOURCE */
    int receive; /* COLLECTIVE_SEND: 1: this rank receives */
    int tag;     /* COLLECTIVE_SEND: a receive takes only messages with this tag, in order */
    const void *input;
    void *output; /* may be the input */

    /* If blocks differ in length: the lengths of the blocks of `input` and `output`, in elements,
     * [n], read when the call begins; NULL: `count` each. ALL_TO_ALL takes both lists. ALL_GATHER
     * and, on the root, GATHER take output_sizes, and `count` is the length of the input.
     * REDUCE_SCATTER and, on the root, SCATTER take input_sizes, and `count` is the length of the
     * output. Either all ranks make an uneven call or none; ranks without a list set uneven to 1.
     * Input and output must not overlap. Lengths that two ranks disagree on are an error. */
    const size_t *input_sizes, *output_sizes;
    int uneven;
};

/* Runs the call to its end. If work is not NULL, it only begins the call, and *work must be waited
 * for and then freed. The call's memory must not be touched until the end. ERR_USAGE: nothing was
 * begun. */
int group_run(struct group *group, const struct group_call *call, struct work **work);

/* Waits for the end of the call and returns its code, with the error text, however often it is
 * called. */
int work_wait(struct work *work);
int work_done(struct work *work);         /* 1: it has ended, 0: not yet */
int work_source(const struct work *work); /* after a receive: the rank that sent */
void work_free(struct work *work);        /* waits for the end; NULL is fine */

/* A barrier at which rank 0 finds the ranks that do not arrive within timeout_s: all of them, or
 * the first one. ERR_TIMEOUT: "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms". */
int group_monitored_barrier(struct group *group, double timeout_s, int all);

#endif
