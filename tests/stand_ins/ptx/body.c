/* The instructions of one PTX function, as they are written: opcode, guard and operands. */
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/ptx/text.h"

enum { MANY = 1024 };

static int line_add(struct ptx_body *body, const struct ptx_line *line) {
    if (body->line_count % MANY == 0) {
        struct ptx_line *more =
            realloc(body->lines, (body->line_count + MANY) * sizeof *body->lines);
        if (!more) return 0;
        body->lines = more;
    }
    body->lines[body->line_count++] = *line;
    return 1;
}

static int label_add(struct ptx_body *body, struct ptx_word name) {
    if (body->label_count % MANY == 0) {
        struct ptx_label *more =
            realloc(body->labels, (body->label_count + MANY) * sizeof *body->labels);
        if (!more) return 0;
        body->labels = more;
    }
    body->labels[body->label_count++] = (struct ptx_label){name, body->line_count};
    return 1;
}

/* ---- operands ---- */

static int read_words(struct ptx_operand *operand, struct ptx_reader *r, const char *end,
                      struct ptx_error *error) {
    while (!ptx_take(r, end)) {
        if (operand->count == 4) return ptx_fail(error, "line %d: more than 4 words", r->line);
        operand->words[operand->count++] = ptx_next(r);
        (void)ptx_take(r, ",");
    }
    return 1;
}

static int read_address(struct ptx_operand *operand, struct ptx_reader *r,
                        struct ptx_error *error) {
    uint64_t offset = 0;
    int bits;
    operand->words[0] = ptx_next(r);
    operand->count = 1;
    if (ptx_take(r, "+") && !ptx_number(ptx_next(r), &offset, &bits))
        return ptx_fail(error, "line %d: an offset that is no number", r->line);
    operand->offset = (int64_t)offset;
    return ptx_take(r, "]") || ptx_fail(error, "line %d: an address without an end", r->line);
}

static int read_operand(struct ptx_operand *operand, struct ptx_reader *r,
                        struct ptx_error *error) {
    *operand = (struct ptx_operand){.shape = PTX_PLAIN};
    if (ptx_take(r, "{")) {
        operand->shape = PTX_VECTOR;
        return read_words(operand, r, "}", error);
    }
    if (ptx_take(r, "(")) {
        operand->shape = PTX_LIST;
        return read_words(operand, r, ")", error);
    }
    if (ptx_take(r, "[")) {
        operand->shape = PTX_ADDRESS;
        return read_address(operand, r, error);
    }
    operand->words[operand->count++] = ptx_next(r);
    return 1;
}

/* An instruction from its opcode to its semicolon. */
static int read_line(struct ptx_line *line, struct ptx_reader *r, struct ptx_error *error) {
    line->count = 0;
    line->line = r->line;
    while (!ptx_take(r, ";")) {
        if (line->count == PTX_OPERANDS || !ptx_peek(r).length)
            return ptx_fail(error, "line %d: %.*s has more operands than are understood",
                            line->line, PTX_WORD(line->opcode));
        if (!read_operand(&line->operands[line->count++], r, error)) return 0;
        (void)ptx_take(r, ",");
    }
    return 1;
}

/* ---- declarations ---- */

/* ".reg .b32 %r<23>;", ".reg .b64 %SP;". The same name again in another scope is the same
 * register, since no scope is used twice at a time. */
static int read_registers(struct ptx_body *body, struct ptx_reader *r, struct ptx_error *error) {
    struct ptx_bank bank = {.bits = ptx_type_bits(ptx_next(r)), .count = 0};
    uint64_t count;
    int bits;
    bank.prefix = ptx_next(r);
    if (ptx_take(r, "<")) {
        if (!ptx_number(ptx_next(r), &count, &bits) || !ptx_take(r, ">"))
            return ptx_fail(error, "line %d: registers that are not understood", r->line);
        bank.count = (uint32_t)count;
    }
    if (!bank.bits || !ptx_take(r, ";"))
        return ptx_fail(error, "line %d: registers that are not understood", r->line);
    for (int i = 0; i < body->bank_count; i++)
        if (ptx_same(body->banks[i].prefix, bank.prefix))
            return (body->banks[i].bits == bank.bits && body->banks[i].count == bank.count) ||
                   ptx_fail(error, "line %d: %.*s is declared in two ways", r->line,
                            PTX_WORD(bank.prefix));
    if (body->bank_count == (int)(sizeof body->banks / sizeof *body->banks))
        return ptx_fail(error, "line %d: too many kinds of registers", r->line);
    body->banks[body->bank_count++] = bank;
    return 1;
}

