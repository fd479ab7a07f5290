/* The modes of training that Duet compares, and their names. */
#ifndef TRACE_MODE_H
#define TRACE_MODE_H

enum run_mode {
    MODE_SINGLE, /* one device */
    MODE_DP,     /* DataParallel: one process, a thread per device */
    MODE_DDP,    /* DistributedDataParallel: a process per device */
    MODE_FSDP,   /* sharded data parallel: a process per device, each with a part of the model */
    MODE_COUNT
};

/* "single", "dp", "ddp", "fsdp", as in flags and files; else "unknown". Static storage. */
const char *mode_name(enum run_mode mode);
/* "single", "DP", "DDP", "FSDP", as in tables and progress lines. Static storage. */
const char *mode_title(enum run_mode mode);

/* 1: a process for each device; 0: one process. */
static inline int mode_has_ranks(enum run_mode mode) {
    return mode == MODE_DDP || mode == MODE_FSDP;
}

#endif
