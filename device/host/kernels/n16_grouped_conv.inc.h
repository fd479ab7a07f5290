/* Convolution with groups in N16. The common case is depthwise, one channel a group: a few products
 * for each pixel, so there is little to keep in registers. A vector is one pixel of 16 samples, and
 * which taps lie in the picture is asked once for each window. */

struct grouped {
    int groups, channels, outputs, height, width, out_height, out_width;
    int of_group, each; /* channels of x and of y in a group of channels */
    int rows, columns;  /* of the window */
    struct grouped_conv_args p;
};

INLINE struct grouped grouped_of(const struct op_args *a, const struct tensor *x,
                                 const struct tensor *w, const struct tensor *y) {
    return (struct grouped){y->groups,  x->dims[1], y->dims[1],
                            x->dims[2], x->dims[3], y->dims[2],
                            y->dims[3], w->dims[1], y->dims[1] / a->p.grouped_conv.groups,
                            w->dims[2], w->dims[3], a->p.grouped_conv};
}

/* Taps first .. end-1 of a window of `taps` that begins at `start` lie on pixels 0 .. size-1. */
struct taps {
    int first, end;
};

INLINE struct taps taps_inside(int start, int taps, int dilation, int size) {
    int last = start + (taps - 1) * dilation;
    struct taps t = {0, taps};
    if (start < 0) t.first = (-start + dilation - 1) / dilation;
    if (last >= size) t.end = start >= size ? 0 : (size - 1 - start) / dilation + 1;
    if (t.end < t.first) t.end = t.first;
    return t;
}

/* Where the windows of row p and of column q begin. */
INLINE int start_of(const struct grouped *s, int side, int at) {
    return at * s->p.stride[side] - s->p.padding[side];
}

static void n16_grouped_conv_forward(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_forward(a);
        return;
    }
    const struct grouped s = grouped_of(a, &a->in[0], &a->in[1], &a->out[0]);
    const size_t x_plane = plane(s.height, s.width), filter = (size_t)s.rows * (size_t)s.columns;
    float *y = tensor_f32(&a->out[0]);
    for (int n = 0; n < s.groups; n++)
        for (int o = 0; o < s.outputs; o++) {
            const float *w = tensor_f32(&a->in[1]) + (size_t)(o * s.of_group) * filter,
                        *x = tensor_f32(&a->in[0]) +
                             (size_t)(n * s.channels + o / s.each * s.of_group) * x_plane;
            const vec bias = splat(tensor_f32(&a->in[2])[o]);
            for (int p = 0; p < s.out_height; p++) {
                const int top = start_of(&s, 0, p);
                const struct taps down = taps_inside(top, s.rows, s.p.dilation[0], s.height);
                for (int q = 0; q < s.out_width; q++, y += GROUP) {
                    const int left = start_of(&s, 1, q);
                    const struct taps across =
                        taps_inside(left, s.columns, s.p.dilation[1], s.width);
                    for (int lane = 0; lane < GROUP; lane += LANES) {
                        vec sum = bias;
                        for (int g = 0; g < s.of_group; g++)
                            for (int ky = down.first; ky < down.end; ky++) {
                                const float *row =
                                    x + (size_t)g * x_plane + (size_t)lane +
                                    (size_t)(top + ky * s.p.dilation[0]) * (size_t)s.width * GROUP;
                                const float *tap = w + (size_t)g * filter + ky * s.columns;
                                for (int kx = across.first; kx < across.end; kx++)
                                    sum = fused(load(row + (left + kx * s.p.dilation[1]) * GROUP),
                                                splat(tap[kx]), sum);
                            }
                        store(y + lane, sum);
                    }
                }
            }
        }
}

