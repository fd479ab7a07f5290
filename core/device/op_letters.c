/* Evaluates the symbolic dimensions of op_table.c, the letters. A letter is the same number in all
 * operands of a launch. The file also computes a row's flops from them. */
#include "device/op_table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *op_shape(enum op op, const struct op_args *args, int output, int i) {
    const struct op_row *row = &op_table[op];
    const char *shape = output ? row->out[i].shape : row->in[i].shape, *second = strchr(shape, '|');
    return second && row->transposed(args, output, i) ? second + 1 : shape;
}

static void read_rest(struct op_letters *letters, const struct tensor *t, int from,
                      struct tensor *wanted) {
    if (letters->rest_rank < 0) {
        letters->rest_rank = t->rank - from;
        memcpy(letters->rest, t->dims + from, (size_t)letters->rest_rank * sizeof *t->dims);
    }
    wanted->rank = from + letters->rest_rank < MAX_RANK ? from + letters->rest_rank : MAX_RANK;
    for (int d = from; d < wanted->rank; d++)
        wanted->dims[d] = letters->rest[d - from];
}

void op_letters_read(struct op_letters *letters, const char *shape, const struct tensor *t,
                     struct tensor *wanted) {
    *wanted = *t;
    for (int d = 0; shape[d] && shape[d] != '|' && shape[d] != '?'; d++) {
        int *dim = &letters->dim[(int)shape[d]];
        if (shape[d] == '.') {
            read_rest(letters, t, d, wanted);
            return;
        }
        if (isdigit((unsigned char)shape[d])) *dim = shape[d] - '0';
        if (*dim < 0) *dim = t->dims[d];
        wanted->dims[d] = *dim;
    }
}

static double count_of(const struct op_letters *letters, char letter) {
    double product = 1;
    if (letter != '.') return letters->dim[(int)letter];
    for (int d = 0; d < letters->rest_rank; d++)
        product *= letters->rest[d];
    return product;
}

/* "2 NKM": 2 times the dimensions. */
static double letters_count(enum op op, const struct op_args *args, const char *flops) {
    const struct op_row *row = &op_table[op];
    struct op_letters letters;
    struct tensor wanted;
    char *at;
    memset(&letters, 0xff, sizeof letters);
    for (int i = 0; i < OP_INPUTS + OP_OUTPUTS; i++) {
        int output = i >= OP_INPUTS, k = output ? i - OP_INPUTS : i;
        const struct tensor *t = output ? &args->out[k] : &args->in[k];
        if ((output ? row->out[k].name : row->in[k].name) && t->data)
            op_letters_read(&letters, op_shape(op, args, output, k), t, &wanted);
    }
    double count = strtod(flops, &at);
    for (at++; *at; at++)
        count *= count_of(&letters, *at);
    return count;
}

double op_flops(enum op op, const struct op_args *args) {
    if ((unsigned)op >= OP_COUNT) return 0;
    const struct op_row *row = &op_table[op];
    if (row->cost) return row->cost(args);
    return row->flops ? letters_count(op, args, row->flops) : 0;
}
