/* Checks that errors use a program's own terms: shapes, names of types, what fills a device,
 * PyTorch's sentence about a label. They must not name options of the command. */
#include <math.h>
#include <unistd.h>

#include "tests/duet/shared.h"

#define SAYS(text) cr_expect_str_eq(duet_error(), (text))

/* The loss of three samples of five classes, of which the second has the label. */
static int loss_of(duet_device *device, int nll, int label, double *sum) {
    duet_tensor *x = NULL, *y = NULL;
    duet_tape *tape = NULL;
    int code = duet_tensor_create(&x, device, DUET_F32, 2, (int[]){3, 5}, NULL);
    if (!code)
        code = duet_tensor_create(&y, device, DUET_I32, 1, (int[]){3}, (int32_t[]){4, label, 0});
    if (!code) code = duet_tape_create(&tape, device);
    if (!code) code = duet_tape_begin(tape, NULL, 3, DUET_TRAIN);
    duet_var *in = duet_leaf(tape, x);
    duet_var *loss = nll ? duet_nll_loss(tape, duet_log_softmax(tape, in), y, DUET_MEAN, NULL)
                         : duet_cross_entropy(tape, in, y, DUET_MEAN, NULL);
    if (!code) code = duet_loss_read(tape, loss, sum, NULL);
    duet_tape_free(tape);
    duet_tensor_free(x);
    duet_tensor_free(y);
    return code;
}

Test(api_words, a_label_out_of_bounds_is_an_error, .timeout = 30) {
    static const char *const kinds[] = {"cpu", "cpu-async", "cpu-late"};
    static const int labels[] = {5, -1, 1 << 30};
    for (int i = 0; i < 9; i++) {
        duet_device *device;
        double sum;
        char says[120];
        int nll = i % 2, label = labels[i % 3], told = i < 3;
        MUST(duet_devices_open(&device, 1, kinds[i / 3], API_MEMORY));
        cr_expect_eq(loss_of(device, nll, label, &sum), told ? DUET_USAGE : DUET_OK, "%d", i);
        snprintf(says, sizeof says,
                 "%s: Target %d is out of bounds: give labels 0 to 4, or set ignore_index",
                 nll ? "nll loss" : "cross entropy", label);
        if (told) SAYS(says);
        if (!told) cr_expect(isnan(sum), "%d", i);
        MUST(loss_of(device, nll, 4, &sum)); /* training continues */
        cr_expect_float_eq(sum, 3 * log(5), 1e-5);
        duet_devices_close(&device, 1);
    }
}

static const struct duet_param layer[] = {{"fc.weight", 2, {4, 19}, NULL},
                                          {"fc.bias", 1, {4}, NULL}};

Test(api_words, shapes_and_types_have_names, .timeout = 30) {
    duet_device *device;
    duet_params *params;
    duet_tensor *x, *y, *whole, *square, *slope;
    duet_tape *tape;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_params_create(&params, device, layer, 2));
    MUST(duet_tensor_create(&x, device, DUET_F32, 2, (int[]){8, 20}, NULL));
    MUST(duet_tensor_create(&y, device, DUET_F32, 3, (int[]){8, 2, 10}, NULL));
    MUST(duet_tensor_create(&square, device, DUET_F32, 2, (int[]){19, 4}, NULL));
    MUST(duet_tensor_create(&whole, device, DUET_I64, 2, (int[]){8, 20}, NULL));
    MUST(duet_tape_create(&tape, device));
    cr_expect_eq(duet_tensor_copy(x, whole), DUET_USAGE);
    SAYS("tensor copy: to (8, 20) of float32 from (8, 20) of int64: shape and type must agree");
    for (int i = 0; i < 5; i++) {
        static const char *const says[] = {
            "linear fc.weight: takes 19 inputs, but was given (8, 20): flatten first, or check the "
            "model",
            "input: tensor is of type int64: must be float32",
            "dropout2d: an input of (8, 20) has no planes: check the model",
            "mse loss: targets of (8, 2, 10) for outputs of (8, 20): both must be (samples, "
            "numbers)",
            "matmul: mat1 and mat2 shapes cannot be multiplied ((8, 2, 10) and (19, 4)): check the "
            "model"};
        MUST(duet_tape_begin(tape, params, 8, DUET_TRAIN));
        duet_var *a = duet_input(tape, x), *b = duet_input(tape, y);
        if (i == 0) duet_linear(tape, a, 0, 1);
        if (i == 1) duet_input(tape, whole);
        if (i == 2) duet_dropout2d(tape, a, 0.5);
        if (i == 3) duet_mse_loss(tape, a, y, DUET_MEAN);
        if (i == 4) duet_matmul(tape, b, duet_constant(tape, square));
        cr_expect_eq(duet_tape_error(tape), DUET_USAGE, "%d", i);
        SAYS(says[i]);
    }
    MUST(duet_tape_begin(tape, params, 8, DUET_TRAIN));
    duet_var *used = duet_leaf(tape, x), *left_out = duet_leaf(tape, y);
    cr_expect_eq(duet_var_grad(&slope, tape, left_out), DUET_USAGE);
    SAYS("gradient: this leaf has none: call duet_backward first");
    MUST(duet_backward(tape, duet_mean(tape, used, NULL, 0, 0), NULL));
    cr_expect_eq(duet_var_grad(&slope, tape, left_out), DUET_USAGE);
    SAYS("gradient: this leaf has none: duet_backward did not reach it: the loss does not depend "
         "on it");
    duet_tape_free(tape);
    duet_tensor_free(x), duet_tensor_free(y), duet_tensor_free(whole), duet_tensor_free(square);
    duet_params_free(params);
    duet_devices_close(&device, 1);
}

/* What duet_devices_close prints on stderr. */
static void close_and_read(duet_device **device, char *text, size_t bytes) {
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    cr_assert(file && before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    duet_devices_close(device, 1);
    dup2(before, STDERR_FILENO);
    ssize_t got = pread(fileno(file), text, bytes - 1, 0);
    text[got > 0 ? got : 0] = 0;
    fclose(file);
    close(before);
}

Test(api_words, what_fills_a_device_and_what_it_is_closed_with, .timeout = 30) {
    enum { MOST = 20 };
    duet_device *device;
    duet_tensor *t[MOST];
    char text[400];
    int n = 0, code = DUET_OK;
    MUST(duet_devices_open(&device, 1, "cpu", 64 << 20));
    while (n < MOST &&
           !(code = duet_tensor_create(&t[n], device, DUET_F32, 1, (int[]){1 << 20}, NULL)))
        n++;
    cr_assert(n == 16 && code == DUET_MEMORY);
    SAYS("out of memory on device 0: 4 MiB asked for input, 0 B of 64 MiB free, held: input 64 MiB "
         "in 16 tensors: use a smaller batch or model, or open the device with more memory");
    for (int i = 3; i < n; i++)
        duet_tensor_free(t[i]);
    close_and_read(&device, text, sizeof text);
    cr_expect(strstr(text, ": warning: cpu(0) is closed while it holds input 12 MiB in 3 tensors:"),
              "%s", text);
    for (int i = 0; i < 3; i++)
        free(t[i]); /* frees the rest: their memory belonged to the device */
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(loss_of(device, 0, 0, NULL));
    close_and_read(&device, text, sizeof text);
    cr_expect_str_eq(text, "");
    cr_expect_eq(duet_devices_open(&device, 1, "cpu", (uint64_t)1 << 62), DUET_MEMORY);
    MUST_SAY("open the device with less memory");
    cr_expect_null(strstr(duet_error(), "--"), "%s", duet_error());
}
