/* The names of the modes: see mode.h. */
#include "trace/mode.h"

#include <string.h>

const char *mode_name(enum run_mode mode) {
    static const char *const names[MODE_COUNT] = {"single", "dp", "ddp", "fsdp"};
    return (unsigned)mode < MODE_COUNT ? names[mode] : "unknown";
}

const char *mode_title(enum run_mode mode) {
    static const char *const titles[MODE_COUNT] = {"single", "DP", "DDP", "FSDP"};
    return (unsigned)mode < MODE_COUNT ? titles[mode] : "unknown";
}

int mode_parse(const char *text, enum run_mode *mode) {
    for (int m = 0; m < MODE_COUNT; m++) {
        if (strcmp(mode_name((enum run_mode)m), text)) continue;
        *mode = (enum run_mode)m;
        return 1;
    }
    return 0;
}
