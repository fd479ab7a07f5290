/* Reads IDX files, compressed or not; zlib's gzread reads both. The input is not trusted: sizes are
 * checked before memory is allocated, and a file must end exactly where its header says. */
#include "data/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#ifdef HAVE_ZLIB
#include <zlib.h>
#else /* the same calls, for raw files only */
#include <stdio.h>
#define gzdopen fdopen
#define gzread(file, out, count) (int)fread(out, 1, count, file)
#define gzclose fclose
#endif

enum { FILE_LIMIT = 1 << 30 }; /* bytes on disk, and bytes after unpacking */
enum { DEFLATE_MOST = 1032 };  /* the most bytes that one byte of gzip data can expand to */

static int check_file(struct idx *x, int fd) {
    struct stat st;
    uint8_t magic[2];
    if (fstat(fd, &st)) return fail_errno(ERR_FAILED, errno, "cannot read: %s", x->path);
    if (!S_ISREG(st.st_mode))
        return fail(ERR_FAILED, "cannot read: %s: not a regular file: give an IDX file", x->path);
    if (st.st_size > FILE_LIMIT)
        return fail(ERR_FAILED, "cannot read: %s: over 1 GiB: give an IDX file", x->path);
    x->disk = (size_t)st.st_size;
    x->gzip = pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
    const size_t length = strlen(x->path);
    if (!x->gzip && length > 3 && !strcmp(x->path + length - 3, ".gz"))
        return fail(ERR_FAILED,
                    "not a gzip file: %s: download it again, or name it without .gz if it is raw",
                    x->path);
#ifndef HAVE_ZLIB
    if (x->gzip)
        return fail(ERR_FAILED,
                    "built without zlib: %s: gunzip it, or install zlib1g-dev and build again",
                    x->path);
#endif
    return OK;
}

static int open_file(struct idx *x) {
    /* O_NONBLOCK: opening a pipe by mistake must be an error, not a hang. */
    int fd = open(x->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_errno(ERR_FAILED, errno, "cannot read: %s", x->path);
    int code = check_file(x, fd);
    if (!code && !(x->file = gzdopen(fd, "r")))
        code = fail(ERR_MEMORY, "out of memory reading: %s: free some memory", x->path);
    if (code) close(fd);
    return code;
}

static int broken(const struct idx *x) {
    return fail(ERR_FAILED, "broken gzip file: %s: download it again", x->path);
}

static int truncated(const struct idx *x) {
    return fail(ERR_FAILED, "truncated file: %s: download it again", x->path);
}

/* The next `count` bytes, unpacked. A file may have several gzip members in sequence. */
static int take(struct idx *x, uint8_t *out, size_t count) {
    int got = gzread(x->file, out, (unsigned)count);
    return got < 0 ? broken(x) : (size_t)got < count ? truncated(x) : OK;
}

/* Checks that nothing follows the data, and that the check sum at the end of gzip data is right.
 * Closes the file. */
static int take_end(struct idx *x) {
    uint8_t more;
    int got = gzread(x->file, &more, 1), cut_off = gzclose(x->file) != 0;
    x->file = NULL;
    if (got > 0)
        return fail(ERR_FAILED, "more bytes than its header says: %s: download it again", x->path);
    return got < 0 ? broken(x) : cut_off ? truncated(x) : OK;
}

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int read_sizes(struct idx *x, int dimensions) {
    uint8_t header[4 + 4 * IDX_DIMENSIONS];
    uint32_t expected = 0x800u + (uint32_t)dimensions;
    CHECK(take(x, header, 4));
    if (big_endian(header) != expected)
        return fail(ERR_FAILED, "wrong magic number: %s: %u where %s have %u: give the right file",
                    x->path, big_endian(header), dimensions == 1 ? "labels" : "images", expected);
    CHECK(take(x, header + 4, 4 * (size_t)dimensions));
    uint64_t bytes = 1;
    x->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++) {
        uint32_t size = big_endian(header + 4 + 4 * i);
        if (size == 0 || size > FILE_LIMIT || bytes * size > FILE_LIMIT)
            return fail(ERR_FAILED,
                        "size out of range: %s: %u in dimension %d: give 1 byte to 1 GiB in all",
                        x->path, size, i);
        bytes *= size;
        x->size[i] = (int)size;
    }
    return OK;
}

int idx_open(struct idx *x, const char *path, int dimensions) {
    *x = (struct idx){.path = path};
    int code = open_file(x);
    if (!code) code = read_sizes(x, dimensions);
    if (code) idx_free(x);
    return code;
}

static int load(struct idx *x) {
    size_t bytes = 1, header = 4 + 4 * (size_t)x->dimensions;
    for (int i = 0; i < x->dimensions; i++)
        bytes *= (size_t)x->size[i];
    if (x->gzip ? bytes / DEFLATE_MOST > x->disk : x->disk - header < bytes) return truncated(x);
    x->data = malloc(bytes);
    if (!x->data)
        return fail(ERR_MEMORY, "out of memory reading: %s: %zu bytes: free some memory", x->path,
                    bytes);
    CHECK(take(x, x->data, bytes));
    return take_end(x);
}

int idx_load(struct idx *x) {
    int code = load(x);
    if (code) idx_free(x);
    return code;
}

void idx_free(struct idx *x) {
    if (x->file) gzclose(x->file);
    free(x->data);
    *x = (struct idx){0};
}
