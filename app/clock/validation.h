/* Published measurements of training steps on GPUs, against which the modelled clock is judged.
 *
 * Each series is one row of a published table: one model on one machine with one software, for
 * several numbers of GPUs. Each number has a role, which was decided before anything was fitted:
 *
 *     f  fit        parameters of clock/hardware.c may be fitted to it
 *     t  test       held out: it is only ever compared
 *     h  headline   the same, one of ten that were named before, each of another kind
 *     g  given      the time of one GPU from which the others of the series are predicted
 *     b  blind      held back until the model was fixed, compared once, and never fitted since
 *
 * Numbers that their source calls disturbed are left out. */
#ifndef CLOCK_VALIDATION_H
#define CLOCK_VALIDATION_H

#include "clock/cost.h"

enum { SERIES_POINTS = 6 };

enum series_way {
    SERIES_SINGLE,     /* one GPU, data already there, no wrapper; no optimizer */
    SERIES_TRAIN,      /* the same, whole steps */
    SERIES_DP,         /* nn.DataParallel, forward, loss and backward; no optimizer */
    SERIES_DP_FORWARD, /* nn.DataParallel, forward only */
    SERIES_DP_TRAIN,   /* nn.DataParallel, whole steps */
    SERIES_DDP,        /* DistributedDataParallel, whole steps */
    SERIES_DDP_AFTER,  /* the same, with all sums after backward */
    SERIES_FSDP        /* FullyShardedDataParallel, everything sharded, whole steps */
};

struct series_point {
    int gpus;
    int batch; /* samples of each GPU */
    double ms; /* a step; 0 ends the list */
    char role; /* f, t, h, g or b */
};

struct series {
    const char *table;   /* "B": its source is above it in validation.c */
    const char *machine; /* a machine of clock/hardware.c */
    const char *model;   /* "resnet50", or "gpt2-small 128": model and block of tokens */
    enum series_way way;
    struct series_point point[SERIES_POINTS];
};

const struct series *series_at(int i); /* NULL beyond the last */
enum clock_precision series_precision(const struct series *series);

/* Inside clock/: the parts of the table, in validation.c and validation_recent.c. */
struct series_part {
    const struct series *list; /* [count] */
    int count;
    enum clock_precision precision;
};
enum { RECENT_PARTS = 3 };
extern const struct series_part series_recent[RECENT_PARTS];

#endif
