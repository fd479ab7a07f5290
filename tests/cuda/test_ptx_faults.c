/* Faults planted into the PTX that nvcc makes of the kernels: a barrier that is missing, a vector
 * that is misaligned, a width that is wrong, an index that is off. The interpreter of PTX must
 * refuse each, or find it while it runs, or come to other bits than nvcc's own code. A mistake of
 * the compiler of such a kind would then be noticed too. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(ptx_faults, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include <unistd.h>

#include "device/cuda/kernels/loss.h"
#include "device/cuda/kernels/planes.h"
#include "tests/nn/layer.h"
#include "tests/stand_ins/ptx/library.h"
#include "tests/stand_ins/ptx/machine.h"

/* A launch of one kernel, over operands of its own. */
struct launched {
    struct heap heap;
    struct ptx_library library;
    const struct ptx_function *function;
    const void *param;
    uint32_t blocks, threads;
    int dependent; /* launched before the kernel in front of it has ended */
    struct op_args args;
    struct tensor want; /* what nvcc's own code makes of out[0] */
    union {
        struct product product;
        struct planes planes;
        struct row_op rows;
    } p;
};

/* What became of a changed kernel. */
enum outcome { SAME, OTHER_BITS, REFUSED, FAULT };
struct end {
    enum outcome outcome;
    enum ptx_fault_kind kind;
    char text[600];
};

static int operands_of(const struct op_args *a, struct ptx_range ranges[5]) {
    int count = 0;
    for (int i = 0; i < 5; i++) {
        const struct tensor *t = i < 3 ? &a->in[i] : &a->out[i - 3];
        uintptr_t from = (uintptr_t)t->data;
        if (from) ranges[count++] = (struct ptx_range){from, from + tensor_bytes(t)};
    }
    return count;
}

/* Runs the first kernel of `text`. */
static struct end run(struct launched *l, const char *text) {
    struct end end = {SAME, PTX_NO_FAULT, ""};
    struct ptx_error error = {""};
    struct ptx_fault fault = {PTX_NO_FAULT, ""};
    struct ptx_file file;
    struct ptx_range ranges[5];
    cr_assert(ptx_file_of(&file, "planted.ptx", strdup(text), strlen(text), &error), "%s",
              error.text);
    struct ptx_program *program = ptx_program_make(&file.functions[0], &error);
    memset(l->args.out[0].data, 0x7f, tensor_bytes(&l->args.out[0]));
    if (program) {
        const struct ptx_grid grid = {program,
                                      l->param,
                                      {l->blocks, 1, 1},
                                      {l->threads, 1, 1},
                                      ranges,
                                      operands_of(&l->args, ranges),
                                      l->dependent};
        struct ptx_machine *m = ptx_machine_new(&grid);
        for (uint32_t block = 0; block < l->blocks && !fault.kind; block++)
            ptx_run_block(m, (const uint32_t[3]){block, 0, 0}, &fault);
        ptx_machine_free(m);
    }
    end.kind = fault.kind;
    end.outcome = !program                                                ? REFUSED
                  : fault.kind                                            ? FAULT
                  : l->want.data && !same_bits(&l->args.out[0], &l->want) ? OTHER_BITS
                                                                          : SAME;
    snprintf(end.text, sizeof end.text, "%s%s", error.text, fault.text);
    ptx_program_free(program);
    ptx_file_close(&file);
    return end;
}

/* The kernel's text, with the n-th `what` replaced; NULL: there are no more. To be freed. */
static char *planted(const struct launched *l, const char *what, const char *with, int n) {
    const struct ptx_reader *body = &l->function->body;
    const char *from = l->function->name.at - 7 /* ".entry " */, *at = body->at - 1;
    for (int i = -1; i < n; i++) {
        at = memmem(at + 1, (size_t)(body->end - at - 1), what, strlen(what));
        if (!at) return NULL;
    }
    char *text = malloc((size_t)(body->end - from) + strlen(with) + 1);
    cr_assert_not_null(text);
    sprintf(text, "%.*s%s%.*s", (int)(at - from), from, with,
            (int)(body->end - at - (long)strlen(what)), at + strlen(what));
    return text;
}

/* ---- three launches ---- */

static void find_kernel(struct launched *l, const char *name) {
    struct ptx_error error = {""};
    if (access(PTX_FOLDER, R_OK)) cr_skip_test("no nvcc here: there is no PTX");
    cr_assert(ptx_library_open(&l->library, PTX_FOLDER, &error), "%s", error.text);
    l->function = ptx_library_find(&l->library, name);
    cr_assert_not_null(l->function, "no kernel %s", name);
    char *text = planted(l, "ret;", "ret;", 0);
    struct end end = run(l, text);
    cr_assert_eq(end.outcome, SAME, "%s as it is: %s", name, end.text);
    l->want = tensor_copy(&l->heap, &l->args.out[0]);
    free(text);
}

