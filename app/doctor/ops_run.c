/* Runs an operation on the device as training does (device memory, a launch on the compute stream,
 * the device's own layout) and with the reference on the host. ops_judge.c compares the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/op_table.h"
#include "doctor/ops.h"

static int out_of_memory(void) {
    return fail(ERR_MEMORY, "doctor: out of host memory for a case: free some memory");
}

/* ---- the device's layout of activations: docs/design.md section 6 ---- */

static struct tensor n16_of(struct op_cases *c, const struct tensor *plain) {
    struct tensor t = tensor_in_n16(plain, NULL);
    t = case_like(c, &t);
    if (t.data) host_reference_kernels[OP_TO_N16](&(struct op_args){.in = {*plain}, .out = {t}});
    return t;
}

/* ---- the device's side ---- */

/* Allocates device memory for every operand of `laid` (host memory, in the device's layout) and
 * copies the operands there. The device's operands are `there`. */
static int to_device(struct op_testbed *bed, const struct op_args *laid, struct op_args *there) {
    struct stream *stream = device_compute(bed->device);
    const struct tensor *from[OPERANDS];
    struct tensor *to[OPERANDS];
    void *step = NULL;
    *there = *laid;
    there->step = NULL;
    for (int i = 0; i < OPERANDS; i++) {
        from[i] = i < INPUTS ? &laid->in[i] : &laid->out[i - INPUTS];
        to[i] = i < INPUTS ? &there->in[i] : &there->out[i - INPUTS];
        to[i]->data = NULL;
    }
    for (int i = 0; i < OPERANDS; i++) {
        if (!from[i]->data) continue;
        CHECK(device_alloc(bed->device, &to[i]->data, tensor_bytes(from[i]), MEM_WORKSPACE));
        CHECK(copy_to_device(stream, to[i]->data, from[i]->data, tensor_bytes(from[i])));
    }
    if (laid->step) {
        CHECK(device_alloc(bed->device, &step, sizeof *laid->step, MEM_WORKSPACE));
        there->step = step;
        CHECK(stream_write(stream, step, laid->step, sizeof *laid->step));
    }
    return stream_sync(stream);
}

static void free_on_device(struct op_testbed *bed, struct op_args *there) {
    for (int i = 0; i < INPUTS; i++)
        device_free(bed->device, there->in[i].data);
    for (int i = 0; i < OUTPUTS; i++)
        device_free(bed->device, there->out[i].data);
    device_free(bed->device, (void *)(uintptr_t)there->step);
}

static int launch_there(struct op_testbed *bed, enum op op, const struct op_args *laid,
                        struct tensor out[OUTPUTS]) {
    struct stream *stream = device_compute(bed->device);
    struct op_args there;
    int code;
    CHECK_GOTO(to_device(bed, laid, &there), code, done);
    CHECK_GOTO(launch(stream, op, &there), code, done);
    for (int i = 0; i < OUTPUTS; i++)
        if (out[i].data)
            CHECK_GOTO(copy_to_host(stream, out[i].data, there.out[i].data, tensor_bytes(&out[i])),
                       code, done);
    code = stream_sync(stream);
done:
    free_on_device(bed, &there);
    return code;
}

/* In N16 a last group of few samples has unused lanes. In a gradient they must be exactly
 * zero, because sums over samples include them. */
static void check_pads(struct op_testbed *bed, enum op op, const struct tensor *n16) {
    int gradient = strcmp(op_table[op].out[0].name, "dx") == 0;
    size_t count = tensor_sample_count(n16), lanes = (size_t)n16->lanes;
    for (size_t n = (size_t)n16->dims[0]; gradient && n < (size_t)n16->groups * lanes; n++)
        for (size_t i = 0; i < count; i++)
            if (tensor_f32(n16)[(n / lanes * count + i) * lanes + n % lanes] != 0 &&
                bed->tally.wrong++ == 0)
                snprintf(bed->tally.first, sizeof bed->tally.first,
                         "a lane past the last of %d samples is not 0", n16->dims[0]);
}

