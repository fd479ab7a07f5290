/* The public library: views of rows, tensors that are joined or scattered over devices, one device
 * selected by number, and the clipping of gradients. */
#include <math.h>
#include <unistd.h>

#include "tests/duet/shared.h"
#include "tests/golden/golden.h"

#define CLIP_FACTS "tests/golden/optimizers.txt"

/* ---- views ---- */

enum { ROWS = 11, COLUMNS = 3 };

static duet_tensor *numbered(duet_device *device, int rows) {
    float host[ROWS * COLUMNS];
    duet_tensor *tensor;
    for (int i = 0; i < rows * COLUMNS; i++)
        host[i] = (float)i;
    MUST(duet_tensor_create(&tensor, device, DUET_F32, 2, (int[]){rows, COLUMNS}, host));
    return tensor;
}

/* Are its elements first, first + 1, ...? */
static void check_numbered(const duet_tensor *tensor, int rows, float first) {
    float back[ROWS * COLUMNS];
    cr_assert_eq(duet_tensor_dim(tensor, 0), rows);
    cr_assert_eq(duet_tensor_dim(tensor, 1), COLUMNS);
    MUST(duet_tensor_read(tensor, back));
    for (int i = 0; i < rows * COLUMNS; i++)
        cr_assert_eq(back[i], first + (float)i, "element %d", i);
}

static void views_on(duet_device **devices) {
    duet_tensor *all, *view, *inner, *none, *other;
    float back[ROWS * COLUMNS];
    uint64_t empty, before, now;
    MUST(duet_device_memory(devices[0], &empty, NULL)); /* a GPU has its workspace */
    all = numbered(devices[0], ROWS);
    MUST(duet_device_memory(devices[0], &before, NULL));
    MUST(duet_tensor_rows(&view, all, 2, 6));
    MUST(duet_tensor_rows(&inner, view, 1, 3)); /* rows 3 to 5 of all */
    MUST(duet_tensor_rows(&none, all, ROWS, 0));
    MUST(duet_device_memory(devices[0], &now, NULL));
    cr_assert_eq(now, before, "a view takes no device memory");
    check_numbered(view, 6, 2 * COLUMNS);
    check_numbered(inner, 3, 3 * COLUMNS);
    cr_assert(duet_tensor_rank(view) == 2 && duet_tensor_device(view) == devices[0]);
    cr_assert_eq(duet_tensor_count(none), 0);
    duet_tensor_free(none);

    MUST(duet_tensor_scale(inner, 2)); /* in place: seen through all */
    MUST(duet_tensor_read(all, back));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        cr_assert_eq(back[i], (float)(i / COLUMNS >= 3 && i / COLUMNS < 6 ? 2 * i : i));
    MUST(duet_tensor_scale(inner, 0.5f));
    MUST(duet_tensor_to(&other, inner, devices[1]));
    check_numbered(other, 3, 3 * COLUMNS);
    duet_tensor_free(inner);
    MUST(duet_tensor_rows(&inner, all, 8, 3));
    MUST(duet_tensor_copy(inner, other)); /* from the other device into rows */
    check_numbered(inner, 3, 3 * COLUMNS);
    MUST_FAIL(duet_tensor_rows(&none, all, 9, 3), DUET_USAGE, "3 rows starting at row 9");
    cr_assert_null(none);

    duet_tensor_free(inner);
    MUST(duet_tensor_rows(&inner, all, 4, 6));
    MUST_FAIL(duet_tensor_copy(view, inner), DUET_USAGE, "overlap");
    MUST_FAIL(duet_tensor_add(view, inner), DUET_USAGE, "overlap");
    duet_tensor_free(all); /* the views keep the memory alive */
    duet_tensor_free(inner);
    check_numbered(view, 6, 2 * COLUMNS);
    duet_tensor_free(view);
    duet_tensor_free(other);
    MUST(duet_device_memory(devices[0], &now, NULL));
    cr_assert_eq(now, empty, "and goes with the last of them");
}

