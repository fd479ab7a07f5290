/* Convolution in N16: the forward pass, and what the backward pass to the data shares with it. */

static void windows_forward(const struct op_args *a, const struct conv *s) {
    size_t k = (size_t)s->k, line = (size_t)s->out_width * GROUP;
    const struct windows windows = {.across = s->out_width,
                                    .rows = s->k,
                                    .columns = s->k,
                                    .top = -s->padding,
                                    .left = -s->padding,
                                    .step = s->stride,
                                    .next = 1,
                                    .height = s->height,
                                    .width = s->width,
                                    .w = {k * k, k, 1},
                                    .y_line = line,
                                    .y_apart = GROUP,
                                    .y_plane = line * s->out_height};
    int sums = s->channels * s->k * s->k;
    product_run(&(struct product){s->w, tensor_f32(&a->in[2]), tensor_f32(&a->in[0]),
                                  tensor_f32(&a->out[0]), (size_t)sums, 1, s->outputs, sums,
                                  s->groups, (int)windows.y_plane, &windows});
}

/* Runs a forward pass or a backward pass to the data that consists of products of matrices. Returns
 * 0 if the convolution has to be computed directly. */
static int pass_by_products(enum op op, const struct op_args *a, const struct conv *s) {
    enum conv_way way = conv_way(op, a);
    int back = op == OP_CONV2D_BACKWARD_DATA;
    if (way >= WAY_WINOGRAD_2)
        winograd_pass(a, s, way, back);
    else if (s->k == 1 && s->stride == 1 && s->padding == 0)
        product_pass(a, back ? NULL : tensor_f32(&a->in[2]), s->height * s->width, back);
    else
        return 0;
    return 1;
}

static void square_conv_forward(const struct op_args *a) {
    struct conv s = conv_of(a, &a->in[0], &a->out[0]);
    if (!pass_by_products(OP_CONV2D_FORWARD, a, &s)) windows_forward(a, &s);
}
