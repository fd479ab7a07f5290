/* Cases of the recurrent layers' ops. The weights are small: the absolute values of a row, and of a
 * column, add up to at most 1/2. So no step enlarges the error of earlier steps, which the bound of
 * ops_judge.c relies on. */
#include "base/error.h"
#include "doctor/cases.h"

struct recurrent_shape {
    int samples, steps, width, kind, reverse, first, bias;
};

static struct tensor small_weights(struct op_cases *c, int rows, int width) {
    struct tensor w = case_random(c, 2, rows, width, 1, 1);
    for (size_t i = 0; w.data && i < tensor_count(&w); i++)
        tensor_f32(&w)[i] /= (float)(2 * rows);
    return w;
}

static struct op_args forward_case(struct op_cases *c, const struct recurrent_shape *s, int gates,
                                   int kept) {
    int n = s->samples, l = s->steps, h = s->width, lstm = s->kind == RECURRENT_LSTM;
    struct op_args a = {
        .in = {case_random(c, 3, n, l, gates * h, 1), small_weights(c, gates * h, h)},
        .out = {case_tensor(c, DTYPE_F32, 3, n, l, h, 1)},
        .p.recurrent = {(enum recurrent)s->kind, s->reverse}};
    if (s->bias) a.in[2] = case_random(c, 1, gates * h, 1, 1, 1);
    if (s->first) a.in[3] = case_random(c, 3, n, 1 + lstm, h, 1);
    if (kept > 1) a.out[1] = case_tensor(c, DTYPE_F32, 3, n, l, kept * h, 1);
    if (lstm) a.out[2] = case_tensor(c, DTYPE_F32, 2, n, h, 1, 1);
    return a;
}

/* The saved values come from the reference. */
static struct op_args backward_case(struct op_cases *c, const struct recurrent_shape *s,
                                    const struct op_args *forward, int gates) {
    int n = s->samples, l = s->steps, h = s->width, lstm = s->kind == RECURRENT_LSTM;
    struct op_args a = {.in = {case_random(c, 3, n, l, h, 1),
                               forward->out[s->kind <= RECURRENT_GRU ? 1 : 0], forward->in[1]},
                        .out = {case_tensor(c, DTYPE_F32, 3, n, l, gates * h, 1),
                                case_tensor(c, DTYPE_F32, 3, n, 1 + lstm, h, 1)},
                        .p = forward->p};
    if (lstm && s->first) a.in[3] = case_random(c, 2, n, h, 1, 1);
    if (s->kind == RECURRENT_GRU) a.out[2] = case_tensor(c, DTYPE_F32, 3, n, l, gates * h, 1);
    for (int i = 0; i < 3; i++)
        if (forward->in[i].rank && !forward->in[i].data) return a;
    if (a.in[1].data && forward->out[0].data) host_reference_kernels[OP_RECURRENT_FORWARD](forward);
    return a;
}

int recurrent_cases(struct op_cases *c, enum op op) {
    static const int gates[RECURRENT_COUNT] = {4, 3, 1, 1}, kept[RECURRENT_COUNT] = {6, 5, 1, 1};
    static const int shapes[][3] = {{1, 1, 1}, {5, 3, 7}, {13, 6, 33}, {2, 7, 64}, {0, 2, 4}};
    for (int i = 0; i < 2 * RECURRENT_COUNT * (int)(sizeof shapes / sizeof *shapes); i++) {
        const int *of = shapes[i / (2 * RECURRENT_COUNT)], kind = i % RECURRENT_COUNT;
        int other = i / RECURRENT_COUNT % 2;
        const struct recurrent_shape s = {of[0], of[1], of[2], kind, other, !other, other};
        struct op_args a = forward_case(c, &s, gates[kind], kept[kind]);
        if (op == OP_RECURRENT_BACKWARD) a = backward_case(c, &s, &a, gates[kind]);
        CHECK(case_run(c, op, &a, (size_t)(of[1] * (gates[kind] * of[2] + 16))));
    }
    return OK;
}
