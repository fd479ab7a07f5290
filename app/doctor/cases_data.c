/* The data of cases: host memory that lives as long as the case, random numbers, and the values at
 * which kernels go wrong. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "doctor/cases.h"

static void *take(struct op_cases *c, size_t bytes) {
    void *p = NULL;
    if (c->heap_count == MOST_HOST_TENSORS || posix_memalign(&p, 64, bytes ? bytes : 1))
        return NULL;
    memset(p, 0xff, bytes); /* NaN */
    return c->heap[c->heap_count++] = p;
}

void case_forget(struct op_cases *c) {
    while (c->heap_count)
        free(c->heap[--c->heap_count]);
}

struct tensor case_tensor(struct op_cases *c, enum dtype dtype, int rank, int d0, int d1, int d2,
                          int d3) {
    struct tensor t = tensor_plain(NULL, dtype, rank, (int[4]){d0, d1, d2, d3});
    t.data = take(c, tensor_bytes(&t));
    return t;
}

struct tensor case_random(struct op_cases *c, int rank, int d0, int d1, int d2, int d3) {
    struct tensor t = case_tensor(c, DTYPE_F32, rank, d0, d1, d2, d3);
    if (t.data) rng_uniform(&c->rng, tensor_f32(&t), tensor_count(&t), -1, 1);
    return t;
}

struct tensor case_whole(struct op_cases *c, int rank, int d0, int d1, int d2, int d3) {
    struct tensor t = case_tensor(c, DTYPE_F32, rank, d0, d1, d2, d3);
    for (size_t i = 0; t.data && i < tensor_count(&t); i++)
        tensor_f32(&t)[i] = (float)(rng_u32(&c->rng) % 9) - 4;
    return t;
}

struct tensor case_like(struct op_cases *c, const struct tensor *t) {
    struct tensor like = *t;
    like.data = take(c, tensor_bytes(t));
    return like;
}

struct tensor case_copy(struct op_cases *c, const struct tensor *t) {
    struct tensor copy = *t;
    if (!t->data) return copy;
    copy.data = take(c, tensor_bytes(t));
    if (copy.data) memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

void put_special_values(struct tensor *t) {
    static const float special[] = {0.0f, -0.0f,     INFINITY,   -INFINITY,
                                    NAN,  0x1p-149f, -0x1p-130f, 0x1.fffffep127f};
    enum { SPECIAL = sizeof special / sizeof *special, START = 5, DISTANCE = 13 };
    size_t count = tensor_count(t);
    for (size_t i = 0; t->data && i < 2 * SPECIAL && DISTANCE * i + START < count; i++)
        tensor_f32(t)[DISTANCE * i + START] = special[i % SPECIAL];
}

int case_run(struct op_cases *c, enum op op, const struct op_args *args, size_t terms) {
    for (int i = 0; i < 5; i++) {
        const struct tensor *t = i < 3 ? &args->in[i] : &args->out[i - 3];
        if (t->rank && !t->data)
            return fail(ERR_MEMORY, "doctor: no host memory for a case: free some memory");
    }
    CHECK(c->run(c, op, args, terms));
    case_forget(c);
    return OK;
}
