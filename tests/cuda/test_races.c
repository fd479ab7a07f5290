/* Runs kernels with cooperating threads under ThreadSanitizer, with a stack for each of the GPU's
 * threads: no value is read in the phase in which another thread writes it. The tool itself
 * (tests/stand_ins/gpu_of_threads.h) must find races that are planted here. tests/cuda/test_ops.c
 * tests what the kernels compute. */
#ifdef __SANITIZE_THREAD__
#include <sys/wait.h>

#include "base/error.h"
#include "doctor/cases.h"
#include "tests/cuda/races.h"

/* ---- the tool ---- */

enum { THREADS = 64 };

static void in_order(const void *param, void *shared, struct thread_index at) {
    int *cell = shared, *out = *(int *const *)param;
    BLOCK_PHASE(at) {
        cell[at.thread] = (int)(at.thread + at.block);
    }
    BLOCK_PHASE(at) {
        out[at.block * at.threads + at.thread] = cell[at.threads - 1 - at.thread];
    }
}

/* Reads the neighbour's value in the phase in which it is written: that of the thread before, so
 * that it has been written already. */
static void without_a_barrier(const void *param, void *shared, struct thread_index at) {
    int *cell = shared, *out = *(int *const *)param;
    BLOCK_PHASE(at) {
        cell[at.thread] = 1;
        out[at.block * at.threads + at.thread] = at.thread ? cell[at.thread - 1] : 0;
    }
}

/* The write of the next phase meets the reads of this one. */
static void without_the_second_barrier(const void *param, void *shared, struct thread_index at) {
    int *cell = shared, *out = *(int *const *)param;
    BLOCK_PHASE(at) {
        cell[at.thread] = 1;
    }
    BLOCK_PHASE(at) {
        out[at.block * at.threads + at.thread] = cell[(at.thread + 1) % at.threads];
        cell[at.thread] = 2;
    }
}

static void two_blocks_at_one_element(const void *param, void *shared, struct thread_index at) {
    int *out = *(int *const *)param;
    (void)shared;
    BLOCK_PHASE(at) {
        out[(at.block + at.thread) % 256] = 1;
    }
}

/* Each block by itself is in order. */
static void two_blocks_behind_barriers(const void *param, void *shared, struct thread_index at) {
    int *out = *(int *const *)param;
    (void)shared;
    BLOCK_PHASE(at) {}
    BLOCK_PHASE(at) {
        if (at.thread == 0) out[0] += 1;
    }
}

static void an_early_end(const void *param, void *shared, struct thread_index at) {
    (void)param, (void)shared;
    if (at.thread == 5) return;
    BLOCK_PHASE(at) {}
}

static void run_on_eight_blocks(block_kernel *kernel) {
    int *out = calloc(8 * THREADS, sizeof *out);
    cr_assert_not_null(out);
    gpu_run_blocks(kernel, &out, THREADS * sizeof(int), (struct grid){8, THREADS});
    for (int i = 0; kernel == in_order && i < 8 * THREADS; i++)
        cr_assert_eq(out[i], THREADS - 1 - i % THREADS + i / THREADS);
    free(out);
}

/* Runs the kernel in its own process, and copies what that prints into `text`; *status is its
 * exit status. */
