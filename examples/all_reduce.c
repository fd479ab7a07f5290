/* The smallest program of several processes: two ranks add up their tensors.
 *
 * In PyTorch, after init_process_group in each of two processes:
 *
 *     tensor = torch.tensor([[1., 1.]]) * (rank + 1)      # [[1, 1]] and [[2, 2]]
 *     dist.all_reduce(tensor)                             # [[3, 3]] on both
 *
 * The program starts its two ranks itself, or a launcher starts them: torchrun --standalone
 * --nproc-per-node 2 --no-python ./all_reduce */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

static int add_up(duet_group *group, duet_device *device) {
    int rank = duet_group_rank(group);
    float x[2] = {(float)(rank + 1), (float)(rank + 1)};
    duet_tensor *tensor;
    int code = duet_tensor_create(&tensor, device, DUET_F32, 2, (int[]){1, 2}, x);
    if (!code) code = duet_all_reduce(group, tensor, DUET_SUM, NULL);
    if (!code) code = duet_tensor_read(tensor, x);
    if (!code) printf("rank %d: [[%g, %g]]\n", rank, (double)x[0], (double)x[1]);
    duet_tensor_free(tensor);
    return code;
}

static int work(int rank, void *context) {
    duet_group *group;
    duet_device *device = NULL;
    (void)rank, (void)context;
    int code = duet_group_init(&group, 0);
    if (!code) code = duet_device_open(&device, "auto", duet_group_local_rank(group), 128 << 20);
    if (!code) code = add_up(group, device);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int code = duet_spawn(2, work, NULL);
    if (code) fprintf(stderr, "all_reduce: %s\n", duet_error());
    return duet_exit_status(code);
}
