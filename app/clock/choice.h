/* Chooses the hardware that the modelled clock uses from the words of the command line. */
#ifndef CLOCK_CHOICE_H
#define CLOCK_CHOICE_H

#include "clock/cost.h"

/* A part of struct run_config, so plain data. "": not given. */
struct clock_words {
    char gpu[128], machine[512], what_if[96];
    enum clock_precision precision;
    int nodes; /* number of machines joined by their network; 0: one */
};

/* Looks up the names for the event loop: sets *clock, and *hardware, which has them; hardware_free
 * it even after an error. machine "" is pc-pcie3, 4 or 5, whichever the GPU has. ERR_USAGE: a name
 * is unknown (the error suggests the most similar), a number or a file is wrong, or --gpu is
 * missing. */
int clock_choose(const struct clock_words *words, struct hardware **hardware,
                 struct clock_config *clock);

/* The label of every modelled time: "4 x v100, pc-pcie3, host pytorch, +-30 %", followed by the
 * changes of --what-if: ", if link=2". */
enum { CLOCK_MARK = 112 };
void clock_mark(const struct clock_config *clock, int devices, char mark[CLOCK_MARK]);

/* "default", "fp32", "tf32", "amp". Static storage. */
const char *clock_precision_name(enum clock_precision precision);
/* Appends the changes of --what-if, as in the label, if any. */
void clock_add_what_if(const struct what_if *what_if, char *text, size_t bytes);

#endif
