/* The test cases of the operations: the shapes, data and settings with which every kernel of an op
 * is tested. Three programs compare kernels with the host's reference and share this list:
 *
 *     ops_run.c                      the doctor, on this machine's devices
 *     tests/core/device/test_kernels.c    the host's fast kernels, on every instruction set
 *     tests/cuda/test_ops.c          the GPUs' kernels, on the emulated runtime
 *
 * ops_judge.c defines the allowed difference. A case's operands are PLAIN tensors in host memory.
 *
 * An op's row in op_table.c says which operands it takes and how their shapes relate. So a list of
 * cases has only the sizes for the symbols in that row, case.c makes the operands, and cases.c runs
 * through the lists:
 *
 *     cases_elements.c   elementwise ops, optimizers, logs
 *     cases_rows.c       losses, normalisations, recurrent layers, attention
 *     cases_products.c   convolutions, linear layers, matrix products
 *     cases_moves.c      pools, margins, sums, the order of dimensions, indices */
#ifndef DOCTOR_CASES_H
#define DOCTOR_CASES_H

#include "base/random.h"
#include "device/op.h"

enum { MOST_HOST_TENSORS = 256 };

/* A run through the cases. `run` is called for each case. Before it, an output that the operation
 * only writes holds NaN, and one that it updates (ADD, SCALE, SGD) holds its initial values. terms
 * is the number of terms in the longest sum of a product; 0: every sum is exact. */
struct op_cases {
    int (*run)(struct op_cases *cases, enum op op, const struct op_args *args, size_t terms);
    void *user;
    uint64_t seed;                 /* for dropout's masks */
    enum layout layout;            /* layout of activations on the device */
    int quick;                     /* 1: only every third product */
    int large;                     /* 1: also products as large as in training */
    struct rng rng;                /* for the data; the caller seeds it */
    void *heap[MOST_HOST_TENSORS]; /* host memory of the current case */
    int heap_count;
};

/* Runs all cases of an operation, up to the first error of `run`. */
int op_cases(struct op_cases *cases, enum op op);

/* Host tensors, which live until the case succeeds, or until case_forget. If memory runs out, data
 * is NULL. */
struct tensor case_like(struct op_cases *cases, const struct tensor *t); /* uninitialised */
struct tensor case_copy(struct op_cases *cases, const struct tensor *t);
void case_forget(struct op_cases *cases);

/* ---- for the files of cases ---- */

/* A case under construction. */
struct op_case {
    struct op_cases *all;
    const struct case_list *list;
    enum op op;
    int row, turn;    /* its row in the list */
    int dim[128];     /* by symbol; n: the product of list->rest; -1: not in the list */
    unsigned without; /* omitted optional operands: NO_IN(i) | NO_OUT(i) */
    const char *data; /* the inputs' data; initially list->in */
    struct op_args a; /* a.step is `step` */
    struct step_block step;
    size_t terms;
};
#define NO_IN(i) (1u << (i))
#define NO_OUT(i) (1u << (OP_INPUTS + (i)))

/* When a list is used. With `quick`, a thinned list runs only every third case. */
enum case_when { ALWAYS, THINNED, ONLY_N16_THINNED, ONLY_LARGE };

/* The cases of the ops first..last. The last list has a count of 0. */
struct case_list {
    enum op first, last;
    const char *letters; /* a symbol for each number in a row: op_table.c's, and others for `set` */
    const char *rest;    /* the symbols that a dot stands for */
    const int *sizes;    /* [count][strlen(letters)] */
    int count, turns;    /* turns: how often each row runs; 0: once */
    /* The data of each input and output; the last letter also covers the remaining ones. 'r':
     * random
     * in [-1, 1); 'w': integers from -4 to 4; 'R', 'W': the same with special values (0, -0, NaN,
     * ...); '-': all NaN. NULL: 'r' for inputs, '-' for outputs. Other types start as '-'. */
    const char *in, *out;
    enum case_when when;
    void (*set)(struct op_case *c); /* before the operands are made: settings, missing symbols */
    int (*fill)(struct op_case *c); /* after they are made: data that letters cannot express */
};
#define SIZES(table) .sizes = &(table)[0][0], .count = CASE_COUNT(table)
#define CASE_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

extern const struct case_list element_cases[], row_cases[], product_cases[], move_cases[];

/* Makes a tensor whose shape is given in symbols, filled as `data` says. ERR_MEMORY. */
int case_tensor(struct op_case *c, enum dtype dtype, const char *shape, char data,
                struct tensor *t);

/* Makes the operands of a case whose sizes are known. */
int case_make(struct op_case *c);

/* Makes the matching case of `forward`, and runs the reference on it. */
int case_forward(const struct op_case *c, enum op forward, struct op_case *f);

/* A random index below `count`. */
int case_index(struct op_case *c, int count);

void put_special_values(struct tensor *t);

#endif
