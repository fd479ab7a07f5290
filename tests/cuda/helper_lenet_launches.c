/* The launches of a training step of LeNet on a GPU, as the kernels' own plans lay them out, for
 * the estimate of tests/check_sass.py:
 *
 *     helper_lenet_launches [BATCH]        default 256
 *
 * prints a line for each: what it is, the kernel, blocks, threads, turns of its main loop for a
 * warp, which part of a turn is done (planes.h leaves out taps), and bytes of operands read and
 * written. The step is that of models/lenet.c on one device, with the data set on it.
 * test_emulated_launches.c compares the list with the launches of a real step. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels/loss.h"
#include "device/cuda/kernels/narrow.h"
#include "device/cuda/kernels/planes.h"
#include "device/cuda/kernels/pool.h"

/* as CUDA_WORKSPACE_BYTES, SIMPLE_THREADS and grid_for, whose headers need CUDA's own */
enum { WORKSPACE = 64 << 20, THREADS = 256, MOST_BLOCKS = 132 * 16, SPLITS_A_TURN = 16 };

static void line(const char *what, const char *kernel, uint32_t blocks, uint32_t threads,
                 double turns, double part, double bytes) {
    printf("%-16s %-24s %6u %4u %8.1f %5.2f %10.0f\n", what, kernel, blocks, threads, turns, part,
           bytes);
}

/* A kernel whose threads each take `a_turn` items at a time. */
static void simple(const char *what, const char *kernel, size_t items, int a_turn, double bytes) {
    size_t blocks = (items / (size_t)a_turn + THREADS - 1) / THREADS;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    line(what, kernel, (uint32_t)blocks, THREADS,
         (double)items / a_turn / ((double)blocks * THREADS), 1, bytes);
}

/* A kernel whose blocks each take some rows. */
static void rows(const char *what, const char *kernel, int count, double bytes) {
    line(what, kernel, (uint32_t)(count + ROWS_A_BLOCK - 1) / ROWS_A_BLOCK, ROW_THREADS, 1, 1,
         bytes);
}

static double bytes_of(const struct op_args *a) {
    size_t bytes = 0;
    for (int i = 0; i < 3; i++)
        if (a->in[i].rank) bytes += tensor_bytes(&a->in[i]);
    for (int i = 0; i < 2; i++)
        if (a->out[i].rank) bytes += tensor_bytes(&a->out[i]);
    return (double)bytes;
}

/* The part of the rows of taps that a warp takes, on the average. */
static double taps_taken(const struct planes *q, enum product_kind kind) {
    uint32_t taken = 0, all = 0, cols = planes_cols_a_block(q);
    if (!is_conv_data((int)kind)) return 1;
    for (uint32_t tile = 0; tile < q->p.col_tiles; tile++) {
        struct planes_range r = planes_range_of((int)kind, q, tile, cols);
        for (uint32_t first = r.first; first < r.first + cols; first += 32 * PLANES_COLS)
            for (int ky = 0; ky < q->p.k; ky++, all++)
                taken += planes_taps(q->p.k, q, &r, first) >> ky & 1;
    }
    return (double)taken / all;
}

static void product(const char *what, enum op op, const struct op_args *a) {
    struct product p;
    struct planes q;
    enum product_kind kind;
    char kernel[40];
    if (!product_of(op, a, &p, &kind)) exit(1);
    if (planes_chosen(&p, kind, 0, &q)) {
        snprintf(kernel, sizeof kernel, "product_planes<%d,%d>", (int)kind, p.k);
        line(what, kernel, planes_blocks(&q), planes_threads(&q), q.from.channels,
             taps_taken(&q, kind), bytes_of(a));
        return;
    }
    if (narrow_chosen(&p, kind, 0)) {
        narrow_grid(&p, NULL, WORKSPACE);
        line(what, "product_narrow", p.row_tiles * p.splits, NARROW_THREADS,
             (double)p.split_depth / (NARROW_LANES * NARROW_AT_ONCE), 1, bytes_of(a));
    } else {
        enum tile tile = product_choose(&p, kind, 0);
        product_grid(&p, kind, tile, NULL, WORKSPACE);
        snprintf(kernel, sizeof kernel, "product<%d,%d>", (int)kind, (int)tile);
        line(what, kernel, p.row_tiles * p.col_tiles * p.splits, (uint32_t)tile_threads(tile),
             (double)p.split_depth / tile_slab(tile), 1, bytes_of(a));
    }
    if (p.splits < 2) return;
    uint32_t sums = p.rows * p.cols;
    snprintf(kernel, sizeof kernel, "add_splits<%d>", (int)kind);
    line("  its splits", kernel, (sums + THREADS - 1) / THREADS, THREADS,
         (double)p.splits / SPLITS_A_TURN, 1, 4.0 * sums * p.splits);
}