Test(api_parts, views_of_rows, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *devices[2];
        MUST(duet_devices_open(devices, 2, api_kinds[kind], api_memory(api_kinds[kind])));
        views_on(devices);
        duet_devices_close(devices, 2);
    }
}

/* ---- many tensors into one, and back ---- */

static void spread(duet_device **devices, int n, int rows) {
    duet_tensor *all = numbered(devices[1], rows), *parts[4], *back;
    int size = (rows + n - 1) / n, first = 0;
    MUST(duet_tensor_scatter(parts, n, all, devices, 0));
    for (int i = 0; i < n; i++) {
        int want = rows - first < size ? rows - first : size;
        if (rows && want <= 0) {
            cr_assert_null(parts[i], "%d rows on %d devices: part %d", rows, n, i);
            continue;
        }
        cr_assert_eq(duet_tensor_device(parts[i]), devices[i]);
        check_numbered(parts[i], want, (float)(first * COLUMNS));
        first += want;
    }
    cr_assert_eq(first, rows);
    MUST(duet_tensor_cat(&back, parts, n, devices[n - 1], 0));
    cr_assert_eq(duet_tensor_device(back), devices[n - 1]);
    check_numbered(back, rows, 0);
    for (int i = 0; i < n; i++)
        duet_tensor_free(parts[i]);
    duet_tensor_free(back);
    duet_tensor_free(all);
}

Test(api_parts, scatter_and_gather, .timeout = 60) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *devices[4];
        MUST(duet_devices_open(devices, 4, api_kinds[kind], api_memory(api_kinds[kind])));
        for (int n = 1; n <= 4; n++)
            for (int rows = 0; rows <= 9; rows++) /* 5 rows on 4: torch.chunk makes 2, 2, 1 */
                spread(devices, n, rows);
        duet_devices_close(devices, 4);
    }
}

static void join_bytes(duet_device **devices) {
    static const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint8_t got[sizeof want];
    duet_tensor *parts[4], *all;
    MUST(duet_tensor_create(&parts[0], devices[0], DUET_U8, 2, (int[]){1, 3}, want));
    MUST(duet_tensor_create(&parts[1], devices[1], DUET_U8, 2, (int[]){0, 3}, NULL));
    MUST(duet_tensor_create(&parts[2], devices[1], DUET_U8, 2, (int[]){2, 3}, want + 3));
    MUST(duet_tensor_cat(&all, parts, 3, devices[0], 0));
    cr_assert(duet_tensor_dim(all, 0) == 3 && duet_tensor_type(all) == DUET_U8);
    MUST(duet_tensor_read(all, got));
    cr_assert_arr_eq(got, want, sizeof want);
    duet_tensor_free(all);
    duet_tensor *none[2] = {NULL, NULL};
    MUST_FAIL(duet_tensor_cat(&all, none, 2, devices[0], 0), DUET_USAGE, "non-empty list");
    cr_assert_null(all);
    MUST(duet_tensor_create(&parts[3], devices[0], DUET_U8, 2, (int[]){1, 4}, NULL));
    MUST_FAIL(duet_tensor_cat(&all, parts, 4, devices[0], 0), DUET_USAGE,
              "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4 "
              "for tensor number 3 in the list");
    duet_tensor_free(parts[3]);
    MUST(duet_tensor_create(&parts[3], devices[0], DUET_U8, 1, (int[]){3}, NULL));
    MUST_FAIL(duet_tensor_cat(&all, parts, 4, devices[0], 0), DUET_USAGE, "number of dimensions");
    duet_tensor_free(parts[3]);
    MUST(duet_tensor_create(&parts[3], devices[0], DUET_I64, 2, (int[]){1, 3}, NULL));
    MUST_FAIL(duet_tensor_cat(&all, parts, 4, devices[0], 0), DUET_USAGE, "another type");
    for (int i = 0; i < 4; i++)
        duet_tensor_free(parts[i]);
}

