/* Process groups: the collectives of torch.distributed, and messages from rank to rank.
 *
 *     group.h     what calls.c, the public calls, and others use
 *     group.c     beginning, sub-groups, end
 *     memory.c    the memory that the ranks of a group share
 *     submit.c    a call begins: what it takes of the group, and who runs it
 *     plan_parts.c a call becomes plans (group/plans/windows.h), which are kept
 *     eager.c     eager calls, through slots
 *     runners.c   who runs them: the caller itself, or a thread of its own
 *     uneven.c    calls whose blocks differ in length
 *     tags.c      messages: send, and receive by rank and tag, from one rank or from anybody
 *     call_trace.c what each call took: DUET_TRACE
 *     monitored.c the barrier that names who is missing
 *     typed.c     how elements of any type are moved
 *     plans/      the plans: who shows what, who takes it
 *     calls.c     the calls of duet/distributed.h, on tensors; blocks.c: blocks of their lengths;
 *                 vars.c: calls as nodes of a tape; spawn.c: how ranks come together
 *
 * All memory of calls is host memory. A call moves `count` elements a block, any number of them.
 *
 * Order. All ranks of a group call its collectives in the same order. Messages of one tag from one
 * rank to one other arrive in the order in which they were sent; messages and collectives do not
 * wait for each other.
 *
 * Threads: one thread at a time uses a group (ERR_USAGE if two do); different threads may use
 * different groups. Errors are those of comm/comm.h; after any but ERR_USAGE the job has failed. */
#ifndef GROUP_GROUP_H
#define GROUP_GROUP_H

#include "allreduce/element.h"
#include "group/plans/windows.h"

struct group;
struct work;

enum { ANY_SOURCE = -1 };

extern const struct network_ops *const network_by_mpi; /* comm_options.by; mpi/world.c */

/* Joins the job that the environment names (comm_open with options.meet): all its ranks are the
 * group. timeout_s: of every wait; 0: 300. Returns once all ranks have come. */
int group_open(struct group **out, double timeout_s);

/* The same for a job that the ranks find by its name (comm_options.name). */
int group_join(struct group **out, const char *name, int rank, int n, double timeout_s);

/* The same with other sizes of the memory that the ranks share, in bytes: multiples of 256, for
 * tests. All ranks give the same. */
struct group_sizes {
    uint32_t window;  /* of each rank: at least 256 for each rank */
    uint32_t half;    /* of its scratch */
    uint32_t mailbox; /* of one mailbox, among up to 16 ranks */
    uint32_t slot;    /* what an eager call shows, at most; 0: no call is eager */
    uint32_t caches;  /* for the tensors of all ranks in a call; 0: most of the last one */
};
struct group_sizes group_sizes_default(void); /* 2 MiB, 1 MiB, 1 MiB, 16 KiB, 0 */

/* sizes.mailbox among n ranks. A rank has one for each other rank, and all of them together take
 * no more than those of 16 ranks. */
uint32_t group_mailbox_among(uint32_t mailbox, int n);

/* Bytes of a mailbox with all that belongs to it: each of its places begins with a head. */
enum { MAILBOX_HEAD = 32 };
size_t group_mailbox_bytes(const struct group_sizes *sizes);
int group_open_sized(struct group **out, double timeout_s, const struct group_sizes *sizes);

/* Collective over `world`, whose every rank gives the same list: n different ranks of `world`, in
 * the order in which they are to be ranks 0 .. n-1 of the new group. On a rank that is not in the
 * list *out is NULL. timeout_s 0: world's. The group may outlive `world`. */
int group_new(struct group **out, struct group *world, const int *ranks, int n, double timeout_s);

/* Ends pending calls, each within its deadline, and leaves; does not wait for ranks that have made
 * the same calls. Works that were not freed must not be used any more. NULL is fine. */
void group_close(struct group *group);

int group_rank(const struct group *group);
int group_size(const struct group *group);
int group_local_rank(const struct group *group);

/* The job, if the group has all its ranks with the same numbers; NULL: it is a sub-group, or
 * numbers them otherwise. Borrowed from the group. */
struct comm *group_comm(const struct group *group);

/* What the ranks do in the group's name by other means, as DDP, stands among its calls: for
 * comm_call.group, borrowed from the group (NULL: none is given, or it has one rank); and of what
 * has no comm_call, in at most 23 letters. */
struct announcer *group_order(struct group *group);
int group_announce(struct group *group, const char *what);

/* One call. */
struct group_call {
    enum collective what;
    size_t count; /* elements of a block: windows.h */
    struct arithmetic how;
    int average; /* 1: each term is multiplied by 1/n before it is added: floats only */
    int root;    /* if there is one */
    int peer;    /* COLLECTIVE_SEND: the other rank; ANY_SOURCE */
    int receive; /* COLLECTIVE_SEND: 1: this rank receives */
    int tag;     /* COLLECTIVE_SEND: only messages of the same tag are received, in their order */
    const void *input;
    void *output; /* may be the input */

    /* If blocks differ in length: the lengths of those of `input` and `output`, in elements, [n],
     * read when the call begins; NULL: `count` each. ALL_TO_ALL takes both. ALL_GATHER and, on the
     * root, GATHER have output_sizes, and `count` is the length of the input; REDUCE_SCATTER and,
     * on the root, SCATTER have input_sizes, and `count` is the length of the output. All ranks
     * call it so; those that give neither set uneven 1. Input and output are different memory. A
     * rank that expects a number other than its peer's gets an error. */
    const size_t *input_sizes, *output_sizes;
    int uneven;
};

/* Runs the call to its end; or, if work is not NULL, begins it, and *work must be waited for and
 * then freed. Memory of the call must not be touched until the end. ERR_USAGE: nothing was
 * begun. */
int group_run(struct group *group, const struct group_call *call, struct work **work);

/* Waits for the end of the call and returns how it went, with the error text; as often as it is
 * called. */
int work_wait(struct work *work);
int work_done(struct work *work);         /* 1: it has ended, 0: not yet */
int work_source(const struct work *work); /* of a receive that has ended: the rank it came from */
void work_free(struct work *work);        /* waits for the end; NULL is fine */

/* A barrier at which rank 0 finds out which ranks do not come within timeout_s: all of them, or the
 * first one. ERR_TIMEOUT: "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms". */
int group_monitored_barrier(struct group *group, double timeout_s, int all);

#endif
