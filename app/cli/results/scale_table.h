/* The table of duet scale: one line for each run, at most 80 columns wide, with remarks below. */
#ifndef CLI_RESULTS_SCALE_TABLE_H
#define CLI_RESULTS_SCALE_TABLE_H

#include "train/compare/scale.h"

/* The tutorial's batch size (text_seconds). */
enum { TEXT_BATCH = 128 };

/* "first", "equal", "DIFFER" or "-". */
const char *scale_bits_word(const struct scale_row *row);

/* The tutorial's seconds for this training, on its own machine; 0: it has none. */
double text_seconds(const struct scale *s, int row);

/* Prints the line of a finished run, and above the first one the head of the table. */
void scale_table_row(const struct scale *s, int row);

/* Prints what the table cannot show: which runs have equal bits, and why others were not compared;
 * which runs had more devices than the machine has cores (or GPUs); and for several learning rates
 * the best one for each device count. */
void scale_table_notes(const struct scale *s);

#endif
