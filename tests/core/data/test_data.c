/* Data sets: the real files, and every way in which a file can be invalid. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "base/error.h"
#include "data/dataset.h"
#include "data/idx.h"
#include "tests/harness/scratch.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void put(const char *path, const void *bytes, size_t count) {
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, count, f), count);
    fclose(f);
}

/* Three images of 2 x 2, and their labels. */
static const uint8_t pictures[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                   0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const uint8_t marks[] = {0, 0, 8, 1, 0, 0, 0, 3, 9, 0, 4};

/* The error is one line, which says why and names the path. */
static void refused(int code, const char *path, const char *why) {
    cr_assert_eq(code, ERR_FAILED, "%s was taken", path);
    cr_assert(strstr(error_message(), why), "'%s' does not say '%s'", error_message(), why);
    cr_assert(strstr(error_message(), path), "'%s' does not name %s", error_message(), path);
    cr_assert_not(strchr(error_message(), '\n'));
}

static int read_idx(struct idx *x, const char *path, int dimensions) {
    int code = idx_open(x, path, dimensions);
    return code ? code : idx_load(x);
}

static void bad_idx(const char *name, const void *bytes, size_t count, const char *why) {
    struct idx x;
    put(in(name), bytes, count);
    refused(read_idx(&x, in(name), 3), in(name), why);
    cr_assert_null(x.data);
}

Test(idx, reads_raw, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    struct idx x;
    put(in("good"), pictures, sizeof pictures);
    cr_assert_eq(read_idx(&x, in("good"), 3), OK, "%s", error_message());
    cr_assert(x.size[0] == 3 && x.size[1] == 2 && x.size[2] == 2);
    cr_assert_arr_eq(x.data, pictures + 16, 12);
    idx_free(&x);
    idx_free(&x);
}

Test(idx, refuses_bad_files, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    uint8_t b[64];
    struct idx x;
    refused(read_idx(&x, in("absent"), 3), in("absent"), "No such file");
    refused(read_idx(&x, folder, 3), folder, "not a regular file");
    cr_assert_eq(mkfifo(in("pipe"), 0600), 0);
    refused(read_idx(&x, in("pipe"), 3), in("pipe"), "not a regular file");
    /* cut off at every byte */
    for (size_t n = 0; n < sizeof pictures; n++)
        bad_idx("short", pictures, n, "truncated");
    memcpy(b, pictures, sizeof pictures);
    b[sizeof pictures] = 0;
    bad_idx("long", b, sizeof pictures + 1, "more bytes");
    bad_idx("labels", marks, sizeof marks, "wrong magic number");
    memcpy(b, pictures, sizeof pictures), b[2] = 9;
    bad_idx("type", b, sizeof pictures, "wrong magic number");
    memcpy(b, pictures, sizeof pictures), b[7] = 0;
    bad_idx("none", b, sizeof pictures, "size out of range");
    memcpy(b, pictures, sizeof pictures), memset(b + 4, 0xff, 12); /* the product exceeds 64 bits */
    bad_idx("huge", b, sizeof pictures, "size out of range");
    memcpy(b, pictures, sizeof pictures), b[4] = 4; /* 256 MiB promised, 12 bytes present */
    bad_idx("much", b, sizeof pictures, "truncated");
    bad_idx("raw.gz", pictures, sizeof pictures, "not a gzip file");
    bad_idx("empty.gz", "", 0, "not a gzip file");
}

#ifdef HAVE_ZLIB
/* Packs into out, which has 64 KiB, and returns the size of the packed file. */
static size_t pack(const void *bytes, size_t count, uint8_t *out) {
    gzFile f = gzopen(in("packed"), "wb");
    gzwrite(f, bytes, (unsigned)count);
    gzclose(f);
    FILE *r = fopen(in("packed"), "r");
    size_t n = fread(out, 1, 1 << 16, r);
    fclose(r);
    return n;
}
#endif

Test(idx, gzip, .timeout = 60, .init = scratch_make, .fini = scratch_remove) {
#ifdef HAVE_ZLIB
    static uint8_t gz[1 << 16], twice[1 << 17], b[64], large[16 + 200 * 200];
    struct idx x;
    size_t n = pack(pictures, sizeof pictures, gz);
    put(in("good.gz"), gz, n);
    cr_assert_eq(read_idx(&x, in("good.gz"), 3), OK, "%s", error_message());
    cr_assert_arr_eq(x.data, pictures + 16, 12);
    idx_free(&x);
    put(in("good"), gz, n); /* gzip is recognised by content, not by name */
    cr_assert_eq(read_idx(&x, in("good"), 3), OK, "%s", error_message());
    idx_free(&x);
    for (size_t cut = 2; cut < n; cut++)
        bad_idx("short.gz", gz, cut, "truncated");
    for (size_t cut = 0; cut <= sizeof pictures; cut++) { /* gzip members, one after the other */
        size_t first = pack(pictures, cut, twice);
        first += pack(pictures + cut, sizeof pictures - cut, twice + first);
        put(in("members.gz"), twice, first);
        cr_assert_eq(read_idx(&x, in("members.gz"), 3), OK, "%s", error_message());
        cr_assert_arr_eq(x.data, pictures + 16, 12);
        idx_free(&x);
    }
    memcpy(twice, gz, n), memcpy(twice + n, gz, n);
    bad_idx("twice.gz", twice, 2 * n, "more bytes");
    memcpy(twice, gz, n), twice[n - 6] ^= 1; /* the check sum */
    bad_idx("sum.gz", twice, n, "broken gzip");
    memcpy(twice, gz, n), twice[12] = 0xff; /* the packed data */
    bad_idx("junk.gz", twice, n, "gz");
    memcpy(b, pictures, sizeof pictures), b[sizeof pictures] = 0;
    n = pack(b, sizeof pictures + 1, gz);
    bad_idx("long.gz", gz, n, "more bytes");
    n = pack(pictures, sizeof pictures - 1, gz);
    bad_idx("less.gz", gz, n, "truncated");
    memcpy(large, pictures, 16), large[7] = 1, large[11] = 200, large[15] = 200;
    for (int i = 0; i < 200 * 200; i++)
        large[16 + i] = (uint8_t)(i * i >> 4 ^ i);
    n = pack(large, sizeof large, gz);
    put(in("large.gz"), gz, n);
    cr_assert_eq(read_idx(&x, in("large.gz"), 3), OK, "%s", error_message());
    cr_assert_arr_eq(x.data, large + 16, 200 * 200);
    idx_free(&x);
#else
    static const uint8_t gz[] = {0x1f, 0x8b, 8, 0};
    bad_idx("any.gz", gz, sizeof gz, "built without zlib");
#endif
}

/* A gigabyte of zeros in 5 MB, as its header promises. Since there are 3 labels, it is refused
 * before it is unpacked. */
Test(dataset, a_gzip_bomb, .timeout = 60, .init = scratch_make, .fini = scratch_remove) {
#ifndef HAVE_ZLIB
    cr_skip_test("built without zlib");
#else
    static const uint8_t promise[] = {0, 0, 8, 3, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0};
    static uint8_t zeros[1 << 20];
    struct dataset set;
    put(in("train-labels-idx1-ubyte"), marks, sizeof marks);
    gzFile f = gzopen(in("train-images-idx3-ubyte.gz"), "wb1");
    gzwrite(f, promise, sizeof promise);
    for (int i = 0; i < 1024; i++)
        gzwrite(f, zeros, sizeof zeros);
    gzclose(f);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    refused(dataset_open(&set, "mnist", folder, 1), folder, "differ in number: 1024 in");
    getrusage(RUSAGE_SELF, &after);
    cr_assert_lt(after.ru_maxrss - before.ru_maxrss, 100 << 10, "KiB, a tenth of what it promises");
    /* Deflate cannot pack what this header promises into so few bytes. */
    f = gzopen(in("few.gz"), "wb");
    gzwrite(f, promise, sizeof promise);
    gzwrite(f, zeros, 1000);
    gzclose(f);
    struct idx x;
    refused(read_idx(&x, in("few.gz"), 3), in("few.gz"), "truncated");
#endif
}

Test(dataset, images_and_labels_must_agree, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct dataset set;
    uint8_t b[16];
    put(in("train-images-idx3-ubyte"), pictures, sizeof pictures);
    refused(dataset_open(&set, "mnist", folder, 1), folder, "not complete");
    put(in("train-labels-idx1-ubyte"), marks, sizeof marks);
    cr_assert_eq(dataset_open(&set, "mnist", folder, 1), OK, "%s", error_message());
    cr_assert(set.count == 3 && set.shape.height == 2 && set.shape.width == 2);
    cr_assert(set.images[11] == 255 && set.labels[0] == 9 && set.labels[2] == 4);
    cr_assert_str_eq(set.name, "mnist");
    dataset_free(&set);
    dataset_free(&set);
    memcpy(b, marks, sizeof marks), b[9] = 255;
    put(in("train-labels-idx1-ubyte"), b, sizeof marks);
    cr_assert_eq(dataset_open(&set, "mnist", folder, 1), OK, "%s", error_message());
    cr_assert_eq(set.classes, 256, "1 + the largest label");
    dataset_free(&set);
    memcpy(b, marks, sizeof marks), b[7] = 2;
    put(in("train-labels-idx1-ubyte"), b, sizeof marks - 1);
    refused(dataset_open(&set, "mnist", folder, 1), folder, "differ in number: 3 in");
    refused(dataset_open(&set, "mnist", folder, 0), folder, "not found"); /* the test part */
}

Test(dataset, a_missing_set_names_all_ways_out, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    struct dataset set;
    struct dataset_config config = {.name = "fashion-mnist", .folder = in("nowhere")};
    refused(dataset_make(&set, &config, 1), in("nowhere"), "not found: fashion-mnist");
    const char *ways[] = {"apt install dataset-fashion-mnist", "make data", "--data-dir DIR",
                          "--dataset synthetic"};
    for (int i = 0; i < COUNT(ways); i++)
        cr_assert(strstr(error_message(), ways[i]), "no way '%s'", ways[i]);
    cr_assert_eq(chdir(folder), 0); /* NULL as folder: searches below the current folder */
    cr_assert_eq(dataset_open(&set, "mnist", NULL, 1), ERR_FAILED);
    cr_assert(strstr(error_message(), "not found: mnist: make data"), "%s", error_message());
    cr_assert_not(strstr(error_message(), "apt"), "no package has mnist: %s", error_message());
    cr_assert(mkdir("datasets", 0700) == 0 && mkdir("datasets/mnist", 0700) == 0);
    put("datasets/mnist/t10k-images-idx3-ubyte", pictures, sizeof pictures);
    put("datasets/mnist/t10k-labels-idx1-ubyte", marks, sizeof marks);
    cr_assert_eq(dataset_open(&set, "mnist", NULL, 0), OK, "%s", error_message());
    dataset_free(&set);
    cr_assert_eq(dataset_open(&set, "cifar", NULL, 1), ERR_USAGE);
    cr_assert(strstr(error_message(), "cifar"));
    cr_assert_eq(chdir("/"), 0);
}

Test(dataset, the_real_fashion_mnist, .timeout = 60) {
    const char *place = "/usr/share/datasets/fashion-mnist";
    if (access(place, F_OK))
        cr_skip_test("%s is not there: apt install dataset-fashion-mnist", place);
#ifndef HAVE_ZLIB
    cr_skip_test("built without zlib: the package's files are packed");
#endif
    static const uint8_t train_first[] = {9, 0, 0, 3, 0, 2, 7, 2, 5, 5},
                         test_first[] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7};
    for (int train = 0; train < 2; train++) {
        struct dataset set;
        cr_assert_eq(dataset_open(&set, "fashion-mnist", place, train), OK, "%s", error_message());
        cr_assert_eq(set.count, train ? 60000 : 10000);
        cr_assert(set.shape.channels == 1 && set.shape.height == 28 && set.shape.width == 28 &&
                  set.classes == 10);
        cr_assert_arr_eq(set.labels, train ? train_first : test_first, 10);
        int of_class[10] = {0};
        double sum = 0;
        for (int i = 0; i < set.count; i++)
            of_class[set.labels[i]]++;
        for (int i = 0; i < 10; i++)
            cr_assert_eq(of_class[i], set.count / 10, "class %d", i);
        for (int64_t i = 0; i < set.count * 784ll; i++)
            sum += set.images[i];
        /* the mean pixel of the real training images */
        if (train) cr_assert_float_eq(sum / (60000.0 * 784 * 255), 0.2860405969887955, 1e-12);
        dataset_free(&set);
    }
}
