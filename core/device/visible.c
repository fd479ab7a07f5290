/* The emulated devices that CUDA_VISIBLE_DEVICES chooses: see visible.h. */
#include "device/visible.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text/parse.h"

static const char VARIABLE[] = "CUDA_VISIBLE_DEVICES";

/* Without asking CUDA, which a process that will fork must not do. /dev/dxg: under WSL. */
static int has_driver(void) {
    return !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK);
}

static void show_all(struct visible_devices *visible) {
    visible->count = MAX_DEVICES;
    for (int i = 0; i < MAX_DEVICES; i++)
        visible->number[i] = i;
}

static int has_number(const struct visible_devices *visible, int number) {
    for (int i = 0; i < visible->count; i++)
        if (visible->number[i] == number) return 1;
    return 0;
}

int visible_devices(struct visible_devices *visible) {
    const char *text = getenv(VARIABLE);
    int64_t given[MAX_DEVICES];
    int count;
    show_all(visible);
    if (!text || !*text || has_driver() || !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4))
        return OK;
    CHECK(parse_int_list(VARIABLE, text, -1, MAX_DEVICES - 1, given, MAX_DEVICES, &count));
    if (given[0] < 0) return OK;
    visible->count = 0;
    for (int i = 0; i < count && given[i] >= 0; i++) {
        if (has_number(visible, (int)given[i]))
            return fail(ERR_USAGE, "%s: %s: device %d is named twice: name each once", VARIABLE,
                        text, (int)given[i]);
        visible->number[visible->count++] = (int)given[i];
    }
    return OK;
}

int visible_check(const char *what, int devices) {
    struct visible_devices visible;
    CHECK(visible_devices(&visible));
    if (devices <= visible.count) return OK;
    return fail(ERR_USAGE, "%s: %d: %s=%s shows %d device%s: ask for fewer, or name more there",
                what, devices, VARIABLE, getenv(VARIABLE), visible.count,
                visible.count > 1 ? "s" : "");
}