static void conv(struct launched *l, const int shape[8], enum tile tile) {
    enum product_kind kind;
    *l = (struct launched){.param = &l->p};
    struct layer layer = conv_layer(&l->heap, shape);
    struct product *p = &l->p.product;
    l->args = launch_of(&l->heap, &layer, FORWARD);
    cr_assert(product_of(OP_CONV2D_FORWARD, &l->args, p, &kind) && kind == PRODUCT_CONV_FORWARD);
    product_grid(p, kind, tile, NULL, 0);
    l->blocks = p->row_tiles * p->col_tiles;
    l->threads = (uint32_t)tile_threads(tile);
}

static const int shape[8] = {3, 5, 9, 11, 20, 3, 1, 1};

static void conv_by_planes(struct launched *l) {
    struct planes q;
    conv(l, (const int[8]){1, 34, 13, 13, 34, 5, 1, 0}, TILE_LARGE);
    cr_assert(planes_of(&l->p.product, PRODUCT_CONV_FORWARD, &q));
    l->p.planes = q;
    l->blocks = planes_blocks(&q);
    l->threads = planes_threads(&q);
    find_kernel(l, "product_planes<0,5>");
}

static void softmax(struct launched *l) {
    *l = (struct launched){.param = &l->p};
    l->args.in[0] = tensor_random(&l->heap, 1, 2, 9, 37, 1, 1);
    l->args.out[0] = tensor_like(&l->heap, &l->args.in[0]);
    l->p.rows = row_op_of(OP_SOFTMAX_FORWARD, &l->args);
    l->blocks = 3;
    l->threads = ROW_THREADS;
    find_kernel(l, "softmax_forward");
}

static void done(struct launched *l) {
    ptx_library_close(&l->library);
    heap_free(&l->heap);
}

/* ---- the faults ---- */

/* How the changes of a kernel ended. */
struct ends {
    int all, of_kind[PTX_FAULT_OTHER + 1], of[FAULT + 1];
};

static void count_end(struct launched *l, const char *text, struct ends *ends) {
    struct end end = run(l, text);
    ends->all++;
    ends->of[end.outcome]++;
    if (end.outcome == FAULT) ends->of_kind[end.kind]++;
}

/* Replaces each `what` in turn. */
static struct ends plant(struct launched *l, const char *what, const char *with) {
    struct ends ends = {.all = 0};
    for (char *text; (text = planted(l, what, with, ends.all)); free(text))
        count_end(l, text, &ends);
    cr_assert_gt(ends.all, 0, "no '%s' in the kernel", what);
    return ends;
}

/* Moves the address of each `what` in turn by `bytes`. */
static struct ends plant_offset(struct launched *l, const char *what, int bytes) {
    struct ends ends = {.all = 0};
    char *text, *at, with[100], address[100];
    while ((text = planted(l, what, what, ends.all))) {
        const char *found = l->function->body.at;
        for (int i = -1; i < ends.all; i++)
            found = strstr(found + 1, what);
        const char *open = strchr(found, '['), *plus = strpbrk(open, "+]"),
                   *close = strchr(open, ']');
        snprintf(address, sizeof address, "%.*s]", (int)(close - open), open);
        snprintf(with, sizeof with, "%.*s+%d]", (int)(plus - open), open,
                 (*plus == '+' ? atoi(plus + 1) : 0) + bytes);
        at = strstr(text + (found - l->function->name.at) + 7, address);
        cr_assert(at && strlen(text) > strlen(address));
        size_t before = (size_t)(at - text);
        char *changed = malloc(strlen(text) + sizeof with);
        sprintf(changed, "%.*s%s%s", (int)before, text, with, at + strlen(address));
        count_end(l, changed, &ends);
        free(changed);
        free(text);
    }
    cr_assert_gt(ends.all, 0, "no '%s' in the kernel", what);
    return ends;
}

static const char BARRIER[] = "bar.sync \t0;";

/* Behind the last phase of a kernel nothing is left to be ordered. */
Test(ptx_faults, a_missing_barrier_is_a_race, .timeout = 60) {
    struct launched l;
    for (int kernel = 0; kernel < 4; kernel++) {
        if (kernel < 2) {
            conv(&l, (const int[8]){2, 20, 9, 11, 20, 3, 1, 1}, kernel ? TILE_SMALL : TILE_LARGE);
            find_kernel(&l, kernel ? "product<0,2>" : "product<0,0>");
        } else if (kernel == 2) {
            conv_by_planes(&l);
        } else {
            softmax(&l);
        }
        struct ends ends = plant(&l, BARRIER, "");
        cr_expect(ends.all >= 4 && ends.of_kind[PTX_FAULT_RACE] == ends.all - 1,
                  "kernel %d: %d of %d missing barriers are races", kernel,
                  ends.of_kind[PTX_FAULT_RACE], ends.all);
        done(&l);
    }
}

