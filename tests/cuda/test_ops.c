/* Runs every case of doctor/cases.h with the GPU's kernels on the emulated runtime: with operands
 * at aligned and at odd addresses, in place if the op allows it, and with each operand at the end
 * of its memory, so that any access past it is found. Each result must be within the reference's
 * bound (doctor/ops_judge.c). */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(cuda_ops, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include "base/error.h"
#include "device/cuda/kernels/kernel.h"
#include "device/op_table.h"
#include "doctor/ops.h"
#include "tests/core/device/kernels_common.h"
#include "tests/core/device/shared.h"

/* Operands are checked here and not by the device, in whose memory they are not. */
static struct device *open_gpu(void) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *device;
    config.check_operands = 0;
    MUST(device_open(&device, &config));
    return device;
}

/* How the operands are aligned. EXACT: each ends at an inaccessible page; ALIGNED: by 16 bytes;
 * ODD: so is all but out[0], which begins 4 bytes further. */
enum alignment { EXACT, ALIGNED, ODD, ALIGNMENTS };

static struct tensor placed(struct heap *heap, const struct tensor *t, enum alignment alignment,
                            int is_first) {
    struct tensor copy = *t;
    if (!t->data || alignment == EXACT) return t->data ? tensor_copy(heap, t) : copy;
    uintptr_t at = (uintptr_t)heap_take(heap, tensor_bytes(t) + 32);
    at = (at + 15) / 16 * 16 + (alignment == ODD && is_first ? 4 : 0);
    copy.data = (void *)at;
    memcpy(copy.data, t->data, tensor_bytes(t));
    return copy;
}

struct turn {
    struct device *device;
    enum op op;
    enum alignment alignment;
    int in_place; /* the input that out[0] overwrites, -1 for none */
    size_t terms;
    const struct op_args *args;
    const struct tensor *want, *size;
};

static void try_turn(const struct turn *t) {
    struct heap heap = {0};
    struct tally tally = {0};
    struct op_args a = *t->args;
    for (int i = 0; i < INPUTS; i++)
        a.in[i] = placed(&heap, &t->args->in[i], t->alignment, 0);
    for (int i = 0; i < OUTPUTS; i++)
        a.out[i] = placed(&heap, &t->args->out[i], t->alignment, i == 0);
    if (t->in_place >= 0) a.out[0] = a.in[t->in_place];
    MUST(op_check(t->op, &a));
    MUST(launch(device_compute(t->device), t->op, &a));
    MUST(stream_sync(device_compute(t->device)));
    for (int i = 0; i < OUTPUTS; i++) {
        struct comparison c = {.got = &a.out[i],
                               .want = &t->want[i],
                               .size = t->size[i].data ? &t->size[i] : NULL,
                               .terms = t->terms};
        if (a.out[i].data) judge_output(&tally, t->op, i, &c);
    }
    cr_assert(!tally.wrong, "%s, operands %d, in place %d: %s", op_name(t->op), (int)t->alignment,
              t->in_place, tally.first);
    heap_free(&heap);
}

/* Numbers of 8 bytes begin at their multiples wherever they are used. */
static int may_be_odd(enum op op) {
    return op_table[op].out[0].type[0] == 'f' || op_table[op].out[0].type[0] == 'w';
}

static int in_every_way(struct op_cases *cases, enum op op, const struct op_args *args,
                        size_t terms) {
    struct tensor want[OUTPUTS], size[OUTPUTS] = {{.data = NULL}};
    struct turn t = {
        .device = cases->user, .op = op, .terms = terms, .args = args, .want = want, .size = size};
    MUST(reference_outputs(cases, op, args, want, size));
    for (t.alignment = EXACT; t.alignment < (may_be_odd(op) ? ALIGNMENTS : ODD); t.alignment++)
        for (t.in_place = -1; t.in_place < INPUTS; t.in_place++)
            if (t.in_place < 0 || operand_may_be_in_place(&op_table[op].in[t.in_place]))
                try_turn(&t);
    return OK;
}

Test(cuda_ops, every_case, .timeout = 600) {
    struct device *device = open_gpu();
    for (enum op op = 0; op < OP_COUNT; op++) {
        struct op_cases cases = {
            .run = in_every_way, .user = device, .seed = 99, .large = !test_short()};
        if (op == OP_TO_N16 || op == OP_TO_PLAIN) continue;
        rng_seed(&cases.rng, (uint64_t)op);
        MUST(op_cases(&cases, op));
        case_forget(&cases);
    }
    device_close(device);
}

/* Indices are divided by constants, as a product and a shift. */
Test(cuda_ops, division_by_multiplication, .timeout = 60) {
    static const uint32_t edges[] = {1,     2,     3,          4,          5,         7,    9,
                                     25,    28,    169,        676,        1000,      4607, 65535,
                                     65536, 65537, 0x3fffffff, 0x40000000, 0x7fffffff};
    uint64_t seed = 5;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        struct divider by = divider_of(edges[i]);
        for (int j = 0; j < 40000; j++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint32_t
                x = (uint32_t)(seed >> 33),
                rest; /* every second x is around a multiple, where a wrong rounding would show */
            if (j % 2) x = x / edges[i] * edges[i] - (uint32_t)(j % 4 == 1);
            x &= 0x7fffffff;
            cr_assert_eq(divide(by, x, &rest), x / edges[i], "%u / %u", x, edges[i]);
            cr_assert_eq(rest, x % edges[i], "%u %% %u", x, edges[i]);
        }
    }
}

/* ---- what is refused before a kernel is launched ---- */

static struct tensor made_up(uintptr_t number, enum layout layout, int n) {
    const int dims[4] = {n, 3, 8, 8};
    struct tensor t = tensor_plain((void *)(number << 40), DTYPE_F32, 4, dims);
    return layout == LAYOUT_N16 ? tensor_in_n16(&t, NULL) : t;
}

static struct tensor matrix(uintptr_t number, int rows, int columns) {
    return tensor_plain((void *)(number << 40), DTYPE_F32, columns ? 2 : 1,
                        (const int[]){rows, columns});
}

/* Kernels count elements in 31 bits, and the tiles of a product may pass its end by some. */
Test(cuda_ops, refused_by_name, .timeout = 30) {
    struct device *device = open_gpu();
    struct op_args n16 = {.in = {made_up(1, LAYOUT_N16, 20)}, .out = {made_up(2, LAYOUT_N16, 20)}},
                   large = {.in = {made_up(1, LAYOUT_PLAIN, 1 << 24)},
                            .out = {made_up(2, LAYOUT_PLAIN, 1 << 24)},
                            .p.pool = {{1, 1}, {1, 1}, 0, {0, 0}}},
                   linear = {
                       .in = {matrix(1, (1 << 19) - 1, 4096), matrix(2, 1, 4096), matrix(3, 1, 0)},
                       .out = {matrix(4, (1 << 19) - 1, 1)}}; /* x has 2^31 - 4096 */
    cr_expect_eq(launch(device_compute(device), OP_ACTIVATION_FORWARD, &n16), ERR_FAILED);
    MUST_SAY("plain tensors only");
    cr_expect_eq(launch(device_compute(device), OP_MAX_POOL_FORWARD, &large), ERR_FAILED);
    MUST_SAY("smaller batch");
    cr_expect_eq(launch(device_compute(device), OP_LINEAR_FORWARD, &linear), ERR_FAILED);
    MUST_SAY("linear forward: 2^31 elements or more");
    device_close(device);
}
#endif
