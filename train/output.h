/* Files of a run, written by rank 0: the CSV of losses, the weights, the JSON. Each is there
 * whole or not at all, and whether its folder can be written is asked before training, not
 * after. */
#ifndef TRAIN_OUTPUT_H
#define TRAIN_OUTPUT_H

#include "base/atomic_file.h"
#include "train/session.h"

struct outputs {
    const struct run_config *config;
    struct atomic_file losses, json;
};

int outputs_open(struct outputs *o, const struct run_config *config);
int outputs_losses(struct outputs *o, const struct run_record *record, int first,
                   int epoch); /* rows first .. steps - 1 */
int outputs_commit(struct outputs *o, struct session *s);
void outputs_abandon(struct outputs *o); /* after commit, or zeroed: nothing */

#endif