Test(ptx_faults, copies_that_are_not_waited_for_are_a_race, .timeout = 60) {
    struct launched l;
    conv_by_planes(&l);
    struct ends ends = plant(&l, "cp.async.wait_all;", "");
    cr_expect_eq(ends.of_kind[PTX_FAULT_RACE], ends.all);
    done(&l);
}

Test(ptx_faults, a_barrier_for_some_threads_is_found, .timeout = 60) {
    struct launched l;
    softmax(&l);
    struct ends ends =
        plant(&l, BARRIER, "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; @%p1 bar.sync 0;");
    cr_expect(ends.of[FAULT] == ends.all && ends.of_kind[PTX_FAULT_BARRIER] > 0,
              "%d of %d, %d as barriers", ends.of[FAULT], ends.all,
              ends.of_kind[PTX_FAULT_BARRIER]);
    done(&l);
}

/* A kernel that was started early waits once, before everything else. */
Test(ptx_faults, a_start_without_the_wait_for_the_kernel_in_front_is_found, .timeout = 60) {
    struct launched l;
    softmax(&l);
    for (int early = 0; early < 2; early++) {
        l.dependent = early;
        struct ends whole = plant(&l, "griddepcontrol.wait;", "griddepcontrol.wait;"),
                    missing = plant(&l, "griddepcontrol.wait;", "");
        cr_expect(whole.all == 1 && whole.of[SAME] == 1, "%d waits", whole.all);
        cr_expect_eq(early ? missing.of_kind[PTX_FAULT_RACE] : missing.of[SAME], 1);
    }
    done(&l);
}

Test(ptx_faults, a_misaligned_vector_is_found, .timeout = 60) {
    struct launched l;
    conv(&l, shape, TILE_LARGE);
    find_kernel(&l, "product<0,0>");
    struct ends ends = plant_offset(&l, "ld.shared.v4.f32", 4);
    cr_expect(ends.all > 20 && ends.of_kind[PTX_FAULT_ALIGNMENT] == ends.all, "%d of %d",
              ends.of_kind[PTX_FAULT_ALIGNMENT], ends.all);
    done(&l);
}

/* A form that does not fit its registers is refused; one that does gives other bits where it has a
 * part in the result. */
Test(ptx_faults, a_wrong_width_is_found, .timeout = 60) {
    struct launched l;
    conv(&l, shape, TILE_SMALL);
    find_kernel(&l, "product<0,2>");
    static const struct {
        const char *what, *with;
        enum outcome outcome;
    } widths[] = {{"fma.rn.f32", "fma.rn.f64", REFUSED},
                  {"add.s64", "add.s32", REFUSED},
                  {"ld.shared.v2.f32", "ld.shared.v4.f32", REFUSED},
                  {"st.shared.f32", "st.shared.f64", REFUSED},
                  {"ld.shared.v2.u16", "ld.shared.v2.u8", OTHER_BITS},
                  {"ld.param.u64", "ld.param.u32", OTHER_BITS}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct ends ends = plant(&l, widths[i].what, widths[i].with);
        int found =
            ends.of[widths[i].outcome] + (widths[i].outcome == REFUSED ? 0 : ends.of[FAULT]);
        int most = widths[i].outcome == REFUSED ? ends.all : ends.all / 3;
        cr_expect(found >= most, "%s -> %s: %d of %d", widths[i].what, widths[i].with, found,
                  ends.all);
    }
    done(&l);
}

/* What is computed otherwise gives other bits, or goes outside of an operand. Not every change of a
 * kind does: some code has no part in this shape, and some comparisons are never equal. */
Test(ptx_faults, other_arithmetic_is_found, .timeout = 60) {
    struct launched l;
    static const struct {
        const char *what, *with;
    } changes[] = {{"cvt.rna.tf32.f32", "mov.b32"}, {"setp.lt.u32", "setp.le.u32"},
                   {"mul.hi.u32", "mul.lo.u32"},    {"st.shared.f32", "//"},
                   {"and.pred", "or.pred"},         {"add.s32", "sub.s32"}};
    conv(&l, shape, TILE_TF32);
    find_kernel(&l, "product<0,4>");
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct ends ends = plant(&l, changes[i].what, changes[i].with);
        int found = ends.all - ends.of[SAME];
        cr_expect(found * 3 > ends.all, "%s -> %s: %d of %d", changes[i].what, changes[i].with,
                  found, ends.all);
    }
    done(&l);
}
#endif
