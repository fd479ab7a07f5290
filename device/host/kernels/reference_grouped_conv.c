/* Convolution with groups, dilation and windows of any shape. Channel o of y sees the channels of
 * its group alone:
 *
 *     y[n][o][p][q] = b[o] + sum over g, ky, kx of w[o][g][ky][kx] * x[n][c][h][v]
 *     c = (o / (O / groups)) G + g,   h = p s - pad + ky d,   v alike
 *
 * As in reference_conv.c its two gradients are the same sum with the roles changed. */
#include "device/host/kernels/reference.h"

/* The input row (or column) below tap `tap` of output p; -1 outside of the picture. */
static int input_of(int p, int tap, const struct grouped_conv_args *a, int side, int inputs) {
    int h = p * a->stride[side] - a->padding[side] + tap * a->dilation[side];
    return h < inputs ? h : -1;
}

/* The output row p of which tap `tap` lies on input row h; -1: there is none. */
static int output_of(int h, int tap, const struct grouped_conv_args *a, int side, int outputs) {
    int above = h + a->padding[side] - tap * a->dilation[side];
    if (above < 0 || above % a->stride[side]) return -1;
    return above / a->stride[side] < outputs ? above / a->stride[side] : -1;
}

void reference_grouped_conv_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    const struct grouped_conv_args *s = &a->p.grouped_conv;
    const int each = y->dims[1] / s->groups;
    for (int n = 0; n < y->dims[0]; n++)
        for (int o = 0; o < y->dims[1]; o++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++) {
                    double sum = (double)tensor_f32(&a->in[2])[o];
                    for (int g = 0; g < w->dims[1]; g++)
                        for (int ky = 0; ky < w->dims[2]; ky++)
                            for (int kx = 0; kx < w->dims[3]; kx++) {
                                int h = input_of(p, ky, s, 0, x->dims[2]),
                                    v = input_of(q, kx, s, 1, x->dims[3]);
                                if (h >= 0 && v >= 0)
                                    sum += (double)*element4(w, o, g, ky, kx) *
                                           (double)*element4(x, n, o / each * w->dims[1] + g, h, v);
                            }
                    *element4(y, n, o, p, q) = (float)sum;
                }
}

void reference_grouped_conv_backward_data(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    const struct grouped_conv_args *s = &a->p.grouped_conv;
    const int each = dy->dims[1] / s->groups;
    for (int n = 0; n < dx->dims[0]; n++)
        for (int c = 0; c < dx->dims[1]; c++)
            for (int h = 0; h < dx->dims[2]; h++)
                for (int v = 0; v < dx->dims[3]; v++) {
                    const int group = c / w->dims[1], g = c % w->dims[1];
                    double sum = 0;
                    for (int o = group * each; o < (group + 1) * each; o++)
                        for (int ky = 0; ky < w->dims[2]; ky++)
                            for (int kx = 0; kx < w->dims[3]; kx++) {
                                int p = output_of(h, ky, s, 0, dy->dims[2]),
                                    q = output_of(v, kx, s, 1, dy->dims[3]);
                                if (p >= 0 && q >= 0)
                                    sum += (double)*element4(w, o, g, ky, kx) *
                                           (double)*element4(dy, n, o, p, q);
                            }
                    *element4(dx, n, c, h, v) = (float)sum;
                }
}

void reference_grouped_conv_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1], *dw = &a->out[0];
    const struct grouped_conv_args *s = &a->p.grouped_conv;
    const int each = dy->dims[1] / s->groups;
    for (int o = 0; o < dw->dims[0]; o++) {
        double bias = 0;
        for (int g = 0; g < dw->dims[1]; g++)
            for (int ky = 0; ky < dw->dims[2]; ky++)
                for (int kx = 0; kx < dw->dims[3]; kx++) {
                    double sum = 0;
                    for (int n = 0; n < dy->dims[0]; n++)
                        for (int p = 0; p < dy->dims[2]; p++)
                            for (int q = 0; q < dy->dims[3]; q++) {
                                int h = input_of(p, ky, s, 0, x->dims[2]),
                                    v = input_of(q, kx, s, 1, x->dims[3]);
                                if (h >= 0 && v >= 0)
                                    sum +=
                                        (double)*element4(dy, n, o, p, q) *
                                        (double)*element4(x, n, o / each * dw->dims[1] + g, h, v);
                            }
                    *element4(dw, o, g, ky, kx) = (float)sum;
                }
        for (int n = 0; n < dy->dims[0]; n++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++)
                    bias += (double)*element4(dy, n, o, p, q);
        tensor_f32(&a->out[1])[o] = (float)bias;
    }
}
