/* The dashboard of --live as a picture: what the live page says (trace/live_page.h), drawn on a
 * canvas. Nothing here knows a terminal. Every number is one that the run has measured. */
#ifndef REPORT_LIVE_LIVE_VIEW_H
#define REPORT_LIVE_LIVE_VIEW_H

#include "report/live/canvas.h"
#include "trace/live_page.h"

struct live_view; /* what was seen so far: the curve of the loss, earlier readings of the devices */

int live_view_new(struct live_view **out); /* ERR_MEMORY */
void live_view_free(struct live_view *view);

/* Takes a reading of the page. To be called a few times a second: the curve has a gap where more
 * than LIVE_LOSSES steps lie between two readings. */
void live_view_read(struct live_view *view, const struct live_page *page);

/* Draws what was read last on the whole canvas. Busy shares are those of the last second of
 * training, and of the whole training once a run has ended. `messages`: lines of text, of which the
 * last few are shown at the bottom; NULL: none. */
void live_view_draw(struct live_view *view, struct canvas *canvas, const char *messages);

#endif
