/* Makes one test case of an op: its memory, data and operands. See cases.h. */
#include "doctor/cases.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/op_table.h"

/* ---- memory and data ---- */

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

struct tensor case_like(struct op_cases *c, const struct tensor *t) {
    struct tensor like = *t;
    like.data = take(c, tensor_bytes(t));
    return like;
}

struct tensor case_copy(struct op_cases *c, const struct tensor *t) {
    if (!t->data) return *t;
    struct tensor copy = case_like(c, t);
    if (copy.data) memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

/* The values at which kernels go wrong, each twice among those of t, 13 elements apart. */
void put_special_values(struct tensor *t) {
    static const float special[] = {0.0f, -0.0f,     INFINITY,   -INFINITY,
                                    NAN,  0x1p-149f, -0x1p-130f, 0x1.fffffep127f};
    enum { SPECIAL = sizeof special / sizeof *special, START = 5, DISTANCE = 13 };
    size_t count = tensor_count(t);
    for (size_t i = 0; i < 2 * SPECIAL && DISTANCE * i + START < count; i++)
        tensor_f32(t)[DISTANCE * i + START] = special[i % SPECIAL];
}

int case_index(struct op_case *c, int count) {
    return (int)(rng_u32(&c->all->rng) % (uint32_t)count);
}

static void put_data(struct op_cases *c, struct tensor *t, char data) {
    if (t->dtype != DTYPE_F32 || data == '-') return;
    if (tolower(data) == 'r') rng_uniform(&c->rng, tensor_f32(t), tensor_count(t), -1, 1);
    for (size_t i = 0; tolower(data) == 'w' && i < tensor_count(t); i++)
        tensor_f32(t)[i] = (float)(rng_u32(&c->rng) % 9) - 4;
    if (isupper((unsigned char)data)) put_special_values(t);
}

int case_tensor(struct op_case *c, enum dtype dtype, const char *shape, char data,
                struct tensor *t) {
    int dims[MAX_RANK], rank = 0;
    for (; *shape && *shape != '|'; shape++)
        if (*shape == '.')
            for (const char *letter = c->list->rest; *letter; letter++)
                dims[rank++] = c->dim[(int)*letter];
        else
            dims[rank++] = isdigit((unsigned char)*shape) ? *shape - '0' : c->dim[(int)*shape];
    *t = tensor_plain(NULL, dtype, rank, dims);
    t->data = take(c->all, tensor_bytes(t));
    if (!t->data)
        return fail(ERR_MEMORY, "doctor: out of host memory for a case: free some memory");
    put_data(c->all, t, data);
    return OK;
}

/* ---- a case ---- */

static char data_of(const char *data, int i, char otherwise) {
    int last = data ? (int)strlen(data) - 1 : -1;
    return last < 0 ? otherwise : data[i < last ? i : last];
}

static int make_operands(struct op_case *c) {
    const struct op_row *row = &op_table[c->op];
    for (int i = 0; i < OP_INPUTS + OP_OUTPUTS; i++) {
        int output = i >= OP_INPUTS, k = output ? i - OP_INPUTS : i;
        const struct operand *o = output ? &row->out[k] : &row->in[k];
        if (!o->name || c->without >> i & 1) continue;
        CHECK(case_tensor(c, operand_type(o), op_shape(c->op, &c->a, output, k),
                          output ? data_of(c->list->out, k, '-') : data_of(c->data, k, 'r'),
                          output ? &c->a.out[k] : &c->a.in[k]));
    }
    return OK;
}

int case_make(struct op_case *c) {
    c->a = (struct op_args){.step = &c->step};
    c->without = 0;
    c->data = c->list->in;
    if (c->list->set) c->list->set(c);
    CHECK(make_operands(c));
    return c->list->fill ? c->list->fill(c) : OK;
}

int case_forward(const struct op_case *c, enum op forward, struct op_case *f) {
    *f = *c;
    f->op = forward;
    CHECK(case_make(f));
    host_reference_kernels[forward](&f->a);
    return OK;
}
