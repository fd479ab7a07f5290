/* Every case of doctor/cases.h but products (test_index_product.c, test_index_algebra.c) by the
 * text of the CUDA kernels, run on the host: on grids of every shape, with operands at aligned and
 * at odd addresses, in place where the op allows it. Each must be within the reference's bound
 * (doctor/ops_judge.c). */
#include "base/error.h"
#include "device/op_table.h"
#include "doctor/ops.h"
#include "tests/cuda/index.h"

Test(cuda_index, division_by_multiplication, .timeout = 60) {
    static const uint32_t edges[] = {
        1,     2,     3,          4,          5,          7,          9,
        25,    28,    169,        676,        1000,       4607,       65535,
        65536, 65537, 0x3fffffff, 0x40000000, 0x40000001, 0x7ffffffe, 0x7fffffff};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        struct divider by = divider_of(edges[i]);
        for (int j = 0; j < 40000; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint32_t
                x = (uint32_t)(seed >> 33),
                rest; /* every second x lies around a multiple, where a wrong rounding would show */
            if (j % 2) x = x / edges[i] * edges[i] - (uint32_t)(j % 4 == 1);
            x &= 0x7fffffff;
            cr_assert_eq(divide(by, x, &rest), x / edges[i], "%u / %u", x, edges[i]);
            cr_assert_eq(rest, x % edges[i], "%u %% %u", x, edges[i]);
        }
    }
}

/* How the operands lie. EXACT: what is accessed past an end is found; ALIGNED: by 16 bytes; ODD: so
 * is all but out[0], which lies 4 bytes further. */
enum lie { EXACT, ALIGNED, ODD, LIES };

static struct tensor placed(struct heap *heap, const struct tensor *t, enum lie lie, int is_first) {
    struct tensor copy = *t;
    if (!t->data || lie == EXACT) return t->data ? tensor_copy(heap, t) : copy;
    uintptr_t at = (uintptr_t)heap_take(heap, tensor_bytes(t) + 32);
    at = (at + 15) / 16 * 16 + (lie == ODD && is_first ? 4 : 0);
    copy.data = (void *)at;
    memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

struct turn {
    enum op op;
    enum lie lie;
    int in_place; /* the input that out[0] overwrites, -1 for none */
    int grid;
    size_t terms;
    const struct op_args *args;
    const struct tensor *want;
};

static void try_turn(const struct turn *t) {
    struct heap heap = {0};
    struct tally tally = {0};
    struct op_args a = *t->args;
    for (int i = 0; i < INPUTS; i++)
        a.in[i] = placed(&heap, &t->args->in[i], t->lie, 0);
    for (int i = 0; i < OUTPUTS; i++)
        a.out[i] = placed(&heap, &t->args->out[i], t->lie, i == 0);
    if (t->in_place >= 0) a.out[0] = a.in[t->in_place];
    cr_assert_eq(op_check(t->op, &a), OK, "%s", error_message());
    run_text(t->op, &a, odd_grids[t->grid]);
    for (int i = 0; i < OUTPUTS; i++) {
        struct comparison c = {.got = &a.out[i], .want = &t->want[i], .terms = t->terms};
        if (a.out[i].data) judge_output(&tally, t->op, i, &c);
    }
    cr_assert(!tally.wrong, "%s, grid %d, operands %d, in place %d: %s", op_name(t->op), t->grid,
              (int)t->lie, t->in_place, tally.first);
    heap_free(&heap);
}

/* Numbers of 8 bytes lie at their multiples wherever they are used. */
static int may_be_odd(enum op op) {
    return op_table[op].out[0].type[0] == 'f' || op_table[op].out[0].type[0] == 'w';
}

static int on_every_grid(struct op_cases *cases, enum op op, const struct op_args *args,
                         size_t terms) {
    struct tensor want[OUTPUTS], size[OUTPUTS];
    struct turn t = {.op = op, .terms = terms, .args = args, .want = want};
    cr_assert_eq(reference_outputs(cases, op, args, want, size), OK, "%s", error_message());
    for (t.lie = EXACT; t.lie < (may_be_odd(op) ? LIES : ODD); t.lie++)
        for (t.grid = 0; t.grid < ODD_GRIDS; t.grid++)
            for (t.in_place = -1; t.in_place < INPUTS; t.in_place++)
                if (t.in_place < 0 || operand_may_be_in_place(&op_table[op].in[t.in_place]))
                    try_turn(&t);
    return OK;
}

Test(cuda_index, every_case_on_every_grid, .timeout = 240) {
    for (enum op op = 0; op < OP_COUNT; op++) {
        struct op_cases cases = {.run = on_every_grid, .seed = 99, .quick = test_short()};
        if (op == OP_TO_N16 || op == OP_TO_PLAIN || op_tolerance(op, 0)->judge == JUDGE_PRODUCT)
            continue;
        rng_seed(&cases.rng, (uint64_t)op);
        cr_assert_eq(op_cases(&cases, op), OK, "%s", error_message());
        case_forget(&cases);
    }
}
