/* The three ways to train that Duet compares, and their names. */
#ifndef TRACE_MODE_H
#define TRACE_MODE_H

#ifdef __cplusplus
extern "C" {
#endif

enum run_mode {
    MODE_SINGLE, /* one device */
    MODE_DP,     /* DataParallel: one process, a thread per device */
    MODE_DDP,    /* DistributedDataParallel: a process per device */
    MODE_COUNT
};

/* "single", "dp", "ddp": as flags and files write it. Static storage; "unknown" for no mode. */
const char *mode_name(enum run_mode mode);
/* "single", "DP", "DDP": as tables and progress lines write it. Static storage. */
const char *mode_title(enum run_mode mode);
/* Finds the mode whose mode_name is `text`. Returns 1 and sets *mode; 0 if there is none. */
int mode_parse(const char *text, enum run_mode *mode);

#ifdef __cplusplus
}
#endif
#endif
