/* The checks, each one function in its own file, and what they share. Used only inside doctor/. */
#ifndef DOCTOR_CHECK_H
#define DOCTOR_CHECK_H

#include "comm/comm.h"
#include "doctor/doctor.h"

/* The progress of a check. The check's process writes it; the doctor reads it. */
struct progress {
    int step;                    /* the current step, from 0 */
    char name[CHECK_NAME_BYTES]; /* name of that step, as in the table */
    int gpus;                    /* GPUs that the machine check has found; 0 before */
};

struct doctor {
    struct doctor_config config;
    struct findings *findings; /* NULL in a rank */
    struct progress *progress;
    enum device_kind kind; /* kind of the devices that the current check tests */
    int devices;           /* number that a check opens: at least 2, and every GPU once */
    enum device_math math; /* which kernels compute products on GPUs */
    struct comm *comm;     /* in a rank: its job, polled by waits on devices; else NULL */
};

/* A check runs its steps from number `first` on and adds findings. It calls doctor_step before each
 * step, so that after a crash the doctor knows the step, and can continue after it in a new
 * process. OK: all steps are done. Other codes: the current step failed (error_message()), and the
 * process is no longer usable. */
typedef int doctor_check(struct doctor *d, int first);

/* Begins step number `step`; the format makes its name. */
void doctor_step(struct doctor *d, int step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

doctor_check check_machine;   /* machine.c: cores, memory, kernels; the build; the driver */
doctor_check check_peers;     /* peers.c: copies between devices of one process */
doctor_check check_ops;       /* ops.c: every operation against the host's reference */
doctor_check check_allreduce; /* collective.c: every algorithm over 2 and 4 ranks */
doctor_check check_step;      /* step.c: a training step of LeNet and ConvNet */

/* Adds a finding about `what` ("cpu(0): copies"). The format makes the value. */
void note(struct doctor *d, enum finding_state state, const char *what, const char *bound,
          const char *format, ...) __attribute__((format(printf, 5, 6)));

/* "cpu" or "cuda". */
const char *doctor_kind_name(const struct doctor *d);

/* Opens device `index` of kind d->kind with memory for `bytes` of allocations. With `checked`,
 * operands are checked at each launch and new memory is filled with NaN. */
int doctor_open(const struct doctor *d, int index, uint64_t bytes, int checked,
                struct device **out);

/* Advice for GPUs that read each other's memory wrongly. */
#define P2P_IS_BROKEN                                                                    \
    "P2P is advertised and does not work: an IOMMU, ACS or a patched driver? Boot with " \
    "iommu=pt, or set NCCL_P2P_DISABLE=1"

/* Bytes in a block of data. The number is odd, so that a copy without its last byte is noticed. */
size_t doctor_block(const struct doctor *d);

#endif
