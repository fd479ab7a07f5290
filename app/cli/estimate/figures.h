/* A row of `duet estimate --gpu`: the time and memory of one way to train on a number of GPUs. */
#ifndef CLI_ESTIMATE_FIGURES_H
#define CLI_ESTIMATE_FIGURES_H

#include "base/text/json.h"
#include "train/estimate/modelled.h"

struct figures {
    int way, devices;
    double ms, rate, speed_up, error; /* ms and rate 0: unknown, or the run does not fit; speed_up
                                       * 0: no single run to compare with */
    double first, others, pytorch;    /* peak memory in bytes of GPU 0, of the fullest other GPU,
                                       * and of GPU 0 in PyTorch; -1: none or unknown. Duet has no
                                       * autocast */
    int largest, largest_pytorch;     /* global batch that fits; 0: none; -1: unknown */
    int is_full, others_are_full, pytorch_is_full; /* 1: that peak exceeds the GPU's memory */
    int is_unmeasured;                             /* no comparable measurement exists */
    int only_transfers;                            /* 1: ms is not the time of a whole step */
};

/* The memory of a GPU in GiB: that of --device-memory, or the GPU's own. */
double figures_gib(const struct run_config *c, const struct clock_config *clock);

/* single_rate is the samples per second on one GPU; the row of single sets it. */
struct figures figures_of(const struct run_config *c, const struct modelled *m,
                          const struct clock_config *clock, int way, const struct clock_result *r,
                          double *single_rate);

/* Prints the phases of GPU 0 and what bounds each. With autocast it also prints what GPU 0 holds at
 * its peak in PyTorch, by cause, and how many bytes allreduce moves. */
void figures_show_phases(const struct run_config *c, const struct modelled *m,
                         const struct clock_config *clock, int way, const struct clock_result *r);

/* Print the headings and a row of the table; the last writes the row as an object of --json. */
void figures_head(int only_transfers);
void figures_print(const struct figures *f);
void figures_write(struct json_writer *w, const struct figures *f,
                   const struct clock_config *clock);

#endif
