/* PTX as text. nvcc writes its kernels in PTX, NVIDIA's assembly language of a virtual machine,
 * before the driver or ptxas makes a GPU's own code of it. Here a file of PTX is cut into
 * functions, and a function into instructions. What an instruction means, decode.c looks up.
 *
 *     .entry _Z8add_bias8add_bias( .param .align 8 .b8 _Z8add_bias8add_bias_param_0[48] )
 *     {
 *         .reg .b32 %r<23>;                          registers %r0 to %r22
 *         mov.u32 %r6, %ctaid.x;
 *     @%p1 bra $L__BB0_3;                            only threads whose %p1 is true
 *         ld.param.v2.u32 {%r10, %r11}, [%rd3+8];    two registers; an address
 *     $L__BB0_3:
 *         ret;
 *     }
 *
 * Words are slices of the text, which therefore outlives all that is made of it. Errors are one
 * line in *error, with the line of the file. */
#ifndef TESTS_STAND_INS_PTX_TEXT_H
#define TESTS_STAND_INS_PTX_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct ptx_error {
    char text[500]; /* "": none */
};
/* Keeps the first error, and returns 0. */
int ptx_fail(struct ptx_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- words ---- */

struct ptx_word {
    const char *at;
    size_t length;
};
int ptx_is(struct ptx_word word, const char *text);
int ptx_same(struct ptx_word a, struct ptx_word b);
#define PTX_WORD(w) (int)(w).length, (w).at /* for %.*s */

/* Reads a text word by word. A word is a name with its dots ("ld.param.u32", "%tid.x", ".reg"), a
 * number with its sign, a string, or one other character. Comments are skipped. */
struct ptx_reader {
    const char *at, *end;
    int line; /* of `at`, from 1 */
};
struct ptx_word ptx_next(struct ptx_reader *r); /* length 0: the end */
struct ptx_word ptx_peek(const struct ptx_reader *r);
int ptx_take(struct ptx_reader *r, const char *text); /* takes the next word if it is `text` */
void ptx_skip_line(struct ptx_reader *r);
/* An integer with base 10 or 16, 0fXXXXXXXX or 0dXXXXXXXXXXXXXXXX (the bits of a float or double,
 * with *bits = 32 or 64, else 0). Returns 0 if it is no number. */
int ptx_number(struct ptx_word word, uint64_t *value, int *bits);

/* ---- a file: which functions it holds ---- */

enum ptx_space {
    PTX_GLOBAL,
    PTX_SHARED, /* of a block */
    PTX_LOCAL,  /* of a thread */
    PTX_PARAM,  /* of the kernel */
    PTX_CALL,   /* the parameters of a function that is called, of a thread */
    PTX_GENERIC
};

struct ptx_variable {
    struct ptx_word name;
    enum ptx_space space;
    uint64_t bytes, align;
};

/* Registers `prefix`0 to `prefix`(count - 1); without a number if count is 0. bits is 1 for a
 * predicate. */
struct ptx_bank {
    struct ptx_word prefix;
    int bits;
    uint32_t count;
};

struct ptx_function {
    struct ptx_word name;
    const struct ptx_file *file;
    int is_kernel;
    struct ptx_reader body; /* behind its first brace */
    struct ptx_variable params[8];
    int param_count;
    uint32_t most_threads; /* .maxntid; 0: not said */
};

struct ptx_file {
    char *path;
    const char *text;
    size_t bytes;
    struct ptx_function *functions;
    int function_count;
    struct ptx_variable shared[8]; /* shared memory that several functions use */
    int shared_count;
};

/* Reads the file at `path`, and finds its functions. Returns 0 with an error; else
 * ptx_file_close. */
int ptx_file_open(struct ptx_file *file, const char *path, struct ptx_error *error);
/* The same of a text that the caller keeps; `path` is for messages. */
int ptx_file_of(struct ptx_file *file, const char *path, const char *text, size_t bytes,
                struct ptx_error *error);
void ptx_file_close(struct ptx_file *file);
/* The name of source file `number`, as the lines ".file N" at the end give it. */
struct ptx_word ptx_source(const struct ptx_file *file, unsigned number);

/* ---- a function: its instructions ---- */

enum ptx_shape {
    PTX_PLAIN,   /* one word: a register, a number, a name */
    PTX_VECTOR,  /* {a, b} or {a, b, c, d} */
    PTX_ADDRESS, /* [word + offset] */
    PTX_LIST     /* (a, b): the arguments of a call */
};
struct ptx_operand {
    enum ptx_shape shape;
    int count;
    struct ptx_word words[4];
    int64_t offset;
};

enum { PTX_OPERANDS = 5 };
struct ptx_line {
    struct ptx_word opcode;
    struct ptx_word guard; /* length 0: none */
    int guard_not;         /* 1: @!guard */
    int count;
    struct ptx_operand operands[PTX_OPERANDS];
    int line;                     /* of the file */
    unsigned source, source_line; /* by the last .loc; 0: not said */
};

struct ptx_label {
    struct ptx_word name;
    uint32_t line; /* index of the instruction behind it */
};

struct ptx_body {
    struct ptx_line *lines;
    uint32_t line_count;
    struct ptx_label *labels;
    uint32_t label_count;
    struct ptx_bank banks[24];
    int bank_count;
    struct ptx_variable variables[8]; /* shared and local */
    int variable_count;
};
int ptx_body_read(struct ptx_body *body, const struct ptx_function *function,
                  struct ptx_error *error);
void ptx_body_free(struct ptx_body *body);

/* For both readers: the rest of ".shared .align 8 .b8 name[12]", behind its first word. Does not
 * take what follows. */
int ptx_variable_read(struct ptx_variable *v, struct ptx_reader *r, struct ptx_error *error);
int ptx_type_bits(struct ptx_word type); /* of ".b32" and the like; 0: none, 1: .pred */

#endif
