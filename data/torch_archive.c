/* The archive of torch.save: a zip file, read from its end.
 *
 *     local header, name, padding, bytes     of each record
 *     the directory: an entry for each record
 *     end of the directory: how many entries, where; the same with 64 bits before it, if need be
 *
 * Everything is checked against the size of the file before it is used. Records that are
 * compressed or encrypted are refused: torch.save writes none. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/torch_file.h"

enum { END = 22, END64 = 56, LOCATOR = 20, ENTRY = 46, LOCAL = 30 }; /* bytes of each header */
enum { MOST_DIRECTORY = 1 << 24 };
#define ALL_ONES 0xffffffffu /* the number stands elsewhere, with 64 bits */

int torch_file_wrong(const struct safetensors *s, const char *format, ...) {
    char why[400];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return fail(ERR_FAILED,
                "not a state_dict of torch.save: %s: %s: write it by torch.save("
                "model.state_dict(), FILE), or by safetensors.torch.save_file",
                s->path, why);
}

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t n = 0;
    for (int i = bytes - 1; i >= 0; i--)
        n = n << 8 | at[i];
    return n;
}

/* Where the directory lies and how many entries it has. */
struct directory {
    uint64_t offset, bytes, count;
};

static int find_directory(const struct safetensors *s, uint64_t size, struct directory *d) {
    unsigned char end[END], locator[LOCATOR], end64[END64];
    if (size < END) return torch_file_wrong(s, "it is cut short");
    CHECK(safetensors_read_at(s, size - END, end, END));
    if (number(end, 4) != 0x06054b50) return torch_file_wrong(s, "it is cut short");
    *d = (struct directory){number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
    if (d->offset == ALL_ONES || d->bytes == ALL_ONES || d->count == 0xffff) {
        if (size < END + LOCATOR) return torch_file_wrong(s, "it is cut short");
        CHECK(safetensors_read_at(s, size - END - LOCATOR, locator, LOCATOR));
        uint64_t at = number(locator + 8, 8);
        if (number(locator, 4) != 0x07064b50 || size < END64 || at > size - END64)
            return torch_file_wrong(s, "its directory lies outside the file");
        CHECK(safetensors_read_at(s, at, end64, END64));
        if (number(end64, 4) != 0x06064b50)
            return torch_file_wrong(s, "its directory lies outside the file");
        *d =
            (struct directory){number(end64 + 48, 8), number(end64 + 40, 8), number(end64 + 32, 8)};
    }
    if (d->bytes > size || d->offset > size - d->bytes || d->count > d->bytes / ENTRY)
        return torch_file_wrong(s, "its directory lies outside the file");
    if (d->bytes > MOST_DIRECTORY) return torch_file_wrong(s, "its directory is above 16 MiB");
    return OK;
}

/* In `extra`, a field of numbers with 64 bits for those of the entry that are all ones. */
static void widen(const unsigned char *extra, size_t bytes, uint64_t *values[3]) {
    for (size_t at = 0; at + 4 <= bytes;) {
        size_t length = number(extra + at + 2, 2), used = at + 4;
        int is_wide = number(extra + at, 2) == 1;
        at = used + length;
        if (!is_wide || at > bytes) continue;
        for (int i = 0; i < 3; i++)
            if (*values[i] == ALL_ONES && used + 8 <= at)
                *values[i] = number(extra + used, 8), used += 8;
    }
}

/* The bytes lie behind the local header, whose name and padding may be longer than the entry's. */
static int find_bytes(const struct safetensors *s, uint64_t size, struct torch_record *r) {
    unsigned char local[LOCAL];
    if (r->offset > size || size - r->offset < LOCAL)
        return torch_file_wrong(s, "record '%.100s' lies outside the file", r->name);
    CHECK(safetensors_read_at(s, r->offset, local, LOCAL));
    if (number(local, 4) != 0x04034b50)
        return torch_file_wrong(s, "there is no record '%.100s' where the directory says", r->name);
    r->offset += LOCAL + number(local + 26, 2) + number(local + 28, 2);
    if (r->offset > size || r->bytes > size - r->offset)
        return torch_file_wrong(s, "record '%.100s' lies outside the file", r->name);
    return OK;
}

/* Reads the entry at `at`, of at most `left` bytes, and returns its length in *used. */
static int read_entry(const struct safetensors *s, uint64_t size, const unsigned char *at,
                      size_t left, struct torch_record *r, char *name, size_t *used) {
    if (left < ENTRY || number(at, 4) != 0x02014b50)
        return torch_file_wrong(s, "its directory is torn");
    size_t length = number(at + 28, 2), extra = number(at + 30, 2);
    uint64_t packed = number(at + 20, 4);
    *used = ENTRY + length + extra + number(at + 32, 2);
    if (*used > left || memchr(at + ENTRY, 0, length))
        return torch_file_wrong(s, "its directory is torn");
    memcpy(name, at + ENTRY, length);
    name[length] = 0;
    for (size_t i = 0; i < length; i++) /* names stand in errors, which are one line */
        if ((unsigned char)name[i] < ' ' || name[i] == 127) name[i] = '?';
    char *slash = strchr(name, '/');
    *r = (struct torch_record){slash ? slash + 1 : name, number(at + 42, 4), number(at + 24, 4)};
    widen(at + ENTRY + length, extra, (uint64_t *[3]){&r->bytes, &packed, &r->offset});
    if (number(at + 8, 2) & 1) return torch_file_wrong(s, "record '%.100s' is encrypted", r->name);
    if (number(at + 10, 2) || packed != r->bytes)
        return torch_file_wrong(s, "record '%.100s' is compressed", r->name);
    return find_bytes(s, size, r);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct torch_record *)a)->name, ((const struct torch_record *)b)->name);
}

static int read_directory(struct torch_archive *a, const struct safetensors *s, uint64_t size,
                          const struct directory *d, const unsigned char *bytes) {
    size_t at = 0, used = 0, names = 0;
    for (uint64_t i = 0; i < d->count; i++, at += used) {
        CHECK(read_entry(s, size, bytes + at, d->bytes - at, &a->records[a->count],
                         a->names + names, &used));
        names += strlen(a->names + names) + 1;
        a->count++;
    }
    qsort(a->records, (size_t)a->count, sizeof *a->records, by_name);
    for (int i = 1; i < a->count; i++)
        if (!by_name(&a->records[i - 1], &a->records[i]))
            return torch_file_wrong(s, "record '%.100s' occurs twice", a->records[i].name);
    return OK;
}

int torch_archive_read(struct torch_archive *a, const struct safetensors *s, uint64_t size) {
    struct directory d = {0};
    *a = (struct torch_archive){.count = 0};
    CHECK(find_directory(s, size, &d));
    unsigned char *bytes = malloc(d.bytes + 1);
    a->records = calloc(d.count + 1, sizeof *a->records);
    a->names = malloc(d.bytes + 1); /* an entry is longer than its name with a zero */
    int code = bytes && a->records && a->names ? safetensors_read_at(s, d.offset, bytes, d.bytes)
                                               : fail(ERR_MEMORY, "no memory to read: %s", s->path);
    if (!code) code = read_directory(a, s, size, &d, bytes);
    free(bytes);
    return code;
}

void torch_archive_free(struct torch_archive *a) {
    free(a->records);
    free(a->names);
    *a = (struct torch_archive){.count = 0};
}

const struct torch_record *torch_archive_find(const struct torch_archive *a, const char *name) {
    const struct torch_record wanted = {.name = (char *)(uintptr_t)name};
    if (!a->count) return NULL;
    return bsearch(&wanted, a->records, (size_t)a->count, sizeof wanted, by_name);
}
