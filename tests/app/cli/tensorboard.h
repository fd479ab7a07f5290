/* Reads event files according to TensorBoard's format alone, and checks each length and each
 * CRC. */
#ifndef TESTS_CLI_TENSORBOARD_H
#define TESTS_CLI_TENSORBOARD_H

#include <dirent.h>
#include <math.h>
#include <stdint.h>

#include "tests/app/cli/run.h"

/* CRC-32C as long division of polynomials, one bit of the message after another; bits of each byte
 * count from the lowest, and so do those of the result. */
static inline uint32_t event_crc(const unsigned char *p, size_t bytes) {
    static const uint64_t DIVISOR = 0x11edc6f41;
    uint64_t rest = UINT32_MAX; /* the first 32 bits are inverted */
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        uint64_t next = p[bit / 8] >> bit % 8 & 1;
        rest = rest << 1 ^ next << 32;
        if (rest >> 32 & 1) rest ^= DIVISOR;
    }
    uint32_t crc = 0;
    for (int i = 0; i < 32; i++)
        crc |= (uint32_t)(~rest >> i & 1) << (31 - i);
    return crc;
}

static inline uint64_t event_number(const unsigned char *p, int bytes) {
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

static inline int event_crc_fits(const unsigned char *p, size_t bytes, const unsigned char *crc) {
    uint32_t masked = (uint32_t)event_number(crc, 4) - 0xa282ead8u;
    return event_crc(p, bytes) == (masked << 15 | masked >> 17);
}

struct event {
    char tag[64]; /* "": the record of the version */
    float value;
    int64_t step;
    double wall_time;
};
struct events {
    struct event *event; /* owned */
    int count;
    size_t rest; /* bytes after the last whole record */
};

static inline uint64_t event_varint(const unsigned char **p) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        value |= (uint64_t)(**p & 127) << shift;
        if (!(*(*p)++ & 128)) return value;
    }
}

/* Reads the fields of one message; those within `summary` and its value are found by their numbers,
 * which differ. Returns 0 for a field that no event of ours has. */
static inline int event_fields(const unsigned char *p, const unsigned char *end, int depth,
                               struct event *e) {
    while (p < end) {
        uint64_t key = event_varint(&p);
        int field = depth * 100 + (int)(key >> 3) * 10 + (int)(key & 7);
        if (field == 11) { /* wall_time */
            uint64_t bits = event_number(p, 8);
            memcpy(&e->wall_time, &bits, 8), p += 8;
        } else if (field == 20) {
            e->step = (int64_t)event_varint(&p);
        } else if (field == 225) { /* simple_value */
            uint32_t bits = (uint32_t)event_number(p, 4);
            memcpy(&e->value, &bits, 4), p += 4;
        } else if (field == 110) { /* of a session log: 1 is START */
            if (event_varint(&p) != 1) return 0;
            snprintf(e->tag, sizeof e->tag, "START");
        } else if (field == 32 || field == 72 || field == 52 || field == 112 || field == 212) {
            size_t bytes = event_varint(&p);
            if (p + bytes > end) return 0;
            if (field == 32 && (bytes != 13 || memcmp(p, "brain.Event:2", 13))) return 0;
            if (field == 212) snprintf(e->tag, sizeof e->tag, "%.*s", (int)bytes, p);
            if ((field == 52 || field == 72 || field == 112) &&
                !event_fields(p, p + bytes, depth + 1, e))
                return 0;
            p += bytes;
        } else {
            return 0;
        }
    }
    return p == end;
}

/* Takes the record at `at` apart. Returns its bytes; 0: it is not whole; -1: it is wrong. */
static inline long event_record(const unsigned char *at, size_t left, struct event *e) {
    if (left < 12) return 0;
    size_t bytes = event_number(at, 8);
    if (!event_crc_fits(at, 8, at + 8)) return -1;
    if (left < bytes + 16) return 0;
    if (!event_crc_fits(at + 12, bytes, at + 12 + bytes)) return -1;
    *e = (struct event){.step = 0};
    return event_fields(at + 12, at + 12 + bytes, 0, e) ? (long)bytes + 16 : -1;
}

/* Returns 0 if something in the text is wrong. An incomplete record counts as its end. */
static inline int events_read(struct events *all, const char *text, size_t bytes) {
    *all = (struct events){.event = calloc(bytes / 16 + 1, sizeof *all->event), .rest = bytes};
    for (long n; all->rest; all->rest -= (size_t)n) {
        n = event_record((const unsigned char *)text + bytes - all->rest, all->rest,
                         &all->event[all->count]);
        if (n < 0) return 0;
        if (n == 0) break;
        all->count++;
    }
    return all->count > 0 && !*all->event[0].tag;
}

/* The path of event file number `which` in the folder, by name. Fails the test if there are not
 * `files` of them, or others beside them. */
static inline void event_path(const char *folder, int files, int which, char path[512]) {
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort), found = 0;
    cr_assert_geq(count, 0, "%s: no such folder", folder);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (*name != '.') {
            cr_assert_eq(strncmp(name, "events.out.tfevents.", 20), 0, "%s/%s", folder, name);
            if (found++ == which) snprintf(path, 512, "%s/%s", folder, name);
        }
        free(entries[i]);
    }
    free(entries);
    cr_assert_eq(found, files, "%s: %d files, not %d", folder, found, files);
}

static inline struct events events_of(const char *folder, int files, int which) {
    char path[512];
    size_t bytes;
    struct events all;
    event_path(folder, files, which, path);
    char *text = cli_read(path, &bytes);
    cr_assert(events_read(&all, text, bytes), "%s: wrong after %d records", path, all.count);
    free(text);
    return all;
}

/* Number `which` of the events with this tag; NULL: there are fewer. */
static inline const struct event *event_of(const struct events *all, const char *tag, int which) {
    for (int i = 0; i < all->count; i++)
        if (!strcmp(all->event[i].tag, tag) && !which--) return &all->event[i];
    return NULL;
}

static inline int events_count(const struct events *all, const char *tag) {
    int count = 0;
    while (event_of(all, tag, count))
        count++;
    return count;
}

#endif
