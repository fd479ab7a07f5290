/* A piece is a memfd whose descriptor goes to all ranks. It has no name, so the ranks leave nothing
 * behind. */
#include "allreduce/cuda/region.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/cuda.h"

static int map(struct region *region, int rank, int fd) {
    void *memory = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return fail(ERR_MEMORY,
                    "allreduce: %zu bytes of host memory of rank %d: not mapped: free some",
                    region->bytes, rank);
    region->of[rank] = memory;
    return OK;
}

/* Allocates the memory now; otherwise a missing page would end the process at its first
 * touch. */
static int make_own(struct region *region, const char *device_name, int *fd) {
    *fd = memfd_create("duet-staged", MFD_CLOEXEC);
    if (*fd < 0 || posix_fallocate(*fd, 0, (off_t)region->bytes))
        return fail(ERR_MEMORY,
                    "allreduce: %zu bytes of host memory for staging: not available: free some, or "
                    "use a smaller model",
                    region->bytes);
    CHECK(map(region, region->rank, *fd));
    CUDA_CHECK(cudaHostRegister(region->of[region->rank], region->bytes, cudaHostRegisterDefault),
               "allreduce: pinning host memory", device_name);
    region->pinned = 1;
    return OK;
}

int region_open(struct region *region, const struct executor_ranks *ranks, size_t bytes) {
    int fd = -1, fds[MAX_DEVICES], code = OK;
    memset(fds, -1, sizeof fds);
    *region = (struct region){.bytes = bytes, .n = ranks->n, .rank = ranks->rank};
    CHECK_GOTO(cuda_use(ranks->device), code, out);
    CHECK_GOTO(make_own(region, device_name(ranks->device), &fd), code, out);
    CHECK_GOTO(comm_pass_descriptors(ranks->comm, fd, fds), code, out);
    for (int r = 0; r < ranks->n && !code; r++)
        if (r != ranks->rank) code = map(region, r, fds[r]);
out:
    if (fd >= 0) close(fd);
    for (int r = 0; r < ranks->n; r++)
        if (fds[r] >= 0) close(fds[r]);
    if (code) region_close(region);
    return code;
}

void region_close(struct region *region) {
    if (region->pinned) cudaHostUnregister(region->of[region->rank]);
    cudaGetLastError();
    for (int r = 0; r < region->n; r++)
        if (region->of[r]) munmap(region->of[r], region->bytes);
    memset(region, 0, sizeof *region);
}
