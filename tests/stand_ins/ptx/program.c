/* Makes a program of a kernel and the functions that it calls: lays out registers and memory, and
 * gives every word its number. decode.c does the instructions. */
#include "tests/stand_ins/ptx/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANY = 1024 };

int ptx_wrong(struct ptx_maker *m, const char *what) {
    return ptx_fail(m->error, "%s:%d: %.*s: %s", m->file->path, m->line->line,
                    PTX_WORD(m->line->opcode), what);
}

static void *more_room(void *all, uint32_t count, size_t bytes) {
    if (count % MANY) return all;
    all = realloc(all, (count + MANY) * bytes);
    if (!all) abort();
    return all;
}

uint32_t ptx_more(struct ptx_maker *m, uint32_t value) {
    struct ptx_program *p = m->program;
    p->more = more_room(p->more, p->more_count, sizeof *p->more);
    p->more[p->more_count] = value;
    return p->more_count++;
}

/* ---- registers ---- */

/* Bytes of a register: one value for each of 32 lanes, or one bit. */
static uint32_t register_bytes(int bits) {
    return bits == 1 ? 4 : (uint32_t)bits / 8 * 32;
}

static uint32_t take_registers(struct ptx_maker *m, int bits, uint32_t count) {
    struct ptx_program *p = m->program;
    size_t at = p->register_bytes;
    p->register_bytes += ((size_t)count * register_bytes(bits) + 63) / 64 * 64;
    return (uint32_t)at;
}

uint32_t ptx_constant_at(struct ptx_maker *m, int bits, uint64_t value) {
    struct ptx_program *p = m->program;
    if (bits < 64) value &= ((uint64_t)1 << bits) - 1;
    for (uint32_t i = 0; i < p->constant_count; i++)
        if (p->constants[i].bits == bits && p->constants[i].value == value)
            return p->constants[i].at;
    p->constants = more_room(p->constants, p->constant_count, sizeof *p->constants);
    uint32_t at = take_registers(m, bits, 1);
    p->constants[p->constant_count++] = (struct ptx_constant){at, bits, value};
    return at;
}

/* The register `word`: its offset, and its width; 0: it is none. */
static int find_register(struct ptx_maker *m, struct ptx_word word, uint32_t *at) {
    static const char *const specials[PTX_SPECIALS] = {"%tid.", "%ntid.", "%ctaid.", "%nctaid."};
    for (int i = 0; i < PTX_SPECIALS; i++) {
        size_t length = strlen(specials[i]);
        if (word.length != length + 1 || memcmp(word.at, specials[i], length)) continue;
        if (word.at[length] < 'x' || word.at[length] > 'z') return 0;
        *at = m->program->specials[i][word.at[length] - 'x'];
        return 32;
    }
    for (int i = 0; i < m->body.bank_count; i++) {
        const struct ptx_bank *bank = &m->body.banks[i];
        size_t length = bank->prefix.length;
        uint64_t number = 0;
        int bits;
        if (word.length < length || memcmp(word.at, bank->prefix.at, length)) continue;
        struct ptx_word rest = {word.at + length, word.length - length};
        if (bank->count ? !ptx_number(rest, &number, &bits) || number >= bank->count : rest.length)
            continue;
        *at = m->scope->first[i] + (uint32_t)number * register_bytes(bank->bits);
        return bank->bits;
    }
    return 0;
}

int ptx_register_bits(struct ptx_maker *m, struct ptx_word word) {
    uint32_t at;
    return find_register(m, word, &at);
}

int ptx_operand_at(struct ptx_maker *m, struct ptx_word word, int bits, uint32_t *at) {
    uint64_t value;
    int of_number, found;
    char text[120];
    if (ptx_is(word, "_")) {
        *at = m->rubbish;
        return 1;
    }
    if (ptx_number(word, &value, &of_number)) {
        if (of_number && of_number != bits) return ptx_wrong(m, "a number of a wrong width");
        *at = ptx_constant_at(m, bits, bits == 1 && value ? 1 : value);
        return 1;
    }
    found = find_register(m, word, at);
    if (found == bits) return 1;
    snprintf(text, sizeof text, found ? "%.*s has %d bits, not %d" : "%.*s is not known",
             PTX_WORD(word), found, bits);
    return ptx_wrong(m, text);
}

/* ---- memory ---- */

static uint64_t place(size_t *bytes, uint64_t size, uint64_t align) {
    uint64_t at = (*bytes + align - 1) / align * align;
    *bytes = at + size;
    return at;
}

int ptx_symbol(struct ptx_maker *m, struct ptx_word word, enum ptx_space *space, uint64_t *at) {
    const struct ptx_function *f = m->scope->function;
    for (int i = 0; i < f->param_count; i++)
        if (ptx_same(word, f->params[i].name)) {
            *space = f->params[i].space;
            *at = m->scope->param_at[i];
            return 1;
        }
    for (int i = 0; i < m->body.variable_count; i++)
        if (ptx_same(word, m->body.variables[i].name)) {
            *space = m->body.variables[i].space;
            *at = m->scope->variable_at[i];
            return 1;
        }
    for (int i = 0; i < m->file->shared_count; i++)
        if (ptx_same(word, m->file->shared[i].name)) {
            *space = PTX_SHARED;
            *at = m->shared_at[i];
            return 1;
        }
    if (word.length == 6 && !memcmp(word.at, "param", 5)) { /* an argument of a call */
        *space = PTX_CALL;
        *at = m->scope->staged + 8 * (uint64_t)(word.at[5] - '0');
        return word.at[5] >= '0' && word.at[5] <= '7';
    }
    return 0;
}

