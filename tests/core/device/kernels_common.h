/* Shared by the tests of device/host/kernels: tensors of their exact size, so that any access past
 * them is found; random numbers that are the same in every run; and the list of instruction sets.
 *
 * A tensor ends where an inaccessible page begins, so in every build a kernel that reads or writes
 * past its end crashes. Writes before its beginning are found when the tensor is freed.
 * AddressSanitizer, which checks the generic kernels and the references (mk/sanitizers.mk), also
 * finds reads before the beginning, because in its build the memory comes from malloc. */
#ifndef TESTS_DEVICE_KERNELS_COMMON_H
#define TESTS_DEVICE_KERNELS_COMMON_H

#include <sys/mman.h>

#include "device/op.h"
#include "tests/harness/harness.h"

enum { PAGE = 4096, BEFORE = 0xa5 };

/* Everything a test allocates, freed at once. */
struct heap {
    struct block {
        unsigned char *memory, *data; /* data: where the tensor begins, inside memory */
        size_t bytes;                 /* of memory, without the inaccessible page */
    } block[128];
    int count;
};

#if defined(__SANITIZE_ADDRESS__)

static inline struct block block_take(size_t bytes) {
    unsigned char *p = malloc(bytes ? bytes : 1);
    cr_assert_not_null(p, "out of memory");
    return (struct block){p, p, bytes};
}

static inline void block_free(struct block *b) {
    free(b->memory);
}

#else

static inline struct block block_take(size_t bytes) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    unsigned char *p =
        mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(p != MAP_FAILED && !mprotect(p + whole, PAGE, PROT_NONE), "out of memory");
    memset(p, BEFORE, whole - bytes);
    return (struct block){p, p + whole - bytes, whole};
}

static inline void block_free(struct block *b) {
    for (unsigned char *p = b->memory; p < b->data; p++)
        cr_assert_eq(*p, BEFORE, "a kernel wrote %td bytes before a tensor", b->data - p);
    munmap(b->memory, b->bytes + PAGE);
}

#endif

static inline void heap_free(struct heap *heap) {
    while (heap->count)
        block_free(&heap->block[--heap->count]);
}

/* Memory with all bits set, which is NaN wherever a kernel writes nothing. It is aligned to its
 * elements, not to vectors: kernels may not need more. */
static inline void *heap_take(struct heap *heap, size_t bytes) {
    cr_assert(heap->count < 128, "too many tensors in one test");
    struct block *b = &heap->block[heap->count++];
    *b = block_take(bytes);
    memset(b->data, 0xff, bytes);
    return b->data;
}

static inline struct tensor heap_tensor(struct heap *heap, enum dtype dtype, int rank, int d0,
                                        int d1, int d2, int d3) {
    int dims[4] = {d0, d1, d2, d3};
    struct tensor t = tensor_plain(NULL, dtype, rank, dims);
    t.data = heap_take(heap, tensor_bytes(&t));
    return t;
}

/* A linear congruential generator; every caller has its own seed. */
static inline float test_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*seed >> 32) * 0x1p-31f;
}

/* Uniform in [-1, 1). */
static inline struct tensor tensor_random(struct heap *heap, uint64_t seed, int rank, int d0,
                                          int d1, int d2, int d3) {
    struct tensor t = heap_tensor(heap, DTYPE_F32, rank, d0, d1, d2, d3);
    seed = seed * 7919 + 17;
    for (size_t i = 0; i < tensor_count(&t); i++)
        tensor_f32(&t)[i] = test_random(&seed);
    return t;
}

static inline struct tensor tensor_like(struct heap *heap, const struct tensor *t) {
    struct tensor same = *t;
    same.data = heap_take(heap, tensor_bytes(t));
    return same;
}

static inline struct tensor tensor_copy(struct heap *heap, const struct tensor *t) {
    struct tensor copy = tensor_like(heap, t);
    memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

static inline struct tensor n16_new(struct heap *heap, const struct tensor *plain) {
    struct tensor t = tensor_in_n16(plain, NULL);
    t.data = heap_take(heap, tensor_bytes(&t));
    return t;
}

/* Element i of sample n of a tensor in N16. */
static inline float *n16_at(const struct tensor *t, size_t n, size_t i) {
    size_t lanes = (size_t)t->lanes;
    return tensor_f32(t) + (n / lanes * tensor_sample_count(t) + i) * lanes + n % lanes;
}

/* A copy of `plain` that lies as t, in N16, with `pad` in the lanes past the last sample: finite
 * junk in activations, 0 in gradients. */
static inline struct tensor n16_as(struct heap *heap, struct tensor t, const struct tensor *plain,
                                   float pad) {
    t.data = heap_take(heap, tensor_bytes(&t));
    size_t count = tensor_sample_count(plain), samples = (size_t)plain->dims[0];
    for (size_t n = 0; n < (size_t)(t.groups * t.lanes); n++)
        for (size_t i = 0; i < count; i++)
            *n16_at(&t, n, i) = n < samples ? tensor_f32(plain)[n * count + i] : pad;
    return t;
}

static inline struct tensor n16_of(struct heap *heap, const struct tensor *plain, float pad) {
    return n16_as(heap, tensor_in_n16(plain, NULL), plain, pad);
}

static inline struct tensor plain_of(struct heap *heap, const struct tensor *n16) {
    struct tensor t = tensor_plain(NULL, n16->dtype, n16->rank, n16->dims);
    t.data = heap_take(heap, tensor_bytes(&t));
    size_t count = tensor_sample_count(&t);
    for (size_t n = 0; n < (size_t)t.dims[0]; n++)
        for (size_t i = 0; i < count; i++)
            tensor_f32(&t)[n * count + i] = *n16_at(n16, n, i);
    return t;
}

static inline int pads_are_zero(const struct tensor *n16) {
    for (size_t n = (size_t)n16->dims[0]; n < (size_t)(n16->groups * n16->lanes); n++)
        for (size_t i = 0; i < tensor_sample_count(n16); i++)
            if (*n16_at(n16, n, i) != 0) return 0;
    return 1;
}

static inline int same_bits(const struct tensor *a, const struct tensor *b) {
    return memcmp(a->data, b->data, tensor_bytes(a)) == 0;
}

/* All instruction sets; kernel_of gives NULL for those that this processor lacks. launch() uses the
 * last one that it has. */
static const char *const all_isas[] = {"generic", "avx2", "avx512"};
enum { ISAS = 3 };

static inline host_kernel *kernel_of(enum op op, const char *isa) {
    if (!host_fast_kernel(OP_ADD_FORWARD, isa)) return NULL;
    host_kernel *kernel = host_fast_kernel(op, isa);
    return kernel ? kernel : host_reference_kernels[op];
}

#endif
