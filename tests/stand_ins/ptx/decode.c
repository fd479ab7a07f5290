/* What an instruction means: its opcode is looked up, its operands become registers. An opcode
 * that is in no table is an error that names it, never a guess. */
#include <string.h>

#include "tests/stand_ins/ptx/machine.h"

static int expect(struct ptx_maker *m, int count) {
    return m->line->count == count || ptx_wrong(m, "a wrong number of operands");
}

/* Operand i, one word. */
static int plain(struct ptx_maker *m, int i, int bits, uint32_t *at) {
    const struct ptx_operand *operand = &m->line->operands[i];
    if (operand->shape != PTX_PLAIN) return ptx_wrong(m, "an operand of another shape");
    return ptx_operand_at(m, operand->words[0], bits, at);
}

/* Operands 0, 1 ... by a form's letters. */
static int plain_all(struct ptx_maker *m, struct ptx_instr *in, const char *widths) {
    if (!expect(m, (int)strlen(widths))) return 0;
    for (int i = 0; widths[i]; i++) {
        int bits = widths[i] == 'p' ? 1 : widths[i] == 'h' ? 16 : widths[i] == 'w' ? 32 : 64;
        if (!plain(m, i, bits, &in->at[i])) return 0;
    }
    return 1;
}

static int table(struct ptx_maker *m, struct ptx_instr *in) {
    static const struct ptx_form others[] = {{"nanosleep.u32", ptx_sleep, "w"},
                                             {"griddepcontrol.wait", ptx_follow, ""},
                                             {NULL, NULL, NULL}};
    const struct ptx_form *const tables[] = {ptx_float_forms, ptx_integer_forms, ptx_compare_forms,
                                             ptx_convert_forms, others};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct ptx_form *form = tables[t]; form->name; form++)
            if (ptx_is(m->line->opcode, form->name)) {
                in->run = form->run;
                return plain_all(m, in, form->widths);
            }
    return ptx_wrong(m, "this opcode is not known to tests/stand_ins/ptx");
}

/* ---- the order of instructions ---- */

static int branch(struct ptx_maker *m, struct ptx_instr *in) {
    in->flow = PTX_FLOW_BRANCH;
    if (!expect(m, 1)) return 0;
    for (uint32_t i = 0; i < m->body.label_count; i++)
        if (ptx_same(m->body.labels[i].name, m->line->operands[0].words[0])) {
            in->target = m->scope->begin + m->body.labels[i].line;
            return m->body.labels[i].line < m->body.line_count ||
                   ptx_wrong(m, "a branch to a function's end");
        }
    return ptx_wrong(m, "a label that is not there");
}

/* call.uni function, (param0, param1): the arguments were stored before. */
static int call(struct ptx_maker *m, struct ptx_instr *in) {
    const struct ptx_operand *arguments = &m->line->operands[1];
    in->flow = PTX_FLOW_CALL;
    if (m->line->count < 1 || m->line->count > 2 || m->line->operands[0].shape != PTX_PLAIN)
        return ptx_wrong(m, "a call that returns a value, or of another kind");
    int callee = ptx_scope_of(m, m->line->operands[0].words[0]);
    if (callee < 0 || m->scopes[callee].function->is_kernel)
        return ptx_wrong(m, "a function that is not there, or with too many parameters");
    in->target = (uint32_t)callee;
    in->count = (uint8_t)(m->line->count > 1 ? arguments->count : 0);
    if (in->count != m->scopes[callee].function->param_count)
        return ptx_wrong(m, "a wrong number of arguments");
    in->more = m->program->more_count;
    for (int i = 0; i < in->count; i++) {
        enum ptx_space space;
        uint64_t from;
        if (!ptx_symbol(m, arguments->words[i], &space, &from) || space != PTX_CALL)
            return ptx_wrong(m, "an argument that is not understood");
        ptx_more(m, (uint32_t)from);
        ptx_more(m, (uint32_t)m->scopes[callee].param_at[i]);
    }
    return 1;
}

static int barrier(struct ptx_maker *m, struct ptx_instr *in) {
    in->flow = PTX_FLOW_BARRIER;
    if (!expect(m, 1)) return 0;
    return ptx_is(m->line->operands[0].words[0], "0") || ptx_wrong(m, "a barrier other than 0");
}

/* ---- moves that are more than a copy ---- */

/* mov.b64 %rd, {%r, %r} and back. */
static int pack(struct ptx_maker *m, struct ptx_instr *in) {
    const struct ptx_operand *to = &m->line->operands[0], *from = &m->line->operands[1];
    if (!expect(m, 2)) return 0;
    if (from->shape == PTX_VECTOR && from->count == 2 && to->shape == PTX_PLAIN) {
        in->run = ptx_pack;
        return plain(m, 0, 64, &in->at[0]) && ptx_operand_at(m, from->words[0], 32, &in->at[1]) &&
               ptx_operand_at(m, from->words[1], 32, &in->at[2]);
    }
    if (to->shape == PTX_VECTOR && to->count == 2 && from->shape == PTX_PLAIN) {
        in->run = ptx_unpack;
        return ptx_operand_at(m, to->words[0], 32, &in->at[0]) &&
               ptx_operand_at(m, to->words[1], 32, &in->at[1]) && plain(m, 1, 64, &in->at[2]);
    }
    return ptx_wrong(m, "a vector of another kind");
}

