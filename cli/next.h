/* The end of `duet demo`: what to call next. */
#ifndef CLI_NEXT_H
#define CLI_NEXT_H

/* Prints three commands, for a teacher, an engineer and a reader, as they work from this folder,
 * and how the program gets onto PATH where it is not yet. own 1: the model is the program's own. */
void next_commands(int own);

#endif
