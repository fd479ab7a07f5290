/* Reads IDX files, compressed or not. The input is not trusted: sizes are checked before memory is
 * allocated, and a file must end exactly where its header says. zlib's simple interface (gzread)
 * passes through whatever is not gzip and ignores what follows the end, so this file calls
 * inflate directly. */
#include "data/idx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "base/error.h"

enum { FILE_LIMIT = 1 << 30 }; /* bytes on disk, and bytes after unpacking */
enum { DEFLATE_MOST = 1032 };  /* bytes that one byte of gzip data can become, at most */

/* A file being read: its bytes as they are on disk, and how much of them was used. */
struct idx_source {
    char *path;
    uint8_t *bytes;
    size_t count; /* bytes of the file */
    size_t taken; /* bytes that take() has returned from a raw file */
    int gzip;     /* 1: the bytes are gzip data, which take() unpacks */
#ifdef HAVE_ZLIB
    z_stream z;
    int z_open, z_ended;
#endif
};

static void source_close(struct idx_source *s) {
    if (!s) return;
#ifdef HAVE_ZLIB
    if (s->z_open) inflateEnd(&s->z);
#endif
    free(s->bytes);
    free(s->path);
    free(s);
}

static int read_whole(struct idx_source *s, int fd) {
    struct stat st;
    if (fstat(fd, &st)) return fail_errno(ERR_FAILED, errno, "cannot read: %s", s->path);
    if (!S_ISREG(st.st_mode))
        return fail(ERR_FAILED, "cannot read: %s: not a regular file: give an IDX file", s->path);
    if (st.st_size > FILE_LIMIT)
        return fail(ERR_FAILED, "cannot read: %s: over 1 GiB: give an IDX file", s->path);
    size_t size = (size_t)st.st_size;
    s->bytes = malloc(size ? size : 1);
    if (!s->bytes)
        return fail(ERR_MEMORY, "no memory to read: %s: %zu bytes: free some memory", s->path,
                    size);
    while (s->count < size) {
        ssize_t n = read(fd, s->bytes + s->count, size - s->count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(ERR_FAILED, errno, "cannot read: %s", s->path);
        if (n == 0) break; /* the file has shrunk: take() will report it as truncated */
        s->count += (size_t)n;
    }
    return OK;
}

static int source_open(struct idx_source *s, const char *path) {
    s->path = strdup(path);
    if (!s->path) return fail(ERR_MEMORY, "no memory to read: %s: free some memory", path);
    /* O_NONBLOCK: opening a pipe by mistake must be an error, not a hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_errno(ERR_FAILED, errno, "cannot read: %s", path);
    int code = read_whole(s, fd);
    close(fd);
    if (code) return code;
    size_t length = strlen(path);
    int named_gz = length > 3 && !strcmp(path + length - 3, ".gz");
    s->gzip = s->count >= 2 && s->bytes[0] == 0x1f && s->bytes[1] == 0x8b;
    if (named_gz && !s->gzip)
        return fail(ERR_FAILED,
                    "not a gzip file: %s: download it again, or name it without .gz if it is raw",
                    path);
#ifdef HAVE_ZLIB
    if (!s->gzip) return OK;
    s->z.next_in = s->bytes;
    s->z.avail_in = (uInt)s->count;
    if (inflateInit2(&s->z, 16 + MAX_WBITS) != Z_OK)
        return fail(ERR_MEMORY, "no memory to unpack: %s", path);
    s->z_open = 1;
#else
    if (s->gzip)
        return fail(ERR_FAILED,
                    "built without zlib: %s: gunzip it, or install zlib1g-dev and build again",
                    path);
#endif
    return OK;
}

static int truncated(const struct idx_source *s) {
    return fail(ERR_FAILED, "truncated file: %s: download it again", s->path);
}

#ifdef HAVE_ZLIB
/* inflate, of which a file may have several members, one behind the other: as `gzip -d` reads
 * them. Z_STREAM_END: of the last one. */
static int unpack(struct idx_source *s, int flush) {
    int result = s->z_ended ? Z_STREAM_END : inflate(&s->z, flush);
    while (result == Z_STREAM_END && s->z.avail_in > 1 && s->z.next_in[0] == 0x1f &&
           s->z.next_in[1] == 0x8b && inflateReset(&s->z) == Z_OK)
        result = inflate(&s->z, flush);
    s->z_ended = result == Z_STREAM_END;
    return result;
}
#endif

/* Stores the next `count` bytes, unpacked, in `out`. */
static int take(struct idx_source *s, uint8_t *out, size_t count) {
    if (!s->gzip) {
        if (s->count - s->taken < count) return truncated(s);
        memcpy(out, s->bytes + s->taken, count);
        s->taken += count;
        return OK;
    }
#ifdef HAVE_ZLIB
    s->z.next_out = out;
    s->z.avail_out = (uInt)count;
    while (s->z.avail_out > 0) {
        int result = unpack(s, Z_NO_FLUSH);
        if (result == Z_STREAM_END) {
            if (s->z.avail_out > 0) return truncated(s);
        } else if (result == Z_BUF_ERROR ||
                   (result == Z_OK && s->z.avail_in == 0 && s->z.avail_out > 0)) {
            return truncated(s);
        } else if (result != Z_OK) {
            return fail(ERR_FAILED, "broken gzip file: %s: %s: download it again", s->path,
                        s->z.msg ? s->z.msg : "no data");
        }
    }
#endif
    return OK;
}

/* Checks that nothing follows the data, and that the check sum at the end of gzip data is right. */
static int take_end(struct idx_source *s) {
    size_t rest = s->count - s->taken;
#ifdef HAVE_ZLIB
    if (s->gzip) {
        uint8_t more;
        s->z.next_out = &more;
        s->z.avail_out = 1;
        int result = unpack(s, Z_FINISH);
        if (result == Z_DATA_ERROR)
            return fail(ERR_FAILED, "broken gzip file: %s: %s: download it again", s->path,
                        s->z.msg ? s->z.msg : "");
        if (result != Z_STREAM_END && s->z.avail_out == 1) return truncated(s);
        rest = s->z.avail_in + (s->z.avail_out == 0);
    }
#endif
    if (rest)
        return fail(ERR_FAILED, "more bytes than its header says: %s: download it again", s->path);
    return OK;
}

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int read_sizes(struct idx *x, struct idx_source *s, int dimensions) {
    uint8_t header[4 + 4 * IDX_DIMENSIONS];
    uint32_t expected = 0x800u + (uint32_t)dimensions;
    CHECK(take(s, header, 4));
    if (big_endian(header) != expected)
        return fail(ERR_FAILED, "wrong magic number: %s: %u where %s have %u: give the right file",
                    s->path, big_endian(header), dimensions == 1 ? "labels" : "images", expected);
    CHECK(take(s, header + 4, 4 * (size_t)dimensions));
    uint64_t bytes = 1;
    x->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++) {
        uint32_t size = big_endian(header + 4 + 4 * i);
        if (size == 0 || size > FILE_LIMIT || bytes * size > FILE_LIMIT)
            return fail(ERR_FAILED,
                        "size out of range: %s: %u in dimension %d: give 1 byte to 1 GiB in all",
                        s->path, size, i);
        bytes *= size;
        x->size[i] = (int)size;
    }
    return OK;
}

int idx_open(struct idx *x, const char *path, int dimensions) {
    memset(x, 0, sizeof *x);
    x->source = calloc(1, sizeof *x->source);
    if (!x->source) return fail(ERR_MEMORY, "no memory to read: %s: free some memory", path);
    int code = source_open(x->source, path);
    if (!code) code = read_sizes(x, x->source, dimensions);
    if (code) idx_free(x);
    return code;
}

static int load(struct idx *x) {
    struct idx_source *s = x->source;
    size_t bytes = 1, left = s->count - s->taken;
    for (int i = 0; i < x->dimensions; i++)
        bytes *= (size_t)x->size[i];
    if (s->gzip ? bytes / DEFLATE_MOST > s->count : left < bytes) return truncated(s);
    x->data = malloc(bytes);
    if (!x->data)
        return fail(ERR_MEMORY, "no memory to read: %s: %zu bytes: free some memory", s->path,
                    bytes);
    CHECK(take(s, x->data, bytes));
    return take_end(s);
}

int idx_load(struct idx *x) {
    int code = load(x);
    source_close(x->source);
    x->source = NULL;
    if (code) idx_free(x);
    return code;
}

void idx_free(struct idx *x) {
    source_close(x->source);
    free(x->data);
    memset(x, 0, sizeof *x);
}