static struct tensor shape(int rank, int a, int b, int c, int d) {
    return tensor_plain(NULL, DTYPE_F32, rank, (int[]){a, b, c, d});
}

enum { FORWARD = 1, DATA = 2, WEIGHT = 4 };

/* x, w, y are shapes; conv: OP_CONV2D_FORWARD or OP_LINEAR_FORWARD. */
static void layer(const char *what, enum op forward, int passes, struct tensor x, struct tensor w,
                  struct tensor y) {
    struct tensor b = shape(1, forward == OP_CONV2D_FORWARD ? w.dims[0] : w.dims[1], 0, 0, 0);
    struct op_args a = {.in = {x, w, b}, .out = {y}};
    if (forward == OP_CONV2D_FORWARD)
        a.p.conv.stride = 1;
    else
        a.p.linear.weight_is_in_out = 1;
    char name[40];
    snprintf(name, sizeof name, "%s %s", what,
             passes == FORWARD ? "forward"
             : passes == DATA  ? "data"
                               : "weight");
    if (passes == DATA) a.in[0] = y, a.in[2].rank = 0, a.out[0] = x;
    if (passes == WEIGHT) a.in[1] = y, a.in[2].rank = 0, a.out[0] = w, a.out[1] = b;
    product(name, forward + (passes == DATA ? 1 : passes == WEIGHT ? 2 : 0), &a);
}

static void pool(const char *what, int back, struct tensor x, struct tensor y) {
    struct op_args a = {.in = {x}, .out = {y}, .p.pool = {{2, 2}, {2, 2}, 1, 0}};
    if (back) a = (struct op_args){.in = {y, x}, .out = {x}, .p.pool = {{2, 2}, {2, 2}, 1, 0}};
    struct pool p;
    if (!pool_of(back ? OP_AVG_POOL_BACKWARD : OP_AVG_POOL_FORWARD, &a, &p)) exit(1);
    simple(what, back ? "avg_pool_2x2_backward" : "avg_pool_2x2_forward", p.count, 1, bytes_of(&a));
}

int main(int argc, char **argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 256, parameters = 129068;
    const enum op conv = OP_CONV2D_FORWARD, linear = OP_LINEAR_FORWARD;
    if (n < 1) return 2;
    const struct tensor x = shape(4, n, 1, 28, 28), w1 = shape(4, 20, 1, 3, 3),
                        c1 = shape(4, n, 20, 26, 26), p1 = shape(4, n, 20, 13, 13),
                        w2 = shape(4, 50, 20, 5, 5), c2 = shape(4, n, 50, 9, 9),
                        p2 = shape(4, n, 50, 4, 4), flat = shape(2, n, 800, 0, 0),
                        w3 = shape(2, 800, 128, 0, 0), h3 = shape(2, n, 128, 0, 0),
                        w4 = shape(2, 128, 10, 0, 0), y = shape(2, n, 10, 0, 0);
    simple("batch", "gather_samples", tensor_count(&x), 4, 5.0 * (double)tensor_count(&x));
    layer("conv1", conv, FORWARD, x, w1, c1);
    pool("relu1, pool1", 0, c1, p1);
    layer("conv2", conv, FORWARD, p1, w2, c2);
    pool("relu2, pool2", 0, c2, p2);
    layer("linear3", linear, FORWARD, flat, w3, h3);
    simple("relu3", "relu_forward", tensor_count(&h3), 4, 8.0 * (double)tensor_count(&h3));
    layer("linear4", linear, FORWARD, h3, w4, y);
    rows("loss", "cross_entropy_forward", n, 44.0 * n);
    line("sum of losses", "loss_sum", 1, THREADS, 1, 1, 12.0 * n);
    rows("loss, back", "cross_entropy_backward", n, 84.0 * n);
    layer("linear4", linear, WEIGHT, h3, w4, y);
    layer("linear4", linear, DATA, h3, w4, y);
    simple("relu3, back", "relu_backward", tensor_count(&h3), 4, 12.0 * (double)tensor_count(&h3));
    layer("linear3", linear, WEIGHT, flat, w3, h3);
    layer("linear3", linear, DATA, flat, w3, h3);
    pool("pool2, relu2", 1, c2, p2);
    layer("conv2", conv, WEIGHT, p1, w2, c2);
    layer("conv2", conv, DATA, p1, w2, c2);
    pool("pool1, relu1", 1, c1, p1);
    layer("conv1", conv, WEIGHT, x, w1, c1);
    simple("optimizer", "sgd", (size_t)parameters, 4, 12.0 * parameters);
    return 0;
}
