/* The number of ranks that a program needs. duet_spawn starts as many. A launcher may start another
 * number, which a program refuses if each rank has its own part. TRY returns the code of a call
 * that failed. */
#ifndef EXAMPLES_RANKS_H
#define EXAMPLES_RANKS_H

#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                \
    do {                         \
        int code_ = (call);      \
        if (code_) return code_; \
    } while (0)

/* Ends the ranks of a job of another size: rank 0 says why and fails, the others just end. */
static inline void need_ranks(const char *program, int n) {
    static const char *const by[][2] = {{"RANK", "WORLD_SIZE"},
                                        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                        {"PMI_RANK", "PMI_SIZE"}};
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
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
