/* The base of the emulated GPU's streams and events: errors that stay, and timed waits. */
#include <stdio.h>

#include "base/error.h"
#include "device/host/host.h"

void sticky_set(struct sticky_error *error, int code, const char *text) {
    if (atomic_exchange(&error->taken, 1)) return;
    snprintf(error->text, sizeof error->text, "%s", text);
    atomic_store_explicit(&error->code, code, memory_order_release);
}

int sticky_get(struct sticky_error *error) {
    int code = atomic_load_explicit(&error->code, memory_order_acquire);
    return code ? fail(code, "%s", error->text) : OK;
}
