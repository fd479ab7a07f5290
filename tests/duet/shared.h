/* Shared by the tests of the public library, which include duet.h and no internal header. */
#ifndef TESTS_API_SHARED_H
#define TESTS_API_SHARED_H

#include <string.h>

#include "duet.h"
#include "tests/harness/harness.h"

#define MUST(call) cr_assert_eq((call), DUET_OK, "%s", duet_error())
#define MUST_SAY(word) \
    cr_assert_not_null(strstr(duet_error(), (word)), "'%s' lacks '%s'", duet_error(), (word))
#define MUST_FAIL(call, want, word)                                                       \
    do {                                                                                  \
        cr_assert_eq((call), (want), "%s", #call);                                        \
        cr_assert(strstr(duet_error(), (word)), "'%s' lacks '%s'", duet_error(), (word)); \
    } while (0)

/* In a rank, which is no test and must clean up: a call that fails, or what does not hold, goes to
 * `out` with `code`, and the rank ends with it. */
#define TRY(call)           \
    do {                    \
        code = (call);      \
        if (code) goto out; \
    } while (0)
#define HOLDS(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "rank %d: not so: %s: %s\n", rank, #condition, duet_error()); \
            code = DUET_CHECK;                                                            \
            goto out;                                                                     \
        }                                                                                 \
    } while (0)

#ifdef CUDA_EMULATION
static const char *const api_kinds[] = {"cpu", "cpu-late", "cuda"};
#else
static const char *const api_kinds[] = {"cpu", "cpu-late"};
#endif
enum { API_KINDS = sizeof api_kinds / sizeof *api_kinds, API_MEMORY = 8 << 20 };

static inline uint64_t api_memory(const char *kind) {
    return strcmp(kind, "cuda") ? API_MEMORY : 96 << 20; /* the workspace of a GPU is 64 MiB */
}

/* The number i of a sequence of small integers, whose sums are exact in any order. */
static inline float api_number(size_t i) {
    return (float)((int)(i * 7 % 5) - 2);
}

/* A float tensor of these numbers; `host` receives them too. */
static inline duet_tensor *api_tensor(duet_device *device, int rank, const int *shape,
                                      float *host) {
    duet_tensor *tensor;
    size_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    for (size_t i = 0; i < count; i++)
        host[i] = api_number(i);
    MUST(duet_tensor_create(&tensor, device, DUET_F32, rank, shape, host));
    return tensor;
}

#endif
