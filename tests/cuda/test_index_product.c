/* The CUDA kernels of convolutions and linear layers, run on the host: every tile, over shapes that
 * are multiples of none, compared with the reference; and the rules on which equal training of all
 * modes rests (docs/design.md section 2): the same bits from every tile and grid, and among any
 * other samples. */
#include "tests/cuda/index.h"
#include "tests/nn/layer.h"

/* as CUDA_WORKSPACE_BYTES of device/cuda/cuda.h, which needs CUDA's headers */
enum { WORKSPACE = 64 << 20 };

static int fits(const struct op_args *a, enum op op, int tile) {
    struct product p;
    enum product_kind kind;
    struct planes q;
    cr_assert(product_of(op, a, &p, &kind));
    return tile == PLANES ? planes_of(&p, kind, &q) : tile_fits(kind, (enum tile)tile);
}

static int is_narrow(const struct op_args *a, enum op op) {
    struct product p;
    enum product_kind kind;
    cr_assert(product_of(op, a, &p, &kind));
    return narrow_chosen(&p, kind, 0);
}

/* All passes, as a launch would do them (first in the loop) and in every other way: within rounding
 * of the reference. Forward and backward data have the same bits from every tile; weight gradients
 * too, as long as the depth is not split and the kernel of narrow.h is not launched. */
static void check_layer(struct heap *heap, const struct layer *l, const char *what,
                        size_t workspace) {
    struct layer size = absolute_layer(heap, l);
    size_t terms[PASSES] = {tensor_count(&l->w) + 1, tensor_count(&l->w),
                            (size_t)l->x.dims[0] * tensor_sample_count(&l->y)};
    for (enum pass pass = FORWARD; pass < PASSES; pass++) {
        if (workspace && pass != BACKWARD_WEIGHT) continue; /* the others use none */
        enum op op = op_of(l, pass);
        struct op_args want = launch_of(heap, l, pass), sizes = launch_of(heap, &size, pass),
                       first = want;
        int narrow = pass == BACKWARD_WEIGHT && is_narrow(&want, op);
        host_reference_kernels[op](&want);
        host_reference_kernels[op](&sizes);
        for (int tile = AS_LAUNCHED; tile < TILES; tile++) {
            char line[200];
            struct op_args got = launch_of(heap, l, pass);
            if (tile != AS_LAUNCHED && !fits(&got, op, tile)) continue;
            uint32_t splits = run_product(op, &got, tile, workspace);
            snprintf(line, sizeof line, "%s, %s, tile %d, %u splits", what, op_name(op), tile,
                     splits);
            cr_assert(pass == BACKWARD_WEIGHT || splits == 1, "%s: only weight gradients are split",
                      line);
            if (tile == AS_LAUNCHED || (narrow && tile == TILE_LARGE)) first = got;
            for (int j = 0; j < 2 && got.out[j].data; j++) {
                double bound = rounding(terms[pass]) + (tile == TILE_TF32 ? TF32_PRODUCT : 0);
                expect_near(line, &got.out[j], &want.out[j], &sizes.out[j], bound);
                if (tile != TILE_TF32 && (pass != BACKWARD_WEIGHT || workspace == 0))
                    cr_assert(same_bits(&got.out[j], &first.out[j]),
                              "%s: other bits than as launched", line);
            }
        }
    }
}

