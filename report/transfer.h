/* How long the transfers of a step would take over a given link: computed from the bytes of a run,
 * by formula, and from nothing else. No kernel is in these times. */
#ifndef REPORT_TRANSFER_H
#define REPORT_TRANSFER_H

#include "trace/link.h"
#include "trace/record.h"

/* Seconds a step that the transfers of one phase between devices take:
 *
 *     phases of DP, and copies of DDP beside them
 *         bytes / (GB/s) + transfers * us, of the device that moves most
 *     broadcast of buffers in DDP (phase replicate)
 *         all of it leaves rank 0, one copy after another
 *     allreduce
 *         max(bytes in, bytes out) / (GB/s), of the device with the most, since a link carries both
 *         directions at once, + us for each wait of the algorithm (allreduce/select.h)
 *
 * What comes from the host (PHASE_INPUT) has a link of its own and is 0 here. */
double transfer_seconds(const struct run_record *run, enum phase phase,
                        const struct link_speed *link);

/* All phases together: in DP one follows the other, in DDP all but allreduce, which runs beside
 * backward. */
double transfer_seconds_a_step(const struct run_record *run, const struct link_speed *link);

/* Prints one line: "DP: 8.31 ms a step: scatter 0.05, replicate 4.1, ...". */
void transfer_print(FILE *file, int width, const char *title, const struct run_record *run,
                    const struct link_speed *link);

#endif
