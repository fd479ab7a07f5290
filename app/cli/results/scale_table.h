/* The table of duet scale: one line for each run, at most 80 columns wide, with remarks below. */
#ifndef CLI_RESULTS_SCALE_TABLE_H
#define CLI_RESULTS_SCALE_TABLE_H

#include "train/compare/scale.h"

/* The batch of the text's training (text_seconds). */
enum { TEXT_BATCH = 128 };

/* "first", "equal", "DIFFER" or "-". */
const char *scale_bits_word(const struct scale_row *row);

/* The seconds that the text gives for this training, on its own machine; 0: the text has none. */
double text_seconds(const struct scale *s, int row);

/* The line of a row that has been run; above the first one the head of the table. */
void scale_table_row(const struct scale *s, int row);

/* What the table cannot say: whose bits are equal, and why others have no word about bits; which
 * runs had more devices than the machine has cores (or GPUs); and the best learning rate of each
 * device count, where there are several. */
void scale_table_notes(const struct scale *s);

#endif
