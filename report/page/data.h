/* What the page's JavaScript says of what is pointed at, as JSON: the spans of the timeline one by
 * one, and the bytes of each link.
 *
 *     {"phases": ["forward", ...],
 *      "kinds": [[phase, waiting, "conv2d forward"], ...],
 *      "axis_ns": 12345678,
 *      "runs": [{"title": "DP", "lanes": [{"device": 0, "row": 0, "spans": "AgmC..."}]}],
 *      "traffic": {"traffic-1": {"steps": 40, "rows": [[links, bytes of each, links, ...], ...]}}}
 *
 * Lanes come in the order in which the picture has areas for them (svg_timeline.c). A row of
 * traffic is a source, its links lead to each destination; the host stands behind the devices.
 * Spans are most of a page, so those of a lane are one text of whole numbers, five for each span:
 * the gap between it and the end of the span before it (of the first: the start of the run's
 * window), its length, its kind, by how much its CPU time is less than its length, and its bytes.
 * Times are nanoseconds. A number is written as in source maps (base64 VLQ): its sign is its lowest
 * bit, and it is cut into pieces of 5 bits, the lowest first. Each piece is a character, which
 * stands for 0 to 63 in A-Z a-z 0-9 + /; one of 32 or more says that another follows. */
#ifndef REPORT_PAGE_DATA_H
#define REPORT_PAGE_DATA_H

#include "report/pictures/draw.h"

/* Writes it as the content of a script element. ERR_MEMORY. */
int page_data(FILE *file, const struct page *page);

#endif
