/* Instructions that access memory. Their opcodes are read part by part, since there are too many
 * for a table: ld, an order (relaxed.sys, acquire.sys), a space, a hint for the caches, a vector, a
 * type. */
#include <stdio.h>
#include <string.h>

#include "tests/stand_ins/ptx/machine.h"

/* Takes ".part" from the rest of an opcode, if it stands there. */
static int part(struct ptx_word *rest, const char *text) {
    size_t length = strlen(text);
    if (rest->length < length || memcmp(rest->at, text, length) ||
        (rest->length > length && rest->at[length] != '.'))
        return 0;
    rest->at += length;
    rest->length -= length;
    return 1;
}

static enum ptx_space space_part(struct ptx_word *rest) {
    return part(rest, ".global")   ? PTX_GLOBAL
           : part(rest, ".shared") ? PTX_SHARED
           : part(rest, ".local")  ? PTX_LOCAL
           : part(rest, ".param")  ? PTX_PARAM
                                   : PTX_GENERIC;
}

static int type_part(struct ptx_word *rest, int *is_signed) {
    *is_signed = rest->length > 1 && rest->at[1] == 's';
    int bits = ptx_type_bits(*rest);
    rest->length = 0;
    return bits < 8 ? 0 : bits;
}

/* An operand [word + offset]: its register, which for a name is a constant. */
static int address(struct ptx_maker *m, const struct ptx_operand *operand, enum ptx_space *space,
                   uint32_t *at, uint8_t *wide, int64_t *offset) {
    enum ptx_space of_name;
    uint64_t value;
    if (operand->shape != PTX_ADDRESS) return ptx_wrong(m, "no address where there should be one");
    *offset = operand->offset;
    *wide = 1;
    if (ptx_symbol(m, operand->words[0], &of_name, &value)) {
        if (*space == PTX_PARAM && of_name == PTX_CALL) *space = PTX_CALL;
        if (*space != of_name) return ptx_wrong(m, "a variable of another space");
        *at = ptx_constant_at(m, 64, value);
        return 1;
    }
    *wide = ptx_register_bits(m, operand->words[0]) != 32;
    if (!*wide && *space != PTX_SHARED) return ptx_wrong(m, "an address of 32 bits");
    return ptx_operand_at(m, operand->words[0], *wide ? 64 : 32, at);
}

/* The registers that are loaded or stored. A loaded one may be wider than the element. */
static int elements(struct ptx_maker *m, struct ptx_instr *in, const struct ptx_operand *operand,
                    int bits, int *of_register) {
    *of_register = bits < 16 ? 16 : bits;
    if (in->count != operand->count || (in->count > 1) != (operand->shape == PTX_VECTOR))
        return ptx_wrong(m, "a wrong number of registers");
    for (int i = 0; i < operand->count; i++) {
        int found = ptx_register_bits(m, operand->words[i]);
        if (found > *of_register) *of_register = found;
    }
    for (int i = 0; i < operand->count; i++)
        if (!ptx_operand_at(m, operand->words[i], *of_register, &in->at[i])) return 0;
    return 1;
}

