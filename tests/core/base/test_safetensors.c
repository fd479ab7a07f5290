/* safetensors: Duet reads back what it writes, reads what PyTorch wrote, and refuses invalid
 * files. */
#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/json.h"
#include "base/files/safetensors.h"
#include "tests/harness/scratch.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* Writes the file `bad`: a length, which may be false, the header, and `data` zero bytes. */
static void put(const char *header, uint64_t length, size_t data) {
    FILE *f = fopen(in("bad"), "w");
    fwrite(&length, 8, 1, f);
    fputs(header, f);
    for (size_t i = 0; i < data; i++)
        fputc(0, f);
    fclose(f);
}

/* Opens, writes and commits a file. */
static int written(const char *path, const struct safetensors_item *items, int count,
                   const struct safetensors_pair *metadata, int pairs) {
    struct atomic_file f = {0};
    int code = atomic_open(&f, path);
    if (!code) code = safetensors_write(&f, items, count, metadata, pairs);
    if (!code) code = atomic_commit(&f);
    atomic_abandon(&f);
    return code;
}

/* Each of the 65536 numbers of a type of two bytes. */
static void read_all_halves(const char *type, float *got) {
    char header[100];
    struct safetensors s;
    uint64_t length = (uint64_t)snprintf(
        header, sizeof header,
        "{\"h\":{\"dtype\":\"%s\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", type);
    FILE *f = fopen(in("halves"), "w");
    fwrite(&length, 8, 1, f);
    fputs(header, f);
    for (int i = 0; i < 65536; i++)
        fwrite(&(uint16_t){(uint16_t)i}, 2, 1, f);
    fclose(f);
    cr_assert_eq(safetensors_open(&s, in("halves")), OK, "%s", error_message());
    cr_expect_str_eq(safetensors_halves(&s), type);
    cr_assert_eq(safetensors_read(&s, "F32", "h", 1, (int64_t[]){65536}, got), OK, "%s",
                 error_message());
    safetensors_close(&s);
}

Test(safetensors, halves_become_floats, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    static float got[65536];
    read_all_halves("F16", got);
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double size = exponent == 31 ? fraction ? NAN : INFINITY
                      : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                     : ldexp(fraction, -24);
        if (isnan(size))
            cr_expect(isnan(got[i]), "%#x", i);
        else
            cr_expect(fabs((double)got[i]) == size && !signbit(got[i]) == (i < 32768),
                      "%#x: %g, not %g", i, (double)got[i], size);
    }
    read_all_halves("BF16", got);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], 4);
        cr_expect(bits == i << 16 || isnan(got[i]), "%#x: %#x", i, bits);
    }
}

