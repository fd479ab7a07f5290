/* The memfd of a data set; see shared_dataset.h.
 *
 *     [struct header][images][labels][numbers][answers]    each at a multiple of 64 bytes
 *
 * The same program writes and reads it, so the header is shared as bytes; each process that maps it
 * sets its own pointers. write() fills the memory, not a mapping. If memory runs out, write()
 * returns an error, but an access to a mapping would end the process with SIGBUS. */
#include "data/shared_dataset.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"

enum { PARTS = 4, ALIGN = 64 };

struct header {
    struct dataset set; /* its pointers are meaningless here */
    char name[256];
    uint64_t bytes[PARTS]; /* size of each part; 0: the set lacks it */
};

/* The arrays of a set, in the order in which they follow the header, each at a multiple of
 * ALIGN. */
struct part {
    const void *data;
    size_t bytes;
};

static void parts_of(const struct dataset *set, struct part parts[PARTS]) {
    size_t count = (size_t)set->count, numbers = count * sample_shape_count(&set->shape);
    size_t answers = count * (size_t)dataset_answer_count(set);
    parts[0] = (struct part){set->images, numbers};
    parts[1] = (struct part){set->labels, count};
    parts[2] = (struct part){set->numbers, numbers * sizeof(float)};
    parts[3] = (struct part){set->answers, answers * sizeof(float)};
}

static void set_parts(struct dataset *set, const void *const data[PARTS]) {
    set->images = data[0];
    set->labels = data[1];
    set->numbers = data[2];
    set->answers = data[3];
}

static size_t padded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- sharing ---- */

/* The file being written, for errors. */
struct shared {
    int fd;
    const char *name;
    size_t bytes; /* of the whole file */
};

static int write_all(const struct shared *s, const void *data, size_t bytes) {
    const char *p = data;
    while (bytes) {
        ssize_t n = write(s->fd, p, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return fail_system(n ? errno : ENOSPC, "data set %s: %zu bytes of shared memory",
                               s->name, s->bytes);
        p += n;
        bytes -= (size_t)n;
    }
    return OK;
}

static int write_padded(const struct shared *s, const void *data, size_t bytes) {
    static const char zeros[ALIGN];
    CHECK(write_all(s, data, bytes));
    return write_all(s, zeros, padded(bytes) - bytes);
}

static int write_set(int fd, const struct dataset *set) {
    struct part parts[PARTS];
    struct header header;
    struct shared s = {fd, set->name, padded(sizeof header)};
    memset(&header, 0, sizeof header);
    parts_of(set, parts);
    header.set = *set;
    snprintf(header.name, sizeof header.name, "%s", set->name);
    for (int i = 0; i < PARTS; i++)
        s.bytes += padded(header.bytes[i] = parts[i].data ? parts[i].bytes : 0);
    CHECK(write_padded(&s, &header, sizeof header));
    for (int i = 0; i < PARTS; i++)
        CHECK(write_padded(&s, parts[i].data, (size_t)header.bytes[i]));
    return OK;
}

int dataset_share(struct dataset *set, int *fd) {
    *fd = memfd_create("duet-data", MFD_CLOEXEC);
    int code =
        *fd < 0 ? fail_system(errno, "data set %s: memfd_create", set->name) : write_set(*fd, set);
    if (code && *fd >= 0) close(*fd);
    if (code) *fd = -1;
    dataset_free(set);
    return code;
}

/* ---- mapping ---- */

static int not_shared(int fd) {
    return fail(ERR_FAILED, "data set: descriptor %d: no data set was handed over: use duet train",
                fd);
}

/* Points the set into its mapping. Returns 0 if the mapping is too short for its parts. */
static int point_into(struct dataset *set, char *map, size_t bytes) {
    const struct header *header = (const struct header *)map;
    const void *data[PARTS] = {NULL};
    size_t at = padded(sizeof *header);
    for (int i = 0; i < PARTS; i++) {
        if (header->bytes[i]) data[i] = map + at;
        at += padded((size_t)header->bytes[i]);
    }
    *set = header->set;
    set->name = header->name;
    set->owned[0] = set->owned[1] = NULL;
    set->map = map;
    set->map_bytes = bytes;
    set_parts(set, data);
    return at == bytes;
}

int dataset_map(struct dataset *set, int fd) {
    struct stat about;
    memset(set, 0, sizeof *set);
    if (fstat(fd, &about) || (size_t)about.st_size < padded(sizeof(struct header)))
        return not_shared(fd);
    size_t bytes = (size_t)about.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return fail_system(errno, "data set: %zu bytes of shared memory cannot be mapped", bytes);
    if (point_into(set, map, bytes)) return OK;
    dataset_free(set);
    return not_shared(fd);
}
