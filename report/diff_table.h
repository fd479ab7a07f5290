/* What changed between two files of --json, as text and as JSON: the output of `duet diff`. */
#ifndef REPORT_DIFF_TABLE_H
#define REPORT_DIFF_TABLE_H

#include <stdio.h>

#include "report/diff.h"

/* Prints which files these are, one table for each pair, and which runs have none to be compared
 * with. Paragraphs have at most `width` columns (text.h), tables 80. */
void diff_print(FILE *file, int width, const struct results *a, const struct results *b);

/* Writes the members of docs/json.md, section diff, into the open JSON object. */
void diff_write(struct json_writer *w, const struct results *a, const struct results *b);

#endif
