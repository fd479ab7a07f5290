/* Convolution with its formula (a cross-correlation, as in every deep learning library). Channel o
 * of y reads only the channels of its group:
 *
 *     y[n][o][p][q] = b[o] + sum over g, ky, kx of w[o][g][ky][kx] * x[n][c][h][v]
 *     c = (o / (O / groups)) G + g,   h = p s - pad + ky d,   v alike
 *
 * with stride s, dilation d and x = 0 outside the image. Its two gradients are the same sum with
 * the roles changed: dx adds up every product that contains x, dw every product that contains w.
 * Four loops walk over the output, three over the sum. */
#include "device/host/kernels/reference.h"

/* The input row (side 0) or column (1) below tap `tap` of output p; below 0 or not below `inputs`
 * outside of the image. */
static int input_of(const struct conv_args *s, int side, int p, int tap) {
    return p * s->stride[side] - s->padding[side] + tap * s->dilation[side];
}

/* The output row p whose tap `tap` is on input row h; -1: there is none. */
static int output_of(const struct conv_args *s, int side, int h, int tap, int outputs) {
    int above = h + s->padding[side] - tap * s->dilation[side];
    if (above < 0 || above % s->stride[side]) return -1;
    return above / s->stride[side] < outputs ? above / s->stride[side] : -1;
}

void reference_conv2d_forward(const struct op_args *a) {
    const struct conv_args *s = &a->p.conv;
    const struct tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    const int each = y->dims[1] / s->groups;
    for (int n = 0; n < y->dims[0]; n++)
        for (int o = 0; o < y->dims[1]; o++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++) {
                    double sum = (double)tensor_f32(&a->in[2])[o];
                    for (int g = 0; g < w->dims[1]; g++)
                        for (int ky = 0; ky < w->dims[2]; ky++) {
                            int h = input_of(s, 0, p, ky);
                            if (h < 0 || h >= x->dims[2]) continue;
                            const float *x_row = element4(x, n, o / each * w->dims[1] + g, h, 0),
                                        *w_row = element4(w, o, g, ky, 0);
                            for (int kx = 0; kx < w->dims[3]; kx++) {
                                int v = input_of(s, 1, q, kx);
                                if (v >= 0 && v < x->dims[3]) sum += (double)w_row[kx] * x_row[v];
                            }
                        }
                    *element4(y, n, o, p, q) = (float)sum;
                }
}

void reference_conv2d_backward_data(const struct op_args *a) {
    const struct conv_args *s = &a->p.conv;
    const struct tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    const int each = dy->dims[1] / s->groups;
    for (int n = 0; n < dx->dims[0]; n++)
        for (int c = 0; c < dx->dims[1]; c++)
            for (int h = 0; h < dx->dims[2]; h++)
                for (int v = 0; v < dx->dims[3]; v++) {
                    const int group = c / w->dims[1], g = c % w->dims[1];
                    double sum = 0;
                    for (int o = group * each; o < (group + 1) * each; o++)
                        for (int ky = 0; ky < w->dims[2]; ky++) {
                            int p = output_of(s, 0, h, ky, dy->dims[2]);
                            if (p < 0) continue;
                            const float *dy_row = element4(dy, n, o, p, 0),
                                        *w_row = element4(w, o, g, ky, 0);
                            for (int kx = 0; kx < w->dims[3]; kx++) {
                                int q = output_of(s, 1, v, kx, dy->dims[3]);
                                if (q >= 0) sum += (double)w_row[kx] * dy_row[q];
                            }
                        }
                    *element4(dx, n, c, h, v) = (float)sum;
                }
}

void reference_conv2d_backward_weight(const struct op_args *a) {
    const struct conv_args *s = &a->p.conv;
    const struct tensor *x = &a->in[0], *dy = &a->in[1], *dw = &a->out[0];
    const int each = dy->dims[1] / s->groups;
    for (int o = 0; o < dw->dims[0]; o++) {
        for (int g = 0; g < dw->dims[1]; g++)
            for (int ky = 0; ky < dw->dims[2]; ky++)
                for (int kx = 0; kx < dw->dims[3]; kx++) {
                    double sum = 0;
                    for (int n = 0; n < dy->dims[0]; n++)
                        for (int p = 0; p < dy->dims[2]; p++) {
                            int h = input_of(s, 0, p, ky);
                            if (h < 0 || h >= x->dims[2]) continue;
                            const float *x_row = element4(x, n, o / each * dw->dims[1] + g, h, 0),
                                        *dy_row = element4(dy, n, o, p, 0);
                            for (int q = 0; q < dy->dims[3]; q++) {
                                int v = input_of(s, 1, q, kx);
                                if (v >= 0 && v < x->dims[3]) sum += (double)dy_row[q] * x_row[v];
                            }
                        }
                    *element4(dw, o, g, ky, kx) = (float)sum;
                }
        double sum = 0;
        for (int n = 0; n < dy->dims[0]; n++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++)
                    sum += *element4(dy, n, o, p, q);
        tensor_f32(&a->out[1])[o] = (float)sum;
    }
}
