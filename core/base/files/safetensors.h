/* safetensors is a file of named tensors that many frameworks read, and that is safe to open even
 * if it comes from a stranger. Its layout:
 *
 *     8 bytes   the length of the header, a little-endian number
 *     header    JSON, padded with spaces:
 *                   {"W1": {"dtype": "F32", "shape": [20, 1, 3, 3], "data_offsets": [0, 720]},
 *                    "b1": ..., "__metadata__": {"any key": "any text"}}
 *     data      the bytes of all tensors, row-major, little-endian. Offsets count from the start
 *               of the data and leave neither holes nor overlaps.
 *
 * Like all of Duet, this works on little-endian machines only. Source: the public description of
 * the format. */
#ifndef DATA_SAFETENSORS_H
#define DATA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_DIMS = 8 };

struct atomic_file;
struct json;

/* One tensor of an open file. */
struct safetensors_entry {
    const char *name;  /* from safetensors_name, or the key if two names would be equal */
    const char *key;   /* the name in the file */
    const char *dtype; /* "F32", "I64", ..., or a type that Duet does not know */
    int dims;          /* 0 .. SAFETENSORS_DIMS */
    int64_t shape[SAFETENSORS_DIMS];
    uint64_t count;  /* elements */
    uint64_t bytes;  /* count times the size of dtype, if that is known */
    uint64_t offset; /* offset of the tensor's first byte from the start of the file */
};

/* An open file. */
struct safetensors {
    int fd;
    char *path;
    int count;                         /* number of tensors */
    struct safetensors_entry *entries; /* [count], in the order of their data in the file */
    struct json *header;               /* the parsed header; entries point into it */
};

/* Opens a file and checks its whole header. It does not read the tensors' numbers, and an unknown
 * type is an error only when such a tensor is read. The file stays open until safetensors_close.
 * ERR_FAILED names the path and what is wrong; a different kind of file is recognised. */
int safetensors_open(struct safetensors *s, const char *path);
void safetensors_close(struct safetensors *s); /* takes a zeroed struct and a closed one */

/* "F16" or "BF16", the type of the first such tensor in the file, static storage; NULL: none. */
const char *safetensors_halves(const struct safetensors *s);
/* Reads the tensor of this name and type, "F32" or "I64", into out, which must hold all of it. As
 * F32, F16 and BF16 are converted exactly, and F64 is rounded to the nearest float32. ERR_FAILED:
 * the file has no tensor of this name, shape and type. */
int safetensors_read(const struct safetensors *s, const char *dtype, const char *name, int dims,
                     const int64_t *shape, void *out);

/* The entry with this name, and the string with this key in __metadata__; NULL: none. */
const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name);
const char *safetensors_text(const struct safetensors *s, const char *key);

/* A tensor's name without the prefixes that PyTorch's wrappers add, any number of them: "module."
 * from DP and DDP, "_orig_mod." from torch.compile. */
const char *safetensors_name(const char *name);

/* Reads `bytes` bytes at `offset` of the open file. ERR_FAILED: the file is too short. */
int safetensors_read_at(const struct safetensors *s, uint64_t offset, void *out, uint64_t bytes);

/* A tensor to be written. */
struct safetensors_item {
    const char *name;
    int dims;
    int64_t shape[SAFETENSORS_DIMS];
    const void *data;   /* row-major */
    const char *dtype;  /* "F32" or "I64"; NULL: F32 */
    const char *prefix; /* written before the name, together below 256 bytes; NULL: none */
};

struct safetensors_pair {
    const char *key, *value;
};

/* Writes `count` tensors to an open file in this order, but those of 8-byte elements first, so that
 * all are aligned, and `pairs` pairs as __metadata__ (0: no metadata). The caller commits the file,
 * which reports write errors. ERR_FAILED: a name occurs twice. */
int safetensors_write(struct atomic_file *file, const struct safetensors_item *items, int count,
                      const struct safetensors_pair *metadata, int pairs);

#endif
