/* Chooses the hardware that the modelled clock uses from the words of the command line. */
#ifndef CLOCK_CHOICE_H
#define CLOCK_CHOICE_H

#include "clock/cost.h"

/* A part of struct run_config, so plain data. "": not given. */
struct clock_words {
    char gpu[128], machine[512], what_if[96];
    enum clock_precision precision;
    int nodes; /* machines, joined by their network; 0: one */
};

enum { CHOICE_MOST = 16 };

struct clock_choice {
    struct hardware *hardware;
    const struct gpu_spec *gpu[CHOICE_MOST];
    const struct machine *machine[CHOICE_MOST];
    int gpus, machines; /* how many were named: at least 1 each */
    int is_default;     /* 1: no machine was named; machine[i] is the default for gpu[i] */
    struct what_if what_if;
    enum clock_precision precision;
};

/* Looks up the names. machine "" is pc-pcie3, 4 or 5, whichever the GPU has. Call clock_choice_free
 * even after an error. ERR_USAGE: a name is unknown (the error suggests the most similar), a number
 * or a file is wrong, or --gpu is missing. */
int clock_choose(struct clock_choice *choice, const struct clock_words *words);
void clock_choice_free(struct clock_choice *choice); /* zeroed is fine */

/* The configuration of the event loop for one GPU in one machine. */
struct clock_config clock_chosen(const struct clock_choice *choice, int gpu, int machine);

/* The label of every modelled time: "4 x v100, pc-pcie3, host pytorch, +-30 %", followed by the
 * changes of --what-if: ", if link=2". */
enum { CLOCK_MARK = 112 };
void clock_mark(const struct clock_config *clock, int devices, char mark[CLOCK_MARK]);

/* "default", "fp32", "tf32", "amp". Static storage. */
const char *clock_precision_name(enum clock_precision precision);
/* Appends the changes of --what-if, as in the label, if any. */
void clock_add_what_if(const struct what_if *what_if, char *text, size_t bytes);

#endif