Test(safetensors, round_trip, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    float a[6] = {1, -2, 3e-40f, NAN, INFINITY, 0x1.fffffep127f}, b[1] = {7}, got[6];
    int64_t whole = -(1LL << 40) + 5, whole_got;
    struct safetensors_item items[] = {
        {.name = "W1", .dims = 2, .shape = {2, 3}, .data = a},
        {.name = "b\"1\xc3\xa9", .dims = 1, .shape = {1}, .data = b, .dtype = "F32"},
        {.name = "scalar", .dims = 0, .shape = {0}, .data = b},
        {.name = "whole", .dims = 0, .shape = {0}, .data = &whole, .dtype = "I64"},
        {.name = "none", .dims = 2, .shape = {0, 5}, .data = a}};
    struct safetensors_pair metadata[] = {{"epoch", "3"}, {"note", "two\nlines"}};
    struct safetensors s;
    cr_assert_eq(written(in("f"), items, 5, metadata, 2), OK, "%s", error_message());
    cr_assert_eq(safetensors_open(&s, in("f")), OK, "%s", error_message());
    cr_assert_eq(s.count, 5);
    for (int i = 0; i < s.count; i++)
        cr_assert_eq(s.entries[i].offset % 4, 0u);
    cr_assert_eq(s.entries[0].offset % 8, 0u, "data begins at %llu",
                 (unsigned long long)s.entries[0].offset);
    cr_assert_eq(safetensors_read(&s, "F32", "W1", 2, (int64_t[]){2, 3}, got), OK, "%s",
                 error_message());
    cr_assert_arr_eq(got, a, sizeof a);
    cr_assert_eq(safetensors_read(&s, "F32", "b\"1\xc3\xa9", 1, (int64_t[]){1}, got), OK, "%s",
                 error_message());
    cr_assert_eq(got[0], 7.0f);
    cr_assert_eq(safetensors_read(&s, "F32", "scalar", 0, NULL, got), OK, "%s", error_message());
    cr_assert_eq(safetensors_read(&s, "I64", "whole", 0, NULL, &whole_got), OK, "%s",
                 error_message());
    cr_assert_eq(whole_got, whole);
    cr_assert_eq(safetensors_read(&s, "F32", "whole", 0, NULL, got), ERR_FAILED);
    cr_assert(strstr(error_message(), "not float32"), "%s", error_message());
    cr_assert_eq(safetensors_read(&s, "I64", "scalar", 0, NULL, &whole_got), ERR_FAILED);
    cr_assert(strstr(error_message(), "not int64"), "%s", error_message());
    const struct json *about = json_find(s.header, "__metadata__");
    cr_assert_eq(about->count, 2);
    cr_assert_str_eq(json_find(about, "note")->string, "two\nlines");
    cr_assert_eq(safetensors_read(&s, "F32", "W1", 2, (int64_t[]){3, 2}, got), ERR_FAILED);
    cr_assert(strstr(error_message(), "'W1'") && strstr(error_message(), "[2, 3]") &&
              strstr(error_message(), "[3, 2]"));
    cr_assert_eq(safetensors_read(&s, "F32", "W1", 1, (int64_t[]){6}, got), ERR_FAILED);
    cr_assert_eq(safetensors_read(&s, "F32", "W2", 1, (int64_t[]){6}, got), ERR_FAILED);
    cr_assert(strstr(error_message(), "'W2'") && strstr(error_message(), in("f")), "%s",
              error_message());
    safetensors_close(&s);
    safetensors_close(&s);
    cr_assert_eq(written(in("empty"), NULL, 0, NULL, 0), OK);
    cr_assert_eq(safetensors_open(&s, in("empty")), OK, "%s", error_message());
    cr_assert(s.count == 0 && s.header->count == 0, "no metadata");
    safetensors_close(&s);
    items[1].name = "W1";
    cr_assert_eq(written(in("twice"), items, 2, NULL, 0), ERR_FAILED);
    cr_assert(access(in("twice"), F_OK) != 0);
    cr_assert_eq(written("/nonexistent-folder/f", items, 1, NULL, 0), ERR_FAILED);
    cr_assert(strstr(error_message(), "/nonexistent-folder/f"));
}

/* A type that Duet does not know is an error of the tensor that is asked for alone. */
Test(safetensors, unknown_types_and_doubles, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    const char *header = "{\"c\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                         "\"four\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[8,12]},"
                         "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[12,28]}} ";
    const double numbers[2] = {1.0 / 3, -1e300};
    struct safetensors s;
    float x[2];
    put(header, strlen(header), 28);
    FILE *f = fopen(in("bad"), "r+");
    fseek(f, (long)(8 + strlen(header) + 12), SEEK_SET);
    fwrite(numbers, sizeof *numbers, 2, f);
    fclose(f);
    cr_assert_eq(safetensors_open(&s, in("bad")), OK, "%s", error_message());
    cr_assert_eq(safetensors_read(&s, "F32", "d", 1, (int64_t[]){2}, x), OK, "%s", error_message());
    cr_expect(x[0] == 1.0f / 3 && x[1] == -INFINITY);
    cr_assert_eq(safetensors_read(&s, "F32", "c", 1, (int64_t[]){1}, x), ERR_FAILED);
    cr_expect(strstr(error_message(), "tensor 'c' is not float32") &&
                  strstr(error_message(), "has C64"),
              "%s", error_message());
    safetensors_close(&s);
}

