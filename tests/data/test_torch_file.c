/* Files of torch.save: what PyTorch wrote is read, and what is no state_dict, or is cut or changed,
 * is refused in one line. The files are made by tests/golden/make_torch_files.py. */
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "data/safetensors.h"
#include "data/torch_file.h"
#include "tests/harness/harness.h"

#define FILES "tests/golden/torch_files/"

enum { MOST = 1 << 14 };

static const struct safetensors_entry *entry(const struct safetensors *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (!strcmp(s->entries[i].name, name)) return &s->entries[i];
    cr_assert_fail("no tensor %s in %s", name, s->path);
    return NULL;
}

static void opened(struct safetensors *s, const char *path, int count) {
    cr_assert_eq(safetensors_open(s, path), OK, "%s", error_message());
    cr_expect_eq(s->count, count, "%s: %d tensors", path, s->count);
}

/* The tensor's numbers are eighths that count up from `first`. */
static void counts_up(const struct safetensors *s, const char *name, int dims, int rows,
                      int columns, int first) {
    float got[100];
    cr_assert_leq(rows * columns, 100);
    cr_assert_eq(safetensors_read(s, name, dims, (int64_t[]){rows, columns}, got), OK, "%s",
                 error_message());
    for (int i = 0; i < rows * columns; i++)
        cr_assert_eq(got[i], (float)(first + i) / 8, "%s[%d]: %g", name, i, (double)got[i]);
}

Test(torch_file, a_state_dict, .timeout = 30) {
    static const char *const same[] = {FILES "simple.pth", FILES "module.pth",
                                       FILES "parameters.pth", FILES "simple.safetensors"};
    struct safetensors s;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        opened(&s, same[i], 2);
        counts_up(&s, "fc.weight", 2, 10, 10, 0);
        counts_up(&s, "fc.bias", 1, 10, 1, 100);
        safetensors_close(&s);
    }
    opened(&s, FILES "batch_norm.pth", 5);
    int64_t batches;
    counts_up(&s, "running_var", 1, 3, 1, 9);
    cr_assert_eq(safetensors_read_as(&s, "I64", "num_batches_tracked", 0, NULL, &batches), OK);
    cr_expect_eq(batches, 12);
    safetensors_close(&s);
}

Test(torch_file, tensors_that_share_a_storage_and_all_types, .timeout = 30) {
    static const char *const types[][2] = {
        {"float32", "F32"}, {"float64", "F64"}, {"float16", "F16"}, {"bfloat16", "BF16"},
        {"int64", "I64"},   {"int32", "I32"},   {"int16", "I16"},   {"int8", "I8"},
        {"uint8", "U8"},    {"bool", "BOOL"},
    };
    struct safetensors s;
    opened(&s, FILES "views.pth", 2);
    counts_up(&s, "all", 2, 2, 4, 0);
    counts_up(&s, "middle", 1, 3, 1, 3);
    safetensors_close(&s);
    opened(&s, FILES "types.pth", 10);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        cr_expect_str_eq(entry(&s, types[i][0])->dtype, types[i][1]);
    float none[3], halves[3], bfloats[3], whole[3];
    int64_t three = 3;
    cr_assert_eq(safetensors_read(&s, "float32", 1, &three, whole), OK);
    cr_assert_eq(safetensors_read(&s, "float16", 1, &three, halves), OK, "%s", error_message());
    cr_assert_eq(safetensors_read(&s, "bfloat16", 1, &three, bfloats), OK, "%s", error_message());
    cr_expect_arr_eq(halves, whole, sizeof whole);
    cr_expect_arr_eq(bfloats, whole, sizeof whole);
    cr_expect_str_eq(safetensors_halves(&s), "F16");
    cr_expect_eq(safetensors_read(&s, "float64", 1, (int64_t[]){3}, none), ERR_FAILED);
    cr_expect_not_null(strstr(error_message(), "is not float32"), "%s", error_message());
    safetensors_close(&s);
}

