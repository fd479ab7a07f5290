/* The change of layout, from plain to N16 and back, for any order of a sample in memory. */

/* Some samples of a group, of which the first is at `plain`: they are `apart` floats apart. */
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
 * each other in memory, the edges one by one. Lanes without a sample become zero. */
static void samples_to_n16(const struct samples *s, int d, const float *from, float *to) {
    const size_t length = (size_t)s->order.dims[d], step = (size_t)s->order.at[d],
                 lanes = (size_t)s->order.number[d] * GROUP;
    size_t i = 0;
    if (d < s->order.rank - 1) {
        for (; i < length; i++)
            samples_to_n16(s, d + 1, from + i * step, to + i * lanes);
        return;
    }
    if (s->count == LANES && step == 1)
        for (; i + LANES <= length; i += LANES)
            transpose(from + i, s->apart, to + i * lanes, lanes);
    for (; i < length; i++)
        for (size_t lane = 0; lane < LANES; lane++)
            to[i * lanes + lane] = lane < s->count ? from[lane * s->apart + i * step] : 0;
}

static void n16_to_n16(const struct op_args *a) {
    struct samples s = samples_of(&a->in[0]);
    size_t samples = (size_t)a->in[0].dims[0], count = tensor_sample_count(&a->in[0]);
    for (size_t n = 0; n < (size_t)a->out[0].groups * GROUP; n += LANES) {
        size_t left = n < samples ? samples - n : 0, first = left ? n : 0;
        s.count = left < LANES ? left : LANES;
        samples_to_n16(&s, 0, tensor_f32(&a->in[0]) + first * s.apart,
                       tensor_f32(&a->out[0]) + n / GROUP * count * GROUP + n % GROUP);
    }
}

static void samples_to_plain(const struct samples *s, int d, const float *from, float *to) {
    const size_t length = (size_t)s->order.dims[d], step = (size_t)s->order.at[d],
                 lanes = (size_t)s->order.number[d] * GROUP;
    size_t i = 0;
    if (d < s->order.rank - 1) {
        for (; i < length; i++)
            samples_to_plain(s, d + 1, from + i * lanes, to + i * step);
        return;
    }
    if (s->count == LANES && step == 1)
        for (; i + LANES <= length; i += LANES)
            transpose(from + i * lanes, lanes, to + i, s->apart);
    for (; i < length; i++)
        for (size_t lane = 0; lane < s->count; lane++)
            to[lane * s->apart + i * step] = from[i * lanes + lane];
}

static void n16_to_plain(const struct op_args *a) {
    struct samples s = samples_of(&a->out[0]);
    size_t samples = (size_t)a->out[0].dims[0], count = tensor_sample_count(&a->out[0]);
    for (size_t n = 0; n < samples; n += LANES) {
        s.count = samples - n < LANES ? samples - n : LANES;
        samples_to_plain(&s, 0, tensor_f32(&a->in[0]) + n / GROUP * count * GROUP + n % GROUP,
                         tensor_f32(&a->out[0]) + n * s.apart);
    }
}
