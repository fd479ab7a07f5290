/* The steps that `duet estimate --gpu` shows in files: --trace, --report and --pictures. No step
 * was run, so the models and batches may be as large as on real machines. */
#ifndef CLI_ESTIMATE_MODELLED_STEPS_H
#define CLI_ESTIMATE_MODELLED_STEPS_H

#include "cli/results/files.h"
#include "train/estimate/modelled.h"

/* Zeroed: nothing is asked for. */
struct modelled_steps {
    struct run_config names; /* of the files */
    struct run_files files;
    struct modelled run[PAGE_RUNS];
    const char *title[PAGE_RUNS];
    int count;
};

/* The names of trace, report and pictures; "": not given. pairs: kinds of GPU and machine that are
 * asked for. */
int modelled_steps_open(struct modelled_steps *s, const struct run_paths *files, int pairs);
int modelled_steps_asked(const struct modelled_steps *s);
/* Takes *m over, with the times of *clock. title: static storage. */
int modelled_steps_keep(struct modelled_steps *s, struct modelled *m, struct clock_config *clock,
                        const char *title);
int modelled_steps_write(struct modelled_steps *s);
void modelled_steps_free(struct modelled_steps *s);

#endif
