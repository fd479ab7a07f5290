/* Writes event files; see event_file.h. */
#include "base/files/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

/* ---- bytes ---- */

enum { MOST_BYTES = 512 };

struct bytes {
    unsigned char at[MOST_BYTES];
    size_t count;
};

static void put_little_endian(struct bytes *b, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        b->at[b->count++] = (unsigned char)(value >> 8 * i);
}

/* A varint: seven bits a byte, the lowest first; the top bit says that more follow. */
static void put_varint(struct bytes *b, uint64_t value) {
    for (; value > 127; value >>= 7)
        b->at[b->count++] = (unsigned char)(value | 128);
    b->at[b->count++] = (unsigned char)value;
}

/* The kinds of fields in protocol buffers. A field begins with its number and its kind. */
enum wire { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };

static void put_field(struct bytes *b, unsigned number, enum wire wire) {
    put_varint(b, number << 3 | wire);
}

static void put_bytes(struct bytes *b, unsigned number, const void *data, size_t count) {
    put_field(b, number, WIRE_BYTES);
    put_varint(b, count);
    memcpy(b->at + b->count, data, count);
    b->count += count;
}

static void put_double(struct bytes *b, unsigned number, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_field(b, number, WIRE_64_BITS);
    put_little_endian(b, bits, 8);
}

static void put_float(struct bytes *b, unsigned number, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_field(b, number, WIRE_32_BITS);
    put_little_endian(b, bits, 4);
}

/* ---- records ---- */

/* A record has some 50 bytes, so there is no need for a table. */
static uint32_t crc32c(const unsigned char *p, size_t count) {
    static const uint32_t CASTAGNOLI = 0x82f63b78; /* the CRC-32C polynomial, bit-reversed */
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CASTAGNOLI : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const unsigned char *p, size_t count) {
    uint32_t crc = crc32c(p, count);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void write_record(struct event_file *f, const struct bytes *event) {
    struct bytes head = {.count = 0}, tail = {.count = 0};
    put_little_endian(&head, event->count, 8);
    put_little_endian(&head, masked_crc(head.at, 8), 4);
    put_little_endian(&tail, masked_crc(event->at, event->count), 4);
    fwrite(head.at, 1, head.count, f->file);
    fwrite(event->at, 1, event->count, f->file);
    fwrite(tail.at, 1, tail.count, f->file);
    if (ferror(f->file) && !f->error) f->error = errno;
}

/* message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary =
 * 5; } */
static void write_version(struct event_file *f, double wall_time) {
    static const char version[] = "brain.Event:2";
    struct bytes event = {.count = 0};
    put_double(&event, 1, wall_time);
    put_bytes(&event, 3, version, sizeof version - 1);
    write_record(f, &event);
}

/* message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value
 * = 1; } */
void event_file_scalar(struct event_file *f, double wall_time, int64_t step, const char *tag,
                       double number) {
    struct bytes value = {.count = 0}, summary = {.count = 0}, event = {.count = 0};
    if (!f->file) return;
    put_bytes(&value, 1, tag, strnlen(tag, EVENT_TAG_BYTES));
    put_float(&value, 2, (float)number);
    put_bytes(&summary, 1, value.at, value.count);
    put_double(&event, 1, wall_time);
    put_field(&event, 2, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.at, summary.count);
    write_record(f, &event);
    f->scalars++;
}

/* message SessionLog { enum SessionStatus { START = 1; } SessionStatus status = 1; }
 * message Event { .. SessionLog session_log = 7; } */
void event_file_start(struct event_file *f, double wall_time, int64_t step) {
    static const unsigned char start[] = {1 << 3 | WIRE_VARINT, 1};
    struct bytes event = {.count = 0};
    if (!f->file) return;
    put_double(&event, 1, wall_time);
    put_field(&event, 2, WIRE_VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 7, start, sizeof start);
    write_record(f, &event);
}

void event_file_flush(struct event_file *f) {
    if (f->file && fflush(f->file) && !f->error) f->error = errno;
}

/* ---- the file ---- */

/* Creates the folder and all above it. *existed: the length of the part that existed before. */
static int make_folder(const char *folder, size_t *existed) {
    struct stat about;
    char *path = strdup(folder);
    size_t length = strlen(folder);
    int error = path ? 0 : ENOMEM;
    *existed = 0;
    for (size_t i = 1; !error && i <= length; i++) {
        if (folder[i] != '/' && folder[i]) continue;
        path[i] = 0;
        if (mkdir(path, 0777)) {
            int why = errno; /* on a read-only disk it is not EEXIST, even if the folder exists */
            if (why != EEXIST && stat(path, &about))
                error = why;
            else
                *existed = i;
        }
        path[i] = folder[i];
    }
    free(path);
    if (!error) return OK;
    return fail_errno(ERR_FAILED, error, "%s: the folder cannot be made", folder);
}

static int open_new(struct event_file *f, const char *folder) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) || !*host) strcpy(host, "localhost");
    size_t bytes = strlen(folder) + strlen(host) + 64;
    f->path = malloc(bytes);
    if (!f->path) return fail(ERR_MEMORY, "%s: out of host memory", folder);
    snprintf(f->path, bytes, "%s/events.out.tfevents.%010lld.%s.%d", folder, (long long)time(NULL),
             host, (int)getpid());
    int fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    f->file = fd < 0 ? NULL : fdopen(fd, "a");
    if (f->file) return OK;
    int error = errno;
    if (fd >= 0) close(fd);
    return fail_errno(ERR_FAILED, error, "%s: cannot be written", f->path);
}

int event_file_open(struct event_file *f, const char *folder) {
    *f = (struct event_file){.file = NULL};
    CHECK(make_folder(folder, &f->existed));
    CHECK(open_new(f, folder));
    write_version(f, (double)time(NULL));
    event_file_flush(f);
    return OK;
}

/* Removes the file and the folders that were made for it, the innermost first. */
static void remove_all(struct event_file *f) {
    unlink(f->path);
    for (char *slash; (slash = strrchr(f->path, '/')) && (size_t)(slash - f->path) > f->existed;) {
        *slash = 0;
        rmdir(f->path);
    }
}

int event_file_close(struct event_file *f) {
    int code = OK;
    if (f->file) {
        event_file_flush(f);
        if (fclose(f->file) && !f->error) f->error = errno;
        f->file = NULL;
        if (f->error) code = fail_errno(ERR_FAILED, f->error, "%s: cannot be written", f->path);
        if (!f->scalars) remove_all(f);
    }
    free(f->path);
    f->path = NULL;
    return code;
}