/* mov.u32 %r, name: the address of a variable. Returns -1 if the word is no name. */
static int address_of(struct ptx_maker *m, struct ptx_instr *in) {
    static const char *const forms[] = {"mov.u32", "mov.b32", "mov.u64", "mov.b64"};
    enum ptx_space space;
    uint64_t at;
    if (!ptx_symbol(m, m->line->operands[1].words[0], &space, &at)) return -1;
    for (int i = 0; i < 4; i++)
        if (ptx_is(m->line->opcode, forms[i])) {
            int bits = i < 2 ? 32 : 64;
            for (const struct ptx_form *form = ptx_integer_forms; form->name; form++)
                if (!strcmp(form->name, forms[i])) in->run = form->run;
            in->at[1] = ptx_constant_at(m, bits, at);
            return plain(m, 0, bits, &in->at[0]);
        }
    return ptx_wrong(m, "the address of a variable");
}

static int move(struct ptx_maker *m, struct ptx_instr *in) {
    const struct ptx_operand *to = &m->line->operands[0], *from = &m->line->operands[1];
    if (!expect(m, 2)) return 0;
    if (to->shape == PTX_VECTOR || from->shape == PTX_VECTOR)
        return ptx_is(m->line->opcode, "mov.b64") ? pack(m, in)
                                                  : ptx_wrong(m, "a vector of another kind");
    if (ptx_is(from->words[0], "%globaltimer") && ptx_is(m->line->opcode, "mov.u64")) {
        in->run = ptx_timer;
        return plain(m, 0, 64, &in->at[0]);
    }
    int done = address_of(m, in);
    return done >= 0 ? done : table(m, in);
}

/* cvta.to.SPACE.u64: a generic address becomes one of the space; cvta.SPACE.u64: the other way. */
static int convert_address(struct ptx_maker *m, struct ptx_instr *in) {
    static const struct {
        const char *to, *from;
        enum ptx_space space;
    } names[] = {{"cvta.to.global.u64", "cvta.global.u64", PTX_GLOBAL},
                 {"cvta.to.shared.u64", "cvta.shared.u64", PTX_SHARED},
                 {"cvta.to.local.u64", "cvta.local.u64", PTX_LOCAL},
                 {"cvta.to.param.u64", "cvta.param.u64", PTX_PARAM}};
    in->run = ptx_copy_address;
    for (int i = 0; i < 4; i++) {
        uint64_t tag = names[i].space == PTX_GLOBAL ? 0 : PTX_TAG(names[i].space);
        int to = ptx_is(m->line->opcode, names[i].to);
        in->offset = (int64_t)(to ? 0 - tag : tag);
        if (to || ptx_is(m->line->opcode, names[i].from)) return plain_all(m, in, "dd");
    }
    return ptx_wrong(m, "this opcode is not known to tests/stand_ins/ptx");
}

/* The 14 registers of d, a, b and c. */
static int matrices(struct ptx_maker *m, struct ptx_instr *in) {
    static const int counts[4] = {4, 4, 2, 4};
    in->run = ptx_mma;
    in->more = m->program->more_count;
    if (!expect(m, 4)) return 0;
    for (int i = 0; i < 4; i++) {
        const struct ptx_operand *operand = &m->line->operands[i];
        uint32_t at = 0;
        if (operand->shape != PTX_VECTOR || operand->count != counts[i])
            return ptx_wrong(m, "a matrix with a wrong number of registers");
        for (int k = 0; k < counts[i]; k++, ptx_more(m, at))
            if (!ptx_operand_at(m, operand->words[k], 32, &at)) return 0;
    }
    return 1;
}

static int begins(struct ptx_word word, const char *with) {
    size_t length = strlen(with);
    return word.length >= length && !memcmp(word.at, with, length);
}

int ptx_decode(struct ptx_maker *m, struct ptx_instr *in) {
    struct ptx_word opcode = m->line->opcode;
    if (ptx_is(opcode, "bra") || ptx_is(opcode, "bra.uni")) return branch(m, in);
    if (ptx_is(opcode, "ret")) {
        in->flow = PTX_FLOW_RETURN;
        return expect(m, 0);
    }
    if (ptx_is(opcode, "call.uni")) return call(m, in);
    if (ptx_is(opcode, "bar.sync")) return barrier(m, in);
    if (begins(opcode, "mov.")) return move(m, in);
    if (begins(opcode, "cvta.")) return convert_address(m, in);
    if (ptx_is(opcode, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"))
        return matrices(m, in);
    int done = ptx_decode_memory(m, in);
    return done >= 0 ? done : table(m, in);
}
