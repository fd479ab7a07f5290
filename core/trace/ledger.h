/* Ledgers count the device memory that each cause holds, and the bytes that moved over each link.
 *
 * Both are exact counts that the device layer keeps at each allocation and each move. Both are
 * plain structs: after a sync, an assignment copies them. */
#ifndef TRACE_LEDGER_H
#define TRACE_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* The use of a piece of device memory. */
enum mem_cause {
    MEM_PARAMS,
    MEM_GRADS,
    MEM_OPTIMIZER,
    MEM_ACTIVATIONS, /* the tape's step arena: activations and their gradients */
    MEM_INPUT,       /* batches: pixels and labels */
    MEM_GATHERED,    /* DP, device 0: the gathered output and dL/dy */
    MEM_COMM,        /* flags and scratch of collectives, staging buffers of DP's reduce */
    MEM_WORKSPACE,   /* scratch memory of kernels, the loss log, the step block */
    MEM_CAUSE_COUNT
};
/* "params", "gathered output", ...: static storage. */
const char *mem_cause_name(enum mem_cause cause);

struct ledger {
    uint64_t now[MEM_CAUSE_COUNT];     /* bytes held now, by cause */
    uint64_t peak[MEM_CAUSE_COUNT];    /* the most that each cause held, at different moments */
    uint64_t total, total_peak;        /* all causes together: now, and at the peak */
    uint64_t at_peak[MEM_CAUSE_COUNT]; /* what each cause held when the total was at its peak */
    uint64_t capacity;                 /* bytes of device memory */
    int pieces[MEM_CAUSE_COUNT];       /* allocations held now, by cause */
};
void ledger_add(struct ledger *ledger, enum mem_cause cause, uint64_t bytes);
void ledger_remove(struct ledger *ledger, enum mem_cause cause, uint64_t bytes);

/* Writes the holders of memory for an out-of-memory message, the largest first: "activations 1.2
 * GiB, params 381 MiB, input 64 MiB in 16 tensors". Text beyond text_bytes is cut. */
void ledger_describe(const struct ledger *ledger, char *text, size_t text_bytes);

/* Bytes moved from one device to another; LINK_HOST is the host's memory. The device that executes
 * a move counts it. Any thread may add, since the additions are relaxed atomics. */
enum { LINK_HOST = MAX_DEVICES, LINK_COUNT = MAX_DEVICES + 1 };
struct traffic {
    uint64_t bytes[LINK_COUNT][LINK_COUNT]; /* [source][destination] */
};
/* Counts a move. It ignores ends that are not devices, and a NULL traffic. */
void traffic_add(struct traffic *traffic, int source, int destination, uint64_t bytes);
/* Adds everything that `more` counted. `sum` has one writer; `more` may still be counting. */
void traffic_join(struct traffic *sum, const struct traffic *more);
/* Subtracts the counts of `less`, which is no longer counting. */
void traffic_leave(struct traffic *sum, const struct traffic *less);
/* Bytes that a device received from other devices and the host. */
uint64_t traffic_into(const struct traffic *traffic, int device);
/* Bytes that a device sent to other devices and the host. */
uint64_t traffic_out_of(const struct traffic *traffic, int device);

/* "1.5 KiB", "3.46 MiB": at most three significant digits and a binary unit. Returns text. */
char *format_bytes(uint64_t bytes, char *text, size_t text_bytes);

#endif
