/* The memory that the ranks of a group share. Member 0 makes one memfd and sends its descriptor to
 * all. The memory has no name and disappears with the last rank that maps it.
 *
 *     all announcements | for each rank: flags, window, two halves of scratch, a mailbox for each
 *                            other rank, tallies, slots of eager calls
 *
 * A page takes memory only once it is used, so a mailbox between two ranks that never communicate
 * costs nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "group/state.h"

enum { PAGE = 4096, LINE = 64 };

_Static_assert(sizeof(struct host_slot) == MAILBOX_HEAD, "windows.h, request.head");

/* A slot begins with a cache line, which holds the head and the first elements of the piece. */
size_t group_mailbox_bytes(const struct group_sizes *sizes) {
    return sizes->mailbox + MAILBOX_PIECES * LINE;
}

static size_t pages(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Lays the memory out; start NULL: only counts its bytes. */
static size_t lay_out(struct shared_memory *m, int n, char *start) {
    size_t at = 0, ranks = (size_t)n;
    size_t lines = (sizeof(struct host_slot) + m->sizes.slot + LINE - 1) / LINE;
    m->slot_stride = (lines | 1) * LINE; /* odd, so that slots do not share cache sets */
    m->start = start;
    m->announced = (void *)(start + at);
    at += pages(ranks * sizeof *m->announced);
    for (int r = 0; r < n; r++) {
        m->flags[r] = (void *)(start + at);
        at += pages(host_flags_bytes(n));
        m->window[r] = (void *)(start + at);
        at += pages(m->sizes.window);
        m->scratch[r] = (void *)(start + at);
        at += pages(2 * (size_t)m->sizes.half);
        m->mailbox[r] = (void *)(start + at);
        at += pages(ranks * group_mailbox_bytes(&m->sizes));
        m->tallies[r] = (void *)(start + at);
        m->makes[r] = (void *)(start + at + TALLIES * sizeof *m->tallies[r]);
        at += pages(TALLIES * sizeof *m->tallies[r] + sizeof *m->makes[r]);
        m->slots[r] = (void *)(start + at + sizeof(struct host_slot));
        at += m->sizes.slot ? pages(SLOTS * m->slot_stride) : 0;
    }
    return m->bytes = at;
}

static int make(size_t bytes, int *fd) {
    *fd = memfd_create("duet-group", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, (off_t)bytes))
        return fail_system(errno, "process group: %zu bytes of shared memory", bytes);
    return OK;
}

static int map(struct shared_memory *memory, int n, int fd) {
    size_t bytes = memory->bytes;
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (start == MAP_FAILED)
        return fail_system(errno, "process group: %zu bytes of shared memory: mmap", bytes);
    lay_out(memory, n, start);
    return OK;
}

static int compare(struct comm *comm, const char *blobs, size_t bytes) {
    int me = comm_rank(comm);
    for (int r = 0; r < comm_world_size(comm); r++)
        if (memcmp(blobs + (size_t)r * bytes, blobs + (size_t)me * bytes, bytes))
            return fail(
                ERR_USAGE,
                "new group: rank %d names other ranks, or another timeout, than rank %d: all "
                "ranks of the job must give the same",
                me, r);
    return OK;
}

int share_memory(struct shared_memory *memory, struct comm *comm, int n, int me, const void *blob,
                 size_t bytes) {
    int fd = -1, fds[MAX_DEVICES], code = OK, world = comm_world_size(comm),
        spread = comm_is_spread(comm);
    char *blobs = malloc((size_t)world * bytes + 1);
    for (int r = 0; r < world; r++)
        fds[r] = -1;
    lay_out(memory, n, NULL);
    if (!blobs) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    if (me == 0 || spread) CHECK_GOTO(make(memory->bytes, &fd), code, out);
    CHECK_GOTO(comm_gather(comm, blob, bytes, blobs), code, out);
    CHECK_GOTO(compare(comm, blobs, bytes), code, out);
    CHECK_GOTO(comm_pass_descriptors(comm, fd, fds), code, out);
    if (spread && me >= 0) code = map(memory, n, fd); /* each rank maps its own */
    for (int r = 0; r < world && me >= 0 && !memory->start && !code; r++)
        if (fds[r] >= 0) code = map(memory, n, fds[r]);
out:
    if (fd >= 0) close(fd);
    for (int r = 0; r < world; r++)
        if (fds[r] >= 0) close(fds[r]);
    free(blobs);
    return code;
}

void unmap_memory(struct shared_memory *memory) {
    if (memory->start) munmap(memory->start, memory->bytes);
    memory->start = NULL;
}

/* ---- mailboxes ---- */

static size_t place_bytes(const struct group *g) {
    return group_mailbox_bytes(&g->memory.sizes) / MAILBOX_PIECES;
}

uint64_t mailbox_pieces(const struct group *g, size_t count, enum dtype type) {
    size_t bytes = place_bytes(g) - MAILBOX_HEAD, each = dtype_bytes(type);
    if (count <= bytes / sizeof(double)) return 1; /* fits for every type, with no division */
    return (count + bytes / each - 1) / (bytes / each);
}

struct host_slot *mailbox_slot(const struct group *g, int sender, uint64_t number) {
    char *box =
        (char *)g->memory.mailbox[sender] + (size_t)g->rank * group_mailbox_bytes(&g->memory.sizes);
    return (struct host_slot *)(box + number % MAILBOX_PIECES * place_bytes(g));
}
