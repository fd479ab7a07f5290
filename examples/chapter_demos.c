/* The three small demonstrations in "Dive into Deep Learning" 13.5, on two devices of one process:
 * get_params, allreduce of [[1, 1]] and [[2, 2]], and nn.parallel.scatter of a batch. */
#include <stdio.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

/* Prints "[[1, 1]] on cpu(0)". */
static int show(const duet_tensor *x) {
    float values[20];
    int code = duet_tensor_read(x, values), columns = duet_tensor_dim(x, 1);
    for (int i = 0; i < (int)duet_tensor_count(x) && !code; i++)
        printf("%s%g%s",
               i % columns ? ""
               : i         ? ", ["
                           : "  [[",
               (double)values[i], i % columns < columns - 1 ? ", " : "]");
    printf("] on %s\n", duet_device_name(duet_tensor_device(x)));
    return code;
}

/* new_params = get_params(params, d2l.try_gpu(0)): the biases of the first layer, zeros, as a
 * parameter on the device. */
static int show_params(duet_device *device) {
    const struct duet_param b1 = {"b1", 2, {1, 20}, NULL};
    duet_params *params;
    int code = duet_params_create(&params, device, &b1, 1);
    if (!code) code = duet_zero_grad(params); /* detach().requires_grad_(): it has no gradient */
    printf("b1 weight:\n");
    if (!code) code = show(duet_params_value(params, 0));
    if (!code && !duet_params_has_grad(params, 0)) printf("b1 grad: None\n");
    duet_params_free(params);
    return code;
}

/* def allreduce(data): for i in range(1, len(data)): data[0][:] += data[i].to(data[0].device)
 *                      for i in range(1, len(data)): data[i][:] = data[0].to(data[i].device) */
static int allreduce(duet_tensor *data[], int n) {
    duet_tensor *moved = NULL;
    int code = DUET_OK;
    for (int i = 1; i < n; i++) {
        duet_tensor_free(moved);
        TRY(duet_tensor_to(&moved, data[i], duet_tensor_device(data[0])));
        TRY(duet_tensor_add(data[0], moved));
    }
    for (int i = 1; i < n; i++)
        TRY(duet_tensor_copy(data[i], data[0]));
out:
    duet_tensor_free(moved);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    duet_device *devices[2];
    duet_tensor *data[2] = {NULL}, *split[2] = {NULL}, *batch = NULL;
    float numbers[20];
    int code;
    TRY(duet_devices_open(devices, 2, "auto", 128 << 20));
    TRY(show_params(devices[0]));
    printf("before allreduce:\n");
    for (int i = 0; i < 2; i++) { /* torch.ones((1, 2), device=d2l.try_gpu(i)) * (i + 1) */
        float x[2] = {(float)(i + 1), (float)(i + 1)};
        TRY(duet_tensor_create(&data[i], devices[i], DUET_F32, 2, (int[]){1, 2}, x));
        TRY(show(data[i]));
    }
    TRY(allreduce(data, 2));
    printf("after allreduce:\n");
    for (int i = 0; i < 2; i++)
        TRY(show(data[i]));
    for (int i = 0; i < 20; i++)
        numbers[i] = (float)i;
    TRY(duet_tensor_create(&batch, devices[0], DUET_F32, 2, (int[]){4, 5}, numbers));
    TRY(duet_tensor_scatter(split, 2, batch, devices, 0)); /* nn.parallel.scatter(data, devices) */
    printf("input:\n");
    TRY(show(batch));
    printf("load into [%s, %s]\n", duet_device_name(devices[0]), duet_device_name(devices[1]));
    printf("output:\n");
    for (int i = 0; i < 2; i++)
        TRY(show(split[i]));
out:
    if (code) fprintf(stderr, "chapter_demos: %s\n", duet_error());
    for (int i = 0; i < 2; i++)
        duet_tensor_free(data[i]), duet_tensor_free(split[i]);
    duet_tensor_free(batch);
    if (devices[0]) duet_devices_close(devices, 2);
    return duet_exit_status(code);
}