/* The operands as the device keeps them: activations in its layout, if the op takes that. */
static void lay(struct op_testbed *bed, enum op op, struct op_args *laid) {
    const struct op_row *row = &op_table[op];
    struct op_cases *c = &bed->cases;
    if (device_layout(bed->device) != LAYOUT_N16 || op_is_plain(op, laid)) return;
    for (int i = 0; i < INPUTS; i++)
        if (laid->in[i].data && operand_may_be_n16(&row->in[i]))
            laid->in[i] = n16_of(c, &laid->in[i]);
    for (int i = 0; i < OUTPUTS; i++)
        if (laid->out[i].data && operand_may_be_n16(&row->out[i]))
            laid->out[i] = n16_of(c, &laid->out[i]);
}

static int run_there(struct op_testbed *bed, enum op op, const struct op_args *args,
                     struct tensor got[OUTPUTS]) {
    struct op_cases *c = &bed->cases;
    struct op_args laid = *args;
    struct tensor out[OUTPUTS];
    lay(bed, op, &laid);
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = case_copy(c, &laid.out[i]);
        got[i] = args->out[i];
        if (got[i].data && !(got[i] = case_like(c, &got[i])).data) return out_of_memory();
        if (args->out[i].data && !out[i].data) return out_of_memory();
    }
    for (int i = 0; i < INPUTS; i++)
        if (args->in[i].data && !laid.in[i].data) return out_of_memory();
    CHECK(launch_there(bed, op, &laid, out));
    for (int i = 0; i < OUTPUTS; i++) {
        if (!out[i].data) continue;
        if (out[i].layout == LAYOUT_N16) {
            check_pads(bed, op, &out[i]);
            host_reference_kernels[OP_TO_PLAIN](&(struct op_args){.in = {out[i]}, .out = {got[i]}});
        } else {
            memcpy(got[i].data, out[i].data, tensor_bytes(&out[i]));
        }
    }
    return OK;
}

/* ---- the reference's side ---- */

/* The reference of a change of layout is a copy: seen through PLAIN tensors it changes nothing. */
static int reference(struct op_cases *c, enum op op, const struct op_args *args,
                     struct tensor want[OUTPUTS]) {
    struct op_args a = *args;
    for (int i = 0; i < OUTPUTS; i++) {
        want[i] = a.out[i] = case_copy(c, &args->out[i]);
        if (args->out[i].data && !want[i].data) return out_of_memory();
    }
    if (op == OP_TO_N16 || op == OP_TO_PLAIN)
        memcpy(want[0].data, a.in[0].data, tensor_bytes(&want[0]));
    else
        host_reference_kernels[op](&a);
    return OK;
}

/* The sum of |a b| for each output: the reference, run on the absolute values of the inputs. */
static int sizes(struct op_cases *c, enum op op, const struct op_args *args,
                 struct tensor size[OUTPUTS]) {
    struct op_args a = *args;
    for (int i = 0; i < INPUTS; i++) {
        a.in[i] = case_copy(c, &args->in[i]);
        if (args->in[i].data && !a.in[i].data) return out_of_memory();
        for (size_t k = 0; a.in[i].data && k < tensor_count(&a.in[i]); k++)
            tensor_f32(&a.in[i])[k] = fabsf(tensor_f32(&a.in[i])[k]);
    }
    return reference(c, op, &a, size);
}

int reference_outputs(struct op_cases *c, enum op op, const struct op_args *args,
                      struct tensor want[OUTPUTS], struct tensor size[OUTPUTS]) {
    CHECK(reference(c, op, args, want));
    return op_tolerance(op, 0)->judge == JUDGE_PRODUCT ? sizes(c, op, args, size) : OK;
}

int trial_tf32(const struct op_testbed *bed) {
    return bed->d->kind == DEVICE_CUDA && bed->d->config.tf32;
}

int run_trial(struct op_cases *c, enum op op, const struct op_args *args, size_t terms) {
    struct op_testbed *bed = c->user;
    struct tensor got[OUTPUTS], want[OUTPUTS], size[OUTPUTS] = {{.data = NULL}};
    CHECK(reference_outputs(c, op, args, want, size));
    CHECK(run_there(bed, op, args, got));
    for (int i = 0; i < OUTPUTS; i++) {
        struct comparison comparison = {.got = &got[i],
                                        .want = &want[i],
                                        .size = size[i].data ? &size[i] : NULL,
                                        .terms = terms,
                                        .tf32 = trial_tf32(bed)};
        if (want[i].data) judge_output(&bed->tally, op, i, &comparison);
    }
    bed->tally.launches++;
    return OK;
}
