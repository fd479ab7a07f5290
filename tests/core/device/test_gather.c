/* OP_GATHER_SAMPLES on devices of all kinds: the floats are those of the formula and of the loader,
 * to the bit. */
#include "data/loader.h"
#include "tests/core/device/gather.h"

Test(gather, every_shape_and_byte, .timeout = 60) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = test_open(all_kinds[k], 0);
        gather_all_shapes(d);
        device_close(d);
    }
}

Test(gather, an_index_outside_reads_nothing, .timeout = 30) {
    for (int k = 0; k < ALL_KINDS; k++) {
        struct device *d = test_open(all_kinds[k], 0);
        gather_outside(d);
        device_close(d);
    }
}

/* The loader's batch of the same samples. */
Test(gather, has_the_loaders_bits_for_all_256_bytes, .timeout = 30) {
    struct gather_set s = gather_make(2, 1, 16, 16, 2);
    struct dataset set = {.name = "bytes",
                          .count = 2,
                          .shape = {1, 16, 16},
                          .classes = 256,
                          .images = s.images,
                          .labels = s.labels};
    struct device *d = test_open(DEVICE_HOST, 0);
    int seen[256] = {0};
    for (int i = 0; i < 512; i++)
        seen[s.images[i]] = 1;
    for (int i = 0; i < 256; i++)
        cr_assert(seen[i], "byte %d is missing", i);
    for (int p = 0; p < GATHER_SCALES; p++) {
        struct loader_config c = {.set = &set,
                                  .split = {SPLIT_STRIDED, 1, 1},
                                  .batch_size = 2,
                                  .device_count = 1,
                                  .mean = gather_scales[p].mean,
                                  .std = gather_scales[p].std};
        struct loader *l;
        struct batch *b;
        MUST(loader_init(&l, &c));
        MUST(loader_start_epoch(l, 0, 0));
        MUST(loader_next(l, &b));
        s.index[0] = 0, s.index[1] = 1; /* not shuffled */
        gather_expect(&s, gather_scales[p], b->pixels, b->labels, "the loader");
        gather_on(d, &s, gather_scales[p], 0);
        loader_free(l);
    }
    device_close(d);
    gather_free(&s);
}
