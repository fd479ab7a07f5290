#include "base/files/file_kind.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int begins(const void *head, size_t bytes, const char *with, size_t count) {
    return bytes >= count && !memcmp(head, with, count);
}
#define BEGINS(with) begins(head, bytes, with, sizeof(with) - 1)

/* torch.save writes a zip archive. Before PyTorch 1.6 it wrote a series of pickles, the first of
 * which is the number 119547037146038801333356. */
static int is_torch(const char *head, size_t bytes) {
    return BEGINS("PK\3\4") || BEGINS("PK\5\6") || BEGINS("L119547037146038801333356L") ||
           (bytes > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5);
}

/* x/net.pth -> x/net.safetensors */
static int stem(const char *path) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    return (int)(dot && dot != path && (!slash || dot > slash + 1) ? (size_t)(dot - path)
                                                                   : strlen(path));
}

const char *file_kind(const void *first, size_t bytes, const char *path,
                      char text[FILE_KIND_TEXT]) {
    const char *head = first;
    static const struct {
        const char *magic;
        size_t bytes;
        const char *is;
    } others[] = {
        {"\x1f\x8b", 2, "a gzip file: gunzip it"},
        {"\x93NUMPY", 6, "an array of numpy: write it with duet.save_dataset"},
        {"\x89HDF", 4, "an HDF5 file: write its tensors with safetensors.torch.save_file"},
        {"GGUF", 4, "a GGUF file: give the model's safetensors"},
        {"\0\0\x08", 3, "an IDX file: give its folder with --data-dir"},
        {"duet 1", 6, "an exported model (.duet): give it with --model"},
    };
    if (is_torch(head, bytes)) {
        snprintf(text, FILE_KIND_TEXT,
                 "a file of torch.save: convert it: python -m duet convert %.120s "
                 "%.*s.safetensors",
                 path, stem(path) < 120 ? stem(path) : 120, path);
        return text;
    }
    if (bytes > 9 && head[8] == '{' && !memchr("{ \n", head[0], 3) && !memchr(head, '\n', 8))
        return "a safetensors file: give it with --init-from, and a model exported by duet.export "
               "with "
               "--model";
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (begins(head, bytes, others[i].magic, others[i].bytes)) return others[i].is;
    return NULL;
}
