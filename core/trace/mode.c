/* The names of the modes; see mode.h. */
#include "trace/mode.h"

const char *mode_name(enum run_mode mode) {
    static const char *const names[MODE_COUNT] = {"single", "dp", "ddp", "fsdp"};
    return (unsigned)mode < MODE_COUNT ? names[mode] : "unknown";
}

const char *mode_title(enum run_mode mode) {
    static const char *const titles[MODE_COUNT] = {"single", "DP", "DDP", "FSDP"};
    return (unsigned)mode < MODE_COUNT ? titles[mode] : "unknown";
}