/* Wrappers' prefixes, one in the other; where two names would be equal they stay as they are. */
Test(safetensors, prefixes, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    static const char *const keys[][3] = {{"module.module.a", "a", "b"},
                                          {"_orig_mod.module.a", "a", "b"},
                                          {"module.b", "module.b", "b"}};
    for (int i = 0; i < COUNT(keys); i++) {
        char header[200];
        struct safetensors s;
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                 keys[i][0]);
        put(header, strlen(header), 3);
        cr_assert_eq(safetensors_open(&s, in("bad")), OK, "%s", error_message());
        cr_expect_str_eq(s.entries[0].name, keys[i][1]);
        cr_expect_str_eq(s.entries[1].name, keys[i][2]);
        safetensors_close(&s);
    }
}

/* A file of another kind is named by what it is. */
Test(safetensors, other_kinds_of_files, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    static const struct {
        char head[28];
        const char *is;
    } kinds[] = {{"PK\3\4aaaaaaaaa", "torch.save: convert it: python -m duet convert"},
                 {"\x80\2\x8a\nl\xfc\x9c", "bad.safetensors"},
                 {"\x80\4\x95\rl\xfc\x9c", "a file of torch.save"},
                 {"L119547037146038801333356L\n", "a file of torch.save"},
                 {"\x1f\x8b\bxxxxxxxxxxx", "a gzip file: gunzip it"},
                 {"\x93NUMPYxxxxxxxxx", "an array of numpy"},
                 {"duet 1\ninput", "an exported model (.duet): give it with --model"}};
    for (int i = 0; i < COUNT(kinds); i++) {
        struct safetensors s;
        FILE *f = fopen(in("bad"), "w");
        fwrite(kinds[i].head, sizeof kinds[i].head, 1, f);
        fclose(f);
        cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED);
        cr_expect(strstr(error_message(), "not a safetensors file: ") &&
                      strstr(error_message(), kinds[i].is),
                  "%s", error_message());
    }
}

