/* The host memory is a memfd of rank 0. All ranks get its descriptor and map it. It has no name, so
 * nothing is left when they end. */
#include "ddp/by_host.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/descriptor.h"

static size_t bytes_of(const struct param_set *params) {
    return params->arena_count * sizeof(float);
}

static int map(int fd, size_t bytes, void **out) {
    *out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*out != MAP_FAILED) return OK;
    return fail(ERR_MEMORY, "ddp: %zu bytes of parameters in host memory: not mapped: free some",
                bytes);
}

/* Rank 0: its values into a new memfd. */
static int offer(struct param_set *params, int *fd) {
    struct stream *stream = device_compute(params->device);
    size_t bytes = bytes_of(params);
    void *memory;
    *fd = above_streams(memfd_create("duet-values", MFD_CLOEXEC));
    if (*fd < 0 || file_allocate(*fd, bytes))
        return fail(ERR_MEMORY, "ddp: %zu bytes of parameters in host memory: free some", bytes);
    CHECK(map(*fd, bytes, &memory));
    int code = copy_to_host(stream, memory, params->values, bytes);
    CHECK_KEEP(stream_sync(stream), code);
    munmap(memory, bytes);
    return code;
}

static int receive(struct param_set *params, int fd) {
    struct stream *stream = device_compute(params->device);
    size_t bytes = bytes_of(params);
    void *memory;
    CHECK(map(fd, bytes, &memory));
    stream_set_phase(stream, PHASE_REPLICATE, -1);
    int code = copy_to_device(stream, params->values, memory, bytes);
    CHECK_KEEP(stream_sync(stream), code);
    munmap(memory, bytes);
    return code;
}

/* Over several machines they go by the network. */
static int send_values(struct comm *comm, struct param_set *params) {
    struct stream *stream = device_compute(params->device);
    size_t bytes = bytes_of(params);
    void *memory = malloc(bytes + 1);
    if (!memory) return fail(ERR_MEMORY, "ddp: %zu bytes of parameters: free host memory", bytes);
    int code = copy_to_host(stream, memory, params->values, bytes);
    CHECK_KEEP(stream_sync(stream), code);
    if (!code) code = comm_broadcast(comm, memory, bytes);
    stream_set_phase(stream, PHASE_REPLICATE, -1);
    if (!code) code = copy_to_device(stream, params->values, memory, bytes);
    CHECK_KEEP(stream_sync(stream), code);
    free(memory);
    return code;
}

int ddp_values_by_host(struct comm *comm, struct param_set *params, int wants) {
    int fd = -1, fds[MAX_DEVICES], unused = 0, all[MAX_DEVICES], code = OK;
    if (comm_is_spread(comm)) return send_values(comm, params);
    memset(fds, -1, sizeof fds);
    if (comm_rank(comm) == 0) code = offer(params, &fd);
    if (!code) code = comm_exchange(comm, &unused, sizeof unused, fd, all, fds);
    if (!code && wants) code = receive(params, fds[0]);
    if (fd >= 0) close(fd);
    for (int r = 0; r < comm_world_size(comm); r++)
        if (fds[r] >= 0) close(fds[r]);
    return code;
}
