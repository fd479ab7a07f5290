/* What the page's JavaScript needs, as JSON: the spans of the timeline one by one, and the states
 * of the allreduce hop by hop.
 *
 *     {"phases": [{"name": "forward", "css": "forward"}, ...],
 *      "names": ["conv2d forward", ...],
 *      "axis_ns": 12345678,
 *      "runs": [{"title": "DP", "devices": 4, "comm": 0, "copy": 1, "first_step": 12, "steps": 2,
 *                "length": 12345678,
 *                "lanes": [{"device": 0, "row": 0, "spans": [start, length, phase, name, waiting,
 *                                                            cpu, bytes,  start, ...]}]}],
 *      "collectives": [{"bucket": 0, "bytes": 516272, "algorithm": "ring", "ranks": 4, "chunks": 4,
 *                       "hops": [{"moves": [from, to, added, first chunk, chunks, ...],
 *                                 "cells": [rank, chunk, "terms as hexadecimal bits", ...]}]}]}
 *
 * Times are nanoseconds. The start of a span counts from the start of the span before it on its
 * lane, that of the first from the start of the run's window. */
#ifndef REPORT_PAGE_DATA_H
#define REPORT_PAGE_DATA_H

#include "report/page/draw.h"

/* Writes it as the content of a script element. ERR_MEMORY. */
int page_data(FILE *file, const struct page *page);

#endif
