/* The plan of device/cuda/kernels/planes.h: what a block keeps in shared memory fits, whichever
 * pixel it begins with; how accesses spread over the banks of shared memory; which taps a warp
 * leaves out; and which layers are planned so. That the kernels multiply as the tiles do is shown
 * by tests/cuda/test_index_product.c. */
#include "tests/cuda/index.h"
#include "tests/nn/layer.h"

/* The product of a convolution, for its shape alone. s is n C H W O k stride padding. */
static int planes_of_conv(enum op op, const int s[8], struct product *p, struct planes *q,
                          enum product_kind *kind) {
    int height = (s[2] + 2 * s[7] - s[5]) / s[6] + 1, width = (s[3] + 2 * s[7] - s[5]) / s[6] + 1;
    struct tensor x = tensor_plain(NULL, DTYPE_F32, 4, (int[]){s[0], s[1], s[2], s[3]}),
                  w = tensor_plain(NULL, DTYPE_F32, 4, (int[]){s[4], s[1], s[5], s[5]}),
                  y = tensor_plain(NULL, DTYPE_F32, 4, (int[]){s[0], s[4], height, width});
    struct op_args a = {.in = {op == OP_CONV2D_FORWARD ? x : y, w},
                        .out = {op == OP_CONV2D_FORWARD ? y : x}};
    a.p.conv.stride = s[6], a.p.conv.padding = s[7];
    cr_assert(product_of(op, &a, p, kind));
    return planes_of(p, *kind, q);
}

/* Every piece fits into the memory, and into the copies that the threads make; the taps of each
 * pixel lie inside it. Returns the number of blocks. */
static uint32_t check_pieces(const struct planes *q, enum product_kind kind, const char *what) {
    uint32_t threads = planes_threads(q), cols = planes_cols_a_block(q), k = (uint32_t)q->p.k,
             line = k * q->pitch + q->gap, next = 0;
    cr_assert(threads <= 32 * PLANES_WARPS, "%s: %u threads", what, threads);
    cr_assert(threads * (uint32_t)planes_fetch_a(q->p.k) >= q->groups * PLANES_ROWS * k * k,
              "%s: weights", what);
    cr_assert(q->groups <= PLANES_GROUPS && q->groups * q->p.row_tiles * PLANES_ROWS >= q->p.rows,
              "%s: rows", what);
    for (uint32_t tile = 0; tile < q->p.col_tiles; tile++) {
        struct planes_range r = planes_range_of(kind, q, tile, cols);
        cr_assert(r.first == next && r.last >= r.first && r.last - r.first < cols, "%s: columns",
                  what);
        next = r.last + 1;
        cr_assert(r.floats <= PLANES_PIECE, "%s: piece of %u rows", what, r.rows);
        cr_assert(r.rows * q->by_fetched.d <= threads * PLANES_FETCH_B, "%s: copies of %u rows",
                  what, r.rows);
        for (uint32_t col = r.first; col <= r.last; col++) {
            uint32_t first = planes_pixel(q, &r, col), last = first + (k - 1) * q->pitch + k - 1,
                     column = q->by_row ? first % line : first % q->pitch;
            cr_assert(last < r.floats && column + k <= q->reach, "%s: pixel %u", what, col);
            cr_assert(q->by_row || last / q->pitch < r.rows, "%s: pixel %u", what, col);
        }
    }
    cr_assert_eq(next, q->p.cols, "%s: columns", what);
    return planes_blocks(q);
}

