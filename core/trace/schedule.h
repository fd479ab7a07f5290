/* A schedule records everything that a run's host threads issued, while its own code ran.
 *
 * A dry run (train/estimate/estimate.h) executes the same code that trains. If its devices keep a
 * schedule, each call is recorded in the program of the thread that made it: a kernel with its
 * cost, a copy with its ends, the record of an event, a wait for an event, or a collective.
 * clock/run.h then runs these programs in modelled time. So a modelled timeline is a
 * run of Duet's own schedule, and no second description of a step exists.
 *
 *     thread of device 0:   launch  launch  record e1  ...  wait e7  copy 0->1 ...
 *     thread of device 1:   wait e2  launch  launch  record e7 ...
 *
 * Threads synchronise through events. A stream can only wait for a record that was already issued.
 * So a thread waits here until that record is issued, as it waits at a barrier in the real run.
 *
 * Any thread may write. Ranks that are simulated one after another write into one schedule. */
#ifndef TRACE_SCHEDULE_H
#define TRACE_SCHEDULE_H

#include "base/limits.h"
#include "trace/span.h"

/* Classes of kernels, which reach different fractions of a GPU's peak rate. */
enum work_class {
    WORK_POINTWISE,
    WORK_NORM,
    WORK_CONV,
    WORK_CONV_1X1,
    WORK_CONV_GROUPED,
    WORK_PRODUCT,
    WORK_FREE
};

/* The work of a kernel. WORK_FREE: work that no GPU library does, such as changes of layout. */
struct work {
    enum work_class of;
    double flops, bytes;     /* bytes: each operand read or written once, without padding */
    int groups, group_width; /* groups of a convolution, and channels that each output reads */
    /* For an eager program: the operations that this launch replaces; additions of gradients and of
     * BatchNorm's count, which the formulas omit; and the extra bytes that the program moves
     * because it does not fuse what Duet fuses. */
    int eager, additions;
    int stays_float32;   /* 1: it stays in float32 under autocast */
    int casts;           /* casts under autocast, as separate operations */
    double weight_bytes; /* bytes of weights read in forward, or whose gradients it writes */
    int concatenates;    /* 1: it is the first kernel of a concatenation */
    double eager_bytes;
};

enum scheduled_kind {
    SCHEDULED_KERNEL,
    SCHEDULED_COPY,      /* bytes from device `from` to `to` */
    SCHEDULED_RECORD,    /* event `key` gets its record number `value` */
    SCHEDULED_WAIT,      /* the stream waits for that record */
    SCHEDULED_HOST_WAIT, /* the thread waits for that record */
    SCHEDULED_HOST_SYNC, /* the thread waits until the stream is empty */
    SCHEDULED_GROUP,     /* a step on several devices: the `parts` entries that follow */
    SCHEDULED_MOVE       /* a part of a group: bytes from one device to another */
};

/* The collective of all ranks of a GROUP. */
enum scheduled_collective {
    SCHEDULED_ALONE,
    SCHEDULED_SUM,
    SCHEDULED_BROADCAST,
    SCHEDULED_ALL_GATHER,
    SCHEDULED_REDUCE_SCATTER
};

enum { SCHEDULED_HOST = -1 }; /* host memory as one end of a copy */

struct scheduled {
    uint8_t kind, collective; /* GROUP: a collective of `ranks` ranks; key names the call */
    int16_t from, to, ranks;
    int parts;
    uint64_t key, value, bytes;
    struct work work;
    struct span facts; /* its device, lane, phase, step and name; the times are 0 */
};

/* The entries that one thread issued, in order. */
struct program {
    uintptr_t thread;
    int rank;
    struct scheduled *list; /* [count] owned */
    int count, capacity;
    int open; /* index of the group that is being written; -1: none */
};

enum { MOST_PROGRAMS = MAX_DEVICES + 1 };

struct schedule;

int schedule_new(struct schedule **out);
void schedule_free(struct schedule *schedule); /* NULL is allowed */

/* Appends a copy of *entry to the calling thread's program in rank facts.rank. If memory runs out,
 * schedule_programs reports it. Everything that the thread adds between the begin and the end of a
 * group is part of the group. */
void schedule_add(struct schedule *schedule, const struct scheduled *entry);
void schedule_group_begin(struct schedule *schedule, const struct scheduled *group);
void schedule_group_end(struct schedule *schedule, int rank);

/* Marks the open group as a collective over `ranks` ranks, with `bytes` bytes (the sum of all
 * blocks if each rank has one). Its key is the number of the rank's collectives before it: all
 * ranks make the same collectives in the same order. */
void schedule_collective(struct schedule *schedule, int rank, enum scheduled_collective what,
                         int ranks, uint64_t bytes);

uint64_t schedule_new_event(struct schedule *schedule); /* a key for an event, from 1 */

/* All programs, in the order of the device whose stream each used first. So the order does not
 * depend on how the threads were run. ERR_MEMORY: entries are missing. */
int schedule_programs(struct schedule *schedule, const struct program **out, int *count);

/* Streams are numbered over all devices: lane l of device d is d * LANE_COUNT + l. */
static inline int scheduled_stream(const struct scheduled *s) {
    return s->facts.device * LANE_COUNT + s->facts.lane;
}

#endif
