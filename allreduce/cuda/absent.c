/* Linked where the CUDA files are not: there are no executors for GPUs (executor.h) and no grids
 * (grid.h). A device of that kind cannot be opened either, so these answers are rarely seen. */
#include "allreduce/cuda/grid.h"
#include "allreduce/executor.h"
#include "base/error.h"

const struct executor_kind *const cuda_executors = NULL;

struct allreduce_grid_config allreduce_grid_config_default(enum allreduce_algorithm algorithm,
                                                           int n) {
    struct allreduce_grid_config config = {.algorithm = algorithm, .n = n, .silent = -1};
    return config;
}

int allreduce_grid_open(struct allreduce_grid **out, struct device *device,
                        const struct allreduce_grid_config *config) {
    (void)config;
    *out = NULL;
    return fail(ERR_USAGE, "allreduce grid on %s: this program was built without CUDA",
                device_name(device));
}

int allreduce_grid_run(struct allreduce_grid *grid, struct stream *stream, float *const *data,
                       size_t count, float scale) {
    (void)grid, (void)stream, (void)data, (void)count, (void)scale;
    return fail(ERR_USAGE, "allreduce grid: this program was built without CUDA");
}

int allreduce_grid_channels(const struct allreduce_grid *grid, size_t count) {
    (void)grid, (void)count;
    return 0;
}

void allreduce_grid_close(struct allreduce_grid *grid) {
    (void)grid;
}
