/* matmul, broadcasting, sum, mean and embedding where a device holds several segments: equal bits
 * however many devices share the virtual ones, and no mixing of their samples. (PyTorch's numbers:
 * tests/api/test_algebra.c.) */
#include "base/fold.h"
#include "tests/nn/step.h"

enum { V = 4, SAMPLES = 36, ROWS = 7, WIDTH = 5, LENGTH = 3, TABLE = ROWS * WIDTH };
static const struct param_spec specs[1] = {{"embedding.weight", 2, {ROWS, WIDTH}, 0}};
static const int counts[V] = {9, 17, 0, 10}, first[V] = {0, 9, 26, 26};

/* y of each sample, and the table's gradient. */
struct result {
    float y[SAMPLES * WIDTH], dw[TABLE];
};

static void run(struct device *device, const struct segments *segments, struct result *r) {
    static float table[TABLE], dy[SAMPLES * WIDTH];
    static int32_t index[SAMPLES * LENGTH];
    struct param_set params = {0};
    duet_tape *tape;
    struct stream *stream = device_compute(device);
    void *memory[3];
    int n = 0;
    for (int i = 0; i < TABLE; i++)
        table[i] = (float)(i * 37 % 101 - 50) / 40;
    for (int s = 0; s < segments->count; s++)
        for (int k = 0; k < segments->seg[s].n; k++, n++) {
            int sample = first[segments->seg[s].v] + k;
            for (int i = 0; i < LENGTH; i++)
                index[n * LENGTH + i] = (sample * 5 + i * i) % ROWS;
            for (int i = 0; i < WIDTH; i++)
                dy[n * WIDTH + i] = (float)((sample * 11 + i * 7) % 19 - 9) / 7;
        }
    const size_t bytes[3] = {sizeof index, sizeof dy, sizeof(struct step_block)};
    for (int i = 0; i < 3; i++)
        MUST(device_alloc(device, &memory[i], bytes[i], MEM_WORKSPACE));
    MUST(param_set_init(&params, device, specs, 1));
    MUST(param_write_value(&params, 0, table));
    MUST(tape_init(&tape, device));
    MUST(copy_to_device(stream, memory[0], index, sizeof index));
    MUST(copy_to_device(stream, memory[1], dy, sizeof dy));
    duet_tensor indices = {.device = device,
                           .t = tensor_plain(memory[0], DTYPE_I32, 2, (int[]){n, LENGTH})};
    struct tensor grad = tensor_plain(memory[1], DTYPE_F32, 2, (int[]){n, WIDTH});
    struct tape_step step = {
        .segments = segments, .params = &params, .step = memory[2], .training = 1};
    MUST(tape_begin(tape, &step));
    duet_var *words = duet_embedding(tape, &indices, 0, -1), /* (n, LENGTH, WIDTH) */
        *turned = duet_reshape(tape, words, 3, (int[]){-1, WIDTH, LENGTH}),
             *row = duet_reshape(tape, words, 4, (int[]){-1, 1, LENGTH, WIDTH}),
             *columns = duet_reshape(tape, words, 4, (int[]){-1, LENGTH, WIDTH, 1}),
             *products = duet_matmul(tape, row, columns), /* broadcast: (n, LENGTH, LENGTH, 1) */
                 *scores = duet_add(tape, duet_matmul(tape, words, turned),
                                    duet_reshape(tape, products, 3, (int[]){-1, LENGTH, LENGTH})),
             *mean = duet_reshape(tape, duet_mean(tape, words, (int[]){1}, 1, 0), 3,
                                  (int[]){-1, 1, WIDTH}),
             *mixed = duet_multiply(tape, duet_matmul(tape, scores, words), mean),
             *y = duet_mean(tape, mixed, (int[]){1}, 1, 0);
    MUST(tape_error(tape));
    MUST(tape_backward(tape, y, &grad));
    MUST(param_read_grad(&params, 0, r->dw));
    MUST(copy_to_host(stream, r->y, y->value.data, tensor_bytes(&y->value)));
    MUST(stream_sync(stream));
    duet_tape_free(tape);
    param_set_free(&params);
    for (int i = 0; i < 3; i++)
        device_free(device, memory[i]);
}

/* The gradients of W devices are folded as DP folds them. */
static void train_on(int world, enum device_kind kind, struct result *all) {
    static struct result part[V];
    for (int r = 0; r < world; r++) {
        struct device_config config = {
            .kind = kind, .index = r, .memory_bytes = 8 << 20, .check_operands = 1};
        struct segments segments = segments_of(counts, V, r, world);
        struct device *device;
        MUST(device_open(&device, &config));
        run(device, &segments, &part[r]);
        device_close(device);
        for (int s = 0, at = 0; s < segments.count; at += segments.seg[s++].n)
            memcpy(all->y + first[segments.seg[s].v] * WIDTH, part[r].y + at * WIDTH,
                   (size_t)(segments.seg[s].n * WIDTH) * sizeof(float));
    }
    for (struct fold f = fold_begin(world); fold_next(&f);)
        for (int i = 0; i < TABLE; i++)
            part[f.to].dw[i] += part[f.from].dw[i];
    memcpy(all->dw, part[0].dw, sizeof all->dw);
}

Test(algebra, bits_do_not_depend_on_the_number_of_devices, .timeout = 60) {
    static struct result single, other;
    train_on(1, DEVICE_HOST, &single);
    for (int world = 1; world <= V; world *= 2) {
        train_on(world, DEVICE_HOST_LATE, &other);
        cr_assert(!memcmp(&other, &single, sizeof single), "%d devices", world);
    }
    float sum = 0;
    for (int i = 0; i < TABLE; i++)
        sum += fabsf(single.dw[i]);
    cr_assert_gt(sum, 1);
}

Test(algebra, samples_of_segments_are_not_mixed, .timeout = 60) {
    struct net net;
    open_net(&net, DEVICE_HOST, 0); /* four segments */
    for (int i = 0; i < 6; i++) {
        struct tensor w = tensor_plain(net.x, DTYPE_F32, 2, (int[2]){i < 4 ? 6 : 1, 6});
        begin(&net, 1);
        duet_var *x = leaf(&net, 6, 1), *m = tape_leaf(net.tape, &w, 1);
        duet_var *y =
            i == 0   ? duet_matmul(net.tape, x, m)
            : i == 1 ? duet_sum(net.tape, x, NULL, 0, 0)
            : i == 2 ? duet_mean(net.tape, x, (int[]){0}, 1, 0)
            : i == 3 ? duet_conv2d(net.tape, m, 0, DUET_NO_BIAS, NULL)
            : i == 4 ? duet_add(net.tape, x, m)
                     : duet_matmul(net.tape, m, duet_reshape(net.tape, x, 3, (int[]){-1, 6, 1}));
        cr_assert_null(y);
        cr_assert_eq(tape_error(net.tape), ERR_USAGE);
        cr_assert_not_null(strstr(error_message(), i != 3 ? "mix samples" : "6 rows"), "%s",
                           error_message());
    }
    net_close(&net);
}
