/* The kernels whose threads work together, with a stack for each of the GPU's threads, under
 * ThreadSanitizer: no value is read in the phase in which another thread writes it. And the tool
 * itself (tests/stand_ins/gpu_of_threads.h): it finds races that are planted here. What the kernels
 * compute is tested by tests/cuda/test_index*.c. */
#ifdef __SANITIZE_THREAD__
#include "tests/cuda/index.h"

#include <sys/wait.h>

/* ---- the tool ---- */

enum { THREADS = 64 };

static void in_order(const void *param, void *shared, struct place at) {
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
static void without_a_barrier(const void *param, void *shared, struct place at) {
    int *cell = shared, *out = *(int *const *)param;
    BLOCK_PHASE(at) {
        cell[at.thread] = 1;
        out[at.block * at.threads + at.thread] = at.thread ? cell[at.thread - 1] : 0;
    }
}

/* The write of the next phase meets the reads of this one. */
static void without_the_second_barrier(const void *param, void *shared, struct place at) {
    int *cell = shared, *out = *(int *const *)param;
    BLOCK_PHASE(at) {
        cell[at.thread] = 1;
    }
    BLOCK_PHASE(at) {
        out[at.block * at.threads + at.thread] = cell[(at.thread + 1) % at.threads];
        cell[at.thread] = 2;
    }
}

static void two_blocks_at_one_element(const void *param, void *shared, struct place at) {
    int *out = *(int *const *)param;
    (void)shared;
    BLOCK_PHASE(at) {
        out[(at.block + at.thread) % 256] = 1;
    }
}

/* Each block by itself is in order. */
static void two_blocks_behind_barriers(const void *param, void *shared, struct place at) {
    int *out = *(int *const *)param;
    (void)shared;
    BLOCK_PHASE(at) {}
    BLOCK_PHASE(at) {
        if (at.thread == 0) out[0] += 1;
    }
}

static void an_early_end(const void *param, void *shared, struct place at) {
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

/* Runs the kernel in a process of its own, and copies what that prints into `text`; *status is its
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

static void product_races(struct heap *heap, enum op op, struct op_args a) {
    struct product p;
    struct planes q;
    enum product_kind kind;
    for (int tile = AS_LAUNCHED; tile < TILES; tile++) {
        cr_assert(product_of(op, &a, &p, &kind));
        if (tile == AS_LAUNCHED ? !narrow_chosen(&p, kind, 0)
            : tile == PLANES    ? !planes_of(&p, kind, &q)
                                : !tile_fits(kind, (enum tile)tile))
            continue;
        for (int i = 0; i < 2; i++)
            if (a.out[i].data) a.out[i] = tensor_like(heap, &a.out[i]);
        run_product(op, &a, tile, 1 << 20);
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
    struct op_args a = {.p.conv = {s[6], s[7]}, .in = {x, w, b}, .out = {y}};
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
    conv_races((int[8]){2, 1, 9, 10, 23, 3, 1, 1}); /* narrow.h */
}

Test(cuda_races, linear_layers, .timeout = 240) {
    for (int turned = 0; turned < 2; turned++) {
        struct heap heap = {0};
        struct tensor x = tensor_random(&heap, 1, 2, 37, 50, 1, 1),
                      b = tensor_random(&heap, 3, 1, 21, 1, 1, 1),
                      w = tensor_random(&heap, 2, 2, turned ? 50 : 21, turned ? 21 : 50, 1, 1),
                      y = tensor_random(&heap, 4, 2, 37, 21, 1, 1);
        struct op_args a = {.p.linear = {turned}, .in = {x, w, b}, .out = {y}};
        product_races(&heap, OP_LINEAR_FORWARD, a);
        a.in[0] = y, a.in[2] = (struct tensor){0}, a.out[0] = x;
        product_races(&heap, OP_LINEAR_BACKWARD_DATA, a);
        a.in[0] = x, a.in[1] = y, a.out[0] = w, a.out[1] = b;
        product_races(&heap, OP_LINEAR_BACKWARD_WEIGHT, a);
        heap_free(&heap);
    }
}

Test(cuda_races, rows_and_losses, .timeout = 120) {
    static const int shapes[][2] = {{11, 10}, {9, 70}};
    struct step_block step = {.weight = 1.0f / 96};
    for (int i = 0; i < 2; i++) {
        struct heap heap = {0};
        int rows = shapes[i][0], classes = shapes[i][1];
        struct tensor x = tensor_random(&heap, 1, 2, rows, classes, 1, 1),
                      y = tensor_like(&heap, &x);
        struct tensor labels = heap_tensor(&heap, DTYPE_I32, 1, rows, 1, 1, 1),
                      hits = tensor_like(&heap, &labels);
        for (int r = 0; r < rows; r++)
            ((int32_t *)labels.data)[r] = r * 7 % classes;
        run_rows(OP_SOFTMAX_FORWARD, &(struct op_args){.in = {x}, .out = {y}}, 3);
        run_rows(OP_SOFTMAX_BACKWARD,
                 &(struct op_args){.in = {y, x}, .out = {tensor_like(&heap, &x)}}, 3);
        struct op_args a = {.in = {x, labels},
                            .out = {heap_tensor(&heap, DTYPE_F64, 1, rows, 1, 1, 1), hits},
                            .step = &step};
        run_rows(OP_NLL_FORWARD, &a, 3);
        run_rows(OP_CROSS_ENTROPY_FORWARD, &a, 3);
        struct op_args sum = {.in = {a.out[0], hits},
                              .out = {heap_tensor(&heap, DTYPE_F64, 2, 1, 1, 1, 1),
                                      heap_tensor(&heap, DTYPE_I64, 2, 1, 1, 1, 1)},
                              .step = &step};
        run_loss_sum(&sum);
        a.out[0] = y, a.out[1] = (struct tensor){0};
        run_rows(OP_NLL_BACKWARD, &a, 3);
        run_rows(OP_CROSS_ENTROPY_BACKWARD, &a, 3);
        a.in[1] = tensor_random(&heap, 2, 2, rows, classes, 1, 1);
        run_rows(OP_MSE_BACKWARD, &a, 3);
        a.out[0] = sum.in[0], a.out[1] = hits;
        run_rows(OP_MSE_FORWARD, &a, 3);
        heap_free(&heap);
    }
}

/* Several blocks add to one number. */
Test(cuda_races, hashes, .timeout = 120) {
    struct heap heap = {0};
    struct step_block step = {.row = 0};
    struct tensor x = tensor_random(&heap, 1, 1, 5003, 1, 1, 1),
                  log = heap_tensor(&heap, DTYPE_U64, 2, 1, 1, 1, 1);
    for (uint32_t blocks = 1; blocks <= 9; blocks += 8)
        run_hash(&(struct op_args){.in = {x}, .out = {log}, .step = &step}, blocks);
    heap_free(&heap);
}

#else
#include "tests/harness/harness.h"
Test(cuda_races, needs_the_thread_sanitizer, .timeout = 10) {
    cr_skip_test("races are found by make SAN=thread check");
}
#endif