static void words_of(block_kernel *kernel, char *text, size_t bytes, int *status) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        run_on_eight_blocks(kernel);
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n;
         length < bytes - 1 && (n = read(ends[0], text + length, bytes - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = 0;
    close(ends[0]);
    cr_assert_eq(waitpid(child, status, 0), child);
}

Test(gpu_of_threads, a_kernel_in_order_is_fine, .timeout = 60) {
    run_on_eight_blocks(in_order);
}

Test(gpu_of_threads, finds_what_is_wrong, .timeout = 120) {
    static const struct {
        block_kernel *kernel;
        const char *name, *words;
    } wrong[] = {{without_a_barrier, "no barrier", "data race"},
                 {without_the_second_barrier, "one barrier too few", "data race"},
                 {two_blocks_at_one_element, "two blocks", "data race"},
                 {two_blocks_behind_barriers, "two blocks behind barriers", "data race"},
                 {an_early_end, "an early end", "63 threads wait at barrier 0, 1 have ended"}};
    static char text[65536];
    for (int i = 0; i < 5; i++) {
        int status;
        words_of(wrong[i].kernel, text, sizeof text, &status);
        cr_expect(WIFEXITED(status) &&
                      WEXITSTATUS(status) == (strcmp(wrong[i].words, "data race") ? 1 : 66),
                  "%s: %d", wrong[i].name, status);
        cr_expect(strstr(text, wrong[i].words), "%s: %s", wrong[i].name, text);
    }
}

/* ---- the kernels of the ops ---- */

/* Every tile. Forward and backward data have the same bits from all but that of tensor cores. */
static void product_races(struct heap *heap, enum op op, struct op_args a) {
    struct tensor first = {.data = NULL};
    struct product p;
    struct planes q;
    enum product_kind kind;
    for (int tile = PLANES; tile < TILES; tile++) {
        kind = product_of(op, &a, &p);
        if (tile == PLANES ? !planes_of(&p, kind, &q) : !tile_fits(kind, (enum tile)tile)) continue;
        for (int i = 0; i < 2; i++)
            if (a.out[i].data) a.out[i] = tensor_like(heap, &a.out[i]);
        run_product(op, &a, tile, 1 << 20);
        if (!first.data) first = a.out[0];
        cr_assert(product_is_deep(kind) || tile == TILE_TF32 || same_bits(&a.out[0], &first),
                  "%s: other bits from tile %d", op_name(op), tile);
    }
}

/* s is n C H W O k stride padding. The shapes have more than one tile each way, several slabs of
 * depth, and tails everywhere. */
static void conv_races(const int s[8]) {
    struct heap heap = {0};
    int p = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, q = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
    struct tensor x = tensor_random(&heap, 1, 4, s[0], s[1], s[2], s[3]),
                  w = tensor_random(&heap, 2, 4, s[4], s[1], s[5], s[5]),
                  b = tensor_random(&heap, 3, 1, s[4], 1, 1, 1),
                  y = tensor_random(&heap, 4, 4, s[0], s[4], p, q);
    struct op_args a = {.p.conv = conv_square(s[6], s[7]), .in = {x, w, b}, .out = {y}};
    product_races(&heap, OP_CONV2D_FORWARD, a);
    a.in[0] = y, a.in[2] = (struct tensor){0}, a.out[0] = x;
    product_races(&heap, OP_CONV2D_BACKWARD_DATA, a);
    a.in[0] = x, a.in[1] = y, a.out[0] = w, a.out[1] = b;
    product_races(&heap, OP_CONV2D_BACKWARD_WEIGHT, a);
    heap_free(&heap);
}

Test(cuda_races, convolutions, .timeout = 240) {
    conv_races((int[8]){3, 5, 9, 8, 19, 3, 1, 1});
    conv_races((int[8]){2, 3, 11, 7, 5, 5, 2, 2});
    conv_races((int[8]){2, 1, 9, 10, 23, 3, 1, 1});
}

Test(cuda_races, linear_layers, .timeout = 240) {
    for (int transposed = 0; transposed < 2; transposed++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 2, 37, 50, 1, 1),
                      b = tensor_random(&heap, 3, 1, 21, 1, 1, 1),
                      w = tensor_random(&heap, 2, 2, transposed ? 50 : 21, transposed ? 21 : 50, 1,
                                        1),
                      y = tensor_random(&heap, 4, 2, 37, 21, 1, 1);
        struct op_args a = {.p.linear = {transposed}, .in = {x, w, b}, .out = {y}};
        product_races(&heap, OP_LINEAR_FORWARD, a);
        a.in[0] = y, a.in[2] = (struct tensor){0}, a.out[0] = x;
        product_races(&heap, OP_LINEAR_BACKWARD_DATA, a);
        a.in[0] = x, a.in[1] = y, a.out[0] = w, a.out[1] = b;
        product_races(&heap, OP_LINEAR_BACKWARD_WEIGHT, a);
        heap_free(&heap);
    }
}

/* All other ops: the doctor's cases, with the bits of the reference's inputs. */
static int once(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms) {
    static int long_ones; /* every third of these is enough: they take most of the time */
    int is_long = op == OP_CONV2D_BACKWARD_WEIGHT || op == OP_ATTENTION_FORWARD ||
                  op == OP_ATTENTION_BACKWARD;
    (void)cases, (void)terms;
    if (!is_long || long_ones++ % 3 == 0) run_together(op, args);
    return OK;
}

Test(cuda_races, rows_norms_sums_and_logs, .timeout = 280) {
    for (enum op op = 0; op < OP_COUNT; op++) {
        struct op_cases cases = {.run = once, .seed = 99, .quick = 1};
        enum op_family family = op_table[op].family;
        if ((family == PRODUCT && op != OP_CONV2D_BACKWARD_WEIGHT) || family == POINTWISE ||
            family == PICTURE || family == LAYOUT)
            continue;
        rng_seed(&cases.rng, (uint64_t)op);
        cr_assert_eq(op_cases(&cases, op), OK, "%s", error_message());
        case_forget(&cases);
    }
}

#else
#include "tests/harness/harness.h"
Test(cuda_races, needs_the_thread_sanitizer, .timeout = 10) {
    cr_skip_test("races are found by make SAN=thread check");
}
#endif
