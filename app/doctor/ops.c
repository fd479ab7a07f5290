/* Checks every operation against the host's reference: first with Duet's own kernels, then products
 * again with CUDA's libraries if they are installed. ops.h lists the files. */
#include "doctor/ops.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static void note_tally(struct op_testbed *bed, enum op op, const char *name) {
    const struct tally *t = &bed->tally;
    const char *reason = op_tolerance(op, trial_tf32(bed))->reason;
    if (t->wrong)
        note(bed->d, FINDING_OFF, name, reason, "%zu of %zu values wrong: %s", t->wrong, t->values,
             t->first);
    else if (t->off > 0)
        note(bed->d, FINDING_OK, name, reason, "%d shapes: off by %.1e at most, %.2g of the bound",
             t->launches, t->off, t->share);
    else
        note(bed->d, FINDING_OK, name, reason, "%d shapes: %zu values equal", t->launches,
             t->values);
}

static int check_op(struct op_testbed *bed, enum op op, const char *name) {
    if ((op == OP_TO_N16 || op == OP_TO_PLAIN) && device_layout(bed->device) != LAYOUT_N16) {
        note(bed->d, FINDING_NOT_HERE, name, "",
             "activations are row-major on this device: it has no such operation");
        return OK;
    }
    struct op_cases *cases = &bed->cases;
    *cases = (struct op_cases){.run = run_trial,
                               .user = bed,
                               .seed = bed->d->config.seed,
                               .layout = device_layout(bed->device),
                               .quick = bed->d->config.quick,
                               .large = bed->d->kind == DEVICE_CUDA && !bed->d->config.quick};
    memset(&bed->tally, 0, sizeof bed->tally);
    rng_seed(&cases->rng, bed->d->config.seed + (uint64_t)op);
    int code = op_cases(cases, op);
    case_forget(cases);
    if (code) return code;
    note_tally(bed, op, name);
    return OK;
}

/* Device memory: the largest case takes about 30 MiB, libraries take as much again. */
static const uint64_t DEVICE_BYTES = (uint64_t)128 << 20;

/* Step i is operation i: a launch that fails may have poisoned the process, and the doctor then
 * continues after it in a new one. */
static int own_kernels(struct doctor *d, int first) {
    struct op_testbed bed = {.d = d};
    if (first >= OP_COUNT) return OK;
    doctor_step(d, first, "%s: %s", doctor_kind_name(d), op_name((enum op)first));
    int code = doctor_open(d, 0, DEVICE_BYTES, 1, &bed.device);
    for (int op = first; op < OP_COUNT && !code; op++) {
        char name[CHECK_NAME_BYTES];
        snprintf(name, sizeof name, "%s: %s", doctor_kind_name(d), op_name((enum op)op));
        doctor_step(d, op, "%s", name);
        code = check_op(&bed, (enum op)op, name);
    }
    device_close(bed.device);
    return code;
}

/* Linear layers once more, by cuBLAS (--cuda-math library). Step OP_COUNT + i is product i. */
static int library_kernels(struct doctor *d, int first) {
    enum { PRODUCTS = OP_LINEAR_BACKWARD_WEIGHT - OP_LINEAR_FORWARD + 1 };
    struct op_testbed bed = {.d = d};
    if (d->kind != DEVICE_CUDA || first >= OP_COUNT + PRODUCTS) return OK;
    int from = first > OP_COUNT ? first - OP_COUNT : 0;
    doctor_step(d, OP_COUNT + from, "cuda: products by libraries");
    d->math = DEVICE_MATH_LIBRARY;
    int code = doctor_open(d, 0, DEVICE_BYTES, 1, &bed.device);
    d->math = DEVICE_MATH_OWN;
    /* A missing library is not a failure. One that is installed but unusable is: --cuda-math
     * library would fail with this error. */
    if (code) {
        note(d, code == ERR_USAGE ? FINDING_NOT_HERE : FINDING_OFF, "cuda: products by libraries",
             "", "%s", error_message());
        return OK;
    }
    for (int i = from; i < PRODUCTS && !code; i++) {
        char name[CHECK_NAME_BYTES];
        enum op op = (enum op)(OP_LINEAR_FORWARD + i);
        snprintf(name, sizeof name, "cuda, libraries: %s", op_name(op));
        doctor_step(d, OP_COUNT + i, "%s", name);
        code = check_op(&bed, op, name);
    }
    device_close(bed.device);
    return code;
}

int check_ops(struct doctor *d, int first) {
    CHECK(own_kernels(d, first));
    return library_kernels(d, first);
}
