/* safetensors: named tensors in one file, readable by every framework and safe to open from
 * anyone. Layout:
 *
 *     8 bytes   length of the header, little-endian
 *     header    JSON: {"name": {"dtype": "F32", "shape": [64, 32, 3, 3], "data_offsets": [begin, end]}, ...,
 *               "__metadata__": {"any": "text"}}, spaces at its end
 *     data      the tensors' bytes, row-major, little-endian; offsets count from here, without holes or overlaps
 *
 * Little-endian machines only, as all of Duet. Source: the format's public description. */
#ifndef DATA_SAFETENSORS_H
#define DATA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SAFETENSORS_DIMS = 8 };

struct json;

/* One tensor of a file. */
struct safetensors_entry {
    /* without the prefix "module." that PyTorch's DP and DDP put before every name */
    const char *name;
    const char *dtype; /* "F32", "I64", ... */
    int dims;
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t count, offset, bytes; /* offset from the start of the file */
};

struct safetensors {
    int fd;
    char *path;
    int count;
    struct safetensors_entry *entries; /* in the order of their data */
    struct json *header;
};

/* Opens and checks everything but the numbers: ERR_FAILED names the path and what is wrong. The
 * file stays open until safetensors_close, which takes a zeroed struct too. */
int safetensors_open(struct safetensors *s, const char *path);
void safetensors_close(struct safetensors *s);

/* NULL: none */
const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name);
/* NULL: none */
const char *safetensors_metadata(const struct safetensors *s, const char *key);

/* Reads a float32 tensor of exactly this shape into out. ERR_FAILED: no such name, other shape,
 * other type. */
int safetensors_read(const struct safetensors *s, const char *name, int dims, const int64_t *shape,
                     float *out);

/* The bytes of any tensor, entry->bytes of them. */
int safetensors_read_bytes(const struct safetensors *s, const struct safetensors_entry *entry,
                           void *out);

/* A float32 tensor to be written. */
struct safetensors_item {
    const char *name;
    int dims;
    int64_t shape[SAFETENSORS_DIMS];
    const float *data;
};

struct safetensors_pair {
    const char *key, *value;
};

/* Writes the tensors in the order given, and the pairs as __metadata__ (none where pairs is 0).
 * The file is there whole or not at all (base/atomic_file.h). ERR_FAILED: cannot write, the same
 * name twice. */
int safetensors_write(const char *path, const struct safetensors_item *items, int count,
                      const struct safetensors_pair *metadata, int pairs);

#ifdef __cplusplus
}
#endif
#endif
