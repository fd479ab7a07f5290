/* A schedule: everything that a run's host threads issued, recorded while its own code ran.
 *
 * A dry run (train/estimate/estimate.h) executes the very code that trains. If its devices keep a
 * schedule, each call is recorded in the program of the thread that made it: a kernel with its
 * cost, a copy with its ends, the record of an event, a wait for one, the steps of a collective.
 * clock/run.h then lets these programs run against modelled time. So a modelled timeline is a run
 * of Duet's own schedule, and no second description of a step exists.
 *
 *     thread of device 0:   launch  launch  record e1  ...  wait e7  copy 0->1 ...
 *     thread of device 1:   wait e2  launch  launch  record e7 ...
 *
 * Threads synchronise through events. A stream can only wait for a record that was already issued.
 * So a thread waits here until that record is issued, as a barrier makes it wait in the real run.
 *
 * Any thread may write. Ranks that are imagined one after another write into one schedule. */
#ifndef TRACE_SCHEDULE_H
#define TRACE_SCHEDULE_H

#include "base/limits.h"
#include "trace/span.h"

/* Classes of kernels, which reach different parts of a GPU's rate. */
enum work_class {
    WORK_POINTWISE,
    WORK_NORM,
    WORK_CONV,
    WORK_CONV_1X1,
    WORK_CONV_GROUPED,
    WORK_PRODUCT,
    WORK_FREE
};

/* The work of a kernel. WORK_FREE: changes of layout and the like, which no GPU library does. */
struct work {
    enum work_class of;
    double flops, bytes;     /* bytes: each operand read or written once, without padding */
    int groups, group_width; /* of a convolution of groups; the channels that each output sees */
    /* For an eager program: the operations that this launch stands for; additions outside of the
     * formulas, of gradients and of BatchNorm's count; and the extra bytes that it moves because it
     * does not fuse what Duet fuses. */
    int eager, additions;
    int stays_float32;   /* 1: so it does under autocast */
    int casts;           /* of operands and results under autocast, as separate operations */
    double weight_bytes; /* of the weights that it reads in forward, or whose gradient it writes */
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
    SCHEDULED_GROUP,     /* a step of several devices: the `parts` entries that follow */
    /* Parts of a group. One with `then` begins when all parts before it are done. */
    SCHEDULED_AWAIT, /* until flag `key` is `value` or more */
    SCHEDULED_MOVE,  /* bytes from one device to another */
    SCHEDULED_POST   /* flag `key` becomes `value` */
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
    uint8_t kind, then;
    uint8_t collective; /* GROUP: all ranks take part in this: key names the call, ranks how many */
    int16_t from, to, ranks;
    int parts;
    uint64_t key, value, bytes;
    struct work work;
    struct span facts; /* its device, lane, phase, step and name; the times are 0 */
};

/* What one thread issued, in its order. */
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
void schedule_free(struct schedule *schedule); /* NULL is fine */

/* Appends a copy of *entry to the calling thread's program in rank facts.rank. A lack of memory is
 * remembered: schedule_programs returns it. Between begin and end of a group, everything that the
 * thread adds is part of it. */
void schedule_add(struct schedule *schedule, const struct scheduled *entry);
void schedule_group_begin(struct schedule *schedule, const struct scheduled *group);
void schedule_group_end(struct schedule *schedule, int rank);

/* Marks the open group as a collective: call number `call` of object `object` over `ranks` ranks,
 * with `bytes` bytes (if each rank has a block, the sum of all). */
void schedule_collective(struct schedule *schedule, int rank, enum scheduled_collective what,
                         const void *object, uint64_t call, int ranks, uint64_t bytes);
/* The number of `object` among those that the rank has shown, in the order of their first calls. It
 * is the same on every rank. */
uint64_t schedule_object(struct schedule *schedule, int rank, const void *object);
/* The object is freed: a later one at its address is another object. */
void schedule_forget(struct schedule *schedule, int rank, const void *object);

uint64_t schedule_new_event(struct schedule *schedule); /* a key for an event: from 1 */

/* All programs in an order that does not depend on how the threads were run: by the device whose
 * stream each used first. ERR_MEMORY: something is missing. */
int schedule_programs(struct schedule *schedule, const struct program **out, int *count);

/* Streams count through all devices: lane l of device d is d * LANE_COUNT + l. */
static inline int scheduled_stream(const struct scheduled *s) {
    return s->facts.device * LANE_COUNT + s->facts.lane;
}

#endif
