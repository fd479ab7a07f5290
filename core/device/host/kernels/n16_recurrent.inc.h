/* Recurrent layers, with the formulas of reference_recurrent.c in float. All samples of a launch
 * advance one step at a time. n16_matmul.inc.h computes the product of a step. An element adds its
 * terms in the order of the units, so a sample's bits do not depend on the other samples. W_hh is
 * the same in each step, so its panels are made once.
 *
 * exp, tanh and sigmoid consist of multiply-adds, the same on every instruction set. With x = n ln
 * 2 + r, |r| <= ln 2 / 2, e^x = 2^n (1 + p(r)), and p is the series of e^r - 1, whose ninth term is
 * below 2^-30 r. */

struct exponential {
    vec scale, p; /* e^x is scale (1 + p) */
};

/* Beyond +-80 the result is that for 80, which gives 1 and 0 here, up to rounding. A NaN stays a
 * NaN. */
INLINE struct exponential exponential_of(vec x) {
    const float shift = 0x1.8p23f; /* at this size a float's last bit stands for 1 */
    struct exponential e;
    x = select_vec(x > 80.0f, splat(80), select_vec(x < -80.0f, splat(-80), x));
    vec n = fused(x, splat(0x1.715476p0f), splat(shift)), whole = n - splat(shift);
    vec r = fused(whole, splat(-0x1.62e4p-1f), x), p = splat(0x1.a01a02p-16f); /* 1 / 8! */
    r = fused(whole, splat(-0x1.7f7d1cp-20f), r);
    p = fused(p, r, splat(0x1.a01a02p-13f));
    p = fused(p, r, splat(0x1.6c16c2p-10f));
    p = fused(p, r, splat(0x1.111112p-7f));
    p = fused(p, r, splat(0x1.555556p-5f));
    p = fused(p, r, splat(0x1.555556p-3f));
    p = fused(p, r, splat(0.5f));
    e.p = fused(p * r, r, r);
    e.scale = (vec)(((ivec)n - (ivec)splat(shift) + 127) << 23);
    return e;
}

INLINE vec sigmoid_vec(vec x) {
    struct exponential e = exponential_of(-x);
    return splat(1) / (fused(e.scale, e.p, e.scale) + splat(1));
}

/* (e^2x - 1) / (e^2x + 1). Since e^2x - 1 is scale p + (scale - 1), a small x loses no bits. */
INLINE vec tanh_vec(vec x) {
    struct exponential e = exponential_of(x + x);
    vec minus_one = fused(e.scale, e.p, e.scale - splat(1));
    return minus_one / (minus_one + splat(2));
}

/* ---- what both directions share ---- */

struct recurrence {
    enum recurrent kind;
    int samples, steps, width, rows, kept, reverse; /* rows: of W_hh; kept: saved per step */
    float *panels, *work;                           /* scratch: panels of W_hh; one step */
};

static struct recurrence recurrence_of(const struct op_args *a, const struct tensor *w, int kept) {
    struct recurrence r = {.kind = a->p.recurrent.kind,
                           .samples = a->in[0].dims[0],
                           .steps = a->in[0].dims[1],
                           .width = w->dims[1],
                           .rows = w->dims[0],
                           .kept = kept,
                           .reverse = a->p.recurrent.reverse,
                           .panels = a->scratch};
    return r;
}

INLINE size_t recurrence_index(const struct recurrence *r, int s) {
    return (size_t)(r->reverse ? r->steps - 1 - s : s);
}

/* Row `at` of sample n of a tensor whose rows have `width` numbers. */
INLINE float *recurrence_row(const struct recurrence *r, const struct tensor *t, int n, size_t at,
                             int width) {
    return tensor_f32(t) + ((size_t)n * (size_t)r->steps + at) * (size_t)width;
}

/* work += the rows `a` of all samples, a_i apart, times W_hh in its panels. */
static void recurrence_product(const struct recurrence *r, const float *a, size_t a_i, int depth,
                               int columns) {
    const struct matmul m = {.a = a,
                             .y = r->work,
                             .rows = r->samples,
                             .columns = columns,
                             .depth = depth,
                             .a_i = a_i,
                             .a_k = 1,
                             .y_i = (size_t)columns,
                             .adds = 1,
                             .panels = r->panels};
    matmul_run(&m);
}

/* ---- forward ---- */