static void refused(const char *path, const char *why) {
    struct safetensors s;
    cr_assert_eq(safetensors_open(&s, path), ERR_FAILED, "%s: %s", path, why);
    cr_expect(strstr(error_message(), why) && strstr(error_message(), path) &&
                  !strchr(error_message(), '\n'),
              "%s lacks %s", error_message(), why);
}

Test(torch_file, what_is_no_state_dict_is_refused_by_name, .timeout = 30) {
    refused(FILES "refused/model.pth", "it names __main__.SimpleModel, which no state_dict needs");
    refused(FILES "refused/checkpoint.pth", "'model' in it is no tensor");
    refused(FILES "refused/optimizer.pth", "'state' in it is no tensor");
    refused(FILES "refused/legacy.pth", "the format before PyTorch 1.6");
    refused(FILES "refused/protocol.pth", "not of protocol 2");
    refused(FILES "refused/strided.pth", "not contiguous");
    refused(FILES "refused/sparse.pth", "it names torch._utils._rebuild_sparse_tensor");
    refused(FILES "refused/tensor.pth", "no dict of tensors");
    refused(FILES "refused/compressed.pth", "record 'data.pkl' is compressed");
}

/* ---- broken files ---- */

static char folder[] = "/tmp/duet-test-XXXXXX", bad[64];
static unsigned char whole[MOST];
static size_t size;

static void bad_make(void) {
    FILE *file = fopen(FILES "simple.pth", "r");
    cr_assert_not_null(file);
    size = fread(whole, 1, MOST, file);
    fclose(file);
    cr_assert_not_null(mkdtemp(folder));
    snprintf(bad, sizeof bad, "%s/bad.pth", folder);
}

static void bad_remove(void) {
    unlink(bad);
    cr_assert_eq(rmdir(folder), 0);
}

static void put(const unsigned char *bytes, size_t count) {
    int fd = open(bad, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && !close(fd));
}

Test(torch_file, a_file_that_is_cut_anywhere_is_refused, .timeout = 60, .init = bad_make,
     .fini = bad_remove) {
    for (size_t length = 0; length < size; length++) {
        put(whole, length);
        refused(bad, "");
    }
}

/* The first place of `text` in the file, from `from` on. */
static unsigned char *find(const char *text, size_t length, size_t from) {
    unsigned char *at = memmem(whole + from, size - from, text, length);
    cr_assert_not_null(at);
    return at;
}

/* Replaces one byte by another, looks at the error, and puts it back. */
static void changed(unsigned char *at, unsigned char byte, const char *why) {
    unsigned char before = *at;
    *at = byte;
    put(whole, size);
    refused(bad, why);
    *at = before;
}

Test(torch_file, a_number_that_is_wrong_is_refused, .timeout = 60, .init = bad_make,
     .fini = bad_remove) {
    unsigned char *directory = find("PK\1\2", 4, 0), *pickle = find("\x80\2c", 3, 0);
    unsigned char *end = find("PK\5\6", 4, 0), *shape = find("K\nK\n\x86", 5, 0);
    changed(directory + 10, 8, "record 'data.pkl' is compressed");
    changed(directory + 8, 1, "is encrypted");
    changed(directory + 42, 99, "there is no record 'data.pkl' where");
    changed(directory + 45, 99, "lies outside the file");
    changed(directory + 23, 99, "is compressed"); /* two sizes that differ */
    changed(end + 19, 99, "directory lies outside the file");
    changed(end + 11, 99, "directory lies outside the file");
    changed(pickle + 1, 3, "not of protocol 2");
    changed(shape + 1, 200, "a tensor lies outside its storage");
    changed(shape + 3, 255, "not contiguous");
    changed(find("q\0", 2, 0) + 1, 9, "torn");
    changed(find("little", 6, 0), 'x', "not little-endian");
    changed(find("collections", 11, 0), 'C', "it names Collections.OrderedDict");
    changed(find("fc.bias", 7, 0), '\n', "control character");
    changed(find("FloatStorage", 12, 0), 'f', "it names torch.floatStorage");
    changed(find("data/1", 6, (size_t)(directory - whole)), 'x', "there is no record 'data/1'");
}
