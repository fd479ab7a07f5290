/* A cuDNN of one operation: the convolution and its two gradients, by its documentation. See
 * fake.h. */
#include <cudnn.h>

#include "tests/stand_ins/fake_cuda_libraries/fake.h"

struct fake_log fake_log;

enum { ALIVE = 0x646e6e };

struct cudnnContext {
    int alive;
    cudaStream_t stream;
    int stream_set;
};
struct cudnnTensorStruct {
    int alive, set, n, c, h, w;
};
struct cudnnFilterStruct {
    int alive, set, k, c, r, s;
};
struct cudnnConvolutionStruct {
    int alive, set, pad_h, pad_w, u, v;
    cudnnMathType_t math;
};

size_t cudnnGetVersion(void) {
    const char *other = getenv("FAKE_CUDNN_VERSION");
    return other ? (size_t)atoi(other) : CUDNN_MAJOR * 10000 + 7701;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_BAD_PARAM         ? "CUDNN_STATUS_BAD_PARAM"
           : status == CUDNN_STATUS_NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED"
                                                    : "CUDNN_STATUS_EXECUTION_FAILED";
}

static cudnnStatus_t forbid(const char *what) {
    fake_forbidden("cudnn", "%s", what);
    return CUDNN_STATUS_BAD_PARAM;
}

