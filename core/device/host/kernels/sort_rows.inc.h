/* Argsort by radix: a number becomes 32 bits whose order as an integer is that of sort_order.h,
 * with its place behind them. Each round distributes these into 256 heaps by one byte, the lowest
 * byte first. A round keeps the order of equal bytes, so four rounds sort, and equal numbers keep
 * their order. A byte that is equal in all numbers needs no round.
 *
 *     32 bits of the number | 32 bits of the place          scratch: two columns of these */

enum { SORT_HEAPS = 256, SORT_ROUNDS = 4, SORT_SHORT = 64 };

static inline uint64_t sort_key(float x, int descending) {
    uint32_t bits, key;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        key = UINT32_MAX; /* NaN is the largest */
    else if (x == 0)
        key = 1u << 31; /* -0 too */
    else
        key = bits >> 31 ? ~bits : bits | 1u << 31;
    return (uint64_t)(descending ? ~key : key) << 32;
}

/* One round: from `from` to `to` by the byte at `shift`, of which heaps[] counts the values.
 * Returns 0 if there is nothing to do. */
static int sort_deal(const uint64_t *from, uint64_t *to, size_t count, int shift, uint32_t *heaps) {
    uint32_t first = 0;
    if (heaps[from[0] >> shift & (SORT_HEAPS - 1)] == count) return 0;
    for (int h = 0; h < SORT_HEAPS; h++) {
        uint32_t in_heap = heaps[h];
        heaps[h] = first, first += in_heap;
    }
    for (size_t i = 0; i < count; i++)
        to[heaps[from[i] >> shift & (SORT_HEAPS - 1)]++] = from[i];
    return 1;
}

static void sort_column(const float *x, float *y, size_t count, size_t step, int descending,
                        uint64_t *keys) {
    uint32_t heaps[SORT_ROUNDS][SORT_HEAPS] = {{0}};
    uint64_t *from = keys, *to = keys + count;
    for (size_t i = 0; i < count; i++) {
        uint64_t key = sort_key(x[i * step], descending);
        from[i] = key | i;
        for (int r = 0; r < SORT_ROUNDS; r++)
            heaps[r][key >> (32 + 8 * r) & (SORT_HEAPS - 1)]++;
    }
    for (int r = 0; r < SORT_ROUNDS; r++)
        if (sort_deal(from, to, count, 32 + 8 * r, heaps[r])) {
            uint64_t *done = to;
            to = from, from = done;
        }
    for (size_t i = 0; i < count; i++)
        y[i * step] = (float)(uint32_t)from[i];
}

static void row_argsort(const struct op_args *p) {
    const struct tensor *x = &p->in[0];
    const size_t count = (size_t)x->dims[1], inner = (size_t)x->dims[2];
    if (!p->scratch || count < SORT_SHORT) {
        reference_argsort(p);
        return;
    }
    for (size_t o = 0; o < (size_t)x->dims[0]; o++)
        for (size_t i = 0; i < inner; i++) {
            const size_t first = o * count * inner + i;
            sort_column(tensor_f32(x) + first, tensor_f32(&p->out[0]) + first, count, inner,
                        p->p.sort.descending, p->scratch);
        }
}
