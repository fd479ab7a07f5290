/* Words of PTX, and the functions of a file: the table of contents, made without looking into the
 * functions' bodies. */
#include "tests/stand_ins/ptx/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ptx_fail(struct ptx_error *error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (!*error->text) vsnprintf(error->text, sizeof error->text, format, list);
    va_end(list);
    return 0;
}

/* ---- words ---- */

int ptx_is(struct ptx_word word, const char *text) {
    return strlen(text) == word.length && memcmp(word.at, text, word.length) == 0;
}

int ptx_same(struct ptx_word a, struct ptx_word b) {
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

static int is_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static void skip_space(struct ptx_reader *r) {
    for (; r->at < r->end; r->at++) {
        if (*r->at == '\n')
            r->line++;
        else if (*r->at == '/' && r->at + 1 < r->end && r->at[1] == '/')
            while (r->at + 1 < r->end && r->at[1] != '\n')
                r->at++;
        else if (!isspace((unsigned char)*r->at))
            return;
    }
}

struct ptx_word ptx_next(struct ptx_reader *r) {
    skip_space(r);
    const char *from = r->at;
    if (r->at == r->end) return (struct ptx_word){from, 0};
    int sign = *from == '-' && from + 1 < r->end && isdigit((unsigned char)from[1]);
    if (*from == '"') {
        r->at++;
        while (r->at < r->end && *r->at != '"' && *r->at != '\n')
            r->at++;
        if (r->at < r->end) r->at++;
    } else if (is_name(*from) || sign) {
        r->at += sign;
        while (r->at < r->end && is_name(*r->at))
            r->at++;
    } else {
        r->at++;
    }
    return (struct ptx_word){from, (size_t)(r->at - from)};
}

struct ptx_word ptx_peek(const struct ptx_reader *r) {
    struct ptx_reader ahead = *r;
    return ptx_next(&ahead);
}

int ptx_take(struct ptx_reader *r, const char *text) {
    struct ptx_reader ahead = *r;
    if (!ptx_is(ptx_next(&ahead), text)) return 0;
    *r = ahead;
    return 1;
}

void ptx_skip_line(struct ptx_reader *r) {
    while (r->at < r->end && *r->at != '\n')
        r->at++;
}

int ptx_number(struct ptx_word word, uint64_t *value, int *bits) {
    char text[32], *end;
    if (!word.length || word.length >= sizeof text) return 0;
    memcpy(text, word.at, word.length);
    text[word.length] = 0;
    *bits = 0;
    if (text[0] == '0' && (text[1] == 'f' || text[1] == 'd')) {
        *bits = text[1] == 'f' ? 32 : 64;
        *value = strtoull(text + 2, &end, 16);
        return !*end && (int)word.length == 2 + *bits / 4;
    }
    if (!isdigit((unsigned char)text[0]) && text[0] != '-') return 0;
    *value = text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    return !*end || (*end == 'U' && !end[1]);
}

/* ---- declarations ---- */

int ptx_type_bits(struct ptx_word type) {
    static const struct {
        const char *name;
        int bits;
    } types[] = {{".pred", 1}, {".b8", 8},   {".u8", 8},   {".s8", 8},   {".b16", 16},
                 {".u16", 16}, {".s16", 16}, {".b32", 32}, {".u32", 32}, {".s32", 32},
                 {".f32", 32}, {".b64", 64}, {".u64", 64}, {".s64", 64}, {".f64", 64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (ptx_is(type, types[i].name)) return types[i].bits;
    return 0;
}

static int number_next(struct ptx_reader *r, uint64_t *value, struct ptx_error *error) {
    int bits;
    struct ptx_word word = ptx_next(r);
    return ptx_number(word, value, &bits) ||
           ptx_fail(error, "line %d: '%.*s' is no number", r->line, PTX_WORD(word));
}

int ptx_variable_read(struct ptx_variable *v, struct ptx_reader *r, struct ptx_error *error) {
    uint64_t count = 1;
    v->align = 0;
    if (ptx_take(r, ".align") && !number_next(r, &v->align, error)) return 0;
    struct ptx_word type = ptx_next(r);
    int bits = ptx_type_bits(type);
    if (bits < 8)
        return ptx_fail(error, "line %d: '%.*s' is no type of memory", r->line, PTX_WORD(type));
    v->name = ptx_next(r);
    if (ptx_take(r, "[")) {
        if (!number_next(r, &count, error)) return 0;
        if (!ptx_take(r, "]"))
            return ptx_fail(error, "line %d: %.*s has more than one index", r->line,
                            PTX_WORD(v->name));
    }
    v->bytes = count * (uint64_t)bits / 8;
    if (!v->align) v->align = (uint64_t)bits / 8;
    return 1;
}

/* ---- the functions of a file ---- */

/* Leaves the reader behind the brace that closes the one before it. */
static int skip_body(struct ptx_reader *r) {
    int depth = 1;
    for (; r->at < r->end && depth; r->at++) {
        if (*r->at == '\n') r->line++;
        if (*r->at == '{') depth++;
        if (*r->at == '}') depth--;
        if (*r->at == '/' && r->at + 1 < r->end && r->at[1] == '/')
            while (r->at + 1 < r->end && r->at[1] != '\n')
                r->at++;
    }
    return depth == 0;
}

static int read_params(struct ptx_function *f, struct ptx_reader *r, struct ptx_error *error) {
    if (!ptx_take(r, "(")) return 1;
    while (!ptx_take(r, ")")) {
        if (f->param_count == (int)(sizeof f->params / sizeof *f->params))
            return ptx_fail(error, "line %d: too many parameters", r->line);
        struct ptx_variable *v = &f->params[f->param_count++];
        v->space = f->is_kernel ? PTX_PARAM : PTX_CALL;
        if (!ptx_take(r, ".param") || !ptx_variable_read(v, r, error))
            return ptx_fail(error, "line %d: a parameter that is not understood", r->line);
        (void)ptx_take(r, ",");
    }
    return 1;
}

/* What stands behind ".entry" or ".func". A function that is only declared is left out. */
static int read_function(struct ptx_file *file, struct ptx_reader *r, int is_kernel,
                         struct ptx_error *error) {
    struct ptx_function f = {.file = file, .is_kernel = is_kernel};
    if (ptx_is(ptx_peek(r), "("))
        return ptx_fail(error, "line %d: a function that returns a value", r->line);
    f.name = ptx_next(r);
    if (!read_params(&f, r, error)) return 0;
    for (;;) {
        uint64_t threads;
        if (ptx_take(r, ";")) return 1;
        if (ptx_take(r, "{")) break;
        if (ptx_take(r, ".maxntid")) {
            f.most_threads = 1;
            do {
                if (!number_next(r, &threads, error)) return 0;
                f.most_threads *= (uint32_t)threads;
            } while (ptx_take(r, ","));
        } else if (ptx_take(r, ".minnctapersm")) {
            if (!number_next(r, &threads, error)) return 0;
        } else if (!ptx_take(r, ".noreturn")) {
            return ptx_fail(error, "line %d: '%.*s' before a function's body", r->line,
                            PTX_WORD(ptx_peek(r)));
        }
    }
    f.body = *r;
    if (!skip_body(r)) return ptx_fail(error, "%.*s has no end", PTX_WORD(f.name));
    f.body.end = r->at;
    struct ptx_function *more =
        realloc(file->functions, (size_t)(file->function_count + 1) * sizeof *more);
    if (!more) return ptx_fail(error, "out of memory");
    file->functions = more;
    file->functions[file->function_count++] = f;
    return 1;
}

int ptx_file_of(struct ptx_file *file, const char *path, const char *text, size_t bytes,
                struct ptx_error *error) {
    *file = (struct ptx_file){.path = strdup(path), .text = text, .bytes = bytes};
    struct ptx_reader r = {text, text + bytes, 1};
    for (struct ptx_word word; (word = ptx_next(&r)).length;) {
        if (ptx_is(word, ".version") || ptx_is(word, ".target") || ptx_is(word, ".address_size") ||
            ptx_is(word, ".file")) {
            ptx_skip_line(&r);
        } else if (ptx_is(word, ".section")) {
            ptx_skip_line(&r);
            if (!ptx_take(&r, "{") || !skip_body(&r))
                return ptx_fail(error, "%s:%d: a section that is not understood", path, r.line);
        } else if (ptx_is(word, ".shared")) {
            struct ptx_variable *v = &file->shared[file->shared_count++];
            v->space = PTX_SHARED;
            if (file->shared_count > (int)(sizeof file->shared / sizeof *file->shared) ||
                !ptx_variable_read(v, &r, error))
                return ptx_fail(error, "%s:%d: too much shared memory", path, r.line);
        } else if (ptx_is(word, ".entry") || ptx_is(word, ".func")) {
            if (!read_function(file, &r, ptx_is(word, ".entry"), error)) return 0;
        } else if (!ptx_is(word, ".visible") && !ptx_is(word, ".weak") && !ptx_is(word, ";")) {
            return ptx_fail(error, "%s:%d: '%.*s' outside of functions", path, r.line,
                            PTX_WORD(word));
        }
    }
    return 1;
}

int ptx_file_open(struct ptx_file *file, const char *path, struct ptx_error *error) {
    FILE *in = fopen(path, "rb");
    *file = (struct ptx_file){.path = NULL};
    if (!in) return ptx_fail(error, "%s: cannot be opened", path);
    char *text = NULL;
    size_t bytes = 0, room = 0, got;
    do {
        if (room - bytes < 1 << 16) text = realloc(text, room += (room >> 1) + (1 << 20));
        if (!text) abort();
        bytes += got = fread(text + bytes, 1, room - bytes, in);
    } while (got);
    fclose(in);
    if (ptx_file_of(file, path, text, bytes, error)) return 1;
    ptx_file_close(file);
    return 0;
}

void ptx_file_close(struct ptx_file *file) {
    free(file->functions);
    free((char *)(uintptr_t)file->text);
    free(file->path);
    *file = (struct ptx_file){.path = NULL};
}

struct ptx_word ptx_source(const struct ptx_file *file, unsigned number) {
    struct ptx_reader r = {file->text, file->text + file->bytes, 1};
    const char *from = memmem(file->text, file->bytes, "\t.file\t", 7);
    struct ptx_word none = {"", 0};
    if (!from) return none;
    r.at = from;
    while (ptx_take(&r, ".file")) {
        uint64_t value;
        int bits;
        struct ptx_word word = ptx_next(&r), name = ptx_next(&r);
        if (ptx_number(word, &value, &bits) && value == number && name.length > 2)
            return (struct ptx_word){name.at + 1, name.length - 2};
        ptx_skip_line(&r);
    }
    return none;
}
