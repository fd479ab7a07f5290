/* Scale runs the same training on different numbers of devices, one job after another.
 *
 * There are two ways to add devices. If the global batch stays, each device gets less of it, and
 * all runs train the same model, which is proved as in compare. If each device keeps its batch, the
 * global batch grows with the devices. An epoch then has fewer updates, and a larger learning rate
 * may be better. */
#ifndef TRAIN_COMPARE_SCALE_H
#define TRAIN_COMPARE_SCALE_H

#include "train/compare/verdict.h"
#include "train/job.h"

/* The most device counts or learning rates, and the most runs. */
enum { SCALE_MOST = 16, SCALE_ROWS = SCALE_MOST * SCALE_MOST };

struct scale_config {
    struct run_config run; /* shared by all runs; without batch_per_device the global batch stays */
    int devices[SCALE_MOST], device_counts;
    double lr[SCALE_MOST];
    int rates;
};

enum scale_bits {
    SCALE_BITS_FIRST,       /* other runs are compared with this one */
    SCALE_BITS_EQUAL,       /* at every step, on every device */
    SCALE_BITS_DIFFERENT,   /* bits differ although equal bits are promised */
    SCALE_BITS_ALONE,       /* no other run has the same batch and learning rate */
    SCALE_BITS_NOT_PROMISED /* equal bits are not promised, or the loss is not finite */
};

struct scale_row {
    char name[48], title[48]; /* "4_devices_lr_0.5" and "4 devices, lr 0.5" */
    struct run_config config;
    struct run_record run;
    int first; /* the first row with the same global batch and learning rate */
    enum scale_bits bits;
    struct verdict verdict; /* compared with `first` */
    double speed_up;        /* in samples/s, relative to the first row with this learning rate */
};

struct scale {
    struct scale_config config;
    struct scale_row *rows; /* [count] by devices, then by learning rate */
    int count;
};

/* Makes the rows and checks the configuration of each, before any run. Zero *s first, and call
 * scale_free even after a failure. ERR_USAGE: one of them cannot be run. */
int scale_plan(struct scale *s, const struct scale_config *config);

/* Runs all rows in order and calls done(context, s, row) after each. ERR_CHECK: bits differ that
 * should be equal; the rows are still complete. */
int scale_run(struct scale *s, void (*done)(void *context, const struct scale *s, int row),
              void *context, struct job_result *result);
void scale_free(struct scale *s);

#endif
