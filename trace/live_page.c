/* Mapping and reading the live page: see live_page.h. */
#include "trace/live_page.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"

int live_page_map(struct live_page **page, int fd, int writable) {
    struct stat about;
    *page = NULL;
    if (fstat(fd, &about) || about.st_size != (off_t)sizeof **page)
        return fail(ERR_FAILED, "live page: descriptor %d: no page: it was not handed over", fd);
    void *memory =
        mmap(NULL, sizeof **page, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return fail(ERR_MEMORY, "live page: %zu bytes cannot be mapped: free some memory",
                    sizeof **page);
    *page = memory;
    return OK;
}

void live_page_unmap(struct live_page *page) {
    if (page) munmap(page, sizeof *page);
}

/* Words, one by one: what is copied may be written meanwhile, and is thrown away then. */
static void copy_words(void *to, const void *from, size_t bytes) {
    uint32_t *a = to;
    const uint32_t *b = from;
    for (size_t i = 0; i < bytes / sizeof *a; i++)
        a[i] = __atomic_load_n(&b[i], __ATOMIC_ACQUIRE);
}

/* `from` begins with its version. */
static int read_versioned(void *to, const void *from, size_t bytes) {
    enum { TRIES = 100 };
    const uint32_t *version = from;
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = __atomic_load_n(version, __ATOMIC_ACQUIRE);
        if (before % 2) continue;
        copy_words(to, from, bytes);
        if (__atomic_load_n(version, __ATOMIC_RELAXED) == before) return 1;
    }
    return 0;
}

_Static_assert(sizeof(struct live_device) % 4 == 0 && sizeof(struct live_progress) % 4 == 0,
               "both are copied as words");

int live_read_device(struct live_device *copy, const struct live_device *device) {
    return read_versioned(copy, device, sizeof *copy);
}

int live_read_progress(struct live_progress *copy, const struct live_progress *progress) {
    return read_versioned(copy, progress, sizeof *copy);
}
