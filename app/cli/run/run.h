/* The options of `duet run`, for the man page and bash completion (cli/manual.c). */
#ifndef CLI_RUN_RUN_H
#define CLI_RUN_RUN_H

#include "cli/options/option.h"

extern const struct option launch_options[];

#endif
