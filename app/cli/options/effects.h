/* The columns `commands`, `modes` and `conditions` of the options' table (run_table.c) say where an
 * option of a run has an effect. After the whole command line is read, an option that surely has no
 * effect is refused with the reason. An option that may have an effect passes: `--device auto` may
 * find a GPU.
 *
 * A new option uses these bits, or a new condition. A new condition needs its question and its
 * wording in effects.c, and a failing case in tests/app/cli/test_options.c. */
#ifndef CLI_OPTIONS_EFFECTS_H
#define CLI_OPTIONS_EFFECTS_H

#include "cli/options/option.h"
#include "train/run.h"

enum command_bit {
    BY_TRAIN = 1 << 0,
    BY_COMPARE = 1 << 1,
    BY_DEMO = 1 << 2,
    BY_PROFILE = 1 << 3,
    BY_ESTIMATE = 1 << 4,
    BY_SCALE = 1 << 5,
    BY_RUNS = BY_TRAIN | BY_COMPARE | BY_DEMO | BY_PROFILE | BY_SCALE, /* all that train */
    BY_ALL = BY_RUNS | BY_ESTIMATE,
    OFTEN = 1 << 8 /* no command: --help shows the option even without --details */
};

/* The bit of a command; 0: it has no options of runs. */
unsigned command_bit(const char *name);

/* Bits of the modes, for the column `modes`. */
#define IN_ANY_MODE 0
#define IN_DP (1U << MODE_DP)
#define IN_DDP (1U << MODE_DDP)
#define IN_FSDP (1U << MODE_FSDP)

/* Conditions that must hold. If several fail, the error names the first. */
enum condition {
    ON_SEVERAL_DEVICES = 1 << 0,
    ON_GPUS = 1 << 1,
    WITH_MLP = 1 << 2,
    WITH_RESNET = 1 << 5,
    SPLITS_PARAMETERS = 1 << 8,
    OF_MADE_DATA = 1 << 6,
    OF_FILES = 1 << 7,
    BY_SGD = 1 << 9,
    BESIDE_PARAMS = 1 << 10,
    BESIDE_CHECKPOINT = 1 << 11,
    /* from here on: what excludes the option */
    WITHOUT_INIT_FROM = 1 << 12,
    WITHOUT_RESUME = 1 << 13,
    BESIDE_GPU = 1 << 15,
    WITH_NORMS = 1 << 16,
    ADDS_AS_DDP = 1 << 17 /* or the mode is DDP */
};

/* What the command will do. */
struct asked {
    const struct run_config *config;
    const char *command; /* "train", "scale", "compare", ... */
    unsigned modes;      /* bit m: it trains in enum run_mode m */
};

/* OK: the option may have an effect. ERR_USAGE: it has none; the message is
 *     OPTION: no effect WHERE: WHY: WHAT TO DO */
int option_check_effect(const struct option *option, const struct asked *asked);

#endif