static int read_variable(struct ptx_body *body, struct ptx_reader *r, enum ptx_space space,
                         struct ptx_error *error) {
    if (body->variable_count == (int)(sizeof body->variables / sizeof *body->variables))
        return ptx_fail(error, "line %d: too many variables", r->line);
    struct ptx_variable *v = &body->variables[body->variable_count++];
    v->space = space;
    return ptx_variable_read(v, r, error) &&
           (ptx_take(r, ";") || ptx_fail(error, "line %d: a variable with a value", r->line));
}

/* ".loc file line column", then for inlined code where its caller is. */
static void read_place(struct ptx_line *line, struct ptx_reader *r) {
    uint64_t file = 0, number = 0;
    int bits;
    (void)ptx_number(ptx_next(r), &file, &bits);
    (void)ptx_number(ptx_next(r), &number, &bits);
    line->source = (unsigned)file;
    line->source_line = (unsigned)number;
    ptx_skip_line(r);
}

/* A directive inside of a function; `word` begins with a dot. */
static int read_directive(struct ptx_body *body, struct ptx_line *line, struct ptx_word word,
                          struct ptx_reader *r, struct ptx_error *error) {
    if (ptx_is(word, ".reg")) return read_registers(body, r, error);
    if (ptx_is(word, ".shared")) return read_variable(body, r, PTX_SHARED, error);
    if (ptx_is(word, ".local")) return read_variable(body, r, PTX_LOCAL, error);
    if (ptx_is(word, ".loc")) {
        read_place(line, r);
        return 1;
    }
    if (ptx_is(word, ".param")) { /* of a call: the call itself lists them */
        struct ptx_variable v;
        return ptx_variable_read(&v, r, error) &&
               (ptx_take(r, ";") || ptx_fail(error, "line %d: a parameter", r->line));
    }
    if (ptx_is(word, ".pragma")) { /* hints for the assembler */
        ptx_next(r);
        return ptx_take(r, ";") || ptx_fail(error, "line %d: a pragma", r->line);
    }
    return ptx_fail(error, "line %d: '%.*s' in a function", r->line, PTX_WORD(word));
}

static int read_guard(struct ptx_line *line, struct ptx_reader *r) {
    line->guard_not = ptx_take(r, "!");
    line->guard = ptx_next(r);
    return 1;
}

static int read_body(struct ptx_body *body, struct ptx_reader r, struct ptx_error *error) {
    struct ptx_line line = {.source = 0};
    for (int depth = 1; depth;) {
        struct ptx_word word = ptx_next(&r);
        if (!word.length) return ptx_fail(error, "line %d: a function without an end", r.line);
        line.guard.length = 0;
        if (ptx_is(word, "{"))
            depth++;
        else if (ptx_is(word, "}"))
            depth--;
        else if (word.at[0] == '.') {
            if (!read_directive(body, &line, word, &r, error)) return 0;
        } else if (ptx_take(&r, ":")) {
            if (!label_add(body, word)) return ptx_fail(error, "out of memory");
        } else {
            if (ptx_is(word, "@") && read_guard(&line, &r)) word = ptx_next(&r);
            line.opcode = word;
            if (!read_line(&line, &r, error)) return 0;
            if (!line_add(body, &line)) return ptx_fail(error, "out of memory");
        }
    }
    return 1;
}

int ptx_body_read(struct ptx_body *body, const struct ptx_function *function,
                  struct ptx_error *error) {
    *body = (struct ptx_body){.lines = NULL};
    if (read_body(body, function->body, error)) return 1;
    ptx_body_free(body);
    return 0;
}

void ptx_body_free(struct ptx_body *body) {
    free(body->lines);
    free(body->labels);
    *body = (struct ptx_body){.lines = NULL};
}
