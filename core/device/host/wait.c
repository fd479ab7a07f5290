/* What streams and events of the emulated GPU stand on: an error that stays, and a condition
 * variable whose waits have a deadline on the clock of base/clock.h. */
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

int host_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;
    int code = pthread_condattr_init(&attributes);
    if (!code) {
        code = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        if (!code) code = pthread_cond_init(cond, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    return code ? fail_errno(ERR_FAILED, code, "condition variable of a device: could not be made")
                : OK;
}

void host_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline) {
    struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
    pthread_cond_timedwait(cond, lock, &until);
}