Test(safetensors, names_of_ddp_and_other_types, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    const char *header =
        "{\"module.fc.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
        "\"n\":{\"shape\":[],\"dtype\":\"I64\",\"data_offsets\":[0,8]}}   ";
    struct safetensors s;
    float x = 1;
    put(header, strlen(header), 12);
    cr_assert_eq(safetensors_open(&s, in("bad")), OK, "%s", error_message());
    cr_assert_eq(safetensors_read(&s, "F32", "fc.weight", 1, (int64_t[]){1}, &x), OK, "%s",
                 error_message());
    cr_assert_eq(x, 0.0f);
    cr_assert_eq(safetensors_read(&s, "F32", "n", 0, NULL, &x), ERR_FAILED);
    cr_assert(strstr(error_message(), "I64"), "%s", error_message());
    cr_assert_str_eq(s.entries[0].name, "n");
    cr_assert(s.entries[0].count == 1 && s.entries[0].bytes == 8);
    safetensors_close(&s);
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to \
    "]}"

Test(safetensors, refuses_bad_headers, .timeout = 30, .init = scratch_make,
     .fini = scratch_remove) {
    static const struct {
        const char *header;
        size_t data;
        const char *why;
    } bad[] = {
        {"", 0, "not an object"},
        {"[]", 0, "not an object"},
        {" {}", 0, "not an object"},
        {"{\"a\":", 0, "JSON"},
        {"{} x", 0, "JSON"},
        {"{}", 4, "more data"},
        {"{\"a\":1}", 0, "not {dtype"},
        {"{\"a\":{}}", 0, "not {dtype"},
        {"{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         "not {dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offset\":[0,4]}}", 4, "data_offsets"},
        {"{" T("a", "F32", "2", 0, 4) "}", 4, "disagree"},
        {"{" T("a", "F32", "1", 4, 0) "}", 4, "outside"},
        {"{" T("a", "F32", "1", 0, 8) "}", 4, "outside"},
        {"{" T("a", "F32", "1", 4, 8) "}", 8, "hole"},
        {"{" T("a", "F32", "1", -4, 0) "}", 4, "integers"},
        {"{" T("a", "F32", "1", 0, 4.0) "}", 4, "integers"},
        {"{" T("a", "F32", "-1", 0, 4) "}", 4, "not an integer"},
        {"{" T("a", "F32", "1.0", 0, 4) "}", 4, "not an integer"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4, "8 dimensions"},
        {"{" T("a", "F32", "4294967296,4294967296", 0, 0) "}", 0, "too large"},
        /* The shape times 4 bytes is 4, modulo 2^64. */
        {"{" T("a", "F32", "4611686018427387905", 0, 4) "}", 4, "disagree"},
        {"{" T("a", "F32", "2", 0, 8) "," T("b", "F32", "2", 4, 12) "}", 12, "overlaps"},
        {"{" T("a", "F32", "1", 0, 4) "," T("b", "F32", "1", 0, 4) "}", 4, "overlaps"},
        {"{" T("a", "F32", "1", 0, 4) "," T("b", "F32", "1", 8, 12) "}", 12, "hole"},
        {"{" T("a", "F32", "1", 0, 4) "," T("a", "F32", "1", 4, 8) "}", 8, "twice"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
    };
    struct safetensors s;
    for (int i = 0; i < COUNT(bad); i++) {
        put(bad[i].header, strlen(bad[i].header), bad[i].data);
        cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED, "header %d was taken", i);
        cr_assert(strstr(error_message(), bad[i].why), "header %d: '%s' does not say '%s'", i,
                  error_message(), bad[i].why);
        cr_assert(strstr(error_message(), in("bad")), "header %d: %s", i, error_message());
        cr_assert(!s.path && !s.header && !s.entries);
    }
    const char *good = "{" T("a", "F32", "1", 0, 4) "}";
    put(good, strlen(good) + 5, 4);
    cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED);
    cr_assert(strstr(error_message(), "longer than the file"), "%s", error_message());
    put(good, UINT64_MAX, 4);
    cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED);
    put(good, 100000001, 4);
    cr_assert_eq(truncate(in("bad"), 200000000), 0); /* a sparse file that is long enough */
    cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED);
    cr_assert(strstr(error_message(), "100 MB"), "%s", error_message());
    cr_assert_eq(safetensors_open(&s, in("absent")), ERR_FAILED);
    cr_assert_eq(safetensors_open(&s, folder), ERR_FAILED);
    cr_assert(strstr(error_message(), "not a regular file"), "%s", error_message());
    put(good, strlen(good), 4);
    for (int n = (int)(8 + strlen(good) + 3); n >= 0; n--) { /* cut off at every byte */
        cr_assert_eq(truncate(in("bad"), n), 0);
        cr_assert_eq(safetensors_open(&s, in("bad")), ERR_FAILED, "%d bytes", n);
    }
}

Test(safetensors, reads_what_another_program_wrote, .timeout = 30) {
    struct safetensors s;
    /* a LeNet that PyTorch trained: tests/golden/make_lenet.py */
    const char *path = "tests/golden/lenet_300.safetensors";
    static const struct {
        const char *name;
        int dims;
        int64_t shape[4];
    } want[] = {
        {"W1", 4, {20, 1, 3, 3}}, {"b1", 1, {20}},  {"W2", 4, {50, 20, 5, 5}}, {"b2", 1, {50}},
        {"W3", 2, {800, 128}},    {"b3", 1, {128}}, {"W4", 2, {128, 10}},      {"b4", 1, {10}},
    };
    static float x[800 * 128];
    cr_assert_eq(safetensors_open(&s, path), OK, "%s", error_message());
    cr_assert_eq(s.count, 8);
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(safetensors_read(&s, "F32", want[i].name, want[i].dims, want[i].shape, x), OK,
                     "%s", error_message());
        double sum = 0;
        int n = 1;
        for (int d = 0; d < want[i].dims; d++)
            n *= (int)want[i].shape[d];
        for (int k = 0; k < n; k++)
            sum += fabs(x[k]);
        cr_assert(isfinite(sum) && sum > 0 && sum / n < 1, "%s: mean size %g", want[i].name,
                  sum / n);
    }
    safetensors_close(&s);
}
