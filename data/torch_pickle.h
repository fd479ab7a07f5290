/* The machine that reads the pickle of a state_dict: its values (torch_pickle.c), and what becomes
 * of them (torch_tensors.c). */
#ifndef DATA_TORCH_PICKLE_H
#define DATA_TORCH_PICKLE_H

#include "data/torch_file.h"

enum kind { NONE, MARK, FLAG, NUMBER, TEXT, GLOBAL, TUPLE, DICT, STORAGE, TENSOR, OTHER };

/* The names of Python that a state_dict needs; behind FIRST_STORAGE the types of storages. */
enum { ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, FIRST_STORAGE, TORCH_GLOBALS = 13 };
extern const struct torch_global {
    const char *name;  /* as in the pickle: module, newline, name */
    const char *dtype; /* as safetensors spells it; NULL: no storage */
    unsigned bytes;    /* of an element */
} torch_globals[TORCH_GLOBALS];

/* Where a list of other values is meant, they are all[first .. first + count). */
struct value {
    enum kind kind;
    int64_t number;      /* NUMBER; GLOBAL, STORAGE: its place in torch_globals */
    const char *text;    /* TEXT; STORAGE: its key; not ended by a zero */
    size_t length;       /* of text */
    size_t first, count; /* TUPLE: of items; STORAGE: count of elements */
    size_t last;         /* DICT: first and last are pairs, 0: none */
};

struct pair {
    size_t key, value; /* in `values` */
    size_t next;       /* 0: it is the last */
};

/* Every instruction makes one value, one pair, one tensor at most, and moves each value from the
 * stack into a tuple once. So arrays of as many elements as the pickle has bytes are enough. */
struct machine {
    const struct safetensors *s;
    const struct torch_archive *archive;
    const unsigned char *at, *end;
    struct value *values;
    size_t *stack, *memo, *items;
    struct pair *pairs;                /* from 1 on */
    struct safetensors_entry *tensors; /* without a name */
    size_t value_count, depth, memo_count, item_count, pair_count, tensor_count;
};

/* A value of that kind on the stack, which the caller fills in. */
struct value *torch_push(struct machine *m, enum kind kind);

/* The value `below` the top of the stack; NULL: there is none. */
static inline struct value *top(const struct machine *m, size_t below) {
    return below < m->depth ? &m->values[m->stack[m->depth - 1 - below]] : NULL;
}

static inline int is(const struct value *v, enum kind kind) {
    return v && v->kind == kind;
}

static inline int torn(const struct machine *m) {
    return torch_file_wrong(m->s, "its data.pkl is torn");
}

/* Calls of a state_dict, whose arguments are on top of the stack; their result replaces them. */
int torch_make_storage(struct machine *m);
int torch_make_tensor(struct machine *m, const struct value *args);

/* Fills s->entries, s->count and s->names from the dict that is left at the end. */
int torch_read_dict(struct safetensors *s, const struct machine *m);

#endif
