/* Linear layers whose rows are not samples, such as the words of a sentence. Their operands are
 * row-major, and n16_matmul.inc.h multiplies them. An element of y adds its products in the order
 * of the inputs, then the bias; an element of dw adds them in the order of the rows. */

static struct matmul linear_product(const struct tensor *a, const struct tensor *b,
                                    const struct tensor *y) {
    return (struct matmul){.a = tensor_f32(a),
                           .b = tensor_f32(b),
                           .y = tensor_f32(y),
                           .rows = y->dims[0],
                           .columns = y->dims[1],
                           .y_i = (size_t)y->dims[1]};
}

static void linear_rows(const struct op_args *a, int transposed) {
    struct matmul m = linear_product(&a->in[0], &a->in[1], &a->out[0]);
    m.depth = a->in[0].dims[1], m.a_i = (size_t)m.depth, m.a_k = 1;
    m.transposed = transposed;
    matmul_run(&m);
}

static void plain_linear_forward(const struct op_args *a) {
    linear_rows(a, !a->p.linear.weight_is_in_out);
    const float *bias = tensor_f32(&a->in[2]);
    size_t rows = (size_t)a->out[0].dims[0], columns = (size_t)a->out[0].dims[1];
    for (size_t n = 0; n < rows; n++)
        for (size_t i = 0; i < columns; i++)
            tensor_f32(&a->out[0])[n * columns + i] += bias[i];
}

static void plain_linear_backward_data(const struct op_args *a) {
    linear_rows(a, a->p.linear.weight_is_in_out);
}

static void plain_linear_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1];
    int in_out = a->p.linear.weight_is_in_out;
    struct matmul m = linear_product(in_out ? x : dy, in_out ? dy : x, &a->out[0]);
    m.depth = x->dims[0], m.a_i = 1, m.a_k = (size_t)m.rows;
    matmul_run(&m);
    float *db = tensor_f32(&a->out[1]);
    size_t outputs = (size_t)dy->dims[1];
    memset(db, 0, outputs * sizeof *db);
    for (size_t n = 0; n < (size_t)dy->dims[0]; n++)
        for (size_t i = 0; i < outputs; i++)
            db[i] += tensor_f32(dy)[n * outputs + i];
}
