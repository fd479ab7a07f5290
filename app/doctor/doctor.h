/* The doctor checks whether this machine can do what Duet needs.
 *
 * Each check uses one part (copies between devices, every operation, the collectives, a step of a
 * model), compares the result with the expected one, and adds findings. A finding has a measured
 * value, its bound with the reason, and a state: ok, off, or not here.
 *
 *     findings.h  the rows of the table, in memory that survives the death of a check's process
 *     check.h     the checks, and the code that they share
 *     guard.h     runs a check in its own process, with a deadline for each of its steps
 *
 * The parent never calls CUDA: a child cannot use a driver that its parent has used before the
 * fork, and a faulting kernel poisons only its own process. The doctor needs no test library and no
 * data set. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include <stdint.h>

#include "device/device.h"
#include "doctor/findings.h"

enum doctor_target { DOCTOR_AUTO, DOCTOR_CPU, DOCTOR_CUDA };

struct doctor_config {
    /* AUTO: emulated devices, and GPUs if the machine has any. CPU, CUDA: only these. */
    enum doctor_target target;
    /* The limit for one step of a check, in seconds. Waits inside a step end after half of it. */
    double timeout;
    int quick; /* 1: smaller blocks and fewer shapes */
    /* cuda: 1: products may round their inputs to tf32; their bound is then that of tf32 */
    int tf32;
    uint64_t seed; /* seed of all data */

    /* Opens devices; NULL: device_open. A test passes a function that opens faulty devices. */
    int (*open_device)(struct device **out, const struct device_config *config);
};

/* AUTO, 60 s, a fresh seed. */
struct doctor_config doctor_config_default(void);

/* Runs all checks and adds their findings. report (may be NULL) is called in this process with each
 * new finding. OK: nothing is off. ERR_CHECK: something is off, and the error says how many
 * findings. ERR_MEMORY, ERR_FAILED: a check could not be started. */
int doctor_run(const struct doctor_config *config, struct findings *findings,
               void (*report)(void *context, const struct finding *finding), void *context);

#endif