/* ---- functions ---- */

/* A scope for a function: its parameters get their places. */
static int scope_add(struct ptx_maker *m, const struct ptx_function *f) {
    if (m->scope_count == (int)(sizeof m->scopes / sizeof *m->scopes)) return -1;
    struct ptx_scope *scope = &m->scopes[m->scope_count];
    struct ptx_program *p = m->program;
    *scope = (struct ptx_scope){.function = f};
    for (int i = 0; i < f->param_count; i++) {
        const struct ptx_variable *v = &f->params[i];
        if (!f->is_kernel && v->bytes > 8) return -1;
        scope->param_at[i] =
            f->is_kernel ? place(&p->param_bytes, v->bytes, v->align) : place(&p->call_bytes, 8, 8);
    }
    scope->staged = place(&p->call_bytes, 64, 8);
    return m->scope_count++;
}

int ptx_scope_of(struct ptx_maker *m, struct ptx_word name) {
    for (int i = 0; i < m->scope_count; i++)
        if (ptx_same(m->scopes[i].function->name, name)) return i;
    for (int i = 0; i < m->file->function_count; i++)
        if (ptx_same(m->file->functions[i].name, name)) return scope_add(m, &m->file->functions[i]);
    return -1;
}

static int add_line(struct ptx_maker *m) {
    struct ptx_program *p = m->program;
    struct ptx_instr in = {.run = NULL};
    const struct ptx_line *line = m->line;
    p->code = more_room(p->code, p->length, sizeof *p->code);
    p->where = more_room(p->where, p->length, sizeof *p->where);
    p->where[p->length] =
        (struct ptx_where){line->opcode, line->line, line->source, line->source_line, m->file};
    if (line->guard.length) {
        in.guarded = 1;
        in.guard_not = (uint8_t)line->guard_not;
        if (!ptx_operand_at(m, line->guard, 1, &in.guard)) return 0;
    }
    if (!ptx_decode(m, &in)) return 0;
    p->code[p->length++] = in;
    return 1;
}

static int add_function(struct ptx_maker *m, int index) {
    struct ptx_program *p = m->program;
    m->scope = &m->scopes[index];
    m->scope->begin = p->length;
    if (!ptx_body_read(&m->body, m->scope->function, m->error)) return 0;
    for (int i = 0; i < m->body.bank_count; i++) {
        const struct ptx_bank *bank = &m->body.banks[i];
        m->scope->first[i] = take_registers(m, bank->bits, bank->count ? bank->count : 1);
    }
    for (int i = 0; i < m->body.variable_count; i++) {
        const struct ptx_variable *v = &m->body.variables[i];
        m->scope->variable_at[i] =
            place(v->space == PTX_SHARED ? &p->shared_bytes : &p->local_bytes, v->bytes, v->align);
    }
    int fine = m->body.line_count > 0;
    for (uint32_t i = 0; i < m->body.line_count && fine; i++) {
        m->line = &m->body.lines[i];
        fine = add_line(m);
    }
    if (fine && p->code[p->length - 1].flow != PTX_FLOW_RETURN &&
        p->code[p->length - 1].flow != PTX_FLOW_BRANCH)
        fine = ptx_wrong(m, "the last instruction of a function");
    ptx_body_free(&m->body);
    return fine;
}

static int make(struct ptx_maker *m, const struct ptx_function *kernel) {
    struct ptx_program *p = m->program;
    m->rubbish = take_registers(m, 64, 1);
    for (int i = 0; i < PTX_SPECIALS; i++)
        for (int k = 0; k < 3; k++)
            p->specials[i][k] = take_registers(m, 32, 1);
    for (int i = 0; i < m->file->shared_count; i++)
        m->shared_at[i] =
            place(&p->shared_bytes, m->file->shared[i].bytes, m->file->shared[i].align);
    if (ptx_scope_of(m, kernel->name) < 0)
        return ptx_fail(m->error, "%.*s: too many parameters", PTX_WORD(kernel->name));
    for (int i = 0; i < m->scope_count; i++) /* a call adds a scope */
        if (!add_function(m, i)) return 0;
    for (uint32_t i = 0; i < p->length; i++)
        if (p->code[i].flow == PTX_FLOW_CALL)
            p->code[i].target = m->scopes[p->code[i].target].begin;
    return 1;
}

struct ptx_program *ptx_program_make(const struct ptx_function *kernel, struct ptx_error *error) {
    struct ptx_program *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->kernel = kernel;
    p->shared_grain = 4;
    struct ptx_maker m = {.program = p, .error = error, .file = kernel->file};
    if (make(&m, kernel)) return p;
    ptx_program_free(p);
    return NULL;
}

void ptx_program_free(struct ptx_program *program) {
    if (!program) return;
    free(program->code);
    free(program->where);
    free(program->more);
    free(program->constants);
    free(program);
}
