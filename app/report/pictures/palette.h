/* The colours of pictures: one table for both themes of the page and for separate picture files.
 *
 * A colour means the same in all pictures of time, memory and traffic. Hues are those of Okabe and
 * Ito, which people with any kind of colour blindness can tell apart; related items have one hue in
 * different strengths. Data that DP moves is orange and red, work on the model is blue, allreduce
 * is pink. In a collective drawn hop by hop each rank has its own hue. Memory has the colour of the
 * phase that fills or uses it: gradients have backward's, gathered outputs have gather's. Runs are
 * grey, and errors are bright red. No picture relies on colour alone: wide shapes contain their
 * names, and a table is below. */
#ifndef REPORT_PICTURES_PALETTE_H
#define REPORT_PICTURES_PALETTE_H

#include <stdio.h>

#include "trace/ledger.h"
#include "trace/mode.h"
#include "trace/span.h"

/* The order: general shades, then the ranks, then the phases in the order of enum phase. */
enum shade {
    SHADE_TEXT,
    SHADE_QUIET, /* axes, units, remarks */
    SHADE_GRID,
    SHADE_PAPER,  /* behind the picture */
    SHADE_RAISED, /* behind a lane */
    SHADE_BAD,
    SHADE_SINGLE,
    SHADE_DP,
    SHADE_DP_OTHER, /* DP with the loss in forward */
    SHADE_DDP,
    SHADE_ON_DARK,  /* text on a strong colour */
    SHADE_ON_LIGHT, /* text on a pale colour */
    SHADE_WORKSPACE,
    SHADE_NO_CORE,
    SHADE_IDLE,
    SHADE_RANKS,
    SHADE_PHASES = SHADE_RANKS + 8,
    SHADE_COUNT = SHADE_PHASES + PHASE_COUNT
};

static inline enum shade shade_of_phase(int phase) {
    return (enum shade)(SHADE_PHASES + phase);
}
static inline enum shade shade_of_rank(int rank) {
    return (enum shade)(SHADE_RANKS + rank % 8);
}
enum shade shade_of_cause(int cause);
/* other 1: a second run in this mode. */
enum shade shade_of_mode(enum run_mode mode, int other);

/* The colour of readable text on this colour. */
enum shade shade_of_text_on(enum shade shade);

const char *shade_class(enum shade shade);  /* "forward": the CSS class and variable */
const char *shade_colour(enum shade shade); /* "#56b4e9", on light paper */

/* Writes the CSS: variables for both themes, and a class for filling and one for stroking. */
void palette_css(FILE *file);

#endif