/* A step of one sample. u is h W_hh^T + b_hh, which already includes the gates except in a GRU. */
INLINE void recurrent_cell(const struct recurrence *r, const float *u, const float *x,
                           const float *before, float *y, float *saved, float *c) {
    size_t width = (size_t)r->width;
    for (size_t j = 0; j < width; j += LANES) {
        int count = width - j < LANES ? (int)(width - j) : LANES;
        vec first = load_some(u + j, count);
        if (r->kind == RECURRENT_TANH) {
            store_some(y + j, tanh_vec(first), count);
        } else if (r->kind == RECURRENT_RELU) {
            store_some(y + j, select_vec(first < 0, splat(0), first), count);
        } else if (r->kind == RECURRENT_LSTM) {
            vec old = load_some(c + j, count), i = sigmoid_vec(first),
                f = sigmoid_vec(load_some(u + width + j, count)),
                g = tanh_vec(load_some(u + 2 * width + j, count)),
                o = sigmoid_vec(load_some(u + 3 * width + j, count)), cell = fused(f, old, i * g),
                t = tanh_vec(cell);
            const vec keep[6] = {i, f, g, o, old, t};
            UNROLL for (size_t k = 0; k < 6; k++) store_some(saved + k * width + j, keep[k], count);
            store_some(c + j, cell, count);
            store_some(y + j, o * t, count);
        } else {
            vec gate = sigmoid_vec(first + load_some(x + j, count)),
                z = sigmoid_vec(load_some(u + width + j, count) + load_some(x + width + j, count)),
                hidden = load_some(u + 2 * width + j, count),
                n = tanh_vec(fused(gate, hidden, load_some(x + 2 * width + j, count))),
                h = before ? load_some(before + j, count) : splat(0);
            const vec keep[5] = {gate, z, n, hidden, h};
            UNROLL for (size_t k = 0; k < 5; k++) store_some(saved + k * width + j, keep[k], count);
            store_some(y + j, fused(z, h - n, n), count);
        }
    }
}

/* work = b_hh, plus the gates if they may be added before the product. */
static void recurrent_begin(const struct recurrence *r, const struct op_args *a, size_t at) {
    const float *b = tensor_f32(&a->in[2]);
    size_t rows = (size_t)r->rows;
    for (int n = 0; n < r->samples; n++) {
        const float *x = recurrence_row(r, &a->in[0], n, at, r->rows);
        float *to = r->work + (size_t)n * rows;
        if (r->kind != RECURRENT_GRU && b)
            for (size_t i = 0; i < rows; i++)
                to[i] = x[i] + b[i];
        else if (r->kind != RECURRENT_GRU || b)
            memcpy(to, b ? b : x, rows * sizeof *to);
        else
            memset(to, 0, rows * sizeof *to);
    }
}

/* Scratch: the panels of W_hh^T, and a row of gates for each sample. */
static void fast_recurrent_forward(const struct op_args *a) {
    struct recurrence r = recurrence_of(a, &a->in[1], a->out[1].data ? a->out[1].dims[2] : 0);
    if (!a->scratch) {
        reference_recurrent_forward(a);
        return;
    }
    const struct matmul w = {
        .b = tensor_f32(&a->in[1]), .columns = r.rows, .depth = r.width, .transposed = 1};
    size_t width = (size_t)r.width, states = a->in[3].data ? (size_t)a->in[3].dims[1] : 0, last = 0;
    const float *first = tensor_f32(&a->in[3]);
    float *c = tensor_f32(&a->out[2]);
    matmul_panels(&w, r.panels);
    r.work = r.panels + matmul_panel_floats(r.width, r.rows);
    for (size_t n = 0; c && n < (size_t)r.samples; n++)
        for (size_t j = 0; j < width; j++)
            c[n * width + j] = first ? first[(n * states + 1) * width + j] : 0;
    for (int s = 0; s < r.steps; s++) {
        size_t at = recurrence_index(&r, s);
        const float *h = s ? recurrence_row(&r, &a->out[0], 0, last, r.width) : first;
        size_t h_i = s ? (size_t)r.steps * width : states * width;
        recurrent_begin(&r, a, at);
        if (h && r.samples) recurrence_product(&r, h, h_i, r.width, r.rows);
        for (size_t n = 0; n < (size_t)r.samples; n++)
            recurrent_cell(
                &r, r.work + n * (size_t)r.rows, recurrence_row(&r, &a->in[0], (int)n, at, r.rows),
                h ? h + n * h_i : NULL, recurrence_row(&r, &a->out[0], (int)n, at, r.width),
                r.kept ? recurrence_row(&r, &a->out[1], (int)n, at, r.kept) : NULL,
                c ? c + n * width : NULL);
        last = at;
    }
}

/* ---- backward ---- */