Test(cuda_index_product, conv2d_equals_the_reference, .timeout = 240) {
    /*                            n  C  H   W   O  k  s  p */
    static const int shapes[][8] = {
        {1, 1, 1, 1, 1, 1, 1, 0},   {0, 2, 6, 6, 3, 3, 1, 0},    {3, 1, 28, 28, 6, 3, 1, 0},
        {6, 2, 13, 13, 5, 5, 1, 0}, {9, 1, 7, 7, 3, 3, 1, 1},    {3, 7, 8, 5, 9, 1, 1, 0},
        {2, 4, 10, 9, 11, 2, 1, 0}, {5, 3, 12, 31, 2, 3, 1, 1},  {2, 2, 9, 9, 7, 7, 1, 2},
        {1, 5, 11, 10, 8, 3, 2, 1}, {8, 2, 9, 14, 4, 5, 2, 2},   {2, 3, 13, 8, 5, 2, 2, 0},
        {4, 9, 7, 8, 10, 1, 2, 0},  {1, 2, 14, 15, 3, 7, 2, 2},  {2, 1, 10, 11, 6, 3, 3, 0},
        {3, 2, 8, 8, 4, 2, 3, 1},   {1, 1, 5, 40, 1, 5, 1, 0},   {2, 3, 3, 3, 5, 5, 1, 2},
        {1, 17, 6, 6, 65, 3, 1, 1}, {2, 1, 4, 4, 1, 7, 3, 2},    {2, 20, 13, 13, 50, 5, 1, 0},
        {3, 2, 6, 6, 12, 3, 1, 3},  {4, 1, 28, 28, 20, 3, 1, 0}, {0, 1, 5, 5, 4, 3, 1, 0},
        {4, 1, 8, 9, 41, 3, 2, 2},  {9, 13, 7, 9, 6, 3, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += test_short() ? 3 : 1)
        for (int split = 0; split < 2; split++) {
            const int *s = shapes[i];
            struct heap heap = {0};
            char what[100];
            snprintf(what, sizeof what, "conv n=%d c=%d %dx%d o=%d k=%d stride %d padding %d", s[0],
                     s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
            struct layer l = conv_layer(&heap, s);
            check_layer(&heap, &l, what, split ? WORKSPACE : 0);
            heap_free(&heap);
        }
}

Test(cuda_index_product, linear_equals_the_reference, .timeout = 240) {
    static const int shapes[][3] = {{0, 5, 3},    {1, 1, 1},    {1, 33, 10},   {15, 7, 13},
                                    {16, 64, 6},  {17, 31, 5},  {33, 65, 7},   {80, 20, 34},
                                    {2, 300, 11}, {3, 11, 300}, {530, 33, 13}, {130, 70, 129}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += test_short() ? 3 : 1)
        for (int variant = 0; variant < 4; variant++) {
            struct heap heap = {0};
            char what[100];
            int turned = variant % 2;
            snprintf(what, sizeof what, "linear n=%d %d to %d, weight (%s)", shapes[i][0],
                     shapes[i][1], shapes[i][2], turned ? "in,out" : "out,in");
            struct layer l = linear_layer(&heap, shapes[i][0], shapes[i][1], shapes[i][2], turned);
            check_layer(&heap, &l, what, variant / 2 ? WORKSPACE : 0);
            heap_free(&heap);
        }
}

/* --- whatever else is in the call --- */

static struct layer some_layer(struct heap *heap, int n, int variant) {
    static const int shapes[][7] = {{3, 13, 13, 5, 5, 1, 0},
                                    {2, 15, 9, 3, 3, 1, 1},
                                    {30, 9, 9, 40, 3, 2, 1},
                                    {1, 13, 12, 23, 3, 1, 0}};
    if (variant >= 4) return linear_layer(heap, n, 150, 11, variant - 4);
    const int *s = shapes[variant];
    return conv_layer(heap, (int[]){n, s[0], s[1], s[2], s[3], s[4], s[5], s[6]});
}

static void copy_sample(const struct tensor *from, int n, struct tensor *to) {
    size_t count = tensor_sample_count(from);
    memcpy(to->data, tensor_f32(from) + (size_t)n * count, count * sizeof(float));
}

Test(cuda_index_product, a_sample_has_the_same_bits_in_any_company, .timeout = 120) {
    for (int variant = 0; variant < 12; variant++) {
        int tile = variant < 6 ? AS_LAUNCHED : TILE_TF32, samples = variant < 6 ? 37 : 5;
        struct heap heap = {0};
        struct layer crowd = some_layer(&heap, samples, variant % 6),
                     alone = some_layer(&heap, 1, variant % 6);
        for (enum pass pass = FORWARD; pass <= BACKWARD_DATA; pass++) {
            struct op_args all = launch_of(&heap, &crowd, pass);
            run_product(op_of(&crowd, pass), &all, tile, WORKSPACE);
            for (int n = 0; n < samples; n++) {
                struct heap inner = {0};
                copy_sample(&crowd.x, n, &alone.x);
                copy_sample(&crowd.dy, n, &alone.dy);
                struct op_args one = launch_of(&inner, &alone, pass);
                run_product(op_of(&alone, pass), &one, tile, WORKSPACE);
                size_t count = tensor_sample_count(&one.out[0]);
                cr_assert_arr_eq(one.out[0].data, tensor_f32(&all.out[0]) + (size_t)n * count,
                                 count * sizeof(float),
                                 "pass %d, variant %d: sample %d depends on its company", (int)pass,
                                 variant, n);
                heap_free(&inner);
            }
        }
        heap_free(&heap);
    }
}

/* The weight gradient of 19 samples has the same bits alone and as a segment of 40. */
Test(cuda_index_product, a_weight_gradient_depends_on_its_segment_alone, .timeout = 60) {
    for (int variant = 0; variant < 6; variant++) {
        struct heap heap = {0};
        struct segments segments = {.count = 3, .n = 40, .seg = {{0, 5}, {2, 19}, {4, 16}}};
        struct layer all = some_layer(&heap, 40, variant), own = some_layer(&heap, 19, variant);
        struct op_args view = launch_of(&heap, &all, BACKWARD_WEIGHT), alone;
        for (int i = 0; i < 2; i++)
            view.in[i] = tensor_segment(&view.in[i], &segments, 1);
        memcpy(own.x.data, view.in[0].data, tensor_bytes(&own.x));
        memcpy(own.dy.data, view.in[1].data, tensor_bytes(&own.dy));
        alone = launch_of(&heap, &own, BACKWARD_WEIGHT);
        run_product(op_of(&all, BACKWARD_WEIGHT), &view, AS_LAUNCHED, WORKSPACE);
        run_product(op_of(&own, BACKWARD_WEIGHT), &alone, AS_LAUNCHED, WORKSPACE);
        for (int j = 0; j < 2; j++)
            cr_assert(same_bits(&view.out[j], &alone.out[j]), "variant %d, output %d", variant, j);
        heap_free(&heap);
    }
}

/* --- the plan --- */

/* Each element of c and each d lies in exactly one block's range, and partial sums fit into the
 * workspace. */
Test(cuda_index_product, the_grid_covers_everything_once, .timeout = 60) {
    uint64_t seed = 3;
    for (int i = 0; i < 20000; i++) {
        struct product p = {0};
        uint32_t *size[] = {&p.rows, &p.cols, &p.depth};
        for (int j = 0; j < 3; j++)
            *size[j] = (uint32_t)exp2(17 * fabs((double)test_random(&seed)));
        if (i % 10 == 0) p.depth = 0;
        size_t workspace = i % 3 ? WORKSPACE : 100000;
        enum product_kind kind = (enum product_kind)(i % PRODUCT_KINDS);
        enum tile tile = product_choose(&p, kind, i % 2);
        cr_assert(tile_fits(kind, tile));
        product_grid(&p, kind, tile, NULL, workspace);
        cr_assert_eq(p.row_tiles,
                     (p.rows + (uint32_t)tile_rows(tile) - 1) / (uint32_t)tile_rows(tile));
        cr_assert_eq(p.col_tiles,
                     (p.cols + (uint32_t)tile_cols(tile) - 1) / (uint32_t)tile_cols(tile));
        cr_assert(p.splits >= 1 && (uint64_t)p.splits * p.split_depth >= p.depth,
                  "depth %u in %u x %u", p.depth, p.splits, p.split_depth);
        cr_assert(p.splits == 1 || (uint64_t)(p.splits - 1) * p.split_depth < p.depth,
                  "an empty split");
        cr_assert(p.splits == 1 || sizeof(float) * p.splits * p.rows * p.cols <= workspace,
                  "workspace");
        cr_assert(p.splits == 1 || product_is_deep(kind));
    }
}

/* LeNet's layers at batch 256 spread over the whole GPU. */
Test(cuda_index_product, lenet_fills_the_gpu, .timeout = 60) {
    static const struct {
        enum product_kind kind;
        uint32_t rows, cols, depth;
    } layers[] = {
        {PRODUCT_CONV_FORWARD, 50, 256 * 81, 500}, {PRODUCT_CONV_DATA, 20, 256 * 169, 1250},
        {PRODUCT_CONV_WEIGHT, 50, 501, 256 * 81},  {PRODUCT_CONV_WEIGHT, 20, 10, 256 * 676},
        {PRODUCT_LINEAR_KC, 256, 500, 800},        {PRODUCT_LINEAR_KK, 256, 800, 500}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        struct product p = {0};
        p.rows = layers[i].rows, p.cols = layers[i].cols, p.depth = layers[i].depth;
        product_grid(&p, layers[i].kind, product_choose(&p, layers[i].kind, 0), NULL, WORKSPACE);
        cr_assert(p.row_tiles * p.col_tiles * p.splits >= 100, "layer %zu: %u x %u x %u blocks", i,
                  p.row_tiles, p.col_tiles, p.splits);
    }
}

/* --- tf32 --- */

Test(cuda_index_product, tf32_rounds_to_ten_bits_and_must_be_allowed, .timeout = 60) {
    static const float pairs[][2] = {{1, 1},
                                     {0x1.002p0f, 0x1.004p0f}, /* a tie is rounded away from zero */
                                     {-0x1.002p0f, -0x1.004p0f},
                                     {0x1.001ffep0f, 1},
                                     {0x1.ffep0f, 2},
                                     {-0.0f, -0.0f},
                                     {INFINITY, INFINITY}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cr_assert_eq(tf32_of(pairs[i][0]), bits_of(pairs[i][1]), "%a", (double)pairs[i][0]);
    cr_assert(isnan(tf32_float(NAN)));
    struct product p = {0};
    for (enum product_kind kind = PRODUCT_CONV_FORWARD; kind < PRODUCT_KINDS; kind++) {
        /* for any shape, since the bits depend on the choice */
        p.rows = p.cols = p.depth = kind % 2 ? 2048 : 3;
        cr_assert_eq(product_choose(&p, kind, 1), TILE_TF32);
        cr_assert_neq(product_choose(&p, kind, 0), TILE_TF32);
    }
    p.x.channels = 64, p.y.channels = 64;
    cr_assert(tf32_pays(&p, PRODUCT_CONV_WEIGHT));
    p.x.channels = 20; /* LeNet's second convolution */
    cr_assert(!tf32_pays(&p, PRODUCT_CONV_WEIGHT) && tf32_pays(&p, PRODUCT_LINEAR_RC));
}
