/* Where a device's time goes: see times.h. */
#include "report/pictures/times.h"

static int is_of_step(int phase) {
    return phase != PHASE_NONE && phase != PHASE_EVALUATE;
}

/* Busy time by phase, the loader's wait and the proof included. */
static double in_phases(const struct device_record *d) {
    double sum = 0;
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        if (is_of_step(phase)) sum += (double)d->phase_ns[phase];
    return sum;
}

double time_part(const struct run_record *run, int device, int key) {
    const struct device_record *d = &run->device[device];
    if (key < PHASE_COUNT)
        return is_of_step(key) ? record_per_step(run, (double)d->phase_ns[key]) : 0;
    if (key == TIME_WAIT) return record_per_step(run, (double)d->wait_ns);
    if (key == TIME_NO_CORE) return record_per_step(run, (double)d->no_core_ns);
    double left =
        run->training_seconds * 1e9 - in_phases(d) - (double)d->wait_ns - (double)d->no_core_ns;
    return left > 0 ? record_per_step(run, left) : 0;
}

const char *time_name(int key) {
    return key == TIME_WAIT      ? "waiting"
           : key == TIME_NO_CORE ? "waiting for a core"
           : key == TIME_IDLE    ? "idle"
                                 : phase_name((enum phase)key);
}

enum shade time_shade(int key) {
    return key == TIME_WAIT      ? SHADE_QUIET
           : key == TIME_NO_CORE ? SHADE_NO_CORE
           : key == TIME_IDLE    ? SHADE_IDLE
                                 : shade_of_phase(key);
}
