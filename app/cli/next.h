/* The end of `duet demo`: what to call next. */
#ifndef CLI_NEXT_H
#define CLI_NEXT_H

struct duet_model;

/* Prints two or three commands as they work from this folder. own: the model of the run, a
 * program's or that of a file; NULL: one of Duet's. */
void next_commands(const struct duet_model *own);

#endif
