/* Shared by the tests of device/: opening emulated devices, and calls that must succeed. */
#ifndef TESTS_DEVICE_SHARED_H
#define TESTS_DEVICE_SHARED_H

#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/device.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert_eq((call), OK, "%s", error_message())
#define MUST_SAY(word) \
    cr_assert_not_null(strstr(error_message(), (word)), "'%s' lacks '%s'", error_message(), (word))

static const enum device_kind host_kinds[] = {DEVICE_HOST, DEVICE_HOST_LATE};
enum { HOST_KINDS = 2 };

/* The kinds that a correct program cannot tell apart: emulated devices, and, where the CUDA runtime
 * is emulated (make EMULATION=1), a GPU too. Real GPUs are checked by duet doctor. */
static const enum device_kind all_kinds[] = {DEVICE_HOST, DEVICE_HOST_LATE, DEVICE_CUDA};
#ifdef CUDA_EMULATION
enum { ALL_KINDS = 3 };
#else
enum { ALL_KINDS = 2 };
#endif

/* Operands are checked, spans are on, memory is 8 MiB (72 on a GPU, whose workspace takes 64), and
 * waits last at most 20 s. */
static inline struct device_config test_config(enum device_kind kind, int index) {
    struct device_config config;
    memset(&config, 0, sizeof config);
    config.kind = kind;
    config.index = index;
    config.memory_bytes = kind == DEVICE_CUDA ? 72 << 20 : 8 << 20;
    config.check_operands = 1;
    config.spans = 1;
    config.timeout_s = 20;
    return config;
}

static inline struct device *test_open(enum device_kind kind, int index) {
    struct device_config config = test_config(kind, index);
    struct device *device;
    MUST(device_open(&device, &config));
    return device;
}

static inline float *test_floats(struct device *device, int count) {
    void *memory;
    MUST(device_alloc(device, &memory, (size_t)count * sizeof(float), MEM_WORKSPACE));
    return (float *)memory;
}

static inline struct tensor test_vector(float *data, int count) {
    return tensor_plain(data, DTYPE_F32, 1, &count);
}

/* y = value, y *= factor, y += x: small kernels whose result shows the order in which they ran. */
static inline int test_fill(struct stream *stream, float *y, int count, float value) {
    struct op_args args;
    memset(&args, 0, sizeof args);
    args.out[0] = test_vector(y, count);
    args.p.fill.value = value;
    return launch(stream, OP_FILL, &args);
}

static inline int test_scale(struct stream *stream, float *y, int count, float factor) {
    struct op_args args;
    memset(&args, 0, sizeof args);
    args.in[0] = args.out[0] = test_vector(y, count);
    args.p.activation = (struct activation_args){ACTIVATION_SCALE, factor, 0};
    return launch(stream, OP_ACTIVATION_FORWARD, &args);
}

static inline int test_add(struct stream *stream, float *y, float *x, int count) {
    struct op_args args;
    memset(&args, 0, sizeof args);
    args.in[0] = args.out[0] = test_vector(y, count);
    args.in[1] = test_vector(x, count);
    return launch(stream, OP_ADD_FORWARD, &args);
}

/* A host function that blocks its stream until the test opens the gate, or a deadline passes. */
struct gate {
    atomic_int entered, open;
};
static inline int pass_gate(void *args) {
    struct gate *gate = *(struct gate **)args;
    int64_t deadline = deadline_after(20);
    gate->entered = 1;
    while (!gate->open && now_ns() < deadline)
        usleep(200);
    return gate->open ? OK : fail(ERR_TIMEOUT, "the gate stayed shut");
}

static inline int block(struct stream *stream, struct gate *gate) {
    return stream_call_host(stream, "gate", 0, pass_gate, &gate, sizeof gate);
}

/* A host function that increments a number. */
static inline int count_up(void *args) {
    ++**(int **)args;
    return OK;
}

static inline int call_count_up(struct stream *stream, int *counter) {
    return stream_call_host(stream, "count", 0, count_up, &counter, sizeof counter);
}

#endif
