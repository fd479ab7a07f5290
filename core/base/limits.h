/* One limit holds throughout Duet: a run has at most 64 devices, ranks or virtual devices. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H
#define MAX_DEVICES 64
#endif
