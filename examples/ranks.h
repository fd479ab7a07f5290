/* Checks the number of ranks. duet_spawn starts as many as a program needs. A launcher may start
 * another number, which the program refuses if each rank has its own role. TRY returns the code of
 * a call that failed. */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                \
    do {                         \
        int code_ = (call);      \
        if (code_) return code_; \
    } while (0)

/* Ends a job of another size: rank 0 prints the reason and fails, and the other ranks just end. */
static inline void need_ranks(const char *program, int n) {
    static const char *const by[][2] = {{"RANK", "WORLD_SIZE"},
                                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                        {"PMI_RANK", "PMI_SIZE"}};
    setvbuf(stdout, NULL, _IOLBF, 0); /* each line reaches a pipe at once */
    for (int i = 0; i < 3; i++) {
        const char *rank = getenv(by[i][0]), *world = getenv(by[i][1]);
        if (!rank || !world) continue;
        if (atoi(world) == n) return;
        if (atoi(rank)) exit(0);
        fprintf(stderr, "%s: %s ranks were started: with these options it needs %d\n", program,
                world, n);
        exit(2);
    }
}

#endif
