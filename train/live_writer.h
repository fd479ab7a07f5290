/* What a run writes into its live page (trace/live_page.h). Every function does nothing where the
 * run has none, but live_pace. */
#ifndef TRAIN_LIVE_WRITER_H
#define TRAIN_LIVE_WRITER_H

#include "train/session.h"

/* Maps the page of config->live_fd into s->live; NULL where there is none. */
int live_open(struct session *s);
void live_close(struct session *s);

/* Rank 0: the run begins; `last_step` ends it, and its first is s->first_step. */
void live_begin(struct session *s, int last_step);

/* Rank 0, at every step: `step` steps have begun. */
static inline void live_step(struct session *s, int step) {
    if (s->live && session_leads(s)) __atomic_store_n(&s->live->enqueued, step, __ATOMIC_RELAXED);
}

/* All ranks, once the losses of steps up to record->steps are read: what each device holds and did,
 * and on rank 0 the losses. epoch_seconds: of this epoch's training so far. */
void live_measured(struct session *s, double epoch_seconds);

/* Rank 0: what it does now. */
void live_state(struct session *s, enum live_state state);
/* All ranks: an epoch has been evaluated (accuracy -1: it was not), and its training added to
 * record->training_seconds. */
void live_epoch(struct session *s, double accuracy, double valid_loss);

/* After how many steps the losses are to be read next, so that the page shows a few readings a
 * second: the same number on all ranks, since reading is collective. seconds: what the last `steps`
 * steps took. Collective where the run has a page; else the result is `most`. */
int live_pace(struct session *s, int steps, double seconds, int most, int *pace);

#endif
