/* The three products of a linear layer with cuBLAS.
 *
 * cuBLAS stores matrices by columns. cuBLAS sees a row-major matrix (R, C) as a matrix with C rows
 * and R columns, its transpose, without any work. So each product is requested transposed, c' = a'
 * b', which puts the weight first:
 *
 *                w (M,K)          w (K,M)           m x n, summed over k
 *     forward    y' = (w')T x'    y' = w' x'        M x N, K
 *     data       dx' = w' dy'     dx' = (w')T dy'   K x N, M
 *     weight     dw' = x' (dy')T  dw' = dy' (x')T   K x M, N   or   M x K, N
 *
 * The stream has one handle with its own workspace, so no other work overwrites what cuBLAS keeps
 * there between calls, and a call allocates nothing and may be captured. Pedantic math multiplies
 * float32 in float32 and takes no faster, less precise path. */
#include "device/cuda/library.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>

/* What cuBLAS allocates by default on a Hopper GPU. The same for all GPUs, since its choice of an
 * algorithm may depend on it. */
static const size_t WORKSPACE_BYTES = (size_t)32 << 20;

// clang-format off
#define BLAS_FUNCTIONS(X) \
    X(cublasCreate_v2) \
    X(cublasDestroy_v2) \
    X(cublasGetProperty) \
    X(cublasGetStatusName) \
    X(cublasSetStream_v2) \
    X(cublasSetWorkspace_v2) \
    X(cublasSetMathMode) \
    X(cublasSetAtomicsMode) \
    X(cublasSetPointerMode_v2) \
    X(cublasSgemm_v2)
// clang-format on

struct blas_table {
    BLAS_FUNCTIONS(LIBRARY_MEMBER)
};
#define LIBRARY_TABLE struct blas_table
static const struct library_function functions[] = {BLAS_FUNCTIONS(LIBRARY_ROW)};

struct cuda_blas {
    struct blas_table call;
    cublasHandle_t handle;
};

static const struct library_source source = {
    .title = "cuBLAS",
    .variable = "DUET_CUBLAS",
    .file = CUBLAS_FILE, /* set by mk/cuda.mk */
    .name = "libcublas.so." LIBRARY_NUMBER(CUBLAS_VER_MAJOR),
    .instead = "use --cuda-math own",
};

static int load(struct blas_table *call, int *version) {
    int minor = 0, patch = 0;
    CHECK(library_load(&source, functions, sizeof functions / sizeof *functions, call));
    if (call->cublasGetProperty(MAJOR_VERSION, version) || *version != CUBLAS_VER_MAJOR)
        return fail(ERR_USAGE,
                    "%s: the library found is of version %d: this program was built for %d: set %s "
                    "to one of that version, or %s",
                    source.title, *version, CUBLAS_VER_MAJOR, source.variable, source.instead);
    call->cublasGetProperty(MINOR_VERSION, &minor);
    call->cublasGetProperty(PATCH_LEVEL, &patch);
    *version = *version * 10000 + minor * 100 + patch;
    return OK;
}

void cuda_blas_describe(char *text, size_t bytes) {
    struct blas_table call;
    int version = 0;
    if (load(&call, &version))
        snprintf(text, bytes, "%s", error_message());
    else
        snprintf(text, bytes, "cuBLAS %d.%d.%d", version / 10000, version / 100 % 100,
                 version % 100);
}

static int check_status(const struct cuda_blas *b, cublasStatus_t status, const char *what,
                        const struct cuda_stream *s) {
    if (status == CUBLAS_STATUS_SUCCESS) return OK;
    return fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ERR_MEMORY : ERR_FAILED,
                "%s on %s: cuBLAS: %s: use --cuda-math own", what, s->head.device->name,
                b->call.cublasGetStatusName(status));
}

static int set_up(struct cuda_blas *b, struct cuda_stream *s) {
    const char *what = "opening cuBLAS";
    cublasMath_t math =
        s->head.device->config.allow_tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_PEDANTIC_MATH;
    void *workspace;
    int version = 0;
    CHECK(load(&b->call, &version));
    CHECK(device_alloc(s->head.device, &workspace, WORKSPACE_BYTES, MEM_WORKSPACE));
    CHECK(check_status(b, b->call.cublasCreate_v2(&b->handle), what, s));
    /* SetStream drops the workspace, so it goes first. */
    CHECK(check_status(b, b->call.cublasSetStream_v2(b->handle, s->stream), what, s));
    CHECK(check_status(b, b->call.cublasSetWorkspace_v2(b->handle, workspace, WORKSPACE_BYTES),
                       what, s));
    CHECK(check_status(b, b->call.cublasSetMathMode(b->handle, math), what, s));
    CHECK(check_status(b, b->call.cublasSetAtomicsMode(b->handle, CUBLAS_ATOMICS_NOT_ALLOWED), what,
                       s));
    return check_status(b, b->call.cublasSetPointerMode_v2(b->handle, CUBLAS_POINTER_MODE_HOST),
                        what, s);
}

int cuda_blas_open(struct cuda_blas **out, struct cuda_stream *s) {
    *out = calloc(1, sizeof **out);
    if (!*out) return fail(ERR_MEMORY, "out of host memory: cuBLAS of %s", s->head.device->name);
    return set_up(*out, s); /* after a failure cuda_blas_close frees the rest */
}

void cuda_blas_close(struct cuda_blas *b) {
    if (!b) return;
    if (b->handle) b->call.cublasDestroy_v2(b->handle);
    free(b);
}

/* c' = a' b', of size m x n, summed over k. transposed: the stored matrix is transposed. A pitch is
 * the length of a stored row. */
struct gemm {
    int m, n, k;
    const float *a, *b;
    float *c;
    int a_transposed, b_transposed, a_pitch, b_pitch;
};

static struct gemm gemm_of(enum op op, const struct op_args *args) {
    const struct tensor *in = args->in, *out = args->out;
    int in_out = args->p.linear.weight_is_in_out, batch = in[0].dims[0];
    const struct tensor *w = op == OP_LINEAR_BACKWARD_WEIGHT ? &out[0] : &in[1];
    int inputs = w->dims[in_out ? 0 : 1], outputs = w->dims[in_out ? 1 : 0], row = w->dims[1];
    struct gemm g = {.c = tensor_f32(&out[0])};
    /* cuBLAS's first factor follows the last dimension of w. */
    if (op == OP_LINEAR_BACKWARD_WEIGHT) {
        const float *x = tensor_f32(&in[0]), *dy = tensor_f32(&in[1]);
        g.m = row, g.n = w->dims[0], g.k = batch;
        g.a = in_out ? dy : x, g.a_pitch = g.m;
        g.b = in_out ? x : dy, g.b_pitch = g.n, g.b_transposed = 1;
        return g;
    }
    int forward = op == OP_LINEAR_FORWARD;
    g.m = forward ? outputs : inputs, g.n = batch, g.k = forward ? inputs : outputs;
    g.a = tensor_f32(w), g.a_pitch = row, g.a_transposed = forward != in_out;
    g.b = tensor_f32(&in[0]), g.b_pitch = g.k;
    return g;
}

int cuda_blas_enqueue(struct cuda_stream *s, enum op op, const struct op_args *args) {
    const struct cuda_blas *b = s->math->blas;
    const float one = 1, zero = 0;
    struct gemm g = gemm_of(op, args);
    cublasStatus_t status =
        b->call.cublasSgemm_v2(b->handle, g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                               g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, g.m, g.n, g.k, &one, g.a,
                               g.a_pitch, g.b, g.b_pitch, &zero, g.c, g.m);
    return check_status(b, status, op_name(op), s);
}
