/* Runs every case of doctor/cases.h with the host's fast kernels: in both layouts, in N16 with
 * groups of at least 1, 2, 4, 8 and 16 lanes, in place if the op allows it, on every instruction
 * set. Each must be within the bound of doctor/ops_judge.c and have the bits of the others.
 * test_kernels_*.c state what each op computes. */
#include "base/error.h"
#include "device/op_table.h"
#include "doctor/ops.h"
#include "tests/core/device/kernels_common.h"

/* A case as it is tried: `in_place` is the input that out[0] overwrites, -1 for none. */
struct turn {
    enum op op;
    int n16, in_place, lanes; /* lanes: of a group, at least */
    size_t terms;
    const struct op_args *args;
    const struct tensor *want, *size;
    char name[80];
};

/* The content of lanes past the last sample: 0 in gradients, junk in the rest. */
static float pad_of(const struct operand *operand) {
    return operand->name[0] == 'd' ? 0 : 7;
}

static struct tensor laid(struct heap *heap, const struct turn *t, const struct operand *operand,
                          const struct tensor *plain) {
    if (!plain->data) return *plain;
    if (!t->n16 || !operand_may_be_n16(operand)) return tensor_copy(heap, plain);
    struct tensor n16 = tensor_in_n16(plain, NULL);
    if (n16.lanes < t->lanes) n16.lanes = t->lanes;
    n16.groups = (plain->dims[0] + n16.lanes - 1) / n16.lanes;
    return n16_as(heap, n16, plain, pad_of(operand));
}

static struct op_args args_of(struct heap *heap, const struct turn *t) {
    const struct op_row *row = &op_table[t->op];
    struct op_args a = *t->args;
    for (int i = 0; i < INPUTS; i++)
        a.in[i] = laid(heap, t, &row->in[i], &t->args->in[i]);
    for (int i = 0; i < OUTPUTS; i++)
        a.out[i] = laid(heap, t, &row->out[i], &t->args->out[i]);
    if (t->in_place >= 0) a.out[0] = a.in[t->in_place];
    cr_assert_eq(op_check(t->op, &a), OK, "%s", error_message());
    size_t scratch = host_scratch_bytes(t->op, &a);
    if (scratch) a.scratch = heap_take(heap, scratch);
    return a;
}

static void judge(struct heap *heap, const struct turn *t, const struct op_args *a) {
    struct tally tally = {0};
    for (int i = 0; i < OUTPUTS; i++) {
        if (!a->out[i].data) continue;
        int n16 = a->out[i].layout == LAYOUT_N16;
        struct tensor got = n16 ? plain_of(heap, &a->out[i]) : a->out[i];
        struct comparison c = {.got = &got,
                               .want = &t->want[i],
                               .size = t->size[i].data ? &t->size[i] : NULL,
                               .terms = t->terms};
        judge_output(&tally, t->op, i, &c);
        if (n16 && strcmp(op_table[t->op].out[i].name, "dx") == 0)
            cr_assert(pads_are_zero(&a->out[i]), "%s: a lane past the last sample", t->name);
    }
    cr_assert(!tally.wrong, "%s: %s", t->name, tally.first);
}

/* Lanes past the last sample may hold anything, except in gradients. */
static int equal_bits(struct heap *heap, const struct tensor *a, const struct tensor *b) {
    if (!a->data || a->layout == LAYOUT_PLAIN) return !a->data || same_bits(a, b);
    struct tensor x = plain_of(heap, a), y = plain_of(heap, b);
    return same_bits(&x, &y);
}

static void on_every_isa(struct turn *t) {
    struct op_args first = {.step = NULL};
    struct heap heap = {0};
    for (int i = 0; i < 5 * ISAS; i++) {
        host_kernel *kernel = kernel_of(t->op, all_isas[i / 5]);
        t->lanes = 1 << i % 5;
        if (!kernel || (t->n16 ? t->lanes < 4 && t->args->in[0].dims[0] > t->lanes : t->lanes > 1))
            continue;
        snprintf(t->name, sizeof t->name, "%s%s of %d%s, %s", op_name(t->op),
                 t->n16 ? ", N16" : ", plain", t->lanes, t->in_place >= 0 ? ", in place" : "",
                 all_isas[i / 5]);
        struct op_args a = args_of(&heap, t);
        kernel(&a);
        judge(&heap, t, &a);
        if (!first.out[0].data) first = a;
        for (int k = 0; k < OUTPUTS; k++)
            cr_assert(equal_bits(&heap, &a.out[k], &first.out[k]), "%s: other bits than %s",
                      t->name, all_isas[0]);
    }
    heap_free(&heap);
}

static int takes_n16(enum op op, const struct op_args *args) {
    int takes = 0;
    for (int i = 0; i < INPUTS; i++)
        takes |= operand_may_be_n16(&op_table[op].in[i]);
    for (int i = 0; i < OUTPUTS; i++)
        takes |= operand_may_be_n16(&op_table[op].out[i]);
    return takes && !op_is_plain(op, args);
}

static int try_case(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms) {
    struct tensor want[OUTPUTS], size[OUTPUTS] = {{.data = NULL}};
    struct turn t = {
        .op = op, .terms = terms, .args = args, .want = want, .size = size, .in_place = -1};
    cr_assert_eq(reference_outputs(cases, op, args, want, size), OK, "%s", error_message());
    /* convolutions of plain tensors are left to the reference, and layouts change only */
    for (t.n16 = op <= OP_CONV2D_BACKWARD_WEIGHT; t.n16 <= takes_n16(op, args); t.n16++)
        for (t.in_place = -1; t.in_place < INPUTS; t.in_place++)
            if (t.in_place < 0 || operand_may_be_in_place(&op_table[op].in[t.in_place]))
                on_every_isa(&t);
    ++*(int *)cases->user;
    return OK;
}

static void try_ops(enum op from, enum op to) {
    for (enum op op = from; op < to; op++) {
        int tried = 0;
        struct op_cases cases = {.run = try_case,
                                 .user = &tried,
                                 .seed = 3,
                                 .layout = LAYOUT_N16,
                                 .quick = test_short()};
        rng_seed(&cases.rng, (uint64_t)op);
        cr_assert_eq(op_cases(&cases, op), OK, "%s", error_message());
        cr_expect(tried, "%s has no case", op_name(op));
        case_forget(&cases);
    }
}

Test(kernels, products, .timeout = 240) {
    try_ops(0, OP_ADD_FORWARD);
}

Test(kernels, all_other_ops, .timeout = 240) {
    try_ops(OP_ADD_FORWARD, OP_COUNT);
}
