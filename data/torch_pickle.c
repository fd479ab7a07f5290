/* The pickle of a state_dict. A pickle is a program for a machine with a stack and a memo (values
 * by number): each instruction pushes a value, or takes values off and pushes what it makes of
 * them. Of an entry of a state_dict it is, with the values that are left on the stack:
 *
 *     'fc.bias'                                          text
 *     'fc.bias' _rebuild_tensor_v2                       a name of Python
 *     'fc.bias' _rebuild_tensor_v2 MARK storage 0 (10,) (1,) False {}
 *     'fc.bias' _rebuild_tensor_v2 tuple                 what came behind the mark
 *     'fc.bias' tensor                                   the call, which is ours: torch_make_tensor
 *     (empty)                                            both went into the dict below
 *
 * A name that is not in torch_globals ends the reading. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/torch_pickle.h"

enum { MOST_PICKLE = 1 << 22 }; /* bytes */

/* The bytes of an operand; NULL: the pickle ends before. */
static const unsigned char *take(struct machine *m, size_t bytes) {
    if ((size_t)(m->end - m->at) < bytes) return NULL;
    m->at += bytes;
    return m->at - bytes;
}

static int take_number(struct machine *m, int bytes, int64_t *out) {
    const unsigned char *from = take(m, (size_t)bytes);
    uint64_t n = 0;
    if (!from) return torn(m);
    for (int i = bytes - 1; i >= 0; i--)
        n = n << 8 | from[i];
    *out = (int64_t)n;
    return OK;
}

/* ---- what instructions do ---- */

static int push_number(struct machine *m, int bytes) {
    int64_t n = 0;
    CHECK(take_number(m, bytes, &n));
    if (bytes == 4) n = (int32_t)n;
    torch_push(m, NUMBER)->number = n;
    return OK;
}

/* A number of any length, little-endian with a sign. */
static int push_long(struct machine *m) {
    int64_t length = 0, n = 0;
    CHECK(take_number(m, 1, &length));
    if (length > 8) return torch_file_wrong(m->s, "a number of %d bytes", (int)length);
    CHECK(take_number(m, (int)length, &n));
    if (length && length < 8 && n >> (8 * length - 1)) n -= (int64_t)1 << 8 * length;
    torch_push(m, NUMBER)->number = n;
    return OK;
}

static int push_text(struct machine *m) {
    int64_t length = 0;
    CHECK(take_number(m, 4, &length));
    const unsigned char *text = take(m, (size_t)length);
    if (!text) return torn(m);
    for (int64_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] == 127)
            return torch_file_wrong(m->s, "a name with a control character");
    struct value *v = torch_push(m, TEXT);
    v->text = (const char *)text, v->length = (size_t)length;
    return OK;
}

static int push_global(struct machine *m) {
    const unsigned char *from = m->at, *newline = from;
    char shown[100];
    for (int lines = 0; lines < 2; lines++, newline++) {
        newline = memchr(newline, '\n', (size_t)(m->end - newline));
        if (!newline) return torn(m);
    }
    m->at = newline;
    size_t length = (size_t)(newline - from) - 1;
    for (int i = 0; i < TORCH_GLOBALS; i++)
        if (strlen(torch_globals[i].name) == length &&
            !memcmp(torch_globals[i].name, from, length)) {
            torch_push(m, GLOBAL)->number = i;
            return OK;
        }
    snprintf(shown, sizeof shown, "%.*s", (int)(length < 99 ? length : 99), (const char *)from);
    for (char *c = shown; *c; c++)
        if (*c == '\n') *c = '.';
    for (unsigned char *c = (unsigned char *)shown; *c; c++)
        if (*c < ' ' || *c > 126) *c = '?';
    return torch_file_wrong(
        m->s, "it names %s, which no state_dict needs, and nothing of it was run", shown);
}

static int put(struct machine *m, int64_t number) {
    if (!m->depth || (size_t)number > m->memo_count) return torn(m);
    m->memo[number] = m->stack[m->depth - 1];
    if ((size_t)number == m->memo_count) m->memo_count++;
    return OK;
}

