/* Rank 0 has a tensor of 4 rows, and each of four ranks gets one row.
 *
 * In PyTorch, after init_process_group in each of four processes:
 *
 *     rows = list(torch.arange(20.).reshape(4, 5)) if rank == 0 else None
 *     row = torch.zeros(5)
 *     dist.scatter(row, rows, src=0)                      # rank 2: [10, 11, 12, 13, 14]
 */
#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

static int take_a_row(duet_group *group, duet_device *device) {
    int rank = duet_group_rank(group), n = duet_group_size(group);
    float all[64 * 5], x[5];
    duet_tensor *rows = NULL, *row = NULL;
    for (int i = 0; i < 5 * n; i++)
        all[i] = (float)i;
    int code = duet_tensor_create(&row, device, DUET_F32, 1, (int[]){5}, NULL);
    if (!code && rank == 0)
        code = duet_tensor_create(&rows, device, DUET_F32, 2, (int[]){n, 5}, all);
    if (!code) code = duet_scatter(group, row, rows, NULL, 0, NULL);
    if (!code) code = duet_tensor_read(row, x);
    if (!code)
        printf("rank %d: [%g, %g, %g, %g, %g]\n", rank, (double)x[0], (double)x[1], (double)x[2],
               (double)x[3], (double)x[4]);
    duet_tensor_free(rows);
    duet_tensor_free(row);
    return code;
}

static int work(int rank, void *context) {
    duet_group *group;
    duet_device *device = NULL;
    (void)rank, (void)context;
    int code = duet_group_init(&group, 0);
    if (!code) code = duet_device_open(&device, "auto", duet_group_local_rank(group), 128 << 20);
    if (!code) code = take_a_row(group, device);
    duet_devices_close(&device, 1);
    duet_group_destroy(&group);
    return code;
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    int code = duet_spawn(4, work, NULL);
    if (code) fprintf(stderr, "scatter: %s\n", duet_error());
    return duet_exit_status(code);
}
