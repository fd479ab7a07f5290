/* cuDNN: the three products of a convolution.
 *
 * cuDNN takes a shape as descriptors. They are made when a shape comes for the first time, and kept
 * as a plan: a training run has a handful, and a steady step makes none. The algorithm is a
 * constant for each op and never chosen by a timing. Each is one that cuDNN documents as
 * deterministic:
 *
 *     forward           IMPLICIT_PRECOMP_GEMM
 *     backward data     ALGO_1     (ALGO_0 adds atomically)
 *     backward weight   ALGO_1     (ALGO_0 and ALGO_3 add atomically)
 *
 * A shape that cuDNN refuses with it, or for which it needs more workspace than the stream has, is
 * left to Duet's own kernels. Names: x is cuDNN's x, w its filter, y its y, all in their plain
 * layouts, NCHW and KCRS. */
#include "device/cuda/library.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define CONV_FUNCTIONS(X) \
    X(cudnnGetVersion) \
    X(cudnnGetErrorString) \
    X(cudnnCreate) \
    X(cudnnDestroy) \
    X(cudnnSetStream) \
    X(cudnnCreateTensorDescriptor) \
    X(cudnnDestroyTensorDescriptor) \
    X(cudnnSetTensor4dDescriptor) \
    X(cudnnCreateFilterDescriptor) \
    X(cudnnDestroyFilterDescriptor) \
    X(cudnnSetFilter4dDescriptor) \
    X(cudnnCreateConvolutionDescriptor) \
    X(cudnnDestroyConvolutionDescriptor) \
    X(cudnnSetConvolution2dDescriptor) \
    X(cudnnSetConvolutionMathType) \
    X(cudnnGetConvolutionForwardWorkspaceSize) \
    X(cudnnGetConvolutionBackwardDataWorkspaceSize) \
    X(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
    X(cudnnConvolutionForward) \
    X(cudnnConvolutionBackwardData) \
    X(cudnnConvolutionBackwardFilter)
// clang-format on

struct conv_table {
    CONV_FUNCTIONS(LIBRARY_MEMBER)
};
#define LIBRARY_TABLE struct conv_table
static const struct library_function functions[] = {CONV_FUNCTIONS(LIBRARY_ROW)};

static const cudnnConvolutionFwdAlgo_t FORWARD = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
static const cudnnConvolutionBwdDataAlgo_t DATA = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
static const cudnnConvolutionBwdFilterAlgo_t WEIGHT = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/* What a plan depends on. Compared as bytes, so there is no padding between its members. */
struct conv_key {
    int op, x[4], w[4], y[4];
    struct conv_args conv;
};

struct plan {
    struct conv_key key;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    size_t workspace;
    int taken; /* 0: cuDNN does not take this shape, own kernels do */
    struct plan *next;
};

struct cuda_conv {
    struct conv_table call;
    cudnnHandle_t handle;
    cudnnMathType_t math;
    struct plan *plans;
};

static const struct library_place place = {
    .title = "cuDNN",
    .variable = "DUET_CUDNN",
    .file = CUDNN_FILE, /* set by mk/cuda.mk */
    .name = "libcudnn.so." LIBRARY_NUMBER(CUDNN_MAJOR),
    .instead = "use --cuda-math own",
};

/* 9.19.0 is 91900; 8.9.2 was 8902. */
static int load(struct conv_table *call, int *version, int *found) {
    CHECK(library_load(&place, functions, sizeof functions / sizeof *functions, call, found));
    *version = (int)call->cudnnGetVersion();
    int major = *version >= 90000 ? *version / 10000 : *version / 1000;
    if (major == CUDNN_MAJOR) return OK;
    *found = LIBRARY_UNUSABLE;
    return fail(ERR_USAGE,
                "%s: the library found is of version %d: this program was built for %d: set %s to "
                "one of that version, or %s",
                place.title, major, CUDNN_MAJOR, place.variable, place.instead);
}

void cuda_conv_describe(char *text, size_t bytes) {
    struct conv_table call;
    int version = 0, found;
    if (load(&call, &version, &found))
        snprintf(text, bytes, "%s", error_message());
    else
        snprintf(text, bytes, "cuDNN %d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
}

static int check(const struct cuda_conv *c, cudnnStatus_t status, const char *what,
                 const struct cuda_stream *s) {
    if (status == CUDNN_STATUS_SUCCESS) return OK;
    return fail(ERR_FAILED, "%s on %s: cuDNN: %s: use --cuda-math own", what, s->head.device->name,
                c->call.cudnnGetErrorString(status));
}

int cuda_conv_open(struct cuda_conv **out, struct cuda_stream *s) {
    struct cuda_conv *c = calloc(1, sizeof *c);
    int version, found, code;
    *out = NULL;
    if (!c) return fail(ERR_MEMORY, "out of host memory: cuDNN of %s", s->head.device->name);
    code = load(&c->call, &version, &found);
    if (code) {
        free(c);
        return found == LIBRARY_NOT_FOUND ? OK : code;
    }
    *out = c; /* after a failure from here on cuda_conv_close frees the rest */
    c->math = s->head.device->config.allow_tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    CHECK(check(c, c->call.cudnnCreate(&c->handle), "opening cuDNN", s));
    return check(c, c->call.cudnnSetStream(c->handle, s->stream), "opening cuDNN", s);
}

static void plan_free(const struct cuda_conv *c, struct plan *p) {
    if (p->x) c->call.cudnnDestroyTensorDescriptor(p->x);
    if (p->y) c->call.cudnnDestroyTensorDescriptor(p->y);
    if (p->w) c->call.cudnnDestroyFilterDescriptor(p->w);
    if (p->conv) c->call.cudnnDestroyConvolutionDescriptor(p->conv);
    free(p);
}

void cuda_conv_close(struct cuda_conv *c) {
    if (!c) return;
    while (c->plans) {
        struct plan *next = c->plans->next;
        plan_free(c, c->plans);
        c->plans = next;
    }
    if (c->handle) c->call.cudnnDestroy(c->handle);
    free(c);
}

/* ---- plans ---- */

/* The three tensors by their role in the convolution, whichever of them the op computes. */
struct roles {
    const struct tensor *x, *w, *y;
};

static struct roles roles_of(enum op op, const struct op_args *a) {
    switch (op) {
    case OP_CONV2D_FORWARD: return (struct roles){&a->in[0], &a->in[1], &a->out[0]};
    case OP_CONV2D_BACKWARD_DATA: return (struct roles){&a->out[0], &a->in[1], &a->in[0]};
    default: return (struct roles){&a->in[0], &a->out[0], &a->in[1]};
    }
}

static int describe_shape(const struct cuda_conv *c, struct plan *p, const char *what,
                          const struct cuda_stream *s) {
    const struct conv_table *call = &c->call;
    const struct conv_key *k = &p->key;
    int pad = k->conv.padding, stride = k->conv.stride;
    CHECK(check(c, call->cudnnCreateTensorDescriptor(&p->x), what, s));
    CHECK(check(c, call->cudnnCreateTensorDescriptor(&p->y), what, s));
    CHECK(check(c, call->cudnnCreateFilterDescriptor(&p->w), what, s));
    CHECK(check(c, call->cudnnCreateConvolutionDescriptor(&p->conv), what, s));
    CHECK(check(c,
                call->cudnnSetTensor4dDescriptor(p->x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, k->x[0],
                                                 k->x[1], k->x[2], k->x[3]),
                what, s));
    CHECK(check(c,
                call->cudnnSetTensor4dDescriptor(p->y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, k->y[0],
                                                 k->y[1], k->y[2], k->y[3]),
                what, s));
    CHECK(check(c,
                call->cudnnSetFilter4dDescriptor(p->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, k->w[0],
                                                 k->w[1], k->w[2], k->w[3]),
                what, s));
    CHECK(check(c,
                call->cudnnSetConvolution2dDescriptor(p->conv, pad, pad, stride, stride, 1, 1,
                                                      CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                what, s));
    return check(c, call->cudnnSetConvolutionMathType(p->conv, c->math), what, s);
}

/* Is it "not supported"? From version 9 on that is a whole range of codes. */
static int refused(cudnnStatus_t status) {
    int code = (int)status, base = (int)CUDNN_STATUS_NOT_SUPPORTED;
    return code == base || (base >= 1000 && code / 1000 == base / 1000);
}

/* A refusal follows from the shape alone, so it is the same in every mode and at every step: own
 * kernels take the shape then. */
static int ask_workspace(const struct cuda_conv *c, struct plan *p, const char *what,
                         const struct cuda_stream *s) {
    const struct conv_table *call = &c->call;
    cudnnStatus_t status;
    if (p->key.op == OP_CONV2D_FORWARD)
        status = call->cudnnGetConvolutionForwardWorkspaceSize(c->handle, p->x, p->w, p->conv, p->y,
                                                               FORWARD, &p->workspace);
    else if (p->key.op == OP_CONV2D_BACKWARD_DATA)
        status = call->cudnnGetConvolutionBackwardDataWorkspaceSize(c->handle, p->w, p->y, p->conv,
                                                                    p->x, DATA, &p->workspace);
    else
        status = call->cudnnGetConvolutionBackwardFilterWorkspaceSize(
            c->handle, p->x, p->y, p->conv, p->w, WEIGHT, &p->workspace);
    p->taken = status == CUDNN_STATUS_SUCCESS && p->workspace <= CUDA_WORKSPACE_BYTES;
    return refused(status) ? OK : check(c, status, what, s);
}

static struct conv_key key_of(enum op op, const struct op_args *args, struct roles r) {
    struct conv_key key = {.op = (int)op, .conv = args->p.conv};
    memcpy(key.x, r.x->dims, sizeof key.x);
    memcpy(key.w, r.w->dims, sizeof key.w);
    memcpy(key.y, r.y->dims, sizeof key.y);
    return key;
}

static int find_plan(struct cuda_stream *s, enum op op, const struct conv_key *key,
                     struct plan **out) {
    struct cuda_conv *c = s->math->conv;
    for (*out = c->plans; *out; *out = (*out)->next)
        if (!memcmp(&(*out)->key, key, sizeof *key)) return OK;
    if (s->capturing)
        return fail(ERR_FAILED,
                    "%s: a shape that is new while launches are recorded: run one such step "
                    "unrecorded first",
                    op_name(op));
    struct plan *p = calloc(1, sizeof *p);
    if (!p) return fail(ERR_MEMORY, "out of host memory: cuDNN's descriptors");
    p->key = *key;
    int code = describe_shape(c, p, op_name(op), s);
    if (!code) code = ask_workspace(c, p, op_name(op), s);
    if (code) {
        plan_free(c, p);
        return code;
    }
    p->next = c->plans;
    *out = c->plans = p;
    return OK;
}

int cuda_conv_enqueue(struct cuda_stream *s, enum op op, const struct op_args *args, int *taken) {
    const struct cuda_conv *c = s->math->conv;
    const float one = 1, zero = 0;
    struct roles r = roles_of(op, args);
    struct conv_key key = key_of(op, args, r);
    struct plan *p;
    cudnnStatus_t status;
    CHECK(find_plan(s, op, &key, &p));
    *taken = p->taken;
    if (!p->taken) return OK;
    if (op == OP_CONV2D_FORWARD)
        status = c->call.cudnnConvolutionForward(c->handle, &one, p->x, r.x->data, p->w, r.w->data,
                                                 p->conv, FORWARD, s->workspace, p->workspace,
                                                 &zero, p->y, r.y->data);
    else if (op == OP_CONV2D_BACKWARD_DATA)
        status = c->call.cudnnConvolutionBackwardData(c->handle, &one, p->w, r.w->data, p->y,
                                                      r.y->data, p->conv, DATA, s->workspace,
                                                      p->workspace, &zero, p->x, r.x->data);
    else
        status = c->call.cudnnConvolutionBackwardFilter(c->handle, &one, p->x, r.x->data, p->y,
                                                        r.y->data, p->conv, WEIGHT, s->workspace,
                                                        p->workspace, &zero, p->w, r.w->data);
    if (refused(status)) { /* at the first call of a shape, or never */
        p->taken = *taken = 0;
        return OK;
    }
    return check(c, status, op_name(op), s);
}
