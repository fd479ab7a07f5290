/* OP_GATHER_SAMPLES and OP_GATHER_ROWS on a GPU: the text of their kernels run on the host with
 * every grid and alignment, as in tests/cuda/test_index.c; and launched, where there is a GPU (or
 * the emulated runtime). */
#include "tests/cuda/index.h"
#include "tests/data/device_dataset.h"

/* The operands have exactly their size and lie `shift` elements off their alignment. */
static void run_gather(const struct gather_set *s, struct gather_args p, struct grid grid,
                       size_t shift) {
    struct heap heap = {0};
    size_t pixels = gather_count(s), set = (size_t)s->rows * pixels, batch = (size_t)s->n * pixels;
    uint8_t *images = (uint8_t *)heap_take(&heap, set + shift) + shift,
            *labels = heap_take(&heap, (size_t)s->rows);
    float *x = (float *)heap_take(&heap, (batch + shift) * 4) + shift;
    int32_t *x_labels = heap_take(&heap, (size_t)s->n * 4);
    memcpy(images, s->images, set);
    memcpy(labels, s->labels, (size_t)s->rows);
    struct op_args a = gather_op(s, p, images, labels, s->index, x, x_labels);
    struct gather g = {
        0}; /* zeroed for the compiler: it does not know that a failed assertion ends the test */
    MUST(op_check(OP_GATHER_SAMPLES, &a));
    cr_assert(gather_of(&a, &g));
    cr_assert_eq(g.aligned,
                 (uintptr_t)images % 4 == 0 && (uintptr_t)x % 16 == 0 && pixels % 4 == 0);
    RUN_THREADS(k_gather_samples, &g, grid);
    gather_expect(s, p, x, x_labels, "the kernel's text");
    heap_free(&heap);
}

Test(cuda_gather, the_text_of_the_kernel_on_every_grid, .timeout = 60) {
    static const int shapes[][5] = {
        {5, 1, 16, 16, 9}, {3, 3, 5, 7, 11}, {9, 1, 1, 1, 70}, {4, 2, 3, 2, 0}, {7, 1, 1, 5, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int g = 0; g < ODD_GRIDS; g++)
            for (size_t shift = 0; shift < 5; shift++) {
                struct gather_set s = gather_make(shapes[i][0], shapes[i][1], shapes[i][2],
                                                  shapes[i][3], shapes[i][4]);
                run_gather(&s, gather_scales[(size_t)g % GATHER_SCALES], odd_grids[g], shift);
                if (s.n) s.index[0] = s.rows, s.index[s.n - 1] = -1;
                run_gather(&s, gather_scales[3], odd_grids[g], shift);
                gather_free(&s);
            }
}

Test(cuda_gather, a_batch_that_does_not_fit_its_indices_is_seen, .timeout = 10) {
    struct gather_set s = {1, {1, 1 << 15, 1 << 14}, 3, NULL, NULL, NULL};
    int place[5]; /* never read or written */
    struct gather g;
    struct op_args a =
        gather_op(&s, gather_scales[0], place, place + 1, place + 2, place + 3, place + 4);
    cr_assert(gather_of(&a, &g), "3 times 2^29 pixels");
    a.in[2].dims[0] = a.out[0].dims[0] = 4;
    cr_assert(!gather_of(&a, &g));
}

static struct device *open_gpu(void) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    struct device *d;
    int gpus;
    config.memory_bytes = 128 << 20; /* the workspace takes half of it */
    if (device_probe(DEVICE_CUDA, &gpus)) return NULL;
    MUST(device_open(&d, &config));
    return d;
}

Test(cuda_gather, launched_it_does_the_same, .timeout = 120) {
    struct device *d = open_gpu();
    if (!d) cr_skip_test("no GPU: %s", error_message());
    gather_all_shapes(d);
    gather_outside(d);
    resident_arrives_whole(d);
    resident_batches_equal_the_loaders(d);
    resident_too_large(d, 70000); /* bytes, of the 64 MiB that are left */
    device_close(d);
}