/* Each pixel of dy gives its share to the pixels below its window. */
static void n16_grouped_conv_backward_data(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_backward_data(a);
        return;
    }
    const struct grouped s = grouped_of(a, &a->out[0], &a->in[1], &a->in[0]);
    const size_t x_plane = plane(s.height, s.width), filter = (size_t)s.rows * (size_t)s.columns;
    const float *dy = tensor_f32(&a->in[0]);
    memset(a->out[0].data, 0, (size_t)s.groups * (size_t)s.channels * x_plane * sizeof(float));
    for (int n = 0; n < s.groups; n++)
        for (int o = 0; o < s.outputs; o++) {
            const float *w = tensor_f32(&a->in[1]) + (size_t)(o * s.of_group) * filter;
            float *dx = tensor_f32(&a->out[0]) +
                        (size_t)(n * s.channels + o / s.each * s.of_group) * x_plane;
            for (int p = 0; p < s.out_height; p++) {
                const int top = start_of(&s, 0, p);
                const struct taps down = taps_inside(top, s.rows, s.p.dilation[0], s.height);
                for (int q = 0; q < s.out_width; q++, dy += GROUP) {
                    const int left = start_of(&s, 1, q);
                    const struct taps across =
                        taps_inside(left, s.columns, s.p.dilation[1], s.width);
                    for (int lane = 0; lane < GROUP; lane += LANES) {
                        const vec share = load(dy + lane);
                        for (int g = 0; g < s.of_group; g++)
                            for (int ky = down.first; ky < down.end; ky++) {
                                float *row =
                                    dx + (size_t)g * x_plane + (size_t)lane +
                                    (size_t)(top + ky * s.p.dilation[0]) * (size_t)s.width * GROUP;
                                const float *tap = w + (size_t)g * filter + ky * s.columns;
                                for (int kx = across.first; kx < across.end; kx++) {
                                    float *to = row + (left + kx * s.p.dilation[1]) * GROUP;
                                    store(to, fused(share, splat(tap[kx]), load(to)));
                                }
                            }
                    }
                }
            }
        }
}

/* The outputs first .. end-1 whose tap lies inside, where a row of outputs begins at `start`. */
INLINE struct taps outputs_inside(int start, int stride, int size, int outputs) {
    struct taps t = {0, outputs};
    if (start < 0) t.first = (-start + stride - 1) / stride;
    if (start >= size) t.end = 0;
    if (start < size && (size - 1 - start) / stride + 1 < outputs)
        t.end = (size - 1 - start) / stride + 1;
    if (t.first > t.end) t.first = t.end;
    return t;
}

/* The sum of dy, times x where it is not NULL, along the outputs `across` of a row; `dy` and `x`
 * are at the lane. Four chains of sums at a time. */
INLINE vec row_sum(const float *dy, const float *x, int left, int stride, struct taps across) {
    vec sum[4] = {splat(0), splat(0), splat(0), splat(0)};
    for (int q = across.first, i = 0; q < across.end; q++, i = (i + 1) % 4) {
        const vec share = load(dy + q * GROUP);
        sum[i] = x ? fused(share, load(x + (left + q * stride) * GROUP), sum[i]) : sum[i] + share;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The gradient of the weight at (o, g, ky, kx); of the bias of o with x = NULL. */
INLINE float grouped_weight(const struct grouped *s, const float *dy, const float *x, int o, int ky,
                            int kx, size_t x_step) {
    const int top = x ? ky * s->p.dilation[0] - s->p.padding[0] : 0,
              left = x ? kx * s->p.dilation[1] - s->p.padding[1] : 0;
    struct taps down = {0, s->out_height}, across = {0, s->out_width};
    float lanes[GROUP];
    if (x) down = outputs_inside(top, s->p.stride[0], s->height, s->out_height);
    if (x) across = outputs_inside(left, s->p.stride[1], s->width, s->out_width);
    for (int lane = 0; lane < GROUP; lane += LANES) {
        vec sum = splat(0);
        for (int n = 0; n < s->groups; n++)
            for (int p = down.first; p < down.end; p++) {
                const float *dy_row =
                    dy + (size_t)lane +
                    ((size_t)(n * s->outputs + o) * (size_t)s->out_height + (size_t)p) *
                        (size_t)s->out_width * GROUP;
                const float *x_row =
                    x ? x + (size_t)lane + (size_t)n * x_step +
                            (size_t)(top + p * s->p.stride[0]) * (size_t)s->width * GROUP
                      : NULL;
                sum += row_sum(dy_row, x_row, left, s->p.stride[1], across);
            }
        store(lanes + lane, sum);
    }
    return sum_of_group(lanes);
}

static void n16_grouped_conv_backward_weight(const struct op_args *a) {
    if (a->in[0].layout == LAYOUT_PLAIN) {
        reference_grouped_conv_backward_weight(a);
        return;
    }
    const struct grouped s = grouped_of(a, &a->in[0], &a->out[0], &a->in[1]);
    const size_t x_plane = plane(s.height, s.width);
    const float *dy = tensor_f32(&a->in[1]);
    float *dw = tensor_f32(&a->out[0]);
    for (int o = 0; o < s.outputs; o++) {
        for (int g = 0; g < s.of_group; g++)
            for (int tap = 0; tap < s.rows * s.columns; tap++)
                *dw++ = grouped_weight(
                    &s, dy, tensor_f32(&a->in[0]) + (size_t)(o / s.each * s.of_group + g) * x_plane,
                    o, tap / s.columns, tap % s.columns, (size_t)s.channels * x_plane);
        tensor_f32(&a->out[1])[o] = grouped_weight(&s, dy, NULL, o, 0, 0, 0);
    }
}
