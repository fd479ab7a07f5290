/* Doctor: does this machine do what Duet needs of it?
 *
 * Each check really exercises one thing (copies, streams, peers, imported memory, every op, the
 * collectives, a step of a model), compares what came out with what had to come out, and writes
 * findings: what was measured, the bound it had to keep and why that bound, and ok, off or not
 * here.
 *
 *     findings.h  rows of the table, in memory that a dying process leaves whole
 *     guard.h     runs a check in a process of its own, up to a deadline
 *     check.h     the checks, and what they share
 *     ranks.h     the ranks that some checks start
 *
 * The parent never calls CUDA: a driver that was touched before a fork does not work behind it,
 * and a fault of a kernel poisons its process alone. No test library and no data set is needed. */
#ifndef DOCTOR_DOCTOR_H
#define DOCTOR_DOCTOR_H

#include <stdint.h>

#include "device/device.h"
#include "doctor/findings.h"

#ifdef __cplusplus
extern "C" {
#endif

enum doctor_target { DOCTOR_AUTO, DOCTOR_CPU, DOCTOR_CUDA };

struct doctor_config {
    /* AUTO: emulated devices, and GPUs where there are any; else one of them alone */
    enum doctor_target target;
    /* seconds that one step of a check may take; waits inside end at half of it */
    double timeout;
    int quick; /* smaller blocks, fewer shapes */
    /* cuda: products may round their inputs to tf32, and are judged by its bound */
    int tf32;
    uint64_t seed; /* of all data */

    /* How devices are opened; NULL: device_open. A program that hands in another (a test, with
     * devices that lie) gets its ranks by fork alone, since a function does not survive an exec. */
    int (*open_device)(struct device **out, const struct device_config *config);
};

/* AUTO, 60 s, a fresh seed. */
struct doctor_config doctor_config_default(void);

/* Runs all checks and adds their findings. report (NULL: nobody) is called with each finding as
 * it comes, in this process. OK: nothing is off. ERR_CHECK: something is, and the text counts
 * it. ERR_MEMORY, ERR_FAILED: no check could be started. */
int doctor_run(const struct doctor_config *config, struct findings *findings,
               void (*report)(void *context, const struct finding *finding), void *context);

/* The subcommand that a rank of a check is started with: `duet doctor-rank TASK_FD`. Returns the
 * exit status. */
int doctor_rank_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
