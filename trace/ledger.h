/* Ledgers: who holds how much memory, and how many bytes went over which link.
 *
 * Both are exact counts kept by the device layer at each allocation and each move, never samples.
 * A copy is a plain struct; take one at any time with a simple assignment after a sync. */
#ifndef TRACE_LEDGER_H
#define TRACE_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why a piece of device memory is held. */
enum mem_cause {
    MEM_PARAMS,
    MEM_GRADS,
    MEM_OPTIMIZER,
    MEM_ACTIVATIONS, /* the tape's step arena: activations and their gradients */
    MEM_INPUT,       /* batches: pixels and labels */
    MEM_DATASET,     /* the data set itself, as bytes, where batches are made on the device */
    MEM_GATHERED,    /* DP, device 0: the gathered output and dL/dy */
    MEM_COMM,        /* flags and scratch of collectives, staging of DP's reduce */
    MEM_WORKSPACE,   /* everything a kernel needs beside its operands; loss log, step block */
    MEM_CAUSE_COUNT
};
/* "params", "gathered output", ...: static storage */
const char *mem_cause_name(enum mem_cause cause);

struct ledger {
    uint64_t now[MEM_CAUSE_COUNT];     /* bytes held at present */
    uint64_t peak[MEM_CAUSE_COUNT];    /* the most each cause ever held (at different moments) */
    uint64_t total, total_peak;        /* over all causes */
    uint64_t at_peak[MEM_CAUSE_COUNT]; /* what each cause held when total_peak was reached */
    uint64_t capacity;                 /* the device's memory */
};
void ledger_add(struct ledger *ledger, enum mem_cause cause, uint64_t bytes);
void ledger_remove(struct ledger *ledger, enum mem_cause cause, uint64_t bytes);
void ledger_reset_peak(struct ledger *ledger); /* peaks start anew from what is held now */

/* One line for an out-of-memory message: "activations 1.2 GiB, params 381 MiB, ..." largest
 * first. */
void ledger_describe(const struct ledger *ledger, char *text, size_t text_bytes);

/* Bytes moved from device `source` to device `destination`; LINK_HOST stands for the host's memory.
 * Kept by the device that executes the move; any thread may add (relaxed atomics inside). */
enum { LINK_HOST = MAX_DEVICES, LINK_COUNT = MAX_DEVICES + 1 };
struct traffic {
    uint64_t bytes[LINK_COUNT][LINK_COUNT]; /* [source][destination] */
};
void traffic_add(struct traffic *traffic, int source, int destination, uint64_t bytes);
/* from other devices and the host */
uint64_t traffic_into(const struct traffic *traffic, int device);
/* to other devices and the host */
uint64_t traffic_out_of(const struct traffic *traffic, int device);

/* "1.5 KiB", "3.46 MiB": three figures and a binary unit, for people. Returns text. */
char *format_bytes(uint64_t bytes, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
