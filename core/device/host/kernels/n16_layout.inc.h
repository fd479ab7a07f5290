/* Converts PLAIN tensors to N16 and back, for any order of a sample's elements in memory. */

/* Some samples of a group. The first is at `plain`, and neighbours are `apart` floats apart. */
struct samples {
    struct sample_order order;
    size_t apart, count;
};

static struct samples samples_of(const struct tensor *plain) {
    int stride[MAX_RANK];
    tensor_strides(plain, stride);
    return (struct samples){.order = tensor_sample_order(plain), .apart = (size_t)stride[0]};
}

/* Up to LANES samples, from dimension d on: a LANES x LANES block at a time where elements follow
 * each other in memory, the edges one by one. To N16, lanes without a sample become zero. */
static void move_samples(const struct samples *s, const int to_plain, int d, float *plain,
                         float *n16) {
    const size_t length = (size_t)s->order.dims[d], step = (size_t)s->order.at[d],
                 lanes = (size_t)s->order.number[d] * GROUP;
    size_t i = 0;
    if (d < s->order.rank - 1) {
        for (; i < length; i++)
            move_samples(s, to_plain, d + 1, plain + i * step, n16 + i * lanes);
        return;
    }
    for (; s->count == LANES && step == 1 && i + LANES <= length; i += LANES)
        if (to_plain)
            transpose(n16 + i * lanes, lanes, plain + i, s->apart);
        else
            transpose(plain + i, s->apart, n16 + i * lanes, lanes);
    for (; i < length; i++)
        for (size_t lane = 0; lane < (to_plain ? s->count : LANES); lane++) {
            float *at = plain + lane * s->apart + i * step;
            if (to_plain)
                *at = n16[i * lanes + lane];
            else
                n16[i * lanes + lane] = lane < s->count ? *at : 0;
        }
}

static void move_layout(const struct tensor *plain, const struct tensor *n16, int to_plain) {
    struct samples s = samples_of(plain);
    size_t samples = (size_t)plain->dims[0], count = tensor_sample_count(plain);
    for (size_t n = 0; n < (to_plain ? samples : (size_t)n16->groups * GROUP); n += LANES) {
        size_t left = n < samples ? samples - n : 0, first = left ? n : 0;
        s.count = left < LANES ? left : LANES;
        move_samples(&s, to_plain, 0, tensor_f32(plain) + first * s.apart,
                     tensor_f32(n16) + n / GROUP * count * GROUP + n % GROUP);
    }
}

static void n16_to_n16(const struct op_args *a) {
    move_layout(&a->in[0], &a->out[0], 0);
}

static void n16_to_plain(const struct op_args *a) {
    move_layout(&a->out[0], &a->in[0], 1);
}
