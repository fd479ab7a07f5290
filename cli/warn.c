/* Warnings that several subcommands print: see commands.h. */
#include <stdio.h>

#include "cli/commands.h"

void warn_not_finite(const char *title, const struct run_record *run) {
    int count, first = record_not_finite(run, &count);
    if (first < 0) return;
    fflush(stdout); /* before the line on stderr */
    fprintf(stderr,
            "duet: %s%sloss: not finite since step %d, in %d of %d steps: try a smaller --lr\n",
            title ? title : "", title ? ": " : "", first, count, run->steps);
}
