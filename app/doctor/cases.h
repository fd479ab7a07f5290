/* The cases of the operations: shapes, data and settings in which every kernel of an op is tried.
 * These compare with the host's reference and share the list:
 *
 *     ops_run.c                      the doctor: launched on this machine's devices
 *     tests/core/device/test_kernels.c    the host's fast kernels, on every instruction set
 *     tests/cuda/test_ops.c          the GPUs' kernels, on the emulated runtime
 *
 * ops_judge.c says how large a difference may be. A case's operands are PLAIN tensors in host
 * memory.
 *
 * Which operands an op takes, and how their shapes relate, is known from its row in op_table.c. So
 * a list of cases gives numbers for the letters of that row, and cases.c makes the operands:
 *
 *     cases_elements.c   element by element, optimizers, logs
 *     cases_rows.c       losses, normalisations, recurrent layers, attention
 *     cases_products.c   convolutions, linear layers, products of matrices
 *     cases_moves.c      pools, margins, sums, the order of dimensions, indices */
#ifndef DOCTOR_CASES_H
#define DOCTOR_CASES_H

#include "base/random.h"
#include "device/op.h"

enum { MOST_HOST_TENSORS = 256 };

/* Who goes through the cases. `run` is called for each of them. An output that the operation only
 * writes holds NaN; one that it updates (ADD, SCALE, SGD) holds its start values. terms: of
 * products, how many the longest sum has; 0: every sum is exact. */
struct op_cases {
    int (*run)(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);
    void *user;
    uint64_t seed;                 /* of dropout's masks */
    enum layout layout;            /* in which the device keeps activations */
    int quick;                     /* 1: only every third product */
    int large;                     /* 1: products of the size that training uses, too */
    struct rng rng;                /* of the data; the caller seeds it */
    void *heap[MOST_HOST_TENSORS]; /* host memory of the present case */
    int heap_count;
};

/* All cases of an operation. An error of `run` ends them. */
int op_cases(struct op_cases *cases, enum op op);

/* Host tensors, which live until the case has ended well, or until case_forget. Without memory,
 * data is NULL. */
struct tensor case_like(struct op_cases *cases, const struct tensor *t); /* uninitialised */
struct tensor case_copy(struct op_cases *cases, const struct tensor *t);
void case_forget(struct op_cases *cases);

/* ---- for the files of cases ---- */

/* A case while it is made. */
struct op_case {
    struct op_cases *all;
    const struct case_list *list;
    enum op op;
    int row, turn;    /* of its list */
    int dim[128];     /* by letter; n: the product of list->rest; -1: not in the list */
    unsigned without; /* optional operands that are left out: NO_IN(i) | NO_OUT(i) */
    const char *data; /* of the inputs; list->in to begin with */
    struct op_args a; /* a.step is `step` */
    struct step_block step;
    size_t terms;
};
#define NO_IN(i) (1u << (i))
#define NO_OUT(i) (1u << (OP_INPUTS + (i)))

/* When a list is tried. A thinned one has only every third case if `quick`. */
enum case_when { ALWAYS, THINNED, ONLY_N16_THINNED, ONLY_LARGE };

/* Cases of the ops first..last. A list ends with one whose count is 0. */
struct case_list {
    enum op first, last;
    const char *letters; /* of each number of a row: those of op_table.c, and others for `set` */
    const char *rest;    /* those that a dot stands for */
    const int *sizes;    /* [count][strlen(letters)] */
    int count, turns;    /* each row is tried so often; 0: once */
    /* The data of each input and output; the last letter serves the others, too. 'r': random
     * in [-1, 1); 'w': integers from -4 to 4; 'R', 'W': the same with special values (0, -0, NaN,
     * ...); '-': all NaN. NULL: 'r' for inputs, '-' for outputs. Other types start as '-'. */
    const char *in, *out;
    enum case_when when;
    void (*set)(struct op_case *c); /* before the operands are made: settings, missing letters */
    int (*fill)(struct op_case *c); /* behind: data that letters cannot express */
};
#define SIZES(table) .sizes = &(table)[0][0], .count = CASE_COUNT(table)
#define CASE_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

extern const struct case_list element_cases[], row_cases[], product_cases[], move_cases[];

/* Shapes by letters, filled as `data` says. ERR_MEMORY. */
int case_tensor(struct op_case *c, enum dtype dtype, const char *shape, char data,
                struct tensor *t);

/* The same case of `forward`, on which the reference has run. */
int case_forward(const struct op_case *c, enum op forward, struct op_case *f);

/* A random index below `count`. */
int case_index(struct op_case *c, int count);

void put_special_values(struct tensor *t);

#endif
