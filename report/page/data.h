/* What the page's JavaScript needs, as JSON: the spans of the timeline one by one, and the states
 * of collectives hop by hop.
 *
 *     {"phases": [{"name": "forward", "css": "forward"}, ...],
 *      "names": ["conv2d forward", ...],
 *      "axis_ns": 12345678,
 *      "runs": [{"title": "DP", "devices": 4, "comm": 0, "copy": 1, "first_step": 12, "steps": 2,
 *                "length": 12345678,
 *                "lanes": [{"device": 0, "row": 0, "spans": [start, length, phase, name, waiting,
 *                                                            cpu, bytes,  start, ...]}]}],
 *      "traffic": {"traffic-1": {"steps": 40, "rows": [[links, bytes of each,  links, ...], ...]}},
 *      "playbacks": {"moves-1": [...], "playback": [COLLECTIVE, ...]}}
 *
 * A row of traffic is a source, its links lead to each destination; the host stands behind the
 * devices. A COLLECTIVE of the figure of that id is
 *
 *     {"title": "Bucket 0, 504 KiB by ring.", "algorithm": "ring", "ranks": 4, "chunks": 4,
 *      "hops": [{"moves": [from, to, added, first chunk, chunks, ...],
 *                "cells": [rank, first chunk, chunks, "terms as hexadecimal bits", ...]}]}
 *
 * and one of DP has, in place of the algorithm, "copies" and the sentences "before" and "after".
 * Times are nanoseconds. The start of a span counts from the start of the span before it on its
 * lane, that of the first from the start of the run's window. */
#ifndef REPORT_PAGE_DATA_H
#define REPORT_PAGE_DATA_H

#include "base/json.h"
#include "report/page/draw.h"

/* Writes it as the content of a script element. ERR_MEMORY. */
int page_data(FILE *file, const struct page *page);

/* Its member "playbacks", into the open object. ERR_FAILED, ERR_MEMORY. */
int playback_data(struct json_writer *w, const struct page *page);

#endif
