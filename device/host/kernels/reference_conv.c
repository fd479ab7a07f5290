/* Convolution as its formula (a cross-correlation, as in every deep learning library):
 *
 *     y[n][o][p][q] = b[o] + sum over c, ky, kx of
 *                     w[o][c][ky][kx] * x[n][c][p*s - pad + ky][q*s - pad + kx]
 *
 * with stride s and x = 0 outside the picture. Its two gradients are the same sum with the roles
 * changed: dx collects every product in which x took part, dw every product in which w did. Four
 * loops walk over the output, three over the sum. */
#include "device/host/kernels/reference.h"

void reference_conv2d_forward(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    const float *b = tensor_f32(&a->in[2]);
    int stride = a->p.conv.stride, padding = a->p.conv.padding, k = w->dims[2];
    for (int n = 0; n < y->dims[0]; n++)
        for (int o = 0; o < y->dims[1]; o++)
            for (int p = 0; p < y->dims[2]; p++)
                for (int q = 0; q < y->dims[3]; q++) {
                    double sum = b[o];
                    for (int c = 0; c < x->dims[1]; c++)
                        for (int ky = 0; ky < k; ky++) {
                            int h = p * stride - padding + ky;
                            if (h < 0 || h >= x->dims[2]) continue;
                            const float *x_row = element4(x, n, c, h, 0),
                                        *w_row = element4(w, o, c, ky, 0);
                            for (int kx = 0; kx < k; kx++) {
                                int v = q * stride - padding + kx;
                                if (v >= 0 && v < x->dims[3]) sum += (double)w_row[kx] * x_row[v];
                            }
                        }
                    *element4(y, n, o, p, q) = (float)sum;
                }
}

/* The output row (or column) p whose tap `tap` falls on input row (or column) h: p * stride -
 * padding + tap = h. -1: there is none. */
static int output_of(int h, int tap, int stride, int padding, int outputs) {
    int numerator = h + padding - tap;
    if (numerator < 0 || numerator % stride) return -1;
    return numerator / stride < outputs ? numerator / stride : -1;
}

void reference_conv2d_backward_data(const struct op_args *a) {
    const struct tensor *dy = &a->in[0], *w = &a->in[1], *dx = &a->out[0];
    int stride = a->p.conv.stride, padding = a->p.conv.padding, k = w->dims[2];
    for (int n = 0; n < dx->dims[0]; n++)
        for (int c = 0; c < dx->dims[1]; c++)
            for (int h = 0; h < dx->dims[2]; h++)
                for (int v = 0; v < dx->dims[3]; v++) {
                    double sum = 0;
                    for (int o = 0; o < dy->dims[1]; o++)
                        for (int ky = 0; ky < k; ky++) {
                            int p = output_of(h, ky, stride, padding, dy->dims[2]);
                            if (p < 0) continue;
                            const float *dy_row = element4(dy, n, o, p, 0),
                                        *w_row = element4(w, o, c, ky, 0);
                            for (int kx = 0; kx < k; kx++) {
                                int q = output_of(v, kx, stride, padding, dy->dims[3]);
                                if (q >= 0) sum += (double)w_row[kx] * dy_row[q];
                            }
                        }
                    *element4(dx, n, c, h, v) = (float)sum;
                }
}

void reference_conv2d_backward_weight(const struct op_args *a) {
    const struct tensor *x = &a->in[0], *dy = &a->in[1], *dw = &a->out[0];
    float *db = tensor_f32(&a->out[1]);
    int stride = a->p.conv.stride, padding = a->p.conv.padding;
    for (int o = 0; o < dw->dims[0]; o++) {
        for (int c = 0; c < dw->dims[1]; c++)
            for (int ky = 0; ky < dw->dims[2]; ky++)
                for (int kx = 0; kx < dw->dims[3]; kx++) {
                    double sum = 0;
                    for (int n = 0; n < dy->dims[0]; n++)
                        for (int p = 0; p < dy->dims[2]; p++) {
                            int h = p * stride - padding + ky;
                            if (h < 0 || h >= x->dims[2]) continue;
                            const float *x_row = element4(x, n, c, h, 0),
                                        *dy_row = element4(dy, n, o, p, 0);
                            for (int q = 0; q < dy->dims[3]; q++) {
                                int v = q * stride - padding + kx;
                                if (v >= 0 && v < x->dims[3]) sum += (double)dy_row[q] * x_row[v];
                            }
                        }
                    *element4(dw, o, c, ky, kx) = (float)sum;
                }
        double sum = 0;
        for (int n = 0; n < dy->dims[0]; n++)
            for (int p = 0; p < dy->dims[2]; p++)
                for (int q = 0; q < dy->dims[3]; q++)
                    sum += *element4(dy, n, o, p, q);
        db[o] = (float)sum;
    }
}
