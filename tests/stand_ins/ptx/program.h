/* A kernel of PTX made ready to run: its functions one behind the other as one array of
 * instructions, in which every word has become a number.
 *
 * The 32 threads of a warp run an instruction together, so a register is 32 values side by side,
 * one for each lane: 2, 4 or 8 bytes each. A predicate is one word with a bit for each lane. All
 * registers of a warp are one piece of memory, and an operand is an offset in it. Numbers that
 * stand in the text, and %tid.x and its like, are registers too, which are filled once. So an
 * instruction need not know what kind its operands are. */
#ifndef TESTS_STAND_INS_PTX_PROGRAM_H
#define TESTS_STAND_INS_PTX_PROGRAM_H

#include "tests/stand_ins/ptx/text.h"

struct ptx_warp;
struct ptx_instr;
typedef void ptx_run(struct ptx_warp *w, const struct ptx_instr *in);

/* What an instruction does to the order of instructions. */
enum ptx_flow { PTX_FLOW_ON, PTX_FLOW_BRANCH, PTX_FLOW_CALL, PTX_FLOW_RETURN, PTX_FLOW_BARRIER };

struct ptx_instr {
    ptx_run *run; /* PTX_FLOW_ON */
    uint8_t flow, guarded, guard_not;
    uint8_t space; /* enum ptx_space of an address */
    uint8_t count; /* elements of a load or store */
    uint8_t bytes; /* of an element; of cp.async: all */
    uint8_t wide;  /* 1: the address is a 64-bit register */
    uint32_t guard;
    uint32_t at[5]; /* operands; of loads and stores: the elements, then the address at [4] */
    uint32_t more;  /* index into program.more: operands of mma; of a call (from, to) of `count`
                       arguments of 8 bytes in PTX_CALL */
    uint32_t target;
    int64_t offset, offset_from; /* of the address; of where cp.async reads */
};

/* For messages: what instruction i was in the text. */
struct ptx_where {
    struct ptx_word opcode;
    int line;
    unsigned source, source_line;
    const struct ptx_file *file;
};

struct ptx_constant {
    uint32_t at;
    int bits; /* 1, 16, 32, 64 */
    uint64_t value;
};

enum ptx_special { PTX_TID, PTX_NTID, PTX_CTAID, PTX_NCTAID, PTX_SPECIALS };

struct ptx_program {
    const struct ptx_function *kernel;
    struct ptx_instr *code;
    struct ptx_where *where;
    uint32_t length;
    uint32_t *more;
    uint32_t more_count;
    struct ptx_constant *constants;
    uint32_t constant_count;
    uint32_t specials[PTX_SPECIALS][3]; /* registers of %tid.x, .y, .z and so on */
    size_t register_bytes;              /* of a warp */
    size_t shared_bytes;                /* of a block */
    size_t local_bytes, call_bytes;     /* of a thread */
    size_t param_bytes;                 /* of the kernel */
    int shared_grain;                   /* the fewest bytes of shared memory that are accessed */
};

/* Makes a program of a kernel. Returns NULL with an error: it names an opcode that is not known, a
 * register of a wrong width, and so on. */
struct ptx_program *ptx_program_make(const struct ptx_function *kernel, struct ptx_error *error);
void ptx_program_free(struct ptx_program *program);

/* ---- for its parts ---- */

/* An instruction with registers and numbers alone. A letter of `widths` for each operand: p a
 * predicate, h 16 bits, w 32, d 64. */
struct ptx_form {
    const char *name;
    ptx_run *run;
    const char *widths;
};
/* Each ends with a NULL name. */
extern const struct ptx_form ptx_integer_forms[], ptx_compare_forms[], ptx_float_forms[],
    ptx_convert_forms[];

/* How a load or store of elements of `bits` runs into or from registers of `of_register`; NULL:
 * not at all. `ordered`: with acquire or release, or relaxed. */
ptx_run *ptx_load(int bits, int is_signed, int of_register, int ordered);
ptx_run *ptx_store(int bits, int ordered);
ptx_run ptx_copy_address, ptx_timer, ptx_sleep, ptx_follow, ptx_pack, ptx_unpack;
ptx_run ptx_async_copy, ptx_async_wait, ptx_mma;
ptx_run ptx_atomic_add_32, ptx_atomic_add_64, ptx_atomic_cas_32;

/* A function of a program while that is made. */
struct ptx_scope {
    const struct ptx_function *function;
    uint32_t begin;          /* its first instruction */
    uint32_t first[24];      /* register 0 of each bank of its body */
    uint64_t variable_at[8]; /* offsets in their spaces */
    uint64_t param_at[8];
    uint64_t staged; /* where the arguments of its calls are put together, in PTX_CALL */
};
struct ptx_maker {
    struct ptx_program *program;
    struct ptx_error *error;
    struct ptx_scope scopes[8];
    int scope_count;
    const struct ptx_file *file;
    uint64_t shared_at[8];   /* of the file's shared variables */
    uint32_t rubbish;        /* a register for what nobody reads */
    struct ptx_scope *scope; /* the one that is being made */
    struct ptx_body body;    /* its text */
    const struct ptx_line *line;
};

/* The register of a word, or of the number that it is: *at. Fails if its width is another one. */
int ptx_operand_at(struct ptx_maker *m, struct ptx_word word, int bits, uint32_t *at);
/* The width of a register; 0: it is none. */
int ptx_register_bits(struct ptx_maker *m, struct ptx_word word);
uint32_t ptx_constant_at(struct ptx_maker *m, int bits, uint64_t value);
/* The variable or parameter `word`: its space and offset. */
int ptx_symbol(struct ptx_maker *m, struct ptx_word word, enum ptx_space *space, uint64_t *at);
/* The function of that name, as an index of m->scopes; -1: there is none, or too many. */
int ptx_scope_of(struct ptx_maker *m, struct ptx_word name);
uint32_t ptx_more(struct ptx_maker *m, uint32_t value); /* returns its index */
int ptx_wrong(struct ptx_maker *m, const char *what);   /* fails, naming the line and its opcode */

/* decode.c: fills in `in` from m->line. */
int ptx_decode(struct ptx_maker *m, struct ptx_instr *in);
/* decode_memory.c: loads, stores, atomics, cp.async. Returns -1 if it is none of them. */
int ptx_decode_memory(struct ptx_maker *m, struct ptx_instr *in);

#endif
