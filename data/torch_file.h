/* A state_dict that torch.save wrote, "model.pth", read as safetensors are. The file is a zip
 * archive whose records are stored as they are:
 *
 *     NAME/data.pkl      a pickle, protocol 2: {"fc.weight": _rebuild_tensor_v2(storage "0", 0,
 *                        (10, 8), (8, 1), ...), ...}
 *     NAME/data/0        the bytes of that storage, row-major
 *     NAME/byteorder     "little"
 *
 * A pickle is a program: it may call any function of Python by its name, which is why a file from a
 * stranger is not safe there. Here it is read by a machine that knows the few calls of a state_dict
 * and refuses every other name. Nothing of a file is ever run. */
#ifndef DATA_TORCH_FILE_H
#define DATA_TORCH_FILE_H

#include "data/safetensors.h"

/* Reads the description of the tensors of s->fd, a zip archive of `size` bytes, into s->entries.
 * ERR_FAILED: it is not such a file; the error names s->path and what is wrong. */
int torch_file_read(struct safetensors *s, uint64_t size);

/* Is this, the first bytes of a file, how torch.save began before PyTorch 1.6? */
int torch_file_is_legacy(const unsigned char first[8]);

/* ---- the two halves ---- */

/* A record of the archive: where its bytes lie in the file. */
struct torch_record {
    char *name; /* behind the first "/": "data/0" */
    uint64_t offset, bytes;
};

struct torch_archive {
    struct torch_record *records; /* [count], by name */
    int count;
    char *names; /* owned: all of them */
};

/* torch_archive_free it, also after an error. */
int torch_archive_read(struct torch_archive *a, const struct safetensors *s, uint64_t size);
void torch_archive_free(struct torch_archive *a);
const struct torch_record *torch_archive_find(const struct torch_archive *a, const char *name);

/* Runs the pickle and fills s->entries, s->count and s->names. */
int torch_pickle_read(struct safetensors *s, const struct torch_archive *a,
                      const unsigned char *pickle, size_t bytes);

/* ERR_FAILED: "not a state_dict of torch.save: PATH: " and why, with the way out. */
int torch_file_wrong(const struct safetensors *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
