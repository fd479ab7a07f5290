/* Functions that the checks share: see check.h. */
#include "doctor/check.h"

#include <stdarg.h>
#include <stdio.h>

static const size_t MIB = (size_t)1 << 20;

const char *doctor_kind_name(const struct doctor *d) {
    return d->kind == DEVICE_CUDA ? "cuda" : "cpu";
}

/* The name first, then the step (release): the doctor reads the step (acquire), then its name. */
void doctor_step(struct doctor *d, int step, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(d->progress->name, sizeof d->progress->name, format, arguments);
    va_end(arguments);
    __atomic_store_n(&d->progress->step, step, __ATOMIC_RELEASE);
}

void note(struct doctor *d, enum finding_state state, const char *what, const char *bound,
          const char *format, ...) {
    char measured[sizeof d->findings->row->measured];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(measured, sizeof measured, format, arguments);
    va_end(arguments);
    finding_add(d->findings, state, what, measured, bound);
}

size_t doctor_block(const struct doctor *d) {
    size_t whole = d->kind == DEVICE_CUDA ? 256 * MIB : 32 * MIB;
    return (d->config.quick ? 4 * MIB : whole) + 5;
}

static int job_failed(void *comm) {
    return comm_check(comm);
}

int doctor_open(const struct doctor *d, int index, uint64_t bytes, int checked,
                struct device **out) {
    const uint64_t spare = 96 * MIB; /* a GPU's workspace takes 64 MiB of it */
    struct device_config config = {.kind = d->kind,
                                   .index = index,
                                   .devices = d->devices,
                                   .memory_bytes = bytes + spare,
                                   .check_operands = checked,
                                   .allow_tf32 = d->config.tf32,
                                   .math = d->math,
                                   .timeout_s = d->config.timeout / 2,
                                   .interrupted = d->comm ? job_failed : NULL,
                                   .interrupt_context = d->comm};
    return d->config.open_device ? d->config.open_device(out, &config) : device_open(out, &config);
}