static int get(struct machine *m, int64_t number) {
    if ((size_t)number >= m->memo_count) return torn(m);
    m->stack[m->depth++] = m->memo[number];
    return OK;
}

/* How many values lie above the uppermost mark. */
static int above_mark(const struct machine *m, size_t *count) {
    for (*count = 0; *count < m->depth; ++*count)
        if (top(m, *count)->kind == MARK) return OK;
    return torn(m);
}

/* The uppermost `count` values become a tuple; `under` more, a mark, go. */
static int make_tuple(struct machine *m, size_t count, size_t under) {
    if (m->depth < count + under) return torn(m);
    size_t first = m->item_count;
    memcpy(m->items + first, m->stack + m->depth - count, count * sizeof *m->items);
    m->item_count += count;
    m->depth -= count + under;
    struct value *v = torch_push(m, TUPLE);
    v->first = first, v->count = count;
    return OK;
}

/* The uppermost `count` values are keys and values for the dict below them and `under` more. */
static int set_items(struct machine *m, size_t count, size_t under) {
    struct value *dict = top(m, count + under);
    if (!is(dict, DICT) || count % 2) return torn(m);
    for (size_t i = count; i > 0; i -= 2) {
        struct pair *pair = &m->pairs[++m->pair_count];
        *pair = (struct pair){m->stack[m->depth - i], m->stack[m->depth - i + 1], 0};
        if (dict->last)
            m->pairs[dict->last].next = m->pair_count;
        else
            dict->first = m->pair_count;
        dict->last = m->pair_count;
    }
    m->depth -= count + under;
    return OK;
}

/* A call of the value below the top with the tuple on top. */
static int call(struct machine *m) {
    const struct value *args = top(m, 0), *function = top(m, 1);
    if (!is(args, TUPLE) || !is(function, GLOBAL)) return torn(m);
    if (function->number == REBUILD_TENSOR) return torch_make_tensor(m, args);
    if (function->number == REBUILD_PARAMETER && args->count) { /* (tensor, requires_grad, hooks) */
        size_t tensor = m->items[args->first];
        if (!is(&m->values[tensor], TENSOR)) return torn(m);
        m->depth -= 2;
        m->stack[m->depth++] = tensor;
        return OK;
    }
    if (function->number != ORDERED_DICT || args->count) return torn(m);
    m->depth -= 2;
    torch_push(m, DICT);
    return OK;
}

/* Attributes of a dict, as a state_dict's versions of its layers: they are not needed. */
static int drop_attributes(struct machine *m) {
    if (!is(top(m, 0), DICT) || !is(top(m, 1), DICT)) return torn(m);
    m->depth--;
    return OK;
}

/* Lists and numbers with a point are in a state_dict of an optimizer: what has them is named at the
 * end. */
static int append(struct machine *m, size_t count, size_t under) {
    if (!is(top(m, count + under), OTHER)) return torn(m);
    m->depth -= count + under;
    return OK;
}

/* ---- the machine ---- */

static int run_instruction(struct machine *m, unsigned char op) {
    int64_t n = 0;
    size_t count = 0;
    switch (op) {
    case '(': torch_push(m, MARK); return OK;
    case 'N': torch_push(m, NONE); return OK;
    case 0x88:
    case 0x89: torch_push(m, FLAG); return OK;
    case 'K': return push_number(m, 1);
    case 'M': return push_number(m, 2);
    case 'J': return push_number(m, 4);
    case 0x8a: return push_long(m);
    case 'G': torch_push(m, OTHER); return take(m, 8) ? OK : torn(m);
    case 'X': return push_text(m);
    case 'c': return push_global(m);
    case '}': torch_push(m, DICT); return OK;
    case ']': torch_push(m, OTHER); return OK;
    case ')': return make_tuple(m, 0, 0);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(m, (size_t)op - 0x84, 0);
    case 't': CHECK(above_mark(m, &count)); return make_tuple(m, count, 1);
    case 'q': CHECK(take_number(m, 1, &n)); return put(m, n);
    case 'r': CHECK(take_number(m, 4, &n)); return put(m, n);
    case 'h': CHECK(take_number(m, 1, &n)); return get(m, n);
    case 'j': CHECK(take_number(m, 4, &n)); return get(m, n);
    case 's': return set_items(m, 2, 0);
    case 'u': CHECK(above_mark(m, &count)); return set_items(m, count, 1);
    case 'a': return append(m, 1, 0);
    case 'e': CHECK(above_mark(m, &count)); return append(m, count, 1);
    case 'Q': return torch_make_storage(m);
    case 'R': return call(m);
    case 'b': return drop_attributes(m);
    default:
        return torch_file_wrong(
            m->s, "instruction 0x%02x in its data.pkl, which no state_dict needs", op);
    }
}

