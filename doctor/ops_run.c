/* Runs an operation on the device as training does (device memory, a launch on the compute stream,
 * the device's own layout) and by the reference on the host, and lets ops_judge.c compare. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "doctor/ops.h"

/* ---- host memory of a case ---- */

static void *take(struct op_testbed *bed, size_t bytes) {
    void *p = NULL;
    if (bed->heap_count == MOST_HOST_TENSORS || posix_memalign(&p, 64, bytes ? bytes : 1))
        return NULL;
    memset(p, 0xff, bytes); /* NaN */
    return bed->heap[bed->heap_count++] = p;
}

void trial_forget(struct op_testbed *bed) {
    while (bed->heap_count)
        free(bed->heap[--bed->heap_count]);
}

struct tensor trial_tensor(struct op_testbed *bed, enum dtype dtype, int rank, int d0, int d1,
                           int d2, int d3) {
    struct tensor t = tensor_plain(NULL, dtype, rank, (int[4]){d0, d1, d2, d3});
    t.data = take(bed, tensor_bytes(&t));
    return t;
}

struct tensor trial_random(struct op_testbed *bed, int rank, int d0, int d1, int d2, int d3) {
    struct tensor t = trial_tensor(bed, DTYPE_F32, rank, d0, d1, d2, d3);
    if (t.data) rng_uniform(&bed->rng, tensor_f32(&t), tensor_count(&t), -1, 1);
    return t;
}

struct tensor trial_whole(struct op_testbed *bed, int rank, int d0, int d1, int d2, int d3) {
    struct tensor t = trial_tensor(bed, DTYPE_F32, rank, d0, d1, d2, d3);
    for (size_t i = 0; t.data && i < tensor_count(&t); i++)
        tensor_f32(&t)[i] = (float)(rng_u32(&bed->rng) % 9) - 4;
    return t;
}