Test(api_parts, cat, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *devices[2];
        MUST(duet_devices_open(devices, 2, api_kinds[kind], api_memory(api_kinds[kind])));
        join_bytes(devices);
        duet_devices_close(devices, 2);
    }
}

/* ---- one device by its number ---- */

Test(api_parts, device_by_number, .timeout = 30) {
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *device;
        char name[32];
        int cuda = !strcmp(api_kinds[kind], "cuda"), count = duet_device_count(api_kinds[kind]);
        cr_assert(cuda ? count >= 1 : count == DUET_MAX_DEVICES);
        MUST(duet_device_open(&device, api_kinds[kind], 3, api_memory(api_kinds[kind])));
        snprintf(name, sizeof name, "%s(3)", cuda ? "cuda" : "cpu");
        cr_assert_str_eq(duet_device_name(device), name);
        duet_tensor *x = numbered(device, ROWS);
        check_numbered(x, ROWS, 0);
        duet_tensor_free(x);
        duet_devices_close(&device, 1);
    }
    duet_device *device;
    MUST_FAIL(duet_device_open(&device, "tpu", 0, 0), DUET_USAGE, "tpu");
    cr_assert_null(device);
    cr_assert_eq(duet_device_count("tpu"), 0);
    MUST_SAY("tpu");
    cr_assert_eq(duet_device_count(NULL), 0);
    cr_assert_geq(duet_device_count("auto"), 1);
}

