/* The checks: one function and one file for each, and what they share. Inside doctor/. */
#ifndef DOCTOR_CHECK_H
#define DOCTOR_CHECK_H

#include "comm/comm.h"
#include "doctor/doctor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a check is, told to the doctor. Shared with the check's process, which writes it. */
struct progress {
    int step;      /* the step it is in, from 0 */
    char name[48]; /* of that step, as the table would say it */
    int gpus;      /* found by the machine check; 0 before */
};

struct doctor {
    struct doctor_config config;
    struct findings *findings;
    struct progress *progress;
    enum device_kind kind; /* of the devices that the check in hand is about */
    int devices;           /* that it opens: 2 at least, every GPU once */
    enum device_math math; /* who multiplies on the GPUs it opens */
    struct comm *comm;     /* in a rank: the job, which its devices' waits look at; else NULL */
};

/* A check goes through its steps from `first` on and adds findings. It calls doctor_step before
 * each, so that a fault is laid at its door and the doctor can begin anew behind it. A code
 * other than OK: the step came to no end, the process is of no use any more (error_message() is
 * the reason). */
typedef int doctor_check(struct doctor *d, int first);

void doctor_step(struct doctor *d, int step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

doctor_check check_machine; /* machine.c: cores, memory, kernels; what was built in; the driver */
/* memory.c: one device at a time: copies, pinned memory, the end of memory */
doctor_check check_memory;
doctor_check check_streams;   /* streams.c: an event orders two streams */
doctor_check check_peers;     /* peers.c: copies between devices of one process */
doctor_check check_ipc;       /* ipc.c: memory of another process */
doctor_check check_ops;       /* ops.c: every op against the host's reference */
doctor_check check_allreduce; /* collective.c: every algorithm over 2 and 4 ranks */
doctor_check check_grid;      /* grid.c: every algorithm in one launch on one GPU */
doctor_check check_step;      /* step.c: a training step of LeNet and ConvNet */
doctor_check check_replay;    /* replay.c: steps recorded and replayed */

/* Adds a finding about `what` ("cpu(0): copies"): measured by format. */
void note(struct doctor *d, enum finding_state state, const char *what, const char *bound,
          const char *format, ...) __attribute__((format(printf, 5, 6)));

/* "cpu" or "cuda". */
const char *doctor_kind_name(const struct doctor *d);

/* Opens device `index` of d->kind with memory for `bytes` of allocations, as config says.
 * Operands are checked and new memory is NaN where `checked`. */
int doctor_open(const struct doctor *d, int index, uint64_t bytes, int checked,
                struct device **out);

/* Bytes that a block of data has: odd, so that a copy which drops its last byte is seen. */
size_t doctor_block(const struct doctor *d);

/* ---- patterns: bytes of which no two words are equal, so that a swap, a shift or an old value shows ---- */

void pattern_fill(void *memory, size_t bytes, uint64_t seed);
/* The first byte that is not the pattern's; `bytes` where all are. */
size_t pattern_check(const void *memory, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
