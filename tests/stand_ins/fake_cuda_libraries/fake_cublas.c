/* A cuBLAS with one function, cublasSgemm, written from its documentation. See fake.h. */
#include <cublas_v2.h>

#include "tests/stand_ins/fake_cuda_libraries/fake.h"

struct fake_log fake_log;

enum { ALIVE = 0x626c6173, SPOILT_BYTES = 4096 };

struct cublasContext {
    int alive;
    cudaStream_t stream;
    int stream_set;
    char *workspace; /* NULL: one that the library allocates */
    size_t workspace_bytes;
    cublasMath_t math;
    cublasAtomicsMode_t atomics;
    cublasPointerMode_t pointers;
    unsigned calls;
};

static int bad(cublasHandle_t handle, const char *function) {
    return !handle || handle->alive != ALIVE
               ? fake_forbidden("cublas", "%s: no such handle", function)
               : 0;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    const char *no = getenv("FAKE_CUBLAS_FAIL");
    if (no && !strcmp(no, "create")) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->alive = ALIVE;
    fake_log.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    if (bad(handle, "destroy")) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->alive = 0;
    free(handle);
    fake_log.handles--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value) {
    const char *other = getenv("FAKE_CUBLAS_MAJOR");
    *value = type == MAJOR_VERSION   ? (other ? atoi(other) : CUBLAS_VER_MAJOR)
             : type == MINOR_VERSION ? 77
                                     : 1;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    if (bad(handle, "set stream")) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    handle->stream_set = 1;
    handle->workspace = NULL; /* "unconditionally resets the workspace" */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes) {
    if (bad(handle, "set workspace")) return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((uintptr_t)workspace % 256) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if (bad(handle, "set math mode")) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    if (bad(handle, "set atomics mode")) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    if (bad(handle, "set pointer mode")) return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- C = alpha op(A) op(B) + beta C, all by columns ---- */

struct gemm {
    int turn_a, turn_b, m, n, k, lda, ldb, ldc, chains, tf32;
    float alpha, beta;
    const float *a, *b;
    float *c;
    char *workspace;
    size_t workspace_bytes;
    unsigned call;
};

/* What the first call left at the beginning of the workspace must still be there at all later
 * calls. Each call overwrites the rest, to the last byte. */
static void use_workspace(const struct gemm *g) {
    unsigned *kept = (unsigned *)(void *)g->workspace;
    if (g->call > 0 && *kept != ALIVE &&
        __atomic_add_fetch(&fake_log.lost, 1, __ATOMIC_RELAXED) == 1)
        fprintf(stderr, "fake cublas: what it left in its workspace is gone\n");
    memset(g->workspace, 0xff, SPOILT_BYTES);
    memset(g->workspace + g->workspace_bytes - SPOILT_BYTES, 0xff, SPOILT_BYTES);
    *kept = ALIVE;
}

static void run_gemm(const void *param) {
    const struct gemm *g = param;
    use_workspace(g);
    for (int j = 0; j < g->n; j++)
        for (int i = 0; i < g->m; i++) {
            struct fake_sum sum = {.chains = g->chains};
            for (int l = 0; l < g->k; l++) {
                float a = g->a[g->turn_a ? (size_t)i * g->lda + l : (size_t)l * g->lda + i];
                float b = g->b[g->turn_b ? (size_t)l * g->ldb + j : (size_t)j * g->ldb + l];
                if (g->tf32) a = fake_tf32(a), b = fake_tf32(b);
                fake_add(&sum, a, b);
            }
            float *c = &g->c[(size_t)j * g->ldc + i];
            *c = g->alpha * fake_total(&sum) +
                 (g->beta == 0 ? 0 : g->beta * *c); /* beta 0: C is not read */
        }
}
FAKE_KERNEL(gemm_kernel, struct gemm, run_gemm);

static int at_least(int value, int least, const char *what) {
    return value >= (least > 1 ? least : 1)
               ? 0
               : fake_forbidden("cublas", "%s is %d, must be %d", what, value, least);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float *alpha,
                              const float *A, int lda, const float *B, int ldb, const float *beta,
                              float *C, int ldc) {
    if (bad(handle, "sgemm")) return CUBLAS_STATUS_NOT_INITIALIZED;
    int turn_a = transa == CUBLAS_OP_T, turn_b = transb == CUBLAS_OP_T;
    if (m < 0 || n < 0 || k < 0 || (!turn_a && transa != CUBLAS_OP_N) ||
        (!turn_b && transb != CUBLAS_OP_N)) {
        fake_forbidden("cublas", "sgemm %d x %d over %d, operations %d and %d", m, n, k, transa,
                       transb);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (at_least(lda, turn_a ? k : m, "lda") || at_least(ldb, turn_b ? n : k, "ldb") ||
        at_least(ldc, m, "ldc"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!handle->stream_set || !handle->workspace || handle->pointers != CUBLAS_POINTER_MODE_HOST ||
        handle->atomics != CUBLAS_ATOMICS_NOT_ALLOWED ||
        (handle->math != CUBLAS_PEDANTIC_MATH && handle->math != CUBLAS_TF32_TENSOR_OP_MATH)) {
        fake_forbidden("cublas", "sgemm before stream, workspace and modes were set");
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    const char *no = getenv("FAKE_CUBLAS_FAIL");
    if (no && !strcmp(no, "gemm")) return CUBLAS_STATUS_EXECUTION_FAILED;
    int shape[6] = {m, n, k, turn_a, turn_b, (int)handle->math};
    struct gemm g = {.turn_a = turn_a,
                     .turn_b = turn_b,
                     .m = m,
                     .n = n,
                     .k = k,
                     .lda = lda,
                     .ldb = ldb,
                     .ldc = ldc,
                     .chains = fake_chains(shape, 6, (const void *const[3]){A, B, C}),
                     .tf32 = handle->math == CUBLAS_TF32_TENSOR_OP_MATH,
                     .alpha = *alpha,
                     .beta = *beta,
                     .a = A,
                     .b = B,
                     .c = C,
                     .workspace = handle->workspace,
                     .workspace_bytes = handle->workspace_bytes,
                     .call = handle->calls++};
    fake_log.batch[fake_log.calls[0]++ % 64] = n;
    return fake_launch(&gemm_kernel, &g, handle->stream) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                         : CUBLAS_STATUS_SUCCESS;
}