static struct tensor trial_copy(struct op_testbed *bed, const struct tensor *t) {
    struct tensor copy = *t;
    if (!t->data) return copy;
    copy.data = take(bed, tensor_bytes(t));
    if (copy.data) memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

static int out_of_memory(void) {
    return fail(ERR_MEMORY, "doctor: no host memory for a case: free some memory");
}

/* ---- which operands are in layout N16, on a device that uses it: docs/design.md section 6 ---- */

struct in_n16 {
    unsigned in, out; /* bit i: in[i], out[i] */
};

static struct in_n16 operands_in_n16(enum op op) {
    switch (op) {
    case OP_TO_N16: return (struct in_n16){0, 1};
    case OP_TO_PLAIN: return (struct in_n16){1, 0};
    case OP_CONV2D_FORWARD:
    case OP_CONV2D_BACKWARD_DATA:
    case OP_LINEAR_FORWARD:
    case OP_LINEAR_BACKWARD_DATA:
    case OP_NEGATE:
    case OP_TANH_FORWARD:
    case OP_SIGMOID_FORWARD:
    case OP_ACTIVATION_FORWARD:
    case OP_RELU_FORWARD:
    case OP_AVG_POOL_FORWARD:
    case OP_AVG_POOL_BACKWARD:
    case OP_ADAPTIVE_AVG_POOL_FORWARD:
    case OP_ADAPTIVE_AVG_POOL_BACKWARD:
    case OP_MAX_POOL_FORWARD:
    case OP_PAD:
    case OP_DROPOUT_FORWARD:
    case OP_DROPOUT_BACKWARD:
    case OP_DROPOUT2D_FORWARD:
    case OP_DROPOUT2D_BACKWARD:
    case OP_ADD: return (struct in_n16){1, 1};
    case OP_BATCH_NORM_FORWARD: return (struct in_n16){1 | 4, 1};
    case OP_BATCH_NORM_MOMENTS: return (struct in_n16){1, 0};
    case OP_CONV2D_BACKWARD_WEIGHT:
    case OP_BATCH_NORM_SUMS:
    case OP_LINEAR_BACKWARD_WEIGHT: return (struct in_n16){3, 0};
    case OP_SUBTRACT_FORWARD:
    case OP_MULTIPLY_FORWARD:
    case OP_TANH_BACKWARD:
    case OP_SIGMOID_BACKWARD:
    case OP_ACTIVATION_BACKWARD:
    case OP_ADD_FORWARD:
    case OP_CAT:
    case OP_RELU_BACKWARD:
    case OP_BATCH_NORM_BACKWARD_DATA:
    case OP_MAX_POOL_BACKWARD: return (struct in_n16){3, 1};
    default: return (struct in_n16){0, 0};
    }
}

static struct tensor n16_of(struct op_testbed *bed, const struct tensor *plain) {
    struct tensor t = *plain;
    t.layout = LAYOUT_N16;
    t.groups = (plain->dims[0] + GROUP - 1) / GROUP;
    t.data = take(bed, tensor_bytes(&t));
    if (t.data) host_reference_kernels[OP_TO_N16](&(struct op_args){.in = {*plain}, .out = {t}});
    return t;
}

/* ---- the device's side ---- */

/* Allocates device memory for every operand of `laid` (host memory, in the device's layout) and
 * copies the operands there. The device's operands are `there`. */
static int to_device(struct op_testbed *bed, const struct op_args *laid, struct op_args *there) {
    struct stream *stream = device_compute(bed->device);
    const struct tensor *from[OPERANDS] = {&laid->in[0], &laid->in[1], &laid->in[2], &laid->out[0],
                                           &laid->out[1]};
    struct tensor *to[OPERANDS] = {&there->in[0], &there->in[1], &there->in[2], &there->out[0],
                                   &there->out[1]};
    void *step = NULL;
    *there = *laid;
    for (int i = 0; i < OPERANDS; i++)
        to[i]->data = NULL;
    there->step = NULL;
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

/* In N16 a last group of fewer than 16 samples has unused lanes. In a gradient they must be exactly
 * zero, because sums over samples include them. */
static void check_pads(struct op_testbed *bed, enum op op, const struct tensor *n16) {
    int gradient = op == OP_CONV2D_BACKWARD_DATA || op == OP_LINEAR_BACKWARD_DATA ||
                   op == OP_ACTIVATION_BACKWARD || op == OP_RELU_BACKWARD ||
                   op == OP_AVG_POOL_BACKWARD || op == OP_ADAPTIVE_AVG_POOL_BACKWARD ||
                   op == OP_MAX_POOL_BACKWARD || op == OP_DROPOUT_BACKWARD ||
                   op == OP_DROPOUT2D_BACKWARD || op == OP_BATCH_NORM_BACKWARD_DATA;
    size_t count = tensor_sample_count(n16);
    for (size_t n = (size_t)n16->dims[0]; gradient && n < (size_t)n16->groups * GROUP; n++)
        for (size_t i = 0; i < count; i++)
            if (tensor_f32(n16)[(n / GROUP * count + i) * GROUP + n % GROUP] != 0 &&
                bed->tally.wrong++ == 0)
                snprintf(bed->tally.first, sizeof bed->tally.first,
                         "a lane past the last of %d samples is not 0", n16->dims[0]);
}

static int run_there(struct op_testbed *bed, enum op op, const struct op_args *args,
                     struct tensor got[OUTPUTS]) {
    int n16 = device_layout(bed->device) == LAYOUT_N16;
    int plain = (op == OP_ACTIVATION_FORWARD || op == OP_ACTIVATION_BACKWARD) &&
                activation_is_plain(args->p.activation.kind);
    struct in_n16 where = n16 && !plain ? operands_in_n16(op) : (struct in_n16){0, 0};
    struct op_args laid = *args;
    struct tensor out[OUTPUTS];
    for (int i = 0; i < INPUTS; i++)
        if (laid.in[i].data && where.in >> i & 1) laid.in[i] = n16_of(bed, &args->in[i]);
    for (int i = 0; i < OUTPUTS; i++) {
        if (laid.out[i].data && where.out >> i & 1) laid.out[i] = n16_of(bed, &args->out[i]);
        out[i] = trial_copy(bed, &laid.out[i]);
        got[i] = args->out[i];
        if (got[i].data && !(got[i].data = take(bed, tensor_bytes(&got[i]))))
            return out_of_memory();
        if (laid.out[i].data && !out[i].data) return out_of_memory();
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
static int reference(struct op_testbed *bed, enum op op, const struct op_args *args,
                     struct tensor want[OUTPUTS]) {
    struct op_args a = *args;
    for (int i = 0; i < OUTPUTS; i++) {
        want[i] = a.out[i] = trial_copy(bed, &args->out[i]);
        if (args->out[i].data && !want[i].data) return out_of_memory();
    }
    if (op == OP_TO_N16 || op == OP_TO_PLAIN)
        memcpy(want[0].data, a.in[0].data, tensor_bytes(&want[0]));
    else
        host_reference_kernels[op](&a);
    return OK;
}

/* The sum of |a b| behind each output: the reference, run on the absolute values of the inputs. */
static int sizes(struct op_testbed *bed, enum op op, const struct op_args *args,
                 struct tensor size[OUTPUTS]) {
    struct op_args a = *args;
    for (int i = 0; i < INPUTS; i++) {
        a.in[i] = trial_copy(bed, &args->in[i]);
        if (args->in[i].data && !a.in[i].data) return out_of_memory();
        for (size_t k = 0; a.in[i].data && k < tensor_count(&a.in[i]); k++)
            tensor_f32(&a.in[i])[k] = fabsf(tensor_f32(&a.in[i])[k]);
    }
    return reference(bed, op, &a, size);
}

int trial_tf32(const struct op_testbed *bed) {
    return bed->d->kind == DEVICE_CUDA && bed->d->config.tf32;
}

int run_trial(struct op_testbed *bed, enum op op, const struct op_args *args, size_t terms) {
    int product = op_tolerance(op, 0)->judge == JUDGE_PRODUCT;
    struct tensor got[OUTPUTS], want[OUTPUTS], size[OUTPUTS];
    for (int i = 0; i < OPERANDS; i++) {
        const struct tensor *t = i < INPUTS ? &args->in[i] : &args->out[i - INPUTS];
        if (t->rank && !t->data) return out_of_memory();
    }
    CHECK(reference(bed, op, args, want));
    if (product) CHECK(sizes(bed, op, args, size));
    CHECK(run_there(bed, op, args, got));
    for (int i = 0; i < OUTPUTS; i++) {
        struct comparison c = {.got = &got[i],
                               .want = &want[i],
                               .size = product ? &size[i] : NULL,
                               .terms = terms,
                               .tf32 = trial_tf32(bed)};
        if (want[i].data) judge_output(&bed->tally, op, i, &c);
    }
    bed->tally.launches++;
    return OK;
}
