/* A data set in a file of tensors: the samples and answers that it gives, and what is refused. */
#include "base/error.h"
#include "data/dataset.h"
#include "tests/harness/scratch.h"

static char path[128];

static void path_make(void) {
    scratch_make();
    snprintf(path, sizeof path, "%s", in("own.safetensors"));
}

/* One tensor: its name, its type, its shape as JSON, its bytes. */
struct item {
    const char *name, *type, *shape;
    const void *data;
    size_t bytes;
};
#define ITEM(name, type, shape, ...) \
    { name, type, shape, __VA_ARGS__, sizeof __VA_ARGS__ }

/* Writes the file without its last `cut` bytes. */
static void put(const struct item *items, int count, size_t cut) {
    char header[1024] = "{";
    size_t at = 0, used = 1;
    for (int i = 0; i < count; i++) {
        used += (size_t)snprintf(
            header + used, sizeof header - used,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", i ? "," : "",
            items[i].name, items[i].type, items[i].shape, at, at + items[i].bytes);
        at += items[i].bytes;
    }
    strcpy(header + used, "}");
    uint64_t length = used + 1;
    FILE *f = fopen(path, "w");
    fwrite(&length, sizeof length, 1, f);
    fputs(header, f);
    for (int i = 0; i < count; i++)
        fwrite(items[i].data, 1, items[i].bytes - (i + 1 == count ? cut : 0), f);
    fclose(f);
}

static struct dataset_config config(void) {
    return (struct dataset_config){.name = path};
}

static void opened(struct dataset *set, const struct dataset_config *c, int train) {
    cr_assert_eq(dataset_make(set, c, train), OK, "%s", error_message());
    cr_expect_str_eq(set->name, "own.safetensors");
}

static const int64_t tokens[2][3] = {{0, 7, 16777216}, {3, 2, 1}};
static const int64_t labels[2][3] = {{1, 0, 300}, {2, 2, 2}};
static const float numbers[2][3] = {{.5f, -1, 2}, {3, 1e9f, 0}};
static const uint8_t bytes[2][3] = {{0, 51, 255}, {1, 2, 3}};
static const int32_t few[2] = {4, 0};

Test(dataset_tensors, tokens_with_a_label_at_each_place, .timeout = 30, .init = path_make,
     .fini = scratch_remove) {
    const struct item items[] = {ITEM("x", "I64", "[2,3]", tokens),
                                 ITEM("y", "I64", "[2,3]", labels)};
    struct dataset_config c = config();
    struct dataset set;
    put(items, 2, 0);
    opened(&set, &c, 1);
    cr_expect(set.count == 2 && set.shape.channels == 3 && set.positions == 3 &&
              set.classes == 301);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(set.numbers[i], (float)tokens[i / 3][i % 3]);
        cr_expect_eq(dataset_label(&set, i / 3, i % 3), labels[i / 3][i % 3]);
    }
    dataset_free(&set);
    cr_expect_eq(dataset_has_test(&c), 0);
    struct sample_shape shape = dataset_shape(&c);
    cr_expect(shape.channels == 3 && shape.height == 1 && shape.width == 1);
    c.outline = 1;
    opened(&set, &c, 1);
    cr_expect(set.outline && set.numbers && set.count == 2 && set.classes == 301);
    dataset_free(&set);
}

/* uint8 with few classes stays bytes; with targets, or as tokens, it becomes floats. */
Test(dataset_tensors, pictures_targets_and_the_test_part, .timeout = 30, .init = path_make,
     .fini = scratch_remove) {
    const struct item items[] = {ITEM("x", "U8", "[2,1,3,1]", bytes), ITEM("y", "I32", "[2]", few),
                                 ITEM("x_test", "F32", "[2,3]", numbers),
                                 ITEM("y_test", "F32", "[2,3]", numbers)};
    struct dataset_config c = config();
    struct dataset set;
    put(items, 4, 0);
    opened(&set, &c, 1);
    cr_expect(set.images && !set.numbers && set.shape.height == 3 && set.classes == 5);
    cr_expect(!memcmp(set.images, bytes, sizeof bytes) && dataset_label(&set, 0, 0) == 4 &&
              !dataset_label(&set, 1, 0));
    dataset_free(&set);
    cr_expect_eq(dataset_has_test(&c), 1);
    const struct sample_part of_one = {3, 256, 0}, of_columns = {3, 2, 256};
    for (int i = 0; i < 2; i++) { /* random numbers would be below 2, the file's are not */
        c.parts = i ? &of_columns : &of_one, c.part_count = 1;
        opened(&set, &c, 1);
        cr_expect(set.numbers && set.numbers[1] == 51);
        dataset_free(&set);
    }
    c.part_count = 0, c.targets = 1, c.shape = (struct sample_shape){1, 1, 3};
    opened(&set, &c, 0);
    cr_expect(set.outputs == 3 && set.classes == 0 && set.shape.width == 3, "as the model has it");
    cr_expect(!memcmp(set.numbers, numbers, sizeof numbers) &&
              !memcmp(set.answers, numbers, sizeof numbers));
    dataset_free(&set);
}

