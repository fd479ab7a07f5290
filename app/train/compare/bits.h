/* Says whether equal bits are promised and, if not, why. The rules are those of docs/design.md
 * section 2; they are applied to a run before it starts, and to two runs before they are
 * compared. */
#ifndef TRAIN_COMPARE_BITS_H
#define TRAIN_COMPARE_BITS_H

#include "allreduce/plan.h"
#include "trace/record.h"
#include "train/run.h"

/* The first returns the allreduce in whose order this run adds gradients over config->devices (for
 * single, DDP's number). AUTO means the fold order, or an order that no other mode can follow. On 2
 * devices every order is the fold order. The second writes everything that the order depends on,
 * such as "ring over 4 devices"; for AUTO "". */
enum allreduce_algorithm bits_order(const struct run_config *config);
void bits_order_text(const struct run_config *config, char text[SUM_ORDER_BYTES]);

/* Returns 1 if this run trains, bit for bit, the model that one device would train with the same
 * virtual devices and order of sums. 0: why_not[0 .. bytes) becomes the reason; else "". */
int bits_promised(const struct run_config *config, char *why_not, size_t bytes);

/* Says whether two runs, each of which equals one device, also equal each other. */
int bits_promised_between(const struct run_record *a, const struct run_record *b, char *why_not,
                          size_t bytes);

#endif