/* Each rank takes the device of its local rank and reduces some rows of a tensor. */
static int reduce_rows(int rank, void *context) {
    duet_group *group;
    duet_device *device = NULL;
    duet_tensor *all = NULL, *rows = NULL;
    float host[4] = {1, 2, 3, 4};
    (void)context;
    int code = duet_group_init(&group, 60);
    if (!code) code = duet_device_open(&device, "cpu", duet_group_local_rank(group), API_MEMORY);
    if (!code) code = duet_tensor_create(&all, device, DUET_F32, 1, (int[]){4}, host);
    if (!code) code = duet_tensor_rows(&rows, all, 1, 2);
    if (!code) code = duet_all_reduce(group, rows, DUET_SUM, NULL);
    if (!code && duet_all_gather(group, all, rows, NULL, NULL) != DUET_USAGE) code = DUET_CHECK;
    if (!code && !strstr(duet_error(), "overlap")) code = DUET_CHECK;
    if (!code) code = duet_tensor_read(all, host);
    if (!code && !(host[0] == 1 && host[1] == 4 && host[2] == 6 && host[3] == 4)) code = DUET_CHECK;
    if (!code && duet_device_name(device)[4] != '0' + rank) code = DUET_CHECK; /* "cpu(1)" */
    duet_tensor_free(rows);
    duet_tensor_free(all);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

Test(api_parts, a_rank_takes_its_device_and_reduces_rows, .timeout = 60) {
    MUST(duet_spawn(2, reduce_rows, NULL));
}

/* ---- clipping ---- */

/* PyTorch sums squares, takes the root and multiplies in float. */
static const double FLOAT_CLOSE = 1e-6;
/* Two orders of a sum of 115 squares in double. */
static const double DOUBLE_CLOSE = 1e-13;

enum { CLIPS = 8, CLIP_SHAPES = 3, CLIP_PICKS = 4 };

/* Row g of the facts: scale, max_norm, and the norm in float and in double. */
static void clip_as(int g, duet_params *params) {
    struct golden_tensor how, clipped;
    char key[2][24];
    float grads[70], back[70];
    double norm;
    duet_rng *rng;
    snprintf(key[0], sizeof key[0], "clip_%d", g), snprintf(key[1], sizeof key[1], "clipped_%d", g);
    how = golden_tensor(CLIP_FACTS, key[0]), clipped = golden_tensor(CLIP_FACTS, key[1]);
    for (int after = 0; after < 2; after++) {
        MUST(duet_rng_create(&rng, 3));
        for (int i = 0; i < CLIP_SHAPES; i++) {
            duet_tensor *grad = duet_params_grad(params, i);
            size_t count = duet_tensor_count(grad);
            duet_rng_normal(rng, grads, count, 0, 1);
            for (size_t k = 0; k < count; k++)
                grads[k] *= (float)how.x[0];
            if (!after) MUST(duet_tensor_write(grad, grads));
            if (!after) continue;
            MUST(duet_tensor_read(grad, back));
            for (int k = 0; k < CLIP_PICKS; k++) {
                double want = clipped.x[i * CLIP_PICKS + k];
                cr_assert_float_eq(back[k], want, FLOAT_CLOSE * fabs(want), "row %d", g);
            }
            int below = how.x[1] > how.x[2] + 1;
            cr_assert(!below || !memcmp(back, grads, count * sizeof *back),
                      "a small norm changes no bit");
        }
        duet_rng_free(rng);
        if (after) break;
        MUST(duet_clip_grad_norm(params, how.x[1], &norm));
        cr_assert_float_eq(norm, how.x[3], DOUBLE_CLOSE * norm, "row %d", g);
        cr_assert_float_eq(norm, how.x[2], FLOAT_CLOSE * norm, "row %d", g);
    }
}

Test(api_parts, clip_grad_norm_as_pytorch, .timeout = 30) {
    static const struct duet_param three[CLIP_SHAPES] = {
        {"a", 2, {4, 3}, NULL}, {"b", 1, {33}, NULL}, {"c", 3, {2, 5, 7}, NULL}};
    for (int kind = 0; kind < API_KINDS; kind++) {
        duet_device *device;
        duet_params *params;
        MUST(duet_device_open(&device, api_kinds[kind], 0, api_memory(api_kinds[kind])));
        MUST(duet_params_create(&params, device, three, CLIP_SHAPES));
        for (int g = 0; g < CLIPS; g++)
            clip_as(g, params);
        duet_params_free(params);
        duet_devices_close(&device, 1);
    }
}

Test(api_parts, clip_of_numbers_that_are_not_finite, .timeout = 30) {
    static const struct duet_param two[] = {{"a", 1, {2}, NULL}, {"b", 1, {1}, NULL}};
    duet_device *device;
    duet_params *params;
    double norm;
    float b = 2, back[2];
    MUST(duet_device_open(&device, "cpu", 0, API_MEMORY));
    MUST(duet_params_create(&params, device, two, 2));
    MUST(duet_tensor_write(duet_params_grad(params, 0), (float[2]){1, INFINITY}));
    MUST(duet_tensor_write(duet_params_grad(params, 1), &b));
    MUST(duet_clip_grad_norm(params, 1, NULL));
    MUST(duet_tensor_read(duet_params_grad(params, 0), back));
    cr_assert(back[0] == 0 && isnan(back[1]), "as in PyTorch");
    MUST(duet_clip_grad_norm(params, 1, &norm));
    cr_assert(isnan(norm));
    MUST(duet_tensor_read(duet_params_grad(params, 1), back));
    cr_assert(isnan(back[0]), "NaN spoils all");
    MUST(duet_tensor_write(duet_params_grad(params, 0), (float[2]){3e38f, -3e38f}));
    MUST(duet_tensor_write(duet_params_grad(params, 1), &b));
    MUST(duet_clip_grad_norm(params, 1, &norm)); /* the squares overflow a float */
    cr_assert_float_eq(norm, sqrt(2) * 3e38, FLOAT_CLOSE * 3e38);
    MUST_FAIL(duet_clip_grad_norm(params, NAN, NULL), DUET_USAGE, "nan");
    duet_params_free(params);
    duet_devices_close(&device, 1);
}