static void refused(const struct item *x, const struct item *y, size_t cut, int below, int targets,
                    const char *says) {
    const struct item items[] = {*x, *y};
    struct dataset_config c = config();
    struct dataset set;
    /* the first number of a sample may be anything if it is not a token */
    const struct sample_part parts[] = {{1, 0, 0}, {2, below, 0}}, all = {3, below, 0};
    c.parts = below == 2 ? parts : &all, c.part_count = below == 2 ? 2 : !!below;
    c.targets = targets;
    put(items, y->name ? 2 : 1, cut);
    cr_expect_neq(dataset_make(&set, &c, 1), OK, "%s", says);
    cr_expect(strstr(error_message(), says) && !strchr(error_message(), '\n'), "%s: %s", says,
              error_message());
    dataset_free(&set);
}

Test(dataset_tensors, refuses_in_one_line, .timeout = 30, .init = path_make,
     .fini = scratch_remove) {
    static const int64_t large[2] = {16777217, 0}, below_0[2] = {0, -1}, wide[2] = {1, 1LL << 32};
    const struct item x = ITEM("x", "F32", "[2,3]", numbers), y = ITEM("y", "I32", "[2]", few),
                      token = ITEM("x", "I64", "[2,3]", tokens), none = {.name = NULL},
                      targets = ITEM("y", "F32", "[2,3]", numbers),
                      other = ITEM("z", "F32", "[2,3]", numbers),
                      doubles = ITEM("x", "F64", "[2]", wide),
                      halves = ITEM("y", "I16", "[4]", few), one = ITEM("y", "I64", "[1,2]", wide),
                      empty = {"x", "F32", "[0,3]", "", 0},
                      beyond = ITEM("x", "I64", "[2,1]", large),
                      negative = ITEM("y", "I64", "[2]", below_0),
                      huge = ITEM("y", "I64", "[2]", wide);
    refused(&other, &y, 0, 0, 0, "tensor 'x': is missing");
    refused(&x, &none, 0, 0, 0, "tensor 'y': is missing");
    refused(&doubles, &y, 0, 0, 0, "tensor 'x': has a type that samples cannot have");
    refused(&x, &halves, 0, 0, 0, "tensor 'y': has a type that answers cannot have");
    refused(&empty, &y, 0, 0, 0, "tensor 'x': has no samples");
    refused(&x, &one, 0, 0, 0, "2 samples in x, 1 in y");
    refused(&beyond, &y, 0, 0, 0, "x: 16777217 in sample 0");
    refused(&token, &y, 0, 8, 0, "x: 1.67772e+07 in sample 0: the model takes integers from 0");
    refused(&x, &y, 0, 8, 0, "x: 0.5 in sample 0");
    refused(&x, &y, 0, 2, 0, "x: -1 in sample 0: the model takes integers from 0 to 1");
    refused(&x, &negative, 0, 0, 0, "y: label -1 of sample 1");
    refused(&x, &huge, 0, 0, 0, "y: label 4294967296 of sample 1");
    refused(&x, &targets, 0, 0, 0, "--loss: cross-entropy: y of data set");
    refused(&x, &y, 0, 0, 1, "--loss: mse: y of data set");
    refused(&x, &y, 1, 0, 0, "data_offsets are outside the file");
    struct dataset_config c = {.name = "no/such.safetensors"};
    struct dataset set;
    cr_expect_eq(dataset_make(&set, &c, 1), ERR_FAILED);
    cr_expect(strstr(error_message(), "cannot read: no/such.safetensors"));
    c = config(), c.folder = "d";
    cr_expect_eq(dataset_check(&c), ERR_USAGE);
    cr_expect_eq(dataset_open(&set, path, NULL, 1), ERR_USAGE, "a program has its own arrays");
}