#define MAKE_AND_DROP(make, drop, type)                      \
    cudnnStatus_t make(type *out) {                          \
        *out = calloc(1, sizeof **out);                      \
        if (!*out) return CUDNN_STATUS_INTERNAL_ERROR;       \
        (*out)->alive = ALIVE;                               \
        fake_log.handles++;                                  \
        return CUDNN_STATUS_SUCCESS;                         \
    }                                                        \
    cudnnStatus_t drop(type it) {                            \
        if (!it || it->alive != ALIVE) return forbid(#drop); \
        it->alive = 0;                                       \
        free(it);                                            \
        fake_log.handles--;                                  \
        return CUDNN_STATUS_SUCCESS;                         \
    }
MAKE_AND_DROP(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, cudnnTensorDescriptor_t)
MAKE_AND_DROP(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, cudnnFilterDescriptor_t)
MAKE_AND_DROP(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor,
              cudnnConvolutionDescriptor_t)

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    if (getenv("FAKE_CUDNN_FAIL")) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    (*handle)->alive = ALIVE;
    fake_log.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    if (!handle || handle->alive != ALIVE) return forbid("destroy");
    free(handle);
    fake_log.handles--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    handle->stream_set = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    if (format != CUDNN_TENSOR_NCHW || type != CUDNN_DATA_FLOAT || n < 1 || c < 1 || h < 1 || w < 1)
        return forbid("a tensor that is not NCHW, not float, or empty");
    *t = (struct cudnnTensorStruct){ALIVE, 1, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    if (format != CUDNN_TENSOR_NCHW || type != CUDNN_DATA_FLOAT || k < 1 || c < 1 || h < 1 || w < 1)
        return forbid("a filter that is not KCRS, not float, or empty");
    *f = (struct cudnnFilterStruct){ALIVE, 1, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t type) {
    if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT || dilation_h != 1 ||
        dilation_w != 1 || u < 1 || v < 1 || pad_h < 0 || pad_w < 0)
        return forbid("a convolution that turns the filter, is dilated, or makes no sense");
    *d = (struct cudnnConvolutionStruct){ALIVE, 1, pad_h, pad_w, u, v, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
    if (!d->set) return forbid("the math type before the descriptor");
    d->math = math;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- shapes ---- */

enum pass { FORWARD, DATA, FILTER };

struct conv { /* a call, and the kernel's parameter */
    enum pass pass;
    struct cudnnTensorStruct x, y;
    struct cudnnFilterStruct w;
    struct cudnnConvolutionStruct d;
    float *xs, *ws, *ys;
    char *workspace;
    size_t workspace_bytes;
    int chains;
};

static int fits(const struct conv *c) {
    int p = (c->x.h + 2 * c->d.pad_h - c->w.r) / c->d.u + 1,
        q = (c->x.w + 2 * c->d.pad_w - c->w.s) / c->d.v + 1;
    return c->x.set && c->w.set && c->y.set && c->d.set && c->x.c == c->w.c && c->y.c == c->w.k &&
           c->x.n == c->y.n && c->y.h == p && c->y.w == q;
}

static cudnnStatus_t workspace_of(const struct conv *c, int deterministic, size_t *bytes) {
    if (!fits(c)) return forbid("descriptors that do not fit together");
    if (!deterministic)
        return forbid("an algorithm that adds atomically, or one that was not asked for");
    if (c->w.r == fake_log.refuse) return CUDNN_STATUS_NOT_SUPPORTED;
    *bytes = c->w.r == fake_log.greedy ? (size_t)1 << 30
                                       : (size_t)(1 + (c->x.n + c->w.k + c->pass) % 3) * 4096;
    if ((c->x.n + c->w.k) % 4 == 0) *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

static struct conv call_of(enum pass pass, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                           cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t d) {
    return (struct conv){.pass = pass, .x = *x, .y = *y, .w = *w, .d = *d};
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
    const cudnnConvolutionDescriptor_t d, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algo, size_t *bytes) {
    struct conv c = call_of(FORWARD, x, w, y, d);
    (void)handle;
    return workspace_of(&c, algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t d, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes) {
    struct conv c = call_of(DATA, dx, w, dy, d);
    (void)handle;
    return workspace_of(&c, algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t d, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes) {
    struct conv c = call_of(FILTER, x, dw, dy, d);
    (void)handle;
    return workspace_of(&c, algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, bytes);
}

/* ---- the loops ---- */

/* y[n][k][p][q] takes x[n][c][p u - pad + r][q v - pad + s] times w[k][c][r][s]. Each of the
 * three sums is over the triples that the wanted element takes part in. */
static size_t x_at(const struct conv *c, int n, int ch, int h, int w) {
    return (((size_t)n * c->x.c + ch) * c->x.h + h) * c->x.w + w;
}
static size_t y_at(const struct conv *c, int n, int k, int p, int q) {
    return (((size_t)n * c->y.c + k) * c->y.h + p) * c->y.w + q;
}
static size_t w_at(const struct conv *c, int k, int ch, int r, int s) {
    return (((size_t)k * c->w.c + ch) * c->w.r + r) * c->w.s + s;
}

static void term(const struct conv *c, struct fake_sum *sum, float a, float b) {
    int tf32 = c->d.math != CUDNN_FMA_MATH;
    fake_add(sum, tf32 ? fake_tf32(a) : a, tf32 ? fake_tf32(b) : b);
}

static float forward_at(const struct conv *c, int n, int k, int p, int q) {
    struct fake_sum sum = {.chains = c->chains};
    for (int ch = 0; ch < c->x.c; ch++)
        for (int r = 0; r < c->w.r; r++)
            for (int s = 0; s < c->w.s; s++) {
                int h = p * c->d.u - c->d.pad_h + r, w = q * c->d.v - c->d.pad_w + s;
                if (h < 0 || w < 0 || h >= c->x.h || w >= c->x.w) continue;
                term(c, &sum, c->xs[x_at(c, n, ch, h, w)], c->ws[w_at(c, k, ch, r, s)]);
            }
    return fake_total(&sum);
}

static float data_at(const struct conv *c, int n, int ch, int h, int w) {
    struct fake_sum sum = {.chains = c->chains};
    for (int k = 0; k < c->w.k; k++)
        for (int r = 0; r < c->w.r; r++)
            for (int s = 0; s < c->w.s; s++) {
                int up = h + c->d.pad_h - r, left = w + c->d.pad_w - s;
                if (up < 0 || left < 0 || up % c->d.u || left % c->d.v) continue;
                if (up / c->d.u >= c->y.h || left / c->d.v >= c->y.w) continue;
                term(c, &sum, c->ys[y_at(c, n, k, up / c->d.u, left / c->d.v)],
                     c->ws[w_at(c, k, ch, r, s)]);
            }
    return fake_total(&sum);
}

static float filter_at(const struct conv *c, int k, int ch, int r, int s) {
    struct fake_sum sum = {.chains = c->chains};
    for (int n = 0; n < c->x.n; n++)
        for (int p = 0; p < c->y.h; p++)
            for (int q = 0; q < c->y.w; q++) {
                int h = p * c->d.u - c->d.pad_h + r, w = q * c->d.v - c->d.pad_w + s;
                if (h < 0 || w < 0 || h >= c->x.h || w >= c->x.w) continue;
                term(c, &sum, c->ys[y_at(c, n, k, p, q)], c->xs[x_at(c, n, ch, h, w)]);
            }
    return fake_total(&sum);
}

static void run_conv(const void *param) {
    const struct conv *c = param;
    int sizes[3][4] = {{c->y.n, c->y.c, c->y.h, c->y.w},
                       {c->x.n, c->x.c, c->x.h, c->x.w},
                       {c->w.k, c->w.c, c->w.r, c->w.s}};
    const int *d = sizes[c->pass];
    float *out = c->pass == FORWARD ? c->ys : c->pass == DATA ? c->xs : c->ws;
    memset(c->workspace, 0xff, c->workspace_bytes);
    for (int i = 0; i < d[0]; i++)
        for (int j = 0; j < d[1]; j++)
            for (int k = 0; k < d[2]; k++)
                for (int l = 0; l < d[3]; l++)
                    *out++ = c->pass == FORWARD ? forward_at(c, i, j, k, l)
                             : c->pass == DATA  ? data_at(c, i, j, k, l)
                                                : filter_at(c, i, j, k, l);
}
FAKE_KERNEL(conv_kernel, struct conv, run_conv);

static cudnnStatus_t enqueue(cudnnHandle_t handle, struct conv *c, int deterministic,
                             const void *alpha, const void *beta) {
    size_t needed = 0;
    if (!handle || handle->alive != ALIVE || !handle->stream_set)
        return forbid("a handle without a stream");
    if (*(const float *)alpha != 1 || *(const float *)beta != 0)
        return forbid("alpha and beta that are not 1 and 0");
    cudnnStatus_t status = workspace_of(c, deterministic, &needed);
    if (status) return status;
    if (c->workspace_bytes < needed || (needed && !c->workspace))
        return forbid("less workspace than asked for");
    if (c->w.r == fake_log.late) return fake_log.refused++, CUDNN_STATUS_NOT_SUPPORTED;
    c->workspace_bytes = needed;
    int shape[12] = {(int)c->pass, c->x.n, c->x.c, c->x.h,     c->x.w,         c->w.k,
                     c->w.r,       c->w.s, c->d.u, c->d.pad_h, (int)c->d.math, 0};
    c->chains = fake_chains(shape, 12, (const void *const[3]){c->xs, c->ws, c->ys});
    fake_log.batch[fake_log.calls[c->pass]++ % 64] = c->x.n;
    return fake_launch(&conv_kernel, c, handle->stream) ? CUDNN_STATUS_EXECUTION_FAILED
                                                        : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t xDesc, const void *x,
                                      const cudnnFilterDescriptor_t wDesc, const void *w,
                                      const cudnnConvolutionDescriptor_t convDesc,
                                      cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t bytes,
                                      const void *beta, const cudnnTensorDescriptor_t yDesc,
                                      void *y) {
    struct conv c = call_of(FORWARD, xDesc, wDesc, yDesc, convDesc);
    c.xs = (float *)x, c.ws = (float *)w, c.ys = y, c.workspace = workspace,
    c.workspace_bytes = bytes;
    return enqueue(handle, &c, algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, alpha,
                   beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t wDesc, const void *w,
                                           const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                           const cudnnConvolutionDescriptor_t convDesc,
                                           cudnnConvolutionBwdDataAlgo_t algo, void *workspace,
                                           size_t bytes, const void *beta,
                                           const cudnnTensorDescriptor_t dxDesc, void *dx) {
    struct conv c = call_of(DATA, dxDesc, wDesc, dyDesc, convDesc);
    c.xs = dx, c.ws = (float *)w, c.ys = (float *)dy, c.workspace = workspace,
    c.workspace_bytes = bytes;
    return enqueue(handle, &c, algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, alpha, beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t xDesc, const void *x,
                                             const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                             const cudnnConvolutionDescriptor_t convDesc,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void *workspace,
                                             size_t bytes, const void *beta,
                                             const cudnnFilterDescriptor_t dwDesc, void *dw) {
    struct conv c = call_of(FILTER, xDesc, dwDesc, dyDesc, convDesc);
    c.xs = (float *)x, c.ws = dw, c.ys = (float *)dy, c.workspace = workspace,
    c.workspace_bytes = bytes;
    return enqueue(handle, &c, algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, alpha, beta);
}