Test(cuda_index_planes, every_piece_fits, .timeout = 60) {
    uint64_t seed = 5;
    int taken = 0, by_row = 0;
    for (int i = 0; i < 4000; i++) {
        int s[8], most[8] = {40, 40, 60, 60, 130, 5, 3, 5}, least[8] = {1, 1, 1, 1, 1, 1, 1, 0};
        for (int j = 0; j < 8; j++)
            s[j] = least[j] + (int)((double)(most[j] - least[j] + 1) * .999 *
                                    fabs((double)test_random(&seed)));
        if (s[2] + 2 * s[7] < s[5] || s[3] + 2 * s[7] < s[5]) continue;
        for (enum op op = OP_CONV2D_FORWARD; op <= OP_CONV2D_BACKWARD_DATA; op++) {
            struct product p;
            struct planes q;
            enum product_kind kind;
            char what[100];
            if (!planes_of_conv(op, s, &p, &q, &kind)) continue;
            snprintf(what, sizeof what, "%s n=%d c=%d %dx%d o=%d k=%d stride %d padding %d",
                     op_name(op), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
            check_pieces(&q, kind, what);
            taken++;
            by_row += q.by_row;
        }
    }
    cr_assert_gt(taken, 300, "%d shapes", taken);
    cr_assert_gt(by_row, 3, "%d shapes with columns by rows", by_row);
}

/* The samples, rows and columns of dx in the order of c's columns. */
struct counted {
    uint32_t n, row, column;
};

static struct counted pixel_at(const struct planes *q, uint32_t col) {
    uint32_t width = (uint32_t)q->to.width, samples = q->p.cols / q->to.pixels;
    return (struct counted){col / width % samples, col / width / samples, col % width};
}

/* Of columns by rows: each stands for one pixel, and a warp's taps are those that some of its
 * pixels need. Returns the part of the rows of taps that is left. */
static double check_rows(const struct planes *q, enum product_kind kind, const char *what) {
    uint32_t cols = planes_cols_a_block(q), warp = 32 * PLANES_COLS, left = 0, all = 0;
    for (uint32_t tile = 0; tile < q->p.col_tiles; tile++) {
        struct planes_range r = planes_range_of(kind, q, tile, cols);
        for (uint32_t first = r.first; first < r.first + cols; first += warp) {
            uint32_t want = 0;
            for (uint32_t col = first; col < first + warp && col <= r.last; col++) {
                struct counted c = pixel_at(q, col);
                cr_assert_eq(planes_plain_col(q, &r, col),
                             c.n * q->to.pixels + c.row * (uint32_t)q->to.width + c.column,
                             "%s: column %u", what, col);
                for (int ky = 0; ky < q->p.k; ky++)
                    if ((int)c.row >= ky && (int)c.row - ky < q->from.height) want |= 1u << ky;
            }
            uint32_t taps = planes_taps(q->p.k, q, &r, first);
            cr_assert_eq(taps, want, "%s: taps %x, not %x, from column %u", what, taps, want,
                         first);
            left += (uint32_t)__builtin_popcount(taps), all += (uint32_t)q->p.k;
        }
    }
    return (double)left / all;
}

/* Gradients without padding, where a fifth of the taps or more lies outside. Of LeNet's 65 rows of
 * taps 45 are left, but for the warps that have pixels of two rows. */
Test(cuda_index_planes, warps_leave_out_the_taps_that_are_outside, .timeout = 60) {
    static const struct {
        int s[8];
        double most; /* of the taps; 0: not by rows */
    } layers[] = {{{256, 20, 13, 13, 50, 5, 1, 0}, 47. / 65}, {{3, 20, 13, 13, 50, 5, 1, 0}, .96},
                  {{40, 31, 12, 20, 4, 5, 1, 0}, .76},        {{100, 13, 7, 9, 6, 3, 1, 0}, .79},
                  {{256, 20, 13, 13, 50, 5, 1, 1}, 0},        {{256, 16, 26, 26, 32, 3, 1, 0}, 0},
                  {{256, 2, 13, 13, 50, 5, 1, 0}, 0}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        struct product p;
        struct planes q;
        enum product_kind kind;
        char what[40];
        snprintf(what, sizeof what, "layer %zu", i);
        planes_of_conv(OP_CONV2D_BACKWARD_DATA, layers[i].s, &p, &q, &kind);
        cr_assert_eq(q.by_row, layers[i].most > 0, "%s", what);
        if (!q.by_row) continue;
        double left = check_rows(&q, kind, what);
        cr_assert_leq(left, layers[i].most, "%s: %g of the taps", what, left);
    }
}

/* Products too small for a float are zeros with a sign. What is left out with the taps outside
 * would have made +0 of a -0, or not. */
Test(cuda_index_planes, zeros_have_one_sign, .timeout = 60) {
    struct heap heap = {0};
    struct layer l = conv_layer(&heap, (int[]){2, 20, 13, 13, 50, 5, 1, 0});
    for (size_t i = 0; i < tensor_count(&l.w); i++)
        tensor_f32(&l.w)[i] = i % 3 ? -0x1p-100f : 0x1p-100f;
    for (size_t i = 0; i < tensor_count(&l.dy); i++)
        tensor_f32(&l.dy)[i] = i % 2 ? -0x1p-100f : 0x1p-100f;
    struct op_args planes = launch_of(&heap, &l, BACKWARD_DATA),
                   tile = launch_of(&heap, &l, BACKWARD_DATA);
    run_product(OP_CONV2D_BACKWARD_DATA, &planes, PLANES, 0);
    run_product(OP_CONV2D_BACKWARD_DATA, &tile, TILE_SMALL, 0);
    cr_assert(same_bits(&planes.out[0], &tile.out[0]));
    heap_free(&heap);
}

/* 32 neighbouring pixels of a sample lie in 32 banks, at stride 1. */
Test(cuda_index_planes, neighbours_lie_in_different_banks, .timeout = 60) {
    static const int shapes[][8] = {
        {256, 20, 13, 13, 50, 5, 1, 0}, {9, 16, 26, 26, 32, 3, 1, 0}, {4, 8, 56, 56, 64, 3, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (enum op op = OP_CONV2D_FORWARD; op <= OP_CONV2D_BACKWARD_DATA; op++) {
            struct product p;
            struct planes q;
            enum product_kind kind;
            cr_assert(planes_of_conv(op, shapes[i], &p, &q, &kind));
            struct planes_range r = planes_range_of(kind, &q, 0, planes_cols_a_block(&q));
            /* pixels of the first sample; by rows of all */
            uint32_t pixels = q.by_row || r.last < q.to.pixels ? r.last + 1 : q.to.pixels;
            for (uint32_t first = 0; first + 32 <= pixels; first++) {
                uint32_t banks = 0;
                for (uint32_t lane = 0; lane < 32; lane++)
                    banks |= 1u << planes_pixel(&q, &r, first + lane) % 32;
                cr_assert_eq(banks, 0xffffffffu, "shape %zu, pixel %u: %x", i, first, banks);
            }
        }
}

/* These kernels are taken for the models' convolutions at batch 256, with enough blocks for a GPU,
 * and for the cases that `duet doctor` checks (doctor/cases_products.c). They are not taken for a
 * few samples, filters of 1 x 1, large pictures and gradients of strided convolutions; nor for
 * anything where tensor cores are allowed. */
Test(cuda_index_planes, who_takes_it, .timeout = 60) {
    static const struct {
        int s[8], forward, data;
    } layers[] = {{{256, 20, 13, 13, 50, 5, 1, 0}, 1, 1}, {{256, 1, 28, 28, 20, 3, 1, 0}, 1, 1},
                  {{256, 16, 26, 26, 32, 3, 1, 0}, 1, 1}, {{2, 20, 13, 13, 50, 5, 1, 0}, 0, 0},
                  {{105, 20, 13, 13, 50, 5, 1, 0}, 1, 1}, {{256, 20, 13, 13, 50, 1, 1, 0}, 0, 0},
                  {{4, 3, 500, 500, 16, 3, 1, 1}, 0, 0},  {{1024, 20, 13, 13, 50, 5, 2, 0}, 1, 0}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (enum op op = OP_CONV2D_FORWARD; op <= OP_CONV2D_BACKWARD_DATA; op++) {
            struct product p;
            struct planes q;
            enum product_kind kind;
            planes_of_conv(op, layers[i].s, &p, &q, &kind);
            int want = op == OP_CONV2D_FORWARD ? layers[i].forward : layers[i].data;
            cr_assert_eq(planes_chosen(&p, kind, 0, &q), want, "layer %zu, %s", i, op_name(op));
            if (want && layers[i].s[0] >= 256)
                cr_assert_geq(planes_blocks(&q), MULTIPROCESSORS, "layer %zu: %u blocks", i,
                              planes_blocks(&q));
            cr_assert(!planes_chosen(&p, kind, 1, &q), "layer %zu with tensor cores", i);
        }
}
