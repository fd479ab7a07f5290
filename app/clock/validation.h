/* The published measurements of clock/published.txt; its head explains the lines. */
#ifndef CLOCK_VALIDATION_H
#define CLOCK_VALIDATION_H

#include "clock/cost.h"

enum { SERIES_POINTS = 6 };

enum series_way {
    SERIES_SINGLE,
    SERIES_TRAIN,
    SERIES_DP,
    SERIES_DP_FORWARD,
    SERIES_DP_TRAIN,
    SERIES_DDP,
    SERIES_DDP_AFTER,
    SERIES_FSDP,
    SERIES_WAYS
};

struct series_point {
    int gpus;
    int batch; /* samples per GPU */
    double ms; /* per step; 0 ends the list */
    char role; /* f, t, h, g or b */
};

struct series {
    char table[4];    /* "B", as in published.txt; "" ends the list */
    char machine[24]; /* of clock/hardware.txt */
    char model[24];   /* "resnet50", or "gpt2-small 128": model and tokens per sample */
    enum series_way way;
    enum clock_precision precision;
    struct series_point point[SERIES_POINTS];
};

/* Reads all rows; the last one is empty. The caller frees the list. */
int series_read(struct series **list);

#endif
