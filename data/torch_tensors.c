/* What the pickle of a state_dict describes: storages, tensors in them, and the dict of all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/torch_pickle.h"

const struct torch_global torch_globals[TORCH_GLOBALS] = {
    {"collections\nOrderedDict", NULL, 0},
    {"torch._utils\n_rebuild_tensor_v2", NULL, 0},
    {"torch._utils\n_rebuild_parameter", NULL, 0},
    {"torch\nFloatStorage", "F32", 4},
    {"torch\nDoubleStorage", "F64", 8},
    {"torch\nHalfStorage", "F16", 2},
    {"torch\nBFloat16Storage", "BF16", 2},
    {"torch\nLongStorage", "I64", 8},
    {"torch\nIntStorage", "I32", 4},
    {"torch\nShortStorage", "I16", 2},
    {"torch\nCharStorage", "I8", 1},
    {"torch\nByteStorage", "U8", 1},
    {"torch\nBoolStorage", "BOOL", 1},
};

/* ('storage', torch.FloatStorage, '0', 'cpu', 80) */
int torch_make_storage(struct machine *m) {
    const struct value *t = top(m, 0), *part[5];
    if (!is(t, TUPLE) || t->count != 5) return torn(m);
    for (int i = 0; i < 5; i++)
        part[i] = &m->values[m->items[t->first + (size_t)i]];
    if (!is(part[1], GLOBAL) || part[1]->number < FIRST_STORAGE || !is(part[2], TEXT) ||
        !is(part[4], NUMBER) || part[4]->number < 0)
        return torch_file_wrong(m->s, "a storage is not described as one");
    m->depth--;
    struct value *v = torch_push(m, STORAGE);
    v->number = part[1]->number, v->count = (size_t)part[4]->number;
    v->text = part[2]->text, v->length = part[2]->length;
    return OK;
}

static int shape_of(const struct machine *m, const struct value *size, const struct value *stride,
                    struct safetensors_entry *e) {
    if (!is(size, TUPLE) || !is(stride, TUPLE) || size->count != stride->count) return torn(m);
    if (size->count > SAFETENSORS_DIMS)
        return torch_file_wrong(m->s, "a tensor of more than %d dimensions", SAFETENSORS_DIMS);
    e->dims = (int)size->count, e->count = 1;
    int dense = 1;
    for (int d = e->dims - 1; d >= 0; d--) {
        const struct value *n = &m->values[m->items[size->first + (size_t)d]],
                           *step = &m->values[m->items[stride->first + (size_t)d]];
        if (!is(n, NUMBER) || !is(step, NUMBER) || n->number < 0) return torn(m);
        if (n->number > 1) dense &= step->number >= 0 && (uint64_t)step->number == e->count;
        e->shape[d] = n->number;
        if (__builtin_mul_overflow(e->count, (uint64_t)n->number, &e->count))
            return torch_file_wrong(m->s, "a tensor's shape is too large");
    }
    if (!dense && e->count)
        return torch_file_wrong(m->s, "a tensor is not contiguous: save its .contiguous()");
    return OK;
}

/* Where the storage's bytes lie in the file. */
static int find_storage(const struct machine *m, const struct value *v, uint64_t *offset) {
    char name[64];
    uint64_t bytes;
    snprintf(name, sizeof name, "data/%.*s", (int)(v->length < 50 ? v->length : 50), v->text);
    const struct torch_record *record = torch_archive_find(m->archive, name);
    if (!record) return torch_file_wrong(m->s, "there is no record '%s'", name);
    if (__builtin_mul_overflow((uint64_t)v->count, torch_globals[v->number].bytes, &bytes) ||
        bytes != record->bytes)
        return torch_file_wrong(m->s, "record '%s' has %llu bytes, not as its storage", name,
                                (unsigned long long)record->bytes);
    *offset = record->offset;
    return OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks) */
int torch_make_tensor(struct machine *m, const struct value *args) {
    const struct value *part[4];
    struct safetensors_entry *e = &m->tensors[m->tensor_count];
    if (args->count < 6 || args->count > 7) return torn(m);
    for (int i = 0; i < 4; i++)
        part[i] = &m->values[m->items[args->first + (size_t)i]];
    if (!is(part[0], STORAGE) || !is(part[1], NUMBER) || part[1]->number < 0) return torn(m);
    const unsigned size = torch_globals[part[0]->number].bytes;
    uint64_t first = (uint64_t)part[1]->number;
    CHECK(shape_of(m, part[2], part[3], e));
    CHECK(find_storage(m, part[0], &e->offset));
    if (first > part[0]->count || e->count > part[0]->count - first)
        return torch_file_wrong(m->s, "a tensor lies outside its storage");
    e->offset += first * size, e->bytes = e->count * size;
    e->dtype = torch_globals[part[0]->number].dtype;
    m->depth -= 2;
    torch_push(m, TENSOR)->first = m->tensor_count++;
    return OK;
}

/* What is on top of the stack at the end: a dict of names and tensors. */
int torch_read_dict(struct safetensors *s, const struct machine *m) {
    const struct value *dict = top(m, 0);
    size_t bytes = 1, pairs = 0;
    if (!is(dict, DICT)) return torch_file_wrong(s, "it holds no dict of tensors");
    for (size_t i = dict->first; i; i = m->pairs[i].next, pairs++) {
        const struct value *key = &m->values[m->pairs[i].key];
        if (key->kind != TEXT) return torch_file_wrong(s, "a key of its dict is no text");
        if (m->values[m->pairs[i].value].kind != TENSOR)
            return torch_file_wrong(s, "'%.*s' in it is no tensor",
                                    (int)(key->length < 100 ? key->length : 100), key->text);
        bytes += key->length + 1;
    }
    s->entries = calloc(pairs + 1, sizeof *s->entries);
    s->names = calloc(bytes, 1);
    if (!s->entries || !s->names) return fail(ERR_MEMORY, "no memory to read: %s", s->path);
    char *name = s->names;
    for (size_t i = dict->first; i; i = m->pairs[i].next) {
        const struct value *key = &m->values[m->pairs[i].key];
        struct safetensors_entry *e = &s->entries[s->count++];
        *e = m->tensors[m->values[m->pairs[i].value].first];
        memcpy(name, key->text, key->length);
        e->name = safetensors_name(name);
        name += key->length + 1;
    }
    return OK;
}

struct value *torch_push(struct machine *m, enum kind kind) {
    m->stack[m->depth++] = m->value_count;
    m->values[m->value_count] = (struct value){.kind = kind};
    return &m->values[m->value_count++];
}
