/* Computes the values of devices: see values.h. */
#include "report/values.h"

static double in_all(const struct run_record *r, int device, enum value value, int key) {
    const struct device_record *d = &r->device[device];
    switch (value) {
    case VALUE_IN: return (double)d->bytes_in;
    case VALUE_OUT: return (double)d->bytes_out;
    case VALUE_LINKS: return (double)(d->bytes_in + d->bytes_out);
    case VALUE_MOVED: return (double)d->phase_bytes[key];
    case VALUE_PHASE: return (double)d->phase_ns[key];
    case VALUE_BUSY: return (double)d->busy_ns;
    case VALUE_KERNELS: return (double)d->kernels;
    case VALUE_COPY: return (double)d->copy_ns;
    case VALUE_HIDDEN: return (double)(d->comm_ns - d->exposed_ns);
    case VALUE_EXPOSED: return (double)d->exposed_ns;
    case VALUE_WAIT: return (double)d->wait_ns;
    case VALUE_NO_CORE: return (double)d->no_core_ns;
    default: return record_idle_ns(r, device);
    }
}

double device_value(const struct run_record *r, int device, enum value value, int key) {
    const struct device_record *d = &r->device[device];
    switch (value) {
    case VALUE_PEAK:
        return (double)(key < MEM_CAUSE_COUNT ? d->memory.at_peak[key] : d->memory.total_peak);
    case VALUE_BUSY_SHARE:
        return r->training_seconds > 0 ? (double)d->busy_ns * 1e-9 / r->training_seconds : 0;
    default: return record_per_step(r, in_all(r, device, value, key));
    }
}

double mean_value(const struct run_record *r, int first, int end, enum value value, int key) {
    double sum = 0;
    for (int d = first; d < end; d++)
        sum += device_value(r, d, value, key);
    return end > first ? sum / (end - first) : 0;
}

double others_value(const struct run_record *r, enum value value, int key) {
    return mean_value(r, 1, r->devices, value, key);
}

int any_value(const struct run_record *r, enum value value, int key) {
    for (int d = 0; d < r->devices; d++)
        if (device_value(r, d, value, key) != 0) return 1;
    return 0;
}