/* A backward step of one sample, from dh. `carry` is the gradient of c, or of a GRU's h. */
INLINE void recurrent_cell_backward(const struct recurrence *r, const float *dh_row,
                                    const float *saved, float *carry, float *da, float *du) {
    size_t width = (size_t)r->width;
    const vec one = splat(1);
    for (size_t j = 0; j < width; j += LANES) {
        int count = width - j < LANES ? (int)(width - j) : LANES;
        vec dh = load_some(dh_row + j, count), v[6] = {{0}};
        UNROLL for (int k = 0; k < 6; k++) {
            if (k * r->width < r->kept) v[k] = load_some(saved + (size_t)k * width + j, count);
        }
        if (r->kind == RECURRENT_TANH) {
            store_some(da + j, dh * (one - v[0] * v[0]), count);
        } else if (r->kind == RECURRENT_RELU) {
            store_some(da + j, select_vec(v[0] > 0, dh, splat(0)), count);
        } else if (r->kind == RECURRENT_LSTM) {
            vec i = v[0], f = v[1], g = v[2], o = v[3],
                dc = fused(dh * o, one - v[5] * v[5], load_some(carry + j, count));
            store_some(da + j, dc * g * (i * (one - i)), count);
            store_some(da + width + j, dc * v[4] * (f * (one - f)), count);
            store_some(da + 2 * width + j, dc * i * (one - g * g), count);
            store_some(da + 3 * width + j, dh * v[5] * (o * (one - o)), count);
            store_some(carry + j, dc * f, count);
        } else {
            vec gate = v[0], z = v[1], n = v[2], dn = dh * (one - z) * (one - n * n),
                dr = dn * v[3] * (gate * (one - gate)), dz = dh * (v[4] - n) * (z * (one - z));
            store_some(da + j, dr, count);
            store_some(du + j, dr, count);
            store_some(da + width + j, dz, count);
            store_some(du + width + j, dz, count);
            store_some(da + 2 * width + j, dn, count);
            store_some(du + 2 * width + j, dn * gate, count);
            store_some(carry + j, dh * z, count);
        }
    }
}

/* Sets dfirst at the start of the walk to 0, except for the gradient of the last c. */
static void recurrent_carry(const struct recurrence *r, const struct op_args *a) {
    size_t width = (size_t)r->width, states = (size_t)a->out[1].dims[1];
    memset(a->out[1].data, 0, tensor_count(&a->out[1]) * sizeof(float));
    for (size_t n = 0; a->in[3].data && n < (size_t)r->samples; n++)
        memcpy(tensor_f32(&a->out[1]) + (n * states + 1) * width, tensor_f32(&a->in[3]) + n * width,
               width * sizeof(float));
}

/* Between steps dfirst holds the carry of a sample, for h (in a GRU) or, after it, for c (in an
 * LSTM). Scratch holds the panels of W_hh, and dh for each sample. */
static void fast_recurrent_backward(const struct op_args *a) {
    struct recurrence r = recurrence_of(a, &a->in[2], a->in[1].dims[2]);
    if (!a->scratch) {
        reference_recurrent_backward(a);
        return;
    }
    const struct tensor *du = r.kind == RECURRENT_GRU ? &a->out[2] : &a->out[0];
    const struct matmul w = {.b = tensor_f32(&a->in[2]), .columns = r.width, .depth = r.rows};
    size_t width = (size_t)r.width, states = (size_t)a->out[1].dims[1], behind = 0;
    float *dfirst = tensor_f32(&a->out[1]), *carry = dfirst + (states - 1) * width;
    matmul_panels(&w, r.panels);
    r.work = r.panels + matmul_panel_floats(r.rows, r.width);
    recurrent_carry(&r, a);
    for (int s = r.steps - 1; s >= -1; s--) {
        size_t at = recurrence_index(&r, s < 0 ? 0 : s);
        for (size_t n = 0; n < (size_t)r.samples; n++) {
            const float *dy = recurrence_row(&r, &a->in[0], (int)n, at, r.width);
            for (size_t j = 0; j < width; j++)
                r.work[n * width + j] =
                    (s < 0 ? 0 : dy[j]) + (states == 1 ? carry[n * states * width + j] : 0);
        }
        if (s < r.steps - 1 && r.samples)
            recurrence_product(&r, recurrence_row(&r, du, 0, behind, r.rows),
                               (size_t)r.steps * (size_t)r.rows, r.rows, r.width);
        for (size_t n = 0; n < (size_t)r.samples && s >= 0; n++)
            recurrent_cell_backward(
                &r, r.work + n * width, recurrence_row(&r, &a->in[1], (int)n, at, r.kept),
                carry + n * states * width, recurrence_row(&r, &a->out[0], (int)n, at, r.rows),
                recurrence_row(&r, du, (int)n, at, r.rows));
        behind = at;
    }
    for (size_t n = 0; n < (size_t)r.samples; n++)
        memcpy(dfirst + n * states * width, r.work + n * width, width * sizeof(float));
}