static int load_or_store(struct ptx_maker *m, struct ptx_instr *in, struct ptx_word rest,
                         int stores) {
    int is_signed, of_register,
        ordered = part(&rest, ".relaxed") || part(&rest, stores ? ".release" : ".acquire");
    if (ordered && !part(&rest, ".sys"))
        return ptx_wrong(m, "an order of another scope than the system's");
    enum ptx_space space = space_part(&rest);
    (void)part(&rest, ".wb"); /* how caches keep it is nothing to a program */
    in->count = part(&rest, ".v2") ? 2 : part(&rest, ".v4") ? 4 : 1;
    int bits = type_part(&rest, &is_signed);
    if (!bits) return ptx_wrong(m, "this form of an opcode is not known to tests/stand_ins/ptx");
    if (m->line->count != 2) return ptx_wrong(m, "a wrong number of operands");
    const struct ptx_operand *operands = m->line->operands;
    if (!address(m, &operands[!stores], &space, &in->at[4], &in->wide, &in->offset) ||
        !elements(m, in, &operands[stores], bits, &of_register))
        return 0;
    in->space = (uint8_t)space;
    in->bytes = (uint8_t)(bits / 8);
    if (space == PTX_SHARED && in->bytes < m->program->shared_grain)
        m->program->shared_grain = in->bytes;
    if (stores && of_register != (bits < 16 ? 16 : bits))
        return ptx_wrong(m, "a store of a register of another width");
    if (stores && space == PTX_PARAM) return ptx_wrong(m, "a store to the kernel's parameter");
    in->run = stores ? ptx_store(bits, ordered) : ptx_load(bits, is_signed, of_register, ordered);
    return in->run || ptx_wrong(m, "this form of an opcode is not known to tests/stand_ins/ptx");
}

/* cp.async.ca.shared.global [to], [from], bytes. */
static int async_copy(struct ptx_maker *m, struct ptx_instr *in) {
    const struct ptx_operand *operands = m->line->operands;
    enum ptx_space to = PTX_SHARED, from = PTX_GLOBAL;
    uint8_t wide;
    uint64_t bytes;
    int bits;
    in->run = ptx_async_copy;
    if (m->line->count != 3 || !ptx_number(operands[2].words[0], &bytes, &bits) ||
        (bytes != 4 && bytes != 8 && bytes != 16))
        return ptx_wrong(m, "operands that are not understood");
    in->bytes = (uint8_t)bytes;
    return address(m, &operands[0], &to, &in->at[0], &in->wide, &in->offset) &&
           address(m, &operands[1], &from, &in->at[1], &wide, &in->offset_from);
}

/* atom.acq_rel.sys.cas.b32 d, [a], b, c and atom.add. The host's atomics are of the system. */
static int atomic(struct ptx_maker *m, struct ptx_instr *in, struct ptx_word rest) {
    if (part(&rest, ".acq_rel") && !part(&rest, ".sys") && !part(&rest, ".gpu"))
        return ptx_wrong(m, "an order of another scope");
    enum ptx_space space = space_part(&rest);
    int adds = part(&rest, ".add"), swaps = !adds && part(&rest, ".cas"), is_signed;
    int bits = type_part(&rest, &is_signed);
    in->run = adds && bits == 64    ? ptx_atomic_add_64
              : adds && bits == 32  ? ptx_atomic_add_32
              : swaps && bits == 32 ? ptx_atomic_cas_32
                                    : NULL;
    if (!in->run || (space != PTX_GLOBAL && space != PTX_GENERIC))
        return ptx_wrong(m, "this form of an opcode is not known to tests/stand_ins/ptx");
    if (m->line->count != (adds ? 3 : 4)) return ptx_wrong(m, "a wrong number of operands");
    if (!address(m, &m->line->operands[1], &space, &in->at[4], &in->wide, &in->offset)) return 0;
    in->space = (uint8_t)space;
    in->count = 1;
    in->bytes = (uint8_t)(bits / 8);
    for (int i = 0; i < m->line->count; i++)
        if (i != 1 && !ptx_operand_at(m, m->line->operands[i].words[0], bits, &in->at[i])) return 0;
    return 1;
}

int ptx_decode_memory(struct ptx_maker *m, struct ptx_instr *in) {
    struct ptx_word rest = m->line->opcode;
    if (part(&rest, "ld")) return load_or_store(m, in, rest, 0);
    if (part(&rest, "st")) return load_or_store(m, in, rest, 1);
    if (part(&rest, "atom")) return atomic(m, in, rest);
    if (ptx_is(rest, "cp.async.ca.shared.global")) return async_copy(m, in);
    if (ptx_is(rest, "cp.async.wait_all")) {
        in->run = ptx_async_wait;
        return 1;
    }
    return -1;
}