static int run(struct machine *m) {
    const unsigned char *start = take(m, 2);
    if (!start || start[0] != 0x80 || start[1] != 2)
        return torch_file_wrong(m->s, "its pickle is not of protocol 2, torch.save's own");
    for (;;) {
        const unsigned char *op = take(m, 1);
        if (!op) return torn(m);
        if (*op == '.') return OK;
        CHECK(run_instruction(m, *op));
    }
}

int torch_pickle_read(struct safetensors *s, const struct torch_archive *a,
                      const unsigned char *pickle, size_t bytes) {
    struct machine m = {.s = s, .archive = a, .at = pickle, .end = pickle + bytes};
    m.values = calloc(bytes + 1, sizeof *m.values);
    m.stack = calloc(bytes + 1, sizeof *m.stack);
    m.memo = calloc(bytes + 1, sizeof *m.memo);
    m.items = calloc(bytes + 1, sizeof *m.items);
    m.pairs = calloc(bytes + 1, sizeof *m.pairs);
    m.tensors = calloc(bytes / 2 + 1, sizeof *m.tensors);
    int code = m.values && m.stack && m.memo && m.items && m.pairs && m.tensors
                   ? run(&m)
                   : fail(ERR_MEMORY, "no memory to read: %s", s->path);
    if (!code) code = torch_read_dict(s, &m);
    free(m.values), free(m.stack), free(m.memo);
    free(m.items), free(m.pairs), free(m.tensors);
    return code;
}

/* ---- the file ---- */

int torch_file_is_legacy(const unsigned char first[8]) {
    static const unsigned char magic[8] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46};
    return !memcmp(first, magic, sizeof magic);
}

static int check_byte_order(const struct safetensors *s, const struct torch_archive *a) {
    const struct torch_record *order = torch_archive_find(a, "byteorder");
    char text[6];
    if (!order) return OK; /* older files have none, and are little-endian as their machines */
    if (order->bytes != sizeof text)
        return torch_file_wrong(s, "its numbers are not little-endian");
    CHECK(safetensors_read_at(s, order->offset, text, sizeof text));
    if (memcmp(text, "little", sizeof text))
        return torch_file_wrong(s, "its numbers are not little-endian");
    return OK;
}

static int read_records(struct safetensors *s, const struct torch_archive *a) {
    const struct torch_record *record = torch_archive_find(a, "data.pkl");
    if (torch_archive_find(a, "constants.pkl"))
        return torch_file_wrong(s, "it is a program of TorchScript");
    if (!record) return torch_file_wrong(s, "a zip file without data.pkl");
    if (record->bytes > MOST_PICKLE) return torch_file_wrong(s, "its data.pkl is above 4 MiB");
    CHECK(check_byte_order(s, a));
    unsigned char *pickle = malloc(record->bytes + 1);
    if (!pickle) return fail(ERR_MEMORY, "no memory to read: %s", s->path);
    int code = safetensors_read_at(s, record->offset, pickle, record->bytes);
    if (!code) code = torch_pickle_read(s, a, pickle, record->bytes);
    free(pickle);
    return code;
}

int torch_file_read(struct safetensors *s, uint64_t size) {
    struct torch_archive a;
    int code = torch_archive_read(&a, s, size);
    if (!code) code = read_records(s, &a);
    torch_archive_free(&a);
    return code;
}
