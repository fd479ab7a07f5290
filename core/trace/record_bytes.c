/* Writes, reads and frees a record with one walk over its arrays; see record_bytes.h. */
#include "trace/record_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum walk_kind { WALK_WRITES, WALK_READS, WALK_FREES };

struct walk {
    enum walk_kind kind;
    FILE *to;
    const char *from; /* the rest of the input */
    size_t left;
    int code; /* the first failure of reading; arrays after it become NULL, and can be freed */
};

/* The next bytes in their own memory; NULL: there are fewer, or there is no memory. */
static void *take(struct walk *w, size_t bytes) {
    if (!w->code && bytes > w->left)
        w->code = fail(ERR_FAILED, "run record: %zu bytes are missing: a rank did not finish it",
                       bytes - w->left);
    char *data = w->code ? NULL : malloc(bytes + 1);
    if (!data && !w->code) w->code = fail(ERR_MEMORY, "run record: out of host memory");
    if (!data) return NULL;
    memcpy(data, w->from, bytes);
    w->from += bytes, w->left -= bytes;
    return data;
}

/* member: the address of a pointer to so many bytes, NULL if there is no array. In a record that is
 * being read it is the writer's pointer, which tells only whether there is an array. */
static void walk_array(struct walk *w, void *member, size_t bytes) {
    void *data;
    memcpy(&data, member, sizeof data);
    if (!data) return;
    if (w->kind == WALK_WRITES) fwrite(data, 1, bytes, w->to);
    if (w->kind == WALK_READS) data = take(w, bytes), memcpy(member, &data, sizeof data);
    if (w->kind == WALK_FREES) free(data);
}

static void walk_names(struct walk *w, char ***names, int count) {
    if (!*names) return;
    if (w->kind == WALK_READS && !(*names = calloc((size_t)count + 1, sizeof **names)))
        w->code = fail(ERR_MEMORY, "run record: out of host memory");
    for (int i = 0; *names && i < count; i++) {
        char **name = *names + i;
        if (w->kind == WALK_WRITES) fwrite(*name, 1, strlen(*name) + 1, w->to);
        if (w->kind == WALK_READS) *name = take(w, strnlen(w->from, w->left) + 1);
        if (w->kind == WALK_FREES) free(*name);
    }
    if (w->kind == WALK_FREES) free(*names);
}

static void walk_record(struct walk *w, struct run_record *r) {
    size_t p = (size_t)r->parameters, b = (size_t)r->buffers, epochs = (size_t)r->epoch_count;
    walk_array(w, &r->bucket_bytes, (size_t)r->bucket_count * sizeof *r->bucket_bytes);
    walk_names(w, &r->bucket_algorithms, r->bucket_algorithm_count);
    walk_names(w, &r->names, r->parameters);
    walk_names(w, &r->buffer_names, r->buffers);
    walk_names(w, &r->machines, r->machine_count);
    walk_array(w, &r->losses, (size_t)r->steps * sizeof *r->losses);
    walk_array(w, &r->epoch_seconds, epochs * sizeof *r->epoch_seconds);
    walk_array(w, &r->accuracy, epochs * sizeof *r->accuracy);
    walk_array(w, &r->valid_loss, epochs * sizeof *r->valid_loss);
    walk_array(w, &r->epoch_lr, epochs * sizeof *r->epoch_lr);
    walk_array(w, &r->traffic, sizeof *r->traffic);
    for (int d = 0; d < MAX_DEVICES; d++) {
        walk_array(w, &r->hashes[d], (size_t)r->steps * (2 * p + b) * sizeof *r->hashes[d]);
        walk_array(w, &r->final_hashes[d], (p + b) * sizeof *r->final_hashes[d]);
    }
    walk_array(w, &r->grads, r->parameter_count * sizeof *r->grads);
}

void record_bytes_write(const struct run_record *record, FILE *file) {
    struct walk w = {.kind = WALK_WRITES, .to = file};
    fwrite(record, sizeof *record, 1, file);
    walk_record(&w, (struct run_record *)record); /* writing does not change the record */
}

int record_bytes_read(struct run_record *record, const void *from, size_t bytes) {
    struct walk w = {.kind = WALK_READS,
                     .from = (const char *)from + sizeof *record,
                     .left = bytes - sizeof *record};
    memset(record, 0, sizeof *record);
    if (bytes < sizeof *record)
        return fail(ERR_FAILED, "run record: %zu bytes: a rank did not finish it", bytes);
    memcpy(record, from, sizeof *record);
    memset(&record->kept, 0, sizeof record->kept);
    walk_record(&w, record);
    return w.code;
}

void record_free(struct run_record *record) {
    struct walk w = {.kind = WALK_FREES};
    if (!record) return;
    walk_record(&w, record);
    span_log_free(&record->kept);
    memset(record, 0, sizeof *record);
}
