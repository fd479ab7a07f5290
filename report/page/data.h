/* What the page's JavaScript needs, as JSON: the spans of the timeline one by one, and the states
 * of collectives hop by hop.
 *
 *     {"phases": [{"name": "forward", "css": "forward"}, ...],
 *      "kinds": [[phase, waiting, "conv2d forward"], ...],
 *      "axis_ns": 12345678,
 *      "runs": [{"title": "DP", "devices": 4, "comm": 0, "copy": 1, "first_step": 12, "steps": 2,
 *                "length": 12345678,
 *                "lanes": [{"device": 0, "row": 0, "spans": "AgmC..."}]}],
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
 * Spans are most of a page, so those of a lane are one text of whole numbers, five for each span:
 * the gap between it and the end of the span before it (of the first: the start of the run's
 * window), its length, its kind, by how much its CPU time is less than its length, and its bytes.
 * Times are nanoseconds. A number is written as in source maps (base64 VLQ): its sign is its lowest
 * bit, and it is cut into pieces of 5 bits, the lowest first. Each piece is a character, which
 * stands for 0 to 63 in A-Z a-z 0-9 + /; one of 32 or more says that another follows. */
#ifndef REPORT_PAGE_DATA_H
#define REPORT_PAGE_DATA_H

#include "base/json.h"
#include "report/page/draw.h"

/* Writes it as the content of a script element. ERR_MEMORY. */
int page_data(FILE *file, const struct page *page);

/* Its member "playbacks", into the open object. ERR_FAILED, ERR_MEMORY. */
int playback_data(struct json_writer *w, const struct page *page);

/* 1 if each bucket of a run of DDP is played back, 0 if the largest alone. */
int plays_all_buckets(const struct run_record *run);

#endif
